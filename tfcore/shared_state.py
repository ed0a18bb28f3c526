"""State that several graph functions share: one name for each thing, one checkpoint for all of it.

    state = SharedState()
    seen = state.counter("seen")
    state.hold("model", model)                        # a Keras model, optimizer or metric, a tf.Module, a table, a variable
    train, evaluate = graph_function(...)(...), ...   # both read and write what the state holds
    state.save(path)
    print(other_state.restore(path))                  # restored 12 of 13 variables; not found: model/output/bias

A graph function sees what another one writes only where both reach the same variable or table. A tensor, an array or a
number that Python hands to both is a copy in each graph; an iterator or a dataset is read by whoever asks first. Those
are refused here with what to use instead, and `captured_values` finds the ones that a traced function has anyway.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from headway.errors import HeadwayError, StoreError

NAMES = "names.json"
_PREFIX = "state"
_BIG = 1024
"""Constants of more values than this were most likely meant to be state."""


class SharingError(HeadwayError):
    """What was to be shared would be copied, or cannot be read twice."""


@dataclass(frozen=True)
class Restored:
    """What `SharedState.restore` did, by name."""

    restored: tuple[str, ...]
    not_found: tuple[str, ...]
    """In the state, not in the checkpoint: left as it was."""
    not_used: tuple[str, ...]
    """In the checkpoint, not in the state."""
    different: tuple[str, ...]
    """In both, with another dtype or shape: left as it was."""

    @property
    def whole(self) -> bool:
        return not (self.not_found or self.not_used or self.different)

    def __str__(self) -> str:
        wanted = len(self.restored) + len(self.not_found) + len(self.different)
        parts = [f"restored {len(self.restored)} of {wanted} variables"]
        for what, names in (
            ("not found", self.not_found),
            ("of another dtype or shape", self.different),
            ("not used", self.not_used),
        ):
            if names:
                parts.append(f"{what}: {', '.join(names)}")
        return "; ".join(parts)


class SharedState(tf.Module):
    """See the module."""

    def __init__(self) -> None:
        super().__init__(name="shared_state")
        self._held: dict[str, Any] = {}

    def counter(self, name: str, initial: int = 0) -> tf.Variable:
        """An int64 scalar that functions count up with assign_add."""
        return self.hold(name, tf.Variable(initial, dtype=tf.int64, trainable=False, name=name.replace("/", "_")))

    def knob(self, name: str, initial: float) -> tf.Variable:
        """A float32 scalar that is set from outside and read in graphs."""
        return self.hold(name, tf.Variable(initial, dtype=tf.float32, trainable=False, name=name.replace("/", "_")))

    def hold(self, name: str, thing: Any) -> Any:
        """Share `thing` under `name`, and return it.

        Args:
            thing: a variable or a sequence of them, a Keras model, optimizer (built) or metric, a tf.Module, or a lookup
                table.

        Raises:
            SharingError: the name is taken, or `thing` is no state: the message says what to share in its place.
        """
        if name in self._held:
            raise SharingError(f"{name!r} is held already", where="shared state", fix="give each thing its own name")
        if (instead := _instead(thing)) is not None:
            raise SharingError(f"{name!r} is {_what(thing)}", where="shared state", fix=instead)
        self._held[name] = thing
        return thing

    def __getitem__(self, name: str) -> Any:
        try:
            return self._held[name]
        except KeyError:
            raise SharingError(
                f"holds no {name!r}", where="shared state", fix=f"there is: {', '.join(self._held)}"
            ) from None

    def groups(self) -> dict[str, list[tf.Variable]]:
        """The variables of each thing that is held, in its own order."""
        return {name: [variable for _, variable in _variables(thing)] for name, thing in self._held.items()}

    def named(self) -> dict[str, tf.Variable]:
        """Every variable by its name: "model/hidden_0/kernel"; of several with one name the later get a number."""
        found: dict[str, tf.Variable] = {}
        for name, thing in self._held.items():
            for path, variable in _variables(thing):
                whole = base = f"{name}/{path}" if path else name
                number = 2
                while whole in found:
                    whole, number = f"{base}_{number}", number + 1
                found[whole] = variable
        return found

    def tables(self) -> dict[str, Any]:
        """The mutable lookup tables that are held."""
        return {name: thing for name, thing in self._held.items() if _is_table(thing) and hasattr(thing, "insert")}

    def save(self, folder: Path) -> None:
        """Write everything into `folder`, which must not exist yet: one checkpoint, and names.json that says what is in it."""
        variables = self.named()
        folder.mkdir(parents=True)
        arrays = {name: [array.numpy() for array in table.export()] for name, table in self.tables().items()}
        kept = {f"v{i}": variable for i, variable in enumerate(variables.values())}
        kept |= {
            f"t{i}_{j}": tf.Variable(array) for i, pair in enumerate(arrays.values()) for j, array in enumerate(pair)
        }
        tf.train.Checkpoint(**{_PREFIX: _Bag(kept)}).write(str(folder / _PREFIX))
        facts = {name: [variable.dtype.name, variable.shape.as_list()] for name, variable in variables.items()}
        text = json.dumps({"variables": facts, "tables": list(arrays)}, indent=1)
        (folder / NAMES).write_text(text + "\n", encoding="utf-8")

    def restore(self, folder: Path) -> Restored:
        """Fill what is held from `folder`, by name. What does not fit stays as it was, and the answer names it.

        Raises:
            StoreError: there is no such checkpoint, or it cannot be read.
        """
        try:
            facts = json.loads((folder / NAMES).read_text(encoding="utf-8"))
            reader = tf.train.load_checkpoint(str(folder / _PREFIX))
            return self._restore(facts, reader)
        except (OSError, ValueError, KeyError, tf.errors.OpError) as error:
            raise StoreError(f"is no shared state: {str(error).splitlines()[0]}", where=str(folder)) from None

    def _restore(self, facts: Mapping[str, Any], reader: Any) -> Restored:
        held, tables, stored = self.named(), self.tables(), facts["variables"]
        restored, different = [], []
        for number, (name, (dtype, shape)) in enumerate(stored.items()):
            variable = held.get(name)
            if variable is None:
                continue
            if (variable.dtype.name, variable.shape.as_list()) != (dtype, shape):
                different.append(name)
                continue
            variable.assign(reader.get_tensor(_key(f"v{number}")))
            restored.append(name)
        for number, name in enumerate(facts["tables"]):
            if name in tables:
                keys, values = (reader.get_tensor(_key(f"t{number}_{j}")) for j in (0, 1))
                tables[name].remove(tables[name].export()[0])
                tables[name].insert(keys, values)
                restored.append(name)
        wanted, there = {*held, *tables}, {*stored, *facts["tables"]}
        return Restored(
            tuple(restored), tuple(sorted(wanted - there)), tuple(sorted(there - wanted)), tuple(sorted(different))
        )


class _Bag(tf.Module):
    """Variables under plain attribute names, which a checkpoint keeps."""

    def __init__(self, kept: Mapping[str, tf.Variable]):
        super().__init__()
        for name, variable in kept.items():
            setattr(self, name, variable)


def _key(name: str) -> str:
    return f"{_PREFIX}/{name}/.ATTRIBUTES/VARIABLE_VALUE"


def _variables(thing: Any) -> Iterator[tuple[str, tf.Variable]]:
    """(path within the thing, variable); the path of a lone variable is empty."""
    if isinstance(thing, tf.Variable):
        yield "", thing
    elif isinstance(thing, keras.Variable):
        yield "", thing.value
    elif isinstance(thing, keras.Model | keras.optimizers.Optimizer | keras.metrics.Metric):
        for variable in thing.variables:
            # Keras counts its objects: the second Adam of a process is adam_1
            yield variable.path.removeprefix(f"{thing.name}/"), variable.value
    elif isinstance(thing, tf.Module):
        for path, variable in thing._flatten(predicate=lambda v: isinstance(v, tf.Variable), with_path=True):
            yield "/".join(map(str, path)), variable
    elif isinstance(thing, Sequence):
        for number, variable in enumerate(thing):
            yield str(number), variable if isinstance(variable, tf.Variable) else variable.value


def _instead(thing: Any) -> str | None:
    """What to share in place of what is no state; None where it is."""
    if isinstance(thing, tf.Tensor | np.ndarray | np.generic | bool | int | float | str | bytes):
        return "each graph would have a copy of its own: hold a tf.Variable, and assign to it"
    if isinstance(thing, tf.data.Dataset):
        return (
            "each reader goes through it anew: give it to each function, or share one iterator of it outside of graphs"
        )
    if isinstance(thing, tf.data.Iterator | tf.data.NumpyIterator) or hasattr(thing, "__next__"):
        return "whoever asks first takes the element: one loop should read it and hand the batch to every function"
    if isinstance(thing, keras.optimizers.Optimizer) and not thing.built:
        return "its slots do not exist yet: call optimizer.build(model.trainable_variables) first"
    if isinstance(thing, keras.Model) and not thing.built:
        return "its weights do not exist yet: call it on a batch first"
    state = tf.Variable | keras.Variable | keras.Model | keras.optimizers.Optimizer | keras.metrics.Metric | tf.Module
    if isinstance(thing, state) or _is_table(thing):
        return None
    if isinstance(thing, Sequence) and thing and all(isinstance(v, tf.Variable | keras.Variable) for v in thing):
        return None
    return "hold variables, a Keras model, optimizer or metric, a tf.Module or a lookup table"


def _is_table(thing: Any) -> bool:
    return hasattr(thing, "lookup") and hasattr(thing, "resource_handle")


def _what(thing: Any) -> str:
    kind = type(thing).__name__
    return "a tensor" if isinstance(thing, tf.Tensor) else f"an {kind}" if kind[:1] in "aeiouAEIOU" else f"a {kind}"


def captured_values(function: tf.types.experimental.ConcreteFunction, state: SharedState | None = None) -> list[str]:
    """What a traced function holds by value though it came from outside: tensors it closed over, and large constants.

    Nothing that another function writes reaches it. An empty list: everything comes in as an argument, a variable or a
    table. What the tables of `state` answer for words they do not have is theirs, and does not count.
    """
    tables = [] if state is None else [thing for thing in state._held.values() if _is_table(thing)]
    defaults = {id(getattr(table, "_default_value", None)) for table in tables}
    found = [
        f"{tensor.dtype.name} {tensor.shape.as_list() if tensor.shape.rank is not None else '[...]'}"
        for tensor, _ in function.graph.captures
        if tensor.dtype not in (tf.resource, tf.variant) and id(tensor) not in defaults
    ]
    for operation in function.graph.get_operations():
        if operation.type == "Const":
            shape = operation.outputs[0].shape
            if shape.num_elements() and shape.num_elements() > _BIG:
                found.append(f"{operation.outputs[0].dtype.name} {shape.as_list()} (constant {operation.name})")
    return found
