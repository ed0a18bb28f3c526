"""How often the gate is wrong: simulated models with known regressions, judged by the gate's own functions.

    nice python bench/gate.py                     # about two minutes
    nice python bench/gate.py --task regression       # or quantiles
    nice python bench/gate.py --drawn             # rows of keys, of groups, of many slices, with weights
    python bench/gate.py --chains                 # 200 chains of 100 retrains; a quarter of a minute

A champion and a candidate know the truth but for noise of their own (what a seed does). The candidate has one thing wrong. Each
cell draws rows anew, compares the two by the task's default tolerances overall and on slices, and counts how often something
blocks. Beforehand is computed what the gate can see: the regression's true size, on many rows, is held against the loss that a
comparison of this spread blocks in 95% of all cases (`Difference.detectable`, on slices with Holm's worst case).

With --drawn the two models' errors are alike within a key's or a group's rows. Beside equal models there is one whose true loss
is what the gate says it detects at this size: the noise of its score is raised until the two agree.

With --chains each of 100 retrains has newer data, and its candidate meets the champion and the anchor on eval rows of its own. A
model is its true AUC and log loss; the noise of the rows has the covariance of real comparisons of this size, and the gate's own
rules decide. Recipes are equally good, with or without a scatter of their seeds, or each candidate's true AUC is 0.001 lower.

Required: equal models blocked in at most 5%; of the regressions that the gate says it can see at a size, 95% blocked; of losses
as large as it says it detects, at least 75%. Of 200 chains of equal recipes at most 10% have a rejection that the anchor caused;
of those that lose 0.001 each, 90% are stopped before 0.02 is lost.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.evaluation.compare import Difference
from headway.evaluation.config import GateConfig, parse_tolerance
from headway.evaluation.predictions import rows_of
from headway.evaluation.tolerance import Comparison, Margin, Margins, tolerance_check, within_tolerances
from headway.evaluation.verdict import Check, is_better
from headway.monitor import Monitor
from headway.schema.columns import UNIT
from headway.tasks.base import LabelFacts, Task
from headway.tasks.table import task_of

Floats = NDArray[np.float64]
Random = np.random.Generator
TRUTH_ROWS, POWER = 200_000, 0.95
SLOPES = np.array([1.0, 0.7, 0.5, 0.4])
KINDS = np.array([0.25, 0.2, 0.15, 0.15, 0.1, 0.08, 0.05, 0.02])
EFFECTS = np.array([0.0, 0.5, -0.5, 0.3, -0.3, 0.6, -0.6, 0.8])
SEED_NOISE = 0.15
INTERCEPTS = {0.2: -1.95, 0.01: -5.75}
SLICES = ("kind", "x0: 4")
LEVELS, SPREAD = (0.1, 0.5, 0.9), 1.5
QUANTILES = f"quantiles({', '.join(map(str, LEVELS))})"
AT = np.array([NormalDist().inv_cdf(level) for level in LEVELS])
"""Of a standard normal."""


@dataclass(frozen=True)
class World:
    """Rows whose truth is known."""

    task: str
    x: Floats
    kind: NDArray[np.int64]
    intercept: float

    @classmethod
    def draw(cls, task: str, rows: int, rate: float, r: Random) -> World:
        return cls(task, r.normal(size=(rows, 4)), r.choice(len(KINDS), rows, p=KINDS), INTERCEPTS.get(rate, 0.0))

    def score(self) -> Floats:
        """Log odds, or the mean of the number."""
        return self.intercept + self.x @ SLOPES + EFFECTS[self.kind]

    def label(self, r: Random) -> Floats:
        if self.task == "binary":
            return (r.random(len(self.kind)) < probability(self.score())).astype(float)
        return self.score() + SPREAD * r.normal(size=len(self.kind))

    def predicted(self, score: Floats, r: Random, spread: float = 1.0) -> Floats:
        """What a model says that has learned `score`, with the noise of its seed.

        Args:
            spread: of quantiles, how far apart they are, in right distances.
        """
        score = score + SEED_NOISE * r.normal(size=len(score))
        if self.task == QUANTILES:
            return score[:, None] + spread * np.hypot(SPREAD, SEED_NOISE) * AT
        return probability(score) if self.task == "binary" else score

    def without(self, column: int) -> Floats:
        """The best score that does without a column."""
        lost = SLOPES[column]
        score = self.score() - self.x[:, column] * lost
        return score / np.sqrt(1 + 0.346 * lost**2) if self.task == "binary" else score


def probability(logit: Floats) -> Floats:
    return 1 / (1 + np.exp(-logit))


def label_noise(world: World, r: Random, share: float = 0.1) -> Floats:
    """Learned from labels of which a share was drawn anew; for numbers, with so much more noise of its own."""
    if world.task != "binary":
        return world.score() + 0.6 * r.normal(size=len(world.kind))
    p = probability(world.score())
    noisy = (1 - share) * p + share * 0.5
    return np.log(noisy / (1 - noisy))


def stale(world: World, r: Random) -> Floats:
    """Learned when a column meant half as much and the kinds other things."""
    return world.intercept + world.x @ (SLOPES * [1, 0.5, 1, 1]) + np.roll(EFFECTS, 1)[world.kind]


def broken_slice(world: World, r: Random) -> Floats:
    """A constant where the kind is the fifth, on a tenth of the rows."""
    score = world.score()
    return np.where(world.kind == 4, np.quantile(score, 0.75), score)


def shuffled(world: World, r: Random) -> Floats:
    moved = replace(world, x=np.column_stack([world.x[:, 0], r.permutation(world.x[:, 1]), world.x[:, 2:]]))
    return moved.score()


REGRESSIONS: dict[str, Callable[[World, Random], Floats]] = {
    "equal": lambda world, r: world.score(),
    "label noise": label_noise,
    "dropped column": lambda world, r: world.without(1),
    "shuffled column": shuffled,
    "broken slice": broken_slice,
    "shifted feature": lambda world, r: world.score() + 0.3 * SLOPES[0],
    "shifted output": lambda world, r: world.score() + (0.3 if world.task == "binary" else 0.1),
    "stale": stale,
}
NARROW = {"narrow": 0.85, "wide": 1.15}
"""Of quantiles: right medians, and the others too near or too far."""


def judged(task: str, name: str, rows: int, rate: float, seed: int) -> Comparison:
    """One candidate against one champion."""
    r = np.random.default_rng(seed)
    world = World.draw(task, rows, rate, r)
    label = world.label(r)
    worse = REGRESSIONS["equal" if name in NARROW else name](world, r)
    models = [world.predicted(worse, r, NARROW.get(name, 1.0)), world.predicted(world.score(), r)]
    columns = {"label": label, "kind": world.kind, "x0": world.x[:, 0]}
    positive = int(label.sum()) if task == "binary" else 0
    facts = LabelFacts(
        counts=(rows - positive, positive),
        mean=float(label.mean()),
        median=float(np.median(label)),
        quantiles=tuple(np.quantile(label, LEVELS)),
    )
    return held_against(task_of(task), columns, models, facts, slices=SLICES, seed=seed)


def held_against(
    task: Task,
    columns: dict[str, Any],
    models: Sequence[Floats],
    facts: LabelFacts,
    *,
    slices: Sequence[str],
    group: str | None = None,
    seed: int,
) -> Comparison:
    """The first of two models against the second by the task's tolerances, as the gate compares them."""
    table, other = (pa.table(columns | {"prediction": _cells(model)}) for model in models)
    rows = rows_of(table, task, group)
    before = rows.predicted(rows_of(other, task).prediction)
    judging = {metric.name: metric for metric in task.metrics}
    margins = Margins(task, task.tolerances, facts, before, judging=judging)
    options: dict[str, Any] = {"config": GateConfig(), "slices": slices, "seed": seed, "monitor": Monitor()}
    return within_tolerances(table, rows, before, margins=margins, **options)


def _cells(prediction: Floats) -> pa.Array:
    flat = pa.array(prediction.ravel())
    return flat if prediction.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, prediction.shape[1])


@dataclass(frozen=True)
class Cell:
    """A regression at one number of rows."""

    name: str
    rows: int
    blocked: float
    by: str
    """The tests that blocked most often."""
    stated: str
    """The tests that can see it, by what the gate says of their spread; empty: none."""


def study(
    task: str, rate: float, sizes: tuple[int, ...], repetitions: int, *, names: tuple[str, ...] = ()
) -> list[Cell]:
    cells = []
    for name in names or (*REGRESSIONS, *(NARROW if task == QUANTILES else ())):
        truth = _losses(judged(task, name, TRUTH_ROWS, rate, seed=10_000))
        for rows in sizes:
            found = [judged(task, name, rows, rate, seed) for seed in range(repetitions)]
            blocked = float(np.mean([any(not test.passed for test in _tests(one)) for one in found]))
            by = _counted(found)
            stated = [] if name == "equal" else _visible(found, truth)
            cells.append(Cell(name, rows, blocked, ", ".join(by[:2]), ", ".join(stated[:2])))
    return cells


def _tests(found: Comparison) -> tuple[Check, ...]:
    return (*found.overall, *found.slices)


def _name(test: Check) -> str:
    where = (
        f"{test.slice}={test.slice_value} " if test.slice == "kind" else f"{test.slice_value} " if test.slice else ""
    )
    return where + str(test.metric)


def _losses(found: Comparison) -> dict[str, float]:
    """Return by how much each metric is worse."""
    return {_name(test): -test.gained for test in _tests(found) if test.change is not None}


def _visible(found: Sequence[Comparison], truth: dict[str, float]) -> list[str]:
    """The tests whose true loss is one that the gate says it blocks in 95% of all cases."""
    seen: dict[str, list[float]] = {}
    for one in found:
        for tests in (one.overall, one.slices):
            # Holm's first step, the worst case: as many tests as there are
            confidence = 1 - (1 - GateConfig().confidence) / (len(tests) if tests is one.slices else 1)
            for test in tests:
                measured = Difference(
                    metric=_name(test), value=None, other=None, difference=test.change, error=test.error
                )
                detectable = measured.detectable(confidence, test.allowed or 0.0, POWER)
                seen.setdefault(_name(test), []).append(np.inf if detectable is None else detectable)
    # what it says depends on the draw, most of all of a bias, whose sign is not known: at least this in nine of ten cases
    margins = {name: truth[name] - float(np.quantile(values, 0.9)) for name, values in seen.items() if name in truth}
    visible = {name: margin for name, margin in margins.items() if margin >= 0 and len(seen[name]) == len(found)}
    return sorted(visible, key=lambda name: (" " in name, -visible[name]))


def _counted(found: list[Comparison]) -> list[str]:
    counts: dict[str, int] = {}
    for one in found:
        for test in _tests(one):
            if not test.passed:
                counts[_name(test)] = counts.get(_name(test), 0) + 1
    return sorted(counts, key=lambda name: -counts[name])


def table(cells: list[Cell]) -> list[str]:
    lines = [
        "| defect | rows | blocked | most often because of | predicted by the gate |",
        "| --- | --- | --- | --- | --- |",
    ]
    for c in cells:
        stated = "" if c.name == "equal" else c.stated or "not surely"
        lines.append(f"| {c.name} | {c.rows:,} | {c.blocked:.0%} | {c.by} | {stated} |")
    return lines


def verdicts(cells: list[Cell]) -> tuple[float, float]:
    """(the share of equal models that were blocked, the share of stated regressions that were)"""
    equal = [c.blocked for c in cells if c.name == "equal"]
    stated = [c.blocked for c in cells if c.stated]
    return float(np.mean(equal)) if equal else np.nan, float(np.mean(stated)) if stated else np.nan


@dataclass(frozen=True)
class Draws:
    """A kind of eval rows: what they have in common, and how they are judged."""

    units: int | None = None
    by: str | None = None
    """UNIT, as predictions of a keyed split have it, or the column of a group."""
    weighted: bool = False
    slices: tuple[str, ...] = ()


DRAWN = {
    "50 keys": Draws(50, UNIT),
    "500 keys": Draws(500, UNIT),
    "500 keys, slices": Draws(500, UNIT, slices=SLICES),
    "200 groups": Draws(200, "group"),
    "200 groups, weights": Draws(200, "group", weighted=True),
    "50 slices": Draws(slices=(*SLICES, "x1: 20", "x2: 18")),
    "weights": Draws(weighted=True, slices=SLICES),
}


def drawn(how: Draws, rows: int, noise: float, seed: int) -> Comparison:
    """One candidate against one champion that knows as much but for the candidate's noise."""
    r = np.random.default_rng(seed)
    world = World.draw("binary", rows, 0.2, r)
    unit = np.arange(rows) if how.units is None else r.integers(0, how.units, rows)
    shared = 0.7 * r.normal(size=(3, len(unit)))[:, unit]  # of the labels, and of each model's error
    label = (r.random(rows) < probability(world.score() + shared[0])).astype(float)
    extra = noise * r.normal(size=rows)
    models = [world.predicted(world.score() + own + more, r) for own, more in ((shared[1], extra), (shared[2], 0.0))]
    columns = {"label": label, "kind": world.kind, **{f"x{i}": world.x[:, i] for i in range(3)}}
    if how.by is not None:
        columns[how.by] = unit
    if how.weighted:
        columns["weight"] = np.exp(0.7 * world.x[:, 3])
    positive = int(label.sum())
    facts, group = LabelFacts(counts=(rows - positive, positive)), how.by if how.by != UNIT else None
    return held_against(task_of("binary"), columns, models, facts, slices=how.slices, group=group, seed=seed)


def as_drawn(rows: int, repetitions: int, names: Sequence[str] = ()) -> list[tuple[str, float, float, float]]:
    """(what rows have in common, the share of equal models that were blocked, the loss that the gate says it detects, the share
    of models with this loss that were blocked by it)"""
    found = []
    for name in names or DRAWN:
        how = DRAWN[name]
        equal = [drawn(how, rows, 0.0, seed) for seed in range(repetitions)]
        blocked = float(np.mean([any(not test.passed for test in _tests(one)) for one in equal]))
        alone = replace(how, slices=())
        low, high = 0.0, 4.0
        for _ in range(7):
            noise = (low + high) / 2
            truth = _losses(drawn(replace(alone, units=None, by=None), TRUTH_ROWS, noise, 10_000))["loss"]
            stated = _detected([drawn(alone, rows, noise, 20_000 + seed) for seed in range(60)])
            low, high = (noise, high) if truth < stated else (low, noise)
        worse = [drawn(alone, rows, high, 20_000 + seed) for seed in range(repetitions)]
        caught = float(np.mean([not one.of("loss").passed for one in worse]))
        found.append((name, blocked, _detected(worse), caught))
    return found


def _detected(found: Sequence[Comparison]) -> float:
    return float(np.median([one.of("loss").detectable or np.inf for one in found]))


def print_drawn(rows: int, repetitions: int) -> None:
    print(f"| {rows:,} rows | equal models blocked | loss that it says it detects | models with this loss blocked |")
    print("| --- | --- | --- | --- |")
    for name, blocked, stated, caught in as_drawn(rows, repetitions):
        print(f"| {name} | {blocked:.1%} | {stated:.4f} | {caught:.0%} |", flush=True)


# --- chains of retrains

RETRAINS, CHAINS, STEP, MOST_LOST = 100, 200, 0.001, 0.02
SCATTERS = {"equal": 0.0, "equal, seeds scatter by 0.3% of the gain": 0.003, "equal, by 1.9%": 0.019}
"""Standard deviations of the true AUC, of its gain; those of the loss are 2.5 times as large a share (docs/gate.md)."""
METRICS = ("auc", "loss")


@dataclass(frozen=True)
class Noise:
    """What comparisons of equal models at one number of rows come to."""

    values: Floats
    """The true AUC and loss."""
    gains: Floats
    """Over the constant."""
    root: Floats
    """Of the covariance of one model's values on some rows, what they share with another's left out."""
    errors: Floats
    """Standard, of a difference of two models."""

    @classmethod
    def of(cls, rows: int, draws: int = 300) -> Noise:
        r, most = np.random.default_rng(rows), min(rows, 4000)
        metrics = [task_of("binary").metric(name) for name in METRICS]
        found = []
        for _ in range(draws):
            world = World.draw("binary", most, 0.2, r)
            label = world.label(r)
            models = (task_of("binary").rows(label, world.predicted(world.score(), r)) for _ in range(2))
            a, b = ([metric.cached_value(model) or 0.0 for metric in metrics] for model in models)
            found.append((np.array(a) - b, a))
        differences = np.array([each for each, _ in found])
        covariance = differences.T @ differences / draws * most / rows
        values = np.array([each for _, each in found]).mean(0)
        constant = -(0.2 * np.log(0.2) + 0.8 * np.log(0.8))
        gains = np.array([values[0] - 0.5, constant - values[1]])
        values_, vectors = np.linalg.eigh(covariance / 2)
        root = vectors * np.sqrt(np.maximum(values_, 0.0)) @ vectors.T
        return cls(values, gains, root, np.sqrt(covariance.diagonal()))

    def compared(self, candidate: Floats, other: Floats, name: str) -> list[Check]:
        """A candidate beside another model, by their values on the same rows, as the gate judges them."""
        checks = []
        for i, metric in enumerate(METRICS):
            measured = Difference(
                metric=metric,
                value=float(candidate[i]),
                other=float(other[i]),
                difference=float(candidate[i] - other[i]),
                error=float(self.errors[i]),
            )
            share = parse_tolerance(task_of("binary").tolerances[metric])[0]
            margin = Margin(float(self.gains[i]) * share / 100)
            test = tolerance_check(task_of("binary").metric(metric), measured, margin, GateConfig().confidence)
            checks.append(test.model_copy(update={"name": name}))
        return checks


@dataclass(frozen=True)
class Chain:
    """The retrains of one pipeline, and how they ended."""

    by_champion: int
    by_anchor: int
    """So many candidates were rejected beside the champion, and beside the anchor alone."""
    lost: float
    """How much lower than the first the champion's true AUC was when the first candidate was rejected; inf: none was."""
    anchors: int


def chain(noise: Noise, scatter: float, step: float, seed: int) -> Chain:
    """Retrains on newer data, until one is stopped where each loses."""
    r = np.random.default_rng(seed)
    up = np.array([1.0, -1.0])

    def recipe(place: int) -> Floats:
        """The true values of the candidate of a retrain; a loss falls as the square of the AUC's gain."""
        lost = place * step
        down = np.array([lost, 2 * lost / noise.gains[0] * noise.gains[1]])
        return noise.values - up * down + up * scatter * noise.gains * r.normal() * np.array([1.0, 2.5])

    champion = anchor = recipe(0)
    first, by_champion, by_anchor, anchors = champion, 0, 0, 1
    for place in range(1, RETRAINS + 1):
        models = (recipe(place), champion, anchor)
        ours, theirs, early = (each + noise.root @ r.normal(size=2) for each in models)
        beside = noise.compared(ours, theirs, "champion")
        within = anchor is champion or all(check.passed for check in noise.compared(ours, early, "anchor"))
        better = is_better(beside, "auc")
        blocked = not all(check.passed for check in beside)
        if blocked or (not within and not better):
            by_champion, by_anchor = by_champion + blocked, by_anchor + (not blocked)
            if step:
                return Chain(by_champion, by_anchor, float(first[0] - champion[0]), anchors)
            continue
        champion = models[0]
        if better and within:
            anchor, anchors = champion, anchors + 1
    return Chain(by_champion, by_anchor, np.inf, anchors)


def print_chains(sizes: Sequence[int]) -> None:
    print(
        "| recipe | eval rows | chains with a rejection by the anchor | rejected of 100 retrains by champion, by anchor |"
    )
    print("| --- | --- | --- | --- |")
    for rows in sizes:
        noise = Noise.of(rows)
        for name, scatter in SCATTERS.items():
            found = [chain(noise, scatter, 0.0, seed) for seed in range(CHAINS)]
            times = (np.mean([each.by_champion for each in found]), np.mean([each.by_anchor for each in found]))
            share = np.mean([each.by_anchor > 0 for each in found])
            print(f"| {name} | {rows:,} | {share:.1%} | {times[0]:.2f}, {times[1]:.2f} |", flush=True)
    print(
        "\n| recipe that loses 0.001 AUC each | eval rows | stopped before 0.02 is lost | lost, median | by the anchor |"
    )
    print("| --- | --- | --- | --- | --- |")
    for rows in sizes:
        noise = Noise.of(rows)
        for name, scatter in list(SCATTERS.items())[:2]:
            found = [chain(noise, scatter, STEP, seed) for seed in range(CHAINS)]
            lost = np.array([each.lost for each in found])
            shown = (
                f"{np.mean(lost < MOST_LOST):.1%} | {np.median(lost):.4f} | {np.mean([e.by_anchor for e in found]):.0%}"
            )
            print(
                f"| {'no scatter' if not scatter else name.removeprefix('equal, ')} | {rows:,} | {shown} |", flush=True
            )


def main() -> None:
    from common import header

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=("binary", "regression", "quantiles"), default="binary")
    parser.add_argument("--rate", type=float, choices=tuple(INTERCEPTS), default=0.2, help="share of positives")
    parser.add_argument("--rows", type=int, nargs="+", default=[4000, 16_000])
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--drawn", action="store_true")
    parser.add_argument("--chains", action="store_true")
    options = parser.parse_args()
    header("gate")
    if options.chains:
        print_chains(options.rows if len(options.rows) > 2 else (2000, 100_000))
        return
    if options.drawn:
        print_drawn(options.rows[0], options.repetitions)
        return
    task = QUANTILES if options.task == "quantiles" else options.task
    cells = study(task, options.rate, tuple(options.rows), options.repetitions)
    print("\n".join(table(cells)))
    equal, stated = verdicts(cells)
    print(
        f"\nequally good models blocked: {equal:.1%} (at most 5%); predicted defects blocked: {stated:.1%} (at least 95%)"
    )


if __name__ == "__main__":
    main()
