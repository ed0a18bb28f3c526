"""How often the gate is wrong: simulated models with known regressions, judged by the gate's own functions.

    nice python bench/gate.py                     # about two minutes
    nice python bench/gate.py --task regression       # or quantiles
    nice python bench/gate.py --seeds             # how far apart trainings are that differ by their seed alone
    nice python bench/gate.py --drawn             # rows of keys, of groups, of many slices, with weights
    nice python bench/gate.py --sequences         # a hundred retrains, one after the other

A champion and a candidate know the truth but for noise of their own (what a seed does). The candidate has one thing wrong. Each
cell draws rows anew, compares the two by the task's default tolerances overall and on slices, and counts how often something
blocks. Beforehand is computed what the gate can see: the regression's true size, on many rows, is held against the loss that a
comparison of this spread blocks in 95% of all cases (`Difference.detectable`, on slices with Holm's worst case).

With --drawn the two models' errors are alike within a key's or a group's rows. Beside equal models there is one whose true loss
is what the gate says it detects at this size: the noise of its score is raised until the two agree.

Required: equal models blocked in at most 5%; of the regressions that the gate says it can see at a size, 95% blocked; of losses
as large as it says it detects, at least 75%.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.evaluation.bootstrap import Difference
from headway.evaluation.checks.small_steps import Levels, Measured, differences, of_champion
from headway.evaluation.comparison import Compared, Comparison, compare
from headway.evaluation.gate_config import GateConfig
from headway.evaluation.margins import allowed
from headway.evaluation.metrics import UNIT, measure
from headway.evaluation.verdict import CHAMPION, EARLY_CHAMPION, Check, Model, Verdict
from headway.monitor import Monitor
from headway.registry.pointers import Event
from headway.registry.standing import reference_of, standing_of
from headway.tasks.base import LabelFacts
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


def judged(task: str, name: str, rows: int, rate: float, seed: int, *, samples: int = 60) -> Comparison:
    """One candidate against one champion."""
    r = np.random.default_rng(seed)
    world = World.draw(task, rows, rate, r)
    label = world.label(r)
    worse = REGRESSIONS["equal" if name in NARROW else name](world, r)
    models = [world.predicted(worse, r, NARROW.get(name, 1.0)), world.predicted(world.score(), r)]
    columns = {"label": label, "kind": world.kind, "x0": world.x[:, 0]}
    positive = int(label.sum()) if task == "binary" else 0
    return compare(
        task_of(task),
        *(pa.table(columns | {"prediction": _cells(model)}) for model in models),
        config=GateConfig(bootstrap=samples),
        metrics={metric.name: metric for metric in task_of(task).metrics},
        tolerances=task_of(task).tolerances,
        label=LabelFacts(
            counts=(rows - positive, positive),
            mean=float(label.mean()),
            median=float(np.median(label)),
            quantiles=tuple(np.quantile(label, LEVELS)),
        ),
        slices=SLICES,
        seed=seed,
        monitor=Monitor(),
    )


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
        truth = _losses(judged(task, name, TRUTH_ROWS, rate, seed=10_000, samples=50))
        for rows in sizes:
            found = [judged(task, name, rows, rate, seed) for seed in range(repetitions)]
            blocked = float(np.mean([any(test.failed for test in _tests(one)) for one in found]))
            by = _counted(found)
            stated = [] if name == "equal" else _visible(found, truth)
            cells.append(Cell(name, rows, blocked, ", ".join(by[:2]), ", ".join(stated[:2])))
    return cells


def _tests(found: Comparison) -> tuple[Compared, ...]:
    return (*found.overall, *found.slices)


def _name(test: Compared) -> str:
    where = f"{test.column}={test.value} " if test.column == "kind" else f"{test.value} " if test.column else ""
    return where + test.metric.name


def _losses(found: Comparison) -> dict[str, float]:
    """By how much each metric is worse."""
    losses = {}
    for test in _tests(found):
        if test.measured.difference is not None:
            losses[_name(test)] = test.measured.difference * (-1 if test.metric.higher_is_better else 1)
    return losses


def _visible(found: Sequence[Comparison], truth: dict[str, float]) -> list[str]:
    """The tests whose true loss is one that the gate says it blocks in 95% of all cases."""
    seen: dict[str, list[float]] = {}
    for one in found:
        for tests in (one.overall, one.slices):
            # Holm's first step, the worst case: as many tests as there are
            confidence = 1 - (1 - one.confidence) / (len(tests) if tests is one.slices else 1)
            for test in tests:
                detectable = test.measured.detectable(confidence, test.margin.value, POWER)
                seen.setdefault(_name(test), []).append(np.inf if detectable is None else detectable)
    # what it says depends on the draw, most of all of a bias, whose sign is not known: at least this in nine of ten cases
    margins = {name: truth[name] - float(np.quantile(values, 0.9)) for name, values in seen.items() if name in truth}
    visible = {name: margin for name, margin in margins.items() if margin >= 0 and len(seen[name]) == len(found)}
    return sorted(visible, key=lambda name: (" " in name, -visible[name]))


def _counted(found: list[Comparison]) -> list[str]:
    counts: dict[str, int] = {}
    for one in found:
        for test in _tests(one):
            if test.failed:
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
    """What rows have in common, and how they are judged."""

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


def drawn(how: Draws, rows: int, noise: float, seed: int, *, samples: int = 60) -> Comparison:
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
    task = task_of("binary")
    return compare(
        task,
        *(pa.table(columns | {"prediction": _cells(model)}) for model in models),
        config=GateConfig(bootstrap=samples),
        metrics={metric.name: metric for metric in task.metrics},
        tolerances=task.tolerances,
        label=LabelFacts(counts=(rows - positive, positive)),
        slices=how.slices,
        group=how.by if how.by != UNIT else None,
        seed=seed,
        monitor=Monitor(),
    )


def as_drawn(rows: int, repetitions: int, names: Sequence[str] = ()) -> list[tuple[str, float, float, float]]:
    """(what rows have in common, the share of equal models that were blocked, the loss that the gate says it detects, the share
    of models with this loss that were blocked by it)"""
    found = []
    for name in names or DRAWN:
        how = DRAWN[name]
        equal = [drawn(how, rows, 0.0, seed) for seed in range(repetitions)]
        blocked = float(np.mean([any(test.failed for test in _tests(one)) for one in equal]))
        alone = replace(how, slices=())
        low, high = 0.0, 4.0
        for _ in range(7):
            noise = (low + high) / 2
            truth = _losses(drawn(replace(alone, units=None, by=None), TRUTH_ROWS, noise, 10_000, samples=50))["loss"]
            stated = _detected([drawn(alone, rows, noise, 20_000 + seed) for seed in range(60)])
            low, high = (noise, high) if truth < stated else (low, noise)
        worse = [drawn(alone, rows, high, 20_000 + seed) for seed in range(repetitions)]
        caught = float(np.mean([one.of("loss").failed for one in worse]))
        found.append((name, blocked, _detected(worse), caught))
    return found


def _detected(found: Sequence[Comparison]) -> float:
    return float(np.median([one.of("loss").detectable or np.inf for one in found]))


def print_drawn(rows: int, repetitions: int) -> None:
    print(f"| {rows:,} rows | equal models blocked | loss that it says it detects | models with this loss blocked |")
    print("| --- | --- | --- | --- |")
    for name, blocked, stated, caught in as_drawn(rows, repetitions):
        print(f"| {name} | {blocked:.1%} | {stated:.4f} | {caught:.0%} |", flush=True)


@dataclass(frozen=True)
class Chains:
    """Many sequences of retrains, each judged against the champion of its time and the reference."""

    rejected: float
    """The share of candidates."""
    stopped: float
    """The share of chains with a fall that is told to add up."""
    lost: Floats
    """What the recipe had lost at the last promotion before a fall was told, or of all promotions, by chain."""


SEED, ERROR_2000 = 0.004, 0.004
"""Of the AUC of nets where columns interact (--seeds): the standard deviation between seeds, and the standard error of the
difference of two of them on 2,000 rows."""


def sequences(rows: int, loss: float, *, chains: int = 200, retrains: int = 100) -> Chains:
    """Retrains with newer data and eval rows of their own, whose recipe loses so much AUC at each."""
    found = [_sequence(rows, loss, retrains, np.random.default_rng(seed)) for seed in range(chains)]
    return Chains(
        rejected=sum(rejected for rejected, _, _ in found) / (chains * retrains),
        stopped=float(np.mean([told for _, told, _ in found])),
        lost=np.array([loss * at for _, _, at in found]),
    )


def _sequence(rows: int, loss: float, retrains: int, r: Random) -> tuple[int, bool, int]:
    """(candidates that were rejected, whether a fall was told, the last retrain that was promoted before that)"""
    auc, error, config = task_of("binary").metric("auc"), ERROR_2000 * np.sqrt(2000 / rows), GateConfig()
    quality = {1: 0.8 + SEED * r.normal()}
    history, facts = [_promoted(1)], {1: {}}
    rejected, told, unseen = 0, False, 0
    for retrain in range(1, retrains + 1):
        champion, number = history[-1].version, retrain + 1
        quality[number] = 0.8 - loss * retrain + SEED * r.normal()
        early = reference_of(history, facts, most=config.reference_champions)
        on_rows = {
            n: quality[n] + error / np.sqrt(2) * r.normal()
            for n in {number, champion, early and early.version} - {None}
        }

        def compared(other: int, on_rows=on_rows, number=number) -> Difference:
            sides = on_rows[number], on_rows[other]
            return Difference(
                metric="auc",
                candidate=sides[0],
                champion=sides[1],
                difference=sides[0] - sides[1],
                standard_error=error,
            )

        pairs, bad = {"overall": compared(champion)}, False
        lucky = {champion: 0.0}
        if early is not None:
            pairs["reference"] = compared(early.version)
            entries = {role: _entry(_CHECKS[role], pair) for role, pair in pairs.items()}
            here = ((f"{retrain}", "eval"),)
            models = [Measured.model_validate(each) for each in early.measured]
            models.append(Measured(place=early.place + 1, eval=here, differences=differences([entries["reference"]])))
            models.append(
                Measured(
                    place=early.place, eval=here, differences=of_champion([entries["overall"]], [entries["reference"]])
                )
            )
            levels = Levels.of(models, auc)
            lucky = {champion: levels.luck(early.place), early.version: levels.luck(0)}
            if levels.decline(margin(on_rows[early.version]), 1.0):
                bad = told = True
        for pair, other in zip(pairs.values(), lucky, strict=True):
            bad |= pair.probability_below(-margin(on_rows[other]) - lucky[other]) < (1 - config.confidence) / 2
        rejected += bad
        if not bad:
            unseen = unseen if told else retrain
            verdict = Verdict(
                verdict="promote",
                promote=True,
                primary="auc",
                better="higher",
                champion=Model(version=champion),
                reference=Model(version=early.version) if early else None,
                checks=tuple(_entry(_CHECKS[role], pair) for role, pair in pairs.items()),
            )
            facts[number] = {"standing": standing_of(verdict), "eval_parts": [(f"{retrain}", "eval")]}
            history.append(_promoted(number))
    return rejected, told, unseen


def margin(auc: float) -> float:
    """The default tolerance of an AUC."""
    return allowed(task_of("binary").tolerances["auc"], auc, auc - 0.5)


_CHECKS = {"overall": CHAMPION, "reference": EARLY_CHAMPION}


def _entry(name: str, pair: Difference) -> Check:
    """As a verdict has it."""
    return Check(
        name=name,
        metric=pair.metric,
        value=pair.candidate,
        before=pair.champion,
        change=pair.difference,
        interval=pair.interval(0.95),
        error=pair.standard_error,
        outcome="",
    )


def _promoted(version: int) -> Event:
    verdict = "promote" if version > 1 else "first model"
    return Event(time="", kind="promote", version=version, previous=None, serving=version, reason="", verdict=verdict)


def optimism(seeds: int, deviation: float, rows: int = 2000, repetitions: int = 2000) -> float:
    """By how much the AUC of the best of so many seeds, chosen on the same eval rows, is above what it has on others."""
    r = np.random.default_rng(0)
    quality = deviation * r.normal(size=(repetitions, seeds))
    measured = quality + ERROR_2000 * np.sqrt(2000 / rows / 2) * r.normal(size=quality.shape)
    best = measured.argmax(1)[:, None]
    return float((np.take_along_axis(measured, best, 1) - np.take_along_axis(quality, best, 1)).mean())


def long_run() -> None:
    print(
        "| recipe | eval rows | candidates rejected | chains with a fall | lost before: median, 95% | at most 0.02 lost |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for rows, loss in ((2000, 0.0), (100_000, 0.0), (2000, 0.001), (100_000, 0.001)):
        found = sequences(rows, loss)
        name, lost = "equal | {:,} | {:.1%} | {:.1%} |  |  |", ()
        if loss:
            name = f"loses {loss} each" + " | {:,} | {:.1%} | {:.1%} | {:.4f}, {:.4f} | {:.1%} |"
            lost = (np.median(found.lost), np.quantile(found.lost, 0.95), (found.lost <= 0.02).mean())
        print("| " + name.format(rows, found.rejected, found.stopped, *lost), flush=True)
    print(
        "\n| seeds | deviation between them | AUC of the best on the same 2,000 eval rows, above what it has on others |"
    )
    print("| --- | --- | --- |")
    for count, deviation in ((20, SEED), (20, 0.0), (100, SEED), (100, 0.0)):
        print(f"| {count} | {deviation} | {optimism(count, deviation):.4f} |")


def seeds() -> None:
    """How far apart plain nets are that differ by their seed alone, in shares of what they gain over the constant."""
    print("| standard deviation of the difference of two seeds | loss, of its gain | AUC, of its gain | bias |")
    print("| --- | --- | --- | --- |")
    for name, drawn in (("columns add up", _additive), ("columns interact", _interacting)):
        apart = _seeds_apart(drawn)
        print(f"| 20,000 rows, 20% positives, {name} | {apart[0]:.1%} | {apart[1]:.1%} | {apart[2]:.3f} |")
    print("\n| the same of quantiles | loss, of its gain | miscoverage |\n| --- | --- | --- |")
    for interact, name in ((False, "columns add up"), (True, "columns interact")):
        for rows in (2000, 20_000):
            loss, miscoverage = _quantile_seeds_apart(rows, interact)
            levels = ", ".join(map(str, LEVELS))
            print(f"| {rows:,} rows, levels {levels}, {name} | {loss:.1%} | {miscoverage:.4f} |")


def _additive(rows: int, r: Random) -> tuple[Floats, Floats]:
    world = World.draw("binary", rows, 0.2, r)
    return np.column_stack([world.x, np.eye(len(KINDS))[world.kind]]), world.label(r)


def _interacting(rows: int, r: Random) -> tuple[Floats, Floats]:
    x = r.normal(size=(rows, 10))
    score = 0.9 * x[:, 0] + 0.6 * x[:, 1] + 0.3 * x[:, 1] * x[:, 2] + 0.5 * np.sin(2 * x[:, 3]) + 0.4 * x[:, 4]
    return x, (r.random(rows) < probability(score - 1.75)).astype(float)


def _seeds_apart(drawn: Callable[[int, Random], tuple[Floats, Floats]]) -> Floats:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import log_loss, roc_auc_score
    from sklearn.neural_network import MLPClassifier

    warnings.simplefilter("ignore", ConvergenceWarning)  # eight epochs are enough
    r = np.random.default_rng(0)
    (x, label), (inputs, truth) = drawn(20_000, r), drawn(TRUTH_ROWS, r)
    figures = []
    for seed in range(8):
        net = MLPClassifier((32,), random_state=seed, max_iter=8, alpha=1e-2, batch_size=256).fit(x, label)
        p = net.predict_proba(inputs)[:, 1]
        figures.append((log_loss(truth, p), roc_auc_score(truth, p), np.log(p.mean() / truth.mean())))
    loss, auc, bias = np.array(figures).T
    gain = log_loss(truth, np.full(len(truth), truth.mean())) - loss.mean()
    return np.sqrt(2) * np.array([loss.std(ddof=1) / gain, auc.std(ddof=1) / (auc.mean() - 0.5), bias.std(ddof=1)])


def _quantile_seeds_apart(rows: int, interact: bool, seeds: int = 8) -> tuple[float, float]:
    """The standard deviation of the difference of two seeds: of the loss, in shares of its gain, and of the miscoverage."""
    r = np.random.default_rng(0)
    drawn = [_number(each, interact, r) for each in (rows, TRUTH_ROWS)]
    inputs, labels = zip(*drawn, strict=True)
    constant = np.broadcast_to(np.quantile(labels[0], LEVELS), (TRUTH_ROWS, len(LEVELS)))
    predictions = [constant] + [_quantile_net(inputs[0], labels[0], inputs[1], seed) for seed in range(seeds)]
    figures = [measure(QUANTILES, labels[1], prediction) for prediction in predictions]
    loss, miscoverage = (np.array([each[name] for each in figures[1:]]) for name in ("loss", "miscoverage"))
    gain = figures[0]["loss"] - loss.mean()
    return float(np.sqrt(2) * loss.std(ddof=1) / gain), float(np.sqrt(2) * miscoverage.std(ddof=1))


def _number(rows: int, interact: bool, r: Random) -> tuple[Floats, Floats]:
    """Inputs, and labels that spread more where a column is large."""
    x = r.normal(size=(rows, 10))
    score = x[:, :4] @ SLOPES + (x[:, 1] * x[:, 2] + np.sin(2 * x[:, 3]) if interact else 0)
    return x, score + SPREAD * np.exp(0.3 * x[:, 4]) * r.normal(size=rows)


def _quantile_net(x: Floats, label: Floats, asked: Floats, seed: int, *, hidden: int = 32, epochs: int = 8) -> Floats:
    """The quantiles that a plain net learns: one layer of ReLU, the quantile loss, Adam, batches of 256. [rows, levels]"""
    r = np.random.default_rng(seed)
    sizes = ((x.shape[1], hidden), (hidden, len(LEVELS)))
    weights = [part for size in sizes for part in (r.normal(size=size) * np.sqrt(2 / size[0]), np.zeros(size[1]))]
    moments = [[np.zeros_like(weight), np.zeros_like(weight)] for weight in weights]
    levels = np.asarray(LEVELS)
    steps = [
        at
        for _ in range(epochs * max(1, 20_000 // len(x)))
        for at in np.array_split(r.permutation(len(x)), -(-len(x) // 256))
    ]
    for step, at in enumerate(steps, 1):
        layer = np.maximum(x[at] @ weights[0] + weights[1], 0)
        output = layer @ weights[2] + weights[3]
        slope = ((label[at][:, None] < output) - levels) / len(at)  # of the quantile loss
        back = (slope @ weights[2].T) * (layer > 0)
        gradients = (x[at].T @ back, back.sum(0), layer.T @ slope, slope.sum(0))
        rate = 0.01 * np.cos(np.pi / 2 * (step - 1) / len(steps))
        for weight, gradient, (first, second) in zip(weights, gradients, moments, strict=True):
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            weight -= rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return np.sort(np.maximum(asked @ weights[0] + weights[1], 0) @ weights[2] + weights[3], axis=1)


def main() -> None:
    from common import header

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=("binary", "regression", "quantiles"), default="binary")
    parser.add_argument("--rate", type=float, choices=tuple(INTERCEPTS), default=0.2, help="share of positives")
    parser.add_argument("--rows", type=int, nargs="+", default=[4000, 16_000])
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--seeds", action="store_true")
    parser.add_argument("--drawn", action="store_true")
    parser.add_argument("--sequences", action="store_true")
    options = parser.parse_args()
    header("gate")
    if options.drawn:
        print_drawn(options.rows[0], options.repetitions)
        return
    if options.sequences:
        long_run()
        return
    if options.seeds:
        seeds()
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
