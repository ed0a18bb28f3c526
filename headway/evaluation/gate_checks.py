"""The gate's checks of predictions before a comparison: readable, of the same rows, finite."""

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headway.errors import DataError
from headway.evaluation.metrics import OWN, rows_of
from headway.messages import agree, counted, listed
from headway.tasks.base import Task


def read_predictions(path: Path, columns: Collection[str] | None = None) -> pa.Table:
    """The predictions of an evaluation.

    Args:
        columns: further columns to read, as far as the file has them; None: all.

    Raises:
        DataError: the file cannot be read, or has no rows.
    """
    try:
        with pq.ParquetFile(path) as file:
            wanted = None if columns is None else {*OWN, *columns}
            names = [name for name in file.schema_arrow.names if wanted is None or name in wanted]
            table = file.read(names)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise DataError(f"predictions cannot be read: {error}", where=str(path)) from None
    if not len(table):
        raise DataError("there are no evaluation rows to judge by", where=str(path), fix="give eval more rows or spans")
    return table


def unusable(rows: pa.Table, task: Task) -> str | None:
    """How many predictions are not numbers; None: all are."""
    finite = np.isfinite(rows_of(rows, task).prediction).reshape(len(rows), -1).all(1)
    bad = len(rows) - int(finite.sum())
    if not bad:
        return None
    which = agree(bad, "that is not a finite number", "that are not finite numbers")
    return f"{bad:,} of {len(rows):,} predictions {which}, the first in row {int(finite.argmin()):,}"


def without_value(compared: Collection[str], metrics: Mapping[str, float | None], *, first: bool) -> list[str]:
    """Why a candidate is refused whose metrics have no value: a metric that candidates are compared by has to have one; of a
    first model, at least one of them."""
    missing = [name for name in compared if metrics[name] is None]
    if len(missing) == len(compared):
        return [f"{listed(missing)} {agree(len(missing), 'has', 'have')} no value on these rows"]
    return [] if first else [f"{m} has no value on these rows, and gate.tolerance asks for one" for m in missing]


def check_same_rows(candidate: pa.Table, other: pa.Table, whose: str, where: str) -> None:
    """DataError unless both tables are about the same rows in the same order."""
    if len(candidate) != len(other):
        raise DataError(
            f"the candidate has {counted(len(candidate), 'prediction')}, and {whose} are {len(other):,}", where=where
        )
    for name in ("row", "label", "weight"):
        if name in candidate.column_names and name in other.column_names:
            left, right = candidate.column(name), other.column(name)
            if not left.combine_chunks().equals(right.combine_chunks().cast(left.type)):
                raise DataError(f"{whose} predictions are of other rows: column {name!r} differs", where=where)
