"""The linear baseline: a linear model of the transformed rows, to compare a candidate model with; NumPy only.

    model = LinearModel.fit(rows, sizes=(4, 17), lists=((5000, 64),), task="binary")
    model.predict(rows)      # probabilities [rows] or [rows, classes], or numbers [rows]; float64
    model.save(folder / FILE); LinearModel.load(folder / FILE)

Ridge regression with alpha=1, logistic or multinomial regression with C=1, on standardized numbers and a 0/1 column for each
category and each id of a list, such as a word. The loss is minimized by accelerated gradient steps, preconditioned by the
inverse of a bound on the Hessian (Boehning, "Multinomial logistic regression algorithm", 1992; restarts: O'Donoghue and
Candes, 2015).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.tasks.builtin import sigmoid, softmax
from headway.tasks.table import task_of

FILE = "linear.npz"
NAME = "linear"
INPUTS = ("numeric", "categorical", "lists")
MOST_ROWS, MOST_COLUMNS, MOST_WORK, MOST_IDS = 100_000, 1_000, 2_000_000_000, 5_000_000
"""The rows, the dense columns, the rows * columns^2 and the ids in lists * outputs beyond which none is fitted."""
PENALTY = 1.0
_STEPS, _CLOSE = 1_000, 1e-7
Floats = NDArray[np.float64]
Rows = Mapping[str, NDArray[Any]]
"""`numeric` and `categorical` [rows, columns], `lists` [rows, slots] with -1 in empty slots if there are lists, and for a
fit `label` [rows], the number to predict or the index of the class, and `weight` [rows]."""


def cheap(rows: int, columns: int, slots: int) -> bool:
    """Returns whether a linear baseline is cheap enough to fit. `columns` is the number of numeric inputs plus the
    number of all categories, `slots` that of all lists' slots times the outputs."""
    few = 0 < rows <= MOST_ROWS and columns + slots > 0 and columns <= MOST_COLUMNS
    return few and rows * columns**2 <= MOST_WORK and rows * slots <= MOST_IDS


@dataclass(frozen=True)
class LinearModel:
    """A fitted linear baseline. `weights` is [1 + columns, outputs], the first those of a constant 1; `sizes` is the number
    of ids of each categorical column, `lists` [lists, 2] the numbers of ids and of slots of each list."""

    task: str
    sizes: NDArray[np.int64]
    lists: NDArray[np.int64]
    centre: Floats
    scale: Floats
    weights: Floats

    @staticmethod
    def fit(
        rows: Rows, *, sizes: Sequence[int], lists: Sequence[tuple[int, int]] = (), task: str, classes: int = 1
    ) -> LinearModel:
        """Returns a model that is fitted to the rows, whose weights are divided by their mean.

        Args:
            sizes, lists: as in `LinearModel`.
            classes: the number of classes of a multiclass label.
        """
        weight = np.asarray(rows["weight"], np.float64)
        if not weight.sum() > 0:
            weight = np.ones(len(weight))
        weight = weight / weight.mean()
        numbers = np.asarray(rows["numeric"], np.float64)
        centre = np.average(numbers, axis=0, weights=weight)
        scale = np.sqrt(np.average((numbers - centre) ** 2, axis=0, weights=weight))
        scale = np.where(scale > 1e-12 * np.maximum(1.0, np.abs(centre)), scale, np.inf)  # a constant says nothing
        ids = np.array(sizes, np.int64), np.array(lists, np.int64).reshape(-1, 2)
        model = LinearModel(task, *ids, centre, scale, weights=np.zeros((0, 0)))
        kind = task_of(task)
        outputs = classes if kind.per_class else 1
        return replace(model, weights=_minimum(model._columns(rows), rows["label"], weight, kind.linear, outputs))

    def predict(self, rows: Rows) -> Floats:
        """Returns by task the probability of class 1 [rows], probabilities [rows, classes], or numbers [rows]; float64."""
        return task_of(self.task).from_output(self._columns(rows).times(self.weights))

    def save(self, path: Path) -> None:
        np.savez(path, **{name: np.asarray(value) for name, value in vars(self).items()})  # type: ignore[arg-type]

    @staticmethod
    def load(path: Path) -> LinearModel:
        with np.load(path, allow_pickle=False) as stored:
            return LinearModel(**{name: stored[name] for name in stored} | {"task": str(stored["task"])})

    def _columns(self, rows: Rows) -> _Columns:
        numeric, categorical = rows["numeric"], rows["categorical"]
        count, width = numeric.shape
        dense = np.zeros((count, 1 + width + sum(self.sizes)))
        dense[:, 0] = 1.0
        dense[:, 1 : 1 + width] = (np.asarray(numeric, np.float64) - self.centre) / self.scale
        for column, start in enumerate(1 + width + np.cumsum(self.sizes) - self.sizes):
            dense[np.arange(count), start + categorical[:, column]] = 1.0
        slots = rows["lists"] if len(self.lists) else np.zeros((count, 0), np.int32)
        sizes, widths = self.lists.T
        ids = np.where(slots >= 0, slots + np.repeat(np.cumsum(sizes) - sizes, widths), -1)
        ids.sort(axis=1)
        row, slot = np.nonzero((ids >= 0) & (np.diff(ids, axis=1, prepend=-1) > 0))  # each id of a row once
        return _Columns(dense, row, ids[row, slot], int(sizes.sum()))


@dataclass(frozen=True)
class _Columns:
    """A model's columns [rows, columns]: `dense` ones, of which the first is 1 for the bias and the next are the
    numbers and the categories; then `size` sparse ones, which are 1 at the lists' ids: in each `row` at its `id`s."""

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
    dense, logistic = columns.dense, kind == "logistic"
    # p (1 - p) is at most 1/4, and the Hessian of several classes at most half of the one of each
    most = (0.25 if outputs == 1 else 0.5) if logistic else 1.0
    most *= 2.0 if len(columns.id) else 1.0  # a Hessian of two blocks is at most twice the blocks alone
    penalty = np.full((dense.shape[1] + columns.size, 1), PENALTY)
    penalty[0] = 1e-9
    inverse = np.linalg.inv(most * (dense * weight[:, None]).T @ dense + np.diag(penalty[: dense.shape[1], 0]))
    # the block of the lists is at most the diagonal matrix of its rows' sums
    lengths = np.bincount(columns.row, minlength=len(label)) * weight
    diagonal = most * _sums(columns.id, lengths[:, None], columns.row, columns.size) + PENALTY
    targets = np.eye(outputs)[np.asarray(label, np.int64)] if outputs > 1 else np.asarray(label, np.float64)[:, None]

    def gradient(at: Floats) -> Floats:
        output = columns.times(at)
        if logistic:
            output = sigmoid(output) if outputs == 1 else softmax(output)
        return columns.transposed_times(weight[:, None] * (output - targets)) + penalty * at

    now = ahead = np.zeros((len(penalty), outputs))
    momentum = 1.0
    for _ in range(_STEPS):
        slope = gradient(ahead)
        step = np.concatenate([inverse @ slope[: dense.shape[1]], slope[dense.shape[1] :] / diagonal])
        new = ahead - step
        if np.sum(slope * (new - now)) > 0:
            momentum, ahead, now = 1.0, new, new
        else:
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead, now, momentum = new + (momentum - 1) / following * (new - now), new, following
        if np.abs(step).max() < _CLOSE * max(1.0, np.abs(new).max()):
            break
    return now


def _sums(to: NDArray[np.int64], values: Floats, of: NDArray[np.int64], size: int) -> Floats:
    """Returns sums [size, outputs]: `values[of]` added up at the indices `to`."""
    return np.stack([np.bincount(to, column[of], size) for column in values.T], axis=1)
