"""Parts as text for a terminal.

print(text(Part("Columns", tables=[Table("Columns of the train split", rows)])))
"""

import shutil
import sys
import textwrap
from collections.abc import Iterator

from flows.tell.rendering.parts import Part


def fitted(head: str, text: object) -> str:
    """A line, on a terminal wrapped where people read it; a path or a word that is longer stays whole, to be copied."""
    if not sys.stdout.isatty():
        return f"{head}{text}"
    width, below = max(shutil.get_terminal_size().columns, 40), " " * len(head)
    wrapper = textwrap.TextWrapper(width, head, below, break_long_words=False, break_on_hyphens=False)
    return wrapper.fill(str(text))


def text(part: Part) -> str:
    """A part without its figures; sentences before its tables, each table below its title."""
    return "\n\n".join(filter(None, ["\n".join(fitted("", each) for each in part.sentences), *_blocks(part)]))


def _blocks(part: Part) -> Iterator[str]:
    # whole sentences, which table cells would cut
    found = ((f"  {f.severity}: ", f.message, f.fix) for f in part.findings)
    yield "\n".join(fitted(head, said) + ("\n" + fitted("    fix: ", fix)) * bool(fix) for head, said, fix in found)
    yield from (table.text for table in part.tables)
    yield "\n".join(f"  {line}" for line in (*part.points, *part.commands))
    for title, body in part.texts:
        yield f"{title}\n{body}"
