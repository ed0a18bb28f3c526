"""The window of a leakage proof: spans with their key indexes, the parts of each split, and the findings. Also checks times.

window = Window([IndexedSpan.load("2013-01", folder)], window_splits(...))
window.state("no key is in two splits")
window.add_finding("error", "key overlap", ...)
add_times(window)          # first and last time of each split, for the report
check_order(window)        # each split ends before the next begins, by spans and by the times of the rows
"""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from headway.leakage.key_index import SpanIndex, SplitIndex, read
from headway.leakage.time_range import TEXT, TimeRange, time_text
from headway.messages import counted, window_text
from headway.tabular.splits import SpanSplit
from headway.validation.anomaly import Anomaly, Kind, Severity, finding


@dataclass(frozen=True)
class IndexedSpan:
    """A span of the window, with the folder of its key index and the index."""

    span: str
    folder: Path
    index: SpanIndex

    @classmethod
    def load(cls, span: str, folder: Path) -> Self:
        return cls(span, folder, read(folder))


@dataclass
class Proof:
    """The result of a leakage proof: statements, findings, and the figures of each split."""

    says: list[str] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    splits: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By split: number of rows; distinct keys, if keys were compared; first and last time, if there is a time column."""


class Window:
    """The spans of a window in order, the parts of each split, and the proof so far. Splits without parts are left out."""

    def __init__(self, spans: Sequence[IndexedSpan], parts: Mapping[str, Sequence[SpanSplit]]):
        self.spans = list(spans)
        self.parts = {name: tuple(of) for name, of in parts.items() if of}
        self._by_name = {indexed.span: indexed for indexed in spans}
        self.proof = Proof(splits={name: {"rows": sum(n.rows for n in self.indexes(name))} for name in self.parts})

    def parts_of_split(self, split: str) -> Iterator[tuple[IndexedSpan, str, SplitIndex]]:
        """Yields each part of a split that has rows: the span with its index, the part's name, and the part's index."""
        for span, part in self.parts[split]:
            indexed = self._by_name[span]
            if part in indexed.index.splits:
                yield indexed, part, indexed.index.splits[part]

    def indexes(self, split: str) -> list[SplitIndex]:
        return [note for _, _, note in self.parts_of_split(split)]

    @property
    def rows(self) -> int:
        return sum(split["rows"] for split in self.proof.splits.values())

    @property
    def size(self) -> str:
        return counted(len(self.spans), "span")

    def state(self, sentence: str) -> None:
        self.proof.says.append(sentence)

    def add_finding(self, severity: Severity, kind: Kind, where: str, message: str, fix: str) -> None:
        self.proof.anomalies.append(finding(severity, kind, where, message, fix))


def _time(window: Window, split: str) -> TimeRange | None:
    times = [note.time for note in window.indexes(split) if note.time is not None]
    return functools.reduce(TimeRange.merged, times) if times else None


def add_times(window: Window) -> None:
    """Add the first and last time of each split to the figures of the proof."""
    for split in window.parts:
        time = _time(window, split)
        if time is not None and len(time.kinds) == 1:
            window.proof.splits[split]["first_time"] = time_text(time.low, time.kinds[0])
            window.proof.splits[split]["last_time"] = time_text(time.high, time.kinds[0])


def check_order(window: Window) -> None:
    """Check that each split ends before the next one begins: by the order of spans and, with a time column, of rows."""
    place = {indexed.span: i for i, indexed in enumerate(window.spans)}
    names = list(window.parts)
    for a, b in itertools.pairwise(names):
        last = max(window.parts[a], key=lambda part: place[part[0]])[0]
        first = min(window.parts[b], key=lambda part: place[part[0]])[0]
        if place[last] >= place[first]:
            message = f"span {last} of {a} does not come before span {first} of {b}"
            fix = "give eval later spans than train"
            window.add_finding("error", "time overlap", f"{a}, {b}", message, fix)
            return
    column = window.spans[0].index.time
    if column is None:
        spans = ", then ".join(f"{window_text([span for span, _ in of])} {name}" for name, of in window.parts.items())
        window.state(
            f"by time: {spans}, by the names of the spans; times were not compared, because no column has role: time"
        )
        return
    check_times(
        window, column, "make sure that a span holds only rows of its own time, or filter the others (source.where)"
    )


def check_times(window: Window, column: str, fix: str) -> None:
    """Check by the rows' times that each split ends before the next one begins. `fix` is the advice if a split does not."""
    times = {name: _time(window, name) for name in window.parts}
    if not _readable(window, column, times):
        return
    timed = [(name, time) for name, time in times.items() if time is not None and time.low is not None]
    whole = True
    for (a, before), (b, after) in itertools.pairwise(timed):
        assert before.high is not None and after.low is not None
        if before.high >= after.low:
            whole = False
            kind = before.kinds[0]
            at_a, at_b = _span_of(window, a, "high", before.high), _span_of(window, b, "low", after.low)
            message = f"{a} has rows up to {column} {time_text(before.high, kind)} (span {at_a}), and {b} begins at "
            message += f"{time_text(after.low, kind)} (span {at_b})"
            window.add_finding("error", "time overlap", f"{a}, {b}", message, fix)
    if whole and timed:
        parts = ", then ".join(
            f"{name} from {time_text(t.low, t.kinds[0])} to {time_text(t.high, t.kinds[0])}" for name, t in timed
        )
        window.state(f"by {column}: {parts}; each ends before the next begins")


def _span_of(window: Window, split: str, end: str, value: float) -> str:
    return next(n.span for n, _, note in window.parts_of_split(split) if note.time and getattr(note.time, end) == value)


def _readable(window: Window, column: str, times: Mapping[str, TimeRange | None]) -> bool:
    ranges = [time for time in times.values() if time is not None]
    kinds = sorted({kind for time in ranges for kind in time.kinds})
    if len(kinds) > 1:
        message = f"times cannot be compared: column {column!r} is a {' in some files and a '.join(kinds)} in others"
        fix = "write the column the same way in every file"
        window.add_finding("error", "split proof", ", ".join(times), message, fix)
        return False
    if kinds == [TEXT]:
        message = f"times were not compared: column {column!r} is text, whose values are no times or are written in several ways"
        fix = "write them as ISO 8601 (2013-01-31T18:00:00) in every file"
        window.add_finding("warning", "split proof", ", ".join(times), message, fix)
        return False
    if missing := sum(time.missing for time in ranges):
        message = f"{missing:,} of {window.rows:,} rows have no time in column {column!r}: they are not compared"
        fix = "filter them (source.where), or write the column in another way"
        window.add_finding("warning", "split proof", ", ".join(times), message, fix)
    return True
