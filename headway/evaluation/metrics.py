"""Computes the metrics of predictions, in NumPy: what evaluation reports and the gate decides on.

    measure("binary", label, prediction, weight)
    # {"loss": 0.42, "auc": 0.71, "accuracy": 0.8, "prediction_mean": 0.24, "label_mean": 0.23, ...}
    summary(table, "binary", slices=["carrier"])         # the same overall and by slice, with a calibration table

Shapes: labels and weights are [rows]; predictions are [rows] (probability of class 1, or the predicted number) or
[rows, classes] (probabilities; labels are then class indices). All arithmetic is float64. A metric that has no value
(AUC of one class, anything of zero weight, anything of a prediction that is not a finite number) is None. By "log loss"
the natural logarithm is meant, probabilities clipped to [1e-7, 1 - 1e-7] as Keras does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from headway.errors import DataError
from headway.evaluation.ranking_metrics import codes_of, ranked
from headway.evaluation.tasks import METRICS, Task
from headway.tabular.list_arrays import decoded, run_starts

Floats = NDArray[np.float64]

EPSILON = 1e-7
BINS = 10
ROUNDING = 1e-6
"""So far beyond [0, 1] a probability may be: float32 sums of a softmax are."""


def measure(
    task: Task, label: ArrayLike, prediction: ArrayLike, weight: ArrayLike | None = None
) -> dict[str, float | None]:
    """Every metric of `task`, weighted; None where one is undefined."""
    label, prediction, weight = arrays(task, label, prediction, weight)
    total = float(weight.sum())
    if not total > 0:
        return dict.fromkeys(METRICS[task])

    def mean(values: NDArray[Any]) -> float:
        return float(np.dot(values, weight) / total)

    values: dict[str, float | None] = {"loss": mean(row_loss(task, label, prediction))}
    if task == "regression":
        values["rmse"] = float(np.sqrt(values["loss"]))  # type: ignore[arg-type]
        values["mae"] = mean(np.abs(prediction - label))
    if task == "binary":
        values["auc"] = auc(label, prediction, weight)
    if task != "regression":
        values["accuracy"] = mean(row_correct(task, label, prediction))
    if task != "multiclass":
        values["prediction_mean"], values["label_mean"] = mean(prediction), mean(label)
        centre = values["label_mean"]
        values["calibration"] = values["prediction_mean"] / centre if centre else None  # type: ignore[operator]
    if task == "binary":
        bins = [] if np.isnan(prediction).any() else calibration_bins(label, prediction, weight)
        values["ece"] = expected_calibration_error(bins)
    return {name: _finite(values[name]) for name in METRICS[task]}


def arrays(
    task: Task, label: ArrayLike, prediction: ArrayLike, weight: ArrayLike | None = None
) -> tuple[Floats, Floats, Floats]:
    """The three as float64 arrays of agreeing shapes; DataError when they do not agree or break the task.

    A prediction that is not a finite number becomes NaN.
    """
    label, prediction, weight = _shaped(task, label, prediction, weight)
    finite = np.isfinite(prediction)
    if not finite.all():
        prediction = np.where(finite, prediction, np.nan)
    if task != "regression":
        with np.errstate(invalid="ignore"):
            outside = (prediction < -ROUNDING) | (prediction > 1.0 + ROUNDING)
        if outside.any():
            at = tuple(int(place) for place in np.argwhere(outside)[0])
            which = f"row {at[0]}" + (f", class {at[1]}" if len(at) > 1 else "")
            raise DataError(
                f"a probability lies between 0 and 1, but {which} is {prediction[at]:.6g}",
                where="column 'prediction'",
                fix="write probabilities, not logits",
            )
    return label, prediction, weight


def _shaped(
    task: Task, label: ArrayLike, prediction: ArrayLike, weight: ArrayLike | None = None
) -> tuple[Floats, Floats, Floats]:
    """As `arrays`, for scores of any range."""
    label, prediction = np.asarray(label, np.float64), np.asarray(prediction, np.float64)
    weight = np.ones(label.shape) if weight is None else np.asarray(weight, np.float64)
    if label.ndim != 1 or prediction.shape[:1] != label.shape or weight.shape != label.shape:
        raise DataError(f"labels {label.shape}, predictions {prediction.shape} and weights {weight.shape} do not agree")
    if prediction.ndim != (2 if task == "multiclass" else 1):
        raise DataError(f"predictions of shape {prediction.shape} do not fit the task {task}")
    _check(~(weight >= 0) | np.isinf(weight), weight, "weight", "a weight is a number that is not negative")
    if task == "binary":
        _check(~np.isin(label, (0.0, 1.0)), label, "label", "a label of the binary task is 0 or 1")
    elif task == "multiclass":
        is_class = (label >= 0) & (label < prediction.shape[1]) & (label == np.floor(label))
        _check(~is_class, label, "label", f"a label is a class index below {prediction.shape[1]}, a whole number")
    return label, prediction, weight


def _check(wrong: NDArray[np.bool_], values: Floats, column: str, rule: str) -> None:
    """DataError that names the first row that breaks the rule."""
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(f"{rule}, but row {row} is {values[row]:.6g}", where=f"column {column!r}")


def _finite(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else value


def row_loss(task: Task, label: Floats, prediction: Floats) -> Floats:
    """The loss of each row: natural log loss, or the squared error. [rows]"""
    if task == "regression":
        return (prediction - label) ** 2
    if task == "multiclass":
        likelihood = prediction[np.arange(len(label)), label.astype(np.int64)]
    else:
        likelihood = np.where(label > 0.5, prediction, 1.0 - prediction)
    return -np.log(np.clip(likelihood, EPSILON, 1.0 - EPSILON))


def row_correct(task: Task, label: Floats, prediction: Floats) -> Floats:
    """1.0 where the more likely class (probability over 0.5; of equals the first) is the label, NaN where a prediction
    is not a number. [rows]"""
    chosen = prediction.argmax(1) if task == "multiclass" else prediction > 0.5
    unknown = np.isnan(prediction)
    right = (chosen == label).astype(np.float64)
    return np.where(unknown.any(1) if task == "multiclass" else unknown, np.nan, right) if unknown.any() else right


def auc(label: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> float | None:
    """The exact area under the ROC curve: the weighted share of (positive, negative) pairs that `score` puts in the
    right order, ties counting half. None when a class is missing or a score is not a number."""
    label, score, weight = _shaped("binary", label, score, weight)
    if not len(score) or np.isnan(score).any():
        return None
    order = np.argsort(score, kind="stable")
    ranked = score[order]
    first = np.flatnonzero(run_starts(ranked))  # where each run of ties begins
    positive = np.add.reduceat((weight * label)[order], first)
    negative = np.add.reduceat((weight * (1.0 - label))[order], first)
    pairs = positive.sum() * negative.sum()
    if not pairs > 0:
        return None
    below = np.cumsum(negative) - negative
    return float(np.dot(positive, below + 0.5 * negative) / pairs)


def calibration_bins(
    label: ArrayLike, prediction: ArrayLike, weight: ArrayLike | None = None, *, bins: int = BINS
) -> list[dict[str, float | int]]:
    """Rows cut by predicted probability into `bins` of equal weight (equal predictions are never torn apart, so there
    may be fewer): each with low, high, rows, weight, prediction_mean and label_mean."""
    label, prediction, weight = arrays("binary", label, prediction, weight)
    kept = (weight > 0) & ~np.isnan(prediction)
    order = np.flatnonzero(kept)[np.argsort(prediction[kept], kind="stable")]
    if not len(order):
        return []
    ranked, mass = prediction[order], weight[order]
    new = run_starts(ranked)
    before = (np.cumsum(mass) - mass)[new][np.cumsum(new) - 1]  # the mass below each row's value
    which = np.minimum((before / mass.sum() * bins).astype(np.int64), bins - 1)
    first = np.flatnonzero(run_starts(which))
    last = np.append(first[1:], len(order)) - 1
    weights = np.add.reduceat(mass, first)
    predictions = np.add.reduceat(mass * ranked, first) / weights
    labels = np.add.reduceat(mass * label[order], first) / weights
    return [
        {
            "low": float(ranked[a]),
            "high": float(ranked[b]),
            "rows": int(b - a + 1),
            "weight": float(weights[i]),
            "prediction_mean": float(predictions[i]),
            "label_mean": float(labels[i]),
        }
        for i, (a, b) in enumerate(zip(first, last, strict=True))
    ]


def expected_calibration_error(bins: Sequence[dict[str, float | int]]) -> float | None:
    """The mean of |predicted - observed| over calibration bins, by weight."""
    total = sum(b["weight"] for b in bins)
    if not total:
        return None
    return sum(b["weight"] * abs(b["prediction_mean"] - b["label_mean"]) for b in bins) / total


def columns(table: pa.Table, task: Task) -> tuple[Floats, Floats, Floats]:
    """label, prediction and weight of a predictions table (weight is one where there is no such column)."""
    prediction = table.column("prediction").combine_chunks()
    kind = prediction.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        flat = prediction.flatten().to_numpy(zero_copy_only=False)
        if len(table) and len(flat) % len(table):
            raise DataError("the predictions of some rows have more classes than those of others")
        values = flat.reshape(len(table), -1) if len(table) else np.zeros((0, 1))
    else:
        values = prediction.to_numpy(zero_copy_only=False)
    weight = table.column("weight").to_numpy() if "weight" in table.column_names else None
    return arrays(task, table.column("label").to_numpy(), values, weight)


def slice_rows(table: pa.Table, column: str, min_rows: int = 1) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """(value, its row indices) for each value of a slice column with `min_rows` rows, by value; null is "(null)"."""
    if column not in table.column_names:
        columns = ", ".join(name for name in table.column_names if name not in ("row", "label", "weight", "prediction"))
        raise DataError(f"the predictions have no column {column!r} to slice by", fix=f"there is: {columns or 'none'}")
    text = decoded(table.column(column).combine_chunks())
    if pa.types.is_binary(text.type) or pa.types.is_large_binary(text.type):
        text = text.cast(pa.string())
    encoded = pc.fill_null(text.cast(pa.string()), "(null)").dictionary_encode()
    names = encoded.dictionary.to_pylist()
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))
    for code in sorted(range(len(names)), key=names.__getitem__):
        rows = order[ends[code - 1] if code else 0 : ends[code]]
        if len(rows) >= min_rows:
            yield names[code], rows


def measure_table(
    table: pa.Table, task: Task, *, group: str | None = None, ndcg_at: int | None = None
) -> dict[str, float | None]:
    """`measure` of a predictions table; with `ndcg_at` also ndcg and mrr of the groups that the column `group` says."""
    return _Measured(table, task, group, ndcg_at)()


class _Measured:
    """The metrics of some rows of a table."""

    def __init__(self, table: pa.Table, task: Task, group: str | None, ndcg_at: int | None):
        self.arrays = columns(table, task)
        self._task, self._at = task, ndcg_at
        self._codes = codes_of(table.column(group)) if ndcg_at is not None and group is not None else None

    def __call__(self, rows: Any = slice(None)) -> dict[str, float | None]:
        label, prediction, weight = (values[rows] for values in self.arrays)
        metrics = measure(self._task, label, prediction, weight)
        if self._codes is None or self._at is None:
            return metrics
        return metrics | ranked(label, prediction, weight, self._codes[rows], k=self._at).mean()


def summary(
    table: pa.Table,
    task: Task,
    *,
    slices: Sequence[str] = (),
    min_rows: int = 1,
    group: str | None = None,
    ndcg_at: int | None = None,
) -> dict[str, Any]:
    """What a predictions table amounts to, as JSON: rows, weight, overall metrics, calibration bins, slices.

    Args:
        table: columns label, prediction, optionally weight, and one column for each of `slices` and `group`.
        min_rows: slices with fewer rows are left out.
        ndcg_at: judge also the order within groups, its first so many ranks; see `headway.evaluation.ranking_metrics`.
    """
    measured = _Measured(table, task, group, ndcg_at)
    label, prediction, weight = measured.arrays
    by = {"group": group, "ndcg_at": ndcg_at} if ndcg_at is not None else {}
    return {
        "task": task,
        "rows": len(label),
        "weight": float(weight.sum()),
        **by,
        "overall": measured(),
        "calibration_bins": calibration_bins(label, prediction, weight) if task == "binary" else [],
        "slices": {
            column: {v: {"rows": len(rows), **measured(rows)} for v, rows in slice_rows(table, column, min_rows)}
            for column in slices
        },
    }
