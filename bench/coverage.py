"""How often the 95% interval of a metric holds the truth: simulated rows, measured by the evaluation's own functions.

    nice python bench/coverage.py                                # half an hour
    nice python bench/coverage.py --task binary rare --metric ece loss --repetitions 200

Each cell draws rows anew, computes the intervals as a run does, and counts how many hold the value of 400,000 rows. Rows come one
by one, or from 50 or 500 units whose rows are alike (the noise of two rows of a unit is correlated by 0.3, and so are columns);
they weigh the same, or by a weight that depends on a column. The truth of a metric at a chosen threshold is its value on those
400,000 rows at the threshold that the repetition keeps for use. A repetition with fewer than 20 rows of a class is drawn again;
of 300 rows the rare class has 13%, of 3,000 rows 1.5%.

Required: 92% to 98% in every cell. A cell in which more than 2% of the repetitions have no interval is listed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from headway.evaluation.intervals import intervals
from headway.evaluation.predictions import metrics_of
from headway.evaluation.threshold import FLAGGED, ThresholdRule, decide_rows
from headway.metrics.base import Rows
from headway.metrics.ranking import GroupMetric
from headway.tasks.table import task_of

Floats = NDArray[np.float64]
Random = np.random.Generator
TRUTH_ROWS, LEAST, ALIKE = 400_000, 20, 0.3
SIZES, UNITS = (300, 3000), (None, 50, 500)
LEVELS = (0.1, 0.5, 0.9)
LOW, HIGH, MOST_WITHOUT = 0.92, 0.98, 0.02
GRID = np.linspace(-8, 8, 20_001)
NORMAL = np.array([NormalDist().cdf(float(z)) for z in GRID])
T3 = 0.5 + (np.arctan(GRID * 4 / np.sqrt(3)) + (GRID * 4 / np.sqrt(3)) / (1 + (GRID * 4) ** 2 / 3)) / np.pi
"""Of Student's t with 3 degrees of freedom, at four times the grid: its fourth moment is infinite."""


@dataclass(frozen=True)
class Drawn:
    """Columns and noise of some rows."""

    x: Floats
    """[rows, 4]"""
    noise: Floats
    """Standard normal; [rows]"""
    weight: Floats
    units: NDArray[np.int64] | None
    few: bool = False
    """Whether they are 300 rows, or the truth of these."""

    @classmethod
    def of(cls, rows: int, units: int | None, weighted: bool, r: Random, few: bool = False) -> Drawn:
        x, noise = r.normal(size=(rows, 4)), r.normal(size=rows)
        unit = None if units is None else r.integers(0, units, rows)
        if unit is not None and units is not None:
            shared = r.normal(size=(units, 5))[unit]
            x = np.sqrt(ALIKE) * shared[:, :4] + np.sqrt(1 - ALIKE) * x
            noise = np.sqrt(ALIKE) * shared[:, 4] + np.sqrt(1 - ALIKE) * noise
        return cls(x, noise, np.exp(0.5 * x[:, 1]) if weighted else np.ones(rows), unit, few)

    @property
    def score(self) -> Floats:
        return self.x @ np.array([1.0, 0.7, 0.5, 0.4])

    @property
    def uniform(self) -> Floats:
        return np.interp(self.noise, GRID, NORMAL)


def probability(logit: Floats) -> Floats:
    return 1 / (1 + np.exp(-logit))


def _binary(drawn: Drawn) -> tuple[Floats, Floats]:
    """A calibrated model of 20% positives."""
    p = probability(drawn.score - 1.95)
    return (drawn.uniform < p).astype(float), p


def _rare(drawn: Drawn) -> tuple[Floats, Floats]:
    """1.5% positives, of which the model says too many; 13% in few rows."""
    logit = 2 * drawn.score - (3.6 if drawn.few else 7.2)
    return (drawn.uniform < probability(logit)).astype(float), probability(0.95 * logit + 0.34)


def _multiclass(drawn: Drawn) -> tuple[Floats, Floats]:
    """Four classes, the rarest of 12%."""
    logits = np.stack([drawn.x[:, 0] + 0.6, drawn.x[:, 1] + 0.3, drawn.x[:, 2] - 0.1, drawn.x[:, 3] - 0.7], 1)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    label = (drawn.uniform[:, None] > np.cumsum(p, 1)[:, :-1]).sum(1).astype(float)
    said = p**0.8
    return label, said / said.sum(1, keepdims=True)


def _regression(drawn: Drawn) -> tuple[Floats, Floats]:
    return drawn.score + 1.5 * drawn.noise + 3, 0.9 * drawn.score + 3.1


def _heavy(drawn: Drawn) -> tuple[Floats, Floats]:
    """The noise has Student's t distribution with 3 degrees of freedom."""
    return drawn.score + np.interp(drawn.uniform, T3, 4 * GRID) + 3, 0.9 * drawn.score + 3.1


def _count(drawn: Drawn) -> tuple[Floats, Floats]:
    rate = np.exp(0.4 * drawn.score + 0.3)
    share, below, label = np.exp(-rate), np.zeros(len(rate)), np.zeros(len(rate))
    for k in range(1, 80):
        below += share
        label += drawn.uniform > below
        share = share * rate / k
    return label, 1.1 * rate**0.9


def _quantiles(drawn: Drawn) -> tuple[Floats, Floats]:
    at = np.array([NormalDist().inv_cdf(level) for level in LEVELS])
    spread = np.exp(0.3 * drawn.x[:, 3])
    return drawn.score + 1.5 * spread * drawn.noise, drawn.score[:, None] + 1.4 * spread[:, None] * at


def _ranking(drawn: Drawn) -> tuple[Floats, Floats]:
    score = drawn.x[:, 0]
    return (score + drawn.noise > 1.0).astype(float), score


World = Callable[[Drawn], tuple[Floats, Floats]]
WORLDS: dict[str, tuple[str, World]] = {
    "binary": ("binary", _binary),
    "rare": ("binary", _rare),
    "multiclass": ("multiclass", _multiclass),
    "regression": ("regression", _regression),
    "heavy tails": ("regression", _heavy),
    "count": ("count", _count),
    "quantiles": (f"quantiles({', '.join(map(str, LEVELS))})", _quantiles),
}
RULES: dict[str, ThresholdRule] = {
    "threshold f1": ThresholdRule(f1=True),
    "threshold recall 0.9": ThresholdRule(recall=0.9),
}
RANKING = "ranking"
TASKS = (*WORLDS, *RULES, RANKING)
Found = Mapping[str, tuple[float | None, tuple[float, float] | None]]
"""By metric: the truth, the interval."""


def rows_of(name: str, drawn: Drawn, *, grouped: bool = False) -> Rows:
    task, world = WORLDS[name] if name in WORLDS else ("regression", _ranking) if name == RANKING else WORLDS["binary"]
    label, prediction = world(drawn)
    groups, units = (drawn.units, None) if grouped else (None, drawn.units)
    return task_of(task).rows(label, prediction, drawn.weight, groups=groups, units=units)


def _enough(name: str, rows: Rows) -> bool:
    if WORLDS.get(name, ("binary",))[0] not in ("binary", "multiclass"):
        return True
    classes = rows.prediction.shape[1] if rows.prediction.ndim == 2 else 2
    return int(np.bincount(rows.label.astype(np.int64), minlength=classes).min()) >= LEAST


@cache
def _many(name: str, weighted: bool, few: bool) -> Rows:
    """What the truth is computed on, by prediction where there is one."""
    rows = rows_of(name, Drawn.of(TRUTH_ROWS, None, weighted, np.random.default_rng(0), few))
    return rows.at(np.argsort(rows.prediction)) if rows.prediction.ndim == 1 else rows


def repeated(
    name: str, rows: int, units: int | None, weighted: bool, repetitions: int, seed: int = 0
) -> Iterator[Found]:
    """One cell of every metric of a task."""
    r = np.random.default_rng([seed, rows, units or 0, weighted, TASKS.index(name)])
    if name == RANKING:
        yield from _ranked(rows, units or 0, weighted, repetitions, r)
        return
    few = rows < 1000
    many = _many(name, weighted, few)
    metrics = metrics_of(WORLDS[name][0]) if name in WORLDS else ()
    truth = {metric.name: metric.cached_value(many) for metric in metrics}
    done = 0
    while done < repetitions:
        some = rows_of(name, Drawn.of(rows, units, weighted, r, few))
        if not _enough(name, some):
            continue
        done += 1
        if name in WORLDS:
            found = intervals(some, metrics)
            yield {metric: (truth[metric], interval) for metric, interval in found.items()}
        else:
            yield _decided(RULES[name], some, many, done)


def _decided(rule: ThresholdRule, some: Rows, many: Rows, seed: int) -> Found:
    decided = decide_rows(rule, some, seed=seed)
    if decided is None:
        return {}
    at = int(np.searchsorted(many.prediction, decided.threshold))
    flagged, positive = np.arange(len(many)) >= at, many.label > 0.5
    outcome = 2 * flagged + positive  # four kinds of rows, each with its weight
    weight = np.bincount(outcome, many.weight, 4)
    kept = Rows(np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0, 1.0]), weight)
    return {
        m.name: (m.cached_value(kept), found)
        for m, found in zip((*decided.metrics, FLAGGED), decided.intervals(0.95, seed).values(), strict=True)
    }


def _ranked(rows: int, groups: int, weighted: bool, repetitions: int, r: Random) -> Iterator[Found]:
    """Groups of equal size."""
    metrics = [GroupMetric(name, 3) for name in ("ndcg", "mrr", "recall_at_k")]
    size = rows // groups if groups else 0
    if size < 4:
        return

    def drawn(count: int) -> Rows:
        x = Drawn.of(count * size, None, False, r)
        group = np.repeat(np.arange(count), size)
        noise = np.sqrt(ALIKE) * r.normal(size=count)[group] + np.sqrt(1 - ALIKE) * x.noise
        weight = np.exp(0.5 * r.normal(size=count))[group] if weighted else x.weight
        return rows_of(RANKING, Drawn(x.x, noise, weight, group), grouped=True)

    many = drawn(TRUTH_ROWS // size)
    truth = {metric.name: metric.cached_value(many) for metric in metrics}
    for _ in range(repetitions):
        yield {name: (truth[name], interval) for name, interval in intervals(drawn(groups), metrics).items()}


@dataclass
class Cell:
    held: int = 0
    missing: int = 0
    total: int = 0
    below: int = 0
    """Intervals that lie wholly below the truth."""

    @property
    def share(self) -> float | None:
        known = self.total - self.missing
        return None if self.total == 0 or self.missing > MOST_WITHOUT * self.total else self.held / known

    def __str__(self) -> str:
        return "none" if self.share is None else f"{self.share:.3f}".lstrip("0")


Key = tuple[str, str, int, int | None, bool]
"""Task, metric, rows, units, weighted."""


def study(
    names: Sequence[str], metrics: Sequence[str], sizes: Sequence[int], repetitions: int, seed: int = 0
) -> dict[Key, Cell]:
    cells: dict[Key, Cell] = {}
    for name in names:
        for rows in sizes:
            for units in UNITS:
                for weighted in (False, True):
                    for found in repeated(name, rows, units, weighted, repetitions, seed):
                        for metric, (truth, interval) in found.items():
                            if metrics and metric not in metrics:
                                continue
                            cell = cells.setdefault((name, metric, rows, units, weighted), Cell())
                            cell.total += 1
                            if interval is None or truth is None:
                                cell.missing += 1
                                continue
                            cell.held += interval[0] <= truth <= interval[1]
                            cell.below += interval[1] < truth
    return cells


def table(cells: Mapping[Key, Cell]) -> list[str]:
    sizes = sorted({key[2] for key in cells})
    columns = [(rows, units, weighted) for rows in sizes for units in UNITS for weighted in (False, True)]
    heads = [
        f"{rows:,}, {f'{units} units' if units else 'rows'}{', weights' * weighted}"
        for rows, units, weighted in columns
    ]
    lines = ["| task | metric | " + " | ".join(heads) + " |", "| --- | --- |" + " --- |" * len(heads)]
    for task, metric in dict.fromkeys(key[:2] for key in cells):
        shown = [str(cells[key]) if (key := (task, metric, *column)) in cells else "" for column in columns]
        lines.append(f"| {task} | {metric} | " + " | ".join(shown) + " |")
    return lines


def main() -> None:
    from common import header

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--metric", nargs="+", default=[])
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES)
    parser.add_argument("--repetitions", type=int, default=1000)
    options = parser.parse_args()
    header("coverage")
    for task in options.task:
        cells = study([task], options.metric, options.rows, options.repetitions)
        print("\n".join(table(cells)), flush=True)
        for key, cell in cells.items():
            where = f"{key[0]}, {key[1]}, {key[2]:,} rows, {key[3] or 'no'} units{', weights' * key[4]}"
            if cell.share is None:
                print(f"without an interval: {where}: in {cell.missing} of {cell.total} repetitions")
            elif not LOW <= cell.share <= HIGH:
                print(f"beyond {LOW} to {HIGH}: {where}: {cell.share:.3f}, {cell.below / cell.total:.3f} too low")


if __name__ == "__main__":
    main()
