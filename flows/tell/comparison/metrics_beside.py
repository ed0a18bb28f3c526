"""Two models on the rows that both scored: metrics, curves over one another, and the slices on which they differ most."""

from collections.abc import Iterator

from flows.tell.comparison.compared import Compared
from flows.tell.comparison.sides import Side
from flows.tell.figures import score_charts
from flows.tell.metric_tables import metric_table
from flows.tell.paired import UNCLEAR, outcome_of, paired_table, rows_in_words
from flows.tell.rendering.parts import Chart, Part, Table
from headway.evaluation.results.measured import MetricValue
from headway.messages import capital, counted, of_window, sentence

_MOST_SLICES, _MOST_IN_TEXT = 40, 10


def metrics(comparison: Compared, *, drawn: bool) -> Part | None:
    """The part on metrics; None where neither side has any.

    Values of the two stand side by side only where they are of the same rows.
    """
    a, b, same = comparison.a, comparison.b, comparison.same
    if not a.metrics and not b.metrics:
        return None
    if same is None:
        said = [sentence(str(comparison.no_difference))]
        return Part("Metrics", said, tables=[_own(side) for side in (a, b) if side.metrics])
    who = f"run {same.run} scored with both" if same.run else "each one's own run scored"
    of = of_window(same.spans)
    said = [
        f"Both on the {counted(same.rows, 'row')}{of} that {who}; differences are {b.label} − {a.label}, with 95% intervals."
    ]
    tables = [paired_table("Metrics", comparison.apart, a.label, b.label)]
    tables += [_own(side) for side in (a, b) if same.run not in (None, side.run)]
    return Part("Metrics", said, list(_charts(comparison)) if drawn else [], tables)


def _own(side: Side) -> Table:
    """The metrics of one side's own evaluation."""
    values = [MetricValue(name=name, value=of.value, interval=of.interval) for name, of in side.metrics.items()]
    return metric_table(values, title=f"{capital(side.label)} on {rows_in_words(side.spans.eval)}", task=side.task)


# --- figures


def _charts(comparison: Compared) -> Iterator[Chart]:
    """Curves over one another."""
    assert comparison.scored is not None
    a, b = comparison.scored
    mine, theirs = (score_charts.tables_of(str(comparison.a.task), rows) for rows in (a, b))
    names = score_charts.Names(comparison.a.label, comparison.b.label)
    if mine:
        yield from score_charts.charts_of(mine, theirs, names)
    if "residuals" in mine and score_charts.plain(a) and score_charts.plain(b):
        yield score_charts.errors(a, b, names)


# --- slices


def slices(comparison: Compared, *, drawn: bool) -> Part | None:
    """The slices of the rows that both scored, those first on which the two differ most; None where there are none."""
    a, b, same = comparison.a, comparison.b, comparison.same
    metric, better = comparison.primary
    known = same.slices if same is not None else ()
    found = [each.check(better) for each in known if each.metric == metric and each.difference is not None]
    if not found:
        return None
    found.sort(key=lambda each: (outcome_of(each) in (UNCLEAR, ""), -abs(each.change or 0.0)))
    shown = found[: _MOST_SLICES if drawn else _MOST_IN_TEXT]
    more = (
        f"{len(found) - len(shown):,} more: the page has the first {_MOST_SLICES}, --json has all."
        if len(found) > len(shown)
        else ""
    )
    said = f"{metric} on the same rows: first where the difference is beyond chance, the largest first. Of many slices some "
    said += "are beyond chance by chance: one in twenty."
    return Part("Slices", [said], tables=[paired_table("Slices", shown, a.label, b.label, more)])
