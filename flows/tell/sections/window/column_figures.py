"""The columns of a window: a figure of each that matters most, train, eval and the champion's rows with the same bars; the rest
in a table."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from flows.tell.figures.column_charts import distance, shares
from flows.tell.figures.drawing import FIRST, MUTED, SECOND, Plot, figure, histogram
from flows.tell.material import Material
from flows.tell.rendering.cells import Row
from flows.tell.rendering.parts import Chart, Panels
from flows.tell.rendering.tables import Table
from flows.tell.sections.window.column_words import (
    axis_value,
    axis_values,
    column_name,
    column_rows,
    frequent,
    tick,
    usual_values,
)
from headway.errors import HeadwayError
from headway.messages import counted, some
from headway.schema.calendar_days import Temporal
from headway.schema.columns import LABEL
from headway.stages.step import find_output
from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.split_statistics import SplitStatistics
from headway.statistics.summary import ColumnSummary, WindowStatistics

MOST_DRAWN, _MOST_LISTED = 50, 5000
_LABELLED, _ROOM = 4, 30
"""So few bars have a label each, where the labels have no more characters together."""
Statistics = Mapping[str, ColumnStatistics]


class Columns:
    """What a report says of the columns.

    Args:
        material: of a run whose statistics the store may have.
    """

    def __init__(self, material: Material):
        self._material = material
        self._summaries = material.statistics.of("train")
        self._order, self._by = by_weight(material, list(self._summaries))
        self.drawn = self._order[:MOST_DRAWN]
        """The columns that matter most, in their order."""
        self.train = split_statistics(material, "statistics", self.drawn)
        """Their statistics of the train rows."""
        self._before, self._theirs, self._had = _champion(material, self.drawn)

    def sentences(self) -> Iterator[str]:
        """Which columns are new, gone or of another type since the champion."""
        ours, theirs = self._summaries, self._had
        both = [name for name in ours if name in theirs]
        known = {
            "new": [name for name in ours if name not in theirs],
            "gone": [name for name in theirs if name not in ours],
            "of another type": [name for name in both if ours[name].type != theirs[name].type],
        }
        told = [f"{what}: {some(list(map(column_name, names)), 5)}" for what, names in known.items() if names]
        if theirs and told:
            yield f"Since {self._before}, columns are {'; '.join(told)}."

    def panels(self) -> Iterator[Panels]:
        """The figures; none where the store has no statistics."""
        evaluated = split_statistics(self._material, "statistics", self.drawn, "eval")
        sides = {"train rows": (self.train, FIRST), "eval rows": (evaluated, MUTED)}
        if self._theirs:
            sides[f"train rows of {self._before}"] = (self._theirs, SECOND)
        yield from column_panels([self._summaries[name] for name in self.drawn], sides)

    def tables(self) -> Iterator[Table]:
        """The columns that are drawn, and the others."""
        if not self._order:
            return
        note = f"In the order of {self._by}."
        if self._theirs:
            note += f" Drift: the distance to the train rows of {self._before} in bits, of text the greatest change of a share."
        yield Table("Columns of the train rows", [self._row(name) for name in self.drawn], note)
        if rest := self._order[MOST_DRAWN:]:
            rows = [self._row(name, usual=False) for name in rest[:_MOST_LISTED]]
            note = f"{len(rest) - _MOST_LISTED:,} more: headway run --to statistics" if len(rest) > _MOST_LISTED else ""
            yield Table(f"{counted(len(rest), 'further column')}", rows, note, folded=True)

    def _row(self, name: str, *, usual: bool = True) -> Row:
        summary = self._summaries[name]
        (told,) = column_rows([summary])
        strengths = self._material.validated.strengths if self._material.validated is not None else {}
        row = {"column": column_name(name)} | {key: told[key] for key in ("type", "missing", "distinct")}
        row |= {"usual values": usual_values(summary)} if usual else {}
        row |= {"tied to the label": strengths.get(name)}
        return row | {"drift": distance(self.train.get(name), self._theirs.get(name))} if usual else row


def column_panels(columns: Iterable[ColumnSummary], sides: Mapping[str, tuple[Statistics, str]]) -> Iterator[Panels]:
    """A figure of each column whose values were counted; none without one.

    Args:
        sides: what each is: its statistics and its colour.
    """
    drawn = [(column_name(each.column), _panel(each, sides)) for each in columns]
    charts = [Chart(name, svg) for name, svg in drawn if svg is not None]
    keys = [(colour, said) for said, (of, colour) in sides.items() if of]
    note = (
        "Share of the values, by value; the outermost bars of numbers hold all beyond the first and the last hundredth."
    )
    if charts:
        yield Panels("Columns", charts, keys, note)


def _panel(summary: ColumnSummary, sides: Mapping[str, tuple[Statistics, str]]) -> Markup | None:
    name, known = summary.column, [(of.get(summary.column), colour) for of, colour in sides.values()]
    found = shares([of for of, _ in known])
    if found is None:
        return None
    bars = max(map(len, found.heights))
    labels = _labels(found.bars, bars, summary.temporal, {value for value, _ in frequent(summary)})

    def draw(axes: Plot) -> None:
        edges = range(bars + 1)
        for heights, (_, colour) in zip(found.heights, known, strict=True):
            if heights:
                histogram(axes, heights, edges, colour)
        axes.set_xticks(list(labels), list(labels.values()))
        axes.set_xlim(0, edges[-1])
        axes.set_yticks([0, 1], ["0", f"{tick(100 * found.highest, 2)}%"])
        axes.set_ylim(0, 1)

    return figure(draw, label=f"{column_name(name)}: {usual_values(summary)}", small=True)


def _labels(
    bars: Sequence[str | int | float], drawn: int, temporal: Temporal | None, told: Collection[object]
) -> dict[float, str]:
    """Labels by their places: below the middle of the bar of a value, or at an edge between bars.

    Args:
        drawn: the number of bars; of edges there is one more.
        told: the texts that a page may name.
    """
    middle = 0.5 if len(bars) == drawn else 0.0
    if isinstance(bars[0], str):
        said = [axis_value(bar, temporal) if bar in told else "" for bar in bars]
        if len(bars) <= _LABELLED and sum(map(len, said)) <= _ROOM:
            return {place + middle: label for place, label in enumerate(said)}
        return {0.0: said[0], float(drawn): f"{len(bars)} values"}
    chosen = range(len(bars)) if len(bars) <= _LABELLED else (0, len(bars) // 2, len(bars) - 1)
    values = [float(bars[place]) for place in chosen]
    return dict(zip((place + middle for place in chosen), axis_values(values, temporal), strict=True))


def by_weight(material: Material, names: list[str]) -> tuple[list[str], str]:
    """The columns, those that matter most first, and by what they are ordered."""
    importance = material.importance
    weights = {each.column: each.permuted or 0.0 for each in importance.columns} if importance is not None else {}
    by = "how much they matter to the model"
    if not weights:
        weights = material.validated.strengths if material.validated is not None else {}
        by = "how much each alone tells of the label"
    return sorted(names, key=lambda name: (name != LABEL, -weights.get(name, 0.0))), by


def split_statistics(material: Material, title: str, names: Sequence[str], split: str = "train") -> Statistics:
    """The statistics of columns of a split, as far as the store has them."""
    return loaded(material.file(title, split), names)


def loaded(folder: Path | None, names: Sequence[str]) -> Statistics:
    """The statistics of columns in a folder; {} where it is gone or damaged."""
    try:
        return {} if folder is None else SplitStatistics.load(folder, only=set(names)).columns
    except HeadwayError:
        return {}


def _champion(material: Material, names: Sequence[str]) -> tuple[str, Statistics, Mapping[str, ColumnSummary]]:
    """The champion that validation compared with, and of its train rows the statistics of these columns and the summaries of all,
    as far as the store has them."""
    champion = material.key("validate").get("champion") or {}
    fingerprint = champion.get("statistics")
    if (
        not fingerprint
        or (kept := find_output(material.store, "statistics", fingerprint, "statistics", WindowStatistics)) is None
    ):
        return "", {}, {}
    statistics = loaded(material.localized(kept.path / "train"), names)
    return str(champion["name"]), statistics, kept.value.of("train")
