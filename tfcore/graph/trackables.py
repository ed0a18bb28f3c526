"""The objects that graph functions can share, and the state within each that a checkpoint keeps.

parts_of(module)             # (path within it, variable, mutable lookup table or iterator)
instead(0.5)                 # "each graph would keep its own copy: hold a tf.Variable, and assign to it"
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

_FAIL = 2
"""Of tf.data's policies for what is stateful outside of the dataset: what a checkpoint of it uses."""

KERAS = keras.Layer | keras.optimizers.Optimizer | keras.metrics.Metric
"""What Keras keeps variables of its own in; a model is a layer."""


def parts_of(thing: Any) -> Iterator[tuple[str, Any]]:
    """(path within the object, variable, mutable lookup table or iterator of a dataset), each once; of itself it is empty.

    A table that cannot be written to is filled by its initializer, and has nothing to keep.
    """
    return ((path, item) for path, item in _walk(thing) if _is_part(item))


def _is_part(item: Any) -> bool:
    return isinstance(item, tf.Variable) or is_iterator(item) or (is_table(item) and hasattr(item, "insert"))


def _walk(thing: Any, *, into_keras: bool = True) -> Iterator[tuple[str, Any]]:
    """(path, object) of all that Keras, tf.Module or TensorFlow's own checkpoints would find, those nearest first."""
    waiting, seen = [("", thing)], set[int]()
    for path, item in waiting:  # which grows
        if isinstance(item, keras.random.SeedGenerator):
            item = item.state
        if isinstance(item, keras.Variable):
            item = item.value
        if id(item) in seen:
            continue
        seen.add(id(item))
        yield path, item
        if not _is_part(item) and (into_keras or not isinstance(item, KERAS)):
            waiting += ((f"{path}/{name}" if path else name, child) for name, child in _children(item))


def _children(item: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(item, KERAS):
        # Keras counts its objects: the second Adam of a process is adam_1
        yield from ((variable.path.removeprefix(f"{item.name}/"), variable) for variable in item.variables)
    elif isinstance(item, tf.Module):
        yield from ((name, child) for name, child in vars(item).items() if not name.startswith("_self_"))
    if isinstance(item, Mapping):
        yield from ((str(name), child) for name, child in item.items())
    elif isinstance(item, list | tuple):
        yield from ((str(number), child) for number, child in enumerate(item))
    elif hasattr(item, "_trackable_children"):
        yield from tf.train.TrackableView.children(item).items()


def answers_of(thing: Any) -> Iterator[Any]:
    """The default values of the lookup tables within an object, also of those in Keras layers."""
    for _, item in _walk(thing):
        if is_table(item):
            table = getattr(item, "_table", None) or item  # a StaticVocabularyTable is around another
            yield getattr(table, "_default_value", None)


def place_of(iterator: Any) -> tf.Tensor:
    """The position of an iterator.

    Raises:
        tf.errors.FailedPreconditionError: its dataset calls Python.
    """
    resource = iterator._iterator_resource
    return tf.raw_ops.SerializeIterator(resource_handle=resource, external_state_policy=_FAIL)


def go_to(iterator: Any, place: tf.Tensor) -> bool:
    """Move an iterator to a stored position; False, without a move, where the position is not one of its dataset."""
    resource = iterator._iterator_resource
    try:  # one that refuses a place has lost its own by then
        before = place_of(iterator)
    except tf.errors.FailedPreconditionError:  # no place was ever stored of it
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
        for path, inner in _walk(thing, into_keras=False):
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


def about(part: Any) -> str:
    """What a part must be for stored values to fit, beyond dtypes and shapes: the elements of an iterator, the keys that a
    DenseHashTable reserves; empty for others."""
    if is_iterator(part):
        return str(part.element_spec)
    reserved = [getattr(part, name, None) for name in ("_empty_key", "_deleted_key")]
    return "" if reserved[0] is None else f"reserves {[tf.convert_to_tensor(key).numpy().tolist() for key in reserved]}"


def kind_of(thing: Any) -> str:
    """The name of an object's type with its article: "an Adam", "a tensor"."""
    kind = type(thing).__name__
    return "a tensor" if isinstance(thing, tf.Tensor) else f"an {kind}" if kind[:1] in "aeiouAEIOU" else f"a {kind}"
