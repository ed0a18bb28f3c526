"""`headway compare A B`: two versions or runs side by side: metrics, what the gate said, config, columns, data, size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from flows.cli.commands import answer
from flows.cli.options import Options, PipelinePath
from flows.cli.versions.promotion import arranged, registry_of
from flows.cli.versions.run_side import RUN, run_named, run_side, version_of
from headway.errors import ConfigError, HeadwayError
from headway.messages import counted, number, signed, some, window_text

if TYPE_CHECKING:
    from headway.metrics.base import Rows
    from headway.registry.registry import Registry, Version

CONFIDENCE = 0.95
Side = dict[str, Any]
_ABSENT = object()


def compare(
    first: Annotated[str, Parameter(name="A", help="a version (its number, champion, previous or an alias) or a run")],
    second: Annotated[str, Parameter(name="B", help="the other version or run")],
    pipeline: PipelinePath = ".",
    /,
    *,
    options: Options = Options(),
) -> int:
    """Two versions of a model, or two runs: metrics with 95% intervals, the difference on the same rows where both scored
    them, config, columns, data windows, size, and what the gate said."""
    (first, second), pipeline = arranged([first, second], pipeline)
    value = compared(registry_of(pipeline, options), first, second)
    return answer(options, value, "\n".join(_text(value)))


def compared(registry: Registry, first: str, second: str) -> dict[str, Any]:
    """Compare two versions, named by number, champion, previous or an alias, or two runs.

    Raises:
        StoreError: there is no such version or run.
        ConfigError: both are the same one.
    """
    a, b = (_named_side(registry, name) for name in (first, second))
    if a["name"] == b["name"]:
        same = f"version, {a['version']}" if a["version"] else f"run, {a['run']}"
        problem = f"{first} and {second} are the same {same}"
        raise ConfigError(problem, fix="headway models lists the versions, and headway runs the runs")
    value: dict[str, Any] = {
        "a": a,
        "b": b,
        "difference": _on_the_same_rows(registry, a, b),
        "config": _differences(a.pop("config"), b.pop("config")),
        "columns": _columns(a.pop("columns"), b.pop("columns")),
        "data": _data(a, b, a.pop("files"), b.pop("files")),
    }
    return value


def _named_side(registry: Registry, name: str) -> Side:
    """Return all that is shown of a version or a run; of a run that made a version, the version."""
    if not RUN.fullmatch(name):
        return _side(registry, registry.named(name))
    record = run_named(registry, name)
    if (number := version_of(record)) is not None:
        return _side(registry, registry.version(number))
    side = run_side(registry, record)
    side["metrics"], side["problem"] = _metrics(registry, side, record.get("metrics") or {})
    return side


def _side(registry: Registry, version: Version) -> Side:
    """Return all that is shown of one version; `problem` if its predictions no longer exist."""
    from headway.registry.lineage import read
    from tfcore.export.metadata import FILE, describe_model

    lineage, store = read(registry, version), registry.store
    manifest = store.manifest(version.path)
    try:
        store.localize([str(version.saved_model / FILE), str(version.saved_model / "saved_model.pb")])
        columns = {c.name: c.model_dump(mode="json") for c in describe_model(version.saved_model).columns}
    except HeadwayError:
        columns = None
    parts = lineage["parts"]
    places = {"champion": registry.decided_against(), "previous": registry.previous(), **registry.aliases()}
    config = lineage["config"] or _trained_with(registry, version)
    side: Side = {
        "name": str(version.number),
        "is": f"version {version.number}",
        "version": version.number,
        "names": [name for name, at in places.items() if at == version.number],
        "created": version.created,
        "run": lineage["run"]["run"],
        "spans": {split: [part[0] for part in parts[split]] for split in ("train", "eval")},
        "bytes": sum(entry.bytes for entry in manifest.files) if manifest else None,
        "verdict": (lineage["verdict"] or {}) | {"champion": lineage["champion"]},
        "evaluated": {s["title"]: s["fingerprint"] for s in lineage["stages"] if s["stage"] == "evaluate"}
        | ({"evaluate": version.facts["evaluation"]} if version.facts.get("evaluation") else {}),
        "measured": next((s["fingerprint"] for s in lineage["stages"] if s["title"] == "measure"), None),
        "task": version.facts.get("task"),
        "config": config,
        "columns": columns,
        "files": version.facts.get("data") or {},
    }
    side["metrics"], side["problem"] = _metrics(registry, side, version.facts.get("metrics") or {})
    return side


def _trained_with(registry: Registry, version: Version) -> dict[str, Any] | None:
    """The model's and the training's settings, of a version whose whole config was not kept."""
    manifest = registry.store.find("train", str(version.facts.get("train")))
    return None if manifest is None else dict(manifest.key["config"])


def _predictions(registry: Registry, fingerprint: str | None) -> Any:
    """The predictions of an evaluation that the store still has, a pyarrow table; None when they are gone."""
    from headway.evaluation.gate_checks import read_predictions

    manifest = registry.store.find("evaluate", fingerprint) if fingerprint else None
    if manifest is None or fingerprint is None or "predictions" not in manifest.result:
        return None
    path = registry.store.output("evaluate", fingerprint) / manifest.result["predictions"]
    registry.store.localize(str(path))
    return read_predictions(path)


def _metrics(registry: Registry, side: Side, metrics: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Return {metric: {value, interval}}, and the reason if there are no intervals."""
    found: dict[str, dict[str, Any]] = {
        name: {"value": value, "interval": None} for name, value in metrics.items() if isinstance(value, int | float)
    }
    table = _predictions(registry, side["evaluated"].get("evaluate"))
    if table is None or side["task"] is None:
        return found, "its predictions are no longer in the store, so there are no intervals"
    from headway.evaluation.metrics import metrics_of, rows_of
    from headway.evaluation.results.intervals import intervals

    task = side["task"]
    if ":" in task:
        return found, "its task is one of your own, so there are no intervals"
    for name, interval in intervals(rows_of(table, task), metrics_of(task), confidence=CONFIDENCE).items():
        if name in found and interval is not None:
            found[name]["interval"] = list(interval)
    return found, None


def _on_the_same_rows(registry: Registry, a: Side, b: Side) -> dict[str, Any] | None:
    """Return B - A on rows that both scored: from B's run if A was its champion, or the reverse, or each from its own run on
    the same eval rows; None without such rows."""
    from headway.evaluation.bootstrap import paired
    from headway.evaluation.gate_checks import check_same_rows
    from headway.evaluation.metrics import metrics_of, rows_of

    task = a["task"]
    if task != b["task"] or task is None or ":" in task:
        return None
    for host, guest in ((b, a), (a, b)):
        titles = [f"evaluate {role} {guest['version']}" for role in ("champion", "reference")]
        other = next((host["evaluated"][title] for title in titles if title in host["evaluated"]), None)
        own, guests = host["evaluated"].get("evaluate"), guest["evaluated"].get("evaluate")
        if other is None and _examples(registry, own) is not None:
            other = guests if _examples(registry, own) == _examples(registry, guests) else None
        mine, theirs = _predictions(registry, own), _predictions(registry, other)
        if mine is None or theirs is None:
            continue
        check_same_rows(mine, theirs, f"{guest['is']}'s", other or "")
        tables = {host["name"]: mine, guest["name"]: theirs}
        first, second = (rows_of(tables[side["name"]], task) for side in (a, b))
        directed = [metric for metric in metrics_of(task) if metric.higher_is_better is not None]
        compared = {
            name: {"difference": spread.difference, "interval": spread.interval(CONFIDENCE)}
            for name, spread in paired(second, first.prediction, metrics=directed).items()
        }
        slices = _on_slices(registry, host, mine, first, second)
        return {"rows": len(mine), "run": host["run"], "metrics": compared, "slices": slices}
    return None


def _examples(registry: Registry, fingerprint: str | None) -> Any:
    """What an evaluation scored: fingerprints of spans, and the split of each; None when that is not known."""
    manifest = registry.store.find("evaluate", fingerprint) if fingerprint else None
    return None if manifest is None else (manifest.key.get("inputs") or {}).get("examples")


def _on_slices(registry: Registry, host: Side, table: Any, a: Rows, b: Rows) -> list[dict[str, Any]]:
    """Return both versions on each slice that the run measured, by the metrics that the gate compares."""
    from headway.evaluation.bootstrap import paired
    from headway.evaluation.results.intervals import intervals
    from headway.evaluation.slices import slice_rows
    from headway.tasks.table import task_of

    manifest = registry.store.find("measure", host["measured"]) if host["measured"] else None
    if manifest is None:
        return []
    task = task_of(host["task"])
    metrics = [task.metric(name) for name in task.tolerances]
    found = []
    for name in manifest.key["slices"]:
        for value, at in slice_rows(table, name, manifest.key["config"]["slice_min_rows"]):
            sides = [rows.at(at) for rows in (a, b)]
            ranges = [intervals(rows, metrics, confidence=CONFIDENCE) for rows in sides]
            spreads = paired(sides[1], sides[0].prediction, metrics=metrics)
            for metric in metrics:
                figures = [
                    {"value": metric.on(rows), "interval": each[metric.name]}
                    for rows, each in zip(sides, ranges, strict=True)
                ]
                spread = spreads[metric.name]
                difference = {"difference": spread.difference, "interval": spread.interval(CONFIDENCE)}
                where = {"slice": name, "value": value, "rows": len(at), "metric": metric.name}
                found.append(where | {"a": figures[0], "b": figures[1]} | difference)
    return found


def _differences(a: Any, b: Any, at: str = "") -> list[dict[str, Any]]:
    """Return [{key, a, b}] for each leaf of two configs that differs; None stands for a key that one lacks."""
    if a is None and b is None and not at:
        return []
    if isinstance(a, dict) and isinstance(b, dict):
        names = [*a, *(name for name in b if name not in a)]
        below = (_differences(a.get(n, _ABSENT), b.get(n, _ABSENT), f"{at}.{n}".lstrip(".")) for n in names)
        return [difference for found in below for difference in found]
    if a == b:
        return []
    return [{"key": at, "a": None if a is _ABSENT else a, "b": None if b is _ABSENT else b}]


def _columns(a: dict[str, Any] | None, b: dict[str, Any] | None) -> dict[str, list[str]] | None:
    if a is None or b is None:
        return None
    changed = [f"{name}: {a[name]['type']} -> {b[name]['type']}" for name in a if name in b and a[name] != b[name]]
    return {"only_a": sorted(a.keys() - b.keys()), "only_b": sorted(b.keys() - a.keys()), "changed": changed}


def _data(a: Side, b: Side, files_a: Mapping[str, str], files_b: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the training spans that only one of two versions has, and those whose raw files changed in between."""
    mine, theirs = a["spans"]["train"], b["spans"]["train"]
    return {
        "only_a": [span for span in mine if span not in theirs],
        "only_b": [span for span in theirs if span not in mine],
        "files_changed": [span for span in mine if span in theirs and files_a.get(span) != files_b.get(span)],
    }


def _text(value: dict[str, Any]) -> Iterator[str]:
    from flows.progress.tables import text_table

    a, b = value["a"], value["b"]
    heads = [f"{side['name']} ({', '.join(side['names'])})" if side["names"] else side["name"] for side in (a, b)]
    rows = [
        _row(heads, name, *(_figure(side["metrics"].get(name)) for side in (a, b)))
        for name in a["metrics"] | b["metrics"]
    ]
    difference = value["difference"]
    for row in rows if difference else []:
        if (spread := difference["metrics"].get(row["version"])) is not None:
            row["difference"] = _signed(spread)
    yield text_table(rows, whole=["version", *heads, "difference"])
    yield ""
    facts = [
        _row(heads, "train", *(_window(side["spans"]["train"]) for side in (a, b))),
        _row(heads, "eval", *(_window(side["spans"]["eval"]) for side in (a, b))),
        _row(heads, "bytes", *(f"{side['bytes']:,}" if side["bytes"] else "" for side in (a, b))),
        _row(heads, "made", *(side["created"][:16].replace("T", " ") for side in (a, b))),
        _row(heads, "gate", *(_verdict(side["verdict"]) for side in (a, b))),
    ]
    yield text_table(facts, whole=["version", *heads])
    yield ""
    if difference:
        yield (
            f"difference: {b['name']} - {a['name']} on the {counted(difference['rows'], 'row')} that run "
            f"{difference['run']} scored with both, with 95% intervals"
        )
        yield from _slices(difference["slices"], heads)
    else:
        yield "metrics are of different rows: no run scored the same rows with both"
    yield from (f"{side['is']}: {side['problem']}" for side in (a, b) if side["problem"])
    yield from _named("trained on", value["data"], a, b)
    if changed := value["data"]["files_changed"]:
        yield f"raw files changed in between: {some(changed, 8)}"
    if value["columns"] is not None:
        yield from _named("columns", value["columns"], a, b)
        yield from (f"column {change}" for change in value["columns"]["changed"])
    yield "config: " + (
        "the same, as far as it was kept" if not value["config"] else counted(len(value["config"]), "difference")
    )
    if value["config"]:
        yield text_table([_row(heads, d["key"], _short(d["a"]), _short(d["b"])) for d in value["config"]])
    for side in (a, b):
        yield from (f"gate on {side['is']}: {reason}" for reason in side["verdict"].get("reasons", []))


def _slices(slices: list[dict[str, Any]], heads: list[str]) -> Iterator[str]:
    """Yield the values with most rows of each slice."""
    from flows.progress.evaluation_tables import MOST_VALUES
    from flows.progress.tables import text_table

    for name in dict.fromkeys(each["slice"] for each in slices):
        figures = [each for each in slices if each["slice"] == name]
        sizes = {each["value"]: each["rows"] for each in figures}
        largest = sorted(sizes, key=lambda value: -sizes[value])[:MOST_VALUES]
        rows = [
            {name: each["value"], "rows": each["rows"], "metric": each["metric"]}
            | {head: _figure(each[key]) for head, key in zip(heads, "ab", strict=True)}
            | {"difference": _signed(each)}
            for each in figures
            if each["value"] in largest
        ]
        more = (
            f"the {len(largest)} values with most rows of {len(sizes)}; --json has all"
            if len(sizes) > len(largest)
            else ""
        )
        yield from filter(None, ("\n" + text_table(rows, whole=[*heads, "difference"]), more))
    yield from [""] * bool(slices)


def _row(heads: list[str], name: str, a: str, b: str) -> dict[str, str]:
    return {"version": name, heads[0]: a, heads[1]: b}


def _named(what: str, sides: Mapping[str, list[str]], a: Side, b: Side) -> Iterator[str]:
    for key, side in (("only_a", a), ("only_b", b)):
        if sides[key]:
            yield f"{what} only of {side['is']}: {some(sides[key], 8)}"


def _figure(metric: Mapping[str, Any] | None) -> str:
    if metric is None:
        return ""
    interval = metric["interval"]
    return number(metric["value"]) + (f" ({number(interval[0])} to {number(interval[1])})" if interval else "")


def _signed(spread: Mapping[str, Any]) -> str:
    interval = spread["interval"]
    return signed(spread["difference"]) + (f" ({signed(interval[0])} to {signed(interval[1])})" if interval else "")


def _window(spans: list[str]) -> str:
    return f"{window_text(spans)}, {counted(len(spans), 'span')}" if spans else ""


def _verdict(verdict: Mapping[str, Any]) -> str:
    against = f" against version {verdict['champion']}" if verdict.get("champion") else ""
    return f"{verdict.get('verdict') or 'not known'}{against}"


def _short(value: Any) -> str:
    return "" if value is None else str(value)
