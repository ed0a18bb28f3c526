"""Logged requests as rows: keys, columns, predictions; what `headway serve` writes, and logs of the same form.

    rows = request_rows(paths, columns, keys=("flight_id",), version=3, output="probability")
    rows.table, rows.other_versions

A line is a JSON object with "instances" and, beside them, "predictions", "version", and "keys": one for each instance, of
several key columns a list each. Keys may stand among the instances' columns instead.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headway.errors import DataError
from headway.messages import counted
from headway.schema.columns import Column
from headway.tabular.coerce import coerce
from headway.validation.joined_skew import PREDICTION

FOLDER = "requests"
"""Of a store: <model>/<day>/*.jsonl below it."""


@dataclass(frozen=True)
class RequestRows:
    table: pa.Table
    """Keys as text, the columns in their stored types, and `prediction` where each row has one."""
    other_versions: int
    """Rows that another version answered, left out."""
    unfit: int
    """Rows without a key, or with a value that does not fit its column."""


def request_rows(
    paths: Sequence[Path], columns: Sequence[Column], *, keys: Sequence[str], version: int | None, output: str
) -> RequestRows:
    """Read the rows that a version answered.

    Args:
        columns: of one value per row, without the keys.
        version: None: whichever answered.
        output: the name of the prediction among a row's outputs.

    Raises:
        DataError: a line is not a request, or there is no row with a key.
    """
    instances: list[dict[str, Any]] = []
    key_values: list[list[Any]] = []
    predictions: list[Any] = []
    others = unfit = values_of_key = 0
    for where, entry in _entries(paths):
        rows = entry.get("instances")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise DataError('has no "instances": a list of objects', where=where, fix="log what headway serve logs")
        if version is not None and entry.get("version", version) != version:
            others += len(rows)
            continue
        given, predicted = entry.get("keys"), entry.get("predictions")
        for name, values in (("keys", given), ("predictions", predicted)):
            if values is not None and (not isinstance(values, list) or len(values) != len(rows)):
                raise DataError(f"{name!r} are not one for each of {len(rows)} instances", where=where)
        for at, row in enumerate(rows):
            key = [row.get(name) for name in keys] if given is None else given[at]
            key = key if isinstance(key, list) and (given is None or len(keys) > 1) else [key]
            if any(part is None for part in key) or len(key) != len(keys):
                values_of_key = len(key)
                unfit += 1
                continue
            instances.append(row)
            key_values.append(key)
            outputs = None if predicted is None else predicted[at]
            predictions.append(outputs.get(output) if isinstance(outputs, dict) else outputs)
    if not instances:
        problem = (
            f"a row's keys are {counted(values_of_key, 'value')}, and {len(keys)} columns are asked for ({', '.join(keys)})"
            if unfit and values_of_key != len(keys)
            else f"no logged row has a key ({', '.join(keys)})"
            if unfit
            else f"no row was answered by version {version}"
            if others
            else "is empty"
        )
        fix = 'send "keys" with the requests, one for each row; or log rows with the key\'s columns'
        raise DataError(problem, where=str(paths[0]) if paths else "requests", fix=fix)
    read_as = [column.model_copy(update={"nullable": True}) for column in columns]
    coerced = coerce(_batch(instances, read_as), read_as)
    fitting = list(range(len(instances))) if coerced.fitting_rows is None else coerced.fitting_rows.tolist()
    table = pa.Table.from_batches([coerced.batch])
    for place, name in enumerate(keys):
        parts = (key_values[at][place] for at in fitting)
        texts = [part if isinstance(part, str) else json.dumps(part) for part in parts]
        table = table.append_column(name, pa.array(texts, pa.string()))
    if all(predictions[at] is not None for at in fitting):
        table = table.append_column(PREDICTION, pa.array([predictions[at] for at in fitting]))
    return RequestRows(table, others, unfit + len(instances) - len(fitting))


def _entries(paths: Sequence[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in paths:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    entry = json.loads(line.decode("utf-8"))
                except ValueError as error:  # bytes that are not UTF-8 among them
                    fix = "name a file of JSON lines, as headway serve logs requests"
                    raise DataError(f"is not JSON: {error}", where=f"{path}: line {number}", fix=fix) from None
                if not isinstance(entry, dict):
                    raise DataError("is not an object", where=f"{path}: line {number}")
                yield f"{path}: line {number}", entry if "instances" in entry else {"instances": [entry]}


def _batch(instances: Sequence[dict[str, Any]], columns: Sequence[Column]) -> pa.RecordBatch:
    arrays = []
    for column in columns:
        values = [row.get(column.name) for row in instances]
        nested = any(isinstance(value, dict | list) for value in values)
        try:
            if nested:
                raise pa.ArrowTypeError("an object or a list")
            arrays.append(
                pa.array(values) if any(v is not None for v in values) else pa.nulls(len(values), column.arrow)
            )
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # numbers and texts: coerce judges each
            texts = [None if v is None else v if isinstance(v, str) else json.dumps(v) for v in values]
            arrays.append(pa.array(texts, pa.string()))
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])
