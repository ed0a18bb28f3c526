"""A comparison as text for a terminal.

print("\n".join(lines(comparison.value)))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flows.tell.comparison.outcome import rows_of_both, signed_spread
from flows.tell.evaluation_tables import MOST_VALUES, slice_head
from flows.tell.text import text_table
from headway.messages import counted, number, some, window_text

Facts = dict[str, Any]


def lines(value: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a comparison, from its value."""
    a, b = value["a"], value["b"]
    heads = [f"{side['name']} ({', '.join(side['names'])})" if side["names"] else side["name"] for side in (a, b)]
    rows = [
        _row(heads, name, *(_figure(side["metrics"].get(name)) for side in (a, b)))
        for name in a["metrics"] | b["metrics"]
    ]
    difference = value["difference"]
    yield value["summary"]
    yield ""
    for row in rows if difference else []:
        if (spread := difference["metrics"].get(row["version"])) is not None:
            row["difference"] = signed_spread(spread)
    yield text_table(rows, whole=["version", *heads, "difference"])
    yield ""
    facts = [
        _row(heads, "train", *(_window(side["spans"]["train"]) for side in (a, b))),
        _row(heads, "eval", *(_window(side["spans"]["eval"]) for side in (a, b))),
        _row(heads, "rows", *(_rows(side) for side in (a, b))),
        _row(heads, "bytes", *(f"{side['bytes']:,}" if side["bytes"] else "" for side in (a, b))),
        _row(heads, "made", *(side["created"][:16].replace("T", " ") for side in (a, b))),
        _row(heads, "gate", *(_verdict(side["verdict"]) for side in (a, b))),
    ]
    yield text_table([row for row in facts if any(row[head] for head in heads)], whole=["version", *heads])
    yield ""
    if difference:
        yield f"difference: {b['name']} - {a['name']} on the {rows_of_both(difference)}, with 95% intervals"
        yield from _slices(difference["slices"], heads)
    else:
        yield value["no_difference"]
    yield from (f"{side['is']}: {side['problem']}" for side in (a, b) if side["problem"])
    yield from _named("trained on", value["data"], a, b)
    if changed := value["data"]["files_changed"]:
        yield f"raw files changed in between: {some(changed, 8)}"
    if value["columns"] is not None:
        yield from _named("columns", value["columns"], a, b)
        yield from (f"column {change}" for change in value["columns"]["changed"])
    if value["code"]:
        yield f"code: {counted(len(value['code']), 'difference')}"
        yield text_table([_row(heads, d["key"], _short(d["a"]), _short(d["b"])) for d in value["code"]])
    yield "config: " + (
        "the same, as far as it was kept" if not value["config"] else counted(len(value["config"]), "difference")
    )
    if value["config"]:
        yield text_table([_row(heads, d["key"], _short(d["a"]), _short(d["b"])) for d in value["config"]])
    for side in (a, b):
        yield from (f"gate on {side['is']}: {reason}" for reason in side["verdict"].get("reasons", []))


def _slices(slices: list[dict[str, Any]], heads: list[str]) -> Iterator[str]:
    """Yield the values with most rows of each slice."""
    for name in dict.fromkeys(each["slice"] for each in slices):
        figures = [each for each in slices if each["slice"] == name]
        sizes = {each["value"]: each["rows"] for each in figures}
        largest = sorted(sizes, key=lambda value: -sizes[value])[:MOST_VALUES]
        head_of_values = slice_head(name, {"rows", "metric", "difference", *heads})
        rows = [
            {head_of_values: each["value"], "rows": each["rows"], "metric": each["metric"]}
            | {head: _figure(each[key]) for head, key in zip(heads, "ab", strict=True)}
            | {"difference": signed_spread(each)}
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


def _named(what: str, sides: Mapping[str, list[str]], a: Facts, b: Facts) -> Iterator[str]:
    for key, side in (("only_a", a), ("only_b", b)):
        if sides[key]:
            yield f"{what} only of {side['is']}: {some(sides[key], 8)}"


def _figure(metric: Mapping[str, Any] | None) -> str:
    if metric is None:
        return ""
    interval = metric["interval"]
    return number(metric["value"]) + (f" ({number(interval[0])} to {number(interval[1])})" if interval else "")


def _window(spans: list[str]) -> str:
    return f"{window_text(spans)}, {counted(len(spans), 'span')}" if spans else ""


def _rows(side: Facts) -> str:
    return ", ".join(f"{split} {count:,}" for split, count in side["rows"].items())


def _verdict(verdict: Mapping[str, Any]) -> str:
    against = f" against version {verdict['champion']}" if verdict.get("champion") else ""
    return f"{verdict.get('verdict') or 'not known'}{against}"


def _short(value: Any) -> str:
    return "" if value is None else str(value)
