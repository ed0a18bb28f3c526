"""Runs the user's `preprocess(columns) -> columns` in the graph: the same function for analysis, training and serving.

    columns = derive(load_preprocess(file, "features:preprocess"), raw, stored)

The function gets a dict of tensors, a whole row group at a time: each raw column under its name ([rows], [rows, n] for a
vector, a RaggedTensor for a list; 0 or "" for null) and, where a column may be null, `<name>__present` (bool [rows]). It
returns a dict of new columns in the same form. AutoGraph converts it. It never sees the label.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from headway.errors import ConfigError
from headway.schema.columns import LABEL, Column, StoredType, no_column
from headway.schema.tensor_name import PRESENT
from headway.user_code.loading import line_of, load_function
from tfcore.transform.raw_column import RawColumn

Preprocess = Callable[[Mapping[str, Any]], Mapping[str, Any]]
SCOPE = "preprocess"
"""The name scope of the user's ops. By it an error in the user's ops is told from a damaged shard."""


def load_preprocess(file: Path, function: str) -> Preprocess:
    """Load the function "module:function" from the user's file, and convert it by AutoGraph. A tf.Module is not converted.

    Raises:
        ConfigError: the file or the function does not exist, or the file does not run.
    """
    loaded = load_function(file, function.partition(":")[2])
    converted = loaded if isinstance(loaded, tf.Module) else tf.autograph.to_graph(loaded)

    def preprocess(columns: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            result = converted(columns)
        except ConfigError:
            raise
        except Exception as error:
            lines = str(error).strip().splitlines()
            reason = lines[-1].strip() if lines else type(error).__name__
            raise ConfigError(
                f"the function failed: {type(error).__name__}: {reason}",
                where=f"{function} ({_place(error, converted, file)})",
            ) from error
        mapping = isinstance(result, Mapping)
        if not mapping or not result:
            raise ConfigError(
                "returned no columns" if mapping else f"returned a {type(result).__name__}",
                where=function,
                fix="return a dict of new columns: {'route': tf.strings.join([...])}",
            )
        return result

    preprocess.module = loaded if isinstance(loaded, tf.Module) else None  # type: ignore[attr-defined]
    return preprocess


def _place(error: BaseException, converted: Any, file: Path) -> str:
    """Returns the file and line of the user's code that failed. AutoGraph runs converted code from another file, whose lines are
    mapped back."""
    origins = {
        (place.filename, place.lineno): origin.loc.lineno
        for place, origin in getattr(converted, "ag_source_map", {}).items()
    }
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    lines = [origins[frame] for frame in frames if frame in origins]
    return f"{file.name}, line {lines[-1]}" if lines else line_of(error, file)


class ReadRecorder(dict[str, Any]):
    """The tensors that the user's function gets, by name; `names_read` has the names that the function has read."""

    def __init__(self, tensors: Mapping[str, Any]):
        super().__init__(tensors)
        self.names_read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise no_column(name, [n for n in self if PRESENT not in n], where="preprocess")
        self.names_read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except ConfigError:
            return default

    def values(self) -> Any:
        self.names_read |= set(self)
        return super().values()

    def items(self) -> Any:
        self.names_read |= set(self)
        return super().items()


def derive(
    function: Preprocess, columns: Mapping[str, RawColumn], stored: Sequence[Column]
) -> tuple[dict[str, RawColumn], tuple[Column, ...], tuple[Column, ...]]:
    """Run the preprocess function. Returns the new columns, their specs, and which of the `stored` columns it has read.

    Raises:
        ConfigError: the function fails, reads no column, or returns what cannot be a column; with the column's name.
    """
    derived: dict[str, RawColumn] = {}
    specs: list[Column] = []
    with tf.name_scope(SCOPE):
        reading = ReadRecorder(_tensors(columns, stored))
        results = function(reading)
        rows = next(iter(columns.values())).rows()
        for name, value in results.items():
            if name.endswith(PRESENT) and name.removesuffix(PRESENT) in results:
                continue
            if name == LABEL or name in reading or "/" in name or not name:
                raise ConfigError(
                    f"gives a column {name!r}: {'a raw column has that name' if name in reading else 'that name is taken'}",
                    where="preprocess",
                    fix="give it another name",
                )
            derived[name], spec = _column(name, value, results.get(name + PRESENT), rows)
            specs.append(spec)
    reads = tuple(c for c in stored if reading.names_read & {c.name, c.name + PRESENT})
    if not reads:
        raise ConfigError("reads no column", where="preprocess", fix="compute its columns from those it is given")
    return derived, tuple(specs), reads


def _tensors(columns: Mapping[str, RawColumn], stored: Sequence[Column]) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    for column in stored:
        raw = columns[column.name]
        value = raw.plain()
        if raw.lengths is not None:
            value = tf.RaggedTensor.from_row_lengths(value, raw.lengths, validate=False)
        tensors[column.name] = value
        if column.nullable:
            tensors[column.name + PRESENT] = tf.ones([raw.rows()], tf.bool) if raw.present is None else raw.present
    return tensors


def _column(name: str, value: Any, present: Any, rows: tf.Tensor) -> tuple[RawColumn, Column]:
    ragged = isinstance(value, tf.RaggedTensor)
    try:
        value = value if ragged else tf.convert_to_tensor(value)
        flat, kind = _stored(value.flat_values if ragged else value)
    except (TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"column {name!r} is not a tensor of numbers or text: {reason}", where="preprocess") from None
    shape = (None,) if ragged else tuple(flat.shape.as_list()[1:]) if flat.shape.rank else None
    if (ragged and value.ragged_rank != 1) or shape is None or len(shape) > 1 or (not ragged and None in shape):
        raise ConfigError(
            f"column {name!r} has the shape {value.shape}",
            where="preprocess",
            fix="give [rows], [rows, n] with a fixed n, or a RaggedTensor [rows, None]",
        )
    lengths = value.row_lengths() if ragged else None
    count = tf.shape(lengths if ragged else flat)[0]
    if present is not None:
        present = tf.ensure_shape(tf.cast(present, tf.bool), [None])
    check = tf.debugging.Assert(tf.equal(count, rows), [f"preprocess: {name} has", count, "rows of", rows])
    with tf.control_dependencies([check]):
        flat = tf.identity(flat)
    column = Column(name=name, type=kind, nullable=present is not None, shape=shape)
    return RawColumn(flat, present, None, None if lengths is None else tf.cast(lengths, tf.int64)), column


def _stored(value: tf.Tensor) -> tuple[tf.Tensor, StoredType]:
    """Returns the values of a derived column in a stored type, and that type. Raises a TypeError if no stored type fits."""
    if value.dtype == tf.string:
        return value, "bytes"
    if value.dtype == tf.bool or value.dtype.is_integer:
        return tf.cast(value, tf.int64), "int64"
    if value.dtype.is_floating:
        return tf.cast(value, tf.float32), "float32"
    raise TypeError(f"its type is {value.dtype.name}")
