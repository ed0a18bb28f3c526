"""The replay stage: predicts stored raw rows again with the exported model, in a fresh process that has only TensorFlow.

    replay(ReplayRequest(saved_model=..., examples=..., predictions=..., columns=..., task="binary"), out, monitor)

The SavedModel is first copied to another folder, so that the replay finds no other files of the folder it was saved in. The
fresh process runs `tfcore/export/replay_main.py`. If the stage runs in the TensorFlow process, its first replay uses the process
that `tfcore.runtime.start` forked at the beginning. Otherwise a new Python runs the script by its path, isolated from the
environment. This module imports no TensorFlow.
"""

import contextlib
import importlib.util
import json
import math
import queue
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from headway.config import Result
from headway.errors import DataError, HeadwayError
from headway.messages import agree, counted, number, some
from headway.monitor import Monitor
from headway.process import ChildProcess, Forked, Scratch
from headway.records.encode import feature_spec, total_rows
from headway.schema.columns import Column
from headway.stages.refs import Examples, Ref
from headway.stages.stage_class import Key, Stage
from headway.tasks.table import TaskName, task_of
from headway.tasks.user_task import OWN_OUTPUT
from tfcore.export.config import ServingLimits
from tfcore.export.request import Exported
from tfcore.export.signatures import tensor_names

VERSION = 7
BOUND = 1e-5
SECONDS = 300.0
"""The seconds after which a replay counts as hung."""
MEASURED = (1, 64)
"""The batch sizes, in rows, whose latency is measured."""
TIMED_SECONDS, TOLD_SECONDS = 0.15, 0.05
"""The seconds for which calls of each batch size are timed: the first if a limit on the latency is set, else the second."""


class Replayed(Result):
    """The answer of the replay stage: how far the export's predictions are from the training process's predictions."""

    rows: int
    largest_difference: float
    bound: float


class ReplayRequest(Stage[Replayed]):
    name, version, runs = "replay", VERSION, "tfcore.export.replay:replay"
    tensorflow = True
    rows: Annotated[int, Key("config", "replay_rows", always=True)] = Field(default=1000, ge=1)
    limits: Annotated[ServingLimits, Key("config", "limits", always=True)] = ServingLimits()
    saved_model: Annotated[Ref[Exported], Key("inputs", "export")]
    predictions: Annotated[Ref[Any], Key("inputs", "candidate")] = Field(
        description="Parquet file that evaluation wrote: one row for each row of the examples"
    )
    examples: tuple[Examples, ...] = Field(description="as they were given to evaluation, in the same order")
    columns: tuple[Column, ...] = Field(description="the raw columns of the model")
    task: TaskName
    label_std: float | None = Field(default=None, description="of the train labels, where they are numbers")
    bound: float = BOUND


class ReplayProcess:
    """A fresh Python process that runs the replay script and answers one request."""

    def __init__(self) -> None:
        self._process: ChildProcess | None = None
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def start(self) -> None:
        """Start the process unless it runs already; the process imports TensorFlow and waits for its request."""
        if self._process is None:
            forked = (Forked.waiting.pop(), Scratch("child")) if Forked.waiting else None
            arguments, folder = ["-I", script()], tempfile.gettempdir()
            self._process = ChildProcess(arguments, self._answers.put, folder=folder, process=forked)

    def ask(self, request: Mapping[str, Any], monitor: Monitor) -> dict[str, Any]:
        """Send a request, return its answer and end the process. HeadwayError: the process fails or takes too long."""
        self.start()
        process, until = self._process, time.monotonic() + SECONDS
        assert process is not None
        try:
            process.send(request)
            while time.monotonic() < until:
                monitor.check()
                with contextlib.suppress(queue.Empty):
                    if (answer := self._answers.get(timeout=0.1)) is not None:
                        return answer
                    problem = f"the replay process {process.exit_text()} and gave no answer{process.last_lines()}"
                    raise HeadwayError(problem, fix="run 'headway doctor'")
            raise HeadwayError(f"the replay process did not answer within {SECONDS:.0f} s")
        finally:
            self.close()  # it is used up

    def close(self) -> None:
        """End the process, in whatever state it is."""
        process, self._process, self._answers = self._process, None, queue.Queue()
        if process is not None:
            process.close(0.5)


def script() -> str:
    """Returns the path of the replay script, found without importing TensorFlow."""
    spec = importlib.util.find_spec("tfcore.export.replay_main")
    if spec is None or spec.origin is None:
        raise HeadwayError("tfcore/export/replay_main.py is not installed", fix="install headway again")
    return spec.origin


def replay(
    request: ReplayRequest, out: Path, monitor: Monitor, *, process: ReplayProcess | None = None
) -> dict[str, Any]:
    """Predicts rows with a copy of the SavedModel and compares; writes out/replay.json and returns the file's content.

    Raises:
        HeadwayError: a prediction differs from the training process's by more than the bound, the model does not load, or its
            size or latency exceeds `limits`.
    """
    process = process or ReplayProcess()
    try:
        process.start()
        shards, picked = sample(request.examples, request.rows)
        rows = sum(_shard_rows(request.examples))
        expected = _expected(request.predictions.file, picked, rows)
        with Scratch("replay") as folder:
            moved = Path(folder) / "moved"
            shutil.copytree(request.saved_model.file, moved)
            np.save(Path(folder) / "expected.npy", expected, allow_pickle=False)
            answer = process.ask(payload(request, shards, moved, Path(folder) / "expected.npy"), monitor)
    finally:
        process.close()
    if "error" in answer:
        problem = f"the exported model could not be replayed: {answer['error']}"
        raise HeadwayError(problem, where=str(request.saved_model.path))
    if not answer["ok"]:
        raise difference_error(answer, request)
    result = _finite(answer)
    size = sum(path.stat().st_size for path in request.saved_model.file.rglob("*") if path.is_file())
    result["serving"] = {"size_mb": size / 1e6, **result["serving"]}
    (out / "replay.json").write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    monitor.log(
        f"replayed {counted(result['rows'], 'row')} in a fresh process: largest difference "
        f"{result['largest_difference']:.1e} (bound {result['bound']:.0e})"
    )
    monitor.log(serving_text(result))
    if beyond_limits := exceeded_limits(result, request.limits):
        raise HeadwayError(
            f"the exported model costs a server more than export.limits allows: {'; '.join(beyond_limits)}",
            where=str(request.saved_model.path),
            fix="raise the limit; or make the model smaller (model.hidden, model.embedding, fewer words per vocabulary); "
            "latency is measured on this machine, with all that runs beside",
        )
    return result


def sample(examples: Sequence[Examples], rows: int) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Returns which rows to replay: a list of {"path", "rows"}, the number of rows to take from the start of each shard, and
    the indices of these rows among all predictions, int64. In total `rows` rows, or all if there are fewer.

    Shards give their first rows, because a record is read whole anyway. All shards take part, because they differ in the date
    and origin of their rows. DataError: there are no rows."""
    sizes = _shard_rows(examples)
    paths = [str(e.path / s["file"]) for e in examples for s in _shards(e)]
    each = _even_shares(sizes, rows)
    starts = np.cumsum([0, *sizes])[:-1] if sizes else np.zeros(0, np.int64)
    picked = [np.arange(start, start + count) for start, count in zip(starts, each, strict=True)]
    slices = [{"path": path, "rows": int(count)} for path, count in zip(paths, each, strict=True) if count]
    if not slices:
        raise DataError("there are no evaluation rows to replay")
    return slices, np.concatenate(picked)


def _even_shares(sizes: Sequence[int], rows: int) -> list[int]:
    """Returns the number of rows to take from each shard, as even as the sizes allow: in total `rows`, or all there are."""
    shares, remaining = [0] * len(sizes), min(rows, sum(sizes))
    smallest_first = sorted(range(len(sizes)), key=sizes.__getitem__)
    for done, shard in enumerate(smallest_first):
        shares[shard] = min(sizes[shard], -(-remaining // (len(sizes) - done)))
        remaining -= shares[shard]
    return shares


def _shards(examples: Examples) -> list[dict[str, Any]]:
    return list(examples.result["splits"].get(examples.split, {}).get("shards", []))


def _shard_rows(examples: Sequence[Examples]) -> list[int]:
    return [total_rows(shard["rows"]) for e in examples for shard in _shards(e)]


def _expected(predictions: Path, picked: np.ndarray, rows: int) -> np.ndarray:
    """Returns the training process's predictions for the picked rows, float64 [rows] or [rows, classes]."""
    with pq.ParquetFile(predictions) as file:
        if (there := file.metadata.num_rows) != rows:
            raise DataError(
                f"there {agree(there, 'is', 'are')} {counted(there, 'prediction')} of {counted(rows, 'row')}",
                where=str(predictions),
            )
        parts, first = [], 0
        for batch in file.iter_batches(columns=["prediction"]):
            at = picked[(picked >= first) & (picked < first + len(batch))] - first
            parts.append(batch.column(0).take(pa.array(at)))
            first += len(batch)
    values = pa.concat_arrays(parts)
    if pa.types.is_nested(values.type):
        return values.flatten().to_numpy(zero_copy_only=False).reshape(len(picked), -1)
    return values.to_numpy(zero_copy_only=False)


def payload(request: ReplayRequest, shards: list[dict[str, Any]], saved_model: Path, expected: Path) -> dict[str, Any]:
    """Returns the request to the replay script; the docstring of `replay_main` describes its fields."""
    names = tensor_names(request.columns)
    return {
        "saved_model": str(saved_model),
        "spec": feature_spec(request.columns),
        "columns": [
            {
                "name": column.name,
                "tensor": names[column.name],
                "dtype": column.type,
                "nullable": column.nullable,
                "dictionary": column.encoding == "dictionary",
                "shape": list(column.shape),
            }
            for column in request.columns
        ],
        "shards": shards,
        "expected": str(expected),
        "output": OWN_OUTPUT if ":" in request.task else task_of(request.task).output,
        "bound": request.bound,
        "measured": list(MEASURED),
        "timed_seconds": TOLD_SECONDS if request.limits.p99_ms is None else TIMED_SECONDS,
    }


_CAUSES = {
    "random": (
        "gives different predictions when it is called again with the same rows: {what} draws random numbers or keeps state",
        "compute each row from its own columns alone: remove the random op (tf.random.*), or draw only while training "
        "(a Keras layer gets training=True then)",
    ),
    "batch": (
        "gives a row another prediction in another batch: {what} depends on the other rows of the batch, or on the row's place "
        "in it",
        "compute each row from its own columns alone: a mean, maximum, sort or rank over the rows (axis=0, or no axis at all) "
        "becomes one per row (axis=-1) or a transform fitted on the train rows (standardize, quantiles); "
        "BatchNormalization must not be called with training=True",
    ),
    "rounding": (
        "gives predictions that differ by no more than rounding: the train labels spread over {std}, and a float32 of that size "
        "is no more exact",
        "if a few labels are far from the others, such as a stand-in for a missing one, leave them out (source.where: 'y < "
        "1000') or give them weight 0; or predict the label on another scale: label: log(y)",
    ),
    "other": (
        "gives other predictions than the trained one",
        "look for a layer that keeps state in inference, or an output in half precision",
    ),
}
"""{cause: (problem, fix)}. The cause is the one that the replay script found, or "rounding" if the difference is small."""
_ROUNDINGS = 16
"""The number of float32 rounding errors of an output that may add up in a model's last layers."""


def difference_error(answer: dict[str, Any], request: ReplayRequest) -> HeadwayError:
    """Returns the error of a replay whose answer is not `ok`: it tells the largest difference, its cause and the fix."""
    worst = answer["worst"]
    values = ", ".join(f"{name}={value!r}" for name, value in list(worst["columns"].items())[:12])
    expected, exported = (", ".join(number(v) for v in worst[key][:5]) for key in ("expected", "found"))
    cause, std = answer["cause"], request.label_std or 0.0
    if cause == "other" and answer["largest_difference"] <= _ROUNDINGS * float(np.finfo(np.float32).eps) * std:
        cause = "rounding"
    problem, fix = _CAUSES[cause]
    what = f"the preprocess's {some(answer['inputs'], 3, repr)}" if answer.get("inputs") else "the model"
    return HeadwayError(
        f"the exported model {problem.format(what=what, std=number(std))}: {worst['signature']} differs by up to "
        f"{answer['largest_difference']:.2g} (bound {answer['bound']:.0e}); at the worst row training gave {expected}, "
        f"the export {exported} ({values})",
        where=str(request.saved_model.path),
        fix=fix,
    )


def _finite(value: Any) -> Any:
    """Returns the value with None in place of NaN and infinities, since JSON has neither."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def exceeded_limits(result: dict[str, Any], limits: ServingLimits) -> list[str]:
    """Returns a line of text for each limit that the model exceeds, with the measured figure and the limit."""
    serving = result["serving"]
    measured = {"size_mb": serving["size_mb"], "p99_ms": serving["latency"]["1"]["p99_ms"]}
    return [
        f"{name} is {number(measured[name])}, the limit {number(limit)}"
        for name, limit in limits
        if limit is not None and measured[name] > limit
    ]


def serving_text(result: dict[str, Any]) -> str:
    """Returns the measured cost of serving as one line: size, load time and latency."""
    serving = result["serving"]
    latency = ", ".join(
        f"{counted(int(rows), 'row')} p50 {number(figures['p50_ms'])} ms, p99 {number(figures['p99_ms'])} ms"
        for rows, figures in serving["latency"].items()
    )
    size = number(round(serving["size_mb"], 2))
    return f"serving: {size} MB on disk, loaded in {number(round(result['load_seconds'], 2))} s, {latency}"
