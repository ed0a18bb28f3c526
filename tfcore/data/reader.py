"""The shards of a split, and the reading of their records: as raw columns, labels and weights, without rows that are held out.

    shards = Shards.of([(ingest_folder, ingest_result, "train"), ...])
    shards.total                                         # rows
    kept_rows(shards, Holdout.of(held_out))              # of each record, by shard; held_out is a mask of each shard
    reader = Reader(shards, ["carrier", "label"])
    pieces = reader.in_epoch(plan, epoch, skip)          # or reader.in_order()
    pieces.map(lambda *piece: reader(*piece).columns, num_parallel_calls=AUTOTUNE)
    label, weight = labeler(shards, parameters)(columns)

A piece is one serialized record, with its shard and its number in the shard. TensorFlow verifies the record's checksum. Records
in memory come in the same order as from files. One bit for each row says whether the row is held out: NumPy counts rows by these
bits, and the graph selects rows by them. `tfcore.train.rows` draws the rows to hold out.
"""

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import ConfigError, DataError
from headway.messages import counted
from headway.monitor import Monitor
from headway.records.encode import feature_spec, unpacked
from headway.records.tfrecord import read_records
from headway.schema.columns import LABEL, UNIT_COLUMN, Column
from headway.stages.refs import Examples
from headway.storage.prefetch import RemoteFiles, Stager
from headway.tabular.hashing import GOLDEN, U64, mix64
from tfcore.data.order import Plan
from tfcore.graph.op_errors import op_of, why
from tfcore.graph.python_op import PythonOpError, numpy_op, python_text, reraise
from tfcore.heads.head import label_head
from tfcore.heads.label_parameters import LabelParameters
from tfcore.transform.parameters import TransformParameters
from tfcore.transform.preprocess import SCOPE
from tfcore.transform.raw_column import RawColumn

_PLACE_BITS = 20
_RESAMPLE_SALT = 0x726573 << 32
_BITS = 24
_ONES = 0xFFFFFFFFFFFFFFFF

Batch = dict[str, tf.Tensor]


@dataclass(frozen=True)
class Shards:
    """The shard files of one split in all spans of a window, with facts from the spans' manifests."""

    paths: tuple[str, ...]
    rows: tuple[Sequence[int] | NDArray[np.int64], ...]
    """For each shard, the number of rows of each record."""
    columns: tuple[Column, ...]
    stager: Stager | None = None
    """Fetches the files from a bucket as they are read; None: the files are on this disk."""
    runs: tuple[NDArray[Any], ...] | None = field(default=None, compare=False)
    """For each shard, the lengths of its runs: consecutive rows of a record with one group (signed). None: not computed."""
    unit: bool = False
    """Whether records have the column `UNIT_COLUMN`, which says which rows the split keeps together."""
    spans: tuple[int, ...] | None = field(default=None, compare=False)
    """For each shard, the index of its span in the window; None: all shards are of one span."""

    @classmethod
    def of(cls, parts: Sequence[tuple[Path, Mapping[str, Any], str]], stager: Stager | None = None) -> Self:
        """Make shards from `parts`: the ingest folder, ingest result and split name of each span, in window order.

        Raises:
            DataError: the spans were ingested with different columns.
        """
        paths, rows, spans = [], [], []
        first = parts[0][1]
        for span, (folder, result, split) in enumerate(parts):
            if result["columns"] != first["columns"]:
                raise DataError(f"{result['span']} holds other columns than {first['span']}", where=str(folder))
            for shard in result["splits"][split]["shards"]:
                paths.append(str(folder / shard["file"]))
                rows.append(unpacked(shard["rows"]))
                spans.append(span)
        columns = tuple(Column.model_validate(column) for column in first["columns"])
        unit = first["unit"]
        return cls(tuple(paths), tuple(rows), columns, stager, unit=unit, spans=tuple(spans))

    def announce_order(self, *orders: Iterable[int]) -> None:
        """Tell the stager, if there is one, in which order shards will be read, by index; by default in their own order."""
        if self.stager is not None:
            self.stager.ahead(self.paths[i] for order in orders or [range(len(self.paths))] for i in order)

    @property
    def record_columns(self) -> tuple[Column, ...]:
        """Returns the columns that records hold: the columns of the table, and `UNIT_COLUMN` if there are units."""
        return (*self.columns, UNIT_COLUMN) if self.unit else self.columns

    @cached_property
    def row_counts(self) -> tuple[int, ...]:
        """The number of rows of each shard."""
        return tuple(int(np.sum(rows)) for rows in self.rows)

    @property
    def total(self) -> int:
        return sum(self.row_counts)


@dataclass(frozen=True, eq=False)
class Holdout:
    """Says which rows take part: only the held-out rows, on which early stopping measures, or only all other rows."""

    bits: tuple[NDArray[np.uint8], ...]
    """For each shard, one bit per row, set if the row is held out: `np.packbits` with the first row in the lowest bit."""
    inside: bool = False
    """True: only held-out rows take part. False: only the other rows do."""

    @classmethod
    def of(cls, held_out: Iterable[NDArray[np.bool_]], *, inside: bool = False) -> Self:
        """Make a holdout from a mask for each shard, which is true for the rows to hold out."""
        return cls(tuple(np.packbits(mask, bitorder="little") for mask in held_out), inside)

    @classmethod
    def by_place(cls, shards: Shards, share: float, *, inside: bool = False) -> Self:
        """Hold out about `share` of the rows, each chosen by a hash of its shard's index and its position in the shard."""
        limit = round(share * (1 << _PLACE_BITS))
        hashes = (mix64(np.arange(rows, dtype=U64), shard + 1) for shard, rows in enumerate(shards.row_counts))
        return cls.of((each >> U64(64 - _PLACE_BITS) < limit for each in hashes), inside=inside)

    @property
    def inverse(self) -> Self:
        """The same holdout with `inside` inverted, so that the other rows take part."""
        return replace(self, inside=not self.inside)

    def row_mask(self, shard: int, rows: int) -> NDArray[np.bool_]:
        """Returns whether each of a shard's `rows` rows takes part; bool [rows]. `HoldoutRows` does the same in the graph."""
        return np.unpackbits(self.bits[shard], count=rows, bitorder="little").view(np.bool_) == self.inside


class HoldoutRows:
    """Applies a `Holdout` in a TensorFlow graph. Without a holdout every row takes part."""

    def __init__(self, holdout: Holdout | None, shards: Shards):
        starts = [np.cumsum(rows) - np.asarray(rows) for rows in shards.rows]
        # the first row of every record within its shard, and where each shard's records begin in that list
        self._first = tf.constant(np.concatenate(starts) if starts else np.zeros(0), tf.int64)
        self._begin = tf.constant(np.cumsum([0] + [len(s) for s in starts])[:-1], tf.int64)
        self._inside = None if holdout is None else holdout.inside
        if holdout is not None:
            self._bits = tf.constant(np.concatenate([*holdout.bits, np.zeros(0, np.uint8)]))
            self._bytes = tf.constant(np.cumsum([0] + [len(bits) for bits in holdout.bits])[:-1], tf.int64)

    def __call__(self, rows: Batch, shard: tf.Tensor, number: tf.Tensor) -> Batch:
        """Returns the rows that take part. `rows` are all rows of record `number` in a shard."""
        _, keep = self.positions_and_mask(tf.shape(rows["label"], tf.int64)[0], shard, number)
        places = tf.where(keep)[:, 0]  # looked up once, where boolean_mask would for each tensor
        return {name: tf.gather(value, places) for name, value in rows.items()}

    def positions_and_mask(self, count: tf.Tensor, shard: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns for a record's `count` rows their positions in the shard, int64, and whether each takes part, bool."""
        first = tf.gather(self._first, tf.gather(self._begin, shard) + number)
        places = tf.range(first, first + count)
        if self._inside is None:
            return places, tf.ones_like(places, tf.bool)
        eight = tf.gather(self._bits, tf.gather(self._bytes, shard) + places // 8)
        bit = tf.bitwise.right_shift(tf.cast(eight, tf.int32), tf.cast(places % 8, tf.int32)) & 1
        return places, tf.equal(tf.cast(bit, tf.bool), self._inside)


def kept_rows(shards: Shards, holdout: Holdout | None) -> list[NDArray[Any]]:
    """Returns for each shard an integer array: how many rows of each record take part. Without a holdout all do."""
    if holdout is None:
        return [np.asarray(rows) for rows in shards.rows]
    return [record_sums(rows, holdout.row_mask(i, shards.row_counts[i])) for i, rows in enumerate(shards.rows)]


def record_sums(rows: Sequence[int] | NDArray[np.int64], values: NDArray[Any]) -> NDArray[Any]:
    """Returns the sum of `values` over the rows of each record; integers of the smallest type, [records]. `values` has an integer
    or bool for each row of a shard, and `rows` has the number of rows of each record."""
    found = values
    if len(rows) < len(values) or not np.all(np.asarray(rows) == 1):
        found = np.diff(np.append(0, np.cumsum(values))[np.cumsum(rows)], prepend=0)
    return found.astype(np.min_scalar_type(int(found.max(initial=0))))


def shards_of(examples: Sequence[Examples], stager: Stager | None = None) -> Shards:
    """Returns the shards of all examples, in their order.

    Raises:
        ConfigError: there are no examples.
    """
    if not examples:
        raise ConfigError("there are no rows: neither examples nor shards", where="examples")
    return Shards.of([(part.path, part.result, part.split) for part in examples], stager)


class Resample:
    """Decides how often each row occurs in an epoch: by its class's rate, and by a hash of its position and the epoch.

    Args:
        rates: [classes], how often a row of each class occurs in an epoch, on average.
        classes: for each shard, the class of each row; int [rows].
        inverse: multiply each row's weight by 1 / the rate of its class.
    """

    def __init__(self, rates: Sequence[float], classes: Sequence[NDArray[Any]], *, seed: int, inverse: bool = False):
        self.seed, self._classes = seed + _RESAMPLE_SALT, classes
        self.whole = np.floor(rates).astype(np.int64)
        self.part = np.round((np.asarray(rates) - self.whole) * (1 << _BITS)).astype(np.int64)
        self.weights = 1.0 / np.asarray(rates, np.float64) if inverse else None
        self._rates = np.asarray(rates, np.float64)

    def copies(self, shard: int, epoch: int) -> NDArray[np.int64]:
        """Returns how often each row of a shard occurs in an epoch; int64 [rows]. `ResampleInGraph` computes the same."""
        classes = self._classes[shard]
        place = mix64(np.arange(len(classes), dtype=U64), shard + 1)
        drawn = mix64(place ^ U64(epoch), self.seed) >> U64(64 - _BITS)
        return self.whole[classes] + (drawn.astype(np.int64) < self.part[classes])

    def rows_of_records(self, shards: Shards, holdout: Holdout | None, epoch: int) -> list[NDArray[Any]]:
        """Returns for each shard an integer array: how many rows each record contributes to an epoch."""
        by_shard = []
        for shard, rows in enumerate(shards.rows):
            copies = self.copies(shard, epoch)
            if holdout is not None:
                copies = copies * holdout.row_mask(shard, len(copies))
            by_shard.append(record_sums(rows, copies))
        return by_shard

    def max_copies(self, shard: int) -> NDArray[np.int64]:
        """Returns how often each row of a shard can occur in an epoch at most; int64 [rows]."""
        return (self.whole + (self.part > 0))[self._classes[shard]]

    def expected_rows(self, shards: Shards, holdout: Holdout | None) -> int:
        """Returns the mean number of rows of an epoch, over all shards, as an integer."""
        total = 0.0
        for shard, classes in enumerate(self._classes):
            rates = self._rates[classes]
            if holdout is not None:
                rates = rates * holdout.row_mask(shard, len(classes))
            total += float(rates.sum())
        return round(total)


class ResampleInGraph:
    """Applies a `Resample` and a holdout to the rows of a record, in a TensorFlow graph."""

    def __init__(self, resample: Resample, shards: Shards, holdout: Holdout | None):
        self._resample = resample
        self._holdout_rows = HoldoutRows(holdout, shards)

    def __call__(self, rows: Batch, shard: tf.Tensor, number: tf.Tensor, epoch: tf.Tensor) -> Batch:
        """Returns the rows of record `number` in a shard as the epoch has them: some repeated, some dropped."""
        resample = self._resample
        places, keep = self._holdout_rows.positions_and_mask(tf.shape(rows["label"], tf.int64)[0], shard, number)
        classes = tf.cast(rows["label"], tf.int32)
        place = hash64(tf.cast(places, tf.uint64), tf.cast(shard + 1, tf.uint64))
        drawn = hash64(tf.bitwise.bitwise_xor(place, tf.cast(epoch, tf.uint64)), resample.seed)
        drawn = tf.cast(tf.bitwise.right_shift(drawn, tf.constant(64 - _BITS, tf.uint64)), tf.int64)
        extra = tf.cast(drawn < tf.gather(resample.part, classes), tf.int64)
        copies = (tf.gather(resample.whole, classes) + extra) * tf.cast(keep, tf.int64)
        if resample.weights is not None:
            factor = tf.gather(tf.constant(resample.weights, tf.float32), classes)
            rows = rows | {"weight": rows["weight"] * factor}
        order = tf.repeat(tf.range(tf.size(copies)), copies)
        return {name: tf.gather(value, order) for name, value in rows.items()}


def hash64(x: tf.Tensor, seed: int | tf.Tensor = 0) -> tf.Tensor:
    """Compute `headway.tabular.hashing.mix64` in the graph; uint64. A `seed` tensor is uint64 and broadcasts with `x`."""
    if isinstance(seed, int):
        z = x + _u64((seed + 1) * GOLDEN & _ONES)
    else:
        z = x + (seed + _u64(1)) * _u64(GOLDEN)
    shift, xor = tf.bitwise.right_shift, tf.bitwise.bitwise_xor
    z = xor(z, shift(z, _u64(30))) * _u64(0xBF58476D1CE4E5B9)
    z = xor(z, shift(z, _u64(27))) * _u64(0x94D049BB133111EB)
    return xor(z, shift(z, _u64(31)))


def _u64(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint64)


AUTOTUNE = tf.data.AUTOTUNE
READ_BYTES = 1 << 20
OTHER_ROWS = "another number of rows of a record than the plan counts"
_OTHER_COUNT = "Input dataset was expected to contain"
_DAMAGE = (tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError)


class Rows(NamedTuple):
    """The rows of one record as raw columns, the index of its shard, and its number in the shard."""

    columns: dict[str, RawColumn]
    shard: tf.Tensor
    number: tf.Tensor


class Reader:
    """Reads the records of shards as raw columns; see the module.

    Args:
        names: the names of the columns to parse.
    """

    def __init__(self, shards: Shards, names: Sequence[str]):
        self._shards = shards
        self._decoder = Decoder(shards.record_columns, names)
        self._paths = tf.constant(shards.paths, tf.string)
        self._memory = HeldRecords(shards) if isinstance(shards, InMemoryShards) else None

    def in_order(self) -> tf.data.Dataset:
        """Returns a dataset of all pieces (shard, number in the shard, serialized record), shard after shard."""
        return tf.data.Dataset.range(len(self._shards.paths)).flat_map(self._records)

    def in_epoch(self, plan: Plan, epoch: tf.Tensor, skip: tf.Tensor) -> tf.data.Dataset:
        """Returns a dataset of pieces in the plan's order of an epoch, without the first `skip` pieces (int64)."""

        def shard_order(epoch: int) -> NDArray[np.int64]:
            if self._staged:
                self._shards.announce_order(plan.shard_order(epoch), plan.shard_order(epoch + 1))
            return plan.shard_order(epoch)

        spec = tf.TensorSpec([len(self._shards.paths)], tf.int64)
        records = tf.data.Dataset.from_tensor_slices(numpy_op(shard_order, spec, stateful=self._staged)(epoch))
        return records.interleave(self._records, cycle_length=plan.cycle).skip(skip)

    def __call__(self, *piece: Any) -> Rows:
        """Parse a piece (shard, number, record). Returns the record's rows, with its shard and number."""
        shard, number, record = piece
        return Rows(self._decoder(record), shard, number)

    @property
    def _staged(self) -> bool:
        """Whether the shards are fetched from a bucket. Then `in_epoch` also starts to fetch the shards of its epoch and of the
        next one."""
        return self._shards.stager is not None

    def _records(self, shard: tf.Tensor) -> tf.data.Dataset:
        """Returns a dataset of one shard's pieces (shard, number in the shard, serialized record)."""
        if self._memory is not None:
            return self._memory(shard)
        path = tf.gather(self._paths, shard)
        count = tf.gather(tf.constant([len(rows) for rows in self._shards.rows], tf.int64), shard)
        stager = self._shards.stager
        records = tf.data.TFRecordDataset(path if stager is None else local_path(path, stager), buffer_size=READ_BYTES)
        # else a shorter file is read as a whole one
        records = records.apply(tf.data.experimental.assert_cardinality(count))
        return records.enumerate().map(lambda number, record: (shard, number, record))


class Decoder:
    """Decodes serialized records to raw columns. Only the columns `names` are parsed."""

    def __init__(self, columns: Sequence[Column], names: Sequence[str]):
        read = set(names)
        self.columns = [column for column in columns if column.name in read]
        self._spec = feature_spec(self.columns)

    def __call__(self, record: tf.Tensor) -> dict[str, RawColumn]:
        """Decode one serialized row group, a scalar, to raw columns."""
        parsed = self._parsed(record)
        nullable = [column.name for column in self.columns if column.nullable]
        present = {}
        if nullable:  # at once, since a wide table has thousands
            flags = tf.cast(tf.stack([parsed[f"{name}/present"] for name in nullable]), tf.bool)
            present = dict(zip(nullable, tf.unstack(flags, len(nullable)), strict=True))
        return {column.name: self._group(column, parsed, present.get(column.name)) for column in self.columns}

    def _parsed(self, record: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns each feature's values, as `tf.io.parse_single_example` gives them for FixedLenSequenceFeatures.

        That function makes a constant for each feature, and TensorFlow's graph optimizer compares every two constants: this takes
        minutes at thousands of columns. Here all features of a dtype share one constant.
        """
        types = [tf.as_dtype(entry["dtype"]) for entry in self._spec.values()]
        padding = {dtype: tf.zeros([], dtype) for dtype in types}
        parsed = tf.raw_ops.ParseExampleV2(
            serialized=record,
            names=[],
            sparse_keys=[],
            dense_keys=list(self._spec),
            ragged_keys=[],
            dense_defaults=[padding[dtype] for dtype in types],
            num_sparse=0,
            sparse_types=[],
            ragged_value_types=[],
            ragged_split_types=[],
            dense_shapes=[[None, *entry.get("shape", [])] for entry in self._spec.values()],
        )
        return dict(zip(self._spec, parsed.dense_values, strict=True))

    @staticmethod
    def _group(column: Column, parsed: Mapping[str, tf.Tensor], present: tf.Tensor | None) -> RawColumn:
        lengths = parsed[f"{column.name}/lengths"] if column.is_list else None
        if column.encoding == "dictionary":
            return RawColumn(parsed[f"{column.name}/dict"], present, parsed[f"{column.name}/codes"], lengths)
        return RawColumn(parsed[f"{column.name}/values" if column.is_list else column.name], present, None, lengths)


class _Values:
    """Computes a label for each value of the label column: the number itself, or the index of its class."""

    def __init__(self, label: LabelParameters):
        self._type, self._table = label.type, None
        if label.classes is not None:
            dtype = tf.string if label.type == "bytes" else tf.int64
            keys = tf.constant(list(label.classes), dtype)
            init = tf.lookup.KeyValueTensorInitializer(keys, tf.range(len(label.classes), dtype=tf.int64))
            self._table = tf.lookup.StaticHashTable(init, default_value=-1)

    def __call__(self, column: RawColumn) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns each row's label, and a mask of valid labels: known classes, finite numbers. Invalid labels are 0."""
        raw = column.plain()
        if self._table is not None:
            keys = raw if self._type != "float32" else tf.cast(tf.round(raw), tf.int64)
            index = self._table.lookup(keys)
            return tf.maximum(index, 0), index >= 0
        valid = tf.ones_like(raw, tf.bool) if raw.dtype.is_integer else tf.math.is_finite(raw)
        return tf.where(valid, raw, tf.zeros_like(raw)), valid


class Labeler:
    """Computes the label tensor of a task, and the rows' weights."""

    def __init__(
        self, label: LabelParameters, *, weight: Column | None = None, class_weights: Sequence[float] | None = None
    ):
        self._label, self._weight, self._values = label, weight, _Values(label)
        self.weighs_classes = class_weights is not None
        self._class_weights = None if class_weights is None else tf.constant(list(class_weights), tf.float32)

    @property
    def input_columns(self) -> list[str]:
        """The names of the columns that label and weights are computed from."""
        return [LABEL] + ([self._weight.name] if self._weight else [])

    def __call__(self, columns: Mapping[str, RawColumn]) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns label and weight, float32 [rows] each; for multiclass the label is an int32 class index.

        The weight is 0 if the label is an unknown class or not finite, or if the stored weight is null or not finite.
        """
        index, known = self._values(columns[LABEL])
        weight = tf.cast(known, tf.float32)  # 0 times NaN is NaN, so the label goes as well as the weight
        if self._class_weights is not None:
            weight *= tf.gather(self._class_weights, tf.cast(index, tf.int32))
        if self._weight is not None:
            column = columns[self._weight.name]
            weights = tf.cast(column.plain(), tf.float32)
            usable = tf.math.is_finite(weights)
            usable = usable if column.present is None else usable & column.present
            weight *= tf.where(usable, weights, tf.zeros_like(weights))
        return tf.cast(index, label_head(self._label).label_dtype), weight


def labeler(shards: Shards, parameters: TransformParameters, class_weights: Sequence[float] | None = None) -> Labeler:
    """Returns a labeler for the rows of these shards. It takes weights from the column with the role weight, if any."""
    weight = next((column for column in shards.columns if column.role == "weight"), None)
    return Labeler(parameters.label, weight=weight, class_weights=class_weights)


@tf.autograph.experimental.do_not_convert  # as above
def map_records(shards: Shards, names: Sequence[str], of: Callable[[dict[str, RawColumn]], Any]) -> Iterator[Any]:
    """Calls `of` with each record's raw columns, in the manifests' order, and yields the results. Parses only `names`."""
    reader = Reader(shards, names)
    shards.announce_order()
    pieces = reader.in_order()
    results = pieces.map(lambda *piece: of(reader(*piece).columns), num_parallel_calls=AUTOTUNE, deterministic=True)
    return with_data_errors(results, shards)


def map_shards(shards: Shards, column: str, of: Callable[[RawColumn], tf.Tensor]) -> Iterator[NDArray[Any]]:
    """Calls `of` with a column's raw values, and yields the results shard by shard, each joined over the shard's rows."""
    pieces = (piece.numpy() for piece in map_records(shards, [column], lambda columns: of(columns[column])))
    waiting: list[NDArray[Any]] = []
    for count in shards.row_counts:
        while sum(map(len, waiting)) < count or not waiting:
            waiting.append(next(pieces))
        every = np.concatenate(waiting)
        yield every[:count]
        waiting = [every[count:]]


def classes_of(shards: Shards, labeler: Labeler) -> list[NDArray[Any]]:
    """Returns for each shard the class index of each row. Only the columns that the labeler needs are parsed."""
    labels = map_records(shards, labeler.input_columns, lambda columns: tf.cast(labeler(columns)[0], tf.uint16))
    classes = [label.numpy() for label in labels]
    classes = [each.astype(np.min_scalar_type(int(each.max(initial=0)))) for each in classes]
    return np.split(np.concatenate([np.zeros(0, np.uint8), *classes]), np.cumsum(shards.row_counts)[:-1])


def least_label(shards: Shards, labeler: Labeler) -> float:
    """Returns the smallest label among rows of positive weight; infinity if there are none. Parses only what this needs."""

    def least(columns: dict[str, RawColumn]) -> tf.Tensor:
        label, weight = labeler(columns)
        return tf.reduce_min(tf.where(weight > 0, label, math.inf))

    return min((float(label) for label in map_records(shards, labeler.input_columns, least)), default=math.inf)


def with_data_errors(dataset: Any, shards: Shards) -> Iterator[Any]:
    """Yields the elements of the dataset. For a damaged shard it raises a DataError with the file and, if known, the byte.

    Raises:
        DataError: a shard is cut off, changed or gone. StoreError: it cannot be fetched.
        ConfigError: the user's preprocess failed.
        PythonOpError: a Python function in the pipeline failed; of a python_op the cause is the function's exception.
    """
    try:
        yield from dataset
    except UnicodeDecodeError:  # of an error that quotes a damaged record
        raise _named(None, shards) from None
    except tf.errors.OpError as error:
        if shards.stager is not None and shards.stager.error is not None:
            raise shards.stager.error from None
        reraise(error)
        if message := python_text(error):
            raise PythonOpError(
                f"a Python function of the input pipeline raised {message}",
                fix="make it a tfcore.graph.python_op: its exception then comes with its whole traceback",
            ) from error
        if SCOPE in (op_of(error) or "").split("/"):
            raise ConfigError(f"the function failed on the data: {why(error)}", where=SCOPE) from None
        if isinstance(error, _DAMAGE) or _OTHER_COUNT in str(error.message):
            raise _named(error, shards) from None
        raise


def _named(error: tf.errors.OpError | None, shards: Shards) -> DataError:
    """Returns a DataError that names the damaged file: all files are read again and checked, since TensorFlow's error names none.
    If all are whole, it says that a transformation changed the rows, or that records do not fit the manifest."""
    for path, rows in () if isinstance(shards, InMemoryShards) else zip(shards.paths, shards.rows, strict=True):
        try:
            count = sum(1 for _ in read_records(Path(shards.stager.ensure(path) if shards.stager else path)))
        except DataError as damage:
            return damage
        if count != len(rows):
            return DataError(
                f"the file holds {counted(count, 'record')}, and its manifest counts {len(rows):,}",
                where=str(path),
                fix="delete the folder: the next run ingests the span anew",
            )
    message = str(error.message) if error is not None else "one is not a tf.Example"
    if OTHER_ROWS in message or _OTHER_COUNT in message:
        return DataError(
            f"gives {OTHER_ROWS}: a transformation drops some, adds some, or cuts them anew",
            where="tfcore.data.dataset.prepare",
            fix="give as many rows of each record as come in; to leave one out, set its weight to 0",
        )
    lines = re.sub(r"\{\{.*?\}\} ", "", message).strip().splitlines() or [""]
    return DataError(
        f"the shards are whole, but their records cannot be used as the manifest describes them: {lines[0]}",
        where=str(Path(shards.paths[0]).parent) if shards.paths else None,
        fix="delete the folder: the next run ingests the span anew",
    )


@contextlib.contextmanager
def staged(remote: RemoteFiles | None, monitor: Monitor) -> Iterator[Stager | None]:
    """Yields a stager for a stage's shards; None without `remote`. At the end the bytes fetched and seconds waited are logged."""
    if remote is None:
        yield None
        return
    with Stager(remote, cancelled=monitor.cancelled) as stager:
        yield stager
        if stager.fetched:
            monitor.log(
                f"fetched {counted(stager.fetched, 'shard')}, {stager.fetched_bytes / 1e6:,.1f} MB, while reading; "
                f"waited {stager.waited:.1f} s for them"
            )


def local_path(path: tf.Tensor, stager: Stager) -> tf.Tensor:
    """Returns the local path of a file, a string tensor, once the file is fetched. Keeps errors in `stager.error`."""
    local = tf.numpy_function(lambda name: stager.ensure(name.decode()).encode(), [path], tf.string)
    return tf.ensure_shape(local, [])


@dataclass(frozen=True)
class InMemoryShards(Shards):
    """`Shards` whose records are in memory; its paths are names for messages only."""

    records: tuple[tuple[bytes, ...], ...] = ()
    """The serialized records of each shard."""


class HeldRecords:
    """The records of in-memory shards as tensors, made outside any graph, so that no graph holds a copy."""

    def __init__(self, shards: InMemoryShards):
        self._records = tf.constant([record for shard in shards.records for record in shard], tf.string)
        counts = [len(shard) for shard in shards.records]
        self._begin = tf.constant(np.concatenate([[0], np.cumsum(counts)]), tf.int64)

    def __call__(self, shard: tf.Tensor) -> tf.data.Dataset:
        """Returns a dataset of one shard's pieces (shard, number in the shard, serialized record)."""
        first, count = self._begin[shard], self._begin[shard + 1] - self._begin[shard]
        return tf.data.Dataset.range(count).map(lambda number: (shard, number, self._records[first + number]))
