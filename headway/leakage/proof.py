"""The leakage proof of a window, computed from key indexes: no key is in two splits, and times are in order.

    proof = prove(SplitConfig(...), window, parts, find_rows)
    proof.says                                # sentences of what holds
    proof.anomalies                           # what does not
    proof.splits                              # by split: rows, keys, times

Hashes alone decide whether splits share a key. Equal keys have equal hashes. Among 5 million keys, two different ones share a
hash in one window of a million. `find_rows` finds the rows of the first few shared keys, so that messages can name them.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headway.leakage import hash_sets
from headway.leakage.hash_sets import CommonHashes
from headway.leakage.key_index import KEPT, DistinctSample, KeyEntry, KeyName, load_sets, overlap
from headway.leakage.window_proof import IndexedSpan, Proof, Window, add_times, check_order, check_times
from headway.messages import agree, counted, listed, some
from headway.storage.fingerprint import first_difference
from headway.tabular.splits import SpanSplit, SplitConfig
from headway.validation.anomaly import Severity

FEW_MISSING = 0.01
"""The share of rows without a key above which the proof warns."""
FEW_REPEATED, MANY_REPEATED = 0.01, 0.1
"""The share of eval rows that also occur in train from which the proof warns. And the excess of this share over that of rows that
repeat within train, from which the proof reports an error."""
COMBINATIONS = 0.1
"""If the share of distinct rows in train is less, rows are combinations of a few values, and equal rows are not copies."""
FEW_KEYS, FEW_EVAL_KEYS = 100, 20
"""The least numbers of distinct keys, in all and in eval. If there are fewer, the proof warns."""


@dataclass(frozen=True)
class KeyOccurrence:
    """A row in which a key occurs."""

    hash: int
    written: str
    """The text of the key as the row's file writes it."""
    span: str
    split: str
    """The split of the window that the row is in."""
    file: str
    row: int
    """The number of the row within the file, from 1."""


RowFinder = Callable[[Sequence[str], hash_sets.Hashes, Sequence[str], Sequence[str]], list[KeyOccurrence]]
"""Finds rows by the hashes of their keys. The arguments are the columns of the key, hashes in rising order, spans, and splits.
Returns the first row of each hash in each split, in the order of the spans. Rows in files that are gone are left out."""


def prove(
    config: SplitConfig, spans: Sequence[IndexedSpan], parts: Mapping[str, Sequence[SpanSplit]], find_rows: RowFinder
) -> Proof:
    """Returns the proof: statements of what holds or was not checked, findings of what does not hold, and figures by split.

    Args:
        spans, parts: the spans in order of time, and the parts of each split, from `window_splits`.

    Raises:
        DataError: an index is damaged.
    """
    return _Prover(config, spans, parts, find_rows).prove()


class _Prover:
    def __init__(
        self, rule: SplitConfig, spans: Sequence[IndexedSpan], parts: Mapping[str, Sequence[SpanSplit]], find: RowFinder
    ):
        self.config, self.window, self.find_rows = rule, Window(spans, parts), find
        self.parts, self.spans = self.window.parts, self.window.spans

    def prove(self) -> Proof:
        add_times(self.window)
        if self.config.mode == "time":
            check_order(self.window)
        elif self.config.key:
            self._keys()
        elif self.config.mode == "hash":
            self._rows()
        elif (begin := self.config.eval_from) is not None:
            column = self.config.column or ""
            if self.spans[0].index.time == column:
                check_times(self.window, column, f"split by this column alone: split.column: {column}")
            else:
                self.window.state(
                    f"rows with {column!r} from {begin} on are eval; keys in two splits were not checked for"
                )
        else:
            by = f"column {self.config.column!r}" if self.config.column else "the paths of their files"
            self.window.state(
                f"rows are split by {by}; keys in two splits were not checked for, because split.key is not set"
            )
        if "group" in self.spans[0].index.keys:
            self._keys("group")
        repeated_in_train(self.window, by_time=self.config.by_time)
        return self.window.proof

    # --- keys

    def _keys(self, key: KeyName = "key") -> None:
        """Check that no key is in two splits. Reports each pair of splits that shares keys, or states that none does."""
        if not self._comparable(key):
            return
        columns = list(self._columns(key))
        groups = {
            split: [
                hashes
                for indexed, part, note in self.window.parts_of_split(split)
                for hashes in load_sets(indexed.folder, note, part, key)
            ]
            for split in self.parts
        }
        compared = hash_sets.compare(groups)
        for (a, b), shared in compared.shared.items():
            self._overlap(key, a, b, shared)
        self._missing(key)
        if key == "key":
            for split, values in compared.values.items():
                self.window.proof.splits[split]["keys"] = values
            if self.config.mode == "hash":
                warn_of_few_keys(self.window, compared.values, _name(columns))
        if not compared.shared:
            tally = listed([f"{n:,} of {split}" for split, n in compared.values.items()])
            self.window.state(f"no {_name(columns)} is in two splits: compared the keys of {self.window.size}, {tally}")

    def _overlap(self, key: KeyName, a: str, b: str, shared: CommonHashes) -> None:
        columns, mode = list(self._columns(key)), self.config.mode
        name, what, count = _name(columns), "key" if key == "key" else "group", shared.count
        rows = self._look(key, shared.least, (a, b))
        by_hash = [[row for row in rows if row.hash == value] for value in shared.least.tolist()]
        if mode == "path":
            fix = f"put all rows of a {what} into files of one split, or leave {{split}} out of source.path and use "
            fix += f"split: {{mode: hash, key: [{', '.join(columns)}]}}"
        elif mode == "column":
            fix = f"give all rows of a {what} the same split in {self.config.column!r}, or use "
            fix += f"split: {{mode: hash, key: [{', '.join(columns)}]}}"
        elif key == "group":
            fix = f"split by the group: split: {{key: {name}}}"
        elif any(len({row.written for row in of_key}) > 1 for of_key in by_hash):
            fix = f"write {name} the same way in every file, or have it read as a number: 'type: int' beside its role in columns"
        else:
            fix = "the spans were split by different rules: delete their outputs in stages/ingest and run again"
        message = f"{counted(count, what)} ({name.strip('()')}) {agree(count, 'is', 'are')} in {a} and in {b}"
        if key == "group":
            message += ", so their order is scored on groups that the model was trained on"
        named = "; ".join(_rows_text(of_key) for of_key in by_hash if of_key)
        message += f": {named}" if named else ", but their rows could not be found again in the files"
        severity: Severity = "error" if key == "key" else "warning"
        self.window.add_finding(severity, "key overlap" if key == "key" else "group overlap", f"{a}, {b}", message, fix)

    def _look(self, key: KeyName, hashes: hash_sets.Hashes, splits: Sequence[str]) -> list[KeyOccurrence]:
        """Returns the rows of two splits that have these hashes. A span is searched only if its index has one of the hashes."""
        spans = {
            indexed.span
            for split in splits
            for indexed, part, note in self.window.parts_of_split(split)
            for stored in load_sets(indexed.folder, note, part, key)
            if (stored[np.searchsorted(stored, hashes).clip(max=len(stored) - 1)] == hashes).any()
        }
        names = [indexed.span for indexed in self.spans if indexed.span in spans]
        return self.find_rows(list(self._columns(key)), hashes, names, splits)

    def _columns(self, key: KeyName) -> Mapping[str, str]:
        return self.spans[0].index.keys[key]

    def _comparable(self, key: KeyName) -> bool:
        """Returns whether all spans indexed the same key. If not, adds an error to the findings."""
        different = [indexed.span for indexed in self.spans if indexed.index.keys.get(key) != self._columns(key)]
        if different:
            message = (
                f"keys of spans {self.spans[0].span} and {different[0]} cannot be compared: they are of other columns"
            )
            fix = "delete the spans' outputs in stages/ingest and run again"
            self.window.add_finding("error", "split proof", ", ".join(self.parts), message, fix)
        return not different

    def _missing(self, key: KeyName) -> None:
        """Report the rows without a key. Such rows are not compared."""
        indexed: list[KeyEntry] = [note.keys[key] for split in self.parts for note in self.window.indexes(split)]
        missing, rows = sum(note.missing for note in indexed), self.window.rows
        if not missing:
            return
        name = _name(list(self._columns(key)))
        together = " and go into one split together" if self.config.mode == "hash" and key == "key" else ""
        message = f"{missing:,} of {rows:,} rows have no {name} (null or NaN): they are not compared{together}"
        fix = "filter them (source.where), or fill the column"
        severity: Severity = "warning" if missing > FEW_MISSING * rows else "info"
        self.window.add_finding(severity, "missing key", ", ".join(self.parts), message, fix)

    # --- rows split by a hash of all columns

    def _rows(self) -> None:
        """Check that the ranges of hashes of two splits do not overlap: then equal rows, with equal hashes, are in one split."""
        first = self.spans[0]
        for indexed in self.spans[1:]:
            if indexed.index.rule != first.index.rule:
                message = f"spans {first.span} and {indexed.span} were split by different rules "
                rules = first_difference(first.index.rule, indexed.index.rule)
                message += f"({rules}): equal rows may be in two splits"
                fix = "delete their outputs in stages/ingest and run again"
                self.window.add_finding("error", "split proof", f"{first.span}, {indexed.span}", message, fix)
                return
        ends: dict[str, tuple[int, int]] = {}
        for split in self.parts:
            ranges = [note.hashes for note in self.window.indexes(split) if note.hashes is not None]
            if ranges:
                ends[split] = min(low for low, _ in ranges), max(high for _, high in ranges)
        for a, b in itertools.combinations(ends, 2):
            if ends[a][0] <= ends[b][1] and ends[b][0] <= ends[a][1]:
                message = f"the hashes of {a} rows and of {b} rows overlap: equal rows may be in both"
                fix = "delete the spans' outputs in stages/ingest and run again"
                self.window.add_finding("error", "key overlap", f"{a}, {b}", message, fix)
                return
        columns = list(first.index.rule["columns"])
        if first.index.rule.get("by_place"):
            self.window.state(
                f"fewer than a tenth of the first rows are distinct in the {counted(len(columns), 'column')} that "
                f"{agree(len(columns), 'is', 'are')} hashed, so rows are split by their places in their files too: equal rows "
                "are in several splits, which is not a leak"
            )
            return
        self.window.state(
            f"equal rows are in one split: the hashes of {listed([*self.parts])} rows over "
            f"{counted(len(columns), 'column')} do not overlap, over {self.window.size}; rows that belong together but differ, "
            "as those of one person or day, are kept together by split.key alone"
        )
        repeats(self.window, columns)


def warn_of_few_keys(window: Window, keys: Mapping[str, int], name: str) -> None:
    """Warn if all rows, or eval's, have few keys (`keys`: number by split). Eval is a sample of only as many rows as keys."""
    total, judging = sum(keys.values()), keys.get("eval", 0)
    if (total >= FEW_KEYS and judging >= FEW_EVAL_KEYS) or total * 2 >= window.rows:
        return
    message = f"{counted(window.rows, 'row')} have only {counted(total, 'distinct value')} of {name}, and eval has "
    message += f"{judging:,} of them: rows of one value go together, so eval may be unlike train, and its metrics are "
    message += "less certain than its number of rows says"
    fix = "split by a key of more values (split.key), by time, or by a column (split.mode)"
    window.add_finding("warning", "few keys", "eval", message, fix)


def repeated_in_train(window: Window, *, by_time: bool) -> None:
    """Report the share of eval and test rows that also occur in train, estimated from samples. Identifiers are not compared.

    With `by_time`, rows may come again from month to month. Then only the excess over the share within train is a finding.
    """
    content = window.spans[0].index.content
    if not content or "train" not in window.parts or any(indexed.index.content != content for indexed in window.spans):
        return
    samples = {split: DistinctSample(KEPT) for split in window.parts}
    for split, sample in samples.items():
        for note in window.indexes(split):
            if note.contents is None:
                return
            sample.merge(DistinctSample.from_text(note.contents, KEPT))
    train, apart = samples["train"], window.spans[0].index.apart
    but = f", but for {agree(len(apart), 'column', 'columns')} {some(apart, 5, repr)}" if apart else ""
    for split in (split for split in ("eval", "test") if split in samples):
        found = overlap(train, samples[split])
        if found is None or not found.share:
            continue
        about = "" if found.whole else "about "
        repeated = f"{about}{found.share:.0%}" if found.share >= FEW_REPEATED else "few"
        repeated += f" of the {split} rows also occur in train{but}"
        of = f"seen in {counted(found.values, 'distinct row')}" + ("" if found.whole else ", a sample")
        usual = found.beyond < FEW_REPEATED if by_time else train.values < COMBINATIONS * train.rows
        if found.share < FEW_REPEATED or (usual and found.beyond < MANY_REPEATED):
            window.state(f"{repeated} ({of})" + (", as many as train rows come again in train" if by_time else ""))
            continue
        message = f"{repeated} ({of}; {counted(len(content), 'column')} compared): "
        message += "if they are copies, metrics on them measure what the model memorized"
        fix = "remove duplicate rows from the files, name a key in split.key that such rows share, or leave out split.key: "
        fix += "identical rows then go into one split; if they come again by chance: validation.severity: {row_overlap: ignore}"
        if by_time:
            fix = "look for a span that was delivered again, and remove it; if rows of things that do not change are "
            fix += "meant: validation.severity: {row_overlap: warning}"
        severity: Severity = "error" if found.beyond >= MANY_REPEATED else "warning"
        window.add_finding(severity, "row overlap", f"train, {split}", message, fix)


def repeats(window: Window, columns: Sequence[str]) -> None:
    """Add to the window's proof how many rows repeat others in `columns`, if ingest counted this. Warn of few distinct rows."""
    keys: dict[str, int] = {}
    whole = True
    for split in window.parts:
        contents = DistinctSample()
        for note in window.indexes(split):
            if note.repeats is None:
                return
            contents.merge(DistinctSample.from_text(note.repeats))
        keys[split], whole = contents.estimate(window.proof.splits[split]["rows"]), whole and contents.whole
        window.proof.splits[split]["distinct"] = keys[split]
    if not (rows := window.rows):
        return
    again = rows - sum(keys.values())
    if again:
        share = f"{again / rows:.1%}" if again / rows >= 0.001 else "fewer than 0.1%"
        window.state(
            f"{'' if whole else 'about '}{share} of the rows repeat another one in these columns; such rows are in one split"
        )
    warn_of_few_keys(window, keys, f"the columns that are hashed ({some(columns, 8)})")


def _rows_text(rows: Sequence[KeyOccurrence]) -> str:
    """Returns the first row of each split: `id '7' (train: 2013-01 a.csv row 3; eval: 2013-02 b.csv row 9, as id '7.0')`."""
    first, places = {row.split: row for row in reversed(rows)}, []
    for row in (row for row in rows if row is first[row.split]):
        place = f"{row.split}: {row.span} {row.file} row {row.row:,}"
        places.append(place + (f", as {row.written}" if row.written != rows[0].written else ""))
    return f"{rows[0].written} ({'; '.join(places)})"


def _name(columns: Sequence[str]) -> str:
    return f"({', '.join(columns)})" if len(columns) > 1 else columns[0]
