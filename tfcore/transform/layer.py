"""The transform as a graph: the same tf.Module in the input pipeline and in the exported model.

    transform = Transform(parameters)
    inputs = transform({"carrier": RawColumn(values=..., present=None, codes=None), ...})
    inputs["numeric"], inputs["categorical"]          # float32 [rows, n], int32 [rows, m]
    inputs["lists"]                                   # int32 [rows, width of all lists], where a column holds several ids

Dictionary columns are looked up by their distinct values and then gathered by row. Integers are centred in float64,
since float32 cannot tell large ones apart.

Numeric columns with the same kinds of operations are stacked into one tensor, and transformed together. An op for each column
would cost half a millisecond each time a graph is traced, saved or loaded: minutes for 5,000 columns with several operations. The
computation is elementwise, so a column's values have the same bits as if computed alone. Only a logarithm may differ in its last
bit, which depends on the value's position in a vector. Each vector, list and category is computed by itself.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from headway.errors import ConfigError
from headway.schema.calendar_days import part_of
from tfcore.transform.images import ImageDecoder, decode_images
from tfcore.transform.parameters import Fitted, FittedOp, TransformParameters, image_input
from tfcore.transform.preprocess import derive, load_preprocess
from tfcore.transform.raw_column import RawColumn, gather, pad

DENSE = 1 << 16
"""The longest range of integers whose ids are looked up in an array, which takes a tenth of a hash table's time."""


class Vocabulary(tf.Module):
    """Maps values to ids. Known values have the first ids, by falling train count. Other values are hashed into the
    out-of-vocabulary buckets, whose ids follow. An export of the vocabulary needs no files."""

    def __init__(self, op: FittedOp):
        super().__init__(name="vocabulary")
        self._size, self._buckets = len(op.values), op.oov_buckets or 1
        integers = op.integers or () if op.words is None else ()
        near = bool(integers) and max(integers) - min(integers) < DENSE
        self._low = min(integers) if near else 0
        self._ids = tf.constant(_dense(integers)) if near else None
        # a table cannot be made of nothing
        self._table = _table(op.values) if op.values and not near else None

    def __call__(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the ids, int64, of the shape of `values`."""
        if self._ids is not None:
            # a difference that overflows wraps round to a place that no other value has, so it cannot look known
            places = values - self._low
            inside = (places >= 0) & (places < tf.size(self._ids, tf.int64))
            ids = tf.gather(self._ids, tf.where(inside, places, tf.zeros_like(places)))
            ids = tf.where(inside, ids, -tf.ones_like(ids))
        elif self._table is not None:
            ids = self._table.lookup(values)
        else:
            return self._unknown(values)
        return tf.where(ids >= 0, ids, self._unknown(values))

    def _unknown(self, values: tf.Tensor) -> tf.Tensor:
        if self._buckets == 1:
            return tf.fill(tf.shape(values), tf.constant(self._size, tf.int64))
        text = values if values.dtype == tf.string else tf.strings.as_string(values)
        return self._size + tf.strings.to_hash_bucket_fast(text, self._buckets)


def _dense(integers: Sequence[int]) -> Any:
    """Returns the ids of all integers from the least to the greatest of `integers`; -1 for integers not among these."""
    ids = np.full(max(integers) - min(integers) + 1, -1, np.int64)
    ids[np.asarray(integers, np.int64) - min(integers)] = np.arange(len(integers))
    return ids


def _table(keys: Sequence[Any]) -> tf.lookup.StaticHashTable:
    dtype = tf.int64 if isinstance(keys[0], int) else tf.string
    rows = tf.lookup.KeyValueTensorInitializer(tf.constant(list(keys), dtype), tf.range(len(keys), dtype=tf.int64))
    return tf.lookup.StaticHashTable(rows, default_value=-1)


MOST_TRACED = 500
"""The most columns for which a tf.function is made, since each tensor of each column is an argument of the function."""


class Block(NamedTuple):
    """Numeric inputs that were computed together, in one tensor: `values` is float32 [names, rows]."""

    names: tuple[str, ...]
    values: tf.Tensor


class Transform(tf.Module):
    """The layer that turns raw columns into model inputs.

    Args:
        parameters: fitted on train statistics.
        preprocess: the user's function, when the parameters have derived columns; see `tfcore.transform.preprocess`.
        tolerant: in an input pipeline, the decoder that skips images that TensorFlow refuses; None in an export.
    """

    def __init__(
        self,
        parameters: TransformParameters,
        preprocess: Callable[[Mapping[str, RawColumn]], Mapping[str, RawColumn]] | None = None,
        tolerant: ImageDecoder | None = None,
    ):
        super().__init__(name="transform")
        if parameters.derived is not None and preprocess is None:
            raise ValueError("the parameters have derived columns: give the function that makes them")
        self.parameters = parameters
        self._preprocess = preprocess
        self._tolerant = tolerant
        self.user_module = getattr(preprocess, "module", None)  # so that an export finds its variables and tables
        self.vocabularies = {
            fitted.column.name: Vocabulary(fitted.ops[-1])
            for fitted in parameters.fitted
            if fitted.size is not None and fitted.ops[-1].op == "vocabulary"
        }
        traced = tf.function(self._compute, autograph=False)
        # in a lambda: an attribute that is a tf.function would be saved as one that can be called
        self._traced = lambda columns: traced(columns)

    def __call__(self, columns: Mapping[str, RawColumn]) -> dict[str, tf.Tensor]:
        """Returns the model inputs by name, with columns in the parameters' order: "numeric" float32 [rows, n], "categorical"
        int32 [rows, m]. Lists of categories add "lists": int32 [rows, width of all], -1 behind a list's end. An image's pixels
        are under the `image_input` of its column. With `tolerant`, images add "usable": bool [rows], false if a row's image was
        refused."""
        blocks, named, usable = self._computed(columns)
        rows = next(iter(columns.values())).rows()
        parameters = self.parameters
        categorical = [named[entry.name] for entry in parameters.categorical]
        lists = [named[entry.name] for entry in parameters.lists]
        inputs = {
            "numeric": self._numeric(blocks, named) if parameters.numeric else tf.zeros([rows, 0], tf.float32),
            "categorical": tf.stack(categorical, 1) if categorical else tf.zeros([rows, 0], tf.int32),
        }
        if lists:
            inputs["lists"] = tf.concat(lists, 1)
        for fitted in parameters.fitted:
            if fitted.pixels is not None:
                inputs[image_input(fitted.column.name)] = named[fitted.column.name]
        return inputs | {"usable": tf.reduce_all(tf.stack(usable), 0)} if usable else inputs

    def named(self, columns: Mapping[str, RawColumn]) -> dict[str, tf.Tensor]:
        """Returns each single input by its name: float32 or int32, [rows]; [rows, n] for vectors and lists of categories; an
        image's pixels."""
        blocks, named, _ = self._computed(columns)
        for block in blocks:
            named |= zip(block.names, tf.unstack(block.values, len(block.names)), strict=True)
        return {name: named[name] for fitted in self.parameters.fitted for name in _outputs(fitted)}

    def _computed(self, columns: Mapping[str, RawColumn]) -> tuple[list[Block], dict[str, tf.Tensor], list[tf.Tensor]]:
        """Returns the numeric inputs in blocks, the other inputs by name, and masks of usable rows, one for each image column.

        Up to MOST_TRACED columns are traced only once for the same types and shapes, although several graphs may call it.
        """
        columns = {column.name: columns[column.name] for column in self.parameters.raw}
        eager = tf.executing_eagerly() or len(columns) > MOST_TRACED
        blocks, outputs, usable = (self._compute if eager else self._traced)(columns)
        return [Block(names, values) for (_, *names), values in blocks.items()], dict(outputs), usable

    def _compute(
        self, columns: Mapping[str, RawColumn]
    ) -> tuple[dict[Any, tf.Tensor], dict[str, tf.Tensor], list[tf.Tensor]]:
        """Compute what `_computed` returns, with the blocks as {(number of the block, *names): values}."""
        if self._preprocess is not None:
            columns = {**columns, **self._preprocess(columns)}
        columns = {**columns}
        for part in self.parameters.parts:  # a column of its own each, null where its source is
            source, values = columns[part.source.name], columns[part.source.name].values
            assert part.source.temporal is not None
            columns[part.name] = source._replace(values=part_of(values, part.source.temporal, part.part))
        blocks, outputs = numeric_inputs(self.parameters.fitted, columns)
        for fitted in self.parameters.fitted:
            if fitted.size is not None:
                name = fitted.column.name
                outputs[name] = _category(fitted, columns[name], self.vocabularies.get(name))
        usable: list[tf.Tensor] = []
        for fitted in self.parameters.fitted:
            if fitted.pixels is not None:
                pixels, good = self._image(fitted, columns[fitted.column.name])
                outputs |= pixels
                usable += [] if good is None else [good]
        return {(place, *names): values for place, (names, values) in enumerate(blocks)}, outputs, usable

    def _numeric(self, blocks: Sequence[Block], named: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns all numeric inputs, vectors too, in the parameters' order; float32 [rows, n]."""
        together = {name for block in blocks for name in block.names}
        parts: list[list[str] | tf.Tensor] = []
        for fitted in self.parameters.fitted:
            for name in _outputs(fitted) if fitted.size is None else ():
                if name in together:
                    if not parts or not isinstance(parts[-1], list):
                        parts.append([])
                    parts[-1].append(name)
                elif fitted.pixels is None or name != fitted.column.name:
                    parts.append(named[name])
        names = [name for part in parts if isinstance(part, list) for name in part]
        all_names = join_blocks(blocks, names) if names else None
        if all_names is not None and len(parts) == 1:
            return all_names
        columns, begin = [], 0
        for part in parts:
            if isinstance(part, list):
                assert all_names is not None
                columns.append(all_names[:, begin : begin + len(part)])
                begin += len(part)
            else:
                columns.append(part if part.shape.rank == 2 else part[:, None])
        return tf.concat(columns, 1)

    def _image(self, fitted: Fitted, column: RawColumn) -> tuple[dict[str, tf.Tensor], tf.Tensor | None]:
        """Returns the image outputs by name, and which rows are usable (None without `tolerant`). Pixels are uint8
        [rows, height, width, channels], zeros for null; with a missing indicator also NAME__missing."""
        assert fitted.pixels is not None
        name, present, raw = fitted.column.name, column.present, fitted.ops[-1].raw
        usable = None
        if self._tolerant is None:
            decoded = decode_images(column.plain(), present, fitted.pixels, raw=raw)
        else:
            decoded, usable = self._tolerant(column.plain(), present, fitted.pixels, raw=raw)
        outputs = {name: decoded}
        if fitted.missing_indicator:
            outputs[f"{name}__missing"] = tf.cast(missing_mask([column])[0], tf.float32)
        return outputs, usable


def _outputs(fitted: Fitted) -> list[str]:
    """Returns the names of a column's outputs, in the order of the model's inputs. A vector's numbers are one output."""
    name = fitted.column.name
    if fitted.size is not None:
        return [name]
    names = fitted.numeric_names()
    if fitted.pixels is not None:
        return [name, *names]
    if fitted.column.length is None or fitted.pool:
        return names
    return [name, *names[fitted.column.length :]]


def numeric_inputs(
    fitted: Iterable[Fitted], columns: Mapping[str, RawColumn]
) -> tuple[list[Block], dict[str, tf.Tensor]]:
    """Returns the numeric inputs: scalars with the same operations stacked into one Block each, vectors by column name."""
    groups: dict[Any, list[Fitted]] = {}
    for entry in fitted:
        if entry.size is None and entry.pixels is None:
            kind = (entry.column.type, columns[entry.column.name].present is None, tuple(map(_kind, entry.ops)))
            groups.setdefault(entry.column.name if entry.column.shape else kind, []).append(entry)
    blocks, vectors = list[Block](), dict[str, tf.Tensor]()
    for group in groups.values():
        _numbers(group, columns, blocks, vectors)
    return blocks, vectors


def _kind(op: FittedOp) -> tuple[Any, ...]:
    """Returns the kind of an operation. Columns with operations of equal kinds are computed together."""
    return (op.op, op.minimum is None, op.maximum is None)


def _numbers(
    group: Sequence[Fitted], columns: Mapping[str, RawColumn], blocks: list[Block], vectors: dict[str, tf.Tensor]
) -> None:
    column, raw = group[0].column, [columns[entry.column.name] for entry in group]
    values = tf.stack([entry.values for entry in raw])
    if column.type == "int64":
        values = tf.cast(values, tf.float64)
    finite = tf.math.is_finite(values) if column.type == "float32" else None
    present = _present(raw)
    # of a list none of the values is a null row's, of a vector all are
    filled = None if column.is_list or present is None else present[..., None] if column.length else present
    usable = finite if filled is None else filled if finite is None else filled & finite
    if usable is not None:
        values = tf.where(usable, values, tf.cast(per_column([one.fill for one in group], tf.float32), values.dtype))
    for ops in zip(*(entry.ops for entry in group), strict=True):
        values = _apply(ops, values)
    lengths = raw[0].lengths
    if lengths is not None:
        figures = [_pooled(figure, values[0], lengths, group[0].longest) for figure in group[0].pool]
        blocks.append(Block(tuple(f"{column.name}__{figure}" for figure in group[0].pool), tf.stack(figures)))
    elif column.length is not None:
        vectors[column.name] = tf.ensure_shape(tf.cast(values[0], tf.float32), [None, column.length])
    else:
        blocks.append(Block(tuple(entry.column.name for entry in group), tf.cast(values, tf.float32)))
    if marked := [i for i, entry in enumerate(group) if entry.missing_indicator]:
        blocks.append(_indicator(group, marked, "missing", missing_mask(raw)))
    if finite is not None and (marked := [i for i, entry in enumerate(group) if entry.nan_indicator]):
        not_finite = ~finite
        if lengths is not None:
            not_finite = (_sums(tf.cast(not_finite[0], tf.int64), lengths) > 0)[None]
        elif column.length is not None:
            not_finite = tf.reduce_any(not_finite, 2)
        blocks.append(_indicator(group, marked, "nan", not_finite if present is None else present & not_finite))


def missing_mask(raw: Sequence[RawColumn]) -> tf.Tensor:
    """Returns a mask of the missing values, bool [columns, rows]. Either all columns in `raw` may have nulls, or none."""
    present = _present(raw)
    return tf.zeros([len(raw), raw[0].rows()], tf.bool) if present is None else ~present


def _indicator(group: Sequence[Fitted], places: Sequence[int], what: str, where: tf.Tensor) -> Block:
    """Returns the inputs <column>__<what> of the group's columns at `places`: 1 where `where`, [columns, rows], is true."""
    # TensorFlow's own look at the shape would gather all where all are wanted
    chosen = where if len(places) == len(group) else tf.gather(where, tf.constant(places, tf.int32))
    return Block(tuple(f"{group[i].column.name}__{what}" for i in places), tf.cast(chosen, tf.float32))


def per_column(numbers: Sequence[Any], dtype: tf.DType) -> tf.Tensor:
    """Returns one number per column as a tensor that broadcasts to [columns, rows]."""
    return tf.constant(numbers[0], dtype) if len(numbers) == 1 else tf.constant([[n] for n in numbers], dtype)


def join_blocks(blocks: Sequence[Block], names: Sequence[str]) -> tf.Tensor:
    """Returns the numeric inputs that are called `names`, in this order, from all blocks; float32 [rows, names]."""
    places = {name: place for place, name in enumerate(name for block in blocks for name in block.names)}
    values = blocks[0].values if len(blocks) == 1 else tf.concat([block.values for block in blocks], 0)
    order = [places[name] for name in names]
    if order != list(range(len(places))):
        values = tf.gather(values, tf.constant(order, tf.int32))
    return tf.transpose(values)


def _sums(values: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    return tf.math.unsorted_segment_sum(values, _row_of_each(lengths), tf.size(lengths, tf.int64))


def _row_of_each(lengths: tf.Tensor) -> tf.Tensor:
    return tf.repeat(tf.range(tf.size(lengths, tf.int64)), lengths)


def _pooled(figure: str, values: tf.Tensor, lengths: tf.Tensor, longest: int | None) -> tf.Tensor:
    """Returns one figure of each row's list, such as its mean; float32 [rows]. It is 0 for an empty list."""
    if figure == "length":
        count = tf.cast(lengths, tf.float32)
        return count / float(longest) if longest else count
    if figure in ("mean", "sum"):
        total = _sums(values, lengths)
        if figure == "mean":
            total = tf.math.divide_no_nan(total, tf.cast(lengths, values.dtype))
        return tf.cast(total, tf.float32)
    segment = tf.math.unsorted_segment_min if figure == "min" else tf.math.unsorted_segment_max
    extremes = segment(values, _row_of_each(lengths), tf.size(lengths, tf.int64))
    return tf.cast(tf.where(lengths > 0, extremes, tf.zeros_like(extremes)), tf.float32)


def _apply(ops: Sequence[FittedOp], x: tf.Tensor) -> tf.Tensor:
    """Apply one operation to all of `x`, or several of one kind, each to its row of `x`, as parameters.apply_numeric does."""
    op = ops[0]

    def number(value: Callable[[FittedOp], float | None]) -> tf.Tensor:
        return per_column([value(op) for op in ops], x.dtype)

    if op.op == "standardize":
        return (x - number(lambda op: op.mean)) / number(lambda op: op.std)
    if op.op == "min_max":
        x = (x - number(lambda op: op.minimum)) / number(lambda op: _span(op.minimum, op.maximum))
        return x * number(lambda op: _span(op.low, op.high)) + number(lambda op: op.low)
    if op.op == "log":
        return tf.sign(x) * tf.math.log1p(tf.abs(x))
    if op.op == "clip":
        x = x if op.minimum is None else tf.maximum(x, number(lambda op: op.minimum))
        return x if op.maximum is None else tf.minimum(x, number(lambda op: op.maximum))
    return x


def _span(low: float | None, high: float | None) -> float:
    assert low is not None and high is not None
    return high - low


def _category(fitted: Fitted, column: RawColumn, vocabulary: Vocabulary | None) -> tf.Tensor:
    """Returns the ids of a categorical input: int32 [rows], or [rows, width] for a list or vector of categories."""
    last, values = fitted.ops[-1], tf.reshape(column.values, [-1])
    # NaN in a column that cannot be null counts as the lowest bucket
    null = 0 if fitted.null_id is None else fitted.null_id
    if last.op == "bucketize":
        values = tf.cast(values, tf.float64) if fitted.column.type == "int64" else values
        finite = tf.math.is_finite(values)
        values = _before_buckets(fitted.ops[:-1], tf.where(finite, values, tf.zeros_like(values)))
        ids = tf.where(finite, _bucketize(values, last.boundaries or ()), null)
    else:
        if last.op == "hash":
            text = values if fitted.column.type == "bytes" else tf.strings.as_string(values)
            ids = tf.strings.to_hash_bucket_fast(text, last.buckets)
        else:
            assert vocabulary is not None
            ids = vocabulary(values)
        ids = tf.cast(ids, tf.int32)
        if column.codes is not None:
            ids = gather(ids, tf.reshape(column.codes, [-1]))
    if fitted.width is not None:
        return _several(fitted, column, ids)
    return ids if column.present is None else tf.where(column.present, ids, null)


def _several(fitted: Fitted, column: RawColumn, ids: tf.Tensor) -> tf.Tensor:
    """Returns the ids of each row's list, filled up with -1, int32 [rows, width]. Null has its one id, an empty list none."""
    width = fitted.width
    assert width is not None
    if column.lengths is None:
        ids = tf.reshape(ids, [-1, fitted.column.length])[:, :width]
    else:
        ids = pad(ids, column.lengths, width, -1)
    ids = tf.ensure_shape(ids, [None, width])
    if column.present is None or fitted.null_id is None:
        return ids
    null = tf.constant([[fitted.null_id] + [-1] * (width - 1)], tf.int32)
    return tf.where(column.present[:, None], ids, null)


def _before_buckets(before: Sequence[FittedOp], values: tf.Tensor) -> tf.Tensor:
    """Apply the operations before a column's bucketize. Returns float32 if one of them rounds.

    Boundaries are often train values, and the last bit of a logarithm depends on its position in a vector. Rounded from float64
    to float32, a value is equal to the boundary that was made of it.
    """
    exact = all(op.op in ("clip", "identity") for op in before)
    values = values if exact else tf.cast(values, tf.float64)
    for op in before:
        values = _apply([op], values)
    return values if exact else tf.cast(values, tf.float32)


def _bucketize(values: tf.Tensor, boundaries: Sequence[float]) -> tf.Tensor:
    """Returns the number of boundaries at or below each finite value; int32 [values]."""
    if not boundaries:
        return tf.zeros_like(values, tf.int32)
    return tf.searchsorted(tf.constant(boundaries, values.dtype), values, side="right", out_type=tf.int32)


def _present(raw: Sequence[RawColumn]) -> tf.Tensor | None:
    """Returns where values are present, bool [columns, rows]; None where no column can be null."""
    return None if raw[0].present is None else tf.stack([column.present for column in raw])


_plain = functools.lru_cache(maxsize=1)(Transform)
"""Returns a transform without user code and images. If the parameters are those of the last call, it returns the same transform:
the stages of a run share one, which is traced once."""


def transform_of(
    parameters: TransformParameters, file: Path | None, *, tolerant: ImageDecoder | None = None
) -> Transform:
    """Returns the transform of fitted parameters. It calls the user's function in `file` if they have derived columns.

    Args:
        file: the user's Python file with the function; None without derived columns.
        tolerant: in an input pipeline, the decoder that skips images that TensorFlow refuses; None in an export.

    Raises:
        ConfigError: the function is gone, or gives other columns than it was analysed with.
    """
    derived = parameters.derived
    if derived is None:
        if any(fitted.pixels is not None for fitted in parameters.fitted):
            return Transform(parameters, tolerant=tolerant)
        return _plain(parameters)
    if file is None:
        raise ConfigError(f"{derived.function} needs the file it lies in", where="preprocess")
    function = load_preprocess(file, derived.function)

    def preprocess(columns: Mapping[str, RawColumn]) -> Mapping[str, RawColumn]:
        computed, specs, _ = derive(function, columns, derived.reads)
        if specs != derived.columns:
            differing = sorted({c.name for c in {*specs} ^ {*derived.columns}})
            raise ConfigError(
                f"{derived.function} gives other columns than when it was analysed: {', '.join(differing)}",
                where="preprocess",
                fix="let its columns depend on nothing but the tensors it is given",
            )
        return computed

    preprocess.module = function.module  # type: ignore[attr-defined]
    return Transform(parameters, preprocess, tolerant)
