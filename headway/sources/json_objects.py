"""Turns JSON text of another layout into lines of one object each, block after block.

    form = json_form(b'[{"a": 1}, {"a": 2}]')        # "array"; "objects" if one stands over several lines; None: lines
    lines = ObjectLines(form, path)
    lines.feed(b'[{"a": 1}, {"a"'), lines.feed(b': 2}]'), lines.finish()

Nothing is decoded here: only the places of quotes, brackets and commas count, and a file is never held whole. What is no JSON
comes out as a line of its own, for the parser to reject.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headway.errors import DataError

JsonForm = Literal["array", "objects"]
_BOM = b"\xef\xbb\xbf"
_QUOTE, _BACKSLASH, _COMMA, _NEWLINE, _BLANK = b'"\\,\n '
_PRETTY = re.compile(rb'\s*\{\s*(?:[\r\n]\s*["}]|"[^"\r\n]*"\s*:\s*[\[{]?\s*[\r\n]\s*[^\s{])')
"""An object whose first line is not all of it, and whose second is not an object."""
_ARRAY = re.compile(rb"\s*\[")


def json_form(head: bytes) -> JsonForm | None:
    """The layout of a JSON text by its beginning; None: lines, or no JSON."""
    head = head.removeprefix(_BOM)
    return "array" if _ARRAY.match(head) else "objects" if _PRETTY.match(head) else None


class ObjectLines:
    """The objects of one text, a line each.

    Raises:
        DataError: from `finish`: the text ends within an object or list.
    """

    def __init__(self, form: JsonForm, path: str):
        self._base, self._path = int(form == "array"), path
        self._depth, self._in_text, self._backslashes, self._read = 0, False, 0, 0

    def feed(self, block: bytes) -> bytes:
        """The lines of the next block; the last one may go on in the following block."""
        data = np.frombuffer(block, np.uint8)
        self._read += len(data)
        at = np.flatnonzero(_MARKS[data])  # all others stay, wherever they stand
        marks = data[at]
        outside = self._outside(at, marks, len(data))
        at, marks = at[outside], marks[outside]
        step = _STEPS[marks]
        depth = self._depth + np.cumsum(step)
        made = data.copy()
        made[at[_LINE_ENDS[marks]]] = _BLANK
        if not self._base:
            ends = at[(step < 0) & (depth == 0)]
            pieces = np.insert(made, ends + 1, np.uint8(_NEWLINE)).tobytes()
            before, self._depth = self._depth, int(depth[-1]) if len(depth) else self._depth
            return self._without_rest(pieces, before)
        made[at[(marks == _COMMA) & (depth == 1)]] = _NEWLINE
        made[at[(step > 0) & (depth == 1)]] = _BLANK
        made[at[(step < 0) & (depth == 0)]] = _NEWLINE
        before, self._depth = self._depth, int(depth[-1]) if len(depth) else self._depth
        return self._without_rest(made.tobytes(), before)

    def _without_rest(self, lines: bytes, depth: int) -> bytes:
        """Lines without the blanks behind the last object, or before the first one: an empty line would be one too many.

        Args:
            depth: before the block.
        """
        if self._depth == 0:
            cut = lines.rfind(b"\n") + 1
            lines = lines[:cut] + lines[cut:].lstrip(b" \t")
        return lines.lstrip(b" \t") if depth == 0 else lines

    def finish(self) -> None:
        """Check that the text is whole."""
        if self._depth > 0 or self._in_text:
            what = "a text" if self._in_text else f"{self._depth} open brackets"
            raise DataError(
                f"the JSON is cut off: it ends after {self._read:,} characters with {what}",
                where=self._path,
                fix="fetch or write the file again",
            )

    def _outside(self, at: NDArray[np.int64], marks: NDArray[np.uint8], size: int) -> NDArray[np.bool_]:
        """Which marks stand outside texts; the quotes around a text count as in it.

        Args:
            at: their places in a block of `size` bytes.
        """
        quotes, slashes = marks == _QUOTE, marks == _BACKSLASH
        if self._backslashes or slashes.any():
            places = np.arange(len(at))
            follows = np.zeros(len(at), np.bool_)  # a backslash directly before it
            follows[1:] = slashes[:-1] & (np.diff(at) == 1)
            first = np.maximum.accumulate(np.where(follows, 0, places))
            run = places - first  # so many backslashes stand directly before it
            if len(at) and at[0] == 0:
                run[first == 0] += self._backslashes
            quotes &= run % 2 == 0
            ends_so = len(at) and slashes[-1] and at[-1] == size - 1
            self._backslashes = (int(run[-1]) + 1) % 2 if ends_so else 0 if size else self._backslashes
        inside = (np.cumsum(quotes) + self._in_text) % 2 == 1
        self._in_text = bool(inside[-1]) if len(inside) else self._in_text
        return ~(inside | quotes)


def _table(letters: str) -> NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    table[[ord(letter) for letter in letters]] = True
    return table


_MARKS, _LINE_ENDS = _table('"\\{}[],\r\n'), _table("\r\n")
_STEPS = _table("{[").astype(np.int64) - _table("}]")
