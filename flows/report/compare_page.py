"""Two models beside each other, shown: in at most thirty lines for a terminal, and whole as text and as one HTML file in the
style of a run's report.

    print(describe(comparison))              # complete=True: every table
    place = write(comparison)                # <store>/runs/compare-<pipeline>-<A>-<B>.html, whole or not at all
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from flows.report.charts import ModelNames, charts_of, error_histogram, has_plain_predictions, tables_of
from flows.report.compare import ComparedModel, Comparison
from flows.report.evaluation import metric_table
from flows.report.html import document
from flows.report.model import Chart, Row, Section, Table
from flows.report.plot import one_line
from flows.report.text import fitted, text, window
from flows.report.verdict import ending_of
from flows.report.versions import UNCLEAR, outcome_of, paired_table, rows_in_words
from headway.evaluation.results.measured import MetricValue
from headway.messages import capital, counted, metrics_line, number, of_window, sentence, size, some, when

_MOST_METRICS, _MOST_IN_SHORT = 4, 12
"""In at most thirty lines."""
_MOST_DIFFERENCES, _MOST_SLICES = 200, 40


def describe(comparison: Comparison, *, complete: bool = False) -> str:
    """The comparison as text for a terminal: which one is better, the first metrics, and what differs.

    Args:
        complete: with all that its page has but the figures.
    """
    sections = sections_of(comparison, drawn=False) if complete else _in_short(comparison)
    return "\n\n".join([fitted("", comparison.ending.headline), *filter(None, map(text, sections))])


def write(comparison: Comparison) -> Path:
    """Draw the page, and put it into the store; the same two have the same page.

    Raises:
        OSError, StoreError: the store cannot be written.
    """
    store, path = comparison.store, comparison.path
    store.replace(path, page(comparison))
    return path


def page(comparison: Comparison) -> str:
    """The page of a comparison, without secrets."""
    a, b = comparison.a, comparison.b
    return document(
        title=f"{comparison.pipeline}: {a.title} and {b.title}",
        pipeline=comparison.pipeline,
        about=", ".join(f"{side.letter}: {side.title}" for side in (a, b)),
        ending=comparison.ending,
        parts=sections_of(comparison, drawn=True),
    )


def sections_of(comparison: Comparison, *, drawn: bool) -> list[Section]:
    """The sections of a comparison.

    Args:
        drawn: with the figures.
    """
    found = [_metrics(comparison, drawn=drawn), _differing(comparison), _slices(comparison), _both(comparison)]
    return [section for section in found if section is not None]


def _in_short(comparison: Comparison) -> Iterator[Section]:
    a, b, same = comparison.a, comparison.b, comparison.same
    if same is None:
        for side in (a, b):
            values = metrics_line({name: of.value for name, of in side.metrics.items()})
            if values:
                yield Section("", [sentence(f"{capital(side.label)} on {rows_in_words(side.spans.eval)}: {values}")])
    else:
        title = f"On the {counted(same.rows, 'row')}{of_window(same.spans)} that both scored, with 95% intervals"
        checks = comparison.apart
        more = _more(len(checks) - _MOST_METRICS)
        yield Section("", tables=[paired_table(title, checks[:_MOST_METRICS], a.label, b.label, more)])
    yield _differing(comparison, short=True)


# --- on the same rows


def _metrics(comparison: Comparison, *, drawn: bool) -> Section | None:
    """The section on metrics; None where neither side has any. Values of the two stand side by side only where they are of the
    same rows."""
    a, b, same = comparison.a, comparison.b, comparison.same
    if not a.metrics and not b.metrics:
        return None
    if same is None:
        why = sentence(str(comparison.no_difference))
        return Section("Metrics", [why], tables=[_own(side) for side in (a, b) if side.metrics])
    who = f"run {same.run} scored with both" if same.run else "each one's own run scored"
    rows = f"Both on the {counted(same.rows, 'row')}{of_window(same.spans)} that {who}"
    tables = [paired_table("Metrics", comparison.apart, a.label, b.label)]
    tables += [_own(side) for side in (a, b) if same.run not in (None, side.run)]
    charts = list(_charts(comparison)) if drawn else []
    return Section("Metrics", [f"{rows}; differences are {b.label} − {a.label}, with 95% intervals."], charts, tables)


def _own(side: ComparedModel) -> Table:
    """The metrics of one side's own evaluation."""
    values = [MetricValue(name=name, value=of.value, interval=of.interval) for name, of in side.metrics.items()]
    return metric_table(values, title=f"{capital(side.label)} on {rows_in_words(side.spans.eval)}", task=side.task)


def _charts(comparison: Comparison) -> Iterator[Chart]:
    """Curves over one another."""
    assert comparison.same is not None
    a, b = comparison.same.scored
    mine, theirs = (tables_of(str(comparison.a.task), rows) for rows in (a, b))
    names = ModelNames(comparison.a.label, comparison.b.label)
    if mine:
        yield from charts_of(mine, theirs, names)
    if "residuals" in mine and has_plain_predictions(a) and has_plain_predictions(b):
        yield error_histogram(a, b, names)


def _slices(comparison: Comparison) -> Section | None:
    """The slices of the rows that both scored, those first on which the two differ most; None where there are none."""
    metric, better = comparison.primary
    known = comparison.same.slices if comparison.same is not None else ()
    found = [each.check(better) for each in known if each.metric == metric and each.difference is not None]
    if not found:
        return None
    found.sort(key=lambda each: (outcome_of(each) in (UNCLEAR, ""), -abs(each.change or 0.0)))
    more = f"{len(found) - _MOST_SLICES:,} more: --json has all." if len(found) > _MOST_SLICES else ""
    why = f"{metric} on the same rows: first where the difference is beyond chance, the largest first. Of many slices some "
    why += "are beyond chance by chance: one in twenty."
    table = paired_table("Slices", found[:_MOST_SLICES], comparison.a.label, comparison.b.label, more)
    return Section("Slices", [why], tables=[table])


# --- what differs


def _differing(comparison: Comparison, *, short: bool = False) -> Section:
    rows, most = list(_differences(comparison)), _MOST_IN_SHORT if short else _MOST_DIFFERENCES
    if not rows:
        return Section(
            "What differs", ["Nothing differs in data, columns, settings or code, as far as they were kept."]
        )
    more = _more(len(rows) - most) if short else f"{len(rows) - most:,} more: --json has all" * (len(rows) > most)
    return Section("What differs", tables=[Table("What differs", rows[:most], more)])


def _differences(comparison: Comparison) -> Iterator[Row]:
    """All that differs, a row each: what `auto` chose for other rows comes last."""
    a, b, columns = comparison.a, comparison.b, comparison.columns

    def row(what: str, mine: object, theirs: object) -> Row:
        return {"what": one_line(what, 60), a.label: setting_text(mine), b.label: setting_text(theirs)}

    for what, tell in _FACTS.items():
        if what not in _EACH_ITS_OWN and tell(a) != tell(b):
            yield row(what, tell(a), tell(b))
    if changed := comparison.data.files_changed:
        yield row("raw files", "", f"changed: {some(changed, 3)}")
    yield from (row(each.key, each.a, each.b) for each in comparison.config)
    if columns is not None:
        yield from (row(f"column {name}", "there", None) for name in columns.only_a)
        yield from (row(f"column {name}", None, "there") for name in columns.only_b)
        yield from (row(f"column {name}", "", change) for name, change in columns.changes)
    yield from (row(each.key, _short_digest(each.a), _short_digest(each.b)) for each in comparison.code or ())
    yield from (row(f"auto, for other rows: {each.key}", each.a, each.b) for each in comparison.chosen)


def _more(count: int) -> str:
    return f"{count:,} more: --all" if count > 0 else ""


def setting_text(value: object) -> str:
    """A setting, as a table of differences has it: None is one that is not set, and lists are JSON."""
    if value is None or isinstance(value, float):
        return "–" if value is None else number(value)
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 120)


def _short_digest(value: object) -> object:
    return value[:12] if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{32,}", value) else value


# --- what each is


def _both(comparison: Comparison) -> Section:
    a, b = comparison.a, comparison.b
    rows = [{"what": what, **{side.label: tell(side) for side in (a, b)}} for what, tell in _FACTS.items()]
    tables = [Table("Both sides", [row for row in rows if row[a.label] or row[b.label]])]
    for side in (a, b):
        title = f"What the gate said of {side.label}"
        tables += ending_of(side.results.record).tables(brief=True, title=title)
    known = [(side, side.verdict.reasons[0]) for side in (a, b) if side.verdict.reasons]
    reasons = [f"{side.label} at the gate, on {rows_in_words(side.spans.eval)}: {reason}" for side, reason in known]
    return Section("Both sides", [sentence(capital(each)) for each in reasons], tables=tables)


def _at_the_gate(side: ComparedModel) -> str:
    against = f" against version {side.verdict.champion}" if side.verdict.champion else ""
    word = ending_of(side.results.record).word if side.verdict.status else "not judged"
    return word + against


def _rows(split: str) -> Callable[[ComparedModel], str]:
    return lambda side: f"{side.rows[split]:,}" if split in side.rows else ""


_FACTS: dict[str, Callable[[ComparedModel], str]] = {
    "at the gate": _at_the_gate,
    "stands as": lambda side: ", ".join(side.names) if side.version else ending_of(side.results.record).word,
    "made": lambda side: f"{when(side.created)} UTC",
    "run": lambda side: side.run or "",
    "task": lambda side: side.task or "",
    "train spans": lambda side: window(side.spans.train),
    "eval spans": lambda side: window(side.spans.eval),
    "train rows": _rows("train"),
    "eval rows": _rows("eval"),
    "size": lambda side: size(side.bytes) if side.bytes else "",
}
_EACH_ITS_OWN = frozenset({"stands as", "made", "run", "size"})
"""Facts that differ between any two."""
