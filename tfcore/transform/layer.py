"""The transform as a graph: the same tf.Module in the input pipeline and in the exported model.

    transform = Transform(parameters)
    inputs = transform({"carrier": RawColumn(values=..., present=None, codes=None), ...})
    inputs["numeric"], inputs["categorical"]          # float32 [rows, n], int32 [rows, m]
    inputs["lists"]                                   # int32 [rows, width of all lists], where a column holds several ids

Dictionary columns are looked up by their distinct values and then gathered by row. Integers are centred in float64,
since float32 cannot tell large ones apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from tfcore.transform.calendar import with_parts
from tfcore.transform.fitted import Fitted, FittedOp
from tfcore.transform.images import Tolerant, decode_images
from tfcore.transform.parameters import TransformParameters, image_input
from tfcore.transform.raw_column import RawColumn, gather, pad
from tfcore.transform.together import Block, categories, each, in_order, numbers
from tfcore.transform.vocabularies import Vocabularies, VocabularyTable


class Transform(tf.Module):
    """Raw columns to model inputs.

    Args:
        parameters: fitted on train statistics.
        preprocess: the user's function, when the parameters have derived columns; see `tfcore.transform.preprocess`.
        tolerant: in an input pipeline, what skips images that TensorFlow refuses; None in an export.
    """

    def __init__(
        self,
        parameters: TransformParameters,
        preprocess: Callable[[Mapping[str, RawColumn]], Mapping[str, RawColumn]] | None = None,
        tolerant: Tolerant | None = None,
    ):
        super().__init__(name="transform")
        if parameters.derived is not None and preprocess is None:
            raise ValueError("the parameters have derived columns: give the function that makes them")
        self._parameters = parameters
        self._preprocess = preprocess
        self._tolerant = tolerant
        self.user_module = getattr(preprocess, "module", None)  # so that an export finds its variables and tables
        self.vocabularies = Vocabularies(parameters.fitted)
        self.tables = {
            fitted.column.name: VocabularyTable(fitted.ops[-1])
            for fitted in parameters.fitted
            if fitted.ops[-1].op == "vocabulary" and fitted.column.name not in self.vocabularies
        }

    def __call__(self, columns: Mapping[str, RawColumn]) -> dict[str, tf.Tensor]:
        """{"numeric": float32 [rows, n], "categorical": int32 [rows, m]}, in the order of the parameters; "lists" too
        where there are some: int32 [rows, width of all], -1 behind the end of a list; an image's pixels under
        `image_input` of its column. With `tolerant` and an image, "usable" bool [rows]: false for one that was refused."""
        blocks, named, usable = self._computed(columns)
        rows = next(iter(columns.values())).rows()
        parameters = self._parameters
        categorical = [named[entry.name] for entry in parameters.categorical]
        lists = [named[entry.name] for entry in parameters.lists]
        inputs = {
            "numeric": self._numeric(blocks, named) if parameters.numeric else tf.zeros([rows, 0], tf.float32),
            "categorical": tf.stack(categorical, 1) if categorical else tf.zeros([rows, 0], tf.int32),
        }
        if lists:
            inputs["lists"] = tf.concat(lists, 1)
        for one in parameters.fitted:
            if one.pixels is not None:
                inputs[image_input(one.column.name)] = named[one.column.name]
        return inputs | {"usable": tf.reduce_all(tf.stack(usable), 0)} if usable else inputs

    def named(self, columns: Mapping[str, RawColumn]) -> dict[str, tf.Tensor]:
        """Each model input by name: float32 or int32, [rows]; [rows, n] of vectors and of lists of categories."""
        blocks, named, _ = self._computed(columns)
        for block in blocks:
            named |= zip(block.names, tf.unstack(block.values, len(block.names)), strict=True)
        return {name: named[name] for fitted in self._parameters.fitted for name in _outputs(fitted)}

    def _computed(self, columns: Mapping[str, RawColumn]) -> tuple[list[Block], dict[str, tf.Tensor], list[tf.Tensor]]:
        """(numeric inputs that were computed together, the other inputs by name, which rows are usable)"""
        outputs: dict[str, tf.Tensor] = {}
        usable: list[tf.Tensor] = []
        if self._preprocess is not None:
            columns = {**columns, **self._preprocess(columns)}
        columns = with_parts(columns, self._parameters.parts)
        blocks, rest = numbers(self._parameters.fitted, columns, _apply)
        outputs |= categories(rest, columns, self.vocabularies, _before_buckets)
        for fitted in rest:
            column = columns[fitted.column.name]
            if fitted.size is not None:
                if fitted.column.name not in outputs:
                    outputs[fitted.column.name] = self._category(fitted, column)
            elif fitted.pixels is not None:
                made, good = self._image(fitted, column)
                outputs |= made
                usable += [] if good is None else [good]
            else:
                outputs |= _numbers(fitted, column)
        return blocks, outputs, usable

    def _numeric(self, blocks: Sequence[Block], named: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """float32 [rows, n] of all numeric inputs, vectors among them."""
        together = {name for block in blocks for name in block.names}
        parts: list[list[str] | tf.Tensor] = []
        for fitted in self._parameters.fitted:
            for name in _outputs(fitted) if fitted.size is None else ():
                if name in together:
                    if not parts or not isinstance(parts[-1], list):
                        parts.append([])
                    parts[-1].append(name)
                elif fitted.pixels is None or name != fitted.column.name:
                    parts.append(named[name])
        names = [name for part in parts if isinstance(part, list) for name in part]
        all_names = in_order(blocks, names) if names else None
        if all_names is not None and len(parts) == 1:
            return all_names
        found, begin = [], 0
        for part in parts:
            if isinstance(part, list):
                assert all_names is not None
                found.append(all_names[:, begin : begin + len(part)])
                begin += len(part)
            else:
                found.append(part if part.shape.rank == 2 else part[:, None])
        return tf.concat(found, 1)

    def _image(self, fitted: Fitted, column: RawColumn) -> tuple[dict[str, tf.Tensor], tf.Tensor | None]:
        """uint8 [rows, height, width, channels], zeros for null; and which rows are usable, if that is asked."""
        assert fitted.pixels is not None
        name, present = fitted.column.name, column.present
        usable = None
        if self._tolerant is None:
            decoded = decode_images(column.plain(), present, fitted.pixels)
        else:
            decoded, usable = self._tolerant(column.plain(), present, fitted.pixels)
        outputs = {name: decoded}
        if fitted.missing_indicator:
            outputs[f"{name}__missing"] = (
                tf.zeros([column.rows()], tf.float32) if present is None else tf.cast(~present, tf.float32)
            )
        return outputs, usable

    def _category(self, fitted: Fitted, column: RawColumn) -> tf.Tensor:
        last = fitted.ops[-1]
        present = column.present
        if last.op == "bucketize":
            values = _float(fitted, column.values)
            finite = tf.math.is_finite(values)
            if fitted.width is None:
                present = finite if present is None else present & finite
            values = tf.where(finite, values, tf.zeros_like(values))
            ids = _bucketize(_before_buckets([fitted.ops[:-1]], values), last.boundaries or ())
            if fitted.width is not None:
                ids = tf.where(finite, ids, fitted.null_id or 0)
        else:
            ids = tf.cast(self._ids(fitted, column.values), tf.int32)
            if column.codes is not None:
                ids = gather(ids, column.codes)
        if fitted.width is not None:
            return _several(fitted, column, ids)
        if present is None:
            return ids
        # NaN in a column that cannot be null counts as the lowest bucket
        null = fitted.null_id if fitted.null_id is not None else 0
        return tf.where(present, ids, tf.constant(null, tf.int32))

    def _ids(self, fitted: Fitted, values: tf.Tensor) -> tf.Tensor:
        op = fitted.ops[-1]
        if op.op == "vocabulary":
            return self.tables[fitted.column.name](values)
        assert op.buckets is not None
        text = values if fitted.column.type == "bytes" else tf.strings.as_string(values)
        return tf.strings.to_hash_bucket_fast(text, op.buckets)


def _several(fitted: Fitted, column: RawColumn, ids: tf.Tensor) -> tf.Tensor:
    """int32 [rows, width]: a row's ids, then -1. Null is its own id and nothing else, an empty list nothing at all."""
    width = fitted.width
    assert width is not None
    ids = ids[:, :width] if column.lengths is None else pad(ids, column.lengths, width, -1)
    ids = tf.ensure_shape(ids, [None, width])
    if column.present is None or fitted.null_id is None:
        return ids
    null = tf.constant([[fitted.null_id] + [-1] * (width - 1)], tf.int32)
    return tf.where(column.present[:, None], ids, null)


def _outputs(fitted: Fitted) -> list[str]:
    """Names of what is computed of a column, in the order of the model's inputs; a vector's numbers are one."""
    name = fitted.column.name
    if fitted.size is not None:
        return [name]
    names = fitted.numeric_names()
    if fitted.pixels is not None:
        return [name, *names]
    if fitted.column.length is None or fitted.pool:
        return names
    return [name, *names[fitted.column.length :]]


def _float(fitted: Fitted, values: tf.Tensor) -> tf.Tensor:
    return tf.cast(values, tf.float64) if fitted.column.type == "int64" else values


def _numbers(fitted: Fitted, column: RawColumn) -> dict[str, tf.Tensor]:
    name = fitted.column.name
    values = _float(fitted, column.values)
    finite = tf.math.is_finite(values) if fitted.column.type == "float32" else None
    present = column.present
    # of a list none of the values is a null row's
    known = None if present is None or column.lengths is not None else present
    if known is not None and fitted.column.length is not None:
        known = known[:, None]
    usable = finite if known is None else known if finite is None else known & finite
    if usable is not None:
        values = tf.where(usable, values, tf.cast(fitted.fill, values.dtype))
    for op in fitted.ops:
        values = _apply([op], values)
    if column.lengths is not None:
        outputs = {f"{name}__{figure}": _pooled(figure, values, column.lengths) for figure in fitted.pool}
        if f"{name}__length" in outputs and fitted.longest:
            outputs[f"{name}__length"] /= float(fitted.longest)
    elif fitted.column.length is not None:
        outputs = {name: tf.ensure_shape(tf.cast(values, tf.float32), [None, fitted.column.length])}
    else:
        outputs = {name: tf.cast(values, tf.float32)}
    if fitted.missing_indicator:
        outputs[f"{name}__missing"] = (
            tf.zeros([column.rows()], tf.float32) if present is None else tf.cast(~present, tf.float32)
        )
    if fitted.nan_indicator and finite is not None:
        odd = _any_of_row(~finite, column)
        outputs[f"{name}__nan"] = tf.cast(odd if present is None else present & odd, tf.float32)
    return outputs


def _any_of_row(mask: tf.Tensor, column: RawColumn) -> tf.Tensor:
    """bool [rows]: whether the mask holds for any value of a row."""
    if column.lengths is not None:
        return _sums(tf.cast(mask, tf.int64), column.lengths) > 0
    return tf.reduce_any(mask, 1) if mask.shape.rank == 2 else mask


def _sums(values: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    return tf.math.unsorted_segment_sum(values, _row_of_each(lengths), tf.size(lengths, tf.int64))


def _row_of_each(lengths: tf.Tensor) -> tf.Tensor:
    return tf.repeat(tf.range(tf.size(lengths, tf.int64)), lengths)


def _pooled(figure: str, values: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """float32 [rows]: one figure of each row's values; 0 for a row without any."""
    if figure == "length":
        return tf.cast(lengths, tf.float32)
    if figure in ("mean", "sum"):
        total = _sums(values, lengths)
        if figure == "mean":
            total = tf.math.divide_no_nan(total, tf.cast(lengths, values.dtype))
        return tf.cast(total, tf.float32)
    segment = tf.math.unsorted_segment_min if figure == "min" else tf.math.unsorted_segment_max
    found = segment(values, _row_of_each(lengths), tf.size(lengths, tf.int64))
    return tf.cast(tf.where(lengths > 0, found, tf.zeros_like(found)), tf.float32)


def _apply(ops: Sequence[FittedOp], x: tf.Tensor) -> tf.Tensor:
    """As reference.apply_numeric: one op on numbers of any shape, or several of a kind, one for each row of `x`."""
    op = ops[0]

    def number(value: Callable[[FittedOp], float | None]) -> tf.Tensor:
        return each([value(op) for op in ops], x.dtype)

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


def _before_buckets(before: Sequence[Sequence[FittedOp]], values: tf.Tensor) -> tf.Tensor:
    """The operations before a bucketize, those of each column; float32 where one of them rounds.

    Boundaries are often train values themselves, and the last bit of a logarithm depends on where in a vector it stands:
    float64 rounded to float32 puts a value and the boundary made of it on the same number.
    """
    exact = all(op.op in ("clip", "identity") for op in before[0])
    values = values if exact else tf.cast(values, tf.float64)
    for ops in zip(*before, strict=True):
        values = _apply(ops, values)
    return values if exact else tf.cast(values, tf.float32)


def _bucketize(values: tf.Tensor, boundaries: tuple[float, ...]) -> tf.Tensor:
    """int32: how many boundaries are at or below each value; compared in the values' own precision."""
    if not boundaries:
        return tf.zeros_like(values, tf.int32)
    edges = tf.constant(boundaries, values.dtype)
    return tf.searchsorted(edges, values, side="right", out_type=tf.int32)


def when_missing(fitted: Fitted) -> list[float] | None:
    """The model's inputs of a column whose value is missing, in their order; None where there is no such thing.

    A null, also where the train rows had none; a category that has no id for null is out of vocabulary.
    """
    column = fitted.column
    if fitted.pixels is not None:
        return None
    if fitted.width is not None:
        return [float(-1 if fitted.null_id is None else fitted.null_id)] + [-1.0] * (fitted.width - 1)
    if fitted.size is not None:
        if fitted.null_id is None and fitted.ops[-1].op != "vocabulary":
            return None
        return [float(fitted.size - (fitted.ops[-1].oov_buckets or 1) if fitted.null_id is None else fitted.null_id)]
    dtype = tf.int64 if column.type == "int64" else tf.float32
    values = tf.zeros([0] if column.is_list else [1, *column.shape], dtype)
    null = RawColumn(values, tf.constant([False]), None, tf.constant([0], tf.int64) if column.is_list else None)
    made = [value if value.shape.rank == 2 else value[:, None] for value in _numbers(fitted, null).values()]
    shown: list[float] = tf.concat(made, 1)[0].numpy().tolist()
    return shown
