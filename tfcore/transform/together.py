"""Transforms columns of one kind as one stacked tensor: an op for all of them, not one for each.

    blocks, rest = numbers(fitted, columns, apply)        # float32 [names, rows] each; what goes on its own
    categories(fitted, columns, vocabularies, before)     # {column: int32 [rows]}

An op chain for each column costs TensorFlow about half a millisecond for every op, each time a graph is traced, saved or
loaded: a table of 5,000 columns would take minutes. The computation is elementwise, so a column's values have the same
bits as on their own; only a logarithm may differ in its last bit, which depends on where in a vector a value stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfcore.transform.fitted import Fitted, FittedOp
from tfcore.transform.raw_column import RawColumn
from tfcore.transform.vocabularies import Vocabularies

Apply = Callable[[Sequence[FittedOp], tf.Tensor], tf.Tensor]
"""One operation on [columns, rows], with the parameters of each column."""
NUMERIC = frozenset({"standardize", "min_max", "log", "clip", "identity"})


class Block(NamedTuple):
    """Some numeric inputs: `values` float32 [names, rows]."""

    names: tuple[str, ...]
    values: tf.Tensor


def numbers(
    fitted: Iterable[Fitted], columns: Mapping[str, RawColumn], apply: Apply
) -> tuple[list[Block], list[Fitted]]:
    """The numeric inputs of columns of one number for each row, and those fitted that are not such columns."""
    groups: dict[Any, list[Fitted]] = {}
    rest = []
    for one in fitted:
        column = columns[one.column.name]
        alone = one.size is not None or one.column.shape or column.lengths is not None
        if alone or any(op.op not in NUMERIC for op in one.ops):
            rest.append(one)
            continue
        kind = (one.column.type, column.present is None, tuple(_kind(op) for op in one.ops))
        groups.setdefault(kind, []).append(one)
    return [block for group in groups.values() for block in _numbers(group, columns, apply)], rest


def _kind(op: FittedOp) -> tuple[Any, ...]:
    """What ops must share to be applied in one: the clip of one side is another op than that of both."""
    return (op.op, op.minimum is None, op.maximum is None)


def _numbers(group: Sequence[Fitted], columns: Mapping[str, RawColumn], apply: Apply) -> list[Block]:
    values = tf.stack([columns[one.column.name].values for one in group])
    present = _present(group, columns)
    if group[0].column.type == "int64":
        values = tf.cast(values, tf.float64)
    finite = tf.math.is_finite(values) if group[0].column.type == "float32" else None
    usable = finite if present is None else present if finite is None else present & finite
    if usable is not None:
        values = tf.where(usable, values, tf.cast(each([one.fill for one in group], tf.float32), values.dtype))
    for ops in zip(*(one.ops for one in group), strict=True):
        values = apply(ops, values)
    blocks = [Block(tuple(one.column.name for one in group), tf.cast(values, tf.float32))]
    if told := [i for i, one in enumerate(group) if one.missing_indicator]:
        null = tf.zeros_like(values, tf.bool) if present is None else ~present
        blocks.append(Block(_named(group, told, "missing"), tf.cast(_some(null, told), tf.float32)))
    if finite is not None and (told := [i for i, one in enumerate(group) if one.nan_indicator]):
        odd = ~finite if present is None else present & ~finite
        blocks.append(Block(_named(group, told, "nan"), tf.cast(_some(odd, told), tf.float32)))
    return blocks


def _named(group: Sequence[Fitted], places: Sequence[int], what: str) -> tuple[str, ...]:
    return tuple(f"{group[i].column.name}__{what}" for i in places)


def _some(values: tf.Tensor, places: Sequence[int]) -> tf.Tensor:
    """Some rows of [columns, rows]; TensorFlow's own look at the shape would take all where all are wanted."""
    return values if len(places) == values.shape[0] else tf.gather(values, tf.constant(places, tf.int32))


def each(numbers: Sequence[Any], dtype: tf.DType) -> tf.Tensor:
    """A number for each column, to be used with [columns, rows]."""
    return tf.constant(numbers[0], dtype) if len(numbers) == 1 else tf.constant([[n] for n in numbers], dtype)


def in_order(blocks: Sequence[Block], names: Sequence[str]) -> tf.Tensor:
    """float32 [rows, names]"""
    places = {name: place for place, name in enumerate(name for block in blocks for name in block.names)}
    values = blocks[0].values if len(blocks) == 1 else tf.concat([block.values for block in blocks], 0)
    order = [places[name] for name in names]
    if order != list(range(len(places))):
        values = tf.gather(values, tf.constant(order, tf.int32))
    return tf.transpose(values)


def categories(
    fitted: Iterable[Fitted],
    columns: Mapping[str, RawColumn],
    vocabularies: Vocabularies,
    before: Callable[[Sequence[Sequence[FittedOp]], tf.Tensor], tf.Tensor],
) -> dict[str, tf.Tensor]:
    """int32 [rows] of each column of one category for each row that goes with others; the rest are not in it.

    Args:
        before: the operations before a bucketize, given those of each column.
    """
    groups: dict[Any, list[Fitted]] = {}
    for one in fitted:
        if one.size is None or one.width is not None or one.column.shape:
            continue
        last, column = one.ops[-1], columns[one.column.name]
        kind: tuple[Any, ...] | None = None
        if last.op == "bucketize":
            kind = tuple(_kind(op) for op in one.ops[:-1]) if len(last.boundaries or ()) <= _MOST_BOUNDARIES else None
        elif last.op == "hash":
            kind = (last.buckets,)
        elif last.op == "vocabulary" and one.column.name in vocabularies:
            kind = vocabularies.kind(one.column.name)
        if kind is not None:
            whole = (last.op, one.column.type, column.present is None, column.codes is None, *kind)
            groups.setdefault(whole, []).append(one)
    found: dict[str, tf.Tensor] = {}
    for group in groups.values():
        names = [one.column.name for one in group]
        ids = _categories(group, columns, vocabularies, before)
        found |= dict(zip(names, tf.unstack(ids, len(names)), strict=True))
    return found


_MOST_BOUNDARIES = 1024
"""Boundaries of columns that go together are padded to one length."""


def _categories(
    group: Sequence[Fitted], columns: Mapping[str, RawColumn], vocabularies: Vocabularies, before: Any
) -> tf.Tensor:
    present = _present(group, columns)
    raw = [columns[one.column.name] for one in group]
    last = [one.ops[-1] for one in group]
    if last[0].op == "bucketize":
        values = tf.stack([column.values for column in raw])
        values = tf.cast(values, tf.float64) if group[0].column.type == "int64" else values
        finite = tf.math.is_finite(values)
        present = finite if present is None else present & finite
        values = before([one.ops[:-1] for one in group], tf.where(finite, values, tf.zeros_like(values)))
        ids = _bucketize(values, [op.boundaries or () for op in last])
    else:
        codes = None if raw[0].codes is None else tf.stack([column.codes for column in raw])
        if codes is None:
            values = tf.stack([column.values for column in raw])
            which: tf.Tensor = tf.range(len(group))[:, None]
        else:
            values = tf.concat([column.values for column in raw], 0)
            sizes = _sizes([column.values for column in raw])
            which = tf.repeat(tf.range(len(group)), sizes)
        if last[0].op == "hash":
            text = values if group[0].column.type == "bytes" else tf.strings.as_string(values)
            ids = tf.strings.to_hash_bucket_fast(text, last[0].buckets)
        else:
            ids = vocabularies([one.column.name for one in group], values, which)
        ids = tf.cast(ids, tf.int32)
        if codes is not None:
            ids = _of_codes(ids, codes, sizes)
    if present is None:
        return ids
    # NaN in a column that cannot be null counts as the lowest bucket
    nulls = [one.null_id if one.null_id is not None else 0 for one in group]
    return tf.where(present, ids, each(nulls, tf.int32))


def _sizes(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """int32 [tensors]: how many values each has. Some at once: TensorFlow's optimizer takes quadratic time of them."""
    shapes = [tf.raw_ops.ShapeN(input=values[begin : begin + 32]) for begin in range(0, len(values), 32)]
    return tf.concat([shape for some in shapes for shape in some], 0)


def _of_codes(ids: tf.Tensor, codes: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
    """Each row's id, of the ids of all columns' distinct values one behind the other."""
    codes = tf.cast(codes, tf.int32)
    # a record whose rows are all null has an empty dictionary, and code 0 must still be good for something
    wrong = (codes < 0) | (codes >= tf.maximum(sizes, 1)[:, None])
    inside = tf.debugging.Assert(~tf.reduce_any(wrong), ["a code is outside of its dictionary"])
    with tf.control_dependencies([inside]):
        places = codes + tf.cumsum(sizes, exclusive=True)[:, None]
    return tf.gather(tf.concat([ids, [0]], 0), places)


def _bucketize(values: tf.Tensor, boundaries: Sequence[Sequence[float]]) -> tf.Tensor:
    """int32 [columns, rows]: how many of its column's boundaries are at or below each value, which is finite."""
    longest = max(len(some) for some in boundaries)
    if not longest:
        return tf.zeros_like(values, tf.int32)
    padded = np.full((len(boundaries), longest), np.inf)
    for place, some in enumerate(boundaries):
        padded[place, : len(some)] = some
    return tf.searchsorted(tf.constant(padded, values.dtype), values, side="right", out_type=tf.int32)


def _present(group: Sequence[Fitted], columns: Mapping[str, RawColumn]) -> tf.Tensor | None:
    """bool [columns, rows]; either all columns of a group can be null, or none."""
    if columns[group[0].column.name].present is None:
        return None
    return tf.stack([columns[one.column.name].present for one in group])
