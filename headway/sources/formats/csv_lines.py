"""Lines of a CSV file without the blanks around their values: `csv.trim`.

clean = clean_lines(CsvConfig(trim=True))    # for one reading of one file
clean(b'1, a ,"x, y"\\n')                   # b'1,a,"x, y"\\n'

Quoted values stay as they are, line ends in them too.
"""

from __future__ import annotations

import re

from headway.sources.config import CsvConfig
from headway.sources.text_files import BOM
from headway.sources.text_stream import Clean


def clean_lines(config: CsvConfig) -> Clean:
    """A function that trims the whole lines of a file, block after block; a quoted value may go on in the next block.
    With the delimiter " " several blanks, or tabs, separate as one blank does."""
    mark, one = config.quote.encode(), config.delimiter.encode()
    quote, delimiter = re.escape(mark), re.escape(one)
    blank = b" " if config.delimiter == "\t" else rb"[ \t]"
    ends = re.compile(rb"(?m)^%s+|%s+(?=\r?$)" % (blank, blank))
    between = rb"[ \t]+" if config.delimiter == " " else rb"%s*%s%s*" % (blank, delimiter, blank)
    rest = rb"[^%s]*(?:%s%s[^%s]*)*(?:%s|\Z)" % ((quote,) * 5)
    """Of a quoted value, to its end or the block's."""
    token = rb"%s+(?=\r?$)|(?:^%s*|(?P<between>%s))(?P<quoted>%s%s)?" % (blank, blank, between, quote, rest)
    outside = re.compile(rb"(?m)" + token)
    inside = re.compile(rb"(?m)\A(?P<rest>%s)|%s" % (rest, token))
    is_open = False

    def trimmed(found: re.Match[bytes]) -> bytes:
        nonlocal is_open
        groups = found.groupdict()
        if groups.get("rest") is not None:
            is_open = groups["rest"].count(mark) % 2 == 0
            return groups["rest"]
        quoted = groups["quoted"] or b""
        if quoted:
            is_open = quoted.count(mark) % 2 == 1
        return (b"" if groups["between"] is None else one) + quoted

    def clean(lines: bytes) -> bytes:
        if lines.startswith(BOM):
            return BOM + clean(lines[len(BOM) :])
        if is_open:
            return inside.sub(trimmed, lines)
        if mark in lines:
            return outside.sub(trimmed, lines)
        return re.sub(between, one, ends.sub(b"", lines))

    return clean
