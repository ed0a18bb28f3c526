"""`headway predict`: chooses the model, the files and the columns, then runs the Beam job.

    result = predict(loaded, model="champion", input="data/2013-05.parquet", output=Path("scored"), monitor=Monitor())

The columns a model takes travel with it (`tfcore.export.metadata`), so that a version is used as it was trained whatever has
become of the pipeline since.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from beam_jobs.predict.model import model_digest
from beam_jobs.predict.request import Passed, PredictRequest
from beam_jobs.predict.stage import predict as run
from flows.config.pipeline import LoadedPipeline
from headway.errors import ConfigError
from headway.monitor import Monitor
from headway.registry.leases import reading
from headway.registry.pointers import CHAMPION, PREVIOUS
from headway.registry.registry import Registry
from headway.schema.pbtxt import from_text
from headway.sources.base import InputFile
from headway.sources.config import SourceConfig
from headway.sources.discovery.spans import ONE_SPAN, files
from tfcore.export.metadata import ModelMetadata, describe_model

LOADER = "tfcore.export.predictor:load"
_TYPED = ("parquet", "arrow")
"""Formats whose columns have types; one that only goes through keeps its own."""


def predict(
    loaded: LoadedPipeline,
    *,
    model: str,
    input: str,
    output: Path | str,
    monitor: Monitor,
    format: str | None = None,
    columns: Sequence[str] | None = None,
    write: Literal["parquet", "jsonl"] = "parquet",
    max_quarantined: float | None = None,
) -> dict[str, Any]:
    """Predict `input` with `model` (a version's number, champion, previous, an alias, or a
    SavedModel's folder) into `output`: a folder, or one of a bucket, s3://bucket/path or gs://bucket/path.

    Args:
        format: of the input; the pipeline's own by default.
        columns: to go through to the output; the pipeline's keys by default.
        max_quarantined: the share of rows that may be rejected; the pipeline's own by default.

    Returns:
        What `beam_jobs.predict.stage.predict` returns, with "saved_model", "version" (None for a folder) and "task".

    Raises:
        ConfigError, DataError, StoreError: see there; or there is no such model.
    """
    with find_model(loaded, model, monitor.log) as (folder, version):
        described = describe_model(folder)
        pipeline = loaded.pipeline
        changes = {"path": input, "where": None} | ({"format": format} if format else {})
        source = SourceConfig.model_validate(pipeline.source.model_dump() | changes)
        request = PredictRequest(
            files=_files(source),
            source=source,
            columns=described.columns,
            model=str(folder),
            model_url=None if version is None else loaded.open_store().url(folder),
            digest=model_digest(folder),
            loader=LOADER,
            passthrough=tuple(_passed(loaded, described, source, columns)),
            write=write,
        )
        bound = pipeline.validation.max_quarantined if max_quarantined is None else max_quarantined
        result = run(request, output, monitor, runner=pipeline.runner, max_quarantined=bound)
        about = {"saved_model": str(folder), "version": version, "task": described.task}
        return result | about | {"output": str(output)}


def _files(source: SourceConfig) -> tuple[InputFile, ...]:
    """The files of the input; an error names the input rather than the pipeline's source."""
    try:
        return files(source, ONE_SPAN)
    except ConfigError as error:
        where = (error.where or "").replace("source.path", "--input")
        raise ConfigError(error.problem, where=where, fix=error.fix) from None


@contextlib.contextmanager
def find_model(
    loaded: LoadedPipeline, model: str, note: Callable[[str], None] = lambda text: None
) -> Iterator[tuple[Path, int | None]]:
    """Yield the folder of a SavedModel, and its version if it is registered, which is not removed until the block ends.

    Raises:
        StoreError: there is no champion, or no such version.
        ConfigError: it is neither a version nor a folder.
    """
    registry = Registry(loaded.open_store(), loaded.pipeline.name)
    if is_version(registry, model):
        with reading(registry, model, "predict", note=note) as version:
            registry.store.localize([version.saved_model])
            yield version.saved_model, version.number
    elif Path(model).is_dir():
        yield Path(model).resolve(), None
    else:
        problem = f"{model!r} is neither 'champion', nor a version's number, nor an alias, nor a folder"
        fix = "headway models lists the versions and the aliases; or name the folder of a SavedModel"
        raise ConfigError(problem, where="--model", fix=fix)


def is_version(registry: Registry, name: str) -> bool:
    """Whether a name is a version's rather than a folder's."""
    return name.isdecimal() or name in (CHAMPION, PREVIOUS) or registry.alias(name) is not None


def _passed(
    loaded: LoadedPipeline, described: ModelMetadata, source: SourceConfig, columns: Sequence[str] | None
) -> list[Passed]:
    """The columns that go through; by default the keys, by role, then those of the split. Text formats give them the type
    of the model or the pipeline's schema, if one has it."""
    path = loaded.schema_file
    schema = from_text(path.read_text(encoding="utf-8"), where=str(path)).columns if path.is_file() else ()
    columns_by_name = {column.name: column for column in (*schema, *described.columns)}
    inputs = {column.name for column in described.columns}
    passed = []
    for name in dict.fromkeys(itertools.chain(*loaded.pipeline.keys) if columns is None else columns):
        column = columns_by_name.get(name) if source.format not in _TYPED else None
        if column is not None and name not in inputs:
            column = column.model_copy(update={"nullable": True})  # a key that is missing costs no prediction
        passed.append(Passed(name=name, column=column))
    return passed
