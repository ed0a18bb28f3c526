"""Lines of a CSV file without the blanks around their values: `csv.trim`.

clean = clean_lines(CsvConfig(trim=True))
clean(b'1, a ,"x, y"\\n')                   # b'1,a,"x, y"\\n'

Quoted values stay as they are.
"""

from __future__ import annotations

import re

from headway.sources.config import CsvConfig
from headway.sources.text_stream import Clean


def clean_lines(config: CsvConfig) -> Clean:
    """A function that trims whole lines. With the delimiter " " several blanks, or tabs, separate as one blank does."""
    quote, delimiter = (re.escape(text.encode()) for text in (config.quote, config.delimiter))
    blank = b" " if config.delimiter == "\t" else rb"[ \t]"
    ends = re.compile(rb"(?m)^%s+|%s+(?=\r?$)" % (blank, blank))
    quoted = rb"(?:(?<=[%s \t\n])|\A)%s[^%s]*%s" % (delimiter, quote, quote, quote)
    between = rb"[ \t]+" if config.delimiter == " " else rb"%s*%s%s*" % (blank, delimiter, blank)
    pattern = re.compile(rb"(%s)|%s" % (quoted, between))
    one = config.delimiter.encode()

    def clean(lines: bytes) -> bytes:
        lines = ends.sub(b"", lines)
        if config.quote.encode() not in lines:
            return re.sub(between, one, lines)
        return pattern.sub(lambda found: found[1] or one, lines)

    return clean
