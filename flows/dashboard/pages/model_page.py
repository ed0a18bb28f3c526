"""One model: its champion and those before, its versions, and how its champions fared on spans that came after."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from flows.dashboard.layout import Page, address, link, paged
from flows.dashboard.opened_stores import OpenedStore, checked_spans, pair_of, version_of
from flows.dashboard.pages.time_charts import MOST_POINTS, differences_chart, drift_chart, trend_chart
from flows.production.state_files import CheckedSpan
from flows.tell.paired import eval_spans, level, metrics_of, own_level, primary_of, spans_of
from flows.tell.rendering.parts import Chart, Finding, Part, Table
from headway.errors import HeadwayError
from headway.messages import counted, number, when, window_text
from headway.redaction import redact
from headway.registry.registry import Event, Registry, Version
from headway.registry.versions import numbers

_HISTORY = 20


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
    version, problem = champion_of(registry)
    problems = [problem] if problem else []
    try:
        history = registry.history() if registry else []
        aliases = registry.aliases() if registry else {}
    except HeadwayError as error:
        problems.append(_in_a_line(error))
    there = numbers(registry.store, registry.folder) if registry else []
    facts: list[tuple[str, object]] = []
    actions = []
    message, heading = "", f"{model}: no champion yet"
    if registry and version is not None:
        facts = [("metric", own)] if (own := level_of(opened, version)) else []
        facts.append(("in production since", f"{when(history[-1].time)} UTC"))
        heading = f"{model}: version {version.number} is the champion"
        message = f"Version {version.number} is the champion now." if changed == version.number else ""
    facts += [("versions", f"{len(there):,}"), ("runs", link(f"{len(runs):,}", address(slug, "runs", pipeline=model)))]
    if registry and version is not None and (before := registry.previous()) is not None:
        facts.append(("champion before", version_link(slug, model, before)))
        actions.append((f"Roll back to version {before}", address(slug, "models", model, "rollback")))
    facts += [(f"alias {name}", version_link(slug, model, at)) for name, at in aliases.items()]
    return Page(
        model,
        heading,
        slug,
        "Overview",
        crumbs=[("Overview", address(slug))],
        facts=facts,
        findings=[Finding("error", text) for text in dict.fromkeys(problems)],
        actions=actions,
        message=message,
        parts=[
            *([_champions(opened, model, history, history_page)] if history else []),
            _versions(opened, registry, there, history, aliases, page)
            if registry and there
            else Part("Versions", ["No version yet: the first run that the gate lets through makes one."]),
            _drift(opened, model, registry),
        ],
    )


def champion_of(registry: Registry | None) -> tuple[Version | None, str | None]:
    """(the champion, None), or (None, why it cannot be shown); (None, None) before the first promotion."""
    try:
        return (registry.champion() if registry else None), None
    except HeadwayError as error:
        return None, _in_a_line(error)


def _in_a_line(error: HeadwayError) -> str:
    said = f"{error.where}: {error.problem}" if error.where else error.problem
    return redact(f"{said}; {error.fix}" if error.fix else said)


def version_link(slug: str, model: str, version: int) -> Markup:
    return link(f"v{version}", address(slug, "models", model, "versions", version))


def level_of(opened: OpenedStore, version: Version) -> str:
    """The metric that decided about a version, with the spans of its rows."""
    known = opened.index.known(version.facts.get("run"))
    return own_level(version, known.verdict.primary if known and known.verdict else None)


def _versions(
    opened: OpenedStore,
    registry: Registry,
    there: Sequence[int],
    history: Sequence[Event],
    aliases: Mapping[str, int],
    page: int,
) -> Part:
    slug, model = opened.slug, registry.name
    shown, note = paged(list(reversed(there)), page, slug, "models", model)
    champion = history[-1].version if history else None
    gone = registry.rolled_back() if history else {}
    rows: list[dict[str, object]] = []
    for each in shown:
        marks = ["champion"] if each == champion else []
        marks += ["rolled back"] if each in gone else []
        marks += [name for name, at in aliases.items() if at == each]
        row: dict[str, object] = {"version": version_link(slug, model, each), "is": ", ".join(marks)}
        try:
            version, pair = version_of(opened.store, model, each), pair_of(opened.store, model, each)
        except HeadwayError:
            rows.append(row | {"is": Markup('<span class="state red">damaged</span>')})
            continue
        run, to = str(version.facts.get("run") or ""), address(slug, "models", model, "versions", each, "promote")
        rows.append(
            row
            | {
                "change": link("promote…", to) if each != champion else "",
                "made": Markup("<time>{}</time>").format(when(version.created)),
                "window": window_text(spans_of(version)),
                "on the same rows": pair.text if pair else "",
                "its own level": level_of(opened, version),
                "run": link(run, address(slug, "runs", run)) if opened.index.known(run) else run,
            }
        )
    return Part("Versions", tables=[Table("Versions", rows, note=note)])


def event_rows(opened: OpenedStore, model: str, events: Sequence[Event]) -> list[dict[str, object]]:
    """Promotions and rollbacks, a row each."""
    return [
        {
            "when": when(event.time),
            "what": "rolled back to" if event.kind == "rollback" else "promoted",
            "version": version_link(opened.slug, model, event.version),
            "in place of": f"v{event.previous}" if event.previous is not None else "",
            "verdict": event.verdict or "",
            "by": event.by,
            "why": Markup('<span class="long">{}</span>').format(event.reason),
        }
        for event in events
    ]


def _champions(opened: OpenedStore, model: str, history: Sequence[Event], page: int) -> Part:
    newest = list(reversed(history))
    shown, note = paged(newest, page, opened.slug, "models", model, key="history", size=_HISTORY)
    table = Table("Champions, the newest first", event_rows(opened, model, shown), note=note)
    return Part("Champions", charts=list(_steps(opened, model, history)), tables=[table])


def _steps(opened: OpenedStore, model: str, history: Sequence[Event]) -> Iterator[Chart]:
    """How each champion differed from the one that it replaced, both on the same rows."""
    found = []
    for event in history[-MOST_POINTS:]:
        with contextlib.suppress(HeadwayError):  # of a version that is damaged
            pair = pair_of(opened.store, model, event.version)
            if pair is not None and event.kind == "promote" and pair.against == event.previous:
                found.append(pair)
    if found:
        metric = found[-1].checks[0].metric
        yield differences_chart(tuple(pair for pair in found if pair.checks[0].metric == metric))


# --- drift


def _drift(opened: OpenedStore, model: str, registry: Registry | None) -> Part:
    checked, problem = checked_spans(opened.store, model)
    title = "Drift over time"
    if problem:
        return Part(title, findings=[Finding("error", problem)])
    if not checked:
        said = "Nothing was checked yet. This holds each new span against the champion, and its metrics on labels that came:"
        loaded = opened.pipelines.get(model)
        return Part(title, [said], commands=[f"headway monitor {loaded.folder if loaded else 'PIPELINE'}"])
    newest = checked[-MOST_POINTS:]
    alarmed = [row for row in newest if row.alarms]
    last = alarmed[-1] if alarmed else None
    alarms = [f"span {last.span}, version {last.champion}: {alarm}" for alarm in last.alarms] if last else []
    said = f"headway monitor checked {counted(len(checked), 'span')}; {counted(len(alarmed), 'span')} raised an alarm"
    rows = [_checked_row(opened, model, row) for row in reversed(newest)]
    return Part(
        title,
        [said + (f", the last of them {last.span}:" if last else ".")],
        [*_trend(registry, newest), *_drift_charts(newest)],
        [Table("Spans held against the champion, the newest first", rows)],
        findings=[Finding("warning", alarm) for alarm in alarms],
    )


def _checked_row(opened: OpenedStore, model: str, row: CheckedSpan) -> dict[str, object]:
    worst = next(iter(row.distances.items()), None)
    metric = next(iter(row.metrics), None)
    return {
        "span": row.span,
        "champion": version_link(opened.slug, model, row.champion),
        "rows": row.rows,
        "moved furthest": f"{worst[0]} {number(worst[1])}" if worst else "",
        "drifted": len(row.drift) or "",
        "rows with a label": row.scored if row.scored is not None else "none yet",
        "became worse": "yes" if row.decay else "",
        "champion on it": level(metric, row.metrics[metric], [row.span]) if metric else "",
        "checked": when(row.checked),
    }


def _trend(registry: Registry | None, rows: Sequence[CheckedSpan]) -> Iterator[Chart]:
    """One model over several spans: the champion that was checked last, on the labels of later spans."""
    try:
        champion = registry.version(rows[-1].champion) if registry else None
    except HeadwayError:
        return
    metric = primary_of(champion) if champion else None
    points = [
        (row.span, row.metrics[metric]) for row in rows if metric in row.metrics and row.champion == rows[-1].champion
    ]
    if champion is not None and metric is not None and points:
        at_first = (metrics_of(champion)[metric], window_text(eval_spans(champion)) or "its eval rows")
        yield trend_chart(f"Version {champion.number} on later spans: {metric}", metric, points, at_first)


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
