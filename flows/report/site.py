"""The site of a store: `site/index.html` with its models and latest runs, and a page per model, beside the reports of runs.

    renew_site(store, "flights", note)         # after each run, promotion, rollback and monitoring of that model
    write_site(store)                          # <store>/site/index.html, and the page of each model

Pages are static: they load nothing, and work from a folder, a bucket or a mail. The line of each run in the tables is
kept in `site/runs.json`, so that the records of many runs are not read again each time.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from markupsafe import Markup
from pydantic import ValidationError

from flows.records import MonitorFindings, SpanCheck, State, record_or_none, records, refresh
from flows.report.html import document
from flows.report.model import Row, Section, Table
from flows.report.verdict import RunSummary, Tone, ending_of
from flows.report.versions import names_of_versions
from headway.config import Result
from headway.errors import HeadwayError
from headway.messages import counted, duration, metric_text, sentence, when, window_text
from headway.redaction import redact
from headway.registry.pointers import Event
from headway.registry.registry import Registry, Version, model_names
from headway.storage.store import Store
from headway.tasks.table import task_of

_MOST_RUNS, _MOST_OF_MODEL = 500, 100
"""The latest runs of the store, and of one model on its page."""
_MOST_SPANS = 60
_FEW_RUNS = 20
"""Up to so many records are read one by one; more are read all at once, which is faster in a bucket."""


class RunLine(Result):
    """One run's line in the tables of the site."""

    run: str
    pipeline: str
    started: str
    word: str
    tone: Tone
    headline: str
    seconds: float
    has_report: bool
    going_on: bool


class _Lines(Result):
    lines: tuple[RunLine, ...] = ()


def index_path(store: Store) -> Path:
    """Returns the path of the site's first page, site/index.html of the store."""
    return store.root / "site" / "index.html"


def site_of_report(place: str) -> str:
    """Returns the address of the site's first page, by the address of a report in the same store."""
    return f"{place.rpartition('/runs/')[0]}/site/index.html"


def write_site(store: Store, *models: str) -> Path:
    """Writes the site's first page and the pages of models, each whole or not at all; returns the first page's path.

    Args:
        models: the names of the models; none: all models of the store.

    Raises:
        OSError, StoreError: the store cannot be written.
    """
    folder, runs = index_path(store).parent, _run_lines(store)
    known = model_names(store)
    for name in models or known:
        if name in known:
            store.replace(folder / f"{name}.html", _model_page(store, name, runs))
    store.replace(index_path(store), _first_page(store, known, runs))
    return index_path(store)


def renew_site(store: Store, model: str, note: Callable[[str], object]) -> None:
    """Writes the site's first page and the page of a model; an error does not raise, but is passed to `note`."""
    try:
        write_site(store, model)
    except Exception as error:
        text = str(error).strip().splitlines() or [""]
        note(redact(f"the site of this store was not written: {type(error).__name__}: {text[0][:300]}"))


def _run_lines(store: Store) -> list[RunLine]:
    """Returns the lines of the latest runs, newest first. Keeps them in runs.json, so that an ended run is read only once."""
    cache = index_path(store).parent / "runs.json"
    try:
        kept = {line.run: line for line in _Lines.model_validate_json(store.read(cache)).lines}
    except (FileNotFoundError, ValidationError):
        kept = {}
    files = set(store.children(store.runs_folder))
    found = [name.removesuffix(".json") for name in sorted(files, reverse=True) if name.endswith(".json")]
    found = [name for name in found if not name.startswith(".")][:_MOST_RUNS]
    wanted = {name for name in found if name not in kept or kept[name].going_on}
    few = len(wanted) <= _FEW_RUNS
    for record in (record_or_none(store, name) for name in wanted) if few else records(store):
        if record is None or record.run not in wanted:
            continue
        if record.going_on:
            record = refresh(record, store.lock(f"run-{record.pipeline}").owner(), store.clock())
        ending = ending_of(record)
        kept[record.run] = RunLine(
            run=record.run,
            pipeline=record.pipeline,
            started=record.started,
            word=ending.word,
            tone=ending.tone,
            headline=ending.headline,
            seconds=record.seconds,
            has_report=f"{record.run}.html" in files,
            going_on=record.state in (State.RUNNING, State.KILLED),
        )
    lines = [kept[name] for name in found if name in kept]
    store.replace(cache, _Lines(lines=tuple(lines)).model_dump_json() + "\n")
    return lines


# --- the first page


def _first_page(store: Store, models: Sequence[str], runs: Sequence[RunLine]) -> str:
    last = {line.pipeline: line for line in reversed(runs)}
    rows, concerns = list[Row](), list[str]()
    for name in models:
        registry = Registry(store, name)
        champion, alarms = _champion(registry), _alarms(store, registry)
        concerns += [f"{name}: {alarm}" for alarm in alarms]
        rows.append(
            {
                "model": _link(f"{name}.html", name),
                "champion": None if champion is None else f"version {champion.version}",
                "since": None if champion is None else when(champion.time),
                "metric": _metric_of(registry, None if champion is None else champion.version),
                "last run": last[name].word if name in last else None,
            }
        )
    tones = [last[name].tone if name in last else "plain" for name in models]
    sections = [Section("Models", tables=[Table("Models", rows, tones=tones)])] if rows else []
    return document(
        title=f"Models and runs of {store.name}",
        pipeline="Headway",
        about=store.name,
        ending=RunSummary(
            word="models and runs",
            tone="amber" if concerns else "plain",
            headline=f"{counted(len(rows), 'model')}, {counted(len(runs), 'run')}.",
            concerns=tuple(concerns),
        ),
        parts=[*sections, _runs_section(runs, of_model=False)],
    )


def _runs_section(runs: Sequence[RunLine], *, of_model: bool) -> Section:
    rows: list[Row] = [
        {
            "run": _link(f"../runs/{line.run}.html", when(line.started)) if line.has_report else when(line.started),
            "model": None if of_model else line.pipeline,
            "took": duration(line.seconds),
            "what it came to": line.headline,
            "status": line.word,
        }
        for line in runs
    ]
    said = [] if rows else ["There is no run yet."]
    note = "Times are in UTC; a time leads to the report of the run."
    tables = [Table("Runs", rows, note, tones=[line.tone for line in runs])] if rows else []
    return Section("Runs", said, tables=tables)


def _link(target: str, text: str) -> Markup:
    return Markup('<a href="{}">{}</a>').format(target, text)


# --- the page of a model


def _model_page(store: Store, name: str, runs: Sequence[RunLine]) -> str:
    registry, own = Registry(store, name), [line for line in runs if line.pipeline == name]
    versions = {version.number: version for version in registry.versions()}
    events, alarms = registry.history(), _alarms(store, registry)
    why = {line.run: line.headline for line in own}
    metric = _primary(versions.values())
    champion, headline = _champion(registry), "There is no champion yet."
    if champion is not None:
        said = why.get(champion.run or "") or sentence(f"version {champion.version}: {champion.reason}")
        headline = f"{said} It is the champion since {when(champion.time)} UTC."
    sections = [
        _champions(events, versions, metric, why),
        _versions(registry, versions, metric, {line.run for line in own if line.has_report}),
        _monitored(store, name, metric),
        _runs_section(own[:_MOST_OF_MODEL], of_model=True),
    ]
    return document(
        title=f"{name}: its champions, versions and runs",
        pipeline=name,
        about="its champions, versions and runs",
        ending=RunSummary(
            word="champion" if champion else "no champion",
            tone="amber" if alarms else "plain",
            headline=headline,
            concerns=tuple(alarms),
        ),
        parts=[section for section in sections if section is not None],
        links=[("index.html", "All models")],
    )


def _champion(registry: Registry) -> Event | None:
    """Returns the event that made the present champion; None if there is none, or the registry's file is damaged."""
    try:
        return next(reversed(registry.history()), None)
    except HeadwayError:
        return None


def _champions(
    events: Sequence[Event], versions: dict[int, Version], metric: str | None, why: dict[str, str]
) -> Section | None:
    """Returns the section on past and present champions: when and why each was promoted, its metric; None without any."""
    if not events:
        return None
    rows: list[Row] = [
        {
            "when": when(event.time),
            "version": event.version,
            metric or "metric": _value(versions.get(event.version), metric),
            "by": event.by,
            "why": why.get(event.run or "") or event.reason,
            "what": "rolled back" if event.kind == "rollback" else "promoted",
        }
        for event in reversed(events)
    ]
    note = "Each value is of the eval rows of the version's own run: two of them are of different rows." * (
        metric is not None
    )
    return Section("Champions", tables=[Table("Champions", rows, note)])


def _versions(
    registry: Registry, versions: dict[int, Version], metric: str | None, reports: set[str]
) -> Section | None:
    rows: list[Row] = []
    gone, names = registry.rolled_back(), names_of_versions(registry)
    for number, version in sorted(versions.items(), reverse=True):
        run = str(version.facts.get("run") or "")
        rows.append(
            {
                "version": number,
                "stands as": ", ".join([*names[number], *["rolled back"] * (number in gone)]),
                "made": _link(f"../runs/{run}.html", when(version.created))
                if run in reports
                else when(version.created),
                "data": window_text(version.facts.get("spans") or []),
                metric or "metric": _value(version, metric),
            }
        )
    rows += [{"version": number, "stands as": f"cannot be used: {why}"} for number, why in registry.damaged().items()]
    return Section("Versions", tables=[Table("Versions", rows)]) if rows else None


def _monitored(store: Store, name: str, metric: str | None) -> Section | None:
    """Returns the section on drift and the champion's metric by span; None if `headway monitor` checked no span."""
    found = MonitorFindings.of(store, name).versions
    checks = sorted((check for spans in found.values() for check in spans.values()), key=lambda check: check.span)
    checks = checks[-_MOST_SPANS:]
    if not checks:
        return None
    rows: list[Row] = [
        {
            "span": check.span,
            "version": check.champion,
            "rows": check.rows,
            "drift": "; ".join(check.drift) or ("none" if check.rows is not None else "not checked"),
            metric or "metric": metric_text(check.metrics[metric]) if metric in check.metrics else None,
            "champion": "; ".join(check.decay) or ("as at its promotion" if check.scored else "no labels yet"),
            "finding": "alarm" if check.alarms else "none",
        }
        for check in reversed(checks)
    ]
    tones = ["amber" if check.alarms else "plain" for check in reversed(checks)]
    return Section("Spans since the training", tables=[Table("Spans", rows, tones=tones)])


def _alarms(store: Store, registry: Registry) -> list[str]:
    """Returns the alarms of `headway monitor` about the newest span that it checked against the champion."""
    champion = _champion(registry)
    spans = MonitorFindings.of(store, registry.name).versions.get(champion.version, {}) if champion is not None else {}
    newest: SpanCheck | None = max(spans.values(), key=lambda check: check.span, default=None)
    return [f"{newest.span}: {alarm}" for alarm in newest.alarms] if newest is not None else []


# --- metrics


def _primary(versions: Iterable[Version]) -> str | None:
    """Returns the primary metric of the newest version's task, else that version's first metric; None if there is none."""
    newest = max(versions, key=lambda version: version.number, default=None)
    if newest is None:
        return None
    task, metrics = newest.facts.get("task"), newest.facts.get("metrics") or {}
    primary = task_of(task).primary if task and ":" not in task else None
    return primary if primary in metrics else next(iter(metrics), None)


def _value(version: Version | None, metric: str | None) -> str | None:
    value = (version.facts.get("metrics") or {}).get(metric) if version is not None else None
    return metric_text(value) if isinstance(value, int | float) else None


def _metric_of(registry: Registry, number: int | None) -> str | None:
    """Returns a version's `_primary` metric as text; None without a version or a metric. A damaged version says so."""
    try:
        version = None if number is None else registry.version(number)
    except HeadwayError:
        return "cannot be used"
    if version is None or (metric := _primary([version])) is None:
        return None
    return f"{metric} {_value(version, metric)}"
