"""Two versions of a model, or two runs, compared: what each is, their difference on the rows that both scored, what differs.

found = compare(registry, "4", "champion")
found.ending.headline, found.same.metrics["auc"].difference
found.value                              # what `headway compare --json` prints
found.path                               # where its page is kept: <store>/runs/compare-flights-4-5.html
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pydantic import ConfigDict, Field, JsonValue, computed_field

from flows.records import LATEST, Code, RunRecord, State, StepRecord, find, record_of
from flows.report.changes import Change, changed_settings, chosen_otherwise, code_in, complete, differences
from flows.report.checks import explain
from flows.report.results import RunResults
from flows.report.verdict import RunSummary, Tone
from flows.report.versions import UNCLEAR, change_text, names_of, outcome_of
from headway.config import Frozen
from headway.errors import ConfigError, HeadwayError
from headway.evaluation.bootstrap import paired
from headway.evaluation.gate_checks import check_same_rows, read_predictions
from headway.evaluation.metrics import metrics_of, rows_of
from headway.evaluation.slices import slice_rows
from headway.evaluation.verdict import Check
from headway.messages import capital, counted
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
"""Of the interval of a difference."""
RUN = re.compile(r"\d{8}-?[\da-f-]*")
"""How the name of a run begins; no model has so many versions."""
_MADE = (State.PROMOTED, State.NAMED, State.ALREADY)
"""States of runs whose version is their own."""
_TONES: dict[str, Tone] = {"better": "green", "worse": "red"}
Interval = tuple[float, float]
Settings = Mapping[str, JsonValue]


class Figure(Frozen):
    """A metric of one model."""

    value: float | None
    interval: Interval | None = None


class Spans(Frozen):
    train: tuple[str, ...] = ()
    eval: tuple[str, ...] = ()


class GateDecision(Frozen):
    """What the gate decided of a model."""

    model_config = ConfigDict(extra="ignore")

    status: str | None = None
    reasons: tuple[str, ...] = ()
    champion: int | None = None
    """The version that it was compared with."""


class ComparedModel(Frozen):
    """A version, or a run of which no version came. What `--json` has of it comes first."""

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
    verdict: GateDecision
    evaluated: dict[str, str]
    """Evaluations by title."""
    measured: str | None
    task: str | None
    rows: Mapping[str, int] = {}
    """By split."""
    metrics: Mapping[str, Figure] = {}

    results: RunResults = Field(exclude=True)
    config: Settings | None = Field(exclude=True)
    code: Code | None = Field(exclude=True)
    inputs: Mapping[str, Settings] | None = Field(default=None, exclude=True)
    """The columns that a version's model takes; what is known of each, its type first."""
    files: Mapping[str, str] = Field(default={}, exclude=True)
    """The digest of each span's raw files, where it was kept."""
    letter: str = Field(default="", exclude=True)
    """A or B."""

    @property
    def label(self) -> str:
        """The name for a heading: "version 4", or "run A", whose name would be too long."""
        return self.title if self.version is not None else f"run {self.letter}"

    @property
    def columns(self) -> Mapping[str, Settings] | None:
        """Those of its train rows, without the label; None where their statistics are gone."""
        summaries = self.results.statistics.of("train")
        return {name: {"type": of.type} for name, of in summaries.items() if name != LABEL} if summaries else None


class MetricChange(Frozen):
    """A metric of both on the same rows: all of them, or those of a slice."""

    metric: str
    slice: str | None = None
    value: str | None = None
    rows: int | None = None
    a: float | None
    b: float | None
    difference: float | None
    """B - A"""
    interval: Interval | None

    def check(self, better: Better | None) -> Check:
        """The same as a check, whose change is B - A."""
        known = {"before": self.a, "value": self.b, "change": self.difference, "interval": self.interval}
        where = {"slice": self.slice, "slice_value": self.value, "rows": self.rows}
        return Check.model_validate(
            {"name": "same rows", "metric": self.metric, "better": better, "outcome": "", **known, **where}
        )


class SameRows(Frozen):
    """Both on rows that both scored."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    rows: int
    spans: tuple[str, ...]
    """That the rows come from."""
    run: str | None
    """That scored them with both; None: each one's own run did."""
    metrics: dict[str, MetricChange]
    slices: tuple[MetricChange, ...]
    scored: tuple[Rows, Rows] = Field(exclude=True)
    """Both sides' rows, in one order."""


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


class Comparison(Frozen):
    """What differs between A and B, and what they are worth."""

    a: ComparedModel
    b: ComparedModel
    same: SameRows | None = Field(serialization_alias="difference")
    """None: no rows that both scored."""
    no_difference: str | None
    config: tuple[Change, ...]
    """The settings that one of them asked for."""
    chosen: tuple[Change, ...]
    """What `auto` chose otherwise because there were more or fewer rows."""
    code: tuple[Change, ...] | None
    """None: it was not kept of both."""
    columns: ColumnsApart | None
    data: DataApart

    pipeline: str = Field(exclude=True)

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
            each.check(better if name == primary else None)
            for name, each in sorted(found.items(), key=lambda item: item[0] != primary)
        ]

    @property
    def ending(self) -> RunSummary:
        """The comparison in one sentence."""
        word, tone, headline = self._headline()
        return RunSummary(word=word, tone=tone, headline=capital(headline))

    def _headline(self) -> tuple[str, Tone, str]:
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
    def store(self) -> Store:
        return self.a.results.store

    @property
    def path(self) -> Path:
        """Where its page is kept, written or not; the same two have the same page."""
        return self.store.runs_folder / f"{COMPARED}{self.pipeline}-{self.a.name}-{self.b.name}.html"


def compare(registry: Registry, first: str, second: str) -> Comparison:
    """Compare two versions, named by number, champion, previous or an alias, or two runs.

    Raises:
        StoreError: no version or run has this name.
        ConfigError: both are the same one.
    """
    a, b = named_model(registry, first, "A"), named_model(registry, second, "B")
    if a.name == b.name:
        same = f"version, {a.name}" if a.version else f"run, {a.name}"
        problem = f"{first} and {second} are the same {same}"
        raise ConfigError(problem, fix="headway models lists the versions, and headway runs the runs")
    found, (mine, theirs) = _on_the_same_rows(registry.store, a, b), (side.results.record for side in (a, b))
    asked = mine.config is not None and theirs.config is not None
    return Comparison(
        a=a,
        b=b,
        same=found,
        no_difference=None if found else _why_none(a, b),
        config=tuple(changed_settings(mine, theirs) if asked else differences(a.config, b.config)),
        chosen=tuple(chosen_otherwise(mine, theirs)),
        code=tuple(differences(code_in(a.code), code_in(b.code))) if a.code and b.code else None,
        columns=_columns_apart(a, b),
        data=_data_apart(a, b),
        pipeline=registry.name,
    )


def _why_none(a: ComparedModel, b: ComparedModel) -> str:
    """Why no difference is computed between the two."""
    if a.task != b.task:
        if gone := [side.title for side in (a, b) if side.task is None]:
            return f"the store no longer has the evaluation of {gone[0]}, and so its task is not known"
        return "metrics do not compare: their tasks differ"
    if a.task is not None and ":" in a.task:
        why = f"no difference is computed of {a.task}, a task of your own"
        return f"{why}; where the gate judged one against the other, its reasons have it"
    return "metrics are of different rows: no run scored the same rows with both"


def _columns_apart(a: ComparedModel, b: ComparedModel) -> ColumnsApart | None:
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


def change_of(mine: Settings, theirs: Settings) -> str:
    """The types of a column, else what of it differs."""
    if mine["type"] != theirs["type"]:
        return f"{mine['type']} -> {theirs['type']}"
    pairs = [(key, mine.get(key), theirs.get(key)) for key in {**mine, **theirs}]
    return ", ".join(
        f"{key} changed" if isinstance(a, Mapping) or isinstance(b, Mapping) else f"{key} {a} -> {b}"
        for key, a, b in pairs
        if a != b
    )


def _data_apart(a: ComparedModel, b: ComparedModel) -> DataApart:
    mine, theirs = a.spans.train, b.spans.train
    both = [span for span in mine if span in theirs] if a.files and b.files else []
    return DataApart(
        only_a=tuple(span for span in mine if span not in theirs),
        only_b=tuple(span for span in theirs if span not in mine),
        files_changed=tuple(span for span in both if a.files.get(span) != b.files.get(span)),
    )


# --- one of the two


def named_model(registry: Registry, name: str, letter: str = "") -> ComparedModel:
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


def _of_version(registry: Registry, version: Version, letter: str) -> ComparedModel:
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
    return ComparedModel(
        name=str(version.number),
        title=f"version {version.number}",
        version=version.number,
        names=names_of(registry, version.number),
        created=version.created,
        run=run,
        spans=_spans(lineage["parts"]),
        bytes=sum(entry.bytes for entry in manifest.files) if manifest else None,
        verdict=GateDecision.model_validate(lineage["verdict"] | {"champion": lineage["champion"]}),
        evaluated=evaluated | ({"evaluate": facts["evaluation"]} if facts.get("evaluation") else {}),
        measured=next((stage.fingerprint for stage in stages if stage.title == "measure"), None),
        task=facts.get("task"),
        rows=results.statistics.rows,
        metrics=_figures(results, facts.get("metrics") or {}),
        results=results,
        config=lineage["config"],
        code=Code.model_validate(lineage["code"]) if lineage["code"] else None,
        inputs=inputs,
        files=facts.get("data") or {},
        letter=letter,
    )


def _of_run(registry: Registry, record: RunRecord, letter: str) -> ComparedModel:
    results, verdict = RunResults(registry.store, record), record.verdict
    stages = {step.title: step.fingerprint for step in record.stages}
    decided = {"status": verdict.status, "reasons": tuple(explain(verdict).sentences)} if verdict else {}
    files = {span: results.key(output.title).get("files") for span, output in results.ingested().items()}
    return ComparedModel(
        name=record.run,
        title=f"run {record.run}",
        names=(str(record.state),),
        created=record.started,
        run=record.run,
        spans=_spans((results.key("splits").get("inputs") or {}).get("parts") or {}),
        verdict=GateDecision.model_validate({**decided, "champion": record.champion and record.champion.version}),
        evaluated={step.title: step.fingerprint for step in record.stages if step.stage == "evaluate"},
        measured=stages.get("measure"),
        task=results.measured.task if results.measured is not None else None,
        rows=results.statistics.rows,
        metrics=_figures(results, record.metrics),
        results=results,
        config=complete(record.config),
        code=record.code,
        # as versions keep it
        files={
            span: fingerprint({"files": [[file["bytes"], file["crc32c"]] for file in of]})
            for span, of in files.items()
            if of
        },
        letter=letter,
    )


def _spans(parts: Mapping[str, list[list[str]]]) -> Spans:
    return Spans.model_validate({split: [part[0] for part in parts.get(split, [])] for split in ("train", "eval")})


def _figures(results: RunResults, metrics: Mapping[str, object]) -> dict[str, Figure]:
    """Metrics with the intervals that its evaluation has."""
    known = results.measured.intervals if results.measured is not None else {}
    values = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    return {name: Figure(value=value, interval=known.get(name)) for name, value in values.items()}


# --- both on the same rows


def _on_the_same_rows(store: Store, a: ComparedModel, b: ComparedModel) -> SameRows | None:
    """B - A on rows that both scored: from B's run if it scored A beside its candidate, or the reverse, or each from its own run
    on the same eval rows; None without such rows."""
    task = a.task
    if task != b.task or task is None or ":" in task:
        return None
    for host, guest in ((b, a), (a, b)):
        beside = (of for title, of in host.evaluated.items() if title.split()[-1] == str(guest.version))
        own, guests, other = host.evaluated.get("evaluate"), guest.evaluated.get("evaluate"), next(beside, None)
        run = host.run if other is not None else None
        if other is None and _examples(store, own) is not None:
            other = guests if _examples(store, own) == _examples(store, guests) else None
        measured = store.find("measure", host.measured) if host.measured else None
        rules = _Rules.model_validate({**(measured.key if measured else {}), "task": task})
        mine, theirs = (_predictions(store, each, rules.group) for each in (own, other))
        if mine is None or theirs is None:
            continue
        check_same_rows(mine, theirs, f"{guest.title}'s", other or "")
        tables = {host.name: mine, guest.name: theirs}
        first, second = (rules.rows(tables[side.name]) for side in (a, b))
        directed = [metric for metric in rules.metrics if metric.higher_is_better is not None]
        return SameRows(
            rows=len(mine),
            spans=host.spans.eval,
            run=run,
            metrics={each.metric: each for each in _changes(first, second, directed)},
            slices=() if measured is None else tuple(_on_slices(measured, rules, mine, first, second)),
            scored=(first, second),
        )
    return None


def _examples(store: Store, evaluation: str | None) -> object:
    """What an evaluation scored: fingerprints of spans, and the split of each; None when that is not known."""
    manifest = store.find("evaluate", evaluation) if evaluation else None
    return None if manifest is None else (manifest.key.get("inputs") or {}).get("examples")


def _predictions(store: Store, evaluation: str | None, group: str | None) -> pa.Table | None:
    """The predictions of an evaluation that the store still has; None when they are gone."""
    manifest = store.find("evaluate", evaluation) if evaluation else None
    if manifest is None or evaluation is None or "predictions" not in manifest.result:
        return None
    path = store.output("evaluate", evaluation) / manifest.result["predictions"]
    store.localize([path])
    return read_predictions(path, group=group)


class _Rules(Frozen):
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


def _changes(a: Rows, b: Rows, metrics: list[Metric]) -> Iterator[MetricChange]:
    for name, each in paired(b, a.prediction, metrics=metrics).items():
        yield MetricChange(
            metric=name,
            a=each.champion,
            b=each.candidate,
            difference=each.difference,
            interval=each.interval(CONFIDENCE),
        )


def _on_slices(measured: Manifest, rules: _Rules, table: pa.Table, a: Rows, b: Rows) -> Iterator[MetricChange]:
    """Both on each slice that the run measured, by the metrics that the gate compares."""
    known = {metric.name: metric for metric in rules.metrics}
    metrics = [known[name] for name in ("ndcg", *task_of(rules.task).tolerances) if name in known]
    for name in measured.key["slices"]:
        for value, at in slice_rows(table, name, measured.key["config"]["slice_min_rows"]):
            for each in _changes(a.at(at), b.at(at), metrics):
                yield each.model_copy(update={"slice": name, "value": value, "rows": len(at)})
