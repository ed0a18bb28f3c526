"""Predictions of rows in memory, by the same job as `headway predict`.

table = predict_rows(loaded, {"dep_delay": [5.0], "carrier": ["UA"]}, model="champion", monitor=Monitor())
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from flows.config.pipeline import LoadedPipeline
from flows.scoring.predict import predict
from headway.errors import DataError
from headway.monitor import Monitor
from headway.process import Scratch
from headway.tabular import quarantine
from tfcore.library.raw_rows import as_table

_PLACES = ("source_file", "source_row")


def predict_rows(loaded: LoadedPipeline, rows: Any, *, model: str, monitor: Monitor) -> pa.Table:
    """Predict rows in memory.

    Args:
        rows: an Arrow table or batch, a pandas frame, a mapping of names to columns, or a sequence of mappings.
            Columns that the model does not take are ignored.
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
                where="rows",
                fix="leave such rows out; headway predict sets them aside in a quarantine file",
            )
        parts = [pq.read_table(out / part["file"]) for part in result["parts"]]
    predictions = pa.concat_tables(parts)
    return predictions.drop_columns([name for name in _PLACES if name in predictions.column_names])
