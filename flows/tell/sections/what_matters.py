"""What a model's predictions rest on: the importance of columns, and the mean prediction by their values."""

from collections.abc import Iterator, Sequence

from flows.tell.figures.drawing import FIRST, MUTED, SECOND, apart, short
from flows.tell.figures.panels import Panel, axis_value, tick
from flows.tell.material import Material
from flows.tell.metric_tables import importance_table
from flows.tell.rendering.parts import Chart, Panels
from flows.tell.rendering.tables import Table
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
    charts = [Chart(short(each.column, 40), _drawn(each, low, high, kinds.get(each.column)).svg()) for each in told]
    classes = apart(told[0].by_class)
    keys = list(zip(_COLOURS, classes.values(), strict=False))
    what = "probability of each of the most frequent classes" if classes else "prediction"
    note = f"The mean {what} if every row had this value and all else stayed, even where the two never occur together."
    yield Panels("Prediction by the columns that matter most", charts, keys, note)


def _drawn(each: Dependence, low: float, high: float, kind: Temporal | None) -> Panel:
    span = (high - low) or 1.0
    numbers = [value for value in each.values if not isinstance(value, str)]
    least, most = (min(numbers), max(numbers)) if numbers else (0.0, 1.0)
    values: Sequence[float | str] = each.values
    shown = (least, (least + most) / 2, most) if numbers else values
    labels = [axis_value(value, kind) for value in shown]
    told = [
        f"{f'{name}: ' * bool(name)}{number(p)} at {axis_value(v, kind)}"
        for name, line in each.lines.items()
        for v, p in zip(values, line, strict=True)
    ]
    panel = Panel(
        f"Mean prediction by {each.column}: {', '.join(told)}",
        x=labels if len(labels) <= 4 else (labels[0], f"{len(labels)} values", labels[-1]),
        y=[tick(low), tick((low + high) / 2), tick(high)],
    )
    places = [(value - least) / ((most - least) or 1.0) for value in numbers]
    for colour, line in zip(_COLOURS, each.lines.values(), strict=False):
        heights = [(value - low) / span for value in line]
        if numbers:
            panel.line(list(zip(places, heights, strict=True)), colour, dashed=colour == SECOND)
        else:
            panel.steps(heights, colour, fill=colour == FIRST, dashed=colour == SECOND)
    return panel
