"""The objects that graph functions can share, and the state of each that a checkpoint keeps.

variables_of(model)          # (path within it, variable), in its own order
tables_of(module)            # (path within it, mutable lookup table)
instead(0.5)                 # "each graph would keep its own copy: hold a tf.Variable, and assign to it"
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

_FAIL = 2
"""Of tf.data's policies for what is stateful outside of the dataset: what a checkpoint of it uses."""

KERAS = keras.Layer | keras.optimizers.Optimizer | keras.metrics.Metric
"""What Keras keeps variables of its own in; a model is a layer."""


def variables_of(thing: Any) -> Iterator[tuple[str, tf.Variable]]:
    """(path within the object, variable) of each variable; the path of a lone variable is empty."""
    if isinstance(thing, tf.Variable):
        yield "", thing
    elif isinstance(thing, keras.Variable):
        yield "", thing.value
    elif isinstance(thing, keras.random.SeedGenerator):
        yield "", thing.state.value
    elif isinstance(thing, KERAS):
        for variable in thing.variables:
            # Keras counts its objects: the second Adam of a process is adam_1
            yield variable.path.removeprefix(f"{thing.name}/"), variable.value
    elif isinstance(thing, tf.Module):
        yield from _of_module(thing)
    elif isinstance(thing, Sequence):
        for number, variable in enumerate(thing):
            yield str(number), variable if isinstance(variable, tf.Variable) else variable.value


def all_variables_of(thing: Any) -> Iterator[tuple[str, tf.Variable]]:
    """`variables_of`, then the tf.Variables of Keras layers that Keras does not list as the layer's own."""
    seen = set()
    for path, variable in variables_of(thing):
        seen.add(id(variable))
        yield path, variable
    if isinstance(thing, keras.Layer):
        for path, variable in _reached(thing):
            if isinstance(variable, tf.Variable) and id(variable) not in seen:
                yield path, variable


def _of_module(module: tf.Module) -> Iterator[tuple[str, tf.Variable]]:
    """The variables of a tf.Module: its own tf.Variables, then those within Keras and other objects in it."""
    seen = set()
    for path, variable in _within(module, lambda v: isinstance(v, tf.Variable)):
        seen.add(id(variable))
        yield path, variable
    reached = ((path, thing) for path, thing in _reached(module) if isinstance(thing, tf.Variable))
    others = [*_keras_within(module), *reached]
    for path, thing in others:
        for inner, variable in variables_of(thing):
            if id(variable) not in seen:
                seen.add(id(variable))
                yield f"{path}/{inner}" if inner else path, variable


def _keras_within(module: tf.Module) -> Iterator[tuple[str, Any]]:
    return _within(module, lambda v: isinstance(v, keras.Variable | keras.random.SeedGenerator | KERAS))


def _within(module: tf.Module, predicate: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    """(path, attribute) of a module's attributes, also within modules, lists and dicts."""
    for path, thing in module._flatten(predicate=predicate, with_path=True):
        yield "/".join(map(str, path)), thing


def _reached(root: Any) -> Iterator[tuple[str, Any]]:
    """The variables that TensorFlow's own checkpoints would find, such as the one of a tf.random.Generator."""
    waiting, seen = [("", root)] if hasattr(root, "_trackable_children") else [], {id(root)}
    for path, parent in waiting:  # which grows
        for name, child in tf.train.TrackableView.children(parent).items():
            if id(child) not in seen:
                seen.add(id(child))
                inner = f"{path}/{name}" if path else name
                yield inner, child
                if not isinstance(child, tf.Variable):
                    waiting.append((inner, child))


def tables_of(thing: Any) -> Iterator[tuple[str, Any]]:
    """(path within the object, mutable lookup table) of each table; the path of a lone table is empty.

    A table that cannot be written to is filled by its initializer, and has nothing to keep.
    """
    if is_table(thing):
        if hasattr(thing, "insert"):
            yield "", thing
    elif isinstance(thing, tf.Module):
        yield from _within(thing, lambda v: is_table(v) and hasattr(v, "insert"))


def answers_of(thing: Any) -> Iterator[Any]:
    """The default values of the lookup tables within an object, also of those in Keras layers."""
    for inner in [thing, *(inner for _, inner in _reached(thing))]:
        if is_table(inner):
            table = getattr(inner, "_table", None) or inner  # a StaticVocabularyTable is around another
            yield getattr(table, "_default_value", None)


def iterators_of(thing: Any) -> Iterator[tuple[str, Any]]:
    """(path within the object, iterator of a dataset) of each iterator; the path of a lone iterator is empty."""
    if is_iterator(thing):
        yield "", thing
    elif isinstance(thing, tf.Module):
        yield from _within(thing, is_iterator)


def entries(table: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The keys and values of a mutable table."""
    keys, values = (array.numpy() for array in table.export())
    free = [getattr(table, name, None) for name in ("_empty_key", "_deleted_key")]
    if free[0] is None:
        return keys, values
    # a DenseHashTable exports its free buckets too, and a scalar as a vector of one
    keys = keys.reshape(-1, *np.shape(free[0]))
    values = values.reshape(-1, *np.shape(table._default_value))
    used = np.ones(len(keys), bool)
    for key in free:
        used &= (keys != np.asarray(key)).reshape(len(keys), -1).any(axis=1)
    return keys[used], values[used]


def fill(table: Any, keys: Any, values: Any) -> None:
    """Replace all entries of a mutable table by these."""
    old = entries(table)[0]
    if len(old):
        table.remove(old)
    if len(keys):
        table.insert(keys, values)


def takes(table: Any, keys: Any, values: Any) -> bool:
    """Whether a table can hold these entries: dtypes and shapes are its own, and no key is one that it reserves."""
    dtypes = [tf.string if a.dtype.kind in "OSU" else tf.as_dtype(a.dtype) for a in (keys, values)]
    if dtypes != [table.key_dtype, table.value_dtype]:
        return False
    reserved = [
        np.asarray(k) for name in ("_empty_key", "_deleted_key") if (k := getattr(table, name, None)) is not None
    ]
    key_shape = reserved[0].shape if reserved else ()
    if len(keys) and (keys.shape[1:] != key_shape or values.shape[1:] != np.shape(table._default_value)):
        return False
    return not any((keys == key).reshape(len(keys), -1).all(axis=1).any() for key in reserved if len(keys))


def stored_place(prefix: str) -> tf.Tensor:
    """The position of an iterator in a checkpoint that `tf.train.Checkpoint(iterator=it).write(prefix)` wrote."""
    key = "iterator/.ATTRIBUTES/ITERATOR_STATE"
    return tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=[key], shape_and_slices=[""], dtypes=[tf.variant])[0]


def go_to(iterator: Any, place: tf.Tensor) -> bool:
    """Move an iterator to a stored position; False, without a move, where the position is not one of its dataset."""
    resource = iterator._iterator_resource
    try:  # one that refuses a place has lost its own by then
        before = tf.raw_ops.SerializeIterator(resource_handle=resource, external_state_policy=_FAIL)
    except tf.errors.FailedPreconditionError:  # calls Python: no place was ever stored of it
        return False
    try:
        tf.raw_ops.DeserializeIterator(resource_handle=resource, serialized=place)
    except tf.errors.OpError:
        tf.raw_ops.DeserializeIterator(resource_handle=resource, serialized=before)
        return False
    return True


def is_iterator(thing: Any) -> bool:
    """Whether it is an iterator of tf.data, which graphs read from; they read a Python iterator only while traced."""
    return isinstance(thing, tf.data.Iterator)


def instead(thing: Any) -> str | None:
    """The fix for an object that cannot be shared; None for one that can."""
    if isinstance(thing, tf.Tensor | np.ndarray | np.generic | bool | int | float | str | bytes):
        return "each graph would keep its own copy: hold a tf.Variable, and assign to it"
    if isinstance(thing, tf.data.Dataset) or is_iterator(thing):
        return None
    if hasattr(thing, "__next__"):
        return "a graph reads it once, while it is traced: hold iter() of a tf.data.Dataset instead"
    if isinstance(thing, KERAS) and (first := _build_first(thing)):
        return first
    if isinstance(thing, tf.Module):
        for path, inner in _keras_within(thing):
            if isinstance(inner, KERAS) and (first := _build_first(inner)):
                return f"of its {path}, {kind_of(inner)}: {first}"
    state = tf.Variable | keras.Variable | keras.random.SeedGenerator | KERAS | tf.Module
    if isinstance(thing, state) or is_table(thing):
        return None
    if isinstance(thing, Sequence) and thing and all(isinstance(v, tf.Variable | keras.Variable) for v in thing):
        return None
    return "hold variables, a Keras model, layer, optimizer or metric, a tf.Module, a lookup table, a dataset or its iterator"


def _build_first(thing: Any) -> str | None:
    """How to make variables that do not exist yet; None where they do. A restore would miss later ones."""
    if isinstance(thing, keras.optimizers.Optimizer):
        built, how = thing.built, "its slots do not exist yet: call optimizer.build(model.trainable_variables) first"
    elif isinstance(thing, keras.Layer):
        built, how = thing.built, "its weights do not exist yet: call it on a batch first"
    else:
        # R2Score has one variable from the start, and its others from the first update on
        built = bool(thing.variables) and getattr(thing, "_built", True)
        how = "its variables do not exist yet: call update_state on a batch once, then reset_state"
    return None if built else how


def is_table(thing: Any) -> bool:
    return hasattr(thing, "lookup") and hasattr(thing, "resource_handle")


def kind_of(thing: Any) -> str:
    """The name of an object's type with its article: "an Adam", "a tensor"."""
    kind = type(thing).__name__
    return "a tensor" if isinstance(thing, tf.Tensor) else f"an {kind}" if kind[:1] in "aeiouAEIOU" else f"a {kind}"
