"""The leakage proof of a window, from the key indexes: no key in two splits, times in order, declared keys unique.

    proof = prove(SplitConfig(...), window, parts, look)
    proof.says                                # sentences of what holds
    proof.anomalies                           # what does not
    proof.splits                              # by split: rows, keys, times

Hashes alone decide that splits are apart: equal keys have equal hashes. That two splits share a key is said only after a
second look at the rows themselves, where `look` finds them: two different keys may share a hash.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headway.leakage import hash_sets
from headway.leakage.equal_rows import KEPT, overlap
from headway.leakage.examples import KeyOccurrence, RowFinder, examine, rows_text
from headway.leakage.hash_sets import Distinct
from headway.leakage.key_index import KeyEntry, KeyName, sets
from headway.leakage.window_proof import IndexedSpan, Proof, Window, in_order, times, times_in_order
from headway.messages import agree, counted, listed, some
from headway.storage.fingerprint import first_difference
from headway.tabular.splits import Part, SplitConfig
from headway.validation.anomaly import Severity

FEW_MISSING = 0.01
"""A larger share of rows without a key is warned of."""
FEW_REPEATED, MANY_REPEATED = 0.01, 0.1
"""A larger share of eval rows that stand in train is warned of; and so much more than train has of rows that come again is an
error."""
COMBINATIONS = 0.1
"""Where fewer of the train rows are distinct, they are combinations of a few values, and equal rows no copies."""
FEW_KEYS, FEW_EVAL_KEYS = 100, 20
"""Fewer keys than this, in all or in eval, are warned of."""


@dataclass(frozen=True)
class SpanHashes:
    """One hash set of one key, with its span and split."""

    span: str
    split: str
    hashes: hash_sets.Hashes


def prove(
    config: SplitConfig, spans: Sequence[IndexedSpan], parts: Mapping[str, Sequence[Part]], look: RowFinder
) -> Proof:
    """Prove a window whose spans are given in its order.

    Args:
        parts: as `window_splits` gives them.

    Raises:
        DataError: an index is damaged.
    """
    return _Prover(config, spans, parts, look).prove()


class _Prover:
    def __init__(
        self, config: SplitConfig, spans: Sequence[IndexedSpan], parts: Mapping[str, Sequence[Part]], look: RowFinder
    ):
        self.config, self.window, self.look = config, Window(spans, parts), look
        self.parts, self.spans = self.window.parts, self.window.spans

    def prove(self) -> Proof:
        times(self.window)
        if self.config.mode == "time":
            in_order(self.window)
        elif self.config.key:
            self._keys()
        elif self.config.mode == "hash":
            self._rows()
        elif (begin := self.config.eval_from) is not None:
            column = self.config.column or ""
            if self.spans[0].index.time == column:
                times_in_order(self.window, column, f"split by this column alone: split.column: {column}")
            else:
                self.window.say(
                    f"rows with {column!r} from {begin} on are eval; keys in two splits were not checked for"
                )
        else:
            by = f"column {self.config.column!r}" if self.config.column else "the paths of their files"
            self.window.say(
                f"rows are split by {by}; keys in two splits were not checked for, because split.key is not set"
            )
        if "group" in self.spans[0].index.keys:
            self._keys("group")
        if self.config.unique_columns():
            self._unique()
        repeated_in_train(self.window, by_time=self.config.by_time)
        return self.window.proof

    # --- keys

    def _keys(self, key: KeyName = "key") -> None:
        """Prove that no key is in two splits."""
        if not self._comparable(key):
            return
        stored = self._span_hashes(key)
        groups = {split: [part.hashes for part in stored if part.split == split] for split in self.parts}
        compared = hash_sets.compare(groups)
        whole, columns = True, list(self._columns(key))
        for (a, b), shared in compared.shared.items():
            pair = {a, b}
            examined = examine(
                shared,
                lambda hashes: self._look(columns, hashes, stored),
                lambda rows, pair=pair: pair <= {row.split for row in rows},  # type: ignore[misc]
            )
            if examined.count:
                whole = False
                self._overlap(key, a, b, examined.count, examined.examples)
        self._missing(key)
        if key == "key":
            for split, values in compared.values.items():
                self.window.proof.splits[split]["keys"] = values
            if self.config.mode == "hash":
                few_keys(self.window, compared.values, _name(columns))
        if whole:
            counts = listed([f"{n:,} of {split}" for split, n in compared.values.items()])
            self.window.say(f"no {_name(columns)} is in two splits: compared the keys of {self.window.size}, {counts}")

    def _overlap(self, key: KeyName, a: str, b: str, count: int, examples: Sequence[Sequence[KeyOccurrence]]) -> None:
        name = _name(list(self._columns(key)))
        again = _again(examples, splits=True)
        variants = any(len({row.written for row in rows}) > 1 for rows in examples)
        keys = ", ".join(self.config.key)
        if key == "group":
            keep = f"give all rows of a group the same split in {self.config.column!r}"
            keep = "put all rows of a group into files of one split" if self.config.mode == "path" else keep
            message = f"{count:,} {agree(count, 'group', 'groups')} ({name}) {agree(count, 'is', 'are')} in {a} and in "
            message += f"{b}, so their order is scored on groups that the model was trained on{again}"
            fix = f"split by the group: split: {{key: {name}}}"
            fix += f", or {keep}" if self.config.mode in ("column", "path") else ""
            self.window.find("warning", "group overlap", f"{a}, {b}", message, fix)
            return
        if self.config.mode == "path":
            fix = "put all rows of a key into files of one split, or leave {split} out of source.path and use split: "
            fix += f"{{mode: hash, key: [{keys}]}}"
        elif self.config.mode == "column":
            fix = f"give all rows of a key the same split in {self.config.column!r}, or use split: {{mode: hash, key: [{keys}]}}"
        elif variants:
            fix = f"write {name} the same way in every file, or have it read as a number: 'type: int' beside its role in columns"
        else:
            fix = "the spans were split by different rules: delete their outputs in stages/ingest and run again"
        message = f"{counted(count, 'key')} ({name.strip('()')}) {agree(count, 'is', 'are')} in {a} and in {b}{again}"
        self.window.find("error", "key overlap", f"{a}, {b}", message, fix)

    def _unique(self) -> None:
        """Prove that no key occurs twice in the window."""
        names = self.config.unique_columns()
        key: KeyName = "key" if set(names) == set(self.config.key) else "unique"
        if key == "unique" and not self._comparable(key):
            return
        if any(indexed.index.keys.get(key) != self.spans[0].index.keys[key] for indexed in self.spans):
            return  # said already, of the key
        stored = self._span_hashes(key)
        hashes, repeated = (
            [part.hashes for part in parts] for parts in (stored, self._span_hashes(key, repeated=True))
        )
        keys = hash_sets.repeated(hashes, repeated)
        columns = list(self._columns(key))
        examined = examine(keys, lambda hashes: self._look(columns, hashes, stored), lambda rows: len(rows) > 1)
        name = _name(columns)
        if key == "unique":
            self._missing("unique")
        if not examined.count:
            self.window.say(
                f"{name} is unique: no value occurs twice in {self.window.rows:,} rows, over {self.window.size}"
            )
            return
        count, again = examined.count, _again(examined.examples, splits=False)
        message = f"{counted(count, 'value')} of {name}, declared unique, {agree(count, 'occurs', 'occur')} more than once{again}"
        fix = "remove the duplicate rows from the files, or remove from split.unique the columns that are not unique"
        self.window.find("error", "duplicate key", ", ".join(self.parts), message, fix)

    def _columns(self, key: KeyName) -> Mapping[str, str]:
        return self.spans[0].index.keys[key].columns

    def _comparable(self, key: KeyName) -> bool:
        """Returns whether all spans indexed the same key; adds an error otherwise."""
        first = self.spans[0]
        for indexed in self.spans[1:]:
            own, other = first.index.keys.get(key), indexed.index.keys.get(key)
            if own is None or other is None or own != other:
                before, after = (dict(k.columns) if k else "no key" for k in (own, other))
                message = f"keys of spans {first.span} and {indexed.span} cannot be compared: "
                message += f"one has {before}, the other {after}"
                fix = "delete the spans' outputs in stages/ingest and run again"
                self.window.find("error", "split proof", f"{first.span}, {indexed.span}", message, fix)
                return False
        return True

    def _span_hashes(self, key: KeyName, *, repeated: bool = False) -> list[SpanHashes]:
        return [
            SpanHashes(indexed.span, split, hashes)
            for split in self.parts
            for indexed, part, note in self.window.of(split)
            for hashes in sets(indexed.folder, note, part, key, repeated=repeated)
        ]

    def _look(self, columns: Sequence[str], hashes: hash_sets.Hashes, stored: list[SpanHashes]) -> list[KeyOccurrence]:
        """Returns the rows with these hashes, each with its split where the key index tells it."""
        splits: dict[tuple[str, int], set[str]] = {}
        for part, value in itertools.product(stored, hashes.tolist()):
            if hash_sets.has(part.hashes, value):
                splits.setdefault((part.span, value), set()).add(part.split)
        spans = [indexed.span for indexed in self.spans if any(span == indexed.span for span, _ in splits)]
        rows = []
        for occurrence in self.look(columns, hashes, spans):
            indexed = splits.get((occurrence.span, occurrence.hash), set())
            if len(indexed) == 1:
                occurrence = replace(occurrence, split=next(iter(indexed)))
            rows.append(occurrence)
        return rows

    def _missing(self, key: KeyName) -> None:
        """Report the rows without a key, which are not compared."""
        indexed: list[KeyEntry] = [note.keys[key] for split in self.parts for note in self.window.indexes(split)]
        missing, rows = sum(note.missing for note in indexed), self.window.rows
        if not missing:
            return
        name = _name(list(self._columns(key)))
        together = " and go into one split together" if self.config.mode == "hash" and key == "key" else ""
        message = f"{missing:,} of {rows:,} rows have no {name} (null or NaN): they are not compared{together}"
        fix = "filter them (source.where), or fill the column"
        severity: Severity = "warning" if missing > FEW_MISSING * rows else "info"
        self.window.find(severity, "missing key", ", ".join(self.parts), message, fix)

    # --- rows split by a hash of all columns

    def _rows(self) -> None:
        """Prove that the hashes of two splits do not overlap: equal rows have equal hashes, so are in one split."""
        first = self.spans[0]
        for indexed in self.spans[1:]:
            if indexed.index.rule != first.index.rule:
                message = f"spans {first.span} and {indexed.span} were split by different rules "
                rules = first_difference(first.index.rule, indexed.index.rule)
                message += f"({rules}): equal rows may be in two splits"
                fix = "delete their outputs in stages/ingest and run again"
                self.window.find("error", "split proof", f"{first.span}, {indexed.span}", message, fix)
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
                self.window.find("error", "key overlap", f"{a}, {b}", message, fix)
                return
        columns = list(first.index.rule["columns"])
        if first.index.rule.get("by_place"):
            self.window.say(
                f"fewer than a tenth of the first rows are distinct in the {counted(len(columns), 'column')} that "
                f"{agree(len(columns), 'is', 'are')} hashed, so rows are split by their places in their files too: equal rows "
                "are in several splits, which is not a leak"
            )
            return
        self.window.say(
            f"equal rows are in one split: the hashes of {listed([*self.parts])} rows over "
            f"{counted(len(columns), 'column')} do not overlap, over {self.window.size}; rows that belong together but differ, "
            "as those of one person or day, are kept together by split.key alone"
        )
        repeats(self.window, columns)


def few_keys(window: Window, keys: Mapping[str, int], name: str) -> None:
    """Warn when a few keys hold all rows: as a sample, eval is only as large as the number of its keys."""
    total, judging = sum(keys.values()), keys.get("eval", 0)
    if (total >= FEW_KEYS and judging >= FEW_EVAL_KEYS) or total * 2 >= window.rows:
        return
    message = f"{counted(window.rows, 'row')} have only {counted(total, 'distinct value')} of {name}, and eval has "
    message += f"{judging:,} of them: rows of one value go together, so eval may be unlike train, and its metrics are "
    message += "less certain than its number of rows says"
    fix = "split by a key of more values (split.key), by time, or by a column (split.mode)"
    window.find("warning", "few keys", "eval", message, fix)


def repeated_in_train(window: Window, *, by_time: bool) -> None:
    """Find rows of eval or test that occur in train too, apart from identifiers; estimated from samples.

    By time rows come again as months do, so only what is beyond that is found.
    """
    content = window.spans[0].index.content
    if not content or "train" not in window.parts or any(indexed.index.content != content for indexed in window.spans):
        return
    samples = {split: Distinct(KEPT) for split in window.parts}
    for split, sample in samples.items():
        for note in window.indexes(split):
            if note.contents is None:
                return
            sample.merge(Distinct.from_text(note.contents, KEPT))
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
            window.say(f"{repeated} ({of})" + (", as many as train rows come again in train" if by_time else ""))
            continue
        message = f"{repeated} ({of}; {counted(len(content), 'column')} compared): "
        message += "metrics on such rows measure what the model memorized"
        fix = "remove duplicate rows from the files, name a key in split.key that such rows share, or leave out split.key: "
        fix += "identical rows then go into one split"
        if by_time:
            fix = "look for a span that was delivered again, and remove it; if rows of things that do not change are "
            fix += "meant: validation.severity: {row_overlap: warning}"
        severity: Severity = "error" if found.beyond >= MANY_REPEATED else "warning"
        window.find(severity, "row overlap", f"train, {split}", message, fix)


def repeats(window: Window, columns: Sequence[str]) -> None:
    """State how many rows repeat another one in the hashed columns, where ingest counted them."""
    keys: dict[str, int] = {}
    whole = True
    for split in window.parts:
        contents = Distinct()
        for note in window.indexes(split):
            if note.repeats is None:
                return
            contents.merge(Distinct.from_text(note.repeats))
        keys[split], whole = contents.of(window.proof.splits[split]["rows"]), whole and contents.whole
        window.proof.splits[split]["distinct"] = keys[split]
    if not (rows := window.rows):
        return
    again = rows - sum(keys.values())
    if again:
        share = f"{again / rows:.1%}" if again / rows >= 0.001 else "fewer than 0.1%"
        window.say(
            f"{'' if whole else 'about '}{share} of the rows repeat another one in these columns; such rows are in one split"
        )
    few_keys(window, keys, f"the columns that are hashed ({some(columns, 8)})")


def _again(examples: Sequence[Sequence[KeyOccurrence]], *, splits: bool) -> str:
    """Returns the rows of some keys, to be added to a sentence about the keys."""
    texts = "; ".join(rows_text(rows, splits=splits) for rows in examples if rows)
    return f": {texts}" if texts else ", but their rows could not be found again in the files"


def _name(columns: Sequence[str]) -> str:
    return f"({', '.join(columns)})" if len(columns) > 1 else columns[0]
