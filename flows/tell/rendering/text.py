"""Parts as text for a terminal.

print(text(Part("Columns", tables=[Table("Columns of the train split", rows)])))
"""

from collections.abc import Iterator, Sequence

from flows.tell.rendering.parts import Finding, Part


def text(part: Part) -> str:
    """A part without its figures; sentences before its tables, each table below its title."""
    return "\n\n".join(filter(None, ["\n".join(map(str, part.sentences)), *_blocks(part)]))


def _blocks(part: Part) -> Iterator[str]:
    if part.findings:
        yield findings(part.findings)
    yield from (table.text for table in part.tables)
    yield "\n".join(f"  {line}" for line in (*part.points, *part.commands))
    for title, body in part.texts:
        yield f"{title}\n{body}"


def findings(found: Sequence[Finding]) -> str:
    """Findings as a paragraph each, with whole sentences and fixes, which table cells would cut."""
    lines = []
    for each in found:
        lines.append(f"  {each.severity}: {each.message}")
        lines += [f"    fix: {each.fix}"] * bool(each.fix)
    return "\n".join(lines)
