"""The linear baseline: a linear model of the transformed rows, to compare a candidate model with; NumPy only.

    model = LinearModel.fit(rows, slots=((4, 1), (17, 1), (5000, 64)), task="binary")
    model.predict(rows)      # probabilities [rows] or [rows, classes], or numbers [rows]; float64
    model.save(folder / FILE); LinearModel.load(folder / FILE)

Ridge regression with alpha=1, logistic or multinomial regression with C=1, on standardized numbers and a 0/1 column for each
category and each id of a list, such as a word. The loss is minimized by Newton steps, each solved by conjugate gradients
(Nocedal and Wright, "Numerical Optimization", 2006, chapter 7), preconditioned by a bound on the Hessian (Boehning,
"Multinomial logistic regression algorithm", 1992) without what ids have in common with each other and other columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.tasks.builtin import sigmoid, softmax
from headway.tasks.table import task_of

NAME, FILE = "linear", "linear.npz"
INPUTS = ("numeric", "categorical", "lists")
MOST_ROWS, MOST_NUMBERS, MOST_WORK, MOST_IDS = 100_000, 1_000, 2_000_000_000, 2_000_000
"""The rows, the numbers, rows * numbers^2, and the `ids` of `cheap` beyond which no linear baseline is fitted."""
PENALTY = 1.0
_STEPS, _CLOSE = 1_000, 1e-9
"""The most steps of each kind; the least gain of the mean loss in a Newton step after which another is made."""
Floats = NDArray[np.float64]
Map = Callable[[Floats], Floats]
Rows = Mapping[str, NDArray[Any]]
"""`numeric` and `categorical` [rows, columns], `lists` [rows, slots] with -1 in empty slots if there are lists, and for a
fit `label` [rows], the number to predict or the index of the class, and `weight` [rows]."""


def cheap(rows: int, numbers: int, ids: int) -> bool:
    """Returns whether a linear baseline is cheap enough to fit: in a minute at most. `numbers` is that of the numeric inputs;
    `ids` is the outputs, times the slots of categories and lists and a 1 in all rows, plus the ids that there are."""
    few = 0 < rows <= MOST_ROWS and numbers + ids > 0 and numbers <= MOST_NUMBERS
    return few and rows * numbers**2 <= MOST_WORK and ids <= MOST_IDS


@dataclass(frozen=True)
class LinearModel:
    """A fitted linear baseline. `weights` is [1 + columns, outputs], the first those of a constant 1. `slots` [inputs, 2] has
    the numbers of ids and of slots of each category (one slot) and then of each list."""

    task: str
    slots: NDArray[np.int64]
    centre: Floats
    scale: Floats
    weights: Floats

    @staticmethod
    def fit(rows: Rows, *, slots: Sequence[tuple[int, int]], task: str, classes: int = 1) -> LinearModel:
        """Returns a model that is fitted to the rows, whose weights are divided by their mean. `slots` is as in
        `LinearModel`, `classes` the number of classes of a multiclass label."""
        weight = np.asarray(rows["weight"], np.float64)
        weight = weight / weight.mean() if weight.sum() > 0 else np.ones(len(weight))
        numbers = np.asarray(rows["numeric"], np.float64)
        centre = np.average(numbers, axis=0, weights=weight)
        scale = np.sqrt(np.average((numbers - centre) ** 2, axis=0, weights=weight))
        scale = np.where(scale > 1e-12 * np.maximum(1.0, np.abs(centre)), scale, np.inf)  # a constant says nothing
        model = LinearModel(task, np.array(slots, np.int64).reshape(-1, 2), centre, scale, weights=np.zeros((0, 0)))
        kind, label, middle, spread = task_of(task), rows["label"], 0.0, 1.0
        if kind.linear != "logistic":  # so that labels of any size and distance from 0 are fitted alike
            middle = np.average(label, weights=weight)
            spread = float(np.sqrt(np.average((label - middle) ** 2, weights=weight))) or 1.0
        outputs = classes if kind.per_class else 1
        weights = _minimum(model._columns(rows), (label - middle) / spread, weight, kind.linear, outputs) * spread
        weights[0] += middle
        return replace(model, weights=weights)

    def predict(self, rows: Rows) -> Floats:
        """Returns by task the probability of class 1 [rows], probabilities [rows, classes], or numbers [rows]; float64."""
        return task_of(self.task).from_output(self._columns(rows).times(self.weights))

    def save(self, path: Path) -> None:
        arrays: dict[str, Any] = {name: np.asarray(value) for name, value in vars(self).items()}
        np.savez(path, **arrays)

    @staticmethod
    def load(path: Path) -> LinearModel:
        with np.load(path, allow_pickle=False) as stored:
            return LinearModel(**{name: stored[name] for name in stored} | {"task": str(stored["task"])})

    def _columns(self, rows: Rows) -> _Columns:
        numbers = (np.asarray(rows["numeric"], np.float64) - self.centre) / self.scale
        sizes, slots = self.slots.T
        ids = np.concatenate([rows[name] for name in INPUTS[1:] if name in rows], axis=1)
        ids = np.where(ids >= 0, ids + np.repeat(np.cumsum(sizes) - sizes, slots), -1)
        ids.sort(axis=1)
        row, slot = np.nonzero((ids >= 0) & (np.diff(ids, axis=1, prepend=-1) > 0))  # each id of a row once
        dense = np.concatenate([np.ones((len(numbers), 1)), numbers], axis=1)
        return _Columns(dense, row, ids[row, slot], int(sizes.sum()))


@dataclass(frozen=True)
class _Columns:
    """The matrix of a model's columns [rows, columns]: the `dense` ones are 1 and the numbers; then come `size` sparse ones,
    one for each id: row `row[i]` has a 1 in column `id[i]`, and else 0."""

    dense: Floats
    row: NDArray[np.int64]
    id: NDArray[np.int64]
    size: int

    def times(self, weights: Floats) -> Floats:
        """Returns the product with weights [columns, outputs]: [rows, outputs]."""
        count, width = self.dense.shape
        return self.dense @ weights[:width] + _sums(self.row, weights[width:], self.id, count)

    def transposed_times(self, values: Floats) -> Floats:
        """Returns the product of the transposed columns with values [rows, outputs]: [columns, outputs]."""
        return np.concatenate([self.dense.T @ values, _sums(self.id, values, self.row, self.size)])


def _minimum(columns: _Columns, label: NDArray[Any], weight: Floats, kind: str | None, outputs: int) -> Floats:
    """Returns the weights [columns, outputs] of the least penalized loss of a regression that is "ridge" or "logistic"."""
    width, weight = columns.dense.shape[1], weight[:, None]
    targets = np.eye(outputs)[np.asarray(label, np.int64)] if outputs > 1 else np.asarray(label, np.float64)[:, None]
    penalty = np.full((width + columns.size, 1), PENALTY)
    penalty[0] = 1e-9
    # the largest second derivatives of the losses
    most = (0.25 if outputs == 1 else 0.5) if kind == "logistic" else 1.0
    inverse = np.linalg.inv(most * (columns.dense * weight).T @ columns.dense + np.diag(penalty[:width, 0]))
    diagonal = most * _sums(columns.id, weight, columns.row, columns.size) + PENALTY

    def precondition(slope: Floats) -> Floats:
        return np.concatenate([inverse @ slope[:width], slope[width:] / diagonal])

    def loss(at: Floats, output: Floats) -> float:
        losses = _curve(kind, output)[0] - np.sum(targets * output, axis=1, keepdims=True)
        return float(np.sum(weight * losses) + np.sum(penalty * at**2) / 2)

    now, output = np.zeros((len(penalty), outputs)), np.zeros((len(label), outputs))
    least = loss(now, output)
    for _ in range(_STEPS):
        _, mean, derivative = _curve(kind, output)

        def bent(by: Floats, derivative: Map = derivative) -> Floats:
            return columns.transposed_times(weight * derivative(columns.times(by))) + penalty * by

        slope = columns.transposed_times(weight * (mean - targets)) + penalty * now
        step = _solution(bent, slope, precondition, 1e-2 if kind == "logistic" else 1e-6)
        moved = columns.times(step)
        while (found := loss(now - step, output - moved)) > least and np.abs(step).max() > 1e-12:
            step, moved = step / 2, moved / 2
        now, output, least = now - step, output - moved, found
        if not np.sum(slope * step) >= _CLOSE * np.sum(weight):
            break
    return now


def _curve(kind: str | None, output: Floats) -> tuple[Floats, Floats, Map]:
    """Returns of outputs [rows, outputs] the convex function [rows, 1] whose gradient is the prediction, the prediction, and the
    function that multiplies by its derivative. A row's loss is the first, less the sum of outputs times targets."""
    if kind != "logistic":
        return output**2 / 2, output, lambda by: by
    if output.shape[1] == 1:
        mean = sigmoid(output)
        return np.logaddexp(0, output), mean, lambda by: mean * (1 - mean) * by
    mean, whole = softmax(output), np.logaddexp.reduce(output, axis=1, keepdims=True)
    return whole, mean, lambda by: mean * (by - np.sum(mean * by, axis=1, keepdims=True))


def _solution(multiply: Map, right: Floats, precondition: Map, close: float) -> Floats:
    """Returns x with multiply(x) = right, by preconditioned conjugate gradients. They end at the share `close` of the squared
    error that x = 0 has."""
    x, rest = np.zeros_like(right), right
    direction = ready = precondition(rest)
    size = first = np.sum(rest * ready)
    for _ in range(_STEPS):
        if not size > close * first:
            break
        bent = multiply(direction)
        along = size / np.sum(direction * bent)
        x, rest = x + along * direction, rest - along * bent
        ready = precondition(rest)
        size, before = np.sum(rest * ready), size
        direction = ready + size / before * direction
    return x


def _sums(to: NDArray[np.int64], values: Floats, of: NDArray[np.int64], size: int) -> Floats:
    """Returns sums [size, outputs]: `values[of]` added up at the indices `to`."""
    return np.stack([np.bincount(to, column[of], size) for column in values.T], axis=1)
