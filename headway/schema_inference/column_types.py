"""Infers a schema: the columns' types from a bounded sample, their domains and presence from the statistics of all rows.

    schema, notes = infer(open_source(config).sample(files, PREFIX_ROWS), configs, only=False, needed=frozenset())
    schema = with_statistics(schema, [train_statistics, eval_statistics])

A column without nulls in the sample may hold nulls later. So every column may be null in storage, unless the pipeline says
otherwise. Domains (a column's known values) and presence (columns without nulls) come from every row of the first window.

    epoch_rule("created_at", pa.array([1700000000, 1700003600]))      # (Parse epoch_seconds, "read as times (UTC): ...")
    epoch_rule("user_id", pa.array([1700000000]))                     # None, since the name `user_id` does not say a time

A time that is a number is stored as the same number, and requests send this number. Only calendar parts are computed from it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headway.errors import ConfigError, DataError
from headway.schema.calendar_days import Temporal
from headway.schema.columns import STORED, Column, ColumnConfig, Schema, Shape, StoredType, column_yaml, suggest
from headway.schema.decimal_signs import DecimalSign, sign_of_table
from headway.schema.notes import Note
from headway.schema.parse_rules import Kind, Parse
from headway.schema_inference.identifiers import meaning_of, named_as_identifier, words_of
from headway.schema_inference.text_patterns import Recognized, recognized
from headway.sources.sample import ONE_IN, Sample
from headway.sources.type_inference import float32_loss
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
    """Returns the schema inferred from a sample, and notes for the user on columns and on the source.

    Args:
        configs: what the pipeline says of single columns; this wins over what the sample shows.
        only: take the configured and needed columns only, rather than all columns in the sample.
        needed: columns that the label, the split or the filter reads.
        typed: whether the format tells text from numbers, so that text of digits is meant to be text.
        keys: columns whose values are compared. Float32 may not make two of their values equal.

    Raises:
        ConfigError: a configured or needed column does not exist, or cannot be stored.
        DataError: a column's type differs between the files, or a column cannot be read.
    """
    names = list(sample.table.column_names)
    for name in [*configs, *sorted(needed)]:
        if name not in names:
            fix = suggest(name, names)
            if len(names) == 1 and (separators := [s for s in ";\t|," if s in names[0]]):
                fix = f"the source has one column, {names[0]!r}: if values are separated by {separators[0]!r}, "
                fix += f"say source.csv.delimiter: {json.dumps(separators[0])}"
            raise ConfigError(f"there is no column {name!r} in the source", where=where, fix=fix)
    decimal = sample.decimal
    if typed and (sign := sign_of_table(each for each in sample.table.columns if is_text(each.type))) != "either":
        decimal = sign
    columns: list[Column] = []
    notes = [Note(text=text) for text in sample.notes]
    for name in names:
        config = configs.get(name, ColumnConfig())
        required = name in needed or (name in configs and config.role != "ignore")
        if not required and (only or config.role == "ignore"):
            continue
        _refuse_conflict(sample, name, where=where, needed=needed, auto=not only)
        column = _ColumnSample(
            name,
            sample,
            config,
            typed=typed,
            free=name not in configs and name not in needed,
            compared=name in needed,
            key=name in keys,
            auto=not only,
        )
        if (why := column.unfit()) is not None:
            if required:
                raise ConfigError(
                    f"column {name!r} cannot be used: {why}", where=where, fix="give it a type, or leave it out"
                )
            notes.append(Note(column=name, text=why, left_out=True))
            continue
        columns.append(column.inferred(decimal))
        notes += column.notes
    return Schema(columns=tuple(columns)), notes


def _refuse_conflict(sample: Sample, name: str, *, where: str, needed: frozenset[str], auto: bool) -> None:
    """Raises a DataError for the column `name` if its type differs between files, or if it cannot be read."""
    if (clash := sample.conflicts.get(name)) is None:
        return
    both = [other for other in sample.table.column_names if sample.conflicts.get(other) == clash]
    damaged = sample.damaged.get(name)
    fix = "write the file again" if damaged else "write it again, one way in every file"
    if not needed & {*both}:
        fix += f", or leave it out: {column_yaml(both, 'ignore', auto=auto)}"
    raise DataError(clash, where=damaged or where, fix=fix)


@dataclass(frozen=True)
class _ColumnSample:
    """One column of a sample, and what its type is inferred from."""

    name: str
    sample: Sample
    config: ColumnConfig
    typed: bool
    """Whether the format tells text from numbers."""
    free: bool
    """Whether the pipeline says nothing of the column, so that what its numbers count may be guessed."""
    compared: bool
    """Whether the label, the split or the filter reads it."""
    key: bool
    """Whether its values are compared with one another."""
    auto: bool
    """Whether the pipeline takes all other columns too."""
    notes: list[Note] = field(default_factory=list)

    @property
    def values(self) -> pa.ChunkedArray:
        return self.sample.table.column(self.name)

    @property
    def shape(self) -> Shape:
        """The shape that the pipeline says, else the type's: () for single values, (3,) for lists of 3, (None,) for any lists."""
        asked, kind = self.config.stored_shape(), self.values.type
        if asked is not None:
            return asked
        return (kind.list_size,) if pa.types.is_fixed_size_list(kind) else (None,) if is_list(kind) else ()

    @property
    def storable_type(self) -> StoredType | None:
        """The stored type: the one that the pipeline sets, else the one of the sampled values; None if they cannot be stored."""
        kind = self.values.type
        element = kind.value_type if is_list(kind) and self.shape else kind
        return STORED[self.config.type] if self.config.type else stored_type(element)

    def unfit(self) -> str | None:
        """Returns the reason why the column cannot be stored; None if it can."""
        if not self.name:
            return "it has no name"
        if "/" in self.name:
            safe = json.dumps({self.name: self.name.replace("/", "_")}, ensure_ascii=False)
            return f"its name holds '/'; give it another: source.rename: {safe}"
        if self.storable_type is None and not pa.types.is_null(self.values.type):
            nested = pa.types.is_nested(self.values.type)
            why = "; a column holds single values or lists of them" if nested else ""
            return f"its type {self.values.type} cannot be stored{why}"
        if self.values.null_count == len(self.values) and not self.config.type:
            return "only nulls in the sample; give it a type to keep it"
        return None

    def inferred(self, decimal: DecimalSign | None) -> Column:
        """Returns the column with its inferred type. Appends notes for the user to `notes`."""
        config, values = self.config, self.values
        read = self._as_told() or self._guessed(decimal)
        kind, parse, counted_as = read.type or self.storable_type, read.parse, values
        assert kind is not None  # else it is unfit
        temporal = parse.temporal if parse else _temporal(values) if kind == "int64" and not self.shape else None
        null = self.sample.nulls.get(self.name)
        if parse is not None and parse.as_ == "text":
            null, parse = parse.null, None
        if kind == "int64" and not config.type and (large := _too_large(values)):
            kind = "bytes"
            self._say(f"read as text: {large}; say 'type: float' to read it as a number", "{type: float}")
        if kind == "float32" and not self.shape and not config.type and config.parse is None:
            kind, parse, counted_as = self._stored_reals(parse)
        self._say_what_is_lost(kind)
        shape = self._vector() if kind != "bytes" else self.shape
        meaning = None
        if not shape and parse is None and temporal is None and config.type != "float":
            as_text = kind == "bytes" and not is_text(value_type(values.type))
            meaning = meaning_of(self.name, values.cast(pa.string()) if as_text else counted_as)
        return Column(
            name=self.name,
            type=kind,
            nullable=True,
            encoding="plain" if kind != "bytes" or _long(values) else "dictionary",
            shape=shape,
            separator=config.separator,
            parse=parse,
            null=null,
            temporal=temporal,
            meaning=meaning,
        )

    def _say(self, text: str, config: str | None = None, *, doubt: bool = False) -> None:
        """Adds a note on the column. `config`: the entry in `columns:` by which the user changes what the note says."""
        line = f" ({column_yaml(self.name, config, auto=self.auto)})" if config else ""
        self.notes.append(Note(column=self.name, text=text + line, doubt=doubt))

    def _as_told(self) -> Recognized | None:
        """Returns the type and rule that the `parse` setting gives; None if it is unset or does not suit such a column."""
        rule, kind = self.config.parse, self.storable_type
        if rule is None:
            return None
        if rule.as_ == "text":
            return Recognized("bytes", rule)
        if self.shape or not (kind == "bytes" or (rule.is_epoch and kind in ("int64", "float32"))):
            return None
        return Recognized("int64" if rule.temporal or rule.as_ == "boolean" else "float32", rule)

    def _guessed(self, decimal: DecimalSign | None) -> Recognized:
        """Returns what the values show beyond their type: numbers may be times or dates, text may be numbers or dates."""
        config, values, named = self.config, self.values, says_date(self.name)
        found = Recognized()
        if self.free and _temporal(values) is None and (epoch := epoch_rule(self.name, values)) is not None:
            found = Recognized("int64", *epoch)
        elif self.free and not self.typed and _date_digits(values):
            found = recognized(values.cast(pa.string()), plain=True, named=named)
            found = found if found.parse is not None else Recognized()
        elif self._may_be_parsed():
            found = recognized(
                values,
                plain=not self.typed,
                dates=not self.compared,
                digits=self.free,
                named=named,
                decimal=decimal,
            )
            if config.type:  # says the type, and values are no dates by themselves
                note = found.note if found.parse is not None or self.storable_type == "bytes" else None
                kind = found.type if found.parse is not None and found.parse.temporal else self.storable_type
                found = Recognized(kind if found.type else None, found.parse, note, found.doubt)
        if found.note is not None:
            self._say(found.note, doubt=found.doubt)
        return found

    def _may_be_parsed(self) -> bool:
        """Returns whether the column is text that may be read as numbers or dates: not if the pipeline says string or a list."""
        keeps_text = self.config.type == "string" or self.config.separator is not None
        element = value_type(self.values.type)
        return not self.shape and not keeps_text and (is_text(element) or pa.types.is_string_view(element))

    def _stored_reals(self, parse: Parse | None) -> tuple[StoredType, Parse | None, pa.ChunkedArray]:
        """Returns the stored type, the parse rule and the values of a column of real numbers.

        The type is float32 if distinct values stay distinct in it. If not, mostly whole numbers become int64, unless they have a
        parse rule, come from a format that spells numbers as text, or are compared and no key. Any other key is read as text. The
        rest is float32 all the same. Each of these cases adds a note, the last one only if much is lost."""
        name, values = self.name, self.values
        loss = float32_loss(values, Column(name=name, type="float32", nullable=True, parse=parse))
        if loss is None:
            return "float32", parse, values
        # a label of numbers stays one, and of text the spelling counts
        whole = not self.sample.spelled and (self.key or not self.compared)
        if parse is None and whole and loss.mostly_integers:
            integer = Column(name=name, type="int64", nullable=True)
            integers = pa.chunked_array([converted(chunk, integer) for chunk in values.chunks], pa.int64())
            self._say(f"read as integers, as {loss}{loss.odd}; say 'type: float' to have real numbers", "{type: float}")
            return "int64", None, integers
        if self.key:
            self._say(f"read as text, as its values are keys and {loss}")
            return "bytes", None, values
        if loss.matters:
            text = f"read as real numbers: {loss}; if they name things, say 'type: string' to keep them apart"
            self._say(text, "{type: string}")
        return "float32", parse, values

    def _say_what_is_lost(self, kind: StoredType) -> None:
        """Adds notes on values that are not like the others, and so will be rejected or count as missing."""
        if (misfits := self.sample.misfits.get(self.name)) and not self.config.type:
            text = f"read as numbers: {misfits}; such rows will be rejected, say 'type: string' to keep them"
            self._say(text, "{type: string}")
        if (several := self.sample.several.get(self.name)) and self.config.stored_shape() is None:
            text = f"read as one value per row: {several}; such rows will be rejected, say 'shape: list' to keep them"
            self._say(text, "{shape: list}")
        if self.name in self.sample.words and kind == "bytes" and self.config.parse is None:
            self._say(self.sample.words[self.name])

    def _vector(self) -> Shape:
        """Returns the shape of a column of numbers. Lists of one length become vectors of that length, with a note."""
        asked = self.config.stored_shape() is not None or self.config.separator is not None
        if asked or (length := _one_length(self.values)) is None:
            return self.shape
        text = f"a vector: each sampled list has {length:,} values; a row with another number of them will be rejected, say "
        self._say(f"{text}'shape: list' to take lists of any length, pooled", "{shape: list}")
        return (length,)


def with_statistics(schema: Schema, splits: Sequence[SplitStatistics]) -> Schema:
    """Returns the schema with the domains of text columns of few values, and with the list of columns that are always present."""
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
    """Returns a clause if int64 cannot hold more than one value in a hundred, as among 64-bit hashes; else None."""
    if not pa.types.is_uint64(values.type) or not len(values):
        return None
    large = pc.sum(pc.greater_equal(values, pa.scalar(1 << 63, pa.uint64()))).as_py() or 0
    present = len(values) - values.null_count
    return f"{large:,} of {present:,} sampled values do not fit int64" if large * ONE_IN > present else None


def _one_length(values: pa.ChunkedArray) -> int | None:
    """Returns the length of all sampled lists; None if it differs, is 0 or fixed by the type, or for few lists or many nulls."""
    if not is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        return None
    lengths = pc.unique(pc.list_value_length(values).drop_null())
    rows = len(values) - values.null_count
    nulls = sum(flatten(chunk).nulls for chunk in values.chunks)  # each row with one would be rejected
    if len(lengths) != 1 or rows < VECTOR_ROWS or nulls * ONE_IN > rows:
        return None
    return int(lengths[0].as_py()) or None


def _date_digits(values: pa.ChunkedArray) -> bool:
    """Returns whether the median of integers may be a date, such as 20130131, or a month, such as 201301."""
    if not pa.types.is_integer(values.type) or values.null_count == len(values):
        return False
    middle = pc.approximate_median(values).as_py()
    return any(low <= middle <= high for low, high in _DATE_DIGITS)


def _temporal(values: pa.ChunkedArray) -> Temporal | None:
    """Returns "date" or "timestamp" for dates and times, else None. date64 with a time of day counts as a timestamp."""
    kind = value_type(values.type)
    if pa.types.is_date64(kind):
        times = decoded(values)
        return "timestamp" if pc.any(pc.not_equal(times, pc.floor_temporal(times, unit="day"))).as_py() else "date"
    return "date" if pa.types.is_date(kind) else "timestamp" if pa.types.is_timestamp(kind) else None


def _long(values: pa.ChunkedArray) -> bool:
    """Returns whether the values are long on average, as texts or images are, so that a dictionary would save nothing."""
    return len(values) > 0 and not pa.types.is_dictionary(values.type) and values.nbytes > LONG_BYTES * len(values)


def stored_type(kind: pa.DataType) -> StoredType | None:
    """Returns the stored type for values of an Arrow type; None for types that cannot be stored."""
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
    """Returns the distinct values, sorted, if they are few, repeat, and are all UTF-8 text; else an empty tuple."""
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
"""1990 and 2040 in seconds since 1970. The same years in milliseconds and smaller units are other ranges of numbers."""
_PER_SECOND: dict[Kind, int] = {
    "epoch_seconds": 1,
    "epoch_milliseconds": 1000,
    "epoch_microseconds": 1_000_000,
    "epoch_nanoseconds": 1_000_000_000,
}
_TIME_WORDS = frozenset(
    {"ts", "at", "utc", "unix", "epoch", "when", "created", "updated", "modified", "seen", "login", "start", "started", "end",
     "ended", "opened", "closed", "dt", "ds", "t"}
)  # fmt: skip
_TIME_PARTS = re.compile(r"time|date|stamp|epoch")
_DATE_WORDS = frozenset({"day", "dt", "month", "period", "ym", "ymd", "asof"})
_DATE_PARTS = re.compile(r"date|yyyymm|yearmonth|year_?mo")


def says_time(name: str) -> bool:
    """Returns whether a column's name says that it holds times, such as ts, created_at or pickupTime."""
    return bool(_TIME_WORDS & {*words_of(name)} or _TIME_PARTS.search(name.lower())) and not named_as_identifier(name)


def says_date(name: str) -> bool:
    """Returns whether a column's name says that it holds dates or months, such as order_date or yyyymm."""
    return bool(_DATE_WORDS & {*words_of(name)} or _DATE_PARTS.search(name.lower()))


def epoch_rule(name: str, values: pa.ChunkedArray | pa.Array) -> tuple[Parse, str] | None:
    """Returns the parse rule for integers or doubles that are times, and a note about it; None if the name or the values are not
    of times.

    Only a column's name tells a time from other numbers. One value in a hundred may lie outside 1990 to 2040, such as a 0 for an
    unknown time."""
    if not (pa.types.is_integer(values.type) or pa.types.is_float64(values.type)) or not says_time(name):
        return None
    known = values.drop_null()
    numbers = known.to_numpy() if isinstance(known, pa.ChunkedArray) else known.to_numpy(zero_copy_only=False)
    numbers = numbers[np.isfinite(numbers)]
    for kind, scale in _PER_SECOND.items() if len(numbers) else ():
        inside = (numbers >= _FROM * scale) & (numbers < _TO * scale)
        if len(numbers) - np.count_nonzero(inside) > len(numbers) // ONE_IN:
            continue
        value = numbers[int(np.argmax(inside))]
        moment = str(np.datetime64(int(value) // scale, "s")).replace("T", " ")
        text = f"{value:d}" if pa.types.is_integer(values.type) else f"{value:.15g}"
        fraction = "without its fraction" if bool((numbers != np.floor(numbers)).any()) else "as it is"
        note = f"read as times (UTC) in {kind.removeprefix('epoch_')} since 1970: {text} is {moment}; requests send the number "
        return Parse.model_validate(kind), f"{note}{fraction}; say 'type: float' to keep a quantity"
    return None
