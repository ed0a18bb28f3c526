"""Classic tf.Examples, one row per record, as columns.

    read_examples(paths, columns)                 # a dataset of chunks of rows
    read_runs(paths, first, count, columns)       # given records of given files; the op in C++
    parse_examples(records, columns)              # its twin in TensorFlow's own ops, from serialized records

A chunk of columns is a flat dict: `c` the values ([rows], [rows, n] for a vector, all lists one behind the other for a list),
`c/present` bool [rows] where the column is nullable, `c/lengths` int64 [rows] of a list. A null is 0 or "" (or zeros, or no
values). An absent feature or an empty one is null; a nullable list says so itself by a feature `c/present`, since stock
parsers take an empty list for an absent one: lists that others wrote are not nullable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from headway.errors import DataError
from headway.records.spec import feature_spec
from headway.schema.columns import Column
from tfcore.ops.damage import as_bytes, in_records, may_be_damage, translated
from tfcore.ops.library import library
from tfcore.ops.whole import is_gzip, only_of_a_whole_file

_FORMS = {"scalar": 0, "optional": 1, "ragged": 2}
_READ_BYTES = 1 << 20
Chunk = dict[str, tf.Tensor]


def read_examples(
    paths: str | Path | Sequence[str | Path],
    columns: Sequence[Column],
    *,
    rows: int = 4096,
    cycle: int = 8,
    native: bool | None = None,
) -> tf.data.Dataset:
    """Read TFRecord files of classic tf.Examples, plain or GZIP, as chunks of columns (see the module).

    Args:
        paths: files, or folders whose *.tfrecord* files are meant, in the order of their names.
        rows: of a chunk; the last of a file may have fewer.
        cycle: files that take turns, a chunk each. 1: one file after the other.
        native: True: only by the op in C++; False: only without it. None: by the op where it is built.

    Raises:
        DataError: there is no such file.
        tf.errors.DataLossError: (while iterating) a file is cut off or damaged, or a record is not a tf.Example. Without the
            op that holds for this dataset; of one made from it, by `map` say, TensorFlow's own error comes (`tfcore.ops.damage`).
        tf.errors.InvalidArgumentError: (while iterating) a record is not of these columns.
    """
    files = _files(paths)
    _check(columns)
    lone = len(files) == 1
    if native if native is not None else library() is not None:
        # a gzip file can only be read from its beginning on, so its chunks cannot be read side by side
        inside = lone and not is_gzip(files[0])

        def chunks(path: tf.Tensor) -> tf.data.Dataset:
            def chunk(number: tf.Tensor) -> tuple[tf.Tensor, Chunk]:
                return _run(path[None], (number * rows)[None], tf.constant([rows], tf.int64), columns, exact=False)

            numbers = tf.data.Dataset.range(np.iinfo(np.int64).max // rows)
            read = numbers.map(chunk, **_parallel(inside))
            return read.take_while(lambda count, _: count > 0).map(lambda _, columns: columns)

        dataset = tf.data.Dataset.from_tensor_slices(files).interleave(chunks, cycle, 1, **_parallel(not lone))
    else:

        def parsed(path: tf.Tensor, compression: tf.Tensor) -> tf.data.Dataset:
            records = tf.data.TFRecordDataset(path, compression_type=compression, buffer_size=_READ_BYTES)
            batches = only_of_a_whole_file(records.batch(rows), path, compression)
            return batches.map(lambda r: parse_examples(r, columns), **_parallel(lone))

        kinds = ["GZIP" if is_gzip(path) else "" for path in files]
        both = tf.data.Dataset.from_tensor_slices((files, kinds))
        dataset = both.interleave(parsed, cycle, 1, **_parallel(not lone))
        return translated(dataset.prefetch(tf.data.AUTOTUNE), files, lambda some: columns_of(some, columns))
    return dataset.prefetch(tf.data.AUTOTUNE)


def _parallel(yes: bool) -> dict[str, Any]:
    return {"num_parallel_calls": tf.data.AUTOTUNE, "deterministic": True} if yes else {}


def read_runs(paths: tf.Tensor, first: tf.Tensor, count: tf.Tensor, columns: Sequence[Column]) -> Chunk:
    """Read records first[i] to first[i] + count[i] of file paths[i] for all i; int64 and string vectors of one length.

    Raises:
        tf.errors.DataLossError: a file is damaged or holds fewer records; it names file, record and byte.
        tf.errors.InvalidArgumentError: a record is not of these columns.
    """
    return _run(paths, first, count, columns, exact=True)[1]


def _run(
    paths: tf.Tensor, first: tf.Tensor, count: tf.Tensor, columns: Sequence[Column], *, exact: bool
) -> tuple[tf.Tensor, Chunk]:
    ops = library()
    if ops is None:
        raise RuntimeError("the op is not built: python -m tfcore.ops.compile")
    spec = feature_spec(columns, 1)
    read = ops.headway_read_examples(
        paths=paths,
        first=first,
        count=count,
        names=list(spec),
        types=[tf.as_dtype(entry["dtype"]) for entry in spec.values()],
        forms=[_FORMS[entry["kind"]] for entry in spec.values()],
        sizes=[entry.get("shape", [0])[0] for entry in spec.values()],
        N=len(spec),
        exact=exact,
    )
    places = {name: i for i, name in enumerate(spec)}
    chunk: Chunk = {}
    for column in columns:
        i = places[column.name]
        chunk[column.name] = read.values[i]
        if column.is_list:
            chunk[f"{column.name}/lengths"] = read.lengths[i]
        if column.nullable:
            present = read.values[places[f"{column.name}/present"]] != 0 if column.is_list else read.present[i]
            chunk[f"{column.name}/present"] = present
    return read.rows, chunk


def parse_examples(records: tf.Tensor, columns: Sequence[Column]) -> Chunk:
    """Parse serialized tf.Examples, string [rows], to columns.

    Raises:
        tf.errors.DataLossError: a record is not a tf.Example. In a graph, which cannot catch TensorFlow's own error, that is
            an InvalidArgumentError, or a UnicodeDecodeError where its message cannot be read.
        tf.errors.InvalidArgumentError: a record is not of these columns.
    """
    try:
        return columns_of(records, columns)
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:
        damage = in_records(as_bytes(records), lambda some: columns_of(some, columns)) if may_be_damage(error) else None
        if damage is None:
            raise
        raise damage from None


def columns_of(records: tf.Tensor, columns: Sequence[Column], *, stored: bool = True) -> Chunk:
    """Parse like `parse_examples`, with TensorFlow's own errors.

    Args:
        stored: a nullable list says by `c/present` whether it is there; else only one that is empty has to.
    """
    spec: dict[str, Any] = {}
    names = {column.name for column in columns}
    for name, entry in feature_spec(columns, 1).items():
        dtype = tf.as_dtype(entry["dtype"])
        if entry["kind"] == "scalar" and (stored or name in names):
            spec[name] = tf.io.FixedLenFeature(entry.get("shape", []), dtype)
        else:
            spec[name] = tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
    parsed = tf.io.parse_example(records, spec)
    chunk = _optional_scalars({c.name: parsed[c.name] for c in columns if c.nullable and not c.shape})
    for column in columns:
        name, value = column.name, parsed[column.name]
        if column.is_list:
            chunk[name], chunk[f"{name}/lengths"] = value.flat_values, value.row_lengths()
            if column.nullable:
                marks = parsed[f"{name}/present"]
                present = marks != 0 if stored else (value.row_lengths() > 0) | (tf.reduce_sum(marks, 1) > 0)
                chunk[f"{name}/present"] = present
        elif not column.nullable:
            chunk[name] = value
        elif column.shape:
            chunk[name], chunk[f"{name}/present"] = _optional(value, column)
    return chunk


def _optional_scalars(ragged: Mapping[str, tf.RaggedTensor]) -> Chunk:
    """Columns of at most one value per row, all of one dtype at once: `c` [rows], 0 or "" for null, and `c/present`."""
    kinds: dict[tf.DType, list[str]] = {}
    for name, value in ragged.items():
        kinds.setdefault(value.dtype, []).append(name)
    chunk: Chunk = {}
    for names in kinds.values():
        splits = tf.stack([ragged[name].row_splits for name in names])
        lengths = splits[:, 1:] - splits[:, :-1]
        several = tf.boolean_mask(tf.constant(names), tf.reduce_any(lengths > 1, 1))
        before = "an example holds several values of column "
        message = before + tf.strings.reduce_join(several, separator=", ")
        with tf.control_dependencies([tf.debugging.Assert(tf.size(several) == 0, [message], name="fits")]):
            present = lengths > 0
        flat = [ragged[name].flat_values for name in names]
        flat = tf.concat([*flat, tf.zeros([1], flat[0].dtype)], 0)
        # gathered, not scattered: scatter_nd adds to zero, which turns -0.0 into 0.0
        places = splits[:, :-1] + tf.cumsum(splits[:, -1], exclusive=True)[:, None]
        values = tf.gather(flat, tf.where(present, places, tf.size(flat, tf.int64) - 1))
        chunk |= zip(names, tf.unstack(values, len(names)), strict=True)
        chunk |= zip((f"{name}/present" for name in names), tf.unstack(present, len(names)), strict=True)
    return chunk


def _optional(value: tf.RaggedTensor, column: Column) -> tuple[tf.Tensor, tf.Tensor]:
    """(values, present) of a nullable vector."""
    lengths, size = value.row_lengths(), column.length
    fits = tf.reduce_all((lengths == 0) | (lengths == size))
    message = f"feature {column.name!r} holds another number of values than {size}"
    with tf.control_dependencies([tf.debugging.Assert(fits, [message], name="fits")]):
        present = lengths > 0
    rows = tf.reshape(value.flat_values, [-1, size])
    # gathered, not scattered: scatter_nd adds to zero, which turns -0.0 into 0.0
    rows = tf.concat([rows, tf.zeros([1, *rows.shape[1:]], rows.dtype)], 0)
    null = tf.shape(rows, tf.int64)[0] - 1
    return tf.gather(rows, tf.where(present, value.row_starts() // size, null)), present


def _check(columns: Sequence[Column]) -> None:
    names = [column.name for column in columns]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"name each column once, and at least one: {names}")


def _files(paths: str | Path | Sequence[str | Path]) -> list[str]:
    names = [paths] if isinstance(paths, str | Path) else list(paths)
    files: list[str] = []
    for path in map(str, names):
        if tf.io.gfile.isdir(path):
            in_folder = sorted(tf.io.gfile.glob(f"{path.rstrip('/')}/*.tfrecord*"))
            if not in_folder:
                raise DataError("the folder holds no .tfrecord file", where=path)
            files += in_folder
        elif tf.io.gfile.exists(path):
            files.append(path)
        else:
            raise DataError("there is no such file", where=path)
    if not files:
        raise DataError("no file was named")
    return files
