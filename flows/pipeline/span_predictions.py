"""The champion's predictions of new spans, one folder for each, which appears whole.

    result = predict_spans(loaded, report)
    result.spans[0].span, result.spans[0].rows           # "2013-05", 2000

`<output>/span=2013-05/` holds part-*.parquet and predictions.json (`beam_jobs.predict`). On a disk it is written beside and then
renamed; in a bucket predictions.json is put last. A span that has a folder is done, whoever made it and whichever champion:
to predict it anew, remove the folder.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from beam_jobs.predict.stage import MANIFEST
from flows.config.pipeline import LoadedPipeline
from flows.config.production import ArrivalConfig
from flows.pipeline.predict import predict
from flows.pipeline.spans import landed
from flows.progress.reporter import Reporter
from headway.config import Frozen
from headway.errors import HeadwayError
from headway.messages import agree, counted
from headway.sources.config import SourceConfig
from headway.sources.discovery.spans import ONE_SPAN, patterns
from headway.storage import filesystem
from headway.storage.atomic_io import sync_path, writing
from headway.storage.bucket import Bucket


class PredictedSpan(Frozen):
    """The predictions of a span, which were made now."""

    span: str
    state: Literal["predicted"] = "predicted"
    rows: int
    quarantined: int
    version: int | None
    output: str

    @property
    def sentence(self) -> str:
        rejected = f"; {self.quarantined:,} rejected, see its quarantine.parquet" if self.quarantined else ""
        return f"{self.span}: {self.rows:,} rows by version {self.version}, in {self.output}{rejected}"


class Predicted(Frozen):
    """What predicting the spans that have landed came to."""

    pipeline: str
    spans: tuple[PredictedSpan, ...]
    there: int
    """How many had predictions before."""
    waiting: dict[str, str]
    """By span that is not complete: what it waits for."""
    output: str

    @property
    def lines(self) -> list[str]:
        nothing = f"nothing to predict: {counted(self.there, 'span')} {agree(self.there, 'has', 'have')} predictions"
        lines = [each.sentence for each in self.spans] or [f"{nothing} in {self.output}"]
        return [*lines, *(f"  {span} waits: {why}" for span, why in self.waiting.items())]


def predict_spans(
    loaded: LoadedPipeline,
    report: Reporter,
    *,
    model: str = "champion",
    since: str = "",
    on_row: Callable[[Sequence[PredictedSpan]], None] = lambda rows: None,
) -> Predicted:
    """Predict each complete span that has no predictions yet, the oldest first; see the module.

    Args:
        model: as `flows.pipeline.predict.predict` takes it.
        since: spans before this one are left alone.
        on_row: called with the spans predicted so far, after each.

    Raises:
        Locked: another process predicts this pipeline's spans.
        HeadwayError: a span cannot be predicted; those before it are done.
    """
    pipeline, store = loaded.pipeline, loaded.open_store()
    source = source_of(loaded)
    store.create()
    found = landed(source, arrival_of(loaded), now=store.clock())
    output = str(pipeline.predictions.output)
    output = output if filesystem.is_remote(output) else str(loaded.folder / output)
    rows: list[PredictedSpan] = []
    there = 0
    with store.lock(f"predict-{pipeline.name}", {"command": "predict"}).held():
        for span in found.complete:
            if span < since:
                continue
            folder = f"{output.rstrip('/')}/span={span}"
            if _is_there(folder):
                there += 1
                continue
            report.check()
            report.note(f"predict {span}")
            rows.append(_predict(loaded, source, span, folder, model, report))
            on_row(rows)
    return Predicted(pipeline=pipeline.name, spans=tuple(rows), there=there, waiting=found.waiting, output=output)


def source_of(loaded: LoadedPipeline) -> SourceConfig:
    """Where the spans to be predicted are."""
    path = loaded.pipeline.predictions.path
    return loaded.pipeline.source if path is None else loaded.pipeline.source.model_copy(update={"path": path})


def arrival_of(loaded: LoadedPipeline) -> ArrivalConfig:
    """When a span to be predicted is complete: a done file is of the source that it stands in."""
    config, path = loaded.pipeline.arrival, loaded.pipeline.predictions.path
    return config if path in (None, loaded.pipeline.source.path) else config.model_copy(update={"done": None})


def glob_of(source: SourceConfig, span: str) -> str:
    """The glob of a span's files: of the ways to write a month, the one that is there."""
    return next(pattern for pattern in patterns(source, span) if span == ONE_SPAN or filesystem.matches(pattern))


def _is_there(folder: str) -> bool:
    if filesystem.is_remote(folder):
        return MANIFEST in Bucket(folder).listing()
    return (Path(folder) / MANIFEST).is_file()


def _predict(
    loaded: LoadedPipeline, source: SourceConfig, span: str, folder: str, model: str, report: Reporter
) -> PredictedSpan:
    glob = glob_of(source, span)
    remote = filesystem.is_remote(folder)
    # a name that readers of a folder of partitions pass over; a call after a crash goes on in it
    aside = folder if remote else str(Path(folder).with_name(f".{Path(folder).name}"))
    try:
        result = predict(
            loaded,
            model=model,
            input=glob,
            output=aside,
            monitor=report.monitor(f"predict {span}"),
            columns=loaded.pipeline.predictions.columns,
        )
    except HeadwayError:
        report.note(f"span {span} was not predicted")
        raise
    if not remote:
        with writing(Path(folder).parent):
            Path(aside).rename(folder)
            sync_path(Path(folder).parent)
    predicted, rejected = result["counts"]["predicted"], result["counts"]["quarantined"]
    return PredictedSpan(span=span, rows=predicted, quarantined=rejected, version=result["version"], output=folder)
