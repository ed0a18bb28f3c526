"""Parts as text for a terminal.

print(text(Part("Columns", tables=[Table("Columns of the train split", rows)])))
"""

from collections.abc import Iterator

from flows.tell.rendering.parts import Part


def text(part: Part) -> str:
    """A part without its figures; sentences before its tables, each table below its title."""
    return "\n\n".join(filter(None, ["\n".join(map(str, part.sentences)), *_blocks(part)]))


def _blocks(part: Part) -> Iterator[str]:
    # whole sentences, which table cells would cut
    yield "\n".join(f"  {f.severity}: {f.message}" + f"\n    fix: {f.fix}" * bool(f.fix) for f in part.findings)
    yield from (table.text for table in part.tables)
    yield "\n".join(f"  {line}" for line in (*part.points, *part.commands))
    for title, body in part.texts:
        yield f"{title}\n{body}"
