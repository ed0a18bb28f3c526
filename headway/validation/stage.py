"""The validation stage: checks the window against the schema, for enough rows, and for drift from the champion's data.

    result = validate(ValidateRequest(...), out, monitor)
    Validated.model_validate(result).stopping     # what stops the run

Each anomaly has a severity, a message that a person understands, with its numbers, and a fix. The other modules of
`headway.validation` hold the checks; this module calls them.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from headway.config import Frozen
from headway.errors import DataError
from headway.messages import agree, counted, some
from headway.monitor import Monitor
from headway.schema.columns import LABEL, Column, Schema
from headway.stages.refs import Ref
from headway.stages.stage_class import Key, Stage
from headway.statistics.split_statistics import SplitStatistics
from headway.statistics.summary import WindowStatistics
from headway.tabular.splits import SplitConfig
from headway.tasks.table import TaskOrAuto
from headway.validation.anomaly import SEVERITIES, Anomaly, SplitProof, Validated, finding
from headway.validation.config import ValidateConfig
from headway.validation.drift import check_drift, shifted_numbers
from headway.validation.label_checks import check_label, check_vanished_classes, check_weights, is_class, label_kind
from headway.validation.leaks import check_constant, check_leakage, strengths
from headway.validation.units import SampledShards, torn_units
from headway.validation.value_checks import check_columns

VERSION = 13
FILE = "validation.json"
PROOF = "splits.json"
"""The name of the file in which the stage of the leakage proof leaves its result."""
MOST_UNLABELLED = 0.1
"""The share of rows without a label above which validation warns."""


class SpanFacts(Frozen):
    """What validation needs of one span: its row counts, and which ingest output they are from."""

    span: str
    read: int
    written: int
    quarantined: int
    filtered: int
    ingested: str = ""
    """The fingerprint of the ingest output of the span."""

    def as_key(self) -> object:
        return [self.span, self.ingested]


class ChampionStatistics(Frozen):
    """What validation needs of the champion, the version in use: its name and the statistics of its training data."""

    name: str
    """The champion's name in messages: `version 3 (2013-01 to 2013-06)`."""
    statistics: Ref[WindowStatistics] | None
    """The statistics of the champion's training data. None: the store no longer has them."""

    def as_key(self) -> object:
        return {"name": self.name, "statistics": self.statistics}


class ValidateRequest(Stage[Validated]):
    name, version, runs = "validate", VERSION, "headway.validation.stage:validate"
    config: Annotated[ValidateConfig, Key(of=lambda c: c.model_dump(mode="json", exclude={"serving"}), always=True)] = (
        ValidateConfig()
    )
    served: Annotated[dict[str, int | str] | None, Key("serving", always=True)] = None
    """The size and checksum of the file of serving rows. None: there is no such file."""
    schema_: Annotated[Schema, Key("schema", of=Schema.digest)] = Field(alias="schema")
    task: Annotated[TaskOrAuto, Key(always=True)] = "auto"
    columns: Annotated[tuple[Column, ...], Key("features", always=True)] = ()
    """The features as they are stored. Serving rows are read in these types."""
    champion: Annotated[ChampionStatistics | None, Key(always=True)] = None
    split: Annotated[SplitConfig | None, Key(of=lambda split: split and split.at_ingest(), always=True)] = None
    """How rows were split. None: the splits are not compared with each other."""
    unread: Annotated[tuple[str, ...], Key()] = ()
    """The columns of the newest files that are not in the schema."""
    statistics: Annotated[Ref[WindowStatistics], Key("inputs", "statistics")]
    """The statistics of the window, with a folder for each split."""
    proof: Annotated[Ref[SplitProof] | None, Key("inputs", "splits", always=True)] = None
    """The result of the leakage proof. None: nothing is reported on keys and times."""
    spans: Annotated[tuple[SpanFacts, ...], Key("inputs", "spans")]
    splits: tuple[str, ...]
    stored: tuple[str, ...] = ()
    """The columns that each split's statistics must have."""
    weight: str | None = None
    """The column that says how much a row counts. None: all rows count the same."""
    features: tuple[str, ...] | None = None
    """The columns that the model learns from. None: all but the label."""
    auto: Annotated[tuple[str, ...], Key()] = ()
    """The features whose transform is chosen automatically. Identifiers and columns with one value are then left out."""
    serving: Path | None = None
    """The file of serving rows. None: there are none to compare."""
    filters: bool = True
    """Whether the pipeline has a filter (source.where). If not, all rows that ingest left out lack a label."""
    rows: SampledShards | None = None
    """The train and eval rows in which to look for a unit, such as a patient. None: no unit is looked for."""


def validate(request: ValidateRequest, out: Path, monitor: Monitor) -> dict[str, Any]:
    """Checks the window. Logs each anomaly that is no error, writes out/validation.json and returns it, a `Validated` as JSON. An
    anomaly never fails the stage: the result is kept, and the caller decides by `Validated.stopping`."""
    known = request.schema_.columns
    splits = {name: SplitStatistics.load(request.statistics.file / name).with_units(known) for name in request.splits}
    alone = _strengths(request, splits)
    raised = [
        *_spans(request),
        *_source(request),
        *_splits(request, splits),
        *_content(request, splits, alone),
        *_champion(request, splits),
        *_serving(request, splits),
        *_units(request, splits),
        *(proof := _proof(request)).anomalies,
    ]
    anomalies = [settled for anomaly in raised if (settled := request.config.with_severity(anomaly)) is not None]
    anomalies.sort(key=lambda anomaly: SEVERITIES.index(anomaly.severity))
    found = Validated(
        anomalies=tuple(anomalies),
        errors=sum(anomaly.severity == "error" for anomaly in anomalies),
        warnings=sum(anomaly.severity == "warning" for anomaly in anomalies),
        splits=_table(splits, proof) if request.split is not None else (),
        proof=proof.says,
        strengths={name: round(score, 6) for name, score in alone.items()},
    )
    result = found.model_dump(mode="json")
    (out / FILE).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for anomaly in anomalies:
        if anomaly.severity != "error":  # those end the run, which says them
            monitor.log(f"{anomaly.severity}: {anomaly.message}")
    return result


def _proof(request: ValidateRequest) -> SplitProof:
    """Returns the result of the leakage proof, an empty one if there was no proof. DataError if its file is damaged."""
    if request.proof is None:
        return SplitProof()
    path = request.proof.file / PROOF
    try:
        return SplitProof.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read: {error}", where=str(path), fix="delete its folder and run again") from None


def _table(splits: Mapping[str, SplitStatistics], proof: SplitProof) -> tuple[dict[str, int | str], ...]:
    """Returns the table of splits, a row per split: rows, share, keys and times. All rows have the same cells. A cell is empty if
    the split has no such figure."""
    total, table = sum(statistics.rows for statistics in splits.values()), list[dict[str, int | str]]()
    for name, statistics in splits.items():
        share = statistics.rows / total if total else 0.0
        row: dict[str, int | str] = {"split": name, "rows": statistics.rows, "share": f"{share:.2%}"}
        facts = {fact.replace("_", " "): value for fact, value in proof.splits.get(name, {}).items() if fact != "rows"}
        table.append(row | facts)
    cells = dict.fromkeys(cell for row in table for cell in row)
    return tuple({cell: row.get(cell, "") for cell in cells} for row in table)


def _spans(request: ValidateRequest) -> Iterator[Anomaly]:
    for span in request.spans:
        if _rejects_too_many(span, request):
            share = span.quarantined / span.read
            message = f"{span.quarantined:,} of {span.read:,} rows of span {span.span} ({share:.2%}) "
            message += f"{agree(span.quarantined, 'was', 'were')} rejected; at most {request.config.max_quarantined:.2%} may be"
            fix = "headway quarantine shows them; mend the files, say what a column has become (type: float, for real "
            fix += "numbers among integers), or raise validation.max_quarantined"
            limit = request.config.max_quarantined
            yield finding("error", "quarantine", span.span, message, fix, value=share, expected=limit)
        if not span.written:
            message = f"span {span.span} has no rows left: {span.read:,} read, {span.filtered:,} filtered, "
            message += f"{span.quarantined:,} rejected"
            fix = "check source.where and the label"
            yield finding("error" if len(request.spans) == 1 else "warning", "empty span", span.span, message, fix)


def _rejects_too_many(span: SpanFacts, request: ValidateRequest) -> bool:
    return span.quarantined > request.config.max_quarantined * span.read


def _source(request: ValidateRequest) -> Iterator[Anomaly]:
    """Yields findings on what ingest left out: rejected rows, rows without a label, columns that are not in the schema."""
    read, rejected, filtered = (
        sum(getattr(span, what) for span in request.spans) for what in ("read", "quarantined", "filtered")
    )
    if rejected and not any(_rejects_too_many(span, request) for span in request.spans):
        message = f"{rejected:,} of {read:,} rows ({rejected / read:.2%}) {agree(rejected, 'was', 'were')} rejected"
        yield finding("warning", "quarantine", None, message, "headway quarantine shows them with the reasons")
    if not request.filters and filtered > MOST_UNLABELLED * read:
        message = f"{filtered:,} of {read:,} rows ({filtered / read:.0%}) have no label and are left out"
        fix = "check the label's column: is it filled later, or only for some rows? Say which by source.where"
        yield finding("warning", "label", None, message, fix, column=LABEL)
    if request.unread:
        unread = len(request.unread)
        message = f"{agree(unread, 'column', 'columns')} {some(request.unread, 5, repr)} of the newest files "
        message += f"{agree(unread, 'is', 'are')} not in the schema and left out"
        fix = "headway schema --columns says what to add to the schema file, or say ignore under columns"
        yield finding("warning", "new column", None, message, fix)


def _splits(request: ValidateRequest, splits: dict[str, SplitStatistics]) -> Iterator[Anomaly]:
    minimums = {"train": request.config.min_train_rows, "eval": request.config.min_eval_rows}
    empty = [span.span for span in request.spans if not span.written]
    for name, least in minimums.items():
        rows = splits[name].rows if name in splits else 0
        if rows < least:
            message = f"the {name} split has {counted(rows, 'row')}; at least {least:,} are needed"
            fix = "widen the window, or change the split"
            if empty and len(request.spans) > 1:
                which = f"{agree(len(empty), 'span', 'spans')} {some(empty, 3)} {agree(len(empty), 'has', 'have')}"
                fix = f"{which} no rows: bring them, end the window before (--until), or change the split"
            yield finding("error", "too few rows", name, message, fix, value=rows, expected=least)
    for name in sorted(set(splits) - set(minimums)):
        if not splits[name].rows:
            message = f"the {name} split has no rows"
            fix = "widen the window, or change the split"
            yield finding("warning", "too few rows", name, message, fix)


def _features(request: ValidateRequest, train: SplitStatistics) -> list[str]:
    chosen = None if request.features is None else set(request.features)
    return [name for name in train.columns if name != LABEL and (chosen is None or name in chosen)]


def _left_out(request: ValidateRequest) -> set[str]:
    """Returns the identifiers that the automatic transform leaves out. Their new values in new rows are no drift."""
    return {column.name for column in request.schema_.columns if column.meaning == "identifier"} & {*request.auto}


def _strengths(request: ValidateRequest, splits: dict[str, SplitStatistics]) -> dict[str, float]:
    """Returns by feature how well it alone predicts the label of train rows. Empty if there are no such rows or no label."""
    train = splits.get("train")
    label = None if train is None else train.columns.get(LABEL)
    if train is None or label is None or not train.rows:
        return {}
    return strengths(train, _features(request, train), label_kind(request.task, label))


def _content(
    request: ValidateRequest, splits: dict[str, SplitStatistics], alone: dict[str, float]
) -> Iterator[Anomaly]:
    train = splits.get("train")
    train_label = train.columns.get(LABEL) if train is not None else None
    first = min((span.span for span in request.spans), default="")
    later = {column.name for column in request.schema_.columns if column.since is not None and column.since > first}
    for name, statistics in splits.items():
        if statistics.rows:
            yield from check_columns(name, statistics, request.schema_, request.stored, request.config, later)
            if request.weight in statistics.columns:
                yield from check_weights(name, statistics.columns[request.weight])
            if LABEL in statistics.columns:
                yield from check_label(name, statistics.columns[LABEL], train_label, request.task, request.config)
    if train is None or not train.rows:
        return
    for name in train.columns:
        if name != LABEL and name in request.schema_ and name not in request.auto:
            yield from check_constant(train.columns[name])
    if request.split is not None and request.split.mode != "hash":
        for name in sorted({*splits} - {"train"}):
            learned = {*_features(request, train)} - _left_out(request)
            yield from shifted_numbers(name, splits[name], train, learned, by_time=request.split.by_time)
    if train_label is not None:
        yield from check_leakage(train, alone, label_kind(request.task, train_label), request.config.leakage)


def _units(request: ValidateRequest, splits: dict[str, SplitStatistics]) -> Iterator[Anomaly]:
    train = splits.get("train")
    label = None if train is None else train.columns.get(LABEL)
    if request.rows is not None and train is not None and label is not None and label.present:
        yield from torn_units(request.rows, train, label_kind(request.task, label))


def _champion(request: ValidateRequest, splits: dict[str, SplitStatistics]) -> Iterator[Anomaly]:
    champion, train = request.champion, splits.get("train")
    if champion is None or train is None or not train.rows:
        return
    try:
        theirs = SplitStatistics.load(champion.statistics.file / "train") if champion.statistics is not None else None
    except DataError:
        theirs = None
    if theirs is None:
        message = f"drift was not checked: the statistics of {champion.name} are not in the store"
        fix = "nothing to do: the next champion keeps them"
        yield finding("info", "drift", "train", message, fix)
        return
    for anomaly in check_drift(train, theirs, champion.name, request.config):
        if anomaly.column not in _left_out(request):
            yield anomaly
    ours, before = train.columns.get(LABEL), theirs.columns.get(LABEL)
    if ours is not None and before is not None and ours.type == before.type:
        classes = is_class(request.task, before) and ours.complete
        if classes and label_kind(request.task, before) != "regression":
            yield from check_vanished_classes(ours, before, champion.name)


def _serving(request: ValidateRequest, splits: dict[str, SplitStatistics]) -> Iterator[Anomaly]:
    train = splits.get("train")
    if request.serving is None or train is None or not train.rows:
        return
    from headway.validation.serving import serving_rows  # and the readers of its formats

    served = serving_rows(request.serving, request.columns)
    unfit, reason = served.unfit
    if unfit:
        message = f"{unfit:,} of {served.rows:,} serving rows "
        message += f"{agree(unfit, 'is broken or does', 'are broken or do')} not fit, first {reason}"
        fix = "mend the client, or the column's type in the pipeline"
        yield finding("warning", "serving rows", "serving", message, fix)
    yield from check_drift(
        served.statistics, train, "the train rows", request.config, rows="serving rows", where="serving"
    )
