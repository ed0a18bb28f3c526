"""Compares the splits: their shares of the rows, and their label distributions with that of train.

    report = stratification(splits, "auto", SplitConfig(), StratificationConfig())
    report.rows                               # a row of text for each split
    report.anomalies

Two splits of a hash differ by chance alone. A difference is named when it is both beyond chance (p below 1e-4) and large
enough to matter (0.05 standard deviations of the label). Rows that share a key are not independent, which makes p too
small with few keys; that is what the second bound is for. Splits by time differ for good reasons: there it is a note.

    label         test                                         size of the difference
    two classes   two-proportion z-test, pooled variance       Cohen's h = 2 asin sqrt(p) - 2 asin sqrt(q)
    classes       Pearson's chi-square test of homogeneity     Cohen's w = sqrt(sum (p - q)^2 / q)
    number        Welch's test, normal for 100 rows and more   Cohen's d = (mean - mean') / root mean variance

Formulas: Fleiss, Levin and Paik, "Statistical Methods for Rates and Proportions", 3rd ed. 2003 (z); Pearson 1900 and
Cochran 1954 (chi-square; classes of fewer than 5 expected rows count as one); Welch 1947; Cohen, "Statistical Power
Analysis for the Behavioral Sciences", 2nd ed. 1988 (h, w, d, which are the same for small differences).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headway.messages import chance, number
from headway.schema.columns import LABEL
from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.split_statistics import SplitStatistics
from headway.tabular.splits import SplitConfig
from headway.validation.anomaly import Anomaly, finding, value_text
from headway.validation.config import StratificationConfig
from headway.validation.label_checks import label_kind

_EXPECTED = 5.0
"""Fewer expected rows of a class make the tests doubtful."""
_WELCH_ROWS = 100
_SHARE = 0.25
"""A split whose share is off by more than this part of what was asked for is warned of."""
_SHOWN = 3


@dataclass(frozen=True)
class Difference:
    """The difference of a split's label distribution from that of train."""

    p: float
    effect: float
    """In standard deviations of the label; signed where a direction makes sense."""


@dataclass
class Report:
    rows: list[dict[str, str | int]] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)


def stratification(
    splits: Mapping[str, SplitStatistics], task: str, split: SplitConfig, config: StratificationConfig
) -> Report:
    """The report over the splits of a window; `task` as in the pipeline, or "auto"."""
    report = Report()
    total = sum(statistics.rows for statistics in splits.values())
    train = splits["train"].columns.get(LABEL) if "train" in splits else None
    kind = label_kind(task, train) if train is not None and train.present else None
    asked = (
        {"train": 1.0 - split.eval - split.test, "eval": split.eval, "test": split.test} if split.mode == "hash" else {}
    )
    for name, statistics in splits.items():
        share = statistics.rows / total if total else 0.0
        row: dict[str, str | int] = {"split": name, "rows": statistics.rows, "share": f"{share:.2%}"}
        if (target := asked.get(name)) is not None:
            row["asked for"] = f"{target:.2%}"
            report.anomalies += _off(name, statistics.rows, total, target)
        label = statistics.columns.get(LABEL)
        if label is not None and train is not None and kind is not None:
            row |= _described(label, train, kind)
            difference = compare(train, label, kind) if name != "train" else None
            if difference is not None:
                row |= {"difference": number(round(difference.effect, 4)), "p": chance(difference.p).removeprefix("p ")}
                report.anomalies += _differs(name, train, label, kind, difference, split, config)
        report.rows.append(row)
    return report


def _off(name: str, rows: int, total: int, target: float) -> Iterator[Anomaly]:
    """Report a split whose share of the rows differs from the configured one: one-sample z-test of a proportion."""
    expected = total * target
    if min(expected, total - expected) < _EXPECTED:
        return
    z = (rows - expected) / math.sqrt(expected * (1 - target))
    if normal_tails(z) < 1e-4 and abs(rows - expected) > _SHARE * expected:
        message = f"{name} has {rows / total:.2%} of the rows, and {target:.2%} were asked for: a few keys, or a few "
        message += "rows repeated many times in the files, make up many of the rows"
        fix = "check the keys with the most rows; a larger share (split.eval, split.test) depends less on each"
        yield finding("warning", "split share", name, message, fix, value=rows / total, expected=target)


def _described(label: ColumnStatistics, train: ColumnStatistics, kind: str) -> dict[str, str]:
    if kind == "regression":
        if not label.finite:
            return {"label mean": "", "label std": ""}
        return {"label mean": number(label.mean), "label std": number(label.std)}
    counts = _counts(label)
    if not counts or not sum(counts.values()):
        return {"label": ""}
    return {"label": ", ".join(f"{value}: {share}" for value, share in _shares(counts, train, kind))}


def _shares(counts: Mapping[Any, int], train: ColumnStatistics, kind: str) -> list[tuple[str, str]]:
    """(class, its share of the rows): of two classes the last, of more those that are most frequent in train."""
    present = sum(counts.values())
    classes = _classes(train)[-1:] if kind == "binary" else [value for value, _ in train.top(_SHOWN)]
    return [(value_text(c), f"{counts.get(c, 0) / present:.2%}") for c in classes]


def _classes(train: ColumnStatistics) -> list[Any]:
    """The classes in rising order; of two, the rate of the last is reported."""
    return sorted(value for value, _ in train.top())


def _counts(label: ColumnStatistics) -> dict[Any, int] | None:
    return dict(label.top()) if label.complete else None


def compare(train: ColumnStatistics, other: ColumnStatistics, kind: str) -> Difference | None:
    """The difference of `other` from `train`; None when there are too few rows to tell, or nothing that could differ."""
    if kind == "regression":
        return means((train.finite, train.mean, train.m2), (other.finite, other.mean, other.m2))
    ours, theirs = _counts(train), _counts(other)
    if ours is None or theirs is None:
        return None
    if kind == "binary" and len(ours) == 2 and set(theirs) <= set(ours):
        positive = _classes(train)[-1]
        n, m = sum(ours.values()), sum(theirs.values())
        return proportions(ours[positive], n, theirs.get(positive, 0), m)
    return shares([(count, theirs.get(value, 0)) for value, count in ours.items()])


def proportions(hits: int, n: int, others: int, m: int) -> Difference | None:
    """Compare `hits` of `n` with `others` of `m`: two-proportion z-test and Cohen's h, positive when the second is
    greater."""
    if not n or not m:
        return None
    pooled = (hits + others) / (n + m)
    if min(n, m) * min(pooled, 1 - pooled) < _EXPECTED:
        return None
    p, q = hits / n, others / m
    z = (q - p) / math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    return Difference(normal_tails(z), 2 * (math.asin(math.sqrt(q)) - math.asin(math.sqrt(p))))


def shares(counts: list[tuple[int, int]]) -> Difference | None:
    """Compare (rows of train, rows of the other) of each class: chi-square test of homogeneity and Cohen's w."""
    n, m = (sum(side) for side in zip(*counts, strict=True))
    if not n or not m:
        return None
    expected = [(a + b) * min(n, m) / (n + m) for a, b in counts]
    frequent = [pair for pair, e in zip(counts, expected, strict=True) if e >= _EXPECTED]
    rare = [pair for pair, e in zip(counts, expected, strict=True) if e < _EXPECTED]
    if rare:
        a_rare, b_rare = (sum(side) for side in zip(*rare, strict=True))
        if (a_rare + b_rare) * min(n, m) / (n + m) >= _EXPECTED:
            frequent.append((a_rare, b_rare))
    if len(frequent) < 2:
        return None
    a, b = (np.array(side, np.float64) for side in zip(*frequent, strict=True))
    pooled = (a + b) / (a.sum() + b.sum())
    statistic = sum(float((((side - side.sum() * pooled) ** 2) / (side.sum() * pooled)).sum()) for side in (a, b))
    p, q = a / a.sum(), b / b.sum()
    base = np.where(p > 0, p, pooled)  # a class that train lacks
    return Difference(chi_square_tail(statistic, len(frequent) - 1), float(np.sqrt((((q - p) ** 2) / base).sum())))


def means(train: tuple[int, float, float], other: tuple[int, float, float]) -> Difference | None:
    """Compare two (rows, mean, sum of squared deviations): Welch's test and Cohen's d, positive when the second is
    greater."""
    (n, mean, m2), (m, mean_other, m2_other) = train, other
    if min(n, m) < _WELCH_ROWS:
        return None
    variance, variance_other = m2 / (n - 1), m2_other / (m - 1)
    if variance + variance_other <= 0:
        return None
    z = (mean_other - mean) / math.sqrt(variance / n + variance_other / m)
    return Difference(normal_tails(z), (mean_other - mean) / math.sqrt((variance + variance_other) / 2))


def normal_tails(z: float) -> float:
    """The probability P(|Z| >= |z|) of a standard normal Z."""
    return math.erfc(abs(z) / math.sqrt(2))


def chi_square_tail(statistic: float, degrees: int) -> float:
    """The probability P(X >= statistic) of a chi-square X with so many degrees of freedom, at least one.

    The regularised upper gamma function Q(degrees / 2, statistic / 2) by its recurrence
    Q(a + 1, y) = Q(a, y) + y**a exp(-y) / gamma(a + 1), from Q(1/2, y) = erfc(sqrt(y)) or Q(1, y) = exp(-y)
    (Abramowitz and Stegun, 6.5.21).
    """
    y = statistic / 2
    if y <= 0:
        return 1.0
    a, total = (0.5, math.erfc(math.sqrt(y))) if degrees % 2 else (1.0, math.exp(-y))
    while a < degrees / 2:
        total += math.exp(a * math.log(y) - y - math.lgamma(a + 1))
        a += 1
    return min(1.0, total)


def _differs(
    name: str,
    train: ColumnStatistics,
    label: ColumnStatistics,
    kind: str,
    difference: Difference,
    split: SplitConfig,
    config: StratificationConfig,
) -> Iterator[Anomaly]:
    if difference.p >= config.p or abs(difference.effect) < config.effect:
        return
    if kind == "binary":
        ((value, ours),), ((_, theirs),) = (_shares(_counts(side) or {}, train, kind) for side in (train, label))
        levels = f"{value} is {theirs} of {name} and {ours} of train"
    else:
        ours, theirs = (next(iter(_described(side, train, kind).values())) for side in (train, label))
        levels = f"{'its mean is' if kind == 'regression' else 'it is'} {theirs} in {name} and {ours} in train"
    by_time = split.mode == "time" or split.eval_from is not None
    chance = f"p {difference.p:.1g}" if difference.p >= 0.001 else "p < 0.001"
    because = ": splits by time differ as the data change" if by_time else ", which is more than chance gives"
    fix = "nothing to do, unless metrics on such an eval split do not tell about future data"
    if split.mode == "column":
        fix = f"check how column {split.column!r} was filled"
    elif split.mode == "path":
        fix = "check how the rows were divided into files"
    elif not by_time:
        fix = "check keys with very many rows; a larger share (split.eval, split.test) depends less on each"
    message = f"the label of {name} is distributed differently than in train: {levels} "
    message += f"({abs(difference.effect):.2f} standard deviations, {chance}){because}"
    yield finding("info" if by_time else "warning", "stratification", name, message, fix, column=LABEL)
