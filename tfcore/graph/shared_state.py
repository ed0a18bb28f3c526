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

from __future__ import annotations

import json
import math
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from headway.errors import HeadwayError, StoreError
from headway.storage.atomic_io import write_synced
from tfcore.graph.op_errors import why
from tfcore.graph.python_errors import all_nodes
from tfcore.graph.save_errors import saving
from tfcore.graph.specs import dims
from tfcore.graph.trackables import (
    all_variables_of,
    answers_of,
    entries,
    fill,
    go_to,
    instead,
    iterators_of,
    kind_of,
    stored_place,
    tables_of,
    takes,
    variables_of,
)

NAMES = "names.json"
_PREFIX, _ITERATOR = "state", "iterator_"
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

    def knob(self, name: str, initial: float) -> tf.Variable:
        """Make a float32 scalar that is set from outside and read in graphs."""
        return self.hold(name, tf.Variable(initial, dtype=tf.float32, trainable=False, name=name.replace("/", "_")))

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
            self._names()
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
        return {name: [variable for _, variable in variables_of(thing)] for name, thing in self._things.items()}

    def named(self) -> dict[str, tf.Variable]:
        """Every variable by its name, "model/hidden_0/kernel"; a repeated name in one object gets a number.

        Raises:
            SharingError: parts of two things have one name; `hold` refuses those it sees.
        """
        return self._names()[0]

    def tables(self) -> dict[str, Any]:
        """The mutable lookup tables, by name, also those within modules."""
        return self._names()[1]

    def iterators(self) -> dict[str, Any]:
        """The iterators of datasets, by name, also those within modules."""
        return self._names()[2]

    def _names(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """The names of variables, tables and iterators."""
        kinds: tuple[dict[str, Any], dict[str, Any], dict[str, Any]] = ({}, {}, {})
        owners: dict[str, str] = {}
        for name, thing in self._things.items():
            for kind, parts in zip(
                kinds, (all_variables_of(thing), tables_of(thing), iterators_of(thing)), strict=True
            ):
                for path, part in parts:
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
                    owners[whole] = name
                    kind[whole] = part
        return kinds

    def save(self, folder: Path) -> None:
        """Write everything into a new `folder`: one checkpoint, and names.json, the list of its content.

        Raises:
            StoreError: the folder is there already, or cannot be written; nothing is left behind then.
            SharingError: an iterator cannot tell its place, since its dataset calls Python.
        """
        if folder.exists():
            raise StoreError("is there already", where=str(folder), fix="save into a new folder")
        temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
        try:
            with saving(folder.parent):
                temporary.mkdir(parents=True)
                self._save(temporary)
                temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _save(self, folder: Path) -> None:
        variables, tables, iterators = self._names()
        stored = {f"v{i}": variable for i, variable in enumerate(variables.values())}
        for i, table in enumerate(tables.values()):
            stored |= {f"t{i}_{j}": tf.Variable(array) for j, array in enumerate(entries(table))}
        tf.train.Checkpoint(**{_PREFIX: tf.train.Checkpoint(**stored)}).write(str(folder / _PREFIX))
        for i, (name, iterator) in enumerate(iterators.items()):
            try:
                tf.train.Checkpoint(iterator=iterator).write(str(folder / f"{_ITERATOR}{i}"))
            except tf.errors.FailedPreconditionError as error:
                raise SharingError(
                    f"the position of iterator {name!r} cannot be saved: {why(error)}",
                    where="shared state",
                    fix="leave Python functions out of its dataset, or hold the dataset and a counter, and skip()",
                ) from None
        facts = {
            "variables": {name: _kind(v) for name, v in variables.items()},
            "tables": list(tables),
            "iterators": {name: str(iterator.element_spec) for name, iterator in iterators.items()},
        }
        write_synced(folder / NAMES, json.dumps(facts, indent=1) + "\n")

    def restore(self, folder: Path) -> Restored:
        """Fill the held objects from `folder`, by name. Those that do not fit stay, and the result names them.

        Everything is read before anything is changed: it takes the memory of a second copy for that while.

        Raises:
            StoreError: there is no such checkpoint, or it cannot be read; all that is held stays as it was.
        """
        variables, tables, iterators = self._names()
        try:
            facts = json.loads((folder / NAMES).read_text(encoding="utf-8"))
            stored = self._read(folder, facts, variables, tables, iterators)
            saved_names = {*facts["variables"], *facts["tables"], *facts.get("iterators", {})}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, tf.errors.OpError) as error:
            raise StoreError(f"is not a shared state: {str(error).splitlines()[0]}", where=str(folder)) from None
        # the only ones that tell by trying: a place fits one pipeline, not all of one element_spec
        fits = {name: value is not None for name, value in stored.items()}
        fits |= {name: go_to(it, stored[name]) for name, it in iterators.items() if fits.get(name)}
        for name, variable in variables.items():
            if fits.get(name):
                variable.assign(stored[name])
        for name, table in tables.items():
            if fits.get(name):
                fill(table, *stored[name])
        named = {*variables, *tables, *iterators}
        return Restored(
            restored=tuple(name for name, fit in fits.items() if fit),
            not_found=tuple(sorted(named - saved_names)),
            not_used=tuple(sorted(saved_names - named)),
            different=tuple(sorted(name for name, fit in fits.items() if not fit)),
        )

    def _read(
        self,
        folder: Path,
        facts: Mapping[str, Any],
        variables: Mapping[str, tf.Variable],
        tables: Mapping[str, Any],
        iterators: Mapping[str, Any],
    ) -> dict[str, Any]:
        """The checkpoint's value for each held name; None where its dtype or shape differs."""
        reader = tf.train.load_checkpoint(str(folder / _PREFIX))
        keys_of = _keys(reader)
        stored: dict[str, Any] = {}
        for number, (name, kind) in enumerate(facts["variables"].items()):
            if (variable := variables.get(name)) is not None:
                stored[name] = reader.get_tensor(keys_of[f"v{number}"]) if _kind(variable) == kind else None
                if stored[name] is not None and not variable.shape.is_compatible_with(stored[name].shape):
                    raise ValueError(f"{NAMES} and the tensor of {name} are from different checkpoints")
        for number, name in enumerate(facts["tables"]):
            if (table := tables.get(name)) is not None:
                keys, values = (reader.get_tensor(keys_of[f"t{number}_{j}"]) for j in (0, 1))
                stored[name] = (keys, values) if takes(table, keys, values) else None
        for number, (name, spec) in enumerate(facts.get("iterators", {}).items()):
            if (iterator := iterators.get(name)) is not None:
                place = stored_place(str(folder / f"{_ITERATOR}{number}"))
                stored[name] = place if str(iterator.element_spec) == spec else None
        return stored


def _kind(variable: tf.Variable) -> list[Any]:
    """The dtype and shape of a tensor as JSON; the shape is null where the rank is unknown."""
    return [variable.dtype.name, None if variable.shape.rank is None else variable.shape.as_list()]


def _keys(reader: Any) -> dict[str, str]:
    """The checkpoint's key of each variable; a variable that was held twice is saved once."""
    nodes = TrackableObjectGraph.FromString(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")).nodes
    (bag,) = (child.node_id for child in nodes[0].children if child.local_name == _PREFIX)
    return {child.local_name: nodes[child.node_id].attributes[0].checkpoint_key for child in nodes[bag].children}


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
