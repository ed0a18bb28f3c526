"""Detects identifier columns, whose values name things instead of measuring them.

    meaning_of("user_id", values)        # "category": few distinct values, so each is learned
    meaning_of("Id", values)             # "identifier": a name of its own for nearly every row
    meaning_of("price", values)          # None: a quantity, or a text of few words

The decision is made once, from the sample that the schema is inferred from. The schema file keeps it as the column's `meaning`.
An identifier is not used as a feature unless the pipeline says so. It is ignored when rows are compared or split by their values.
A category is learned with a vocabulary, or with a hash if it has too many values.
"""

import re
import unicodedata
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headway.schema.columns import Meaning
from headway.tabular.list_arrays import decoded, is_text, value_type

FEW_ROWS = 20
"""A sample of fewer rows decides nothing: everything is unique in it."""
MOSTLY = 0.5
"""If a column has more distinct values than this share of its rows, nothing is learned about single values."""
MANY_WORDS = 1000
"""Texts with at most so many distinct values are words, unless the column's name is an identifier's or none repeats."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
"""A word in a text of character kinds: A for a capital, a for another letter, 0 for a digit, _ for anything else."""
_KINDS = {"Lu": "A", "Lt": "A", "L": "a", "M": "a", "Nd": "0"}
_UNIQUE = frozenset({"id", "ids", "uuid", "guid", "rowid", "rownum", "rownames", "serial", "hash", "key"})
_ALONE = frozenset({"index", "idx"})
"""Words that name rows only if the column's name has no other word: a price index is a quantity."""
_CODES = frozenset(
    {"code", "zip", "zipcode", "postcode", "postal", "fips", "sku", "isbn", "ean", "upc", "ssn", "phone"}
)
_JOINED = re.compile(
    r"(user|item|movie|film|customer|client|member|product|order|session|passenger|transaction|trans|account|store|shop|"
    r"device|visitor|employee|patient|student|song|track|artist|album|video|post|ad|campaign|record|row|case|sample|subject|"
    r"person|loan|policy|invoice|ticket|trip|ride|driver|vehicle|host|listing|review|event|request|query|doc|page|site|"
    r"station|school|house|household|city|county|state|country|region|zone|cust|claim|contract|receipt|booking)"
    r"(id|code|key|no|nr|num|number|ref|index|idx)"
)
_FRAME_INDEX = re.compile(r"Unnamed: \d+(\.\d+)*|__index_level_\d+__")
"""What pandas calls the index of a frame that it wrote."""
TIMES = frozenset(
    {"year", "yr", "month", "day", "week", "date", "time", "hour", "minute", "second", "quarter", "period", "age", "t"}
)
"""Words in the names of columns that count up without numbering rows."""


def words_of(name: str) -> list[str]:
    """Returns the words of a column's name in lower case, in any script. user_id, UserID and userId give user and id.

    The list is empty if the name has neither letters nor digits, such as `%`."""
    categories = [unicodedata.category(character) for character in name]
    kinds = "".join(_KINDS.get(category) or _KINDS.get(category[0], "_") for category in categories)
    return [name[found.start() : found.end()].lower() for found in _WORD.finditer(kinds)]


def named_as_identifier(name: str) -> bool:
    """Returns whether a column's name suggests an identifier: id, user_id, MovieID, zip, product code, order_no."""
    words = words_of(name)
    if (len(words) == 1 and words[0] in _ALONE) or _FRAME_INDEX.fullmatch(name):
        return True
    joined = [*words, *(one + following for one, following in pairwise(words))]
    return any(word in _UNIQUE or word in _CODES or _JOINED.fullmatch(word) for word in joined)


def meaning_of(name: str, values: pa.ChunkedArray | pa.Array) -> Meaning | None:
    """Returns "identifier" or "category" if a column's values name things; None for quantities, words, times and few rows.

    Args:
        values: in the order of the rows. Only integers and text can be identifiers.
    """
    kind = value_type(values.type)
    if not (pa.types.is_integer(kind) or is_text(kind)):
        return None
    values = decoded(values).drop_null()
    rows = len(values)
    if rows < FEW_ROWS:
        return None
    distinct = pc.count_distinct(values).as_py()
    named = named_as_identifier(name)
    if is_text(kind):
        if distinct <= rows * MOSTLY:
            return None  # words are categories anyway
        return "identifier" if named or distinct == rows or distinct > MANY_WORDS else None
    if named:
        return "identifier" if distinct > rows * MOSTLY else "category"
    return "identifier" if distinct == rows and _counts_rows(name, values) else None


def _counts_rows(name: str, values: pa.ChunkedArray | pa.Array) -> bool:
    """Returns whether integers number the rows: from 0 or 1 they go up by one, except where the sample skips rows."""
    if {*words_of(name)} & TIMES:
        return False
    numbers = values.to_numpy() if isinstance(values, pa.ChunkedArray) else values.to_numpy(zero_copy_only=False)
    if int(numbers[0]) not in (0, 1):
        return False
    steps = np.diff(numbers.astype(np.int64))
    return bool((steps > 0).all() and (steps == 1).mean() > 0.95)
