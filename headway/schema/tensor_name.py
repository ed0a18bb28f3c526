"""Makes a name from any column name. TensorFlow takes it as a name, and Python as a keyword argument.

    tensor_name("dep_delay")             # "dep_delay"
    tensor_name("arr delay (min)")       # "arr_delay_min_b3c1a9"
    tensor_name("价格")                   # "c_0dc9f0"

The name follows from the column's name alone, so adding a column changes no other name. Names of ASCII letters, digits and
underscores that begin with a letter stay as they are. Of any other name the readable part stays, without accents. Six digits of
the name's hash are added, to keep similar names apart.
"""

import hashlib
import keyword
import re
import unicodedata

PRESENT, LENGTH = "__present", "__length"
"""The endings of further model inputs: whether a nullable column has a value, and the length of a list."""
RESERVED = frozenset({"self", "examples", "threshold", "top_k"})
_FITS = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def tensor_name(column: str) -> str:
    """Returns a column's name in TensorFlow: a letter, then letters, digits and underscores, and no keyword of Python."""
    if _FITS.fullmatch(column) and not keyword.iskeyword(column) and column not in RESERVED:
        return column
    plain = unicodedata.normalize("NFKD", column).encode("ascii", "ignore").decode()
    readable = re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_")[:60]
    if not readable[:1].isalpha():
        readable = f"c_{readable}".rstrip("_")
    return f"{readable}_{hashlib.sha256(column.encode()).hexdigest()[:6]}"
