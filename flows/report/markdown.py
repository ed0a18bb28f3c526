"""Sections as Markdown, for Prefect's artifacts.

markdown(Section("Metrics", tables=[Table("metrics", rows)]))
"""

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from flows.report.model import Section, Table, cell


def markdown(part: Section) -> str:
    """Returns a section as Markdown, without its charts."""
    return "\n".join(_blocks(part))


def _blocks(part: Section) -> Iterator[str]:
    yield f"# {part.title}\n"
    yield from (f"{sentence}\n" for sentence in part.sentences)
    yield from _list([f"{f.severity}: {f.message}" for f in part.findings])
    for table in part.tables:
        yield from [f"### {table.title}\n"] if table.title != part.title else []
        yield _table(table)
        yield from [f"{table.note}\n"] if table.note else []
    yield from _list(part.points)


def _list(items: Sequence[str]) -> list[str]:
    return ["\n".join(f"- {item}" for item in items) + "\n"] if items else []


def _table(table: Table) -> str:
    names = [n for n in table.shown if not any(isinstance(row.get(n), Markup) for row in table.rows)]
    rows = [names, ["---"] * len(names), *([row.get(name, "") for name in names] for row in table.rows)]
    return "".join("| " + " | ".join(map(_in_a_row, row)) + " |\n" for row in rows) if names else ""


def _in_a_row(value: object) -> str:
    """Returns a cell's text for a Markdown table: on one line, with | escaped."""
    return " ".join(cell(value).replace("|", "\\|").splitlines())
