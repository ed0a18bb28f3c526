"""Finds out, block by block, whether a newline stands inside quotes: such a CSV file cannot be cut at line ends.

    quotes = Quotes('"')
    quotes.feed(b'a,"b')
    quotes.feed(b'\\nc"')
    quotes.newline_inside          # True

A quote is doubled inside quotes, so a newline is inside exactly when an odd number of quotes precede it.
"""

from __future__ import annotations

import numpy as np


class Quotes:
    def __init__(self, quote: str):
        self._quote = quote.encode()
        self._open = 0
        self.newline_inside = False

    def feed(self, block: bytes) -> None:
        if self.newline_inside:
            return
        if self._quote not in block:
            self.newline_inside = bool(self._open) and b"\n" in block
            return
        data = np.frombuffer(block, np.uint8)
        either = data[np.flatnonzero((data == self._quote[0]) | (data == 10))]
        newlines = np.flatnonzero(either == 10)
        # of what stands before the i-th newline, i are newlines
        before = newlines - np.arange(len(newlines)) + self._open
        self.newline_inside = bool((before & 1).any())
        self._open = (self._open + len(either) - len(newlines)) & 1
