"""What a model's predictions rest on: the importance of columns, and the mean prediction by their values."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from flows.tell.figures.drawing import FIRST, MUTED, SECOND, Plot, apart, figure, histogram, one_line
from flows.tell.material import Material
from flows.tell.metric_tables import importance_table
from flows.tell.rendering.parts import Chart, Panels
from flows.tell.rendering.tables import Table
from flows.tell.sections.window.column_words import axis_value, axis_values, ticks
from headway.messages import number
from headway.schema.calendar_days import Temporal
from tfcore.evaluation.results import Dependence

_COLOURS = (FIRST, SECOND, MUTED)


def importance(material: Material) -> Iterator[Table]:
    """The table of columns, the most important first; none where it is not known."""
    found = material.importance
    if found is not None and found.columns:
        yield importance_table(found, " of eval")


def dependence(material: Material) -> Iterator[Panels]:
    """A figure for each column that matters most; none where it is not known."""
    told = material.evaluated.dependence if material.evaluated is not None else ()
    kinds = {column.column: column.temporal for column in material.statistics.of("train").values()}
    ends = [value for each in told for line in each.lines.values() for value in line]
    if not ends:
        return
    low, high = min(ends), max(ends)
    charts = [Chart(one_line(each.column, 40), _drawn(each, low, high, kinds.get(each.column))) for each in told]
    classes = apart(told[0].by_class)
    keys = list(zip(_COLOURS, classes.values(), strict=False))
    what = "probability of each of the most frequent classes" if classes else "prediction"
    note = f"The mean {what} if every row had this value and all else stayed, even where the two never occur together."
    yield Panels("Prediction by the columns that matter most", charts, keys, note)


def _drawn(each: Dependence, low: float, high: float, kind: Temporal | None) -> Markup:
    numeric = not isinstance(each.values[0], str)
    # a few numbers come by how many rows have them
    order = np.argsort(each.values) if numeric else range(len(each.values))
    values: Sequence[float | str] = [each.values[at] for at in order]
    lines = {name: [line[at] for at in order] for name, line in each.lines.items()}
    told = [
        f"{f'{name}: ' * bool(name)}{number(p)} at {axis_value(v, kind)}"
        for name, line in lines.items()
        for v, p in zip(values, line, strict=True)
    ]

    def draw(axes: Plot) -> None:
        places: Sequence[Any] = values if numeric else range(len(values) + 1)
        for colour, line in zip(_COLOURS, lines.values(), strict=False):
            if numeric:
                axes.plot(places, line, color=colour, linestyle="--" if colour == SECOND else "-")
            else:
                histogram(axes, line, places, colour)
        ends = float(min(places)), float(max(places))
        if numeric:
            shown = [ends[0], sum(ends) / 2, ends[1]] if ends[0] < ends[1] else [ends[0]]
            axes.set_xticks(shown, axis_values(shown, kind))
        else:
            labels = [axis_value(value, kind) for value in values]
            few = len(labels) <= 4 and sum(map(len, labels)) <= 30
            at = (np.arange(len(labels)) + 0.5).tolist() if few else np.linspace(*ends, 3).tolist()
            axes.set_xticks(at, labels if few else [labels[0], f"{len(labels)} values", labels[-1]])
        axes.set_xlim(*ends)
        heights = [low, (low + high) / 2, high] if low < high else [low]
        axes.set_yticks(heights, ticks(heights))
        axes.set_ylim(low, high if high > low else low + 1)

    return figure(draw, label=f"Mean prediction by {each.column}: {', '.join(told)}", small=True)
