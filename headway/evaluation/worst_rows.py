"""The rows on which a model is most wrong: of all rows, and of the slices that are worse than the rest.

    worst = RowsByLoss(table, rows, losses)
    worst.numbers(), worst.numbers(at)             # of all rows, and of those of a slice: the greatest loss first
    worst.told(numbers, (), shown={"id": None}, classes=("cat", "dog"))

A row is told by its number in the split, as `headway export-rows` writes it, its label and its prediction. Values of columns are
told only of those that are named, since reports travel.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.metrics.base import Floats, Metric, MomentMetric, Rows
from headway.schema.calendar_days import Temporal, moment

MOST, OF_A_SLICE, MOST_TOLD = 12, 3, 60
"""Rows that are looked for among all, in one slice, and that are told of in all."""
_LONGEST = 200
"""Characters of a value."""


def row_losses(rows: Rows, loss: Metric | None, losses: Floats | None = None) -> Floats | None:
    """The loss of each row, [rows]: those given, or by a metric; None where a row has none."""
    if losses is not None:
        return losses if rows.total > 0 and np.isfinite(losses).all() else None
    if not isinstance(loss, MomentMetric) or not rows.total > 0 or not rows.known:
        return None
    moments = loss.moments(rows)
    return moments[:, 0] if moments.shape[1] == 1 and np.isfinite(moments).all() else None


class RowsByLoss:
    """Finds the rows of the greatest losses.

    Args:
        table: of the rows' predictions.
        losses: of each row, [rows].
    """

    def __init__(self, table: pa.Table, rows: Rows, losses: Floats):
        self._table, self._rows = table, rows
        self._losses = losses if rows.alike else np.where(rows.weight > 0, losses, -np.inf)
        self._mean = float(rows.weight @ losses / rows.total)
        # of many rows the table has a sample
        self._numbers = table.column("row").to_numpy() if "row" in table.column_names else np.arange(len(rows))

    def excess(self, at: NDArray[np.int64]) -> float:
        """By how much the losses of some rows exceed the mean of all, summed."""
        weight = self._rows.weight[at]
        if not self._rows.alike:
            at, weight = at[weight > 0], weight[weight > 0]
        return float(weight @ (self._losses[at] - self._mean))

    def numbers(self, at: NDArray[np.int64] | None = None) -> list[int]:
        """The rows of the greatest losses, the greatest first: of all, or of some."""
        losses = self._losses if at is None else self._losses[at]
        most = MOST if at is None else OF_A_SLICE
        least = np.partition(losses, -most)[-most] if len(losses) > most else -np.inf
        high = np.flatnonzero((losses >= least) & np.isfinite(losses))
        # of equal losses the first rows
        order = high[np.argsort(-losses[high], kind="stable")][:most]
        found: list[int] = self._numbers[order if at is None else at[order]].tolist()
        return found

    def told(
        self,
        first: Iterable[int],
        further: Iterable[int],
        *,
        shown: Mapping[str, Temporal | None],
        classes: Sequence[str | int],
    ) -> list[dict[str, Any]]:
        """The facts of a `headway.evaluation.measured.WorstRow` of each, the greatest loss first.

        Args:
            further: left out, the least losses first, where they are too many.
            shown: the columns whose values are told, and the kind of those that are dates or times.
            classes: the names of the label's classes, by index.
        """
        first, further = (np.searchsorted(self._numbers, [*numbers]).tolist() for numbers in (first, further))
        further = sorted(further, key=self._place)
        wanted = sorted([*dict.fromkeys([*first, *further])][:MOST_TOLD], key=self._place)
        columns = [name for name in shown if name in self._table.column_names]
        values = {name: self._table.column(name).take(wanted).to_pylist() for name in columns}
        return [
            {"row": int(self._numbers[row]), "loss": float(self._losses[row]), **self._decided(row, classes)}
            | {"values": {name: _value(of[place], shown[name]) for name, of in values.items()}}
            for place, row in enumerate(wanted)
        ]

    def _place(self, row: int) -> tuple[float, int]:
        return -float(self._losses[row]), row

    def _decided(self, row: int, classes: Sequence[str | int]) -> dict[str, Any]:
        label, prediction = self._rows.label[row], self._rows.prediction[row]
        if not classes:
            return {"label": float(label), "prediction": prediction.tolist()}
        named = {"label": str(classes[int(label)])}
        if prediction.ndim == 0:  # of two classes the probability of the second
            return named | {"prediction": float(prediction)}
        return named | {"prediction": str(classes[int(prediction.argmax())]), "of_label": float(prediction[int(label)])}


def _value(value: Any, temporal: Temporal | None) -> str | int | float | None:
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return None if value is None else str(value)
    if temporal is not None and not isinstance(value, str):
        return moment(value, temporal)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    return value[:_LONGEST] if isinstance(value, str) else value
