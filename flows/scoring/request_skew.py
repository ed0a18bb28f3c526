"""`headway skew`: the requests that a server logged, against the same rows in the data and what the model makes of them.

    result = request_skew(loaded, requests=[Path("requests.jsonl")], input="data/2013-05.parquet", keys=("flight_id",), ...)
    result["findings"]

The rows of the data go through the model as `headway predict` sends them: raw files, coercion, the SavedModel.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from flows.config.pipeline import LoadedPipeline
from flows.scoring.predict import find_model, predict
from headway.errors import ConfigError, DataError
from headway.monitor import Monitor
from headway.process import Scratch
from headway.schema.columns import Column
from headway.tabular.coerce import coerce
from headway.tasks.table import task_of
from headway.validation.joined_skew import DIFFERING, PREDICTION, joined_skew
from headway.validation.request_rows import FOLDER, RequestRows, request_rows
from tfcore.export.metadata import describe_model


def request_skew(
    loaded: LoadedPipeline,
    *,
    requests: Sequence[Path],
    input: str,
    keys: Sequence[str],
    model: str,
    monitor: Monitor,
    format: str | None = None,
    limit: float = DIFFERING,
) -> dict[str, Any]:
    """Join logged requests with the rows of `input` by their keys, and compare columns and predictions.

    Args:
        requests: files of JSON lines; empty: what `headway serve` logged of this pipeline.
        keys: the columns that tell rows apart; empty: the pipeline's keys, by role or of the split.
        model: as `flows.scoring.predict.predict` takes it; rows that another version answered are left out.

    Returns:
        As `headway.validation.joined_skew.joined_skew`, with version, other_versions, unfit (rows without a key or with a value
        that does not fit) and not_compared (columns of several values per row).

    Raises:
        ConfigError: no key is named and the pipeline has none, or a key is not a column of the data.
        DataError: no request was logged, or the data have none of the logged rows.
    """
    keys = tuple(keys) or _keys(loaded)
    paths = list(requests) or _logged(loaded)
    with find_model(loaded, model, monitor.log) as (folder, version), Scratch("skew") as scratch:
        described = describe_model(folder)
        columns = [column for column in described.columns if not column.shape and column.name not in keys]
        output = task_of(described.task).output if ":" not in described.task else PREDICTION
        logged = request_rows(paths, columns, keys=keys, version=version, output=output)
        names = [*keys, *(column.name for column in columns)]
        try:
            result = predict(
                loaded,
                model=model,
                input=input,
                output=Path(scratch) / "scored",
                monitor=monitor,
                format=format,
                columns=names,
            )
        except ConfigError as error:
            if error.where != "--columns":  # which nobody typed
                raise
            raise ConfigError(error.problem, where="--key", fix=error.fix) from None
        files = [Path(scratch) / "scored" / part["file"] for part in result["parts"]]
        replayed = _replayed(files, logged, keys, columns, output)
    found = joined_skew(logged.table, replayed, keys=keys, columns=columns, limit=limit)
    compared = {column.name for column in columns} | set(keys)
    return found | {
        "version": version,
        "keys": list(keys),
        "other_versions": logged.other_versions,
        "unfit": logged.unfit,
        "not_compared": [column.name for column in described.columns if column.name not in compared],
    }


def _keys(loaded: LoadedPipeline) -> tuple[str, ...]:
    by_role, of_split = loaded.pipeline.keys
    if not (by_role or of_split):
        problem = "the pipeline has no column with role: key, by which requests could be joined with the data"
        raise ConfigError(problem, where="--key", fix="name the columns that tell rows apart: --key flight,day")
    return by_role or of_split


def _logged(loaded: LoadedPipeline) -> list[Path]:
    folder = loaded.open_store().root / FOLDER / loaded.pipeline.name
    paths = sorted(folder.rglob("*.jsonl"))
    if not paths:
        fix = "headway serve --log-rate 0.01 logs requests; --requests names files of JSON lines"
        raise DataError("no requests were logged", where=str(folder), fix=fix)
    return paths


def _replayed(
    files: Sequence[Path], logged: RequestRows, keys: Sequence[str], columns: Sequence[Column], output: str
) -> pa.Table:
    """The rows of the data that may be asked for: keys as they are, columns in their stored types, predictions."""
    wanted = pc.unique(logged.table.column(keys[0]))
    read_as = [column.model_copy(update={"nullable": True}) for column in columns]
    tables = []
    for file in files:  # only what can be joined is kept
        table = pq.read_table(file)
        there = pc.is_in(table.column(keys[0]).cast(pa.string()), value_set=wanted)
        # where none can be, a row shows what keys look like
        table = table.filter(there) if pc.any(there).as_py() else table.slice(0, 1)
        batch = pa.RecordBatch.from_arrays(
            [table.column(column.name).combine_chunks() for column in columns],
            names=[column.name for column in columns],
        )
        coerced = pa.Table.from_batches([coerce(batch, read_as).batch])
        prediction = output if output in table.column_names else PREDICTION
        for name, of in (*((key, key) for key in keys), (PREDICTION, prediction)):
            coerced = coerced.append_column(name, table.column(of))
        tables.append(coerced)
    return pa.concat_tables(tables, promote_options="permissive")
