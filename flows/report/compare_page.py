"""Two models beside each other: what each is, their metrics on the rows that both scored, and what differs, as parts and as
one HTML file, drawn as the report of a run is.

    print(told(comparison))
    place = write(comparison)                # <store>/runs/compare-<pipeline>-<A>-<B>.html, whole or not at all
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from flows.report.charts import ModelNames, charts_of, distance, error_histogram, has_plain_predictions, tables_of
from flows.report.compare import Compared, Differs, Side
from flows.report.data import MOST_DRAWN, by_weight, column_name, column_panels, split_statistics, usual_values
from flows.report.evaluation import metric_table
from flows.report.html import document
from flows.report.model import Chart, Section, Table
from flows.report.plot import FIRST, SECOND, one_line
from flows.report.text import fitted, text, window
from flows.report.training import Training, trained_by, trainings
from flows.report.verdict import ending_of
from flows.report.versions import UNCLEAR, outcome_of, paired_table, rows_in_words
from headway.evaluation.results.measured import MetricValue
from headway.messages import capital, counted, number, of_window, sentence, size, some, when

_MOST_DIFFERENCES = 200
_MOST_LOADED = 300
"""Columns whose distance is measured; of wider tables those that matter most."""


def sections_of(comparison: Compared, *, drawn: bool) -> list[Section]:
    """The parts of a comparison.

    Args:
        drawn: with the figures, and with what is only shown beside them.
    """
    a, b = comparison.a, comparison.b
    found = [
        Section("Both sides", [*map(_decided, (a, b))], tables=list(_sides(a, b))),
        metrics(comparison, drawn=drawn),
        slices(comparison, drawn=drawn),
        _differing(comparison),
        _data(comparison, drawn=drawn),
        _training(a, b) if drawn else None,
    ]
    return [part for part in found if part is not None]


def describe(comparison: Compared) -> str:
    """The comparison as text for a terminal: what it says first, its concerns, and its parts without figures."""
    first = [fitted("", each) for each in (comparison.ending.headline, *comparison.ending.concerns)]
    return "\n\n".join([*first, *map(text, sections_of(comparison, drawn=False))])


def write(comparison: Compared) -> Path:
    """Draw the page, and put it into the store; the same two have the same page.

    Raises:
        OSError, StoreError: the store cannot be written.
    """
    store, path = comparison.store, comparison.path
    store.replace(path, page(comparison))
    return path


def page(comparison: Compared) -> str:
    """The page of a comparison, without secrets."""
    a, b = comparison.a, comparison.b
    return document(
        title=f"{comparison.pipeline}: {a.title} and {b.title}",
        pipeline=comparison.pipeline,
        about=", ".join(f"{side.letter}: {side.title}" for side in (a, b)),
        ending=comparison.ending,
        parts=sections_of(comparison, drawn=True),
    )


# --- what each is


def _sides(a: Side, b: Side) -> Iterator[Table]:
    told = [{"what": what, **{side.label: tell(side) for side in (a, b)}} for what, tell in _TOLD.items()]
    yield Table("Both sides", [row for row in told if row[a.label] or row[b.label]])
    for side in (a, b):
        title = f"What the gate said of {side.label}"
        yield from ending_of(side.results.record).tables(brief=True, title=title)


def _decided(side: Side) -> str:
    """What the gate decided, and its first reason."""
    against = f" against version {side.verdict.champion}" if side.verdict.champion else ""
    reason = f": {side.verdict.reasons[0]}" if side.verdict.reasons else ""
    word = ending_of(side.results.record).word if side.verdict.verdict else "not judged"
    return f"{side.label} at the gate on {rows_in_words(side.spans.eval)}: {word}{against}{reason}"


def _rows(name: str) -> Callable[[Side], str]:
    return lambda side: f"{known[name]:,}" if name in (known := {**side.rows, **side.counts}) else ""


_TOLD: dict[str, Callable[[Side], str]] = {
    "stands as": lambda side: ", ".join(side.names) if side.version else ending_of(side.results.record).word,
    "made": lambda side: f"{when(side.created)} UTC",
    "run": lambda side: side.run or "",
    "task": lambda side: side.task or "",
    "train spans": lambda side: window(side.spans.train),
    "eval spans": lambda side: window(side.spans.eval),
    "train rows": _rows("train"),
    "eval rows": _rows("eval"),
    **{f"rows {name}": _rows(name) for name in ("read", "filtered", "quarantined")},
    "size": lambda side: size(side.bytes) if side.bytes else "",
}


# --- what differs


def _differing(comparison: Compared) -> Section:
    a, b, columns = comparison.a, comparison.b, comparison.columns
    sentences, tables = [], []
    if comparison.config:
        tables.append(_table("Settings", "key", comparison.config, a, b))
    else:
        sentences.append("The settings are the same, as far as they were kept.")
    if comparison.code:
        tables.append(_table("Code and tools", "what", comparison.code, a, b))
    else:
        same = "are the same" if comparison.code is not None else "were not kept of both sides"
        sentences.append(f"The code and the tools {same}.")
    if columns is not None:
        rows = [{"column": name, "change": f"only in {a.label}"} for name in columns.only_a]
        rows += [{"column": name, "change": f"only in {b.label}"} for name in columns.only_b]
        rows += [{"column": name, "change": change} for name, change in columns.changes]
        if rows:
            shown = [row | {"column": one_line(row["column"], 60)} for row in rows[:_MOST_DIFFERENCES]]
            tables.append(Table("Columns", shown, _more(len(rows) - len(shown))))
        else:
            sentences.append("The columns and their types are the same.")
    return Section("What differs", sentences, tables=tables)


def _table(title: str, head: str, differences: Sequence[Differs], a: Side, b: Side) -> Table:
    rows = [
        {head: one_line(each.key, 80), a.label: setting_text(each.a), b.label: setting_text(each.b)}
        for each in differences[:_MOST_DIFFERENCES]
    ]
    return Table(title, rows, _more(len(differences) - len(rows)))


def _more(count: int) -> str:
    return f"{count:,} more: --json has all" if count else ""


def setting_text(value: object) -> str:
    """A setting, as a table of differences has it: None is one that is not set, and lists are JSON."""
    if value is None or isinstance(value, float):
        return "–" if value is None else number(value)
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 120)


# --- the data


def _data(comparison: Compared, *, drawn: bool) -> Section:
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
    steps = [side.results.outputs.get("statistics") for side in (a, b)]
    if steps[0] and steps[1] and steps[0].fingerprint == steps[1].fingerprint:
        return Section("Data", [*sentences, "Their train rows and eval rows are the same."])
    return _train_columns(a, b, sentences) if drawn else Section("Data", sentences)


def _train_columns(a: Side, b: Side, sentences: Sequence[str]) -> Section:
    """The part with the columns that both have, those first that are furthest apart."""
    sides = [side.results.statistics.of("train") for side in (a, b)]
    names = [name for name in sides[0] if name in sides[1]]
    if not names:
        return Section("Data", sentences)
    order, by = by_weight(b.results, names)
    mine, theirs = (split_statistics(side.results, "statistics", order[:_MOST_LOADED]) for side in (a, b))
    drift = {name: distance(mine[name], theirs[name]) for name in order if name in mine and name in theirs}
    shown = sorted(drift, key=lambda name: -(drift[name] or 0.0))[:MOST_DRAWN]
    rows = []
    for name in shown:
        row: dict[str, object] = {"column": column_name(name), "drift": drift[name]}
        for side, summaries in zip((a, b), sides, strict=True):
            of = summaries[name]
            row[f"usual values, {side.label}"] = usual_values(of)
            row[f"missing, {side.label}"] = f"{of.missing_share:.1%}" if of.missing else ""
        rows.append(row)
    note = (
        "Drift: Jensen-Shannon divergence in bits, of text the greatest change of a value's share; the largest first."
    )
    if len(names) > _MOST_LOADED:
        note += f" Looked at are the {_MOST_LOADED} columns that come first by {by}."
    note += f" {len(names) - len(shown):,} more are not shown." if len(names) > len(shown) else ""
    drawn = {f"train rows of {a.label}": (mine, FIRST), f"train rows of {b.label}": (theirs, SECOND)}
    panels = list(column_panels([sides[0][name] for name in shown], drawn))
    return Section("Data", sentences, tables=[Table("Columns of the train rows", rows, note)], panels=panels)


# --- the trainings


def _training(a: Side, b: Side) -> Section | None:
    """The part on the trainings; None where the store has neither any more."""
    found = [Training(of.label, of.results, title) for of in (a, b) for title in trained_by(of.results)[:1]]
    if not found:
        return None
    if len({each.results.outputs[each.title].fingerprint for each in found}) < len(found):
        return Section("Training", ["Both have the same training: its output is one and the same."])
    chosen = [(each.name, each.results.record.training) for each in found]
    said = [sentence(f"{name}: {counted(of.rows, 'train row')}, {of.says}") for name, of in chosen if of is not None]
    return trainings(found, said)


_MOST_SLICES, _MOST_IN_TEXT = 40, 10


def metrics(comparison: Compared, *, drawn: bool) -> Section | None:
    """The part on metrics; None where neither side has any.

    Values of the two stand side by side only where they are of the same rows.
    """
    a, b, same = comparison.a, comparison.b, comparison.same
    if not a.metrics and not b.metrics:
        return None
    if same is None:
        said = [sentence(str(comparison.no_difference))]
        return Section("Metrics", said, tables=[_own(side) for side in (a, b) if side.metrics])
    who = f"run {same.run} scored with both" if same.run else "each one's own run scored"
    of = of_window(same.spans)
    said = [
        f"Both on the {counted(same.rows, 'row')}{of} that {who}; differences are {b.label} − {a.label}, with 95% intervals."
    ]
    tables = [paired_table("Metrics", comparison.apart, a.label, b.label)]
    tables += [_own(side) for side in (a, b) if same.run not in (None, side.run)]
    return Section("Metrics", said, list(_charts(comparison)) if drawn else [], tables)


def _own(side: Side) -> Table:
    """The metrics of one side's own evaluation."""
    values = [MetricValue(name=name, value=of.value, interval=of.interval) for name, of in side.metrics.items()]
    return metric_table(values, title=f"{capital(side.label)} on {rows_in_words(side.spans.eval)}", task=side.task)


# --- figures


def _charts(comparison: Compared) -> Iterator[Chart]:
    """Curves over one another."""
    assert comparison.scored is not None
    a, b = comparison.scored
    mine, theirs = (tables_of(str(comparison.a.task), rows) for rows in (a, b))
    names = ModelNames(comparison.a.label, comparison.b.label)
    if mine:
        yield from charts_of(mine, theirs, names)
    if "residuals" in mine and has_plain_predictions(a) and has_plain_predictions(b):
        yield error_histogram(a, b, names)


# --- slices


def slices(comparison: Compared, *, drawn: bool) -> Section | None:
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
    return Section("Slices", [said], tables=[paired_table("Slices", shown, a.label, b.label, more)])
