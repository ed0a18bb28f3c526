"""The split rule: assigns each row to train, eval or test by the hash of a key, by a column, by time, or by its file's path.

    assign_splits(SplitConfig(key="customer", eval=0.2), batch).codes       # hash: same key, same split, for ever
    window_splits(SplitConfig(mode="time"), ["2013-01", "2013-02"])         # time: the window's last span is eval

The default is the hash of a key. A column either names the split, or eval begins at one of its values. With `mode: time` whole
spans, such as months, are split: ingest writes a span unsplit, as "all", and the window decides. So moving the window ingests
nothing again. `headway.leakage` proves on the written data that no key and no time is in two splits.
"""

import datetime
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from headway.config import Frozen, OneOrMore, refuse_idle
from headway.errors import ConfigError, DataError
from headway.messages import counted
from headway.schema.calendar_days import DAY, PER_DAY
from headway.schema.columns import Column, column_yaml
from headway.tabular.coerce import coerced_with_mask, raw_type
from headway.tabular.expressions import as_written
from headway.tabular.hashing import NULL, U64, hash_texts, mix64
from headway.tabular.list_arrays import decoded, flatten, is_list, is_number, is_text

Hashes = NDArray[np.uint64]
SPLITS = ("train", "eval", "test")
ALL = "all"
_SALT = 0x73706C6974  # "split": keeps split hashes apart from those of features and sketches


class SplitConfig(Frozen):
    """The config of the split: with mode hash, `eval` and `test` are shares; with mode time, *_spans are numbers of spans."""

    mode: Literal["hash", "time", "column", "path"] = Field(
        default="hash",
        description="hash: by a hash of a key; time: the last spans of the window; column: by the values of a column; "
        "path: by folders or files",
    )
    key: Annotated[tuple[str, ...], OneOrMore] = Field(
        default=(),
        description="mode hash: the columns that are hashed; default: the column with role group, else the raw columns "
        "that schema.pbtxt lists, without the label's and identifiers, so duplicates stay together. mode "
        "column and path: a key in two splits is an error",
    )
    eval: float = Field(default=0.2, gt=0.0, lt=1.0, description="mode hash: the share of the keys that goes to eval")
    test: float = Field(default=0.0, ge=0.0, lt=1.0, description="mode hash: the share of the keys that goes to test")
    eval_spans: int = Field(
        default=1, ge=1, description="mode time: how many spans go to eval, the last before those of test"
    )
    test_spans: int = Field(default=0, ge=0, description="mode time: how many spans go to test, the last of the window")
    column: str | None = Field(default=None, description="mode column: the column that says train, eval or test")
    values: dict[str, Literal["train", "eval", "test"]] | None = Field(
        default=None,
        description="mode column and path: what its values, or the names in the place of {split}, mean, when they are not "
        "train, eval and test",
    )

    eval_from: str | None = Field(
        default=None,
        description="mode column: rows whose value is this or greater go to eval, the others to train: a date such as "
        "2013-10-01, a time in UTC, a number, or text",
    )
    test_from: str | None = Field(
        default=None, description="with eval_from: rows from this greater value on go to test"
    )

    @field_validator("eval_from", "test_from", mode="before")
    @classmethod
    def _as_written(cls, value: Any) -> Any:
        """Turn a date or number back into text: YAML reads 2013-10-01 as a date."""
        return str(value) if isinstance(value, int | float | datetime.date) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.eval + self.test >= 1.0:
            raise ValueError(f"eval {self.eval} and test {self.test} leave nothing to train on")
        if (self.mode == "column") != (self.column is not None):
            problem = (
                "mode: column needs a column's name"
                if self.column is None
                else f"column: {self.column} needs mode: column"
            )
            raise ValueError(f"{problem}; write split: {{mode: column, column: {self.column or 'NAME'}}}")
        if self.values is not None and self.mode not in ("column", "path"):
            raise ValueError("values only mean something with mode: column or mode: path")
        if self.eval_from is not None and (self.mode != "column" or self.values is not None):
            raise ValueError("eval_from is for mode: column, in place of values")
        if self.test_from is not None and self.eval_from is None:
            raise ValueError("test_from needs eval_from, a lesser value")
        if self.key and self.mode == "time":
            raise ValueError("a key is for mode: hash, column or path, and mode is time")
        if self.mode != "hash":
            refuse_idle(self, ("eval", "test"), "with mode: hash")
        if self.mode != "time":
            refuse_idle(self, ("eval_spans", "test_spans"), "with mode: time")
        if twice := sorted({name for name in self.key if self.key.count(name) > 1}):
            raise ValueError(f"key names {', '.join(twice)} twice")
        return self

    @property
    def by_row(self) -> bool:
        """Whether rows are split by a hash of their content, without a key."""
        return self.mode == "hash" and not self.key

    @property
    def by_time(self) -> bool:
        """Whether eval rows are later than train rows."""
        return self.mode == "time" or self.eval_from is not None

    def at_ingest(self) -> dict[str, Any]:
        """Returns the part of the config by which ingest decides the split of each row."""
        if self.mode in ("time", "path"):  # what a path makes of each file stands beside the file
            return {"mode": self.mode}
        if self.mode == "column":
            begins = {name: value for name in ("eval_from", "test_from") if (value := getattr(self, name)) is not None}
            return {"mode": "column", "column": self.column, "values": self.values, **begins}
        return {"mode": "hash", "key": list(self.key), "eval": self.eval, "test": self.test}

    def index_settings(self) -> dict[str, Any]:
        """Returns the part of the config that decides what ingest indexes of each row for the leakage proof."""
        return {"key": list(self.key)} if self.key else {}

    def columns(self) -> frozenset[str]:
        """Returns the raw columns that the split and the leakage proof need: the split column and the columns of the key."""
        return frozenset({self.column} if self.column else ()) | set(self.key)

    def setting_of(self, column: str) -> str:
        """Returns the setting that names a column of the split: split.column or split.key."""
        return "split.column" if column == self.column else "split.key"

    def names(self) -> tuple[str, ...]:
        """Returns the names of the splits that ingest writes: train, eval and test, or with mode time only "all"."""
        return (ALL,) if self.mode == "time" else SPLITS


@dataclass(frozen=True)
class SplitCodes:
    """The split of each row of a batch, and the hashes that decided it."""

    codes: NDArray[np.int8]
    """The index of each row's split in `SplitConfig.names()`."""
    hashes: NDArray[np.uint64] | None = None
    """The hash of each row with mode hash, else None. The rows of the lowest hashes are eval, the next test, the others train."""
    columns: dict[str, NDArray[np.uint64]] = field(default_factory=dict)
    """With a key and mode hash: the `column_hash` of each column of the key, by name. Else empty."""


def assign_splits(
    config: SplitConfig,
    batch: pa.RecordBatch,
    columns: Sequence[str] | None = None,
    hashes: Callable[[str], Hashes] | None = None,
    begins: Sequence[Any] = (),
    places: Hashes | None = None,
) -> SplitCodes:
    """Assign each row of a coerced batch to a split.

    Args:
        columns: mode hash without a key: the columns to hash; None: all of `batch`.
        hashes: a function from a column's name to its `column_hash`; None: computed from `batch`.
        begins: mode column with eval_from: the first value of eval and that of test, as `stored_value` returns them.
        places: `place_hash` of each row, which is mixed into the row's hash; None: equal rows go together.

    Raises:
        DataError: mode column, and a value that is not train, eval or test.
    """
    assert config.mode != "path", "the files say it"
    if config.mode == "time":
        return SplitCodes(np.zeros(batch.num_rows, np.int8))
    if config.mode == "column":
        return SplitCodes(_by_column(config, batch) if config.eval_from is None else _from_value(config, batch, begins))
    keys = {name: column_hash(batch.column(name)) for name in config.key}
    of = keys.__getitem__ if keys else hashes
    whole = row_hash(batch, config.key or columns or batch.schema.names, of)
    if places is not None:
        whole = mix64(whole ^ places)
    # 53 bits: exact in float64
    unit = (whole >> U64(11)).astype(np.float64) * 2.0**-53
    codes = np.left_shift(unit < config.eval + config.test, 1, dtype=np.int8)  # 2 is test
    codes -= unit < config.eval  # 1 is eval
    return SplitCodes(codes, whole, keys)


def _by_column(config: SplitConfig, batch: pa.RecordBatch) -> NDArray[np.int8]:
    assert config.column is not None
    texts = decoded(batch.column(config.column))
    if not pa.types.is_binary(texts.type):
        texts = texts.cast(pa.string()).cast(pa.binary())
    encoded = texts.dictionary_encode()
    values = (raw.decode("utf-8", "backslashreplace") for raw in encoded.dictionary.to_pylist())
    lookup = [split_code(config, value, where=f"split column {config.column!r}") for value in values]
    _refuse_nulls(config, encoded)
    return np.array(lookup, np.int8)[encoded.indices.to_numpy()] if lookup else np.zeros(batch.num_rows, np.int8)


def split_code(config: SplitConfig, name: str, *, where: str) -> int:
    """Returns the index in `SPLITS` of the split that `name` means: a value of the split column, or a name in a path.

    Raises:
        DataError: `name` means no split.
    """
    meaning: dict[str, Any] = dict(config.values) if config.values else {split: split for split in SPLITS}
    if name not in meaning:
        raise DataError(
            f"{name!r} is not train, eval or test",
            where=where,
            fix=f"add it to split.values; known: {', '.join(meaning)}",
        )
    return SPLITS.index(meaning[name])


def _refuse_nulls(config: SplitConfig, values: pa.Array) -> None:
    if values.null_count:
        raise DataError(
            f"{counted(values.null_count, 'row has', 'rows have')} no value",
            where=f"split column {config.column!r}",
            fix=f"filter them: source.where: {as_written(config.column or '')} is not None",
        )


def stored_value(text: str, column: Column, *, where: str) -> Any:
    """Returns a value of the config in the form in which a column is stored: a time in the column's unit, a float, or bytes.

    Raises:
        ConfigError: `text` is not a value of the column's type.
    """
    kind = "date" if column.temporal == "date" else "time" if column.temporal else "number"
    fix = "write 2013-10-01 or '2013-10-01 12:00:00'" if column.temporal else "write a number"
    if column.type == "int64" and not column.temporal:
        fix += f"; if it counts the time since 1970, say so: {column_yaml(column.name, '{parse: epoch_seconds}')}"
    try:
        if column.temporal is not None:
            moment = datetime.datetime.fromisoformat(text)
            moment = moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)
            since = moment - datetime.datetime(1970, 1, 1)
            return since // datetime.timedelta(microseconds=1) * PER_DAY[column.temporal] // DAY
        return text.encode() if column.type == "bytes" else float(text)
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a {kind}, and column {column.name!r} holds {kind}s",
            where=where,
            fix=fix,
        ) from None


def _from_value(config: SplitConfig, batch: pa.RecordBatch, begins: Sequence[Any]) -> NDArray[np.int8]:
    """Assign rows to eval from the value `begins[0]` on, to test from `begins[1]` on, and all before to train."""
    assert config.column is not None
    values = decoded(batch.column(config.column))
    _refuse_nulls(config, values)
    codes = np.zeros(batch.num_rows, np.int8)
    for code, begin in enumerate(begins, 1):
        if pa.types.is_integer(values.type) and math.isfinite(begin):
            begin = math.ceil(begin)  # a double holds no nanoseconds since 1970
        exact = pa.types.is_binary(values.type) or (isinstance(begin, int) and abs(begin) < 2**63)
        least = pa.scalar(begin, values.type if exact else pa.float64())
        codes[pc.greater_equal(values, least).to_numpy(zero_copy_only=False)] = code
    return codes


def row_hash(batch: pa.RecordBatch, columns: Sequence[str], hashes: Callable[[str], Hashes] | None = None) -> Hashes:
    """Hash the named columns of each row to uint64. The columns are sorted by name: their order in the config is ignored.

    Args:
        hashes: a function from a column's name to its `column_hash`; None: computed from `batch`.
    """
    state = np.full(batch.num_rows, mix64(np.array([_SALT], U64))[0], U64)
    for i, name in enumerate(sorted(columns)):
        state = mix64(state ^ (hashes(name) if hashes else column_hash(batch.column(name))), i)
    return state


def place_hash(files: NDArray[np.int64], rows: NDArray[np.int64]) -> Hashes:
    """Hash each row's position in its span: the index of the row's file (`files`), and the row's index in it (`rows`), from 0."""
    return mix64(mix64(files.astype(U64), _SALT) ^ rows.astype(U64))


def column_hash(array: pa.Array) -> NDArray[np.uint64]:
    """Hash each value of an int64, float32 or binary array, or of lists of them, to uint64. A null has the hash `NULL`.

    Floats are hashed by the bits of their float32. -0.0 is hashed as 0.0, and every NaN alike.
    """
    if pa.types.is_dictionary(array.type):
        return gathered(column_hash(array.dictionary), array.indices)
    kind = array.type
    if is_list(kind):
        return _hash_lists(array)
    if is_text(kind):
        if len(array) > 1024:
            # repeated values are hashed once
            encoded = array.dictionary_encode()
            if len(encoded.dictionary) < len(array) // 2:
                return gathered(column_hash(encoded.dictionary), encoded.indices)
        hashes = hash_texts(array)
    elif pa.types.is_floating(kind):
        values = pc.fill_null(array, 0).to_numpy(zero_copy_only=False).astype(np.float32) + np.float32(0.0)
        values[np.isnan(values)] = np.float32("nan")
        hashes = mix64(values.view(np.uint32).astype(U64))
    else:
        hashes = mix64(pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False).view(U64))
    return np.where(array.is_null().to_numpy(zero_copy_only=False), NULL, hashes) if array.null_count else hashes


def _hash_lists(array: pa.Array) -> NDArray[np.uint64]:
    """Hash each list: its length, and the hash of each element mixed with the element's index."""
    flat = flatten(array)
    ends = np.cumsum(flat.lengths)
    places = np.arange(len(flat.values)) - np.repeat(ends - flat.lengths, flat.lengths)
    mixed = mix64(column_hash(flat.values) ^ mix64(places.astype(U64)))
    sums = np.concatenate([np.zeros(1, U64), np.cumsum(mixed, dtype=U64)])
    hashes = mix64(sums[ends] - sums[ends - flat.lengths] + mix64(flat.lengths.astype(U64)))
    return np.where(flat.present, hashes, NULL)


def gathered(hashes: NDArray[np.uint64], indices: pa.Array) -> NDArray[np.uint64]:
    """Returns the hash of each row's word: `hashes` are those of a dictionary, `indices` the rows'. A null gives `NULL`."""
    table = np.append(hashes, NULL)
    return table[pc.fill_null(indices.cast(pa.int64()), len(hashes)).to_numpy(zero_copy_only=False)]


SpanSplit = tuple[str, str]
"""A part of a window: the name of a span, and the name of a split that ingest wrote of this span."""


def window_splits(config: SplitConfig, spans: Sequence[str]) -> dict[str, list[SpanSplit]]:
    """Returns by split (train, eval and test) its parts of the window, each as (span, split that ingest wrote).

    Raises:
        ConfigError: mode time, and a window with too few spans to leave one for train.
    """
    if config.mode != "time":
        parts: dict[str, list[SpanSplit]] = {name: [(span, name) for span in spans] for name in SPLITS}
        by_hash = config.mode == "hash" and config.test == 0.0
        by_value = config.values is not None and "test" not in config.values.values()
        if by_hash or by_value or (config.eval_from and config.test_from is None):
            parts["test"] = []
        return parts
    holdout_spans = config.eval_spans + config.test_spans
    if len(spans) <= holdout_spans:
        raise ConfigError(
            f"the window has {counted(len(spans), 'span')} ({', '.join(spans)}), and {holdout_spans} of them are held out",
            where="split.mode: time",
            fix=f"take a window of at least {holdout_spans + 1}, or split by hash",
        )
    train, holdout = list(spans[: len(spans) - holdout_spans]), list(spans[len(spans) - holdout_spans :])
    named = {"train": train, "eval": holdout[: config.eval_spans], "test": holdout[config.eval_spans :]}
    return {name: [(span, ALL) for span in part] for name, part in named.items()}


class RowSplit:
    """Applies the split rule to the rows of one range of a file. `extra` are the columns that only the split needs.

        rows = RowSplit(config, columns_that_are_read, hashed)
        types = rows.types(names_in_the_file, raw_types)          # what to read, with its types
        rows.assign_splits(coerced_batch, raw_batch, kept_rows)

    A split without a key hashes the columns `hashed`, in the types frozen in the schema file. If a column is stored in another
    type or not at all, it is coerced again for the hash alone. Then a value that does not fit is hashed as a null, and its row is
    kept. If a later file lacks a column, each of its values is hashed as a null.
    """

    def __init__(self, config: SplitConfig, read: Sequence[Column], hashed: Sequence[Column]):
        self._config = config
        begins = [text for text in (config.eval_from, config.test_from) if text is not None]
        by = next((column for column in read if column.name == config.column), None)
        self._begins = [stored_value(text, by, where="split") for text in begins] if by is not None else []
        self._hashed = {column.name: column for column in hashed} if config.by_row else {}
        as_read = {column.name: column for column in read}
        self._apart = {n: c for n, c in self._hashed.items() if n not in as_read or _differ(as_read[n], c)}
        self.looks_at_raw = bool(self._apart)
        """Whether `assign_splits` needs the batch as it was read, before it was coerced."""
        self.extra = [name for name in self._apart if name not in as_read]
        """The names of the columns that are read for the split only."""

    def types(self, names: Collection[str] | None, types: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
        """Returns the types to read columns in: `types`, with those of the split's own columns, and text where it hashes text.

        Args:
            names: the names of the columns in the file; None: every column can be read.
        """
        raw_types = dict(types)
        for name, column in self._apart.items():
            if name in self.extra and (names is None or name in names):
                raw_types[name] = raw_type(column)
            elif column.type == "bytes" and not column.shape and name in types and is_number(types[name]):
                raw_types[name] = raw_type(column)  # the text is hashed as it stands, and read as a number afterwards
        return raw_types

    def assign_splits(
        self,
        batch: pa.RecordBatch,
        raw: pa.RecordBatch,
        rows: NDArray[np.int64] | None,
        places: Hashes | None = None,
    ) -> SplitCodes:
        """Assign the rows of a coerced batch to splits.

        Args:
            raw: the batch as it was read.
            rows: the rows of `raw` that are in `batch`; None: all of them.
            places: `place_hash` of each row of `batch`, if equal rows need not stay together; else None.
        """
        if not self._hashed:
            return assign_splits(self._config, batch, begins=self._begins)
        stored, files = (dict(zip(b.schema.names, b.columns, strict=True)) for b in (batch, raw))

        def hashes(name: str) -> Hashes:
            if name not in self._apart:
                return column_hash(stored[name])
            if name not in files:
                return np.full(batch.num_rows, NULL)
            array = _lenient(files[name], self._apart[name])
            return array if rows is None else array[rows]

        return assign_splits(self._config, batch, list(self._hashed), hashes, places=places)


_SAME = frozenset({"name", "nullable", "role", "encoding", "shape", "meaning", "temporal", "feature", "null"})
"""The fields of a column that do not change the hash of its values. A vector is hashed like a list."""


def _differ(read: Column, hashed: Column) -> bool:
    """Returns whether a column's values as they are read differ from the values that the split hashes."""
    read_as, hashed_as = (column.model_dump(exclude=set(_SAME)) for column in (read, hashed))
    return read_as != hashed_as or bool(read.shape) != bool(hashed.shape)


def _lenient(raw: pa.Array, column: Column) -> Hashes:
    array, wrong = coerced_with_mask(raw, column)
    hashes = column_hash(array)
    return hashes if wrong is None else np.where(wrong, NULL, hashes)
