"""State that several graph functions share: each object under one name, all of them in one tf.train.Checkpoint.

    state = SharedState()
    seen = state.hold("seen", tf.Variable(0, trainable=False))
    state.hold("model", model)                        # a Keras model, optimizer or metric, a tf.Module, a table, a variable
    train, evaluate = graph_function(...)(...), ...   # both read and write what the state holds
    state.save(path)
    other_state.restore(path)                         # StoreError where it holds anything else

A graph function sees what another one writes only where both reach the same variable or table. A tensor, an array or a
number that Python hands to both is fixed when each is traced; an iterator of Python's is asked once, while it is traced. Those
are refused here with what to use instead, and `captured_values` finds the ones that a traced function has anyway.

A dataset can be held: each function goes through it from its start. So can `iter(dataset)`: one pass for all functions,
each element going to whoever asks first, and its place is part of the checkpoint. Neither can be exported.
"""

import json
import math
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from headway.errors import HeadwayError, StoreError
from tfcore.graph.op_errors import saving, why
from tfcore.graph.python_errors import all_nodes
from tfcore.graph.specs import describe, dims

_PREFIX = "state"
_BIG = 1024
"""Constants of more values than this were most likely meant to be state."""
KERAS = keras.Layer | keras.optimizers.Optimizer | keras.metrics.Metric
"""What Keras keeps variables of its own in; a model is a layer."""


class SharingError(HeadwayError):
    """An object cannot be shared: it would be copied, or cannot be read twice."""


class SharedState(tf.Module):
    """Objects that graph functions share, by name; see the module."""

    def __init__(self) -> None:
        super().__init__(name="shared_state")
        self._things: dict[str, Any] = {}

    def hold(self, name: str, thing: Any) -> Any:
        """Share the object `thing` under `name`, and return it.

        Args:
            thing: a variable or a sequence of them, a Keras model, layer, optimizer or metric whose variables exist, a
                tf.Module (with everything that it has of these), a lookup table, a tf.data.Dataset, or its iterator.

        Raises:
            SharingError: the name is taken, or `thing` is not state: the message says what to share in its place.
        """
        if name in self._things:
            raise SharingError(f"{name!r} is held already", where="shared state", fix="give each thing its own name")
        if (fix := _instead(thing)) is not None:
            raise SharingError(f"{name!r} is of type {type(thing).__name__}", where="shared state", fix=fix)
        self._things[name] = thing
        return thing

    def __getitem__(self, name: str) -> Any:
        if name not in self._things:
            fix = f"there is: {', '.join(self._things)}"
            raise SharingError(f"holds no {name!r}", where="shared state", fix=fix)
        return self._things[name]

    def groups(self) -> dict[str, list[tf.Variable]]:
        """The variables of each held object, in its own order; of Keras objects those that Keras lists."""
        groups = {}
        for name, thing in self._things.items():
            listed = thing.variables if isinstance(thing, KERAS) else self.parts(name).values()
            found = [variable.value if isinstance(variable, keras.Variable) else variable for variable in listed]
            groups[name] = [variable for variable in found if isinstance(variable, tf.Variable)]
        return groups

    def parts(self, name: str) -> dict[str, Any]:
        """Every variable, mutable lookup table and iterator of a held object by its path, such as "hidden_0/kernel"; a path
        that repeats gets a number, and the object itself is ""."""
        parts: dict[str, Any] = {}
        for path, part in filter(lambda pair: _is_part(pair[1]), _walk(self[name])):
            parts[path if path not in parts else f"{path}_{len(parts)}"] = part
        return parts

    def save(self, folder: Path) -> None:
        """Write everything into a new `folder`, as one checkpoint of TensorFlow's.

        Raises:
            StoreError: the folder is there already, or cannot be written, as where the dataset of an iterator calls Python;
                nothing is left behind then.
        """
        if folder.exists():
            raise StoreError("is there already", where=str(folder), fix="save into a new folder")
        temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
        try:
            with saving(folder.parent, "the shared state"):
                temporary.mkdir(parents=True)
                self._checkpoint(tf.Variable(json.dumps(self._kinds()))).write(str(temporary / _PREFIX))
                temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def restore(self, folder: Path) -> None:
        """Fill the held objects from `folder`, by name. Where it cannot be read, or is of another state, all stays as it was.

        Raises:
            StoreError: there is no such checkpoint, it is damaged, or it is not of just the parts that are held, by their names,
                dtypes and shapes; or the place of an iterator is of another pipeline, and parts before it are filled.
        """
        prefix, kinds, fix = str(folder / _PREFIX), tf.Variable(""), "hold the same things as when it was saved"
        try:
            dtypes = tf.train.load_checkpoint(prefix).get_variable_to_dtype_map()
            everything = {
                "tensor_names": [*dtypes],
                "shape_and_slices": [""] * len(dtypes),
                "dtypes": [*dtypes.values()],
            }
            tf.raw_ops.RestoreV2(prefix=prefix, **everything)  # compares the checksums
            tf.train.Checkpoint(kinds=kinds).read(prefix).assert_existing_objects_matched().expect_partial()
            stored, own = json.loads(kinds.numpy()), self._kinds()
            for part in sorted({*stored, *own}):
                was, held = stored.get(part, "not there"), own.get(part, "not there")
                if was != held:
                    raise StoreError(
                        f"is of another state: {part} is {was}, held is {held}", where=str(folder), fix=fix
                    )
            self._checkpoint(kinds).read(prefix).assert_consumed()
        except (ValueError, AssertionError, tf.errors.OpError) as error:
            reason = why(error) if isinstance(error, tf.errors.OpError) else str(error).splitlines()[0]
            raise StoreError(f"cannot be restored: {reason}", where=str(folder), fix=fix) from None

    def _checkpoint(self, kinds: tf.Variable) -> tf.train.Checkpoint:
        return tf.train.Checkpoint(kinds=kinds, state={name: self.parts(name) for name in self._things})

    def _kinds(self) -> dict[str, str]:
        """The kind of each part, which values must be of to fit it."""
        parts = {name: self.parts(name) for name in self._things}
        return {f"{name}/{path}".rstrip("/"): _kind(part) for name in parts for path, part in parts[name].items()}


def captured_values(function: tf.types.experimental.ConcreteFunction) -> list[str]:
    """The values that a traced function copied from outside: tensors it closed over, and large constants.

    Nothing that another function writes reaches it. An empty list: everything comes in as an argument, a variable or a
    table. Constants are also found in the bodies of loops and branches and in the functions that it calls, and are named
    once, in however many copies. What a table answers for words that it does not have is the table's, and does not count.
    """
    texts = [
        f"{tensor.dtype.name} {dims(tensor.shape)}"
        for tensor, inside in function.graph.captures
        if tensor.dtype not in (tf.resource, tf.variant)
        and "LookupTableFindV2" not in {use.type for use in inside.consumers()}
    ]
    constants = set()
    for node in all_nodes(function.graph.as_graph_def()):
        if node.op == "Const":
            tensor = node.attr["value"].tensor
            shape = [dim.size for dim in tensor.tensor_shape.dim]
            if math.prod(shape) > _BIG and (value := tensor.SerializeToString(deterministic=True)) not in constants:
                constants.add(value)
                texts.append(f"{tf.as_dtype(tensor.dtype).name} {shape} (constant {node.name})")
    return texts


def _kind(part: Any) -> str:
    if isinstance(part, tf.data.Iterator):
        return f"an iterator of {part.element_spec}"
    if isinstance(part, tf.Variable):
        return describe(part)
    keys, values = part.export()
    return f"a table of {keys.dtype.name} {dims(keys.shape[1:])} -> {values.dtype.name} {dims(values.shape[1:])}"


def _is_part(item: Any) -> bool:
    # a table that cannot be written to is filled by its initializer, and has nothing to keep
    return isinstance(item, tf.Variable | tf.data.Iterator) or (_is_table(item) and hasattr(item, "insert"))


def _is_table(item: Any) -> bool:
    return hasattr(item, "lookup") and hasattr(item, "resource_handle")


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


def _instead(thing: Any) -> str | None:
    """The fix for an object that cannot be shared; None for one that can."""
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
    """How to make variables that do not exist yet; None where they do."""
    if isinstance(thing, keras.optimizers.Optimizer):
        return None if thing.built else "call optimizer.build(model.trainable_variables)"
    if isinstance(thing, keras.Layer):
        return None if thing.built else "call it on a batch"
    # R2Score has one variable from the start, and its others from the first update on
    built = bool(thing.variables) and getattr(thing, "_built", True)
    return None if built else "call update_state on a batch, then reset_state"
