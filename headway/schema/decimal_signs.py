"""Finds whether numbers in text have a decimal comma or point, as in 0,5 or 0.5. This tells how to read 1,234 in the same text.

sign_of(pa.array(["0,549", "12,125"]))        # ",": no group of thousands begins with 0
sign_of(pa.array(["1,234", "5,678"]))         # "either"
sign_of(pa.array(["a", "1", "2"]))            # None: no number has a comma or a point
sign_of_table(columns)                        # the sign that the columns of one table agree on
"""

from collections.abc import Iterable
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headway.schema.number_texts import may_be_number, number_pattern

DecimalSign = Literal[",", ".", "either"]
_FIRST, _MOSTLY, _ROWS = 20, 0.9, 10_000
_GROUPS = r"^\s*[+-]?[0-9]{1,3}(?:\.[0-9]{3})*\s*$"


def sign_of(texts: pa.Array) -> DecimalSign | None:
    """Returns the decimal sign of a column's numbers; "either" if the numbers leave it open or contradict each other. None if no
    number has a comma or a point, or most texts are no numbers.

    Args:
        texts: the distinct values of the column.
    """
    written = pc.match_substring_regex(texts, "[0-9][.,]|[.,][0-9]")
    first = texts.filter(written).slice(0, _FIRST)
    if not len(first) or (pc.mean(may_be_number(first).cast(pa.int8())).as_py() or 0) < _MOSTLY:
        return None  # the patterns take milliseconds to compile
    point = pc.match_substring_regex(texts, number_pattern("number"))
    comma = pc.match_substring_regex(texts, number_pattern("decimal_comma"))
    if (pc.mean(pc.or_(point, comma).cast(pa.int8())).as_py() or 0) < _MOSTLY:
        return None
    only_comma = pc.and_(comma, pc.or_(pc.invert(point), pc.match_substring_regex(texts, "^[^0-9]*0,[0-9]")))
    only_point = pc.and_(point, pc.or_(pc.invert(comma), pc.match_substring_regex(texts, r"^[^0-9]*0\.[0-9]")))
    return _agreed(pc.any(only_comma).as_py(), pc.any(only_point).as_py())


def sign_of_table(columns: Iterable[pa.ChunkedArray]) -> DecimalSign:
    """Returns the decimal sign on which the columns of text or doubles agree; "either" if none has a sign, or both occur."""
    signs = set[DecimalSign | None]()
    for values in columns:
        if pa.types.is_string(values.type):
            signs.add(sign_of(pc.unique(values.slice(0, _ROWS)).drop_null()))
        elif pa.types.is_floating(values.type):
            numbers = values.drop_null().to_numpy()
            signs.add("." if (np.isfinite(numbers) & (numbers != np.floor(numbers))).any() else None)
    return _agreed("," in signs, "." in signs)


def in_groups(texts: pa.ChunkedArray) -> bool:
    """Returns whether all texts are digits, some of them in groups of three behind points, such as 1.234. If the comma is the
    decimal sign, the points separate thousands."""
    if not pa.types.is_string(texts.type):
        return False
    grouped = pc.all(pc.match_substring_regex(texts, _GROUPS)).as_py()
    return bool(grouped and pc.any(pc.match_substring(texts, ".")).as_py())


def _agreed(comma: bool, point: bool) -> DecimalSign:
    return "either" if comma == point else "," if comma else "."
