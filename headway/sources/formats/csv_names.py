"""Names of the columns of a CSV file whose header cannot name them: names that stand twice or are missing.

unique_names(["price", "price", ""])                                # ["price", "price_2", "column_3"]
moved(["b", "a"], ["a", "b"])                                       # ("b", 1, 2): the header has it elsewhere
"""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterator, Sequence

from headway.sources.config import CsvConfig

COMMENT = "#%/ "
"""What may stand before the first name."""


def unnamed(place: int) -> str:
    """What the column without a name at a place, from 1, is called."""
    return f"column_{place}"


def unique_names(names: Sequence[str]) -> list[str]:
    """Names that stand once each: column_3 for one that is empty, price_2 for the second of a name."""
    made: list[str] = []
    for place, name in enumerate(names, 1):
        stem = new = name or unnamed(place)
        number = 2
        while new in made or (new != name and new in names):
            new, number = f"{stem}_{number}", number + 1
        made.append(new)
    return made


def rows_of(text: str, config: CsvConfig) -> Iterator[tuple[int, list[str]]]:
    """(number of its line, values) of the rows of some lines that are not empty, as far as they can be read."""
    reader = csv.reader(
        (line + "\n" for line in text.split("\n")),
        delimiter=config.delimiter,
        quotechar=config.quote or None,
        escapechar=config.escape or None,
        quoting=csv.QUOTE_MINIMAL if config.quote else csv.QUOTE_NONE,
    )
    before = 0
    with contextlib.suppress(csv.Error):  # a field beyond the reader's limit
        for row in reader:
            if row:
                yield before, row
            before = reader.line_num


def moved(header: Sequence[str], names: Sequence[str]) -> tuple[str, int, int] | None:
    """(a name, its place in the header, its place in `names`), from 1; None where no name stands in both at different
    places. A header that is one name short lacks the first or the last one; one cell, or a shorter line, is a title."""
    if sum(map(bool, header)) < 2 or len(header) < len(names) - 1:
        return None
    forms = [header] if len(header) != len(names) - 1 else [["", *header], [*header, ""]]
    found = []
    for form in forms:
        places = {name: place for place, name in enumerate(names, 1)}
        named = [(name, place) for place, name in enumerate(unique_names(form), 1) if name in places]
        wrong = [(name, place, places[name]) for name, place in named if place != places[name]]
        if not wrong:
            return None
        found.append(wrong)
    return min(found, key=len)[0]
