"""The quotes of CSV text: where records end, and which records a misplaced quote makes unreadable.

rules = QuoteRules(CsvConfig(), longest=16 << 20)
rules.broken(b'1,"12" pipe"\\n2,x\\n', columns=2)         # one BrokenRecord: text follows a closing quote
rules.record_end(b'1,"a\\nb"\\n2,"c\\n', columns=2)       # 8: the second record may go on
Quotes(CsvConfig())                                     # feed(block) finds newline_inside: the file cannot be cut

A quote opens a value only as the value's first character. The quote that closes it stands before a delimiter or a line
end, perhaps with blanks in between. In a value that does not begin with a quote, a quote is an ordinary character. A
line in which a value is opened and not properly closed is broken. It is rejected, and reading goes on at the next line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.sources.config import CsvConfig

_ROWS = 20
"""If the text between two quotes has at least so many lines, each with as many values as a row, it is rows and not one
value."""


@dataclass(frozen=True)
class BrokenRecord:
    """A record that cannot be read: bytes [start, end) of some data."""

    start: int
    end: int
    reason: str


class QuoteRules:
    """The rules for where quotes may stand in CSV files with a given config.

    Args:
        longest: the most bytes of a value that has line ends in it.
    """

    def __init__(self, config: CsvConfig, longest: int):
        self._quote, self._escape = config.quote.encode(), config.escape.encode()
        self._delimiter, self._longest = config.delimiter.encode(), longest
        quote, escape, ends = re.escape(self._quote), re.escape(self._escape), re.escape(self._delimiter) + rb"\n\r"
        letters = b"[^%b]++" % (quote + escape) if quote or escape else rb"[\s\S]++"
        within, outside = [letters], [letters]
        if escape:
            within.append(rb"%b[\s\S]" % escape)
            outside.append(rb"%b[^\n]%b" % (escape, quote + b"*+" if quote else b""))
        if quote:
            within.append(quote * 2)
            opening = b"(?<![^%b])%b(?:%b)*+" % (ends, quote, b"|".join(within))
            blanks = re.escape(b" \t".replace(self._delimiter, b""))
            closed = b"%b%b(?=[%b]*+(?:[%b]|\\Z))" % (opening, quote, blanks, ends)
            one_line = closed.replace(letters, b"[^%b\\n]++" % (quote + escape)).replace(rb"[\s\S]", rb"[^\n]")
            outside += [one_line, b"(?<=[^%b])%b" % (ends, quote)]
            self._opening, self._closed = re.compile(opening), re.compile(closed)
        self._plain = re.compile(b"(?:%b)*+" % b"|".join(outside))
        """A pattern for data whose quotes stand where they may, with each value on one line."""

    def record_end(self, data: bytes, columns: int) -> int:
        """Returns the offset after the last whole record in a block of a longer text; 0 when there is none."""
        if not self._holds_marks(data):
            return data.rfind(b"\n") + 1
        return self._walk(data, columns, newlines=True, final=False)[0]

    def broken(self, data: bytes, columns: int, *, newlines: bool = True) -> list[BrokenRecord]:
        """Returns the records that cannot be read because of a quote; `data` ends with a whole record.

        Args:
            newlines: whether a value may hold a line end; false for a file that was cut at any line end.
        """
        if not self._holds_marks(data):
            return []
        if not self._escape and _are_plain(data, self._quote[0], self._delimiter[0]):
            return []
        return self._walk(data, columns, newlines, final=True)[1]

    def escaped(self, data: bytes) -> bytes:
        r"""Returns the data with each escape before an ordinary character doubled, so that it stays part of the text:
        C:\dir becomes C:\\dir."""
        if not self._escape or self._escape not in data:
            return data
        escape, others = re.escape(self._escape), self._quote + self._escape + self._delimiter
        stray = rb"(?<!%b)((?:%b%b)*)%b(?![%b\n\r])" % (escape, escape, escape, escape, re.escape(others))
        return re.sub(stray, lambda found: found[1] + 2 * self._escape, data)

    def _holds_marks(self, data: bytes) -> bool:
        """Returns whether the data hold a quote or an escape character."""
        return any(mark and mark in data for mark in (self._quote, self._escape))

    def _walk(self, data: bytes, columns: int, newlines: bool, final: bool) -> tuple[int, list[BrokenRecord]]:
        """Returns the offset just after the last whole record, and the broken records."""
        # line ends before `floor` may lie inside a value, and the record that reaches `floor` begins at `record`
        broken: list[BrokenRecord] = []
        at = floor = record = 0
        while (found := self._plain.match(data, at)) and (at := found.end()) < len(data):
            start = data.rfind(b"\n", floor, at) + 1 or record
            end = self._end_of_piece(data, at, start, columns) if newlines else -1
            line_end = data.find(b"\n", at) + 1
            if not final and (end >= len(data) or not line_end):
                return start, broken
            if 0 < end <= len(data):
                at, floor, record = end, end, start
                continue
            if data[at : at + 1] == self._escape:  # a line end that it escapes, where none can be
                at += 1
                continue
            end = line_end or len(data)
            opened = self._opening.match(data, at)
            closes = opened is not None and opened.end() < end
            reason = "text follows a closing quote" if closes else "a quote opens a value and does not close it"
            broken.append(BrokenRecord(start, end, f"{reason} (see csv.quote, csv.escape)"))
            at = floor = record = end
        return len(data) if final else data.rfind(b"\n", floor) + 1 or record, broken

    def _end_of_piece(self, data: bytes, at: int, start: int, columns: int) -> int:
        """Returns where the quoted value of several lines, or the escaped line end, at offset `at` ends. The result
        lies beyond the data if the value is not closed in them, and is -1 if its quotes are broken."""
        if data[at : at + 1] == self._escape:
            return min(at + 2, len(data))
        value = self._closed.match(data, at)
        if value is None:
            opened = self._opening.match(data, at)
            open_yet = opened is not None and data[opened.end() :] in (b"", self._escape)
            return len(data) + 1 if open_yet and len(data) - at <= self._longest else -1
        end = value.end()
        if end - at > self._longest:
            return -1
        if columns > 1 and data.count(b"\n", at, end) >= _ROWS - 1:
            lines = data[start : (data.find(b"\n", end) + 1 or len(data) + 1) - 1].split(b"\n")
            if all(line.count(self._delimiter) == columns - 1 for line in lines):
                return -1
        return end


_WORD = 64
_SHIFTS = [np.uint64(1 << power) for power in range(6)]
_ONE, _LAST, _ALL = np.uint64(1), np.uint64(_WORD - 1), np.uint64(0xFFFFFFFFFFFFFFFF)
Words = NDArray[np.uint64]


class Quotes:
    """Looks in a file's blocks for a newline inside quotes, or an escape, which may stand before a newline."""

    def __init__(self, config: CsvConfig):
        self._quote, self._escape = config.quote.encode(), config.escape.encode()
        self._open = np.uint64(0)
        self._equal = np.empty(0, np.bool_)  # memory that is new for every block would cost more than the search
        self.newline_inside = False

    def feed(self, block: bytes | NDArray[np.uint8]) -> None:
        """Look at the next block, 64 bytes at a time as bits of a word: three times as fast as a search for quotes."""
        if self.newline_inside or not len(block):
            return
        data = np.frombuffer(block, np.uint8)
        if len(data) > len(self._equal):
            self._equal = np.empty(len(data), np.bool_)
        equal = self._equal[: len(data)]
        if self._escape and np.equal(data, self._escape[0], out=equal).any():
            self.newline_inside = True
        elif self._quote:
            inside, after = _inside(_bits(np.equal(data, self._quote[0], out=equal)), self._open)
            self.newline_inside = bool((inside & _bits(np.equal(data, ord("\n"), out=equal))).any())
            self._open = after


def _bits(mask: NDArray[np.bool_]) -> Words:
    """Returns a mask as the bits of 64-bit words, its first value as the lowest bit; zeros fill the last word."""
    packed = np.packbits(mask, bitorder="little")
    if short := -len(packed) % (_WORD // 8):
        packed = np.append(packed, np.zeros(short, np.uint8))
    return packed.view("<u8")


def _inside(quotes: Words, open_before: np.uint64) -> tuple[Words, np.uint64]:
    """Returns bits that are 1 from an opening quote to before the closing one, and 1 if a quote is open at the end."""
    inside = quotes.copy()
    for shift in _SHIFTS:  # a bit becomes the parity of itself and all before it in its word
        inside ^= inside << shift
    after = np.bitwise_xor.accumulate(inside >> _LAST) ^ open_before
    inside[1:] ^= after[:-1] * _ALL
    inside[0] ^= open_before * _ALL
    return inside, after[-1]


def _are_plain(data: bytes, quote: int, delimiter: int) -> bool:
    """Returns whether each quote opens or closes a value of one line, or is doubled inside one."""
    array = np.frombuffer(data, np.uint8)
    quotes, newlines = _bits(array == quote), _bits(array == ord("\n"))
    inside, after = _inside(quotes, np.uint64(0))
    if after or (inside & newlines).any():
        return False
    edges = quotes | newlines | _bits(array == delimiter)
    if b"\r" in data:
        edges |= _bits(array == ord("\r"))
    before, behind = edges << _ONE, edges >> _ONE
    before[1:] |= edges[:-1] >> _LAST
    before[0] |= _ONE
    behind[:-1] |= edges[1:] << _LAST
    behind[-1] |= _ONE << np.uint64((len(array) - 1) % _WORD)
    return not ((quotes & inside & ~before) | (quotes & ~inside & ~behind)).any()
