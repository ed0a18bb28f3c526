"""Two versions of a model, or two runs, compared.

found = compare(registry, "4", "champion")
found.ending.headline, found.same.metrics["auc"].difference
found.value                              # what `headway compare --json` prints
found.path                               # where its page is kept: <store>/runs/compare-flights-4-5.html
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pydantic import ConfigDict, Field, JsonValue, ValidationError, computed_field

from flows.config.pipeline import Pipeline
from flows.records import LATEST, Code, RunRecord, State, StepRecord, find, record_of
from flows.report.results import RunResults
from flows.report.verdict import Ending, Tone
from flows.report.versions import UNCLEAR, change_text, names_of, outcome_of
from headway.config import Frozen
from headway.errors import ConfigError, HeadwayError
from headway.evaluation.bootstrap import paired
from headway.evaluation.gate_checks import check_same_rows, read_predictions
from headway.evaluation.metrics import metrics_of, rows_of
from headway.evaluation.results.intervals import intervals
from headway.evaluation.slices import slice_rows
from headway.evaluation.verdict import Check
from headway.messages import capital, counted, listed
from headway.metrics.base import Better, Metric, Rows
from headway.registry.gc import COMPARED
from headway.registry.registry import Registry, Version
from headway.registry.versions import numbers
from headway.schema.columns import LABEL
from headway.storage.fingerprint import fingerprint
from headway.storage.manifest import Manifest
from headway.storage.store import Store
from headway.tasks.table import task_of

CONFIDENCE = 0.95
"""Of every interval of a comparison."""
RUN = re.compile(r"\d{8}-?[\da-f-]*")
"""How the name of a run begins; no model has so many versions."""
_MADE = (State.PROMOTED, State.NAMED)
"""States of runs whose version is their own."""
Interval = tuple[float, float]
Settings = Mapping[str, JsonValue]
Columns = Mapping[str, Settings]
"""What is known of each, its type first."""


class Figure(Frozen):
    """A metric of one side."""

    value: float | None
    interval: Interval | None = None


class Spans(Frozen):
    train: tuple[str, ...] = ()
    eval: tuple[str, ...] = ()


class Decided(Frozen):
    """The gate's decision, in words."""

    model_config = ConfigDict(extra="ignore")

    verdict: str | None = None
    reasons: tuple[str, ...] = ()
    champion: int | None = None
    """The version that it was compared with."""


class Side(Frozen):
    """A version or a run. What `--json` has of it comes first."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: str
    title: str = Field(serialization_alias="is")
    """ "version 4", or "run 20261123-000714-4081"."""
    version: int | None = None
    names: tuple[str, ...] = ()
    """What it stands as: champion, an alias; of a run its state."""
    created: str
    run: str | None
    spans: Spans
    bytes: int | None = None
    verdict: Decided
    evaluated: dict[str, str]
    """Evaluations by title."""
    measured: str | None
    task: str | None
    rows: Mapping[str, int] = {}
    """By split."""
    counts: Mapping[str, int] = {}
    """Rows from the files: read, written, filtered, quarantined."""
    metrics: Mapping[str, Figure] = {}
    problem: str | None = None
    """Why there are no intervals."""

    results: RunResults = Field(exclude=True)
    config: Settings | None = Field(exclude=True)
    code: Code | None = Field(exclude=True)
    inputs: Columns | None = Field(default=None, exclude=True)
    """The columns that a version's model takes."""
    files: Mapping[str, str] = Field(default={}, exclude=True)
    """The digest of each span's raw files, where it was kept."""
    letter: str = Field(default="", exclude=True)
    """A or B."""

    @property
    def label(self) -> str:
        """The side's name for a heading: "version 4", or "run A", whose name would be too long."""
        return self.title if self.version is not None else f"run {self.letter}"

    @property
    def columns(self) -> Columns | None:
        """Those of its train rows, without the label; None where their statistics are gone."""
        summaries = self.results.statistics.of("train")
        return {name: {"type": of.type} for name, of in summaries.items() if name != LABEL} if summaries else None


def named_side(registry: Registry, name: str, letter: str = "") -> Side:
    """Find a version by number, champion, previous or an alias, or a run by its name or as "latest"; of a run that made a
    version, that one.

    Raises:
        StoreError: there is none, or there are several.
        ConfigError: the run is of another pipeline.
    """
    is_run = RUN.fullmatch(name) or (name == LATEST and name not in registry.aliases())
    if not is_run:
        return _of_version(registry, registry.named(name), letter)
    record = find(registry.store, name, pipeline=registry.name)
    if record.pipeline != registry.name:
        problem = f"run {record.run} is of the pipeline {record.pipeline}, not of {registry.name}"
        raise ConfigError(problem, fix="name two runs of one pipeline")
    if record.state in _MADE and record.version in numbers(registry.store, registry.folder):
        return _of_version(registry, registry.version(record.version or 0), letter)
    return _of_run(registry, record, letter)  # also where its version was removed


def _of_version(registry: Registry, version: Version, letter: str) -> Side:
    from tfcore.export.metadata import FILE, describe_model

    lineage, store, facts = registry.lineage(version), registry.store, version.facts
    manifest = store.manifest(version.path)
    try:
        store.localize([version.saved_model / FILE, version.saved_model / "saved_model.pb"])
        inputs = {c.name: c.model_dump(mode="json") for c in describe_model(version.saved_model).columns}
    except HeadwayError:
        inputs = None
    run = lineage["run"]["run"]
    # of a version whose run is no longer recorded
    known = RunRecord(run=run or "", pipeline=registry.name, state=State.PROMOTED, started="", version=version.number)
    stages = tuple(StepRecord.model_validate(stage) for stage in lineage["stages"])
    record = record_of(store, run) or known
    results = RunResults(store, record.model_copy(update={"stages": stages}))
    evaluated = {stage.title: stage.fingerprint for stage in stages if stage.stage == "evaluate"}
    return _measured(
        Side(
            name=str(version.number),
            title=f"version {version.number}",
            version=version.number,
            names=names_of(registry, version.number),
            created=version.created,
            run=run,
            spans=_spans(lineage["parts"]),
            bytes=sum(entry.bytes for entry in manifest.files) if manifest else None,
            verdict=Decided.model_validate(lineage["verdict"] | {"champion": lineage["champion"]}),
            evaluated=evaluated | ({"evaluate": facts["evaluation"]} if facts.get("evaluation") else {}),
            measured=next((stage.fingerprint for stage in stages if stage.title == "measure"), None),
            task=facts.get("task"),
            results=results,
            config=lineage["config"],
            code=Code.model_validate(lineage["code"]) if lineage["code"] else None,
            inputs=inputs,
            files=facts.get("data") or {},
            letter=letter,
        ),
        facts.get("metrics") or {},
    )


def _of_run(registry: Registry, record: RunRecord, letter: str) -> Side:
    results = RunResults(registry.store, record)
    stages = {step.title: step.fingerprint for step in record.stages}
    return _measured(
        Side(
            name=record.run,
            title=f"run {record.run}",
            names=(str(record.state),),
            created=record.started,
            run=record.run,
            spans=_spans((results.key("splits").get("inputs") or {}).get("parts") or {}),
            verdict=_decided(record),
            evaluated={step.title: step.fingerprint for step in record.stages if step.stage == "evaluate"},
            measured=stages.get("measure"),
            task=results.measured.task if results.measured is not None else None,
            results=results,
            config=whole(record.config),
            code=record.code,
            files=_files(results),
            letter=letter,
        ),
        record.metrics,
    )


def _decided(record: RunRecord) -> Decided:
    champion = record.champion.version if record.champion else None
    if (verdict := record.verdict) is None:
        return Decided(champion=champion)
    return Decided(verdict=verdict.verdict, reasons=tuple(verdict.sentences), champion=champion)


def _spans(parts: Mapping[str, list[list[str]]]) -> Spans:
    return Spans.model_validate({split: [part[0] for part in parts.get(split, [])] for split in ("train", "eval")})


def _files(results: RunResults) -> dict[str, str]:
    """The digest of each span's raw files, as versions keep it."""
    known = {span: results.key(output.title).get("files") for span, output in results.ingested().items()}
    return {
        span: fingerprint({"files": [[file["bytes"], file["crc32c"]] for file in files]})
        for span, files in known.items()
        if files
    }


def whole(config: Settings | None) -> Settings | None:
    """A config with its defaults, as versions keep it; as it is where this Headway does not read it."""
    try:
        return None if config is None else Pipeline.model_validate(config).model_dump(mode="json")
    except (ValidationError, HeadwayError):
        return config


# --- what it scored


def _measured(side: Side, metrics: Mapping[str, object]) -> Side:
    """The side with its rows and its metrics, these with their intervals."""
    counts: dict[str, int] = {}
    for output in side.results.ingested().values():
        for name, count in ((output.result or {}).get("counts") or {}).items():
            counts[name] = counts.get(name, 0) + count
    values = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    measured = side.results.measured
    known: Mapping[str, Interval | None] = measured.intervals if measured is not None else {}
    problem = None
    if values and (not known or measured is None or measured.confidence != CONFIDENCE):
        known, problem = _intervals(side)
    figures = {name: Figure(value=value, interval=known.get(name)) for name, value in values.items()}
    rows = side.results.statistics.rows
    return side.model_copy(update={"rows": rows, "counts": counts, "metrics": figures, "problem": problem})


def _intervals(side: Side) -> tuple[Mapping[str, Interval | None], str | None]:
    """The intervals of the metrics from its predictions, or why there are none."""
    from headway.evaluation.results.intervals import intervals

    settings = side.results.key("measure")
    table = predictions(side.results.store, side.evaluated.get("evaluate"), settings.get("group"))
    if table is None or side.task is None:
        return {}, "its predictions are no longer in the store, so there are no intervals"
    if ":" in side.task:
        return {}, "its task is one of your own, so there are no intervals"
    judged = Judged.model_validate({**settings, "task": side.task})
    return intervals(judged.rows(table), judged.metrics, confidence=CONFIDENCE), None


def predictions(store: Store, evaluation: str | None, group: str | None) -> pa.Table | None:
    """The predictions of an evaluation that the store still has; None when they are gone."""
    manifest = store.find("evaluate", evaluation) if evaluation else None
    if manifest is None or evaluation is None or "predictions" not in manifest.result:
        return None
    path = store.output("evaluate", evaluation) / manifest.result["predictions"]
    store.localize([path])
    return read_predictions(path, group=group)


class Judged(Frozen):
    """How a run judges predictions: its task, and of a ranking the group, the item and how many ranks."""

    model_config = ConfigDict(extra="ignore")

    task: str
    group: str | None = None
    item: str | None = None
    ndcg_at: int | None = None

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return metrics_of(self.task, self.ndcg_at, item=self.item)

    def rows(self, table: pa.Table) -> Rows:
        """The rows of a predictions table; those of one group belong together."""
        read = tuple(name for name in (self.group, self.item) if name) if self.ndcg_at is not None else ()
        return rows_of(table, self.task, self.group, columns=read)


class Spread(Frozen):
    """A metric of both on the same rows."""

    difference: float | None
    """B - A"""
    interval: Interval | None
    a: float | None
    b: float | None

    def check(self, metric: str, better: Better | None, **where: object) -> Check:
        """The same as a check, whose change is B - A."""
        known = {"before": self.a, "value": self.b, "change": self.difference, "interval": self.interval}
        return Check.model_validate(
            {"name": "same rows", "metric": metric, "better": better, "outcome": "", **known, **where}
        )


class OnSlice(Frozen):
    """A metric of both on the rows of a slice."""

    slice: str
    value: str
    rows: int
    metric: str
    a: Figure
    b: Figure
    difference: float | None
    interval: Interval | None

    def check(self, better: Better | None) -> Check:
        """The same as a check, whose change is B - A."""
        both = Spread(difference=self.difference, interval=self.interval, a=self.a.value, b=self.b.value)
        return both.check(self.metric, better, slice=self.slice, slice_value=self.value, rows=self.rows)


class SameRows(Frozen):
    """Both on rows that both scored."""

    rows: int
    spans: tuple[str, ...]
    """That the rows come from."""
    run: str | None
    """That scored them with both; None: each one's own run did."""
    metrics: dict[str, Spread]
    slices: tuple[OnSlice, ...]


@dataclass(frozen=True)
class Scored:
    """What `on_the_same_rows` found."""

    same: SameRows
    rows: tuple[Rows, Rows]


def on_the_same_rows(store: Store, a: Side, b: Side) -> Scored | None:
    """Return B - A on rows that both scored: from B's run if A was its champion, or the reverse, or each from its own run on
    the same eval rows; None without such rows."""
    task = a.task
    if task != b.task or task is None or ":" in task:
        return None
    for host, guest in ((b, a), (a, b)):
        other = host.evaluated.get(f"evaluate champion {guest.version}")
        own, guests = host.evaluated.get("evaluate"), guest.evaluated.get("evaluate")
        run = host.run if other is not None else None
        if other is None and _examples(store, own) is not None:
            other = guests if _examples(store, own) == _examples(store, guests) else None
        measured = store.find("measure", host.measured) if host.measured else None
        judged = Judged.model_validate({**(measured.key if measured else {}), "task": task})
        mine, theirs = (predictions(store, each, judged.group) for each in (own, other))
        if mine is None or theirs is None:
            continue
        check_same_rows(mine, theirs, f"{guest.title}'s", other or "")
        tables = {host.name: mine, guest.name: theirs}
        first, second = (judged.rows(tables[side.name]) for side in (a, b))
        directed = [metric for metric in judged.metrics if metric.higher_is_better is not None]
        metrics = {
            name: Spread(
                difference=each.difference, interval=each.interval(CONFIDENCE), a=each.champion, b=each.candidate
            )
            for name, each in paired(second, first.prediction, metrics=directed).items()
        }
        slices = () if measured is None else _on_slices(measured, judged, mine, first, second)
        return Scored(
            SameRows(rows=len(mine), spans=host.spans.eval, run=run, metrics=metrics, slices=slices), (first, second)
        )
    return None


def _examples(store: Store, fingerprint: str | None) -> object:
    """What an evaluation scored: fingerprints of spans, and the split of each; None when that is not known."""
    manifest = store.find("evaluate", fingerprint) if fingerprint else None
    return None if manifest is None else (manifest.key.get("inputs") or {}).get("examples")


def _on_slices(measured: Manifest, judged: Judged, table: pa.Table, a: Rows, b: Rows) -> tuple[OnSlice, ...]:
    """Both sides on each slice that the run measured, by the metrics that the gate compares."""
    known = {metric.name: metric for metric in judged.metrics}
    metrics = [known[name] for name in ("ndcg", *task_of(judged.task).tolerances) if name in known]
    found = []
    for name in measured.key["slices"]:
        for value, at in slice_rows(table, name, measured.key["config"]["slice_min_rows"]):
            sides = [rows.at(at) for rows in (a, b)]
            ranges = [intervals(rows, metrics, confidence=CONFIDENCE) for rows in sides]
            spreads = paired(sides[1], sides[0].prediction, metrics=metrics)
            for metric in metrics:
                one, other = (
                    Figure(value=metric.on(rows), interval=each[metric.name])
                    for rows, each in zip(sides, ranges, strict=True)
                )
                spread = spreads[metric.name]
                found.append(
                    OnSlice(
                        slice=name,
                        value=value,
                        rows=len(at),
                        metric=metric.name,
                        a=one,
                        b=other,
                        difference=spread.difference,
                        interval=spread.interval(CONFIDENCE),
                    )
                )
    return tuple(found)


_TONES: dict[str, Tone] = {"better": "green", "worse": "red"}


class Differs(Frozen):
    """A setting, or a part of the code; None stands for one that a side lacks."""

    key: str
    a: JsonValue
    b: JsonValue


class ColumnsApart(Frozen):
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    changes: tuple[tuple[str, str], ...] = Field(exclude=True)
    """(column of both, what of it differs)"""

    @computed_field
    def changed(self) -> list[str]:
        return [f"{name}: {change}" for name, change in self.changes]


class DataApart(Frozen):
    """The training spans that only one side has, and those whose raw files changed in between."""

    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    files_changed: tuple[str, ...]


class Compared(Frozen):
    """What differs between A and B, and what they are worth."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    a: Side
    b: Side
    same: SameRows | None = Field(serialization_alias="difference")
    """None: no rows that both scored."""
    no_difference: str | None
    config: tuple[Differs, ...]
    code: tuple[Differs, ...] | None
    """None: it was not kept of both."""
    columns: ColumnsApart | None
    data: DataApart

    pipeline: str = Field(exclude=True)
    store: Store = Field(exclude=True)
    scored: tuple[Rows, Rows] | None = Field(exclude=True)
    """Of `same`, both sides' in one order."""

    @property
    def primary(self) -> tuple[str | None, Better | None]:
        """The metric that decides and which values of it are better, as the gate of a side has them, else the task; (None, None)
        where no metric is known of both."""
        both = [name for name in self.a.metrics if name in self.b.metrics]
        for side in (self.b, self.a):
            verdict = side.results.verdict
            if verdict is not None and verdict.primary in both:
                return verdict.primary, verdict.better
        task = self.a.task
        if task is not None and ":" not in task and task_of(task).primary in both:
            return task_of(task).primary, None
        return (both[0], None) if both else (None, None)

    @property
    def apart(self) -> list[Check]:
        """B against A by every metric on the same rows; that which decides comes first."""
        primary, better = self.primary
        found = self.same.metrics if self.same is not None else {}
        return [
            each.check(name, better if name == primary else None)
            for name, each in sorted(found.items(), key=lambda item: item[0] != primary)
        ]

    @property
    def ending(self) -> Ending:
        """The comparison in one sentence, and what differs between the two."""
        word, tone, headline = self._said()
        said = f"What differs: {_differing(self) or 'nothing in data, columns, settings or code, as far as they were kept'}."
        problems = tuple(f"{side.title}: {side.problem}" for side in (self.a, self.b) if side.problem)
        return Ending(word=word, tone=tone, headline=capital(headline), reasons=(said,), concerns=problems)

    def _said(self) -> tuple[str, Tone, str]:
        """(word, tone, headline)"""
        a, b, same = self.a, self.b, self.same
        if without := [side.title for side in (a, b) if not side.metrics]:
            has = "has" if len(without) == 1 else "have"
            return "not evaluated", "plain", f"{' and '.join(without)} {has} no metrics: nothing was evaluated."
        cannot = "It cannot be told which one is better"
        if a.task != b.task:
            if None in (a.task, b.task):
                return "not compared", "amber", f"{cannot}: {self.no_difference}."
            known = [f"{side.title} has the task {side.task}" for side in (a, b)]
            return "different tasks", "plain", f"{known[0]}, {known[1]}: their metrics do not compare."
        metric, _ = self.primary
        if metric is None:
            return "different metrics", "plain", f"{a.title} and {b.title} have no metric in common."
        found = next((each for each in self.apart if each.metric == metric), None)
        if same is None or found is None:
            why = "the interval of their difference is not known" if same else self.no_difference
            return "not compared", "amber", f"{cannot} by {metric}: {why}."
        by = f"{metric} {change_text(found)} on the {counted(same.rows, 'row')} that both scored"
        if (outcome := outcome_of(found)) in _TONES:
            return f"{b.label} is {outcome}", _TONES[outcome], f"{b.title} is {outcome} than {a.title}: {by}."
        between = "No clear difference between"
        if not outcome:
            between = "The difference has no interval, so nothing is clear between"
        return UNCLEAR, "plain", f"{between} {a.title} and {b.title}: {by}."

    @property
    def value(self) -> dict[str, JsonValue]:
        """What --json has of it."""
        return {"summary": self.ending.headline, **self.model_dump(mode="json", by_alias=True)}

    @property
    def path(self) -> Path:
        """Where its page is kept, written or not; the same two have the same page."""
        return self.store.runs_folder / f"{COMPARED}{self.pipeline}-{self.a.name}-{self.b.name}.html"


def compare(registry: Registry, first: str, second: str) -> Compared:
    """Compare two versions, named by number, champion, previous or an alias, or two runs.

    Raises:
        StoreError: no version or run has this name.
        ConfigError: both are the same one.
    """
    a, b = named_side(registry, first, "A"), named_side(registry, second, "B")
    if a.name == b.name:
        same = f"version, {a.name}" if a.version else f"run, {a.name}"
        problem = f"{first} and {second} are the same {same}"
        raise ConfigError(problem, fix="headway models lists the versions, and headway runs the runs")
    found = on_the_same_rows(registry.store, a, b)
    return Compared(
        a=a,
        b=b,
        same=found.same if found else None,
        no_difference=None if found else _why_none(a, b),
        config=differences(_settings(a), _settings(b)),
        code=differences(code_in(a.code), code_in(b.code)) if a.code and b.code else None,
        columns=_columns(a, b),
        data=_data(a, b),
        pipeline=registry.name,
        store=registry.store,
        scored=found.rows if found else None,
    )


def _settings(side: Side) -> Settings | None:
    """The config and the seed, as far as they are known."""
    seed = side.results.record.seed
    return side.config if seed is None or side.config is None else {**side.config, "seed": seed}


def _why_none(a: Side, b: Side) -> str:
    """Why no difference is computed between the two."""
    if a.task != b.task:
        if gone := [side.title for side in (a, b) if side.task is None]:
            return f"the store no longer has the evaluation of {gone[0]}, and so its task is not known"
        return "metrics do not compare: their tasks differ"
    if a.task is not None and ":" in a.task:
        told = f"no difference is computed of {a.task}, a task of your own"
        return f"{told}; where the gate judged one against the other, its reasons have it"
    return "metrics are of different rows: no run scored the same rows with both"


def code_in(code: Code | None) -> dict[str, JsonValue]:
    """The commit, files that differ from it, the user's modules and the tools' versions."""
    if code is None:
        return {}
    git = code.git
    changed = ", ".join(git.changed) if git else ""
    told: dict[str, JsonValue] = {"commit": git.commit if git else None, "not committed": changed or None}
    return {**told, **code.modules, **code.tools}


def differences(a: object, b: object, at: str = "") -> tuple[Differs, ...]:
    """Each leaf of two configs that differs; of a section that one of them lacks, each that is set."""
    if a == b:
        return ()
    mine, theirs = ({} if each is None else each for each in (a, b))
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        below = (differences(mine.get(n), theirs.get(n), f"{at}.{n}".lstrip(".")) for n in {**mine, **theirs})
        found = tuple(each for found in below for each in found)
        if found or (a is not None and b is not None):
            return found
    return (Differs.model_validate({"key": at, "a": a, "b": b}),)


def _columns(a: Side, b: Side) -> ColumnsApart | None:
    """Those of the models of two versions, else those that were stored; None where they are not known."""
    both = a.inputs is not None and b.inputs is not None
    mine, theirs = (side.inputs if both else side.columns for side in (a, b))
    if mine is None or theirs is None:
        return None
    changed = [name for name in mine if name in theirs and mine[name] != theirs[name]]
    return ColumnsApart(
        only_a=tuple(sorted(mine.keys() - theirs.keys())),
        only_b=tuple(sorted(theirs.keys() - mine.keys())),
        changes=tuple((name, change_of(mine[name], theirs[name])) for name in changed),
    )


def change_of(mine: Mapping[str, JsonValue], theirs: Mapping[str, JsonValue]) -> str:
    """The types of a column, else what of it differs."""
    if mine["type"] != theirs["type"]:
        return f"{mine['type']} -> {theirs['type']}"
    pairs = [(key, mine.get(key), theirs.get(key)) for key in {**mine, **theirs}]
    return ", ".join(
        f"{key} changed" if isinstance(a, Mapping) or isinstance(b, Mapping) else f"{key} {a} -> {b}"
        for key, a, b in pairs
        if a != b
    )


def _data(a: Side, b: Side) -> DataApart:
    mine, theirs = a.spans.train, b.spans.train
    both = [span for span in mine if span in theirs] if a.files and b.files else []
    return DataApart(
        only_a=tuple(span for span in mine if span not in theirs),
        only_b=tuple(span for span in theirs if span not in mine),
        files_changed=tuple(span for span in both if a.files.get(span) != b.files.get(span)),
    )


def _differing(found: Compared) -> str:
    """How much differs, in words; empty: nothing."""
    columns = found.columns
    counts = {
        "training spans": len(found.data.only_a) + len(found.data.only_b),
        "spans' raw files": len(found.data.files_changed),
        "columns": len(columns.only_a) + len(columns.only_b) + len(columns.changes) if columns else 0,
        "settings": len(found.config),
        "parts of the code or its tools": len(found.code or ()),
    }
    return listed([f"{what}: {count:,}" for what, count in counts.items() if count])
