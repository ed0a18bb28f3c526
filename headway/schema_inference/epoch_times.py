"""Recognizes numbers that count the time since 1970, and names that say a column holds dates or times.

    epoch_rule("created_at", pa.array([1700000000, 1700003600]))      # (Parse epoch_seconds, "read as times (UTC): ...")
    epoch_rule("user_id", pa.array([1700000000]))                     # None: only a name tells a time from an identifier
    says_date("yyyymm")                                               # True

What the files hold is stored as it is, and requests send the same; only calendar parts are computed from it.
"""

import re

import numpy as np
import pyarrow as pa

from headway.schema.parse_rules import Kind, Parse
from headway.schema_inference.identifiers import named_as_identifier, words_of
from headway.sources.sample import ONE_IN

_FROM, _TO = 631_152_000, 2_208_988_800
"""Seconds from 1990 to 2040: in milliseconds and smaller units no such number is another's."""
_PER_SECOND: dict[Kind, int] = {
    "epoch_seconds": 1,
    "epoch_milliseconds": 1000,
    "epoch_microseconds": 1_000_000,
    "epoch_nanoseconds": 1_000_000_000,
}
_TIME_WORDS = frozenset(
    {"ts", "at", "utc", "unix", "epoch", "when", "created", "updated", "modified", "changed", "inserted", "deleted", "seen",
     "login", "started", "ended", "finished", "start", "end", "begin", "opened", "closed", "dt", "moment", "ds", "t"}
)  # fmt: skip
_TIME_PARTS = re.compile(r"time|date|stamp|epoch")
_NAMELESS = re.compile(r"column_[0-9]+")
"""What `headway init` calls the columns of a file without names."""
_LEAST_NAMELESS = 50
_DATE_WORDS = frozenset(
    {
        "date",
        "day",
        "dt",
        "month",
        "period",
        "ym",
        "yyyymm",
        "yearmonth",
        "yyyymmdd",
        "ymd",
        "dateint",
        "datekey",
        "asof",
    }
)
_DATE_PARTS = re.compile(r"date|yyyymm|yearmonth|year_?mo")


def says_time(name: str) -> bool:
    """Whether a column's name says that it holds times, such as ts, created_at or pickupTime."""
    return bool(_TIME_WORDS & {*words_of(name)} or _TIME_PARTS.search(name.lower())) and not named_as_identifier(name)


def says_date(name: str) -> bool:
    """Whether a column's name says that it holds dates or months, such as order_date or yyyymm."""
    return bool(_DATE_WORDS & {*words_of(name)} or _DATE_PARTS.search(name.lower()))


def epoch_rule(name: str, values: pa.ChunkedArray | pa.Array) -> tuple[Parse, str] | None:
    """The rule of a column of integers or doubles, and a note about it; None where its name or values are not times.

    One value in a hundred may lie outside 1990 to 2040, such as a 0 for a time that is not known. A column of a file without
    names is one of times if many different values are all inside.
    """
    named = says_time(name)
    if not (pa.types.is_integer(values.type) or pa.types.is_float64(values.type)) or not (
        named or _NAMELESS.fullmatch(name)
    ):
        return None
    known = values.drop_null()
    numbers = known.to_numpy() if isinstance(known, pa.ChunkedArray) else known.to_numpy(zero_copy_only=False)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return None
    for kind, scale in _PER_SECOND.items():
        inside = (numbers >= _FROM * scale) & (numbers < _TO * scale)
        if len(numbers) - np.count_nonzero(inside) > (len(numbers) // ONE_IN if named else 0):
            continue
        if not named and len(np.unique(numbers)) < _LEAST_NAMELESS:
            return None
        value = numbers[int(np.argmax(inside))]
        moment = str(np.datetime64(int(value) // scale, "s")).replace("T", " ")
        text = f"{value:d}" if pa.types.is_integer(values.type) else f"{value:.15g}"
        note = f"read as times (UTC) in {kind.removeprefix('epoch_')} since 1970: {text} is {moment}; requests send the number "
        fraction = "without its fraction" if bool((numbers != np.floor(numbers)).any()) else "as it is"
        return Parse.model_validate(kind), f"{note}{fraction}; say 'type: float' to keep a quantity"
    return None
