"""A raw column in the graph: its values, a mask of the values that are there, codes of a dictionary, lengths of lists."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from headway.schema.columns import Column

DTYPES: dict[str, tf.DType] = {"int64": tf.int64, "float32": tf.float32, "bytes": tf.string}
"""The TensorFlow dtypes by the type of a column."""


class RawColumn(NamedTuple):
    """A raw column in the graph. `values` is [rows]. With `codes` [rows], `values` are distinct, and each code points to one.

    In a vector column, values or codes are [rows, n]. In a list column they are flat. `lengths`, int64 [rows], is then the number
    of values of each row; 0 for a null row.
    """

    values: tf.Tensor
    present: tf.Tensor | None
    """Whether each row has a value, bool [rows]; None: no row is null."""
    codes: tf.Tensor | None = None
    lengths: tf.Tensor | None = None

    def plain(self) -> tf.Tensor:
        """Returns the value of each row, or the values of all lists; "" or 0 for null."""
        return self.values if self.codes is None else gather(self.values, self.codes)

    def rows(self) -> tf.Tensor:
        each = self.values if self.codes is None else self.codes
        return tf.shape(each if self.lengths is None else self.lengths)[0]

    def padded(self, width: Any, filler: Any) -> tf.Tensor:
        """Returns a list column as [rows, width]: shorter lists are filled up with `filler`, longer ones cut."""
        return pad(self.plain(), self.lengths, width, filler)


class PackedColumns:
    """Packs the columns of a batch into few tensors, so that a dataset of a thousand columns is built in seconds, not
    in minutes.

        packed = PackedColumns(columns, ["x", "s"])
        dataset = dataset.map(lambda columns: packed.pack(columns, {}))    # packed/float32 [rows, 1], packed/present [rows, 2]
        values = packed.unpack(next(iter(dataset)))                        # raw/x, raw/x/present, raw/s, raw/s/present

    Args:
        columns: the stored columns.
        names: the columns that are packed, each once.
    """

    def __init__(self, columns: Sequence[Column], names: Sequence[str] = ()):
        stored = {column.name: column for column in columns}
        chosen = [stored[name] for name in names]
        self.lists = [column.name for column in chosen if column.is_list]
        self.names = list(names)
        self._alone = [column.name for column in chosen if column.shape]
        self._together: dict[str, list[str]] = {}
        """The names of scalar columns by dtype."""
        for column in chosen:
            if not column.shape:
                self._together.setdefault(DTYPES[column.type].name, []).append(column.name)

    def pack(self, columns: Mapping[str, RawColumn], longest: Mapping[str, int]) -> dict[str, tf.Tensor]:
        """Returns the columns in few tensors, with "" or 0 for a null. `longest` has, for each list column, the length to which
        its lists are padded."""
        packed = {}
        for dtype, names in self._together.items():
            packed[f"packed/{dtype}"] = tf.stack([columns[name].plain() for name in names], 1)
        for name in self._alone:
            column = columns[name]
            if column.lengths is None:
                packed[f"raw/{name}"] = column.plain()
            else:
                packed[f"raw/{name}"] = column.padded(longest[name], tf.zeros([], column.values.dtype))
                packed[f"raw/{name}/length"] = column.lengths
        if self.names:
            rows = columns[self.names[0]].rows()
            there = [tf.ones([rows], tf.bool) if (c := columns[n]).present is None else c.present for n in self.names]
            packed["packed/present"] = tf.stack(there, 1)
        return packed

    def unpack(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the batch with raw/<name> and raw/<name>/present of each packed column in place of packed/..."""
        found = {name: value for name, value in batch.items() if not name.startswith("packed/")}
        with tf.device("CPU"):  # where the dataset left them: a GPU would take each column and give it back
            for dtype, names in self._together.items():
                values = tf.unstack(batch[f"packed/{dtype}"], len(names), 1)
                found |= {f"raw/{name}": value for name, value in zip(names, values, strict=True)}
            if self.names:
                present = tf.unstack(batch["packed/present"], len(self.names), 1)
                found |= {f"raw/{name}/present": value for name, value in zip(self.names, present, strict=True)}
        return found


def raw_columns(chunk: Mapping[str, tf.Tensor], columns: Sequence[Column]) -> dict[str, RawColumn]:
    """Returns the raw columns of a chunk of classic tf.Examples, in the form in which `tfcore.ops.example_parser` parses it."""
    return {
        column.name: RawColumn(
            chunk[column.name], chunk.get(f"{column.name}/present"), None, chunk.get(f"{column.name}/lengths")
        )
        for column in columns
    }


def pad(values: tf.Tensor, lengths: tf.Tensor, width: Any, filler: Any) -> tf.Tensor:
    ragged = tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)
    return ragged.to_tensor(default_value=tf.cast(filler, values.dtype), shape=[None, width])


def gather(values: tf.Tensor, codes: tf.Tensor) -> tf.Tensor:
    """Returns the value of each code. A code outside of the dictionary raises an error of TensorFlow's."""
    # a record whose rows are all null has an empty dictionary, and code 0 must still be good for something
    spare = tf.cast(tf.equal(tf.size(values), 0), tf.int32)
    return tf.gather(tf.concat([values, tf.zeros([spare], values.dtype)], 0), codes)
