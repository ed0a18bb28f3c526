"""State that several graph functions share: each object under one name, all of them in one tf.train.Checkpoint.

    state = SharedState()
    seen = state.hold("seen", tf.Variable(0, trainable=False))
    state.hold("model", model)                        # a Keras model, optimizer or metric, a tf.Module, a table, a variable
    train, evaluate = graph_function(...)(...), ...   # both read and write what the state holds
    state.save(path)
    other_state.restore(path)                         # StoreError where it holds anything else

A graph function sees what another one writes only if both use the same variable or table. A tensor, an array or a number that
Python hands to both becomes a constant in each graph. A Python iterator is read once, during the trace. SharedState refuses
such objects, and says what to hold instead.

A dataset can be held: each function reads it from its start. `iter(dataset)` can be held too: all functions share one pass,
and its position is part of the checkpoint. Neither a dataset nor an iterator can be exported.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from headway.errors import HeadwayError, StoreError
from tfcore.graph.op_errors import as_store_errors, why

KERAS = keras.Layer | keras.optimizers.Optimizer | keras.metrics.Metric
"""The classes of Keras objects that hold variables; a model is a layer."""


class SharingError(HeadwayError):
    """The error of an object that cannot be shared: each graph would copy it, or it cannot be read twice."""


class SharedState(tf.Module):
    """Objects that graph functions share, by name; see the module."""

    def __init__(self) -> None:
        super().__init__(name="shared_state")
        self._things: dict[str, Any] = {}

    def hold(self, name: str, thing: Any) -> Any:
        """Share the object `thing` under `name`, and return `thing`.

        Args:
            thing: a variable or a sequence of them, a Keras model, layer, optimizer or metric whose variables exist, a
                tf.Module (with all such objects in it), a lookup table, a tf.data.Dataset, or the iterator of one.

        Raises:
            SharingError: the name is taken, or `thing` is none of these: the message says what to do instead.
        """
        if name in self._things:
            raise SharingError(f"{name!r} is held already", where="shared state", fix="give each thing its own name")
        if (fix := _instead(thing)) is not None:
            raise SharingError(f"{name!r} is of type {type(thing).__name__}", where="shared state", fix=fix)
        self._things[name] = thing
        return thing

    def __getitem__(self, name: str) -> Any:
        return self._things[name]

    def groups(self) -> dict[str, list[tf.Variable]]:
        """Returns {name: variables} of the held objects, in each object's order; of a Keras object its `variables`."""
        groups = {}
        for name, thing in self._things.items():
            listed = thing.variables if isinstance(thing, KERAS) else self.parts(name).values()
            found = [variable.value if isinstance(variable, keras.Variable) else variable for variable in listed]
            groups[name] = [variable for variable in found if isinstance(variable, tf.Variable)]
        return groups

    def parts(self, name: str) -> dict[str, Any]:
        """Returns {path: part} of a held object. Its parts are variables, mutable lookup tables and iterators. A path is such as
        "hidden_0/kernel", or "" for the object itself. If two paths are equal, the second gets a number."""
        parts: dict[str, Any] = {}
        for path, part in filter(lambda pair: _is_part(pair[1]), _walk(self[name])):
            parts[path if path not in parts else f"{path}_{len(parts)}"] = part
        return parts

    def checkpoint(self) -> tf.train.Checkpoint:
        """Returns a tf.train.Checkpoint of the parts of all held objects, by object name and path."""
        return tf.train.Checkpoint(state={name: self.parts(name) for name in self._things})

    def save(self, path: Path) -> None:
        """Write all held objects as a checkpoint: several files, whose names are `path` with different endings.

        Raises:
            StoreError: the checkpoint cannot be written, for example because the dataset of an iterator calls Python.
        """
        with as_store_errors(path.parent, "the shared state"):
            path.parent.mkdir(parents=True, exist_ok=True)
            self.checkpoint().write(str(path))

    def restore(self, path: Path) -> None:
        """Fill the held objects from the checkpoint `path`, by name.

        Raises:
            StoreError: the checkpoint is missing or damaged, or its parts differ from the held parts: in names, dtypes, shapes,
                or the pipeline of an iterator. Some parts may have been filled before the error.
        """
        try:
            self.checkpoint().read(str(path)).assert_consumed()
        except (ValueError, AssertionError, tf.errors.OpError) as error:
            reason = why(error) if isinstance(error, tf.errors.OpError) else str(error).splitlines()[0]
            fix = "hold the same things as when it was saved"
            raise StoreError(f"cannot be restored: {reason}", where=str(path), fix=fix) from None


def _is_part(item: Any) -> bool:
    # a table that cannot be written to is filled by its initializer, and has nothing to keep
    return isinstance(item, tf.Variable | tf.data.Iterator) or (_is_table(item) and hasattr(item, "insert"))


def _is_table(item: Any) -> bool:
    return hasattr(item, "lookup") and hasattr(item, "resource_handle")


def _walk(thing: Any, *, into_keras: bool = True) -> Iterator[tuple[str, Any]]:
    """Yields (path, object) for `thing` and for each object in it that Keras, tf.Module or TensorFlow's checkpoints would find,
    breadth first. Without `into_keras`, objects within a Keras object are left out."""
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
    if isinstance(item, Mapping | list | tuple):
        named = item.items() if isinstance(item, Mapping) else enumerate(item)
        yield from ((str(name), child) for name, child in named)
    elif hasattr(item, "_trackable_children"):
        yield from tf.train.TrackableView.children(item).items()


def _instead(thing: Any) -> str | None:
    """Returns the advice on what to hold in place of `thing`; None if `thing` can be shared."""
    if isinstance(thing, tf.Tensor | np.ndarray | np.generic | bool | int | float | str | bytes):
        return "each graph would keep its own copy: hold a tf.Variable, and assign to it"
    if isinstance(thing, tf.data.Dataset) or _is_part(thing):
        return None
    if hasattr(thing, "__next__"):
        return "a graph reads it once, while it is traced: hold iter() of a tf.data.Dataset instead"
    own = dict(_walk(thing, into_keras=False))
    for path, item in own.items():
        if isinstance(item, KERAS) and (first := _build_first(item)):
            return f"{first} first: {path or 'it'} has no variables yet, which a checkpoint would miss"
    if isinstance(thing, KERAS | tf.Module) or _is_table(thing) or any(map(_is_part, own.values())):
        return None
    return "hold variables, a Keras model, layer, optimizer or metric, a tf.Module, a lookup table, a dataset or its iterator"


def _build_first(thing: Any) -> str | None:
    """Returns the advice on how to create a Keras object's variables; None if they exist already."""
    if isinstance(thing, keras.optimizers.Optimizer):
        return None if thing.built else "call optimizer.build(model.trainable_variables)"
    if isinstance(thing, keras.Layer):
        return None if thing.built else "call it on a batch"
    # R2Score has one variable from the start, and its others from the first update on
    built = bool(thing.variables) and getattr(thing, "_built", True)
    return None if built else "call update_state on a batch, then reset_state"
