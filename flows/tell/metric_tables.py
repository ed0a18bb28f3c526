"""Tables of metrics: with their intervals, beside other models, at the threshold; and how much columns matter."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from flows.tell.figures.drawing import FIRST, one_line
from flows.tell.figures.strips import Box, strip
from flows.tell.rendering.cells import Row
from flows.tell.rendering.tables import Table
from headway.evaluation.results.measured import Metrics, MetricValue, Threshold, Values
from headway.evaluation.results.threshold import AS_CONFIGURED
from headway.messages import counted, ends, metric_text, number, of_window
from headway.metrics.meanings import meaning
from tfcore.evaluation.results import Importance

_MOST_ROWS = 60


def rows_of(rows: int, spans: Sequence[str], split: str = "eval") -> str:
    """Which rows metrics are of, as far as it is known."""
    return f"{counted(rows, f'{split} row')}{of_window(spans)}"


def values_of(metrics: Values) -> list[MetricValue]:
    """Metrics of which no intervals are kept."""
    return Metrics(metrics=metrics).values


def metric_table(
    values: Sequence[MetricValue],
    others: Mapping[str, Values] | None = None,
    *,
    title: str = "Metrics",
    value: str = "value",
    interval: str = "interval",
    task: str | None = None,
) -> Table:
    """A row per metric: its value, its interval, what other models have on the same rows, and on pages what it is.

    Args:
        others: metrics by model.
        value, interval: the names of their columns.
        task: that the metrics are of, where it is known.
    """
    known = others or {}
    rows: list[Row] = [
        {"metric": of.name, value: metric_text(of.value), interval: ends(of.interval)}
        | {other: metric_text(theirs[of.name]) if of.name in theirs else None for other, theirs in known.items()}
        | {"meaning": Markup('<span class="long">{}</span>').format(said) if (said := meaning(of.name, task)) else None}
        for of in values
    ]
    return Table(title, rows)


def threshold_table(found: Threshold) -> Table:
    """The metrics at the threshold."""
    chosen = found.chosen_on if found.value is None else f"{number(found.value)}, chosen on {found.chosen_on}"
    rule = found.rule if found.rule == AS_CONFIGURED else f"for {found.rule}"
    return metric_table(found.values, title=f"Threshold {rule}: {chosen}")


def importance_table(found: Importance, where: str = "") -> Table:
    """How much each column matters, the most important first.

    Args:
        where: whose rows these are, after their number.
    """
    title = f"How much worse {found.metric} ({number(found.value)}) is without a column, on {counted(found.rows, 'row')}{where}"
    if any(each.interval is not None for each in found.columns):  # a metric of the user's own has none
        title += ", with 95% intervals"
    shown = found.columns[:_MOST_ROWS]
    highest = max([1e-12, *(each.interval[1] if each.interval else each.permuted or 0.0 for each in shown)])
    rows = [
        {
            "column": one_line(each.column, 60),
            "picture": strip([Box(0, max(each.permuted or 0.0, 0.0), FIRST)], (0, highest)),
            "worse by": metric_text(each.permuted),
            "interval": ends(each.interval),
            "missing": each.missing,
        }
        for each in shown
    ]
    return Table(title, rows)
