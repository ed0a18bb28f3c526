"""What float32, which numbers are computed in, leaves of a sample's distinct values.

    loss_of(pa.array([1600000000.0, 1600000001.0]), column)      # Loss(distinct=2, left=1, ...)
    loss_of(pa.array([0.5, 1.5]), column)                        # None: all are told apart

float32 holds about seven digits: above 2^24 (16,777,216) not every integer. Account numbers and times are then equal in groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headway.messages import agree
from headway.schema.columns import Column
from headway.sources.sample import ONE_IN
from headway.tabular.coerce import converted
from headway.tabular.list_arrays import decoded, is_text

_DIGITS = r"^\s*[+-]?[0-9]+\s*$"


@dataclass(frozen=True)
class Loss:
    distinct: int
    left: int
    """So many of the distinct values are still distinct as float32."""
    odd: str
    """A clause on the values that are no integers of int64; empty where there are none."""
    mostly_integers: bool

    @property
    def matters(self) -> bool:
        """Whether more than one distinct value in a hundred is lost."""
        return (self.distinct - self.left) * ONE_IN > self.distinct

    def __str__(self) -> str:
        return f"float32, which holds about 7 digits, would leave {self.left:,} of its {self.distinct:,} distinct sampled values"


def loss_of(values: pa.ChunkedArray | pa.Array, column: Column) -> Loss | None:
    """What float32 would lose of the sampled values of a column of single numbers; None: nothing.

    Args:
        values: numbers, or text that the column's rule reads.
    """
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    raw = pa.chunked_array([decoded(chunk) for chunk in chunks], None if chunks else values.type).combine_chunks()
    doubles = converted(raw, column.exact)
    # NaN is how data frames write a missing integer
    doubles = pc.if_else(pc.is_nan(doubles), pa.scalar(None, pa.float64()), doubles)
    rounded = doubles.cast(pa.float32(), safe=False)
    text = is_text(raw.type)
    if not text and not pa.types.is_decimal(raw.type) and pc.all(pc.equal(doubles, rounded.cast(pa.float64()))).as_py():
        return None
    distinct = pc.count_distinct(raw if pa.types.is_decimal(raw.type) else doubles, mode="only_valid").as_py()
    if text:  # digits that not even a double tells apart
        digits = pc.utf8_trim_whitespace(raw.cast(pa.string()))
        distinct = max(distinct, pc.count_distinct(digits.filter(pc.match_substring_regex(digits, _DIGITS))).as_py())
    left = pc.count_distinct(rounded, mode="only_valid").as_py()
    if left == distinct:
        return None
    whole = converted(raw, column.model_copy(update={"type": "int64", "parse": None}))
    odd, present = doubles.filter(pc.and_(doubles.is_valid(), whole.is_null())), len(doubles) - doubles.null_count
    clause = f"; {len(odd):,} of {present:,} {agree(len(odd), 'is', 'are')} no integer, such as " if len(odd) else ""
    clause += f"'{odd[0].as_py():.15g}', and such rows will be rejected" if clause else ""
    return Loss(distinct, left, clause, len(odd) * ONE_IN <= present)
