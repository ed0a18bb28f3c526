"""Slices: parts of the evaluation rows that are measured and compared by themselves.

    carrier                    # one slice for each value
    carrier x origin           # one for each pair of values
    distance: 4                # quantile bins of a number; also crossed: carrier x distance: 4

Where nobody names any, `choose_slices` takes a handful of columns that slices can be made of.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.errors import DataError
from headway.evaluation.predictions import OWN
from headway.messages import number
from headway.tabular.list_arrays import combine_chunks, decoded, factorize

_BINS = re.compile(r"(?P<column>.*\S)\s*:\s*(?P<bins>\d+)")
MOST_BINS = 100
MISSING = "(null)"
FEW_VALUES = 20
"""A column with more values is not sliced by them unless it is named."""
MOST_VALUES, MOST_NUMBERS, DEFAULT_BINS = 4, 2, 4
"""The most columns of few values that `choose_slices` takes, the most numbers, and the bins of each number."""


class Part(NamedTuple):
    """One column of a slice: by its values (`bins` None), or in quantile bins."""

    column: str
    bins: int | None = None


def parts_of(name: str) -> tuple[Part, ...]:
    """Returns the columns that a slice is made of, with their bins, from the slice's text in the config.

    Raises:
        ValueError: the text asks for fewer than two bins, or more than a hundred.
    """
    parts = []
    for text in name.split(" x "):
        found = _BINS.fullmatch(text.strip())
        part = Part(found["column"], int(found["bins"])) if found else Part(text.strip())
        if part.bins is not None and not 2 <= part.bins <= MOST_BINS:
            raise ValueError(f"{name!r}: a number is cut into 2 to {MOST_BINS} bins, as in distance: 4")
        parts.append(part)
    return tuple(parts)


def can_slice(column: str) -> bool:
    """Returns whether a slice can be written with this column's name. "price: 2", "a x b" and " a" would be read as
    something else, and names like "weight" belong to the predictions' own columns."""
    if column in OWN:
        return False
    try:
        return parts_of(column) == (Part(column),) and parts_of(f"{column}: 2") == (Part(column, 2),)
    except ValueError:
        return False


def slice_columns(slices: Sequence[str] | None) -> tuple[str, ...]:
    """Returns the names of all columns that these slices are made of, each once."""
    return tuple(dict.fromkeys(part.column for name in slices or () for part in parts_of(name)))


def slice_text(name: str, value: str | None) -> str:
    """Returns a slice's value in words, as "carrier=EV and origin=EWR". The text of a bin already names its column."""
    parts, values = parts_of(name), re.split("(?<!<) x ", str(value))  # not the column x between its bounds
    if len(parts) != len(values):
        return f"{name}={value}"
    pairs = zip(parts, values, strict=True)
    return " and ".join(of if part.bins and of != MISSING else f"{part.column}={of}" for part, of in pairs)


def slice_rows(table: pa.Table, name: str, min_rows: int = 1) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yields each value of a slice that at least `min_rows` rows have, with the indices of the rows that have it. A
    null is the value "(null)". Values come in the order of their texts, bins from low to high.

    Raises:
        DataError: the predictions lack a column, or one that is cut into bins holds no numbers.
    """
    codes, names = np.zeros(len(table), np.int64), [""]
    for part in parts_of(name):
        more, words = value_codes(table, part)
        joint = codes * len(words) + more
        codes, count = factorize(joint)
        used = np.empty(count, np.int64)
        used[codes] = joint
        joined = (divmod(int(code), len(words)) for code in used)
        names = [" x ".join(filter(None, (names[left], words[right]))) for left, right in joined]
    order = np.argsort(codes.astype(np.min_scalar_type(len(names))), kind="stable")  # of few values: by radix
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))
    for code, value in enumerate(names):
        rows = order[ends[code - 1] if code else 0 : ends[code]]
        if len(rows) >= max(min_rows, 1):
            yield value, rows


def value_codes(table: pa.Table, part: Part) -> tuple[NDArray[np.int64], list[str]]:
    """Returns the code of each row's value, [rows], and the texts of the values in the order of the codes."""
    if part.column not in table.column_names:
        columns = ", ".join(name for name in table.column_names if name not in OWN)
        raise DataError(
            f"the predictions have no column {part.column!r} to slice by", fix=f"there is: {columns or 'none'}"
        )
    column = combine_chunks(table.column(part.column))
    if part.bins is not None:
        return _binned(decoded(column), part)
    if not pa.types.is_dictionary(column.type) or column.null_count:
        text = decoded(column)
        if pa.types.is_binary(text.type) or pa.types.is_large_binary(text.type):
            text = text.cast(pa.string())
        column = pc.fill_null(text.cast(pa.string()), MISSING).dictionary_encode()
    names = column.dictionary.cast(pa.string()).to_pylist()
    order = np.argsort(np.asarray(names, object), kind="stable")
    place = np.empty(len(names), np.int64)
    place[order] = np.arange(len(names))
    return place[column.indices.to_numpy()], [names[i] for i in order]


def _binned(values: pa.Array, part: Part) -> tuple[NDArray[np.int64], list[str]]:
    assert part.bins is not None
    try:
        floats = pc.fill_null(values.cast(pa.float64()), np.nan).to_numpy()
    except pa.ArrowInvalid:
        fix = f"slice by its values: {part.column}"
        raise DataError(f"column {part.column!r} holds no numbers to cut into bins", fix=fix) from None
    good = np.isfinite(floats)
    if not good.any():
        return np.zeros(len(floats), np.int64), [MISSING]
    edges = np.unique(np.quantile(floats[good], np.linspace(0, 1, part.bins + 1)[1:-1], method="inverted_cdf"))
    edges = edges[edges < floats[good].max()]
    codes = np.where(good, np.searchsorted(edges, floats, "left"), len(edges) + 1)
    if not len(edges):
        return codes, [f"{part.column} {number(float(floats[good][0]))}", MISSING]
    shown = [number(float(edge)) for edge in edges]
    between = [f"{low} < {part.column} <= {high}" for low, high in pairwise(shown)]
    return codes, [f"{part.column} <= {shown[0]}", *between, f"{part.column} > {shown[-1]}", MISSING]


def choose_slices(
    statistics: Sequence[Mapping[str, Any]],
    strengths: Mapping[str, float],
    *,
    eligible: Sequence[str],
    rows: int,
    least: int,
) -> tuple[str, ...]:
    """Returns a handful of slices: the columns of few values, and the numbers, that predict the label best by themselves.

    Args:
        statistics: a summary of each column over the train rows.
        strengths: how well each column alone predicts the label, as validation found it.
        eligible: columns of one value per row that the predictions can have.
        rows: the number of evaluation rows; with fewer than twice `least` there are no slices.
        least: the least number of rows of a slice.
    """
    if rows < 2 * least:
        return ()
    names = possible_slices(statistics, strengths, eligible, bins=DEFAULT_BINS)
    of_bins = [name for name in names if parts_of(name)[0].bins]
    of_values = [name for name in names if name not in of_bins]
    return (*of_values[:MOST_VALUES], *of_bins[:MOST_NUMBERS])


def possible_slices(
    statistics: Sequence[Mapping[str, Any]], strengths: Mapping[str, float], eligible: Sequence[str], *, bins: int
) -> list[str]:
    """Returns all possible slices: each column of few values, and each number in `bins` quantile bins. Columns that
    predict the label best by themselves come first. See `choose_slices` for the arguments."""
    known = {row["column"]: row for row in statistics if row["column"] in set(eligible) and can_slice(row["column"])}
    names = []
    for name in sorted(known, key=lambda name: (-strengths.get(name, 0.0), name)):
        if 2 <= known[name]["distinct"] <= FEW_VALUES:
            names.append(name)
        elif known[name]["distinct"] > FEW_VALUES and known[name]["type"] != "bytes":
            names.append(f"{name}: {bins}")
    return names
