"""Analyses the user's preprocess function: the columns it returns, and their train statistics.

    analyse(AnalyseRequest(examples=..., file=Path("features.py"), function="features:preprocess"), out, monitor)

One pass over the train split, whole row groups at a time. `out/train` holds the statistics in the same form as those of
the raw columns, so that transforms are fitted on both alike.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from headway.errors import ConfigError, DataError
from headway.monitor import Monitor
from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics
from headway.storage.prefetch import RemoteFiles, Stager
from headway.tabular.list_arrays import join
from tfcore.data.reader import Reader, shards_of, staged, with_data_errors
from tfcore.graph.python_op import all_nodes, python_functions
from tfcore.preprocess.request import VERSION, AnalyseRequest
from tfcore.runtime.devices import prepare
from tfcore.transform.preprocess import derive, load_preprocess
from tfcore.transform.raw_column import RawColumn

__all__ = ["VERSION", "analyse"]

TRAIN = "train"
_HIDDEN = ("label", "weight")
_RANDOM = re.compile(r"Random|Multinomial|TruncatedNormal|ParameterizedTruncatedNormal|Rng|Stateful(?!PartitionedCall)")
"""Ops that draw random numbers; ops whose names begin with Stateless compute them from a seed."""


def readable(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Returns the stored columns that a preprocess function may read: all but label and weight."""
    return tuple(column for column in columns if column.role not in _HIDDEN)


def analyse(
    request: AnalyseRequest, out: Path, monitor: Monitor, *, remote: RemoteFiles | None = None
) -> dict[str, Any]:
    """Run the preprocess function over the train rows and write the statistics of its columns; see the module.

    Args:
        remote: fetches shards from a bucket while other shards are read; None: all shards are on this disk.

    Returns:
        JSON values: columns (that the function returns), reads (the raw columns that it reads), rows (their number).

    Raises:
        ConfigError: the function fails, draws random numbers, or returns something that cannot be a column.
        DataError: there are no rows, or a shard is damaged.
    """
    with staged(remote, monitor) as stager:
        return _analyse(request, out, monitor, stager)


@tf.autograph.experimental.do_not_convert  # the user's function is converted by itself
def _analyse(request: AnalyseRequest, out: Path, monitor: Monitor, stager: Stager | None) -> dict[str, Any]:
    prepare()
    function = load_preprocess(request.file, request.function)
    shards = shards_of(request.examples, stager)
    shards.announce_order()
    if not shards.total:
        raise DataError("the train split has no rows", where="split", fix="widen the window, or hold out less")
    stored = readable(shards.columns)
    reader = Reader(shards, [column.name for column in stored])
    facts: dict[str, Any] = {}

    def derived(*piece: tf.Tensor) -> dict[str, tf.Tensor]:
        raw = reader(*piece).columns
        ours = _python()
        columns, facts["columns"], facts["reads"] = derive(function, raw, stored)
        facts["python"] = [name for name in _python() if name not in ours]
        facts["random"] = _random_ops()
        return {f"{name}/{part}": tensor for name, raw in columns.items() for part, tensor in _parts(raw)}

    batches = reader.in_order().map(derived, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(2)
    if facts["python"]:  # said before the training rather than after it
        monitor.warn(
            f"{request.function} calls Python functions, which no exported model can: "
            f"{', '.join(facts['python'])}. Export will refuse it."
        )
    if facts["random"]:
        raise ConfigError(
            f"draws random numbers ({', '.join(facts['random'])}), so that a row would have other values in each pass and in "
            "serving",
            where=request.function,
            fix="compute a row's values from its own columns alone; what looks random and stays the same is a hash of a column "
            "(tf.strings.to_hash_bucket_fast), and training.augment varies train rows",
        )
    statistics = SplitStatistics.create(facts["columns"])
    for batch in _iterate(batches, shards, request.function):
        monitor.check()
        statistics.update(_arrow({name: value.numpy() for name, value in batch.items()}, facts["columns"]))
        monitor.progress(statistics.rows, shards.total, "rows")
    statistics.save(out / TRAIN)
    return {
        "columns": [column.model_dump(mode="json") for column in facts["columns"]],
        "reads": [column.model_dump(mode="json") for column in facts["reads"]],
        "rows": statistics.rows,
    }


def _python() -> list[str]:
    """Returns the Python functions that the current graph calls so far."""
    return python_functions(tf.compat.v1.get_default_graph().as_graph_def())


def _random_ops() -> list[str]:
    """Returns the names of the current graph's ops that draw different random numbers each time they run."""
    nodes = all_nodes(tf.compat.v1.get_default_graph().as_graph_def())
    return sorted({node.op for node in nodes if _RANDOM.match(node.op)})


def _iterate(batches: tf.data.Dataset, shards: Any, function: str) -> Any:
    try:
        yield from with_data_errors(batches, shards)
    except ConfigError as error:
        if error.where != "preprocess":
            raise
        raise ConfigError(error.problem, where=function, fix=error.fix) from None


def _parts(raw: RawColumn) -> list[tuple[str, tf.Tensor]]:
    parts = [("values", raw.values), ("lengths", raw.lengths), ("present", raw.present)]
    return [(part, tensor) for part, tensor in parts if tensor is not None]


def _arrow(tensors: Mapping[str, Any], columns: tuple[Column, ...]) -> pa.RecordBatch:
    arrays = []
    for column in columns:
        values, lengths = tensors[f"{column.name}/values"], tensors.get(f"{column.name}/lengths")
        present = tensors.get(f"{column.name}/present")
        flat = pa.array(np.ravel(values), column.element.arrow, from_pandas=False)
        if not column.shape:
            arrays.append(flat if present is None else pc.if_else(pa.array(present), flat, pa.scalar(None, flat.type)))
            continue
        lengths = np.full(len(values), column.length) if lengths is None else lengths
        present = np.ones(len(lengths), np.bool_) if present is None else present
        flat = flat.filter(pa.array(np.repeat(present, lengths)))
        arrays.append(join(flat, np.where(present, lengths, 0), present, column))
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])
