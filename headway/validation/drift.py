"""Detects drift of columns from the champion's train rows, and skew of logged requests.

drifted = list(drift(train, champion_train, "version 3 (2013-01 to 2013-06)", config))

Train rows are held against the champion's train rows: text by the greatest change of one value's share (L-infinity),
numbers by Jensen-Shannon divergence and by the shift of their quantiles, both by the share of missing values.
"""

from __future__ import annotations

from collections.abc import Iterator

from headway.messages import counted
from headway.schema.columns import LABEL, column_yaml
from headway.statistics.column_statistics import LONG_BYTES, ColumnStatistics
from headway.statistics.split_statistics import SplitStatistics
from headway.validation.anomaly import Anomaly, finding, listed, value_text
from headway.validation.config import DriftConfig, ValidateConfig
from headway.validation.distance import jensen_shannon, l_infinity, quantile_distance


def drift(ours: SplitStatistics, theirs: SplitStatistics, whose: str, config: ValidateConfig) -> Iterator[Anomaly]:
    """An anomaly for each column of both that is further apart than its bounds; `whose` names the champion."""
    if min(ours.rows, theirs.rows) < config.drift.min_rows:
        message = f"drift was not checked: {counted(ours.rows, 'train row')}, {theirs.rows:,} of {whose}; at least "
        message += f"{config.drift.min_rows:,} of each are needed"
        fix = "widen the window, or lower validation.drift.min_rows"
        yield finding("info", "drift", "train", message, fix)
        return
    for name, column in ours.columns.items():
        other = theirs.columns.get(name)
        if other is not None and other.type == column.type and _flat(column):
            yield from _column(column, other, whose, config.drift_of(name))


def _flat(column: ColumnStatistics) -> bool:
    """Whether there is one value a row."""
    return not getattr(column, "shape", ())


def _column(ours: ColumnStatistics, theirs: ColumnStatistics, whose: str, bounds: DriftConfig) -> Iterator[Anomaly]:
    name = ours.name
    told = "the label" if name == LABEL else f"column {name!r}"
    now, before = _absent(ours), _absent(theirs)
    if abs(now - before) > bounds.missing:
        yield _anomaly(
            name,
            f"{told} is missing in {now:.2%} of the train rows, and was in {before:.2%} of {whose} "
            f"(a change of {abs(now - before):.3f}; the limit is {bounds.missing:g})",
            "missing",
            abs(now - before),
        )
    if now == 1 or before == 1:
        return
    if ours.text is None or theirs.text is None:
        if ours.type == "bytes":
            yield _uncounted(ours, theirs, told, whose)
            return
    else:
        distance, value, share, was = l_infinity(ours, theirs)
        if distance > bounds.l_infinity:
            yield _anomaly(
                name,
                f"{told} has drifted from {whose}: {value_text(value)} is {share:.2%} of its train values, and was "
                f"{was:.2%} (L-infinity distance {distance:.3f}; the limit is {bounds.l_infinity:g})",
                "l_infinity",
                distance,
            )
        return
    divergence, shift = jensen_shannon(ours, theirs), quantile_distance(ours, theirs)
    if divergence > bounds.jensen_shannon or shift > bounds.quantile:
        worst = "jensen_shannon" if divergence > bounds.jensen_shannon else "quantile"
        yield _anomaly(
            name,
            f"{told} has drifted from {whose}: its median went from {_figures(theirs, [0.5])} to {_figures(ours, [0.5])}, "
            f"its 5% to 95% range from {_figures(theirs, [0.05, 0.95])} to {_figures(ours, [0.05, 0.95])} "
            f"(Jensen-Shannon divergence {divergence:.3f}, limit {bounds.jensen_shannon:g}; "
            f"quantile distance {shift:.3f}, limit {bounds.quantile:g})",
            worst,
            divergence if worst == "jensen_shannon" else shift,
        )


def _uncounted(ours: ColumnStatistics, theirs: ColumnStatistics, told: str, whose: str) -> Anomaly:
    """Values that are images or documents have no shares to compare."""
    longest = max(ours.longest or 0, theirs.longest or 0)
    message = f"the values of {told} were not compared with those of {whose}: they have up to {longest:,} bytes, and "
    message += f"values are counted up to {LONG_BYTES:,} bytes; only the share of missing values was compared"
    fix = f"nothing to do; validation.columns.{ours.name}.severity.drift: ignore leaves this out"
    return finding("info", "drift", "train", message, fix, column=ours.name)


def _absent(column: ColumnStatistics) -> float:
    """The share of rows without a value that can be compared: null, NaN or infinite."""
    there = column.present if column.type == "bytes" else column.finite
    return 1 - there / column.rows if column.rows else 1.0


def _figures(column: ColumnStatistics, at: list[float]) -> str:
    shown = [value_text(float(value)) for value in column.quantile(at)]
    return shown[0] if len(shown) == 1 else f"[{', '.join(shown)}]"


def _anomaly(column: str, message: str, bound: str, distance: float) -> Anomaly:
    fix = f"check what changed in the source; if it is right, raise validation.columns.{column}.drift.{bound} above "
    fix += f"{distance:.3f}"
    return finding("warning", "drift", "train", message, fix, column=column)


def vanished(ours: ColumnStatistics, theirs: ColumnStatistics, whose: str) -> Iterator[Anomaly]:
    """Classes that the champion learnt from and that no train row has any more; both sides must be complete classes."""
    left = {value for value, _ in ours.top()}
    gone = [(value, count) for value, count in theirs.top() if value not in left]
    if gone:
        message = f"no train row has a label that {whose} was trained on: {listed(gone, len(gone))}"
        fix = "check the label expression and the spans of the window, or widen the window"
        yield finding("warning", "vanished label", "train", message, fix, column=LABEL)


def skew(train: SplitStatistics, logged: SplitStatistics, config: ValidateConfig) -> Iterator[Anomaly]:
    """Features whose logged requests are further from the train rows than the bounds of drift."""
    if min(train.rows, logged.rows) < config.drift.min_rows:
        message = f"skew was not checked: {counted(train.rows, 'train row')}, "
        message += f"{counted(logged.rows, 'logged request')}; at least {config.drift.min_rows:,} of each are needed"
        fix = "log more requests, or lower validation.drift.min_rows"
        yield finding("info", "skew", "serving", message, fix)
        return
    for name, asked in logged.columns.items():
        taught = train.columns.get(name)
        if taught is None or taught.type != asked.type or not _flat(asked):
            continue
        if asked.missing == asked.rows and taught.present:
            message = f"none of the {asked.rows:,} logged requests has a value of {name!r}; "
            message += f"{taught.present / taught.rows:.2%} of the train rows do"
            fix = f"send it with the requests, or leave it out: {column_yaml(name, 'ignore')}"
            yield finding("warning", "skew", "serving", message, fix, column=name)
            continue
        for found in _column(asked, taught, "the train rows", config.drift_of(name)):
            message = found.message.replace(
                "has drifted from the train rows", "is distributed differently in requests than in training"
            )
            message = message.replace("of the train rows, and", "of the logged requests, and").replace(
                "of its train values, and", "of the logged values, and"
            )
            message = message.replace("in those of the train rows", "in the train rows")
            fix = (found.fix or "").replace("check what changed in the source", "make it in serving as in the source")
            fix = fix.replace("if it is right", "if it is meant to differ")
            yield found.model_copy(update={"kind": "skew", "where": "serving", "message": message, "fix": fix})
