"""The units of a split: which rows a bootstrap has to draw together.

    rows, sentence = drawn_together(units, table, rows)

What the split keeps together, or a column with the role group, is drawn together. A split by a hash of the rows keeps equal rows
together, so where many rows repeat others, equal rows are drawn together too: drawn one by one, copies would look like more
evidence than they are.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.config import Frozen
from headway.evaluation.bootstrap import drawn_units
from headway.metrics.base import Rows
from headway.metrics.ranking import codes_of

_TOLD_APART = 0.9
"""Of the distinct rows of a split, by the columns that are stored."""


class SplitUnits(Frozen):
    """What the split keeps together."""

    key: str | None = None
    """Its name: `headway.evaluation.metrics.UNIT` has each row's."""
    equal: tuple[str, ...] = ()
    """Columns of the predictions: rows with the same values in all of them are in one split."""
    distinct: int = 0
    """How many rows they have to tell apart, nearly, where the split hashes further columns that are not stored."""


EACH_ROW = SplitUnits()


def drawn_together(
    units: SplitUnits, table: pa.Table, rows: Rows, *, group: str | None = None
) -> tuple[Rows, str | None]:
    """(the rows with the units that they are drawn by; a sentence about these, None where rows are drawn one by one)

    Args:
        table: of the rows' predictions; it has the columns that tell equal rows.
        group: the name of the column that the rows' groups come from.
    """
    if rows.drawn is not None:
        known = group if rows.units is None else units.key
        count = drawn_units(rows)[1]
        return rows, f"rows of one {known or 'unit of the split'} are drawn together ({count:,} of them)"
    if not units.equal:
        return rows, None
    codes = _equal_rows(table, units.equal)
    if (count := int(codes.max()) + 1) < _TOLD_APART * units.distinct:
        return rows, None
    sentence = f"equal rows, which are in one split, are drawn together ({count:,} distinct of {len(table):,})"
    return replace(rows, units=codes, memo={}, shared={}), sentence


def _equal_rows(table: pa.Table, columns: Sequence[str]) -> NDArray[np.int64]:
    """The number of each row among the distinct ones, [rows]."""
    codes = np.zeros(len(table), np.int64)
    for name in columns:
        _, values = np.unique(codes_of(table.column(name)), return_inverse=True)
        codes = np.unique(codes * (int(values.max()) + 1) + values, return_inverse=True)[1]
    return codes
