"""The linear baseline: a linear model of the transformed rows, to compare a candidate model with; NumPy only.

    model = LinearModel.fit(numeric, categorical, label, weight, sizes=(4, 17), task="binary")
    model.predict(numeric, categorical)      # probabilities [rows] or [rows, classes], or numbers [rows]; float64
    model.save(folder / FILE); LinearModel.load(folder / FILE)

Ridge regression with alpha=1, logistic or multinomial regression with C=1, on standardized numbers and one column per
category. The logistic losses are minimized by accelerated gradient steps, preconditioned by the inverse of a bound on the
Hessian (Boehning, "Multinomial logistic regression algorithm", 1992; restarts: O'Donoghue and Candes, 2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.tasks.builtin import sigmoid, softmax
from headway.tasks.table import task_of

FILE = "linear.npz"
NAME = "linear"
MOST_ROWS, MOST_COLUMNS, MOST_WORK = 100_000, 1_000, 2_000_000_000
"""The rows, the columns and the rows * columns^2 beyond which no linear baseline is fitted."""
PENALTY = 1.0
_STEPS, _CLOSE = 500, 1e-6
Floats = NDArray[np.float64]


def cheap(rows: int, columns: int) -> bool:
    """Returns whether a linear baseline is cheap enough to fit. `columns` is the number of numeric inputs plus the
    number of all categories."""
    return 0 < rows <= MOST_ROWS and 0 < columns <= MOST_COLUMNS and rows * columns**2 <= MOST_WORK


@dataclass(frozen=True)
class LinearModel:
    """A fitted linear baseline. `weights` is [columns, outputs], `sizes` the number of ids of each categorical column."""

    task: str
    sizes: tuple[int, ...]
    centre: Floats
    scale: Floats
    weights: Floats
    bias: Floats

    @staticmethod
    def fit(
        numeric: NDArray[Any],
        categorical: NDArray[Any],
        label: NDArray[Any],
        weight: NDArray[Any],
        *,
        sizes: Sequence[int],
        task: str,
        classes: int = 1,
    ) -> LinearModel:
        """Returns a model that is fitted to the rows.

        Args:
            label: the number to predict, or the index of the class.
            weight: the weight of each row; weights are divided by their mean.
            sizes: the number of ids of each categorical column.
            classes: the number of classes of a multiclass label.
        """
        weight = np.asarray(weight, np.float64)
        if not weight.sum() > 0:
            weight = np.ones(len(label))
        weight = weight / weight.mean()
        numbers = np.asarray(numeric, np.float64)
        centre = np.average(numbers, axis=0, weights=weight)
        scale = np.sqrt(np.average((numbers - centre) ** 2, axis=0, weights=weight))
        scale = np.where(scale > 1e-12 * np.maximum(1.0, np.abs(centre)), scale, np.inf)  # a constant says nothing
        columns = _columns(numeric, categorical, sizes, centre, scale)
        kind = task_of(task)
        solve = {"ridge": _ridge, "logistic": _logistic}[kind.linear or "ridge"]
        weights, bias = solve(columns, label, weight, classes if kind.per_class else 1)
        return LinearModel(task, tuple(sizes), centre, scale, weights, bias)

    def predict(self, numeric: NDArray[Any], categorical: NDArray[Any]) -> Floats:
        """Returns by task the probability of class 1 [rows], probabilities [rows, classes], or numbers [rows]; float64."""
        output = _columns(numeric, categorical, self.sizes, self.centre, self.scale) @ self.weights + self.bias
        return task_of(self.task).from_output(output)

    def save(self, path: Path) -> None:
        arrays = {name: getattr(self, name) for name in ("centre", "scale", "weights", "bias")}
        np.savez(path, task=np.array(self.task), sizes=np.array(self.sizes, np.int64), **arrays)

    @staticmethod
    def load(path: Path) -> LinearModel:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in ("centre", "scale", "weights", "bias")}
            task: Any = str(stored["task"])
            return LinearModel(task=task, sizes=tuple(stored["sizes"].tolist()), **arrays)


def _columns(
    numeric: NDArray[Any], categorical: NDArray[Any], sizes: Sequence[int], centre: Floats, scale: Floats
) -> Floats:
    """Returns the model's columns, float64 [rows, numbers + categories]: the standardized numbers, then a 0/1 column
    for each category."""
    rows, width = numeric.shape
    columns = np.zeros((rows, width + sum(sizes)))
    columns[:, :width] = (np.asarray(numeric, np.float64) - centre) / scale
    offsets = width + np.concatenate(([0], np.cumsum(sizes)))[:-1].astype(np.int64)
    for column, offset in enumerate(offsets):
        columns[np.arange(rows), offset + categorical[:, column]] = 1.0
    return columns


def _ridge(columns: Floats, label: NDArray[Any], weight: Floats, outputs: int) -> tuple[Floats, Floats]:
    label = np.asarray(label, np.float64)
    middle = np.average(columns, axis=0, weights=weight)
    mean = np.average(label, weights=weight)
    centred, rest = columns - middle, label - mean
    gram = (centred * weight[:, None]).T @ centred + PENALTY * np.eye(columns.shape[1])
    kernel = np.linalg.solve(gram, centred.T @ (weight * rest))[:, None]
    return kernel, np.asarray([mean - middle @ kernel[:, 0]])


def _logistic(columns: Floats, label: NDArray[Any], weight: Floats, outputs: int) -> tuple[Floats, Floats]:
    rows, width = columns.shape
    with_bias = np.concatenate([columns, np.ones((rows, 1))], axis=1)
    penalty = np.append(np.full(width, PENALTY), 1e-6)
    # p (1 - p) is at most 1/4, and the Hessian of several classes at most half of the one of each
    bound = (0.25 if outputs == 1 else 0.5) * (with_bias * weight[:, None]).T @ with_bias + np.diag(penalty)
    inverse = np.linalg.inv(bound)
    targets = np.asarray(label, np.float64)[:, None] if outputs == 1 else np.eye(outputs)[np.asarray(label, np.int64)]

    def gradient(at: Floats) -> Floats:
        output = with_bias @ at
        chance = sigmoid(output) if outputs == 1 else softmax(output)
        return with_bias.T @ (weight[:, None] * (chance - targets)) + penalty[:, None] * at

    now = ahead = np.zeros((width + 1, outputs))
    momentum = 1.0
    for _ in range(_STEPS):
        slope = gradient(ahead)
        step = inverse @ slope
        new = ahead - step
        if np.sum(slope * (new - now)) > 0:
            momentum, ahead, now = 1.0, new, new
        else:
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead, now, momentum = new + (momentum - 1) / following * (new - now), new, following
        if np.abs(step).max() < _CLOSE:
            break
    return now[:-1], now[-1]
