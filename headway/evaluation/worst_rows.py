"""The rows on which a model is most wrong.

    worst_rows(table, rows, losses, shown={"id": None}, classes=("cat", "dog"))

A row is told by its number in the split, as `headway export-rows` writes it, its label and its prediction. Values of columns are
told only of those that are named, since reports travel.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headway.metrics.base import Floats, Metric, MomentMetric, Rows
from headway.schema.calendar_days import Temporal, moment

MOST = 12
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


def worst_rows(
    table: pa.Table,
    rows: Rows,
    losses: Floats | None,
    *,
    shown: Mapping[str, Temporal | None],
    classes: Sequence[str | int],
) -> list[dict[str, Any]]:
    """The facts of a `headway.evaluation.measured.WorstRow` of each of the rows with the greatest losses, the greatest first.

    Args:
        table: of the rows' predictions.
        losses: of each row, [rows]; None: they have none.
        shown: the columns whose values are told, and the kind of those that are dates or times.
        classes: the names of the label's classes, by index.
    """
    if losses is None:
        return []
    losses = losses if rows.alike else np.where(rows.weight > 0, losses, -np.inf)
    least = np.partition(losses, -MOST)[-MOST] if len(losses) > MOST else -np.inf
    high = np.flatnonzero((losses >= least) & np.isfinite(losses))
    worst = high[np.argsort(-losses[high], kind="stable")][:MOST].tolist()  # of equal losses the first rows
    # of many rows the table has a sample
    numbers = table.column("row").to_numpy() if "row" in table.column_names else np.arange(len(rows))
    values = {name: table.column(name).take(worst).to_pylist() for name in shown if name in table.column_names}
    return [
        {"row": int(numbers[row]), "loss": float(losses[row]), **_decided(rows, row, classes)}
        | {"values": {name: _value(of[place], shown[name]) for name, of in values.items()}}
        for place, row in enumerate(worst)
    ]


def _decided(rows: Rows, row: int, classes: Sequence[str | int]) -> dict[str, Any]:
    label, prediction = rows.label[row], rows.prediction[row]
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
