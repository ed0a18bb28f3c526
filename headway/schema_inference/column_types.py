"""Infers a schema from samples of a window's spans: types from bounded samples, domains and presence from complete statistics.

    schema, notes = infer(open_source(config).prefix(files, PREFIX_ROWS), configs, only=False, needed=frozenset())
    schema = complete(schema, [train_statistics, eval_statistics])

What a sample shows is not a promise: a column without nulls there may hold nulls later, so every column may be null in
storage unless the pipeline says otherwise. Domains and presence come from every row of the first window.

    epoch_rule("created_at", pa.array([1700000000, 1700003600]))      # (Parse epoch_seconds, "read as times (UTC): ...")
    epoch_rule("user_id", pa.array([1700000000]))                     # None: only a name tells a time from an identifier

What the files hold is stored as it is, and requests send the same; only calendar parts are computed from it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headway.errors import ConfigError, DataError
from headway.schema.calendar_days import Temporal
from headway.schema.columns import STORED, Column, ColumnConfig, Schema, Shape, StoredType, column_yaml, suggest
from headway.schema.decimal_signs import sign_of_table
from headway.schema.notes import Note
from headway.schema.parse_rules import Kind, Parse
from headway.schema_inference.identifiers import meaning_of, named_as_identifier, words_of
from headway.schema_inference.text_patterns import recognized
from headway.sources.sample import ONE_IN, Sample
from headway.sources.type_inference import loss_of
from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.split_statistics import SplitStatistics
from headway.tabular.coerce import converted
from headway.tabular.list_arrays import decoded, flatten, is_list, is_text, value_type

PREFIX_ROWS = 100_000
DOMAIN_VALUES = 50
"""String columns with more values than this get no domain."""
VECTOR_ROWS = 10
"""Lists of one length in so many sampled rows are vectors."""
_DATE_DIGITS = ((19_000_101, 20_991_231), (190_001, 209_912))
LONG_BYTES = 1024
"""Values of more bytes than this on average are stored as they are, not by a dictionary."""


def infer(
    sample: Sample,
    configs: Mapping[str, ColumnConfig],
    *,
    only: bool,
    needed: frozenset[str],
    where: str,
    typed: bool = True,
    keys: frozenset[str] = frozenset(),
) -> tuple[Schema, list[Note]]:
    """Infer the schema of a sample; also returns notes on columns and the source.

    Args:
        configs: what the pipeline says of single columns; wins over what the sample shows.
        only: take the configured and needed columns only, rather than all there are.
        needed: columns that the label, the split or the filter reads.
        typed: whether the format tells text from numbers, so that text of digits was meant to be text.
        keys: columns whose values are compared: float32 may not make two of them equal.

    Raises:
        ConfigError: a column that does not exist, or whose type Headway cannot store.
        DataError: a column that is one thing in one file and another in the next.
    """
    names = list(sample.table.column_names)
    for name in [*configs, *sorted(needed)]:
        if name not in names:
            fix = suggest(name, names)
            if len(names) == 1 and (separators := [s for s in ";\t|," if s in names[0]]):
                fix = f"the source has one column, {names[0]!r}: if values are separated by {separators[0]!r}, "
                fix += f"say source.csv.delimiter: {json.dumps(separators[0])}"
            raise ConfigError(f"there is no column {name!r} in the source", where=where, fix=fix)
    columns: list[Column] = []
    decimal = sample.decimal
    if typed and (sign := sign_of_table(each for each in sample.table.columns if is_text(each.type))) != "either":
        decimal = sign
    notes = [Note(text=text) for text in sample.notes]
    for name in names:
        config = configs.get(name, ColumnConfig())
        required = name in needed or (name in configs and config.role != "ignore")
        if not required and (only or config.role == "ignore"):
            continue
        if clash := sample.conflicts.get(name):
            both = [other for other in names if sample.conflicts.get(other) == clash]
            damaged = sample.damaged.get(name)
            fix = "write the file again" if damaged else "write it again, one way in every file"
            if not needed & {*both}:
                fix += f", or leave it out: {column_yaml(both, 'ignore', auto=not only)}"
            raise DataError(clash, where=damaged or where, fix=fix)
        values = sample.table.column(name)
        stored_shape = config.stored_shape()
        shape = _shape(values.type) if stored_shape is None else stored_shape
        element = values.type.value_type if is_list(values.type) and shape else values.type
        kind = STORED[config.type] if config.type else stored_type(element)
        parse, temporal = None, _temporal(values) if kind == "int64" and not shape else None
        null = sample.nulls.get(name)
        if config.parse is not None and config.parse.as_ == "text":
            kind, temporal, null = "bytes", None, config.parse.null
        elif kind == "bytes" and not shape and config.parse is not None:
            parse, temporal = config.parse, config.parse.temporal
            kind = "int64" if temporal or parse.as_ == "boolean" else "float32"
        elif not shape and config.parse is not None and config.parse.is_epoch and kind in ("int64", "float32"):
            kind, parse, temporal = "int64", config.parse, config.parse.temporal
        elif name not in configs and name not in needed and not temporal and (epoch := epoch_rule(name, values)):
            kind, parse, temporal = "int64", epoch[0], epoch[0].temporal
            notes.append(Note(column=name, text=epoch[1]))
        elif not typed and name not in configs and name not in needed and _date_digits(values):
            recognized_as = recognized(values.cast(pa.string()), plain=True, named=says_date(name))
            if recognized_as.parse is not None:
                parse, temporal = recognized_as.parse, recognized_as.parse.temporal
                notes.append(Note(column=name, text=recognized_as.note or ""))
        elif _may_be_parsed(config, element, shape):
            recognized_as = recognized(
                values,
                plain=not typed,
                dates=name not in needed,
                digits=name not in configs,
                named=says_date(name),
                decimal=decimal,
            )
            if recognized_as.note is not None and (recognized_as.parse is not None or kind == "bytes"):
                notes.append(Note(column=name, text=recognized_as.note, doubt=recognized_as.doubt))
            if recognized_as.type is not None:
                parse, temporal = recognized_as.parse, recognized_as.parse.temporal if recognized_as.parse else None
                kind = STORED[config.type] if config.type and not temporal else recognized_as.type
        if kind == "int64" and not config.type and (large := _too_large(values)):
            kind = "bytes"
            number = column_yaml(name, "{type: float}", auto=not only)
            text = f"read as text: {large}; say 'type: float' to read it as a number ({number})"
            notes.append(Note(column=name, text=text))
        counted_as = values
        if kind == "float32" and not shape and not config.type and config.parse is None:
            kind, parse, counted_as, lost = _in_full(
                name,
                values,
                parse,
                key=name in keys,
                whole=not sample.spelled and name not in needed - keys,
                auto=not only,
            )
            notes += [Note(column=name, text=lost)] if lost else []
        nothing = values.null_count == len(values) and not config.type
        if kind is None or "/" in name or not name or nothing:
            safe = json.dumps({name: name.replace("/", "_")}, ensure_ascii=False)
            why = (
                "it has no name"
                if not name
                else f"its name holds '/'; give it another: source.rename: {safe}"
                if "/" in name
                else f"its type {values.type} cannot be stored"
                + ("; a column holds single values or lists of them" if pa.types.is_nested(values.type) else "")
                if kind is None and not pa.types.is_null(values.type)
                else "it holds only nulls in the sample; give it a type to keep it"
            )
            if required:
                raise ConfigError(
                    f"column {name!r} cannot be used: {why}", where=where, fix="give it a type, or leave it out"
                )
            notes.append(Note(column=name, text=why, left_out=True))
            continue
        if (misfits := sample.misfits.get(name)) and not config.type:
            keep = f"say 'type: string' to keep them ({column_yaml(name, '{type: string}', auto=not only)})"
            notes.append(Note(column=name, text=f"read as numbers: {misfits}; such rows will be rejected, {keep}"))
        if (several := sample.several.get(name)) and stored_shape is None:
            keep = f"say 'shape: list' to keep them ({column_yaml(name, '{shape: list}', auto=not only)})"
            text = f"read as one value per row: {several}; such rows will be rejected, {keep}"
            notes.append(Note(column=name, text=text))
        if name in sample.words and kind == "bytes" and config.parse is None:
            notes.append(Note(column=name, text=sample.words[name]))
        encoding: Literal["plain", "dictionary"] = "plain" if kind != "bytes" or _long(values) else "dictionary"
        if stored_shape is None and config.separator is None and kind != "bytes" and (length := _one_length(values)):
            shape = (length,)
            keep = column_yaml(name, "{shape: list}", auto=not only)
            text = f"a vector: each sampled list has {length:,} values; a row with another number of them will be rejected, "
            text += f"say 'shape: list' to take lists of any length, pooled ({keep})"
            notes.append(Note(column=name, text=text))
        meaning = None
        if not shape and parse is None and temporal is None and config.type != "float":
            as_they_are = kind != "bytes" or is_text(value_type(element))
            meaning = meaning_of(name, counted_as if as_they_are else values.cast(pa.string()))
        columns.append(
            Column(
                name=name,
                type=kind,
                nullable=True,
                encoding=encoding,
                shape=shape,
                separator=config.separator,
                parse=parse,
                null=null,
                temporal=temporal,
                meaning=meaning,
            )
        )
    return Schema(columns=tuple(columns)), notes


def _in_full(
    name: str, values: pa.ChunkedArray, parse: Parse | None, *, key: bool, whole: bool, auto: bool
) -> tuple[StoredType, Parse | None, pa.ChunkedArray, str | None]:
    """(type, rule, values, note) of a column of real numbers, where float32 would make distinct ones equal.

    Doubles and decimals that are integers become such. Otherwise a key is kept as text, and a feature is float32, with a note.

    Args:
        whole: whether it may become integers: a label of numbers stays one.
    """
    column = Column(name=name, type="float32", nullable=True, parse=parse)
    loss = loss_of(values, column) if values.null_count < len(values) else None
    if loss is None:
        return "float32", parse, values, None
    if parse is None and whole and loss.mostly_integers:
        integer = column.model_copy(update={"type": "int64"})
        integers = pa.chunked_array([converted(chunk, integer) for chunk in values.chunks], pa.int64())
        text = f"read as integers, as {loss}{loss.odd}; say 'type: float' to have real numbers"
        return "int64", None, integers, f"{text} ({column_yaml(name, '{type: float}', auto=auto)})"
    keep = (
        f"if they name things, say 'type: string' to keep them apart ({column_yaml(name, '{type: string}', auto=auto)})"
    )
    if key:
        return "bytes", None, values, f"read as text, as its values are keys and {loss}"
    return "float32", parse, values, f"read as real numbers: {loss}; {keep}" if loss.matters else None


def complete(schema: Schema, splits: Sequence[SplitStatistics]) -> Schema:
    """Add to `schema` the domains of string columns with few values, and the columns that are always present."""
    domains: dict[str, tuple[str, ...]] = {}
    required: list[str] = []
    for column in schema.columns:
        of_splits = [s.columns[column.name] for s in splits if column.name in s.columns and s.rows]
        if not of_splits:
            continue
        if not any(statistics.missing for statistics in of_splits):
            required.append(column.name)
        if column.type == "bytes" and (domain := _domain(of_splits)):
            domains[column.name] = domain
    return schema.model_copy(update={"domains": domains, "required": tuple(required)})


def _too_large(values: pa.ChunkedArray) -> str | None:
    """A note when int64 cannot hold most unsigned integers of a column, such as hashes of 64 bits; else None."""
    if not pa.types.is_uint64(values.type) or not len(values):
        return None
    large = pc.sum(pc.greater_equal(values, pa.scalar(1 << 63, pa.uint64()))).as_py() or 0
    present = len(values) - values.null_count
    return f"{large:,} of {present:,} sampled values do not fit int64" if large * ONE_IN > present else None


def _one_length(values: pa.ChunkedArray) -> int | None:
    """The common length of all lists of a sample; None where they differ, or are too few to tell."""
    if not is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        return None
    lengths = pc.unique(pc.list_value_length(values).drop_null())
    rows = len(values) - values.null_count
    nulls = sum(flatten(chunk).nulls for chunk in values.chunks)  # each row with one would be rejected
    if len(lengths) != 1 or rows < VECTOR_ROWS or nulls * ONE_IN > rows:
        return None
    return int(lengths[0].as_py()) or None


def _date_digits(values: pa.ChunkedArray) -> bool:
    """Whether numbers of a text format may be dates, such as 20130131, or months, such as 201301."""
    if not pa.types.is_integer(values.type) or values.null_count == len(values):
        return False
    known = values.drop_null()
    inside = (
        pc.sum(pc.and_(pc.greater_equal(known, low), pc.less_equal(known, high))).as_py() for low, high in _DATE_DIGITS
    )
    return any(len(known) - count <= len(known) // ONE_IN for count in inside)


def _temporal(values: pa.ChunkedArray) -> Temporal | None:
    """What dates and times are; date64 counts milliseconds, and is a time where one of them is not a day's first."""
    kind = value_type(values.type)
    if pa.types.is_date64(kind):
        times = decoded(values)
        return "timestamp" if pc.any(pc.not_equal(times, pc.floor_temporal(times, unit="day"))).as_py() else "date"
    return "date" if pa.types.is_date(kind) else "timestamp" if pa.types.is_timestamp(kind) else None


def _may_be_parsed(config: ColumnConfig, element: pa.DataType, shape: Shape) -> bool:
    """Whether text may be numbers or dates: not where the pipeline says string."""
    element = value_type(element)
    keeps_text = config.type == "string" or config.separator is not None
    return not shape and not keeps_text and (is_text(element) or pa.types.is_string_view(element))


def _shape(kind: pa.DataType) -> Shape:
    """The shape of a column: a vector for lists of one length by their type, any length for other lists."""
    if pa.types.is_fixed_size_list(kind):
        return (kind.list_size,)
    return (None,) if is_list(kind) else ()


def _long(values: pa.ChunkedArray) -> bool:
    """Whether the values are texts or images rather than words: a dictionary of them would save nothing."""
    return len(values) > 0 and not pa.types.is_dictionary(values.type) and values.nbytes > LONG_BYTES * len(values)


def stored_type(kind: pa.DataType) -> StoredType | None:
    """The stored type for values of an Arrow type; None for types that cannot be stored."""
    kind = value_type(kind)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "float32"
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "int64"
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return "int64"
    if is_text(kind) or pa.types.is_string_view(kind) or pa.types.is_fixed_size_binary(kind):
        return "bytes"
    return None


def _domain(of_splits: Sequence[ColumnStatistics]) -> tuple[str, ...]:
    """The distinct values, sorted, when they are few, are text, and repeat."""
    values: set[bytes] = set()
    for statistics in of_splits:
        if not statistics.complete or statistics.distinct > DOMAIN_VALUES:
            return ()
        values |= {value for value, _ in statistics.top()}
    if not 0 < len(values) <= DOMAIN_VALUES or len(values) * 5 > sum(statistics.present for statistics in of_splits):
        return ()
    try:
        return tuple(sorted(value.decode("utf-8") for value in values))
    except UnicodeDecodeError:
        return ()


_FROM, _TO = 631_152_000, 2_208_988_800
"""Seconds from 1990 to 2040: in milliseconds and smaller units no such number is another's."""
_PER_SECOND: dict[Kind, int] = {
    "epoch_seconds": 1,
    "epoch_milliseconds": 1000,
    "epoch_microseconds": 1_000_000,
    "epoch_nanoseconds": 1_000_000_000,
}
_TIME_WORDS = frozenset(
    {"ts", "at", "utc", "unix", "epoch", "when", "created", "updated", "modified", "changed", "inserted", "deleted", "seen",
     "login", "started", "ended", "finished", "start", "end", "begin", "opened", "closed", "dt", "moment", "ds", "t"}
)  # fmt: skip
_TIME_PARTS = re.compile(r"time|date|stamp|epoch")
_NAMELESS = re.compile(r"column_[0-9]+")
"""What `headway init` calls the columns of a file without names."""
_LEAST_NAMELESS = 50
_DATE_WORDS = frozenset(
    {
        "date",
        "day",
        "dt",
        "month",
        "period",
        "ym",
        "yyyymm",
        "yearmonth",
        "yyyymmdd",
        "ymd",
        "dateint",
        "datekey",
        "asof",
    }
)
_DATE_PARTS = re.compile(r"date|yyyymm|yearmonth|year_?mo")


def says_time(name: str) -> bool:
    """Whether a column's name says that it holds times, such as ts, created_at or pickupTime."""
    return bool(_TIME_WORDS & {*words_of(name)} or _TIME_PARTS.search(name.lower())) and not named_as_identifier(name)


def says_date(name: str) -> bool:
    """Whether a column's name says that it holds dates or months, such as order_date or yyyymm."""
    return bool(_DATE_WORDS & {*words_of(name)} or _DATE_PARTS.search(name.lower()))


def epoch_rule(name: str, values: pa.ChunkedArray | pa.Array) -> tuple[Parse, str] | None:
    """The rule of a column of integers or doubles, and a note about it; None where its name or values are not times.

    One value in a hundred may lie outside 1990 to 2040, such as a 0 for a time that is not known. A column of a file without
    names is one of times if many different values are all inside.
    """
    named = says_time(name)
    if not (pa.types.is_integer(values.type) or pa.types.is_float64(values.type)) or not (
        named or _NAMELESS.fullmatch(name)
    ):
        return None
    known = values.drop_null()
    numbers = known.to_numpy() if isinstance(known, pa.ChunkedArray) else known.to_numpy(zero_copy_only=False)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return None
    for kind, scale in _PER_SECOND.items():
        inside = (numbers >= _FROM * scale) & (numbers < _TO * scale)
        if len(numbers) - np.count_nonzero(inside) > (len(numbers) // ONE_IN if named else 0):
            continue
        if not named and len(np.unique(numbers)) < _LEAST_NAMELESS:
            return None
        value = numbers[int(np.argmax(inside))]
        moment = str(np.datetime64(int(value) // scale, "s")).replace("T", " ")
        text = f"{value:d}" if pa.types.is_integer(values.type) else f"{value:.15g}"
        note = f"read as times (UTC) in {kind.removeprefix('epoch_')} since 1970: {text} is {moment}; requests send the number "
        fraction = "without its fraction" if bool((numbers != np.floor(numbers)).any()) else "as it is"
        return Parse.model_validate(kind), f"{note}{fraction}; say 'type: float' to keep a quantity"
    return None
