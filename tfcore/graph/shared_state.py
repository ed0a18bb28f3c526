"""State that several graph functions share: each object under one name, all of them in one checkpoint.

    state = SharedState()
    seen = state.counter("seen")
    state.hold("model", model)                        # a Keras model, optimizer or metric, a tf.Module, a table, a variable
    train, evaluate = graph_function(...)(...), ...   # both read and write what the state holds
    state.save(path)
    print(other_state.restore(path))                  # restored 12 of 13 variables; not found: model/output/bias

A graph function sees what another one writes only where both reach the same variable or table. A tensor, an array or a
number that Python hands to both is fixed when each is traced; an iterator of Python's is asked once, while it is traced. Those
are refused here with what to use instead, and `captured_values` finds the ones that a traced function has anyway.

A dataset can be held: each function goes through it from its start. So can `iter(dataset)`: one pass for all functions,
each element going to whoever asks first, and its place is part of the checkpoint. Neither can be exported.
"""

import math
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from headway.errors import HeadwayError, StoreError
from tfcore.graph.op_errors import why
from tfcore.graph.python_errors import all_nodes
from tfcore.graph.save_errors import saving
from tfcore.graph.specs import dims
from tfcore.graph.trackables import (
    KERAS,
    about,
    answers_of,
    go_to,
    instead,
    is_iterator,
    is_table,
    kind_of,
    parts_of,
    place_of,
)

_PREFIX = "state"
_ABOUT = ":about"
"""Beside a part in the checkpoint: what `about` says of it."""
_ATTRIBUTES, _PLACE = "/.ATTRIBUTES/", "ITERATOR_STATE"
"""Of the keys of TensorFlow's checkpoints."""
_BIG = 1024
"""Constants of more values than this were most likely meant to be state."""


class SharingError(HeadwayError):
    """An object cannot be shared: it would be copied, or cannot be read twice."""


@dataclass(frozen=True)
class Restored:
    """The result of `SharedState.restore`, by name."""

    restored: tuple[str, ...]
    not_found: tuple[str, ...]
    """In the state, not in the checkpoint: left as it was."""
    not_used: tuple[str, ...]
    """In the checkpoint, not in the state."""
    different: tuple[str, ...]
    """In both, with another dtype or shape, or an iterator of another dataset: left as it was."""

    @property
    def whole(self) -> bool:
        return not (self.not_found or self.not_used or self.different)

    def __str__(self) -> str:
        count = len(self.restored) + len(self.not_found) + len(self.different)
        parts = [f"restored {len(self.restored)} of {count} variables"]
        for what, names in (
            ("not found", self.not_found),
            ("of another dtype, shape or dataset", self.different),
            ("not used", self.not_used),
        ):
            if names:
                parts.append(f"{what}: {', '.join(names)}")
        return "; ".join(parts)


class SharedState(tf.Module):
    """Objects that graph functions share, by name; see the module."""

    def __init__(self) -> None:
        super().__init__(name="shared_state")
        self._things: dict[str, Any] = {}

    def counter(self, name: str, initial: int = 0) -> tf.Variable:
        """Make an int64 scalar that functions increase with assign_add."""
        return self.hold(name, tf.Variable(initial, dtype=tf.int64, trainable=False, name=name.replace("/", "_")))

    def hold(self, name: str, thing: Any) -> Any:
        """Share the object `thing` under `name`, and return it.

        Args:
            thing: a variable or a sequence of them, a Keras model, layer, optimizer or metric whose variables exist, a
                tf.Module (with everything that it has of these), a lookup table, a tf.data.Dataset, or its iterator.

        Raises:
            SharingError: the name is taken, also by a part of what is held, or `thing` is not state: the message says what
                to share in its place.
        """
        if name in self._things:
            raise SharingError(f"{name!r} is held already", where="shared state", fix="give each thing its own name")
        if (other := instead(thing)) is not None:
            raise SharingError(f"{name!r} is {kind_of(thing)}", where="shared state", fix=other)
        self._things[name] = thing
        try:
            self.parts()
        except SharingError:
            del self._things[name]
            raise
        return thing

    def __getitem__(self, name: str) -> Any:
        try:
            return self._things[name]
        except KeyError:
            raise SharingError(
                f"holds no {name!r}", where="shared state", fix=f"there is: {', '.join(self._things)}"
            ) from None

    def groups(self) -> dict[str, list[tf.Variable]]:
        """The variables of each held object, in its own order; of Keras objects those that Keras lists."""
        groups = {}
        for name, thing in self._things.items():
            listed = thing.variables if isinstance(thing, KERAS) else [part for _, part in parts_of(thing)]
            found = [variable.value if isinstance(variable, keras.Variable) else variable for variable in listed]
            groups[name] = [variable for variable in found if isinstance(variable, tf.Variable)]
        return groups

    def named(self) -> dict[str, tf.Variable]:
        """Every variable by its name, "model/hidden_0/kernel"; see `parts`."""
        return {name: part for name, part in self.parts().items() if isinstance(part, tf.Variable)}

    def parts(self) -> dict[str, Any]:
        """Every variable, mutable lookup table and iterator by its name; a repeated name in one object gets a number.

        Raises:
            SharingError: parts of two things have one name; `hold` refuses those it sees.
        """
        parts: dict[str, Any] = {}
        owners: dict[str, str] = {}
        for name, thing in self._things.items():
            for path, part in parts_of(thing):
                whole = base = f"{name}/{path}" if path else name
                number = 2
                while owners.get(whole) == name:
                    whole, number = f"{base}_{number}", number + 1
                if whole in owners:
                    raise SharingError(
                        f"{whole!r} would be a part of both {owners[whole]!r} and {name!r}",
                        where="shared state",
                        fix="hold one of the two under another name: a checkpoint tells them apart by it",
                    )
                owners[whole], parts[whole] = name, part
        return parts

    def save(self, folder: Path) -> None:
        """Write everything into a new `folder`, as one checkpoint of TensorFlow's.

        Raises:
            StoreError: the folder is there already, or cannot be written; nothing is left behind then.
            SharingError: an iterator cannot tell its place, since its dataset calls Python.
        """
        if folder.exists():
            raise StoreError("is there already", where=str(folder), fix="save into a new folder")
        parts = self.parts()
        for name, part in [*parts.items()]:
            try:
                if is_iterator(part):
                    place_of(part)
                if text := about(part):
                    parts[f"{name}{_ABOUT}"] = tf.Variable(text)
            except tf.errors.FailedPreconditionError as error:
                raise SharingError(
                    f"the position of iterator {name!r} cannot be saved: {why(error)}",
                    where="shared state",
                    fix="leave Python functions out of its dataset, or hold the dataset and a counter, and skip()",
                ) from None
        temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
        try:
            with saving(folder.parent):
                temporary.mkdir(parents=True)
                tf.train.Checkpoint(state=parts).write(str(temporary / _PREFIX))
                temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def restore(self, folder: Path) -> Restored:
        """Fill the held objects from `folder`, by name. Those that do not fit stay, and the result names them.

        Everything is read before anything is changed: it takes the memory of a second copy for that while.

        Raises:
            StoreError: there is no such checkpoint, or it cannot be read; all that is held stays as it was.
        """
        parts, prefix = self.parts(), str(folder / _PREFIX)
        try:
            stored = _read(prefix)
        except (ValueError, tf.errors.OpError) as error:
            raise StoreError(f"is not a shared state: {str(error).splitlines()[0]}", where=str(folder)) from None
        fits = {name: _fits(part, stored[name]) for name, part in parts.items() if name in stored}
        # the only ones that tell by trying: a place fits one pipeline, not all of one element_spec
        fits |= {n: fits[n] and go_to(parts[n], stored[n][_PLACE]) for n in fits if is_iterator(parts[n])}
        fitting = {name: parts[name] for name, fit in fits.items() if fit}
        for name, part in fitting.items():
            if isinstance(part, tf.Variable):
                part.assign(stored[name]["VARIABLE_VALUE"])
        if tables := {name: part for name, part in fitting.items() if is_table(part)}:
            tf.train.Checkpoint(state=tables).read(prefix).expect_partial()
        return Restored(
            restored=tuple(name for name, fit in fits.items() if fit),
            not_found=tuple(sorted({*parts} - {*stored})),
            not_used=tuple(sorted({*stored} - {*parts})),
            different=tuple(sorted(name for name, fit in fits.items() if not fit)),
        )


def _read(prefix: str) -> dict[str, dict[str, tf.Tensor]]:
    """The tensors of each part in a checkpoint, by TensorFlow's names for them.

    Raises:
        ValueError, tf.errors.OpError: it is none of a shared state, or damaged.
    """
    reader = tf.train.load_checkpoint(prefix)
    nodes = TrackableObjectGraph.FromString(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")).nodes
    (root,) = (child.node_id for child in nodes[0].children if child.local_name == "state")
    dtypes = {key: dtype for key, dtype in reader.get_variable_to_dtype_map().items() if _ATTRIBUTES in key}
    slices = [""] * len(dtypes)
    tensors = tf.raw_ops.RestoreV2(
        prefix=prefix, tensor_names=[*dtypes], shape_and_slices=slices, dtypes=[*dtypes.values()]
    )
    stored: dict[str, dict[str, tf.Tensor]] = {}
    for key, tensor in zip(dtypes, tensors, strict=True):
        path, _, attribute = key.partition(_ATTRIBUTES)
        stored.setdefault(path, {})[attribute] = tensor
    # a variable that was held twice is saved once
    first = {child.local_name: nodes[child.node_id].attributes[0].checkpoint_key for child in nodes[root].children}
    found = {name: stored[key.partition(_ATTRIBUTES)[0]] for name, key in first.items()}
    for name in [name for name in found if name.endswith(_ABOUT)]:
        found[name.removesuffix(_ABOUT)][_ABOUT] = found.pop(name)["VARIABLE_VALUE"]
    return found


def _fits(part: Any, stored: Mapping[str, tf.Tensor]) -> bool:
    """Whether a part can take what is stored: its kind, dtypes, shapes and reserved keys are the same."""
    if about(part) != (stored[_ABOUT].numpy().decode() if _ABOUT in stored else ""):
        return False
    if is_iterator(part):
        return _PLACE in stored
    if isinstance(part, tf.Variable):
        value = stored.get("VARIABLE_VALUE")
        return value is not None and value.dtype == part.dtype and part.shape.is_compatible_with(value.shape)
    own = part.export()
    found = [stored.get(name) for name in ("table-keys", "table-values")]
    return all(
        b is not None and a.dtype == b.dtype and a.shape[1:] == b.shape[1:] for a, b in zip(own, found, strict=True)
    )


def captured_values(function: tf.types.experimental.ConcreteFunction, state: SharedState | None = None) -> list[str]:
    """The values that a traced function copied from outside: tensors it closed over, and large constants.

    Nothing that another function writes reaches it. An empty list: everything comes in as an argument, a variable or a
    table. Constants are also found in the bodies of loops and branches and in the functions that it calls, and are named
    once, in however many copies. What the tables of `state` answer for words they do not have is theirs, and does not
    count.
    """
    things = [] if state is None else state._things.values()
    defaults = {id(answer) for thing in things for answer in answers_of(thing)}
    texts = [
        f"{tensor.dtype.name} {dims(tensor.shape)}"
        for tensor, _ in function.graph.captures
        if tensor.dtype not in (tf.resource, tf.variant) and id(tensor) not in defaults
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
