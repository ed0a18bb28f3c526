"""Recognizes text that holds several values: words of a sentence, or values between separators.

list_config(pa.array([b"Comedy|Drama", ...]))     # {"shape": "list", "separator": "|", ...}
list_config(pa.array([b"a good film", ...]))      # the same with " ", where words come again
"""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headway.tabular.list_arrays import decoded

SEPARATORS = ("|", ";", ", ", ",")
_SAMPLED = 5000
_LEAST_ROWS = 50
_SEVERAL = 0.3
"""The least share of texts that hold a separator, for it to be one."""
_FEWER = 3
"""The least number of different texts per different part: a list is made of few values."""
_WORDS = 3.0
"""Mean words of a text below which it is a name."""
_RECURRING = 0.5
"""The least share of words that stand in several texts, for words to be worth learning."""
_LONGEST = 512


def list_config(values: pa.Array) -> dict[str, Any] | None:
    """Returns the entry in `columns:` for a text that is read as a list of values; None if each text is one value."""
    texts = _texts(values)
    if len(texts) < _LEAST_ROWS:
        return None
    different = Counter(texts)
    for separator in SEPARATORS:
        several = sum(rows for text, rows in different.items() if separator in text)
        parts = [text.split(separator) for text in different] if several else []
        known = {part for split in parts for part in split}
        if several >= _SEVERAL * len(texts) and len(known) * _FEWER <= len(different):
            return {"shape": "list", "separator": separator}
    if 2 * len(different) <= len(texts):
        return None  # they recur as they are: categories
    words = [text.split() for text in texts]
    lengths = np.array([len(split) for split in words])
    if lengths.mean() < _WORDS:
        return None
    counts = Counter(word for split in words for word in {*split})
    least = max(5, len(texts) // 200)
    used = [counts[word] >= least for split in words for word in split]
    if np.mean(used) < _RECURRING:
        return None
    config: dict[str, Any] = {
        "shape": "list",
        "separator": " ",
        "transform": {"vocabulary": {"top_k": 5000, "min_count": 5}},
    }
    longest = int(np.quantile(lengths, 0.95))
    if longest > 64:
        config["max_length"] = min(_LONGEST, 1 << int(np.ceil(np.log2(longest))))
    return config


def _texts(values: pa.Array) -> list[str]:
    plain = decoded(values).drop_null()
    if len(plain) > _SAMPLED:
        plain = plain.take(pa.array(np.linspace(0, len(plain) - 1, _SAMPLED).astype(np.int64)))
    if not len(plain) or (pc.max(pc.binary_length(plain)).as_py() or 0) > 1 << 16:
        return []
    try:
        return plain.cast(pa.string()).to_pylist()
    except pa.ArrowInvalid:  # not UTF-8: bytes of something else
        return []
