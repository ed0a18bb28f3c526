"""Infers numeric columns from sampled text: a few values that are not numbers do not make a column text.

    sample = as_numbers(sample, names)
    sample.misfits.get("fare")                    # "1 of 400 sampled values is not a number, such as 'n/a'", or None

In a numeric column, one value in a hundred may be odd (no value if the sample is smaller): `validation.max_quarantined` lets as
many pass. Words are odd, and so are digits beyond int64 among integers. Values such as `12.5` and `1e5` make the column one of
real numbers. But if float32 would make some of the column's integers equal, values such as `12.5` are odd instead. And if more
than one value in a hundred of such a column is beyond int64, the column stays text.

    float32_loss(pa.array([1600000000.0, 1600000001.0]), column)   # Float32Loss(distinct=2, left=1, ...)
    float32_loss(pa.array([0.5, 1.5]), column)                     # None: all are told apart

Numbers are computed in float32, which holds about seven digits: not every integer above 2^24 (16,777,216). Distinct
account numbers and times may become equal in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from headway.messages import agree
from headway.schema.columns import Column, StoredType
from headway.schema.parse_rules import MARKERS
from headway.sources.sample import ONE_IN, Sample
from headway.tabular.coerce import coerce, converted
from headway.tabular.list_arrays import decoded, flatten, is_list, is_text

_FIRST = 64
_CODES = r"^\s*[0-9]+[eE][0-9]+\s*$"
_ZEROS = r"^\s*0[0-9]+\s*$"
_DIGITS, _POINT = r"^\s*[+-]?[0-9]+\s*$", r"^\s*[+-]?[0-9]+[.]0*\s*$"


def as_numbers(sample: Sample, names: Iterable[str]) -> Sample:
    """Converts the named text columns to int64 or doubles if all but a few values are numbers. These few values become null.

    A column with null markers (`n/a`), leading zeros or codes such as 12E3 is left to `schema_inference.text_patterns`."""
    table, misfits = sample.table, dict(sample.misfits)
    for name in names:
        place = table.schema.get_field_index(name)
        column = table.column(place)
        values = (
            pa.chunked_array([flatten(chunk).values for chunk in column.chunks]) if is_list(column.type) else column
        )
        if not is_text(values.type) or values.null_count == len(values):
            continue
        texts = values.combine_chunks()
        kind, bad = _kind(texts)
        if kind is None or _for_others(texts, bad):
            continue
        example = f", such as {bad[0].as_py()!r}" if len(bad) else ""
        present = len(values) - values.null_count
        if len(bad):
            misfits[name] = f"{len(bad):,} of {present:,} sampled values {_description(bad)}{example}"
        stored = Column(name=name, type=kind, nullable=True, shape=(None,) if is_list(column.type) else ())
        numbers = [converted(chunk, stored.in_float64) for chunk in column.chunks]
        table = table.set_column(place, name, pa.chunked_array(numbers, stored.in_float64.arrow))
    return replace(sample, table=table, misfits=misfits)


def _for_others(texts: pa.Array, misfits: pa.Array) -> bool:
    lower = pc.utf8_lower(pc.utf8_trim_whitespace(misfits.cast(pa.string())))
    marked = pc.any(pc.is_in(lower, value_set=pa.array(sorted(MARKERS)))).as_py()
    values = texts.cast(pa.binary())
    codes = _count(values, _CODES) * ONE_IN > len(texts) - texts.null_count
    return bool(marked) or codes or _count(values, _ZEROS) > 0


def note_several_values(sample: Sample, columns: Mapping[str, Mapping[int, int]]) -> Sample:
    """Returns the sample with a text on each column with rows of several values. `columns`: {name: {values in a row: rows}}."""
    several_of = {}
    for name, counts in columns.items():
        if several := [values for values in counts if values > 1]:
            rows = sum(counts[values] for values in several)
            several_of[name] = (
                f"{rows:,} of {sum(counts.values()):,} sampled rows {agree(rows, 'has', 'have')} several values, "
            )
            several_of[name] += f"up to {max(several)}"
    return replace(sample, several=several_of)


def _kind(values: pa.Array) -> tuple[StoredType | None, pa.Array]:
    """Returns a text column's numeric type (None: the column stays text), and the values that do not fit this type."""
    most = (len(values) - values.null_count) // ONE_IN
    kind: StoredType
    for part in (values.slice(0, 2 * most + _FIRST), values):  # text mostly shows at once
        whole, real = _misfits(part, "int64"), _misfits(part, "float32")
        # true and false are integers only
        if len(whole) <= len(real) or (len(whole) <= most and (_all_digits(part, whole, real) or _merges(part))):
            kind, misfits = "int64", whole
        else:
            kind, misfits = "float32", real
        if len(misfits) > most or (kind == "float32" and _count(whole, _DIGITS) > most and _merges(part)):
            return None, pa.array([], pa.string())
    return kind, misfits


def _merges(values: pa.Array) -> bool:
    """Returns whether some distinct values would be equal as float32."""
    return float32_loss(values, Column(name="value", type="float32", nullable=True)) is not None


def _all_digits(values: pa.Array, whole: pa.Array, real: pa.Array) -> bool:
    """Returns whether all numbers are written as integers. `whole`: the values that do not fit int64; `real`: those that do not
    fit float32."""
    words = len(real) - _count(real, _DIGITS)
    return words == len(whole) - _count(whole, _DIGITS) and not _count(values.cast(pa.binary()), _POINT)


def _misfits(values: pa.Array, kind: StoredType) -> pa.Array:
    """Returns the values that cannot be converted to the type `kind`, as text."""
    batch = pa.RecordBatch.from_arrays([values], names=["value"])
    rejected = coerce(batch, [Column(name="value", type=kind, nullable=True)]).rejected
    return rejected.column("value").combine_chunks()


def _count(values: pa.Array, pattern: str) -> int:
    return int(pc.sum(pc.match_substring_regex(values, pattern)).as_py() or 0)


def _description(misfits: pa.Array) -> str:
    """Returns a clause for a note that says why these values do not have the numeric type."""
    does = "does" if len(misfits) == 1 else "do"
    large = _count(misfits, _DIGITS)
    if large == len(misfits):
        return f"{does} not fit int64"
    if not len(_misfits(misfits, "float32")):
        return "is no integer" if len(misfits) == 1 else "are no integers"
    return f"{'is not a number' if len(misfits) == 1 else 'are not numbers'}{' or do not fit int64' if large else ''}"


@dataclass(frozen=True)
class Float32Loss:
    """The number of `distinct` values in a sample of a column, and the number `left` after rounding to float32."""

    distinct: int
    left: int
    odd: str
    """A clause for messages on the values that are not int64 integers; empty when there are none."""
    mostly_integers: bool

    @property
    def matters(self) -> bool:
        """Whether more than one distinct value in a hundred becomes equal to another when rounded to float32."""
        return (self.distinct - self.left) * ONE_IN > self.distinct

    def __str__(self) -> str:
        return f"float32, which holds about 7 digits, would leave {self.left:,} of its {self.distinct:,} distinct sampled values"


def float32_loss(values: pa.ChunkedArray | pa.Array, column: Column) -> Float32Loss | None:
    """Returns how many distinct values a column of single numbers would lose as float32; None if all stay distinct.

    Args:
        values: a sample of the column: numbers, or text that the column's parse rule reads.
    """
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    raw = pa.chunked_array([decoded(chunk) for chunk in chunks], None if chunks else values.type).combine_chunks()
    doubles = converted(raw, column.in_float64)
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
    return Float32Loss(distinct, left, clause, len(odd) * ONE_IN <= present)
