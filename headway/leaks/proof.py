"""Proof over a window, from what ingest noted: no key in two splits, no time out of order, no key twice where declared.

    proof = prove(SplitConfig(...), window, parts, look)
    proof.says                                # sentences of what holds
    proof.anomalies                           # what does not
    proof.splits                              # by split: rows, keys, times

Hashes alone decide that splits are apart: equal keys have equal hashes. That two splits share a key is said only after a
second look at the rows themselves, where `look` finds them: two different keys may share a hash.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.anomaly import Anomaly
from headway.fingerprint import first_difference
from headway.leaks import runs
from headway.leaks.looking import Look, Seen, examine, shown
from headway.leaks.notes import KeyName, KeyNote, SpanNotes, SplitNote, read, sets
from headway.leaks.times import TimeNote, time_text
from headway.splits import Part, SplitConfig

FEW_MISSING = 0.01
"""A larger share of rows without a key is warned of."""


@dataclass(frozen=True)
class Noted:
    """A span of the window and its notes."""

    span: str
    folder: Path
    notes: SpanNotes

    @classmethod
    def load(cls, span: str, folder: Path) -> Noted:
        return cls(span, folder, read(folder))


@dataclass(frozen=True)
class Held:
    """One set of one key: where its rows are."""

    span: str
    split: str
    hashes: runs.Hashes


@dataclass
class Proof:
    says: list[str] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    splits: dict[str, dict[str, Any]] = field(default_factory=dict)


def prove(config: SplitConfig, window: Sequence[Noted], parts: Mapping[str, Sequence[Part]], look: Look) -> Proof:
    """The proof of a window whose spans are given in its order.

    Args:
        parts: as `window_splits` gives them.

    Raises:
        DataError: notes are damaged.
    """
    return _Prover(config, window, parts, look).prove()


class _Prover:
    def __init__(self, config: SplitConfig, window: Sequence[Noted], parts: Mapping[str, Sequence[Part]], look: Look):
        self.config, self.window, self.look = config, window, look
        self.spans = {noted.span: noted for noted in window}
        self.parts = {name: tuple(of) for name, of in parts.items() if of}
        self.proof = Proof(splits={name: {"rows": sum(n.rows for n in self._notes(name))} for name in self.parts})

    def prove(self) -> Proof:
        self._times()
        if self.config.mode == "time":
            self._order()
        elif self.config.key:
            self._keys()
        elif self.config.mode == "hash":
            self._rows()
        else:
            self._say(
                f"rows are split as column {self.config.column!r} says; that no key is in two splits was not looked at, "
                "since split.key names none"
            )
        if self.config.unique_columns():
            self._unique()
        return self.proof

    def _say(self, sentence: str) -> None:
        self.proof.says.append(sentence)

    def _raise(self, severity: Any, kind: str, where: str, message: str, fix: str) -> None:
        anomaly = Anomaly(severity=severity, kind=kind, where=where, message=message, fix=fix)
        self.proof.anomalies.append(anomaly)

    def _of(self, split: str) -> Iterator[tuple[Noted, str, SplitNote]]:
        """The parts of a split of the window that have rows."""
        for span, part in self.parts[split]:
            noted = self.spans[span]
            if part in noted.notes.splits:
                yield noted, part, noted.notes.splits[part]

    def _notes(self, split: str) -> list[SplitNote]:
        return [note for _, _, note in self._of(split)]

    def _names(self) -> str:
        return _listing(list(self.parts))

    def _over(self) -> str:
        return f"{len(self.window):,} span{'s' * (len(self.window) != 1)}"

    # --- keys

    def _keys(self) -> None:
        """No key is in two splits."""
        if not self._comparable("key"):
            return
        held = self._held("key")
        groups = {split: [one.hashes for one in held if one.split == split] for split in self.parts}
        compared = runs.compare(groups)
        for split, values in compared.values.items():
            self.proof.splits[split]["keys"] = values
        whole, columns = True, list(self._columns("key"))
        for (a, b), found in compared.shared.items():
            pair = {a, b}
            examined = examine(
                found,
                lambda hashes: self._look(columns, hashes, held),
                lambda rows, pair=pair: pair <= {row.split for row in rows},  # type: ignore[misc]
            )
            if examined.count:
                whole = False
                self._overlap(a, b, examined.count, examined.examples)
        self._missing("key")
        if whole:
            counts = _listing([f"{n:,} of {split}" for split, n in compared.values.items()])
            self._say(f"no {_name(columns)} is in two splits: compared the keys of {self._over()}, {counts}")

    def _overlap(self, a: str, b: str, count: int, examples: Sequence[Sequence[Seen]]) -> None:
        name = _name(list(self._columns("key")))
        found = "; ".join(shown(rows, splits=True) for rows in examples if rows)
        again = f": {found}" if found else ", but their rows are not found in the files again"
        variants = any(len({row.written for row in rows}) > 1 for rows in examples)
        if variants:
            fix = (
                f"write {name} the same way in every file, or as a number: columns: {{NAME: {{type: int, role: key}}}}"
            )
        elif self.config.mode == "column":
            keys = ", ".join(self.config.key)
            fix = f"let {self.config.column!r} say one split for all rows of a key, or use split: {{mode: hash, key: [{keys}]}}"
        else:
            fix = "the spans were split by different rules: delete their outputs in stages/ingest and run again"
        self._raise(
            "error", "key overlap", f"{a}, {b}", f"{count:,} {_plural(name, count)} in {a} and in {b}{again}", fix
        )

    def _unique(self) -> None:
        """No key occurs twice in the window."""
        wanted = self.config.unique_columns()
        key: KeyName = "key" if set(wanted) == set(self.config.key) else "unique"
        if key == "unique" and not self._comparable("unique"):
            return
        held = self._held(key)
        within = [
            one
            for split in self.parts
            for noted, part, note in self._of(split)
            for one in sets(noted.folder, note, part, key, repeated=True)
        ]
        found = runs.repeated([one.hashes for one in held], within)
        columns = list(self._columns(key))
        examined = examine(found, lambda hashes: self._look(columns, hashes, held), lambda rows: len(rows) > 1)
        name = _name(columns)
        if key == "unique":
            self._missing("unique")
        if not examined.count:
            rows = sum(self.proof.splits[split]["rows"] for split in self.parts)
            self._say(f"{name} is unique: no value stands in two of {rows:,} rows, over {self._over()}")
            return
        shown_rows = "; ".join(shown(rows, splits=False) for rows in examined.examples if rows)
        again = f": {shown_rows}" if shown_rows else ", but their rows are not found in the files again"
        count = examined.count
        self._raise(
            "error",
            "duplicate key",
            ", ".join(self.parts),
            f"{count:,} value{'s' * (count != 1)} of {name}, declared unique, {'occurs' if count == 1 else 'occur'} "
            f"more than once{again}",
            "take the rows that are there twice out of the files, or of split.unique what is not unique",
        )

    def _columns(self, key: KeyName) -> Mapping[str, str]:
        return self.window[0].notes.keys[key].columns

    def _comparable(self, key: KeyName) -> bool:
        """Whether all spans noted the same key; an error otherwise."""
        first = self.window[0]
        for noted in self.window[1:]:
            mine, theirs = first.notes.keys.get(key), noted.notes.keys.get(key)
            if mine is None or theirs is None or mine.columns != theirs.columns:
                before, after = (dict(k.columns) if k else "no key" for k in (mine, theirs))
                self._raise(
                    "error",
                    "split proof",
                    f"{first.span}, {noted.span}",
                    f"keys of spans {first.span} and {noted.span} cannot be compared: {before} and {after} were noted",
                    "delete the spans' outputs in stages/ingest and run again",
                )
                return False
        return True

    def _held(self, key: KeyName) -> list[Held]:
        return [
            Held(noted.span, split, one)
            for split in self.parts
            for noted, part, note in self._of(split)
            for one in sets(noted.folder, note, part, key)
        ]

    def _look(self, columns: Sequence[str], hashes: runs.Hashes, held: Sequence[Held]) -> list[Seen]:
        """Rows with these hashes; the notes say in which split of the window they are, where they say it clearly."""
        splits: dict[tuple[str, int], set[str]] = {}
        for one, value in itertools.product(held, hashes.tolist()):
            if runs.has(one.hashes, value):
                splits.setdefault((one.span, value), set()).add(one.split)
        spans = [noted.span for noted in self.window if any(span == noted.span for span, _ in splits)]
        found = []
        for seen in self.look(columns, hashes, spans):
            noted = splits.get((seen.span, seen.hash), set())
            if len(noted) == 1:
                seen = Seen(**(seen.__dict__ | {"split": next(iter(noted))}))
            found.append(seen)
        return found

    def _missing(self, key: KeyName) -> None:
        """Rows without a key name nobody: they are not compared."""
        noted: list[KeyNote] = [note.keys[key] for split in self.parts for note in self._notes(split)]
        missing, rows = sum(note.missing for note in noted), sum(s["rows"] for s in self.proof.splits.values())
        if not missing:
            return
        name = _name(list(self._columns(key)))
        together = " and go into one split together" if self.config.mode == "hash" and key == "key" else ""
        self._raise(
            "warning" if missing > FEW_MISSING * rows else "info",
            "missing key",
            ", ".join(self.parts),
            f"{missing:,} of {rows:,} rows have no {name} (null or NaN): they are not compared{together}",
            "filter them (source.where), or fill the column",
        )

    # --- rows split by a hash of all columns

    def _rows(self) -> None:
        """The split hashes of two splits do not overlap, and equal rows have equal hashes."""
        first = self.window[0]
        for noted in self.window[1:]:
            if noted.notes.rule != first.notes.rule:
                self._raise(
                    "error",
                    "split proof",
                    f"{first.span}, {noted.span}",
                    f"spans {first.span} and {noted.span} were split by different rules ({_differing(first, noted)}): "
                    "equal rows may be in two splits",
                    "delete their outputs in stages/ingest and run again",
                )
                return
        ends: dict[str, tuple[int, int]] = {}
        for split in self.parts:
            found = [note.hashes for note in self._notes(split) if note.hashes is not None]
            if found:
                ends[split] = min(low for low, _ in found), max(high for _, high in found)
        for a, b in itertools.combinations(ends, 2):
            if ends[a][0] <= ends[b][1] and ends[b][0] <= ends[a][1]:
                self._raise(
                    "error",
                    "key overlap",
                    f"{a}, {b}",
                    f"the hashes of {a} rows and of {b} rows overlap: equal rows may be in both",
                    "delete the spans' outputs in stages/ingest and run again",
                )
                return
        self._say(f"no row is in two splits: the hashes of {self._names()} rows do not overlap, over {self._over()}")

    # --- times

    def _time(self, split: str) -> TimeNote | None:
        found = [note.time for note in self._notes(split) if note.time is not None]
        total = found[0] if found else None
        for note in found[1:]:
            total = total.merged(note) if total else note
        return total

    def _times(self) -> None:
        """The first and last time of each split, for the report."""
        for split in self.parts:
            time = self._time(split)
            if time is not None and len(time.kinds) == 1:
                self.proof.splits[split]["first_time"] = time_text(time.low, time.kinds[0])
                self.proof.splits[split]["last_time"] = time_text(time.high, time.kinds[0])

    def _order(self) -> None:
        """Each split lies wholly before the next one."""
        place = {noted.span: i for i, noted in enumerate(self.window)}
        names = list(self.parts)
        for a, b in itertools.pairwise(names):
            last = max(self.parts[a], key=lambda part: place[part[0]])[0]
            first = min(self.parts[b], key=lambda part: place[part[0]])[0]
            if place[last] >= place[first]:
                self._raise(
                    "error",
                    "time overlap",
                    f"{a}, {b}",
                    f"span {last} of {a} does not come before span {first} of {b}",
                    "let eval have later spans than train",
                )
                return
        column = self.window[0].notes.time
        if column is None:
            spans = ", then ".join(f"{_range([span for span, _ in of])} {name}" for name, of in self.parts.items())
            self._say(
                f"by time: {spans}, as the spans are called; rows were not compared, since no column has the role time"
            )
            return
        times = {name: self._time(name) for name in names}
        if not self._readable(column, times):
            return
        kept = [(name, time) for name, time in times.items() if time is not None and time.low is not None]
        whole = True
        for (a, before), (b, after) in itertools.pairwise(kept):
            assert before.high is not None and after.low is not None
            if before.high >= after.low:
                whole = False
                kind = before.kinds[0]
                at_a, at_b = self._span_of(a, "high", before.high), self._span_of(b, "low", after.low)
                self._raise(
                    "error",
                    "time overlap",
                    f"{a}, {b}",
                    f"{a} has rows up to {column} {time_text(before.high, kind)} (span {at_a}), and {b} begins at "
                    f"{time_text(after.low, kind)} (span {at_b})",
                    "see that a span holds only rows of its own time, or filter the others: source.where",
                )
        if whole and kept:
            parts = ", then ".join(
                f"{name} from {time_text(t.low, t.kinds[0])} to {time_text(t.high, t.kinds[0])}" for name, t in kept
            )
            self._say(f"by {column}: {parts}; each ends before the next begins")

    def _span_of(self, split: str, end: str, value: float) -> str:
        return next(n.span for n, _, note in self._of(split) if note.time and getattr(note.time, end) == value)

    def _readable(self, column: str, times: Mapping[str, TimeNote | None]) -> bool:
        found = [time for time in times.values() if time is not None]
        kinds = sorted({kind for time in found for kind in time.kinds})
        if len(kinds) > 1:
            self._raise(
                "error",
                "split proof",
                ", ".join(times),
                f"times cannot be compared: column {column!r} is a {' in some files and a '.join(kinds)} in others",
                "write the column the same way in every file",
            )
            return False
        rows = sum(split["rows"] for split in self.proof.splits.values())
        for count, what in (
            (sum(time.missing for time in found), "have no time"),
            (
                sum(time.unreadable for time in found),
                "have a time that is not written as ISO 8601 (2013-01-31T18:00:00)",
            ),
        ):
            if count:
                self._raise(
                    "warning",
                    "split proof",
                    ", ".join(times),
                    f"{count:,} of {rows:,} rows {what} in column {column!r}: they are not compared",
                    "filter them (source.where), or write the column in another way",
                )
        return True


def _name(columns: Sequence[str]) -> str:
    return f"({', '.join(columns)})" if len(columns) > 1 else columns[0]


def _plural(name: str, count: int) -> str:
    return f"key ({name.strip('()')}) is" if count == 1 else f"keys ({name.strip('()')}) are"


def _listing(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _range(spans: Sequence[str]) -> str:
    return spans[0] if len(spans) == 1 else f"{spans[0]} to {spans[-1]}"


def _differing(first: Noted, other: Noted) -> str:
    return first_difference(first.notes.rule, other.notes.rule) or "?"
