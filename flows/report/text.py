"""Sections, tables and finished runs as text for terminals and logs; and runs as JSON for programs.

print(text_table([{"column": "carrier", "rows": 1200}]))
print(text(Section("Columns", tables=[Table("Columns of the train split", rows)])))
print(summary(record, [("model", path)]))
"""

import itertools
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterator, Sequence

from markupsafe import Markup

from flows.records import RunRecord, State
from flows.report.model import Row, Section, Table, cell, filled_columns, is_number
from flows.report.verdict import ending_of, explain
from headway.messages import counted, duration, listed, metrics_line, short, window_text
from headway.storage.store import Store

_WIDEST, _NARROWEST = 48, 16
_ESCAPED = {
    code: chr(code).encode("unicode_escape").decode()
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""Escapes of characters by which a value could break its line, command the terminal or reverse the text's order."""


def text_table(rows: Sequence[Row], *, whole: Collection[str] = (), width: int | None = None, fit: bool = False) -> str:
    """Format rows as an aligned table: columns in the order in which they first occur, numbers to the right. Empty columns are
    left out. Long cells are cut except in the columns named in `whole`; if the last column is one of these, it wraps.

    Args:
        width: characters of a line; None: the terminal's. Columns that do not fit side by side go below, in further
            blocks that begin with the first column again.
        fit: whether to wrap the first column if all columns then fit beside each other.
    """
    if not (names := filled_columns(rows)):
        return ""
    room = shutil.get_terminal_size((100, 24)).columns if width is None else width
    columns = [_column(name, rows, None if name in whole else min(_WIDEST, max(room // 2, 16))) for name in names]
    indent = 2 + sum(len(cells[0]) + 2 for cells in columns[:-1])
    last = min(len(columns[-1][0]), _NARROWEST if names[-1] in whole else room)
    below: list[list[str]] = [[] for _ in columns[0]]
    full = _column(names[0], rows, None)
    over = indent + last + len(full[0]) - len(columns[0][0]) - room
    if fit and len(names) > 1 and (shorter := len(full[0]) - max(over, 0)) >= _NARROWEST:
        wrapped = [textwrap.wrap(text, shorter, subsequent_indent="  ") or [""] for text in full]
        indent += shorter - len(columns[0][0])
        columns[0], below = [lines[0].ljust(shorter) for lines in wrapped], [lines[1:] for lines in wrapped]
    if names[-1] in whole and indent + _NARROWEST <= room:
        columns[-1] = [("\n" + " " * indent).join(textwrap.wrap(text, room - indent)) for text in columns[-1]]
    blocks: list[list[list[str]]] = []
    for column in columns:
        wide = blocks and sum(len(cells[0]) + 2 for cells in [*blocks[-1], column]) > room
        if not blocks or (wide and blocks[-1] != columns[:1]):
            blocks.append(columns[:1] if blocks else [])
        blocks[-1].append(column)
    lines = ["\n".join("  " + _row(line, more) for *line, more in zip(*block, below, strict=True)) for block in blocks]
    return "\n\n".join(lines)


def _row(cells: Sequence[str], below: Sequence[str]) -> str:
    """Returns a row's cells side by side. The next lines have the rest of the first cell (`below`) and of the last cell."""
    first, *more = "  ".join(cells).rstrip().split("\n")
    beside = itertools.zip_longest(below, more, fillvalue="")
    return "\n".join(
        [first, *(("  " + start).ljust(len(rest) - len(rest.lstrip())) + rest.lstrip() for start, rest in beside)]
    )


def _column(name: str, rows: Sequence[Row], most: int | None) -> list[str]:
    """Returns a column's name, and its cells cut to `most` characters (None: not cut); all are padded to one width."""
    cells = [name.translate(_ESCAPED), *(_cell(row.get(name), most) for row in rows)]
    width = max(map(len, cells))
    right = all(is_number(row.get(name)) for row in rows)
    return [text.rjust(width) if right else text.ljust(width) for text in cells]


def _cell(value: object, most: int | None) -> str:
    text = cell(value).translate(_ESCAPED)
    return text if most is None else short(text, most)


def table_text(table: Table) -> str:
    """Returns a table as text, below its title and without its pictures."""
    rows = [{name: each for name, each in row.items() if not isinstance(each, Markup)} for row in table.rows]
    return "\n".join(
        filter(None, [table.title, text_table(rows, whole=table.whole, fit=True) or "no rows", table.note])
    )


def wrapped(head: str, text: object) -> str:
    """Returns `head` and `text` as a line, wrapped to the terminal if there is one; no word or path is broken."""
    if not sys.stdout.isatty():
        return f"{head}{text}"
    width, below = max(shutil.get_terminal_size().columns, 40), " " * len(head)
    wrapper = textwrap.TextWrapper(width, head, below, break_long_words=False, break_on_hyphens=False)
    return wrapper.fill(str(text))


def text(part: Section) -> str:
    """Returns a section as text, without its charts: sentences, findings, tables below their titles, points, texts."""
    return "\n\n".join(filter(None, ["\n".join(wrapped("", each) for each in part.sentences), *_blocks(part)]))


def _blocks(part: Section) -> Iterator[str]:
    # whole sentences, which table cells would cut
    found = ((f"  {f.severity}: ", f.message, f.fix) for f in part.findings)
    yield "\n".join(wrapped(head, said) + ("\n" + wrapped("    fix: ", fix)) * bool(fix) for head, said, fix in found)
    yield from map(table_text, part.tables)
    yield "\n".join(f"  {line}" for line in part.points)
    for title, body in part.texts:
        yield f"{title}\n{body}"


_INDENT = 12


def summary(record: RunRecord, places: Sequence[tuple[str, object]] = (), *, verbose: bool = True) -> str:
    """Returns a finished run as text, a fact per line; on a terminal lines are wrapped to its width.

    Args:
        places: what the run made, each as (name, path).
        verbose: whether to show every check and number, notes, settings and paths.
    """
    ending, stages, ran = ending_of(record), record.stages, record.executed_steps
    most = len(ending.concerns) if verbose else 1 if ending.tone == "red" else 3
    lines = [wrapped("warning: ", concern) for concern in ending.concerns[:most]]
    if (others := len(ending.concerns) - most) > 0:
        lines.append(f"{counted(others, 'more warning')}: headway show")
    lines += [wrapped("", f"{record.pipeline}: {ending.headline}"), f"  verdict   {ending.coloured}"]
    for table, narrow in zip(*(ending.tables(brief=not verbose, narrow=each) for each in (False, True)), strict=True):
        said = text_table(table.rows, whole=table.whole)
        said = text_table(narrow.rows, whole=table.whole, fit=True) if "\n\n" in said else said
        lines += [f"  {table.title}:"] * table.folded + [said] + [f"  {table.note}"] * bool(table.note)
    facts: list[tuple[str, object]] = [("", said) for said in ending.said]
    if (verbose or not ending.checks) and (metrics := metrics_line(record.metrics, record.baselines)):
        facts.append(("metrics", metrics))
    if verbose or len(record.spans) != 1:
        facts.append(("data", window(record.spans) or "no spans"))
    if verbose:
        facts += [("remark", note) for note in ending.notes]
        facts += [("training", f"{counted(of.rows, 'row')}: {of.says}") for of in [record.training] if of is not None]
        facts += [("note", note) for note in record.notes]
    facts += places
    work = f"{len(ran)} of {counted(len(stages), 'step')} ran"
    if record.broken_off:
        work += f"; broken off: {listed(record.broken_off)}"
    elif not ran and record.state != State.KILLED:
        work = "nothing to do: every output was there already"
    facts.append(("time", f"{duration(record.seconds)}; {work}"))
    more = "" if verbose else "; more: headway show, headway report --open"
    facts.append(("run", record.run + more))
    facts += [("report", record.report)] if record.report and verbose else []
    before = ""
    for name, text in facts:
        lines.append(wrapped("  " + ("" if name == before else name).ljust(_INDENT - 2), str(text)))
        before = name
    return "\n".join(lines)


def summary_json(record: RunRecord, store: Store) -> dict[str, object]:
    """Returns a run as JSON values: the record, how the run ended and the gate's reasons in words, and the folder of
    each step's output, by the step's title."""
    outputs = {step.title: str(store.output(step.stage, step.fingerprint)) for step in record.stages}
    reasons = explain(record.verdict).sentences if record.verdict is not None else []
    words = {"headline": ending_of(record).headline, "reasons": reasons}
    return record.model_dump(mode="json") | words | {"outputs": outputs}


def window(spans: Sequence[str]) -> str:
    """Returns the first and the last span, and the number of spans, as text; empty without spans."""
    return window_text(spans) + (f", {len(spans)} spans" if len(spans) > 1 else "")
