"""One model: its champion and those before, its versions, and how its champions fared on spans that came after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from flows.dashboard.layout import Page, address, link, long, paged, pager, when
from flows.dashboard.monitor_state import CheckedSpan, checked_spans
from flows.dashboard.opened_stores import OpenedStore
from flows.dashboard.pages.time_charts import MOST_POINTS, drift_chart, metric_chart
from flows.tell.parts import Chart, Finding, Part, Table
from headway.errors import HeadwayError
from headway.messages import counted, metrics_line, number, signed, window_text
from headway.registry.registry import Event, Registry, Version
from headway.registry.versions import numbers

_HISTORY = 20
_OTHER_ROWS = (
    "Each version was judged on the eval rows of its own run, so that values of two versions are of different rows."
)


def model_page(
    opened: OpenedStore, model: str, *, page: int = 1, history_page: int = 1, changed: int = 0
) -> Page | None:
    """A model; None where the store has none of this name.

    Args:
        page, history_page: of the versions, and of the champions.
        changed: the version that a form has just made the champion.
    """
    runs = [run for run in opened.index.runs() if run.pipeline == model]
    registry = opened.registry(model)
    if registry is None and not runs:
        return None
    slug = opened.slug
    history: list[Event] = []
    aliases: dict[str, int] = {}
    version, problem = champion_of(registry) if registry else (None, None)
    problems = [problem] if problem else []
    try:
        history = registry.history() if registry else []
        aliases = registry.aliases() if registry else {}
    except HeadwayError as error:
        problems.append(_in_a_line(error))
    findings = [Finding("error", text) for text in dict.fromkeys(problems)]
    there = numbers(registry.store, registry.folder) if registry else []
    facts: list[tuple[str, Any]] = [("versions", f"{len(there):,}"), ("runs", f"{len(runs):,}")]
    actions = []
    message = heading = ""
    if registry and version is not None:
        primary, value = primary_of(opened, version)
        facts = [("in production since", f"{when(history[-1].time)} UTC"), *facts]
        facts = [(primary, number(value)), *facts] if primary else facts
        heading = f"{model}: version {version.number} is the champion"
        message = f"Version {version.number} is the champion now." if changed == version.number else ""
        if (before := registry.previous()) is not None:
            facts.append(("champion before", _version_link(slug, model, before)))
            actions.append((f"Roll back to version {before}", address(slug, "models", model, "rollback")))
    facts += [(f"alias {name}", _version_link(slug, model, at)) for name, at in aliases.items()]
    parts = [Part("Versions", [] if there else ["No version yet: the first run that the gate lets through makes one."])]
    if registry and there:
        parts = [_versions(opened, registry, there, history, aliases, page)]
    if history:
        parts.insert(0, _champions(opened, model, registry, history, history_page))
    parts.append(_drift(opened, model))
    every_run = link(counted(len(runs), "run"), address(slug, "runs", pipeline=model))
    parts.append(Part("Runs", [Markup("{} of this pipeline in the store.").format(every_run)]))
    return Page(
        model,
        heading or f"{model}: no champion yet",
        slug,
        "Overview",
        crumbs=[("Overview", address(slug))],
        facts=facts,
        findings=findings,
        actions=actions,
        message=message,
        parts=parts,
    )


def champion_of(registry: Registry) -> tuple[Version | None, str | None]:
    """(the champion, None), or (None, why it cannot be shown); (None, None) before the first promotion."""
    try:
        return registry.champion(), None
    except HeadwayError as error:
        return None, _in_a_line(error)


def _in_a_line(error: HeadwayError) -> str:
    return str(error).replace("\n  fix: ", "; ")


def primary_of(opened: OpenedStore, version: Version) -> tuple[str, float | None]:
    """(the metric that the gate decided by, its value); the first of the usual ones where that is not known."""
    made_by = version.facts.get("run")
    run = opened.index.known(made_by)
    metrics = metrics_of(version)
    known = [run and run.verdict and run.verdict.primary, (version.facts.get("standing") or {}).get("metric")]
    known.append(metrics_line(metrics).split(" ")[0])
    name = next((name for name in known if name in metrics), "")
    return (name, metrics[name]) if name else ("", None)


def metrics_of(version: Version) -> dict[str, float]:
    metrics = version.facts.get("metrics")
    found = metrics if isinstance(metrics, Mapping) else {}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


def spans_of(version: Version) -> list[str]:
    spans = version.facts.get("spans")
    return [str(span) for span in spans] if isinstance(spans, list) else []


def _version_link(slug: str, model: str, version: int) -> Markup:
    return link(f"v{version}", address(slug, "models", model, "versions", version))


def _read(registry: Registry, version: int) -> Version | None:
    try:
        return registry.version(version)
    except HeadwayError:
        return None


def _versions(
    opened: OpenedStore,
    registry: Registry,
    there: Sequence[int],
    history: Sequence[Event],
    aliases: Mapping[str, int],
    page: int,
) -> Part:
    slug, model = opened.slug, registry.name
    shown, page, pages = paged(list(reversed(there)), page)
    champion = history[-1].version if history else None
    gone = registry.rolled_back() if history else {}
    rows = []
    for number_of in shown:
        version = _read(registry, number_of)
        marks = ["champion"] if number_of == champion else []
        marks += ["rolled back"] if number_of in gone else []
        marks += [name for name, at in aliases.items() if at == number_of]
        row: dict[str, Any] = {"version": _version_link(slug, model, number_of), "is": ", ".join(marks)}
        if version is None:
            rows.append(row | {"is": Markup('<span class="state red">damaged</span>')})
            continue
        made_by = str(version.facts.get("run") or "")
        to = address(slug, "models", model, "versions", number_of, "promote")
        row["change"] = link("promote…", to) if number_of != champion else ""
        row |= {"made": when(version.created), "window": window_text(spans_of(version))}
        row |= {"metrics": _few_metrics(metrics_of(version)), "run": _run_link(opened, made_by)}
        rows.append(row)
    note = pager(page, pages, slug, "models", model)
    return Part("Versions", tables=[Table("Versions", rows, note=note)])


def _few_metrics(metrics: dict[str, Any]) -> str:
    return ", ".join(metrics_line(metrics).split(", ")[:3])


def _run_link(opened: OpenedStore, run: str) -> Markup | str:
    known = opened.index.known(run) is not None
    return link(run, address(opened.slug, "runs", run)) if known else run


def _champions(opened: OpenedStore, model: str, registry: Registry | None, history: Sequence[Event], page: int) -> Part:
    slug = opened.slug
    shown, page, pages = paged(list(reversed(history)), page, _HISTORY)
    rows = [
        {
            "when": when(event.time),
            "what": "rolled back to" if event.kind == "rollback" else "promoted",
            "version": _version_link(slug, model, event.version),
            "in place of": f"v{event.previous}" if event.previous is not None else "",
            "verdict": event.verdict or "",
            "by": event.by,
            "why": long(event.reason),
        }
        for event in shown
    ]
    note = pager(page, pages, slug, "models", model, key="history")
    table = Table("Champions, the newest first", rows, note=note)
    return Part("Champions", charts=list(_champion_chart(opened, model, registry, history)), tables=[table])


def _champion_chart(
    opened: OpenedStore, model: str, registry: Registry | None, history: Sequence[Event]
) -> Iterator[Chart]:
    """The gate's metric of each champion in turn."""
    found = []
    for event in history[-MOST_POINTS:]:
        if registry and (value := _worth(opened, registry, event.version)) is not None:
            found.append((f"v{event.version}", value))
    metric = found[-1][1][0] if found else ""
    points = [(place, value) for place, (name, value) in found if name == metric and value is not None]
    if metric and len(points) > 1:
        places, values = zip(*points, strict=True)
        yield metric_chart(f"{metric} of each champion of {model}", metric, places, values, note=_OTHER_ROWS)


def _worth(opened: OpenedStore, registry: Registry, number_of: int) -> tuple[str, float | None] | None:
    """What `primary_of` says of a version, read once: a version does not change."""
    known = opened.worths.setdefault(registry.name, {})
    if number_of not in known and (version := _read(registry, number_of)) is not None:
        known[number_of] = primary_of(opened, version)
    return known.get(number_of)


# --- drift


def _drift(opened: OpenedStore, model: str) -> Part:
    checked = checked_spans(opened.store, model)
    if checked.problem:
        return Part("Drift over time", findings=[Finding("error", checked.problem)])
    if not checked.rows:
        return Part(
            "Drift over time",
            [
                "Nothing was checked yet. This holds each new span against the champion, and its metrics on labels that came:"
            ],
            commands=[f"headway monitor {_file_of(opened, model)}"],
        )
    newest = checked.rows[-MOST_POINTS:]
    rows = [_checked_row(opened, model, row) for row in reversed(newest)]
    charts = [*_scored_charts(opened, model, newest), *_drift_charts(newest)]
    alarmed = [row for row in newest if row.alarms]
    alarms = [
        Finding("warning", f"span {row.span}, version {row.champion}: {alarm}")
        for row in alarmed[-1:]
        for alarm in row.alarms
    ]
    table = Table("Spans held against the champion, the newest first", rows)
    said = (
        f"headway monitor checked {counted(len(checked.rows), 'span')}; {counted(len(alarmed), 'span')} raised an alarm"
    )
    said += f", the last of them {alarmed[-1].span}:" if alarmed else "."
    return Part("Drift over time", [said], charts, [table], findings=alarms)


def _file_of(opened: OpenedStore, model: str) -> str:
    loaded = opened.pipelines.get(model)
    return str(loaded.folder) if loaded else "PIPELINE"


def _checked_row(opened: OpenedStore, model: str, row: CheckedSpan) -> dict[str, Any]:
    worst = next(iter(row.distances.items()), None)
    return {
        "span": row.span,
        "champion": _version_link(opened.slug, model, row.champion),
        "rows": f"{row.rows:,}" if row.rows is not None else "",
        "moved furthest": f"{worst[0]} {number(worst[1])}" if worst else "",
        "drifted": len(row.drift) or "",
        "rows with a label": f"{row.scored:,}" if row.scored is not None else "none yet",
        "became worse": "yes" if row.decay else "",
        "champion on it": _few_metrics(row.metrics),
        "checked": when(row.checked),
    }


def _scored_charts(opened: OpenedStore, model: str, rows: Sequence[CheckedSpan]) -> Iterator[Chart]:
    """The metric of the champion that was checked last on the labels of later spans, beside what it was promoted with."""
    registry = opened.registry(model)
    champion = _read(registry, rows[-1].champion) if registry else None
    if champion is None:
        return
    metric, level = primary_of(opened, champion)
    points = [
        (row.span, row.metrics[metric])
        for row in rows
        if row.champion == champion.number and isinstance(row.metrics.get(metric), int | float)
    ]
    if not points:
        return
    places, values = zip(*points, strict=True)
    title = f"{metric} of version {champion.number} on spans that came since"
    change = signed(values[-1] - level) if level is not None else ""
    note = f"{change} on the newest span since its promotion." if change else ""
    yield metric_chart(title, metric, places, values, level=level, level_name="at its promotion", note=note)


def _drift_charts(rows: Sequence[CheckedSpan]) -> Iterator[Chart]:
    """How far the columns of each span lie from the train rows of the champion that it was held against."""
    latest = {row.span: row for row in rows if row.distances}  # of a span held against several, the last
    places = sorted(latest)
    columns: dict[str, dict[int, float]] = {}
    for at, place in enumerate(places):
        for name, distance in latest[place].distances.items():
            columns.setdefault(name, {})[at] = distance
    if columns:
        note = (
            "Text: the greatest change of a value's share; numbers: Jensen-Shannon divergence in bits. 0 is no drift."
        )
        yield drift_chart("Columns, from the champion's train rows", places, columns, note)
