"""Raw values as predictions keep them.

kept_column(values, present)        # Arrow [rows]
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.tabular.list_arrays import escaped


def kept_column(values: NDArray[Any], present: NDArray[np.bool_]) -> pa.Array:
    """Convert raw values to what predictions keep: numbers as they are, bytes as UTF-8 (invalid ones escaped), null as null."""
    if values.dtype != object:
        return pa.array(values, mask=~present)
    return escaped(pa.array(values, pa.binary(), mask=~present))


def numbered(values: pa.Array, known: Callable[[Any], int]) -> NDArray[np.int64]:
    """The number of each value, asked for once for each distinct one."""
    encoded = values.dictionary_encode(null_encoding="encode")
    numbers = np.asarray([known(value) for value in encoded.dictionary.to_pylist()], np.int64)
    return numbers[encoded.indices.to_numpy()]
