"""The data of both sides: windows, raw files, and the columns of the train rows over one another."""

from __future__ import annotations

from collections.abc import Iterator

from flows.tell.comparison.compared import Compared
from flows.tell.comparison.sides import Side
from flows.tell.figures.column_charts import distance, histograms
from flows.tell.rendering.parts import Part, Table
from flows.tell.sections.column_rows import column_name, usual_values
from flows.tell.sections.window_data import MOST_DRAWN, by_weight, train_statistics
from headway.messages import some

_MOST_LOADED = 300
"""Columns whose distance is measured; of wider tables those that matter most."""


def data(comparison: Compared, *, drawn: bool) -> Part:
    """The part on the data.

    Args:
        drawn: with the columns and their distributions.
    """
    a, b, found = comparison.a, comparison.b, comparison.data
    sentences = [
        f"Only {side.label} was trained on {some(spans, 12)}."
        for spans, side in ((found.only_a, a), (found.only_b, b))
        if spans
    ]
    sentences = sentences or ["Both were trained on the same spans."]
    if found.files_changed:
        sentences.append(f"The raw files of these spans changed in between: {some(found.files_changed, 12)}.")
    steps = [side.material.outputs.get("statistics") for side in (a, b)]
    if steps[0] and steps[1] and steps[0].fingerprint == steps[1].fingerprint:
        return Part("Data", [*sentences, "Their train rows and eval rows are the same."])
    return Part("Data", sentences, tables=list(_columns(a, b)) if drawn else [])


def _columns(a: Side, b: Side) -> Iterator[Table]:
    """The columns that both have, those first that are furthest apart."""
    sides = [side.material.statistics.of("train") for side in (a, b)]
    names = [name for name in sides[0] if name in sides[1]]
    if not names:
        return
    order, by = by_weight(b.material, names)
    mine, theirs = (train_statistics(side.material, "statistics", order[:_MOST_LOADED]) for side in (a, b))
    drift = {name: distance(mine[name], theirs[name]) for name in order if name in mine and name in theirs}
    shown = sorted(drift, key=lambda name: -(drift[name] or 0.0))[:MOST_DRAWN]
    pictures = histograms([(mine[name], theirs[name]) for name in shown], name="columns")
    rows = []
    for name, picture in zip(shown, pictures, strict=True):
        row: dict[str, object] = {"column": column_name(name), "distribution": picture, "drift": drift[name]}
        for side, summaries in zip((a, b), sides, strict=True):
            of = summaries[name]
            row[f"usual values, {side.label}"] = usual_values(of)
            row[f"missing, {side.label}"] = f"{of.missing_share:.1%}" if of.missing else ""
        rows.append(row)
    note = f"Bars: the train rows of {a.label}; line: those of {b.label}. Drift: Jensen-Shannon divergence in bits, of text "
    note += "the greatest change of a value's share; the largest first."
    if len(names) > _MOST_LOADED:
        note += f" Looked at are the {_MOST_LOADED} columns {by}."
    note += f" {len(names) - len(shown):,} more are not shown." if len(names) > len(shown) else ""
    yield Table("Columns of the train rows", rows, note)
