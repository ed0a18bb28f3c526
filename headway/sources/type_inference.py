"""Infers numeric columns from sampled text: a few values that are not numbers do not make a column text.

    sample = as_numbers(sample, names)
    sample.misfits.get("fare")                    # "1 of 400 sampled values is not a number, such as 'n/a'", or None

Of a hundred values one may be odd, which is what `validation.max_quarantined` lets pass; a sample of fewer than a hundred
decides as it stands. In a column of integers, digits beyond int64 are odd as a word is. `12.5` and `1e5` say that the column
holds real numbers, unless float32 could not tell the integers apart: then they are odd too. So are more digits than int64
holds: what is beyond it in more than one value in a hundred stays text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from headway.messages import agree
from headway.schema.columns import Column, StoredType
from headway.schema.parse_rules import MARKERS
from headway.sources.precision import loss_of
from headway.sources.sample import ONE_IN, Sample
from headway.tabular.coerce import coerce, converted
from headway.tabular.list_arrays import flatten, is_list, is_text

_FIRST = 64
_CODES = r"^\s*[0-9]+[eE][0-9]+\s*$"
_ZEROS = r"^\s*0[0-9]+\s*$"
_DIGITS, _POINT = r"^\s*[+-]?[0-9]+\s*$", r"^\s*[+-]?[0-9]+[.]0*\s*$"


def as_numbers(sample: Sample, names: Iterable[str]) -> Sample:
    """Convert the named columns to int64 or doubles where all but a few values are numbers; those become null.

    Text with markers of what is missing (`?`, `n/a`), with digits that begin with 0 or with codes such as 12E3 is left to
    `headway.schema_inference.text_patterns`.
    """
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
        numbers = [converted(chunk, stored.exact) for chunk in column.chunks]
        table = table.set_column(place, name, pa.chunked_array(numbers, stored.exact.arrow))
    return replace(sample, table=table, misfits=misfits)


def _for_others(texts: pa.Array, misfits: pa.Array) -> bool:
    lower = pc.utf8_lower(pc.utf8_trim_whitespace(misfits.cast(pa.string())))
    marked = pc.any(pc.is_in(lower, value_set=pa.array(sorted(MARKERS)))).as_py()
    values = texts.cast(pa.binary())
    codes = _count(values, _CODES) * ONE_IN > len(texts) - texts.null_count
    return bool(marked) or codes or _count(values, _ZEROS) > 0


def not_one(counts: Mapping[int, int]) -> int:
    """The number of rows that do not have one value, from {values per row: rows}."""
    return sum(rows for values, rows in counts.items() if values != 1)


def with_several(sample: Sample, columns: Mapping[str, Mapping[int, int]]) -> Sample:
    """Note for columns of one value how many rows had several, from {values per row: rows}."""
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
    """The type of the values, and the text of the values that do not have it."""
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
    """Whether float32 makes distinct numbers equal."""
    return loss_of(values, Column(name="value", type="float32", nullable=True)) is not None


def _all_digits(values: pa.Array, whole: pa.Array, real: pa.Array) -> bool:
    """Whether all numbers are written as integers; `whole` and `real` are the values outside int64 and float32."""
    words = len(real) - _count(real, _DIGITS)
    return words == len(whole) - _count(whole, _DIGITS) and not _count(values.cast(pa.binary()), _POINT)


def _misfits(values: pa.Array, kind: StoredType) -> pa.Array:
    """The text of the values that do not have the type."""
    batch = pa.RecordBatch.from_arrays([values], names=["value"])
    rejected = coerce(batch, [Column(name="value", type=kind, nullable=True)]).rejected
    return rejected.column("value").combine_chunks()


def _count(values: pa.Array, pattern: str) -> int:
    return int(pc.sum(pc.match_substring_regex(values, pattern)).as_py() or 0)


def _description(misfits: pa.Array) -> str:
    """A description of the values that do not have the type."""
    does = "does" if len(misfits) == 1 else "do"
    large = _count(misfits, _DIGITS)
    if large == len(misfits):
        return f"{does} not fit int64"
    if not len(_misfits(misfits, "float32")):
        return "is no integer" if len(misfits) == 1 else "are no integers"
    return f"{'is not a number' if len(misfits) == 1 else 'are not numbers'}{' or do not fit int64' if large else ''}"
