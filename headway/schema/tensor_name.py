"""Makes a name that TensorFlow and Python's keyword arguments take from any column name.

    tensor_name("dep_delay")             # "dep_delay"
    tensor_name("arr delay (min)")       # "arr_delay_min_b3c1a9"
    tensor_name("价格")                   # "c_0dc9f0"

The name follows from the column's name alone, so a column that is added changes no other's. Names of ASCII letters, digits
and underscores that begin with a letter stay as they are. Of any other the readable part stays (accents are dropped), and
six digits of its hash keep it apart from all that look alike.
"""

import hashlib
import keyword
import re
import unicodedata

PRESENT, LENGTH = "__present", "__length"
"""The endings of the inputs that go with a nullable column and with a list."""
RESERVED = frozenset({"self", "examples", "threshold", "top_k"})
_FITS = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def tensor_name(column: str) -> str:
    """Returns a column's name in TensorFlow: a letter, then letters, digits and underscores."""
    if _FITS.fullmatch(column) and not keyword.iskeyword(column) and column not in RESERVED:
        return column
    plain = unicodedata.normalize("NFKD", column).encode("ascii", "ignore").decode()
    readable = re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_")[:60]
    if not readable[:1].isalpha():
        readable = f"c_{readable}".rstrip("_")
    return f"{readable}_{hashlib.sha256(column.encode()).hexdigest()[:6]}"
