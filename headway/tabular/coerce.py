"""Converts raw columns to stored columns. Rows that do not fit are quarantined with the reason.

    coerced = coerce(batch, schema.columns)
    coerced.batch               # int64, float32, binary (or dictionary of binary), good rows only
    coerced.fitting_rows        # their rows in `batch`; None: all of them
    coerced.rejected            # quarantine table, rows counted within `batch`

A column is cast as a whole. Only if this fails is it cast again value by value, with masks for the values that do not fit.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.errors import DataError
from headway.schema.calendar_days import PER_DAY, UNITS, Temporal
from headway.schema.columns import Column, column_yaml, suggest
from headway.schema.date_forms import convert_unit, iso_times
from headway.schema.parse_rules import Parse, parsed
from headway.tabular.list_arrays import decoded, flatten, is_list, is_text, join, np_view, plain, split_text, value_type
from headway.tabular.quarantine import SCHEMA, rejected

# Whatever Arrow's CSV reader takes for a number is one here too: a value's fate must not hang on its neighbours, for
# which a range may have been read as text.
_NUMBER = (
    r"^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?$"
    r"|^[+-]?(?i:inf|infinity)$|^[+-]?(?i:nan)([(][0-9A-Za-z_]*[)])?$"
)
_NO_DIGITS = r"(?i)^[^0-9]*$|nan[(]"
_INTEGER = r"^[+-]?[0-9]+([.]0*)?$|^0[xX][0-9a-fA-F]{1,16}$"
_INT64, _INT32, _DOUBLE = pa.int64(), pa.int32(), pa.float64()
_STORED = {"int64": pa.int64().id, "float32": pa.float32().id}
_FLOAT32 = np.dtype(np.float32)
_FLOAT32_MAX = float(np.finfo(_FLOAT32).max)


_NOUN = {"abbreviated": "a number such as 1.2M", "duration": "a duration such as 1:02:03"}
_ROUNDED = "is a key, and float32, its type in the schema, rounds it: say 'type: int' or 'type: string' for the column"
_Mask = NDArray[np.bool_] | None
_Fault = tuple[_Mask, str]
"""A mask of the values that do not fit (None: all fit), and the reason."""


@dataclass(frozen=True)
class CoercedBatch:
    batch: pa.RecordBatch
    fitting_rows: NDArray[np.int64] | None
    rejected: pa.Table


def coerce(batch: pa.RecordBatch, columns: Sequence[Column], keys: Collection[str] = ()) -> CoercedBatch:
    """Returns the rows of `batch` that fit, with `columns` in their stored types, and a table of the rows that do not.

    Args:
        keys: the names of key columns. In a float32 one, a number beyond 2^24 that float32 would round does not fit.

    Raises:
        DataError: a column is missing or there twice, or its raw type can never become the stored one (a list as a number).
    """
    arrays: list[pa.Array] = []
    tables: list[pa.Table] = []
    bad: NDArray[np.bool_] | None = None
    by_name = dict(zip(batch.schema.names, batch.columns, strict=True))
    once = len(by_name) == batch.num_columns
    for column in columns:
        raw = by_name.get(column.name) if once else None
        if raw is None:
            raw = _find(batch, column.name)
        if _is_stored(raw, column):  # what is float32 in the file is not rounded here
            arrays.append(raw)
            continue
        raw = _without_words(raw, column.null or ())
        array, faults = _coerce_list(raw, column) if column.shape else _coerce_one(raw, column)
        if column.name in keys and column.type == "float32":
            faults = [*faults, (_rounded(raw, array, column), _ROUNDED)]
        wrong = _any([mask for mask, _ in faults])
        for mask, why in (*faults, (_missing(array, wrong, column), "is null, but the column is not nullable")):
            if mask is not None and mask.any():
                rows = np.flatnonzero(mask)
                tables.append(rejected(rows.tolist(), column.name, _values(raw.take(pa.array(rows))), why))
                bad = mask if bad is None else bad | mask
        arrays.append(array)
    names = [column.name for column in columns]
    whole = pa.RecordBatch.from_arrays(arrays, names=names)
    if bad is None:
        return CoercedBatch(whole, None, SCHEMA.empty_table())
    fitting_rows = np.flatnonzero(~bad)
    return CoercedBatch(whole.take(pa.array(fitting_rows)), fitting_rows, _one_per_row(pa.concat_tables(tables)))


def _without_words(raw: pa.Array, words: Sequence[str]) -> pa.Array:
    """Returns text with a null for each of the `words`, which mean a missing value. Any other array is returned as it is."""
    if not words or not is_text(value_type(raw.type)):
        return raw
    texts = raw.dictionary if pa.types.is_dictionary(raw.type) else raw
    missing = pc.is_in(texts, value_set=pa.array(words, pa.string()).cast(texts.type))
    if not missing.true_count:
        return raw
    if texts is raw:
        return pc.if_else(missing, pa.scalar(None, raw.type), raw)
    codes = pc.if_else(missing.take(raw.indices), pa.scalar(None, raw.indices.type), raw.indices)
    return pa.DictionaryArray.from_arrays(codes, texts)


def _rounded(raw: pa.Array, array: pa.Array, column: Column) -> _Mask:
    """Returns a mask of the numbers beyond 2^24 that float32 changes. Up to 2^24, float32 holds every integer."""
    doubles = converted(raw, column.in_float64)
    changed = pc.and_(pc.greater(pc.abs(doubles), 2.0**24), pc.not_equal(doubles, array.cast(_DOUBLE)))
    return pc.fill_null(changed, False).to_numpy(zero_copy_only=False)


def _values(raw: pa.Array) -> list[Any]:
    """Returns the values as Python objects. Times that Python cannot hold, such as after the year 9999, become integers
    in their unit."""
    try:
        return list(raw.to_pylist())
    except (OverflowError, ValueError, KeyError):
        return list(raw.cast(pa.int64()).to_pylist())


def _is_stored(raw: pa.Array, column: Column) -> bool:
    """Returns whether a raw column of numbers already has its stored type, and no null that it may not have."""
    if column.shape or column.parse is not None or _STORED.get(column.type) != raw.type.id:
        return False
    return column.nullable or not raw.null_count


def coerced_with_mask(raw: pa.Array, column: Column) -> tuple[pa.Array, _Mask]:
    """Returns the stored array of one column, and a mask of the values that do not fit. In the array these are undefined.

    The mask is None where all values fit. If the raw type can never be stored in the column's type, no value fits.
    """
    try:
        array, faults = _coerce_list(raw, column) if column.shape else _coerce_one(raw, column)
    except DataError:
        return pa.nulls(len(raw), column.arrow), np.ones(len(raw), np.bool_)
    return array, _any([mask for mask, _ in faults])


def raw_type(column: Column) -> pa.DataType:
    """Returns the type in which to read a column: text if it is parsed or split; a dictionary for text that repeats; doubles for
    float32, which would turn 1e99 into infinity; else the stored type. For a list: a list of this type, without dictionary."""
    if column.separator is not None or column.parse is not None:
        return pa.binary()
    if column.shape:
        return pa.list_(raw_type(column.element.model_copy(update={"encoding": "plain"})))
    if column.encoding == "dictionary":
        return pa.dictionary(pa.int32(), pa.binary())
    return pa.float64() if column.type == "float32" else column.arrow


def raw_types(columns: Sequence[Column]) -> dict[str, pa.DataType]:
    """Returns the `raw_type` of each column without a parse rule. A column with a rule is left out: it may come as text
    or as numbers, which the reader does not convert."""
    return {column.name: raw_type(column) for column in columns if column.parse is None}


def converted(raw: pa.Array, column: Column) -> pa.Array:
    """Returns the stored array of one column, null where a value does not fit. DataError if the raw type can never be stored."""
    return (_coerce_list(raw, column) if column.shape else _coerce_one(raw, column))[0]


def _find(batch: pa.RecordBatch, name: str) -> pa.Array:
    places = batch.schema.get_all_field_indices(name)
    if len(places) != 1:
        problem = f"there are {len(places)} columns {name!r}" if places else f"there is no column {name!r}"
        raise DataError(problem, fix=suggest(name, batch.schema.names) if not places else "rename one of them")
    return batch.column(places[0])


def _one_per_row(table: pa.Table) -> pa.Table:
    """Returns the rejected rows with one entry each. If a row has several bad values, the first one stays."""
    rows = table.column("row").to_numpy()
    _, first = np.unique(rows, return_index=True)
    return table.take(pa.array(first))


def _any(masks: Sequence[_Mask]) -> _Mask:
    present = [mask for mask in masks if mask is not None]
    return np.logical_or.reduce(present) if present else None


def _missing(array: pa.Array, wrong: NDArray[np.bool_] | None, column: Column) -> NDArray[np.bool_] | None:
    if column.nullable or not array.null_count:
        return None
    missing = array.is_null().to_numpy(zero_copy_only=False)
    return missing if wrong is None else missing & ~wrong


def _coerce_one(raw: pa.Array, column: Column) -> tuple[pa.Array, list[_Fault]]:
    array, wrong, reason = _coerce(raw, column)
    return array, [(wrong, reason)]


def _coerce_list(raw: pa.Array, column: Column) -> tuple[pa.Array, list[_Fault]]:
    """Coerce a list or vector column, element by element. A row does not fit if one of its elements does not.

    A null within a list stays, and the statistics count it. A vector with a null does not fit.
    """
    if pa.types.is_null(raw.type):
        return pa.nulls(len(raw), column.arrow), []
    raw = decoded(raw)
    if column.separator is not None and is_text(raw.type):
        raw = split_text(_valid(raw), column.separator)
    if not is_list(raw.type):
        raise _never(raw, column)
    flat = flatten(raw, with_nulls=True)
    element = column.element.model_copy(update={"encoding": "plain"})
    values, wrong, reason = _coerce(plain(flat.values), element)
    rows = flat.rows()

    def of_rows(mask: _Mask) -> _Mask:
        if mask is None or not mask.any():
            return None
        in_rows = np.zeros(len(raw), np.bool_)
        in_rows[rows[mask]] = True
        return in_rows

    faults: list[_Fault] = [(of_rows(wrong), f"an element {reason}")]
    lengths, present = flat.lengths, flat.present
    if column.length is not None:
        if values.null_count:
            gaps = values.is_null().to_numpy(zero_copy_only=False)
            gaps = gaps if wrong is None else gaps & ~wrong
            faults.append((of_rows(gaps), "an element is null (shape: list takes the others)"))
            values = pc.fill_null(values, b"" if column.type == "bytes" else 0)  # of rows that are rejected
        off = present & (lengths != column.length)
        if off.any():
            faults.append((off, f"does not have {column.length} values (shape: list takes any number)"))
            keep = pa.array(~np.repeat(off, lengths))
            values, present = values.filter(keep), present & ~off
            lengths = np.where(off, 0, lengths)
    return join(values, lengths, present, column), faults


def _coerce(raw: pa.Array, column: Column) -> tuple[pa.Array, NDArray[np.bool_] | None, str]:
    """Returns the stored array, a mask of the values that do not fit (null in the array; None: all fit), and the reason."""
    if column.parse is not None and is_text(value_type(raw.type)):
        return _parsed(raw, column, column.parse)
    if column.type == "bytes":
        return _to_bytes(raw, column), None, ""
    raw = decoded(raw)
    if is_text(raw.type):
        texts = _valid(raw)
        return _from_text(texts, column) if column.temporal is None else _time_from_text(texts, column, column.temporal)
    if pa.types.is_null(raw.type):
        return pa.nulls(len(raw), column.arrow), None, ""
    return _to_int(raw, column) if column.type == "int64" else _to_float(raw, column)


def _parsed(raw: pa.Array, column: Column, rule: Parse) -> tuple[pa.Array, NDArray[np.bool_] | None, str]:
    """Returns the values parsed by `rule`, a mask of those that do not parse (None: all do), and the reason for messages."""
    raw = raw if pa.types.is_dictionary(raw.type) else raw.dictionary_encode()
    values, wrong = parsed(_valid(raw.dictionary), rule)
    if rule.temporal is None:
        values, wrong, reason = _from_text(values, column)
        if rule.unit or rule.as_ in ("abbreviated", "duration"):
            reason = f"is not a number of {rule.unit[0]}" if rule.unit else f"is not {_NOUN[rule.as_]}"
    else:
        reason = f"is not a {rule.as_} of the form {rule.format or 'ISO'}"
        if rule.is_epoch:
            reason = f"is not a number of {rule.as_.removeprefix('epoch_')} since 1970"
    if wrong is not None:
        codes = raw.indices.to_numpy(zero_copy_only=False) if not raw.indices.null_count else None
        if codes is None:
            codes = pc.fill_null(raw.indices, len(wrong)).to_numpy()
            wrong = np.append(wrong, False)
        wrong = np.asarray(wrong[codes])
    return values.take(raw.indices), wrong if wrong is not None and wrong.any() else None, reason


def _valid(raw: pa.Array) -> pa.StringArray:
    """Convert to a string array. Bytes that are not UTF-8 become U+FFFD, which is part of no number."""
    try:
        return raw.cast(pa.binary()).cast(pa.string())  # a file's text is not checked, bytes that become text are
    except pa.ArrowInvalid:
        texts = [None if v is None else v.decode("utf-8", "replace") for v in raw.cast(pa.binary()).to_pylist()]
        return pa.array(texts, pa.string())


def _to_bytes(raw: pa.Array, column: Column) -> pa.Array:
    kind = raw.type
    if pa.types.is_dictionary(kind):
        values = _plain_bytes(raw.dictionary, column)
        if column.encoding == "dictionary":
            indices = raw.indices if kind.index_type == _INT32 else raw.indices.cast(_INT32)
            return pa.DictionaryArray.from_arrays(indices, values, safe=False)
        return values.take(raw.indices)
    values = _plain_bytes(raw, column)
    return values.dictionary_encode() if column.encoding == "dictionary" else values


def _plain_bytes(raw: pa.Array, column: Column) -> pa.Array:
    try:
        if pa.types.is_string(raw.type):
            return raw.view(pa.binary())  # by reference
        if pa.types.is_fixed_size_binary(raw.type) or (is_text(raw.type) and not pa.types.is_binary(raw.type)):
            return raw.cast(pa.binary())
        if pa.types.is_binary(raw.type):
            return raw
        return raw.cast(pa.string()).cast(pa.binary())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise _never(raw, column) from None


def _never(raw: pa.Array, column: Column) -> DataError:
    shape = f" {list(column.shape)}".replace("None", "any") if column.shape else ""
    return DataError(
        f"{raw.type} cannot be stored as {column.type}{shape}",
        where=f"column {column.name!r}",
        fix=f"give it another type, or leave it out: {column_yaml(column.name, 'ignore')}",
    )


def _from_text(raw: pa.Array, column: Column) -> tuple[pa.Array, NDArray[np.bool_] | None, str]:
    trimmed = pc.utf8_trim_whitespace(raw)
    if column.type != "int64":
        fits = pc.match_substring_regex(trimmed, _NUMBER)
        numbers = pc.if_else(fits, trimmed, pa.scalar(None, pa.string())).cast(pa.float64())
        if pc.any(pc.is_inf(numbers)).as_py():  # digits that no double holds, or an infinity that is meant
            finite = pc.fill_null(pc.is_finite(numbers), True)
            fits = pc.and_(fits, pc.or_(finite, pc.match_substring_regex(trimmed, _NO_DIGITS)))
            numbers = pc.if_else(fits, numbers, pa.scalar(None, pa.float64()))
        array, wrong, _ = _to_float(numbers, column)
        return array, _any([_not(fits), wrong]), "is not a number that fits float32"
    lower = pc.utf8_lower(trimmed)
    truth = pc.is_in(lower, value_set=pa.array(["true", "false"]))
    digits = pc.match_substring_regex(trimmed, _INTEGER)
    text = pc.if_else(truth, pc.if_else(pc.equal(lower, "true"), "1", "0"), trimmed)
    text = pc.if_else(pc.or_(digits, truth), text, pa.scalar(None, pa.string()))
    text = pc.replace_substring_regex(text, r"^[+]|[.]0*$", "")
    fits = pc.or_(digits, truth)
    try:
        array = text.cast(pa.int64())
    except pa.ArrowInvalid:  # digits that do not fit
        array = pa.array([_whole(v if v is None or "x" in v.lower() else int(v)) for v in text.to_pylist()], pa.int64())
        fits = pc.and_(fits, pc.or_kleene(array.is_valid(), raw.is_null()))
    return array, _not(fits), "is not an integer that fits int64"


def _time_from_text(raw: pa.Array, column: Column, unit: Temporal) -> tuple[pa.Array, NDArray[np.bool_] | None, str]:
    """Convert the text of a column that held dates or times in its first files. Plain numbers count in the column's unit; other
    text is ISO 8601."""
    array, wrong, _ = _from_text(raw, column)
    why = f"is no whole number of {UNITS[unit]} since 1970-01-01 and no ISO {'date' if unit == 'date' else 'time'}"
    if wrong is None:
        return array, None, why
    array = pc.if_else(pa.array(wrong), iso_times(pc.utf8_trim_whitespace(raw), unit), array)
    wrong &= array.is_null().to_numpy(zero_copy_only=False)
    return array, wrong if wrong.any() else None, why


def _not(fits: pa.Array) -> NDArray[np.bool_] | None:
    """Returns a mask of where `fits` is false; a null does not count as false. None: `fits` is never false."""
    wrong = pc.invert(pc.fill_null(fits, True)).to_numpy(zero_copy_only=False)
    return wrong if wrong.any() else None


def _to_float(raw: pa.Array, column: Column) -> tuple[pa.Array, NDArray[np.bool_] | None, str]:
    kind = raw.type
    if pa.types.is_float32(kind) and column.type == "float32":
        return raw, None, ""
    is_number = pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    if not (is_number or pa.types.is_boolean(kind)):
        raise _never(raw, column)
    doubles = (raw.cast(pa.int64()) if pa.types.is_boolean(kind) else raw).cast(pa.float64(), safe=False)
    if column.element.arrow == _DOUBLE:
        return doubles, None, ""
    array = doubles.cast(pa.float32(), safe=False)
    if np.isfinite(np_view(array, _FLOAT32)).all():  # Arrow's maximum takes forty times as long
        return array, None, ""
    # an infinity stays one; a finite double beyond float32 does not become one
    size = pc.abs(doubles)
    wrong = pc.and_(pc.greater(size, _FLOAT32_MAX), pc.is_finite(doubles))
    wrong = pc.and_(wrong, pc.is_inf(array))
    mask = pc.fill_null(wrong, False).to_numpy(zero_copy_only=False)
    if not mask.any():
        return array, None, ""
    return pc.if_else(pa.array(mask), pa.scalar(None, pa.float32()), array), mask, "does not fit float32"


def _to_int(raw: pa.Array, column: Column) -> tuple[pa.Array, NDArray[np.bool_] | None, str]:
    kind = raw.type
    if kind == _INT64:
        return raw, None, ""
    if pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and not pa.types.is_uint64(kind)):
        return raw.cast(pa.int64()), None, ""
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return _time_to_int(raw, column)
    if not (pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_uint64(kind)):
        raise _never(raw, column)
    why = "is not an integer that fits int64"
    if pa.types.is_floating(kind):
        doubles = raw.cast(pa.float64())
        # how data frames write a missing integer
        doubles = pc.if_else(pc.is_nan(doubles), pa.scalar(None, pa.float64()), doubles)
        if (column.parse is not None and column.parse.is_epoch) or (column.temporal or "").startswith("epoch_"):
            doubles = pc.floor(doubles)  # the second that runs
        whole = pc.equal(doubles, pc.floor(doubles))
        fits = pc.and_(whole, pc.and_(pc.greater_equal(doubles, -(2.0**63)), pc.less(doubles, 2.0**63)))
        return pc.if_else(fits, doubles, pa.scalar(None, pa.float64())).cast(pa.int64(), safe=False), _not(fits), why
    try:
        return raw.cast(pa.int64()), None, ""
    except pa.ArrowInvalid:  # value by value: as doubles the large ones that do fit would lose digits
        array = pa.array([_whole(value) for value in raw.to_pylist()], pa.int64())
        return array, _not(pc.or_(array.is_valid(), raw.is_null())), why


_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def _time_to_int(raw: pa.Array, column: Column) -> tuple[pa.Array, NDArray[np.bool_] | None, str]:
    """Convert dates to days, and timestamps, times of day and durations to microseconds. If the column has a unit, this is used
    instead."""
    kind = raw.type
    per_day = 1 if pa.types.is_date32(kind) else 86_400_000
    if not pa.types.is_date(kind):
        per_day = 86_400 * _PER_SECOND[kind.unit]
    unit = column.temporal or ("date" if pa.types.is_date(kind) else "timestamp")
    narrow = pa.types.is_date32(kind) or pa.types.is_time32(kind)
    values = (raw.cast(pa.int32()) if narrow else raw).cast(pa.int64())
    array, wrong = convert_unit(values, per_day, PER_DAY[unit])
    why = f"is a time that 64 bits of {UNITS[unit]} do not hold"
    if unit == "date" and pa.types.is_date64(kind):
        numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
        wrong, why = numbers % per_day != 0, "has a time of day, which a column of dates does not keep"
    return array, wrong if wrong.any() else None, why


def _whole(value: Any) -> int | None:
    """Returns the int64 that equals a number (None if none does), or the int64 whose bits a text of hexadecimal digits gives."""
    if isinstance(value, str):  # Arrow reads the sixteenth digit as a sign
        bits = int(value, 16)
        return bits - 2**64 if bits >= 2**63 else bits
    return int(value) if value is not None and value == int(value) and -(2**63) <= value < 2**63 else None
