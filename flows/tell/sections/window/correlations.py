"""Which columns go together: rank correlations of the numbers among those that matter most, on a sample of the train rows."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from flows.tell.rendering.tables import Table
from flows.tell.sections.window.column_words import column_names
from headway.messages import counted
from headway.statistics.row_sample import FILE, RowSample, numbers, ranks

MOST, LEAST_ROWS = 12, 30


def correlations(folder: Path | None, names: Sequence[str], columns: int) -> Iterator[Table]:
    """The table of them; none of fewer than two numbers.

    Args:
        folder: the statistics of the train rows.
        names: the columns, those that matter most first.
        columns: of the whole table.
    """
    if folder is None or not (folder / FILE).is_file():
        return
    try:
        sample = RowSample.load(folder / FILE, columns).table()
    except (OSError, pa.ArrowException):  # it is damaged
        return
    found = [] if sample is None else list(_ranks(sample, names))
    if len(found) < 2:
        return
    rows, shades = list[dict[str, str]](), list[dict[str, float]]()
    labels = column_names(name for name, _, _ in found)
    columns_of = {name: (values, present) for name, values, present in found}

    @functools.cache
    def ranked(name: str, rows: bytes) -> NDArray[np.float64]:
        """The ranks of a column in some rows; in most pairs they are the same rows."""
        return ranks(columns_of[name][0][np.frombuffer(rows, np.bool_)])

    of = dict[frozenset[str], float | None]()
    for pair in itertools.combinations_with_replacement(columns_of, 2):
        both = columns_of[pair[0]][1] & columns_of[pair[1]][1]
        of[frozenset(pair)] = _correlation(*(ranked(name, both.tobytes()) for name in pair))
    for name, _, _ in found:
        cells = {labels[other]: of[frozenset((name, other))] for other, _, _ in found}
        rows.append({"column": labels[name]} | {label: "" if r is None else f"{r:.2f}" for label, r in cells.items()})
        shades.append({label: abs(r or 0.0) for label, r in cells.items()})
    note = f"Spearman's rank correlation, on {counted(len(found[0][1]), 'sampled train row')}; shaded by its size."
    yield Table("Correlations of the numbers that matter most", rows, note, folded=len(rows) > 6, shades=shades)


def _ranks(sample: pa.Table, names: Sequence[str]) -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.bool_]]]:
    """(column, values, which rows have one) of the first numbers that vary."""
    left = MOST
    for name in names:
        if left and name in sample.column_names and not pa.types.is_uint64(sample.schema.field(name).type):
            values, present = numbers(sample.column(name))
            if present.sum() >= LEAST_ROWS and np.ptp(values[present]) > 0:
                left -= 1
                yield name, values, present


def _correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    """Pearson's, of ranks."""
    apart = float(a.std() * b.std()) if len(a) >= LEAST_ROWS else 0.0
    return float(((a - a.mean()) * (b - b.mean())).mean() / apart) if apart > 0 else None
