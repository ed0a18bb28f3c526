"""Predictions of rows in memory, by the same job as `headway predict`.

table = predict_rows(loaded, {"dep_delay": [5.0], "carrier": ["UA"]}, model="champion", monitor=Monitor())
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flows.config.pipeline import LoadedPipeline
from flows.pipeline.predict import predict
from headway.errors import DataError
from headway.monitor import Monitor
from headway.process import Scratch
from headway.tabular import quarantine

_PLACES = ("source_file", "source_row")
_WHERE = "rows"


def predict_rows(loaded: LoadedPipeline, rows: Any, *, model: str, monitor: Monitor) -> pa.Table:
    """Predict rows in memory.

    Args:
        rows: as `as_table` takes them. Columns that the model does not take are ignored.
        model: a version's number, champion, previous, an alias, or a SavedModel's folder.

    Returns:
        A row for each, in their order: `prediction` (float32; of several classes `probabilities`, a list per row, too).

    Raises:
        DataError: a column is missing, or a row cannot be predicted; the message has the first such row.
        StoreError: there is no such version.
    """
    table = as_table(rows)
    with Scratch("predict") as folder:
        source, out = Path(folder) / "rows.parquet", Path(folder) / "out"
        pq.write_table(table, source)
        result = predict(
            loaded,
            model=model,
            input=str(source),
            output=out,
            monitor=monitor,
            format="parquet",
            columns=(),
            max_quarantined=1.0,  # reported below, with the row
        )
        if rejected := result["counts"]["quarantined"]:
            first = quarantine.read(out).slice(0, 1).to_pylist()[0]
            column = f", column {first['column']!r}" if first.get("column") else ""
            raise DataError(
                f"{rejected:,} of {len(table):,} rows cannot be predicted; the first{column}: {first['reason']}",
                where=_WHERE,
                fix="leave such rows out; headway predict sets them aside in a quarantine file",
            )
        parts = [pq.read_table(out / part["file"]) for part in result["parts"]]
    predictions = pa.concat_tables(parts)
    return predictions.drop_columns([name for name in _PLACES if name in predictions.column_names])


def as_table(rows: Any) -> pa.Table:
    """Rows in memory as an Arrow table: of an Arrow table or batch, a pandas frame, a mapping of names to columns, or a sequence
    of mappings.

    Raises:
        DataError: they are none of the kinds that are read, or a column mixes types.
    """
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, Mapping):
        return _from_arrays(rows)
    if isinstance(rows, Sequence) and rows and all(isinstance(row, Mapping) for row in rows):
        names = dict.fromkeys(name for row in rows for name in row)
        return _from_arrays({name: [row.get(name) for row in rows] for name in names})
    try:
        if type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns"):
            return pa.Table.from_pandas(rows, preserve_index=False)
        if hasattr(rows, "__arrow_c_stream__"):  # polars, DuckDB and others
            return pa.table(rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        reason = "; ".join(str(part) for part in error.args)
        fix = "give each column values of one type: text, numbers, dates, or lists of them"
        raise DataError(f"cannot be read: {reason}", where=_WHERE, fix=fix) from None
    raise DataError(
        f"expected a table, given {type(rows).__name__}",
        where=_WHERE,
        fix="give an Arrow table, a pandas frame, a dict of arrays by column, or a list of dicts",
    )


def _from_arrays(columns: Mapping[str, Any]) -> pa.Table:
    if not columns:
        raise DataError("there are no columns", where=_WHERE)
    arrays = {str(name): _array(str(name), values) for name, values in columns.items()}
    first, count = next((name, len(array)) for name, array in arrays.items())
    for name, array in arrays.items():
        if len(array) != count:
            raise DataError(f"column {name!r} has {len(array):,} rows, and {first!r} has {count:,}", where=_WHERE)
    return pa.table(arrays)


def _array(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    """One column; NaN in NumPy arrays stands for a missing value, and a second axis makes a vector."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, str | bytes) or (not isinstance(values, list | tuple) and np.ndim(values) == 0):
        raise DataError(f"column {name!r}: expected an array, given {type(values).__name__}", where=_WHERE)
    shape: tuple[int, ...] = values.shape if isinstance(values, np.ndarray) else (len(values),)
    if len(shape) > 2:
        fix = "flatten each row: values.reshape(len(values), -1)"
        raise DataError(f"column {name!r} has the shape {list(shape)}", where=_WHERE, fix=fix)
    try:
        if len(shape) == 2:
            flat = pa.array(np.ascontiguousarray(values).reshape(-1))
            return pa.FixedSizeListArray.from_arrays(flat, shape[1])
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        fix = "give it values of one type"
        raise DataError(
            f"column {name!r} cannot be read: {str(error).splitlines()[0]}", where=_WHERE, fix=fix
        ) from None
