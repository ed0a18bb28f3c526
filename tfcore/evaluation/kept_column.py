"""Raw values as predictions keep them.

kept_column(values, present)        # Arrow [rows]
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def kept_column(values: NDArray[Any], present: NDArray[np.bool_]) -> pa.Array:
    """Convert raw values to what predictions keep: numbers as they are, bytes as UTF-8 (invalid ones escaped), null as null."""
    if values.dtype != object:
        return pa.array(values, mask=~present)
    encoded = pa.array(values, pa.binary(), mask=~present).dictionary_encode()
    words = [value.decode("utf-8", "backslashreplace") for value in encoded.dictionary.to_pylist()]
    return pc.take(pa.array(words, pa.string()), encoded.indices)
