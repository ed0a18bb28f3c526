"""Which texts mean a missing value in each column of a CSV file.

    null_words(pa.chunked_array([["DE", "FR", "IT", "NA"]]), ("", "NA"), ())      # (the same values, ("",), a note)
    null_words(pa.chunked_array([["Berlin", "NA"]]), ("", "NA"), ())              # (["Berlin", None], ("", "NA"), a note)

NA is what R writes for a missing value, and Namibia's code. In a text column such a word is a value where it stands in quotes,
or where nine in ten of the other distinct values are written like it: as many characters, and each of the same kind.
"""

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headway.sources.sample import ONE_IN
from headway.tabular.list_arrays import is_text

_LEAST, _MOSTLY = 3, 0.9


def null_words(
    values: pa.ChunkedArray, words: Sequence[str], quoted: Collection[str]
) -> tuple[pa.ChunkedArray, tuple[str, ...], str | None]:
    """(the sampled values without the words that mean a missing one, these words, a note where it is worth one).

    Args:
        values: text as it stands in the files, or numbers, of which no word is one.
        quoted: the words that stand in quotes.
    """
    if not is_text(values.type):
        return values, tuple(words), None
    texts = values.cast(pa.string())
    distinct = pc.unique(texts).drop_null()
    others = distinct.filter(pc.invert(pc.is_in(distinct, value_set=pa.array(words, pa.string()))))
    counts = {word: pc.sum(pc.equal(texts, word)).as_py() or 0 for word in words if word}
    plain = {word for word, count in counts.items() if word in quoted or (count and _are_like(others, word))}
    null = tuple(word for word in words if word not in plain and (word or word not in quoted))
    gone = pc.is_in(texts, value_set=pa.array([word for word in null if word], pa.string()))
    present, fix = len(texts) - texts.null_count, "{parse: {as: text, null: "
    note = None
    for word, count in counts.items():
        of_it = f"{word!r}, in {count:,} of {present:,} sampled values,"
        if count and word in plain:
            note = f"{of_it} is a text like the others; say {fix}[{word}]}}}} if it means that the value is missing"
        elif count * ONE_IN > present:
            note = f"{of_it} means that the value is missing; say {fix}[]}}}} if it is a text like the others"
    return pc.if_else(gone, pa.scalar(None, values.type), values), null, note


def _are_like(others: pa.Array, word: str) -> bool:
    if len(others) < _LEAST:
        return False
    alike = pc.equal(_forms(others), _forms(pa.array([word]))[0])
    return bool(pc.mean(alike.cast(pa.int8())).as_py() >= _MOSTLY)


def _forms(texts: pa.Array) -> pa.Array:
    """Each character by its kind: A a capital, a another letter, 0 a digit."""
    for pattern, kind in ((r"\p{Lu}", "A"), (r"\p{Ll}", "a"), (r"\d", "0")):
        texts = pc.replace_substring_regex(texts, pattern, kind)
    return texts
