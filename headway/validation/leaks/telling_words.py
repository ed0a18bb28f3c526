"""Words in texts that tell the label, as those of a note do that was written after it.

told = telling_word(texts, label)            # TellingWord(word="cancelled", share=0.85, others=0.0, label="1")
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.tabular.list_arrays import decoded, escaped

_MOST_ROWS = 5_000
_LEAST_ROWS = 30
_IN_CLASS, _IN_OTHERS = 0.6, 0.01
_NAMED = 0.3
"""The least share of a class whose texts have the class's own name, with hardly any other text having it."""
_LONGEST = 40


class TellingWord(NamedTuple):
    word: str
    share: float
    """Of the class's texts that have it."""
    others: float
    label: str


def telling_word(texts: pa.Array, label: pa.Array) -> TellingWord | None:
    """The word that tells one class best: most of its texts have it and hardly any other, or it is the class's name; None: no
    word does, or there are no texts of several words.

    Args:
        texts: binary or string.
        label: of each row: integers, or binary or string.
    """
    few = pa.array(np.linspace(0, len(texts) - 1, min(len(texts), _MOST_ROWS)).astype(np.int64))
    rows, classes = escaped(decoded(texts.take(few)).cast(pa.binary())), label.take(few)
    if not len(rows):
        return None
    plain = pc.utf8_lower(pc.fill_null(rows, ""))
    split = pc.split_pattern_regex(plain, r"[^\pL\pM\pN_]+")
    words, of_row = pc.list_flatten(split), pc.list_parent_indices(split).to_numpy()
    if len(words) < 2 * len(rows):
        return None
    coded = words.dictionary_encode()
    names, code = coded.dictionary, coded.indices.to_numpy()
    named = [each.decode("utf-8", "replace") if isinstance(each, bytes) else str(each) for each in classes.to_pylist()]
    values, of_class = np.unique(named, return_inverse=True)
    many = np.bincount(of_class)
    pairs = np.unique(code.astype(np.int64) * len(rows) + of_row)  # a word counts once in a text
    word, row = pairs // len(rows), pairs % len(rows)
    counts = np.zeros((len(names), len(values)), np.int64)
    np.add.at(counts, (word, of_class[row]), 1)
    return _best(counts, many, names, values)


def _best(
    counts: NDArray[np.int64], many: NDArray[np.int64], names: pa.Array, values: NDArray[Any]
) -> TellingWord | None:
    total = counts.sum(1)
    best: TellingWord | None = None
    for place, value in enumerate(values.tolist()):
        if not _LEAST_ROWS <= many[place] <= many.sum() - _LEAST_ROWS:
            continue
        inside = counts[:, place] / many[place]
        outside = (total - counts[:, place]) / (many.sum() - many[place])
        own = np.asarray(pc.equal(names, str(value).lower()))
        tells = (outside <= _IN_OTHERS) & (inside >= np.where(own, _NAMED, _IN_CLASS))
        for at in np.flatnonzero(tells & (counts[:, place] >= _LEAST_ROWS)).tolist():
            if (best is None or inside[at] > best.share) and 0 < len(names[at].as_py()) <= _LONGEST:
                best = TellingWord(names[at].as_py(), float(inside[at]), float(outside[at]), value)
    return best
