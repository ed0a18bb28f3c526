"""Two models beside each other: what each is, their metrics on the rows that both scored, and what differs, as parts and as
one HTML file, drawn as the report of a run is.

    print(told(comparison))
    place = write(comparison)                # <store>/runs/compare-<pipeline>-<A>-<B>.html, whole or not at all
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from flows.tell.comparison.compared import Compared, Differs
from flows.tell.comparison.metrics_beside import metrics, slices
from flows.tell.comparison.sides import Side
from flows.tell.ending import ending_of
from flows.tell.figures.column_charts import distance
from flows.tell.figures.drawing import FIRST, SECOND, one_line
from flows.tell.html import document
from flows.tell.paired import rows_in_words
from flows.tell.rendering.parts import Part, Table
from flows.tell.rendering.text import fitted, text
from flows.tell.sections.curves import Training, trained_by, trainings
from flows.tell.sections.window.column_figures import MOST_DRAWN, by_weight, column_panels, split_statistics
from flows.tell.sections.window.column_words import column_name, usual_values
from flows.tell.summary import window
from headway.messages import counted, number, sentence, size, some, when

_MOST_DIFFERENCES = 200
_MOST_LOADED = 300
"""Columns whose distance is measured; of wider tables those that matter most."""


def parts_of(comparison: Compared, *, drawn: bool) -> list[Part]:
    """The parts of a comparison.

    Args:
        drawn: with the figures, and with what is only shown beside them.
    """
    a, b = comparison.a, comparison.b
    found = [
        Part("Both sides", [*map(_decided, (a, b))], tables=list(_sides(a, b))),
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
    return "\n\n".join([*first, *map(text, parts_of(comparison, drawn=False))])


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
        parts=parts_of(comparison, drawn=True),
    )


# --- what each is


def _sides(a: Side, b: Side) -> Iterator[Table]:
    told = [{"what": what, **{side.label: tell(side) for side in (a, b)}} for what, tell in _TOLD.items()]
    yield Table("Both sides", [row for row in told if row[a.label] or row[b.label]])
    for side in (a, b):
        title = f"What the gate said of {side.label}"
        yield from ending_of(side.material.record).tables(brief=True, title=title)


def _decided(side: Side) -> str:
    """What the gate decided, and its first reason."""
    against = f" against version {side.verdict.champion}" if side.verdict.champion else ""
    reason = f": {side.verdict.reasons[0]}" if side.verdict.reasons else ""
    word = ending_of(side.material.record).word if side.verdict.verdict else "not judged"
    return f"{side.label} at the gate on {rows_in_words(side.spans.eval)}: {word}{against}{reason}"


def _rows(name: str) -> Callable[[Side], str]:
    return lambda side: f"{known[name]:,}" if name in (known := {**side.rows, **side.counts}) else ""


_TOLD: dict[str, Callable[[Side], str]] = {
    "stands as": lambda side: ", ".join(side.names) if side.version else ending_of(side.material.record).word,
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


def _differing(comparison: Compared) -> Part:
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
    return Part("What differs", sentences, tables=tables)


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


def _data(comparison: Compared, *, drawn: bool) -> Part:
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
    return _train_columns(a, b, sentences) if drawn else Part("Data", sentences)


def _train_columns(a: Side, b: Side, sentences: Sequence[str]) -> Part:
    """The part with the columns that both have, those first that are furthest apart."""
    sides = [side.material.statistics.of("train") for side in (a, b)]
    names = [name for name in sides[0] if name in sides[1]]
    if not names:
        return Part("Data", sentences)
    order, by = by_weight(b.material, names)
    mine, theirs = (split_statistics(side.material, "statistics", order[:_MOST_LOADED]) for side in (a, b))
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
    return Part("Data", sentences, tables=[Table("Columns of the train rows", rows, note)], panels=panels)


# --- the trainings


def _training(a: Side, b: Side) -> Part | None:
    """The part on the trainings; None where the store has neither any more."""
    found = [Training(of.label, of.material, title) for of in (a, b) for title in trained_by(of.material)[:1]]
    if not found:
        return None
    if len({each.material.outputs[each.title].fingerprint for each in found}) < len(found):
        return Part("Training", ["Both have the same training: its output is one and the same."])
    chosen = [(each.name, each.material.record.training) for each in found]
    said = [sentence(f"{name}: {counted(of.rows, 'train row')}, {of.says}") for name, of in chosen if of is not None]
    return trainings(found, said)
