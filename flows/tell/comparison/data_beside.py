"""The data of both sides: windows, raw files, and the columns of the train rows over one another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flows.tell.comparison.compared import Compared
from flows.tell.comparison.sides import Side
from flows.tell.figures.column_charts import distance, histograms
from flows.tell.figures.drawing import short
from flows.tell.parts import Part, Table
from flows.tell.sections.window_data import MOST_DRAWN, by_weight, train_statistics, usual_values
from headway.messages import some
from headway.schema.columns import LABEL
from headway.validation.drift import drift_distance

_MOST_LOADED = 300
"""Columns whose distance is measured; of wider tables those that matter most."""


def data(comparison: Compared, *, drawn: bool) -> Part:
    """The part on the data.

    Args:
        drawn: with the columns and their distributions.
    """
    a, b, value = comparison.a, comparison.b, comparison.value["data"]
    sentences = []
    for key, side in (("only_a", a), ("only_b", b)):
        if value[key]:
            sentences.append(f"Only {side.label} was trained on {some(value[key], 12)}.")
    if not value["only_a"] and not value["only_b"]:
        sentences.append("Both were trained on the same spans.")
    if value["files_changed"]:
        sentences.append(f"The raw files of these spans changed in between: {some(value['files_changed'], 12)}.")
    if _same_statistics(a, b):
        return Part("Data", [*sentences, "Their train rows and eval rows are the same."])
    return Part("Data", sentences, tables=list(_columns(a, b)) if drawn else [])


def _same_statistics(a: Side, b: Side) -> bool:
    prints = [side.material.outputs.get("statistics") for side in (a, b)]
    return prints[0] is not None and prints[1] is not None and prints[0].fingerprint == prints[1].fingerprint


def _columns(a: Side, b: Side) -> Iterator[Table]:
    """The columns that both have, those first that are furthest apart."""
    sides = [
        {row["column"]: row for row in (side.material.result("statistics").get("columns") or {}).get("train", [])}
        for side in (a, b)
    ]
    names = [name for name in sides[0] if name in sides[1]]
    if not names:
        return
    order, by = by_weight(b.material, names)
    looked = order[:_MOST_LOADED]
    mine, theirs = (train_statistics(side.material, "statistics", looked) for side in (a, b))
    looked = [name for name in looked if name in mine and name in theirs]
    apart = {name: _apart(mine[name], theirs[name]) for name in looked}
    shown = sorted(looked, key=lambda name: -apart[name])[:MOST_DRAWN]
    pictures = histograms([(mine[name], theirs[name]) for name in shown], name="columns")
    rows = [
        {
            "column": "the label" if name == LABEL else short(name, 60),
            "distribution": picture,
            "drift": distance(mine[name], theirs[name]),
            f"usual values, {a.label}": usual_values(sides[0][name]),
            f"usual values, {b.label}": usual_values(sides[1][name]),
            f"missing, {a.label}": _missing(sides[0][name]),
            f"missing, {b.label}": _missing(sides[1][name]),
        }
        for name, picture in zip(shown, pictures, strict=True)
    ]
    note = f"Bars: the train rows of {a.label}; line: those of {b.label}. Drift: Jensen-Shannon divergence in bits, of text "
    note += "the greatest change of a value's share; the largest first."
    if len(names) > _MOST_LOADED:
        note += f" Looked at are the {_MOST_LOADED} columns {by}."
    note += f" {len(names) - len(shown):,} more are not shown." if len(names) > len(shown) else ""
    yield Table("Columns of the train rows", rows, note)


def _apart(mine: Any, theirs: Any) -> float:
    return drift_distance(mine, theirs) or 0.0 if distance(mine, theirs) else 0.0


def _missing(summary: dict[str, Any]) -> str:
    share = summary["missing"] / max(summary["rows"], 1)
    return "" if not summary["missing"] else f"{share:.1%}"
