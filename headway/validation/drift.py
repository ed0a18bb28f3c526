"""Detects drift: of train rows from the champion's, and of serving, eval and test rows from this run's train rows.

drifted = list(check_drift(train, champion_train, "version 3 (2013-01 to 2013-06)", config))

Train rows are compared with the train rows of the champion, the version in use. Serving rows are compared with train rows. The
distance of texts is the greatest change of a value's share (L-infinity). Numbers have two: Jensen-Shannon divergence, and the
shift of their quantiles. Both have the share of missing values; text with a value over 4,096 bytes has only this one. Numbers of
eval and test are compared with those of train for a changed unit and, if eval is later, for values beyond train's.

All distances are computed from mergeable statistics alone. They are symmetric, and zero for equal statistics. Numbers are binned
by the quantiles of both sides together. So a bin holds about a twentieth of one side, and a frequent value has an edge of its
own.
"""

from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from headway.schema.calendar_days import Temporal
from headway.schema.columns import LABEL, column_yaml
from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.counts import paired
from headway.statistics.split_statistics import SplitStatistics
from headway.validation.anomaly import Anomaly, finding, value_text
from headway.validation.config import DriftConfig, ValidateConfig
from headway.validation.label_checks import BY_CHANCE

_BINS = 20
_GRID = np.linspace(0, 1, 1001)
RESCALED = 10.0
"""If numbers of a split are this many times as large as train's, or as small, their unit may have changed."""
_FEWEST = 100
"""The least number of values on each side for this check. Fewer may be ten times as large by chance."""
INNER = np.linspace(0.05, 0.95, 19)


def l_infinity(ours: ColumnStatistics, theirs: ColumnStatistics) -> tuple[float, bytes, float, float]:
    """Returns the greatest change of a value's share of the present rows; then that value, and its share on each side."""
    assert ours.text is not None and theirs.text is not None
    n, m = max(ours.values, 1), max(theirs.values, 1)
    largest = -1.0, b"", 0.0, 0.0
    # block by block: there may be millions of words
    for values, a, b in paired(ours.text.blocks(), theirs.text.blocks()):
        change = np.abs(a / n - b / m)
        top = float(change.max())
        if top > largest[0]:
            at = min(np.flatnonzero(change == top).tolist(), key=lambda i: values[i].as_py())
            largest = top, values[at].as_py(), float(a[at] / n), float(b[at] / m)
    return largest if largest[0] >= 0 else (0.0, b"", 0.0, 0.0)


def jensen_shannon(ours: ColumnStatistics, theirs: ColumnStatistics) -> float:
    """Returns the Jensen-Shannon divergence of two columns in bits, 0 to 1. Both must have finite numbers."""
    inner = np.linspace(0, 1, _BINS + 1)[1:-1].tolist()
    # up to each side's end: two that do not overlap share no bin
    inner.append(1.0)
    edges = np.unique(np.concatenate([ours.quantile(inner), theirs.quantile(inner)]))
    p, q = _bins(ours, edges), _bins(theirs, edges)
    return _divergence(p, q)


def _divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """Returns the Jensen-Shannon divergence of two distributions over the same bins, in bits (Lin, "Divergence measures
    based on the Shannon entropy", 1991)."""
    middle = (p + q) / 2

    def relative(side: NDArray[np.float64]) -> float:
        some = side > 0
        return float((side[some] * np.log2(side[some] / middle[some])).sum())

    return float(np.clip((relative(p) + relative(q)) / 2, 0.0, 1.0))


def _bins(column: ColumnStatistics, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the share of the finite values in each bin; the bins are (-inf, e0], (e0, e1], ..., (en, inf) for the edges e."""
    if column.numbers is not None:
        values, counts = column.numbers.sorted()
        ends = np.concatenate([[0], np.cumsum(counts)])
        upto = ends[np.searchsorted(values.astype(np.float64), edges, side="right")] / ends[-1]
    else:
        upto = np.searchsorted(column.quantile(_GRID.tolist()), edges, side="right") / len(_GRID)
    return np.diff(np.concatenate([[0.0], upto, [1.0]]))


def quantile_distance(ours: ColumnStatistics, theirs: ColumnStatistics) -> float:
    """Returns the mean shift of the quantiles, as a share of the wider of the two 5% to 95% ranges. It is 0 for equal quantiles,
    and 1 for two different constants."""
    a, b = ours.quantile(INNER.tolist()), theirs.quantile(INNER.tolist())
    shift = float(np.abs(a - b).mean())
    if not shift:
        return 0.0
    wide = max(a[-1] - a[0], b[-1] - b[0])
    return shift / float(wide) if wide else 1.0


def drift_distance(ours: ColumnStatistics, theirs: ColumnStatistics) -> float | None:
    """Returns the distance of two columns, 0 to 1. For text it is the greatest change of a value's share, for numbers the
    Jensen-Shannon divergence in bits. None: the types differ, they are lists, one has no values, or values were not counted."""
    if theirs.type != ours.type or any(side.shape or not _compared(side) for side in (ours, theirs)):
        return None
    if ours.type == "bytes":
        return None if ours.text is None or theirs.text is None else l_infinity(ours, theirs)[0]
    return jensen_shannon(ours, theirs)


def check_drift(
    ours: SplitStatistics,
    theirs: SplitStatistics,
    whose: str,
    config: ValidateConfig,
    *,
    rows: str = "train rows",
    where: str = "train",
) -> Iterator[Anomaly]:
    """Yields an anomaly for each limit that a column of both sides exceeds. If a side has too few rows, yields one note instead.

    Args:
        whose: the name of the rows of `theirs` in messages, such as that of the champion's version.
        rows: the name of the rows of `ours` in messages.
        where: the split of `ours`, or serving.
    """
    if min(ours.rows, theirs.rows) < config.drift.min_rows:
        message = f"drift was not checked: {ours.rows:,} {rows}, {theirs.rows:,} of {whose}; at least "
        message += f"{config.drift.min_rows:,} of each are needed"
        yield finding("info", "drift", where, message, "bring more rows, or lower validation.drift.min_rows")
        return
    remedy = (
        "send it in serving, computed as in the source" if where == "serving" else "check what changed in the source"
    )
    for name, column in ours.columns.items():
        other = theirs.columns.get(name)
        # of several values a row nothing is compared
        if other is not None and other.type == column.type and not column.shape:
            for bound, message, value, limit in _differences(column, other, rows, whose, config.drift):
                fix = remedy
                if bound is not None:
                    fix += f"; if it is right, raise validation.drift.{bound} above {value:.3f}, or say "
                    fix += f"validation.columns.{name}.severity: {{drift: ignore}}"
                message = f"{_called(name)} {message}"
                yield finding("warning", "drift", where, message, fix, column=name, value=value, expected=limit)


def _differences(
    ours: ColumnStatistics, theirs: ColumnStatistics, rows: str, whose: str, bounds: DriftConfig
) -> Iterator[tuple[str | None, str, float, float]]:
    """Yields (name of the measure, message, distance, limit) for each limit that is exceeded; a column of numbers has
    two, of which it yields the first that is exceeded. The name is None where no row has a value."""
    now, before = _absent(ours), _absent(theirs)
    change = abs(now - before)
    if now == 1 and (1 - before) * ours.rows >= BY_CHANCE:
        yield None, f"is missing in all of the {rows}, and was in {before:.2%} of {whose}", change, bounds.missing
    elif change > bounds.missing:
        message = f"is missing in {now:.2%} of the {rows}, and was in {before:.2%} of {whose} "
        message += f"(a change of {change:.3f}; the limit is {bounds.missing:g})"
        yield "missing", message, change, bounds.missing
    few = min(_compared(ours), _compared(theirs)) < bounds.min_rows
    if few or (ours.type == "bytes" and (ours.text is None or theirs.text is None)):
        return
    if ours.type == "bytes":
        distance, value, share, was = l_infinity(ours, theirs)
        if distance > bounds.l_infinity:
            message = f"has drifted from {whose}: {value_text(value)} is {share:.2%} of its values in the {rows}, and "
            message += f"was {was:.2%} (L-infinity distance {distance:.3f}; the limit is {bounds.l_infinity:g})"
            yield "l_infinity", message, distance, bounds.l_infinity
        return
    divergence, shift = jensen_shannon(ours, theirs), quantile_distance(ours, theirs)
    if divergence > bounds.jensen_shannon or shift > bounds.quantile:
        unit = ours.temporal or theirs.temporal
        message = f"has drifted from {whose}: its median went from {_figures(theirs, [0.5], unit)} to "
        message += f"{_figures(ours, [0.5], unit)}, its 5% to 95% range from {_figures(theirs, [0.05, 0.95], unit)} to "
        message += f"{_figures(ours, [0.05, 0.95], unit)} (Jensen-Shannon divergence {divergence:.3f}, limit "
        message += f"{bounds.jensen_shannon:g}; quantile distance {shift:.3f}, limit {bounds.quantile:g})"
        if divergence > bounds.jensen_shannon:
            yield "jensen_shannon", message, divergence, bounds.jensen_shannon
        else:
            yield "quantile", message, shift, bounds.quantile


def shifted_numbers(
    split: str, ours: SplitStatistics, theirs: SplitStatistics, features: Collection[str], *, by_time: bool
) -> Iterator[Anomaly]:
    """Report numeric columns of a split that are 10 or more times as large as in train, or 1/10 or less: their unit may have
    changed. With `by_time`, also report columns whose values all lie beyond train's range, as those of a counter or a sum do.

    Args:
        ours: the statistics of eval or test.
        theirs: the statistics of train.
        features: the columns to check, which the model learns from. The label is checked too, but only for a changed unit.
    """
    for name, column in ours.columns.items():
        other = theirs.columns.get(name)
        if other is None or "bytes" in (column.type, other.type) or column.shape:
            continue
        if (name not in features and name != LABEL) or min(column.finite, other.finite) < _FEWEST:
            continue
        found = None
        if by_time and name != LABEL and not column.temporal:
            found = _beyond(split, column, other)
        if (found := found or _rescaled(split, column, other)) is not None:
            yield found


def _beyond(split: str, ours: ColumnStatistics, theirs: ColumnStatistics) -> Anomaly | None:
    above = ours.quantile([0])[0] > theirs.quantile([1])[0]
    if not above and not ours.quantile([1])[0] < theirs.quantile([0])[0]:
        return None
    message = f"{_called(ours.name)} is {'above' if above else 'below'} every value of train in all {split} rows: it goes from "
    message += f"{' to '.join(_figures(theirs, [end], None) for end in (0, 1))} in train and from "
    message += f"{' to '.join(_figures(ours, [end], None) for end in (0, 1))} in {split}, as a counter or a sum does. "
    message += "A model learns nothing of such values, and later ones lie farther off"
    fix = f"leave it out: {column_yaml(ours.name, 'ignore')}, or compute what does not grow, such as the change since the row "
    fix += f"before; if it is right: validation.columns.{ours.name}.severity: {{drift: ignore}}"
    return finding("warning", "drift", split, message, fix, column=ours.name)


def _rescaled(split: str, ours: ColumnStatistics, theirs: ColumnStatistics) -> Anomaly | None:
    """Returns a finding if a column's quantiles are at least 10 times train's, or at most 1/10, by the median of their ratios.
    Else returns None. A new unit changes all quantiles; growth or a rare value changes only some."""
    now, before = (np.abs(side.quantile(INNER.tolist())) for side in (ours, theirs))
    both = (now > 0) & (before > 0)
    if 2 * both.sum() < len(INNER):
        return None
    times = float(np.median(now[both] / before[both]))
    if 1 / RESCALED < times < RESCALED:
        return None
    ratio = float(f"{max(times, 1 / times):.1g}")  # 1,013 is about 1,000
    said = f"{ratio:,.0f} times" if times > 1 else f"1/{ratio:,.0f}"
    message = f"{_called(ours.name)} is about {said} as large in the {split} rows as in the train rows: "
    message += (
        f"its 5% to 95% range went from {_figures(theirs, [0.05, 0.95], None)} to {_figures(ours, [0.05, 0.95], None)}"
    )
    fix = "if its unit changed, mend the source, or the model is judged by other numbers than it learned from; "
    fix += f"if it is right: validation.columns.{ours.name}.severity: {{drift: ignore}}"
    return finding("warning", "drift", split, message, fix, column=ours.name, value=times, expected=RESCALED)


def _called(name: str) -> str:
    return "the label" if name == LABEL else f"column {name!r}"


def _absent(column: ColumnStatistics) -> float:
    """Returns the share of rows whose value is null or NaN. An infinite value is not missing: it has its own finding."""
    missing = column.missing if column.type == "bytes" else column.missing + column.nan
    return missing / column.rows if column.rows else 1.0


def _compared(column: ColumnStatistics) -> int:
    """Returns the number of values that can be compared: texts that are present, or finite numbers."""
    return column.present if column.type == "bytes" else column.finite


def _figures(column: ColumnStatistics, at: list[float], unit: Temporal | None) -> str:
    texts = [value_text(float(value), unit) for value in column.quantile(at)]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
