"""Two versions of a model, or two runs, compared: by metrics on the rows that both scored, and by what differs in them.

    found = compare(registry, "4", "champion")
    found.ending.headline, found.same.checks, found.differences
    found.value                              # what `headway compare --json` prints
    print(describe(found))                   # at most thirty lines; complete=True: every table
    path = write(found)                      # <store>/runs/compare-<pipeline>-<A>-<B>.html, whole or not at all

JSON, text and page render the same value; every difference in facts, settings, columns or code is a `Change`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pydantic import Field, JsonValue

from flows.records import LATEST, Code, RunRecord, State, StepRecord, find, record_or_none
from flows.report.changes import Change, auto_changes, changed_settings, code_in, differences, why_chosen, with_defaults
from flows.report.charts import ModelNames, charts_of, tables_of
from flows.report.evaluation import metric_table
from flows.report.html import document
from flows.report.model import Row, Section, Table
from flows.report.plot import one_line
from flows.report.results import RunResults
from flows.report.text import text, window, wrapped
from flows.report.verdict import RunSummary, Tone, ending_of
from flows.report.versions import UNCLEAR, change_text, names_of_versions, outcome_of, paired_table, rows_in_words
from headway.config import Frozen, Result
from headway.errors import ConfigError
from headway.evaluation.compare import compare as compare_models
from headway.evaluation.measured import Metrics
from headway.evaluation.predictions import check_same_rows, metrics_of, read_predictions, rows_of
from headway.evaluation.verdict import Check
from headway.messages import capital, counted, metrics_line, number, of_window, sentence, size, some, when
from headway.metrics.base import Metric, Rows
from headway.registry.gc import COMPARED
from headway.registry.registry import Registry, Version
from headway.registry.versions import numbered_children
from headway.schema.columns import LABEL
from headway.storage.fingerprint import fingerprint
from headway.storage.store import Store
from headway.tasks.table import task_of

CONFIDENCE = 0.95
"""The confidence level of a difference's interval."""
RUN = re.compile(r"\d{8}-?[\da-f-]*")
"""A run's name or its beginning: eight digits or more, which no version number has."""
_MADE = (State.PROMOTED, State.NAMED, State.ALREADY)
"""The states of runs that made the version that their record names."""
_MOST_METRICS, _MOST_IN_SHORT = 4, 12
"""The most metrics and differences in the short text, of at most thirty lines."""
_MOST_DIFFERENCES = 200
_EACH_ITS_OWN = frozenset({"stands as", "made", "run", "size"})
"""Facts that differ between any two versions or runs."""
_TONES: dict[str, Tone] = {"better": "green", "worse": "red"}


class ComparedModel(Frozen, arbitrary_types_allowed=True):
    """One side of a comparison: a version, or a run that made no version."""

    name: str
    title: str
    """ "version 4", or "run 20261123-000714-4081"."""
    version: int | None = None
    run: str | None
    task: str | None
    metrics: Metrics
    """The model's metrics on the eval rows of the run that trained it."""
    facts: Mapping[str, str]
    """{name: fact about the model, in words}"""

    results: RunResults = Field(exclude=True)
    train: tuple[str, ...] = Field(exclude=True)
    eval: tuple[str, ...] = Field(exclude=True)
    """The spans of the model's train rows (`train`) and of its eval rows (`eval`)."""
    evaluated: Mapping[str, str] = Field(exclude=True)
    """{title: fingerprint} of the evaluation steps of the model's run."""
    config: Mapping[str, JsonValue] | None = Field(default=None, exclude=True)
    code: Code | None = Field(default=None, exclude=True)
    columns: Mapping[str, str] | None = Field(default=None, exclude=True)
    """{column: type} of the model's train rows, without the label; None if their statistics are gone."""
    files: Mapping[str, str] = Field(default={}, exclude=True)
    """The digest of each span's raw files, where it was kept."""
    letter: str = Field(default="", exclude=True)
    """A or B."""

    @property
    def heading(self) -> str:
        """The name for a heading: "version 4"; or "run A", since the name of a run would be too long."""
        return self.title if self.version is not None else f"run {self.letter}"

    @property
    def rows(self) -> str:
        return rows_in_words(self.eval)


class SameRows(Frozen, arbitrary_types_allowed=True):
    """The comparison of both models' metrics on the rows that both scored."""

    rows: int
    spans: tuple[str, ...]
    """The spans that the rows come from."""
    run: str | None
    """The run that scored the rows with both models; None: each model was scored in its own run."""
    checks: tuple[Check, ...]
    """B (`value`) against A (`before`), a check for each metric; the primary metric comes first."""
    scored: tuple[Rows, Rows] = Field(exclude=True)
    """The rows as A scored them and as B did, in the same order."""


class Comparison(Frozen):
    """A comparison of two versions or runs: the metrics of A and B, and what differs."""

    a: ComparedModel
    b: ComparedModel
    same: SameRows | None
    """The metrics of both on the same rows; None if there are no rows that both scored."""
    no_difference: str | None
    primary: str | None
    """The metric that decides; None where no metric is known of both."""
    differences: tuple[Change, ...]
    """What differs: facts, raw files, settings, columns, code; what `auto` chose otherwise comes last."""

    pipeline: str = Field(exclude=True)

    @property
    def ending(self) -> RunSummary:
        """The result of the comparison as the summary at the top of its page, with a headline of one sentence."""
        word, tone, headline = self._headline()
        return RunSummary(word=word, tone=tone, headline=capital(headline))

    def _headline(self) -> tuple[str, Tone, str]:
        """Returns the word, the tone and the headline of the comparison's result."""
        a, b, same = self.a, self.b, self.same
        if without := [side.title for side in (a, b) if not side.metrics.metrics]:
            has = "has" if len(without) == 1 else "have"
            return "not evaluated", "plain", f"{' and '.join(without)} {has} no metrics: nothing was evaluated."
        cannot = "It cannot be told which one is better"
        if a.task != b.task:
            if None in (a.task, b.task):
                return "not compared", "amber", f"{cannot}: {self.no_difference}."
            known = [f"{side.title} has the task {side.task}" for side in (a, b)]
            return "different tasks", "plain", f"{known[0]}, {known[1]}: their metrics do not compare."
        if self.primary is None:
            return "different metrics", "plain", f"{a.title} and {b.title} have no metric in common."
        found = next((check for check in (same.checks if same else ()) if check.metric == self.primary), None)
        if same is None or found is None:
            why = "the interval of their difference is not known" if same else self.no_difference
            return "not compared", "amber", f"{cannot} by {self.primary}: {why}."
        by = f"{self.primary} {change_text(found)} on the {counted(same.rows, 'row')} that both scored"
        if (outcome := outcome_of(found)) in _TONES:
            return f"{b.heading} is {outcome}", _TONES[outcome], f"{b.title} is {outcome} than {a.title}: {by}."
        between = "No clear difference between"
        if not outcome:
            between = "The difference has no interval, so nothing is clear between"
        return UNCLEAR, "plain", f"{between} {a.title} and {b.title}: {by}."

    @property
    def value(self) -> dict[str, JsonValue]:
        """The comparison as --json prints it."""
        return {"summary": self.ending.headline, **self.model_dump(mode="json")}

    @property
    def store(self) -> Store:
        return self.a.results.store

    @property
    def path(self) -> Path:
        """The path of the comparison's page, written or not. A later comparison of the same two models has the same path."""
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
    primary = _primary(a, b)
    found = _on_the_same_rows(registry.store, a, b, primary)
    return Comparison(
        a=a,
        b=b,
        same=found,
        no_difference=None if found else _why_none(a, b),
        primary=primary,
        differences=tuple(_differences(a, b)),
        pipeline=registry.name,
    )


def _primary(a: ComparedModel, b: ComparedModel) -> str | None:
    """Returns the metric that decides: of a side's gate, else of the task, else the first that both have; None without one."""
    both = [name for name in a.metrics.metrics if name in b.metrics.metrics]
    wanted = [side.results.verdict.primary for side in (b, a) if side.results.verdict is not None]
    wanted += [task_of(a.task).primary] if a.task is not None and ":" not in a.task else []
    return next((name for name in [*wanted, *both] if name in both), None)


def _why_none(a: ComparedModel, b: ComparedModel) -> str:
    """Returns why no difference between the metrics of the two models is computed, as a sentence."""
    if a.task != b.task:
        if gone := [side.title for side in (a, b) if side.task is None]:
            return f"the store no longer has the evaluation of {gone[0]}, and so its task is not known"
        return "metrics do not compare: their tasks differ"
    if a.task is not None and ":" in a.task:
        why = f"no difference is computed of {a.task}, a task of your own"
        return f"{why}; where the gate judged one against the other, its reasons have it"
    return "metrics are of different rows: no run scored the same rows with both"


# --- what differs


def _differences(a: ComparedModel, b: ComparedModel) -> Iterator[Change]:
    mine, theirs = a.results.record, b.results.record
    for what in dict.fromkeys([*a.facts, *b.facts]):
        if (was := a.facts.get(what)) != (now := b.facts.get(what)):
            yield Change(key=what, a=was, b=now)
    both = [span for span in a.train if span in b.train] if a.files and b.files else []
    if changed := [span for span in both if a.files.get(span) != b.files.get(span)]:
        yield Change(key="raw files", a=None, b=f"changed: {some(changed, 3)}")
    asked = mine.config is not None and theirs.config is not None
    yield from changed_settings(mine, theirs) if asked else differences(a.config, b.config)
    if a.columns is not None and b.columns is not None:
        names = sorted({*a.columns, *b.columns})
        pairs = [(name, a.columns.get(name), b.columns.get(name)) for name in names]
        yield from (Change(key=f"column {name}", a=was, b=now) for name, was, now in pairs if was != now)
    if a.code and b.code:
        yield from differences(code_in(a.code), code_in(b.code))
    why = why_chosen(mine, theirs)
    yield from (each.model_copy(update={"key": f"auto{why}: {each.key}"}) for each in auto_changes(mine, theirs))


# --- one of the two


def named_model(registry: Registry, name: str, letter: str = "") -> ComparedModel:
    """Returns the version that `name` names (number, champion, previous or an alias), or the run (its name or
    "latest"). A run that made a version stands for this version.

    Raises:
        StoreError: no version has this number, no run or several have this name, no champion is there, or the version is damaged.
        ConfigError: no alias has this name, or the run is of another pipeline.
    """
    is_run = RUN.fullmatch(name) or (name == LATEST and name not in registry.aliases())
    if not is_run:
        return _of_version(registry, registry.named(name), letter)
    record = find(registry.store, name, pipeline=registry.name)
    if record.pipeline != registry.name:
        problem = f"run {record.run} is of the pipeline {record.pipeline}, not of {registry.name}"
        raise ConfigError(problem, fix="name two runs of one pipeline")
    if record.state in _MADE and record.version in numbered_children(registry.store, registry.folder):
        return _of_version(registry, registry.version(record.version or 0), letter)
    return _of_run(registry, record, letter)  # also where its version was removed


def _of_version(registry: Registry, version: Version, letter: str) -> ComparedModel:
    lineage, store, facts = registry.lineage(version), registry.store, version.facts
    manifest = store.manifest(version.path)
    run = lineage["run"]["run"]
    # of a version whose run is no longer recorded
    known = RunRecord(run=run or "", pipeline=registry.name, state=State.PROMOTED, started="", version=version.number)
    stages = tuple(StepRecord.model_validate(stage) for stage in lineage["stages"])
    results = RunResults(store, (record_or_none(store, run) or known).model_copy(update={"stages": stages}))
    judged = lineage["verdict"]["status"], lineage["champion"]
    told = {
        "stands as": ", ".join(names_of_versions(registry)[version.number]),
        "made": f"{when(version.created)} UTC",
        "size": size(sum(entry.bytes for entry in manifest.files)) if manifest else "",
    }
    found = _model(
        results, version.number, letter, facts.get("task"), facts.get("metrics"), lineage["parts"], judged, told
    )
    evaluated = dict(found.evaluated) | ({"evaluate": facts["evaluation"]} if facts.get("evaluation") else {})
    code = Code.model_validate(lineage["code"]) if lineage["code"] else None
    own = {"config": lineage["config"], "code": code, "evaluated": evaluated, "files": facts.get("data") or {}}
    return found.model_copy(update=own)


def _of_run(registry: Registry, record: RunRecord, letter: str) -> ComparedModel:
    results = RunResults(registry.store, record)
    task = results.measured.task if results.measured is not None else None
    parts = (results.key("splits").get("inputs") or {}).get("parts") or {}
    champion = record.champion.version if record.champion else None
    judged = (record.verdict.status if record.verdict else None, champion)
    told = {"stands as": ending_of(record).word, "made": f"{when(record.started)} UTC"}
    files = {span: results.key(output.title).get("files") for span, output in results.ingested().items()}
    digests = {  # as versions keep it
        span: fingerprint({"files": [[file["bytes"], file["crc32c"]] for file in of]})
        for span, of in files.items()
        if of
    }
    found = _model(results, None, letter, task, record.metrics, parts, judged, told)
    return found.model_copy(update={"config": with_defaults(record.config), "code": record.code, "files": digests})


def _model(
    results: RunResults,
    version: int | None,
    letter: str,
    task: str | None,
    metrics: Mapping[str, object] | None,
    parts: Mapping[str, list[list[str]]],
    judged: tuple[str | None, int | None],
    told: Mapping[str, str],
) -> ComparedModel:
    """Returns one side of a comparison, with the fields that versions and runs both have.

    Args:
        parts: {split: its parts, each [span, split of the span]}.
        judged: the status at the gate (None: not judged), and the version that the model was compared with, if any.
        told: {name: further fact in words}.
    """
    record, (status, champion) = results.record, judged
    train, evaluated = (tuple(part[0] for part in parts.get(split, [])) for split in ("train", "eval"))
    gate = ending_of(record).word if status else "not judged"
    facts = {
        "at the gate": gate + (f" against version {champion}" if champion else ""),
        **told,
        "run": record.run,
        "task": task,
        "train spans": window(train),
        "eval spans": window(evaluated),
        **{f"{split} rows": f"{count:,}" for split, count in results.statistics.rows.items()},
    }
    values: dict[str, float | None] = {
        name: value for name, value in (metrics or {}).items() if isinstance(value, int | float)
    }
    intervals = results.measured.intervals if results.measured is not None else {}
    columns = {name: of.type for name, of in results.statistics.of("train").items() if name != LABEL}
    return ComparedModel(
        name=str(version or record.run),
        title=f"version {version}" if version else f"run {record.run}",
        version=version,
        run=record.run or None,
        task=task,
        metrics=Metrics(metrics=values, intervals=intervals),
        facts={what: text for what, text in facts.items() if text},
        results=results,
        train=train,
        eval=evaluated,
        evaluated={step.title: step.fingerprint for step in record.stages if step.stage == "evaluate"},
        columns=columns or None,
        letter=letter,
    )


# --- on the same rows


def _on_the_same_rows(store: Store, a: ComparedModel, b: ComparedModel, primary: str | None) -> SameRows | None:
    """Returns the differences B - A on rows that both scored; None without any, or of two tasks. Such rows are the eval rows of
    B's run if it scored A too, or of A's run if it scored B too, or of both runs if their eval rows are the same."""
    task = a.task
    if task != b.task or task is None or ":" in task:
        return None
    for host, guest in ((b, a), (a, b)):
        beside = (of for title, of in host.evaluated.items() if title.split()[-1] == str(guest.version))
        own, guests, other = host.evaluated.get("evaluate"), guest.evaluated.get("evaluate"), next(beside, None)
        run = host.run if other is not None else None
        if other is None and _examples(store, own) is not None:
            other = guests if _examples(store, own) == _examples(store, guests) else None
        measured = host.results.manifests.get("measure")
        rules = _Rules.model_validate({**(measured.key if measured else {}), "task": task})
        mine, theirs = (_predictions(store, each, rules.group) for each in (own, other))
        if mine is None or theirs is None:
            continue
        check_same_rows(mine, theirs, f"{guest.title}'s", other or "")
        tables = {host.name: mine, guest.name: theirs}
        first, second = (rules.rows(tables[side.name]) for side in (a, b))
        metrics = [metric for metric in rules.metrics if metric.higher_is_better is not None]
        checks = sorted(_checks(first, second, metrics), key=lambda check: check.metric != primary)
        return SameRows(rows=len(mine), spans=host.eval, run=run, checks=tuple(checks), scored=(first, second))
    return None


def _examples(store: Store, evaluation: str | None) -> object:
    """Returns what identifies the rows of an evaluation: its spans' fingerprints, each with the split; None if it is gone."""
    manifest = store.find("evaluate", evaluation) if evaluation else None
    return None if manifest is None else (manifest.key.get("inputs") or {}).get("examples")


def _predictions(store: Store, evaluation: str | None, group: str | None) -> pa.Table | None:
    """Returns the predictions of an evaluation that the store still has; None when they are gone."""
    manifest = store.find("evaluate", evaluation) if evaluation else None
    if manifest is None or evaluation is None or "predictions" not in manifest.result:
        return None
    path = store.output("evaluate", evaluation) / manifest.result["predictions"]
    store.localize([path])
    return read_predictions(path, group=group)


class _Rules(Result):
    """The settings by which a run computes metrics: its task; for a ranking also the group, the item and the number of ranks."""

    task: str
    group: str | None = None
    item: str | None = None
    ndcg_at: int | None = None

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return metrics_of(self.task, self.ndcg_at, item=self.item)

    def rows(self, table: pa.Table) -> Rows:
        """Returns the rows of a predictions table, with groups if `group` is set. DataError: the table lacks this column."""
        read = tuple(name for name in (self.group, self.item) if name) if self.ndcg_at is not None else ()
        return rows_of(table, self.task, self.group, columns=read)


def _checks(a: Rows, b: Rows, metrics: list[Metric]) -> Iterator[Check]:
    differences = compare_models(b, b.predicted(a.prediction), metrics=metrics)
    for metric in metrics:
        check = differences[metric.name].check("same rows", metric, CONFIDENCE, outcome="")
        yield check.model_copy(update={"outcome": outcome_of(check)})


# --- shown


def describe(comparison: Comparison, *, complete: bool = False) -> str:
    """Returns the comparison as text for a terminal: which one is better, the first metrics, and what differs.

    Args:
        complete: whether to show all that the page has, except the charts.
    """
    found = sections(comparison) if complete else [*_first_metrics(comparison), _differing(comparison, short=True)]
    return "\n\n".join([wrapped("", comparison.ending.headline), *filter(None, map(text, found))])


def write(comparison: Comparison) -> Path:
    """Write the comparison's page into the store, and return its path, `Comparison.path`.

    Raises:
        OSError, StoreError: the store cannot be written.
    """
    comparison.store.replace(comparison.path, page(comparison))
    return comparison.path


def page(comparison: Comparison) -> str:
    """Returns the page of a comparison, without secrets."""
    a, b = comparison.a, comparison.b
    return document(
        title=f"{comparison.pipeline}: {a.title} and {b.title}",
        pipeline=comparison.pipeline,
        about=", ".join(f"{side.letter}: {side.title}" for side in (a, b)),
        ending=comparison.ending,
        parts=sections(comparison),
    )


def sections(comparison: Comparison) -> list[Section]:
    """Returns the sections of a comparison."""
    metrics = _metrics(comparison)
    return [*([] if metrics is None else [metrics]), _differing(comparison)]


def _first_metrics(comparison: Comparison) -> Iterator[Section]:
    a, b, same = comparison.a, comparison.b, comparison.same
    if same is None:
        for side in (a, b):
            if values := metrics_line(side.metrics.metrics):
                yield Section("", [sentence(f"{capital(side.heading)} on {side.rows}: {values}")])
        return
    title = f"On the {counted(same.rows, 'row')}{of_window(same.spans)} that both scored, with 95% intervals"
    more = _more(len(same.checks) - _MOST_METRICS)
    yield Section("", tables=[paired_table(title, same.checks[:_MOST_METRICS], a.heading, b.heading, more)])


def _metrics(comparison: Comparison) -> Section | None:
    """Returns the section on metrics; None if neither side has any. The two models' values stand side by side only if
    they are of the same rows."""
    a, b, same = comparison.a, comparison.b, comparison.same
    own = {
        side.title: metric_table(side.metrics.values, title=f"{capital(side.heading)} on {side.rows}", task=side.task)
        for side in (a, b)
        if side.metrics.metrics
    }
    if not own:
        return None
    if same is None:
        return Section("Metrics", [sentence(str(comparison.no_difference))], tables=list(own.values()))
    who = f"run {same.run} scored with both" if same.run else "each one's own run scored"
    rows = f"Both on the {counted(same.rows, 'row')}{of_window(same.spans)} that {who}"
    tables = [paired_table("Metrics", same.checks, a.heading, b.heading)]
    tables += [own[side.title] for side in (a, b) if same.run not in (None, side.run) and side.title in own]
    said = f"{rows}; differences are {b.heading} − {a.heading}, with 95% intervals."
    ours, theirs = (tables_of(str(a.task), rows) for rows in same.scored)
    return Section("Metrics", [said], list(charts_of(ours, theirs, ModelNames(a.heading, b.heading))), tables)


def _differing(comparison: Comparison, *, short: bool = False) -> Section:
    found, most = comparison.differences, _MOST_IN_SHORT if short else _MOST_DIFFERENCES
    if short:
        found = tuple(each for each in found if each.key not in _EACH_ITS_OWN)
    if not found:
        said = "Nothing differs in data, columns, settings or code, as far as they were kept."
        return Section("What differs", [said])
    more = _more(len(found) - most) if short else f"{len(found) - most:,} more: --json has all" * (len(found) > most)
    a, b = comparison.a.heading, comparison.b.heading
    rows: list[Row] = [
        {"what": one_line(each.key, 60), a: _setting_text(each.a), b: _setting_text(each.b)} for each in found[:most]
    ]
    return Section("What differs", tables=[Table("What differs", rows, more)])


def _more(count: int) -> str:
    return f"{count:,} more: --all" if count > 0 else ""


def _setting_text(value: object) -> str:
    """Returns a setting as text for a table of differences: a digest is cut, a list is JSON, and None is a dash."""
    if value is None or isinstance(value, float):
        return "–" if value is None else number(value)
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{32,}", value):
        return value[:12]
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 120)
