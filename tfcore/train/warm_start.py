"""Warm start: a model begins with the weights of an earlier one, and a category's vector stays with its category.

    warm_start(model, request, WarmStart(version=3, trained=..., transform=..., model=...))["says"]
    # warm start from version 3: 8 of 9 variables as they were; row by row: embeddings/table

A table of embeddings is taken row by row: the vector of a value moves to the value's id in the new vocabulary. A new value
begins with the vector of unknown values. Other weights are taken if their names and shapes agree, and both models have the
same columns and classes in the same order: else a weight would go to another column. In a user's model it is not known which
weights belong to a category, so that its vocabularies have to be the same, too.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import ConfigError, StoreError
from headway.messages import counted, some
from tfcore.models.build import VARIABLE, WEIGHTS
from tfcore.models.inputs import Layout, is_ensemble, seen_columns
from tfcore.models.linear_part import linear_speed
from tfcore.models.towers.two_towers import ITEM, USER, sides
from tfcore.train.request import TrainRequest, WarmStart

UNKNOWN, NULL = ("vocabulary", 1, 0), "<null>"
"""What an id may stand for besides a value of the vocabulary: the one bucket of unknown values, or a missing value."""
WHERE = "training.warm_start"


def warm_start(model: keras.Model, request: TrainRequest, parent: WarmStart) -> dict[str, Any]:
    """Give `model` the weights of the earlier model `parent` as far as they fit; see the module.

    Returns:
        version (the parent's), says (a sentence), and paths of variables: kept, partly (taken by row), new (not taken).

    Raises:
        ConfigError: the parent was trained for another task, or none of its weights fits.
        StoreError: the parent's weights cannot be read.
    """
    task, before = request.transform.label.task, parent.transform.label.task
    if task != before:
        problem = f"version {parent.version} was trained for a {before} label, and this one is {task}"
        raise ConfigError(problem, where=WHERE, fix="leave it out, or name a version of this task")
    stored, variables = _stored(parent.trained.file), [v for v in model.variables if v.value.dtype.is_floating]
    own, same = request.model.user_defined or parent.model.user_defined, _must_match(request) == _must_match(parent)
    if own:  # Keras counts the layers that a model does not name: of one model the order is the same in every process
        found = [value for value in stored.values() if value.dtype.kind == "f"]
        same = same and _categories(request.transform) == _categories(parent.transform)
        same = same and [value.shape for value in found] == [tuple(v.shape) for v in variables]
        stored = dict(zip([v.path for v in variables], found, strict=False))
    kept, partly, new = list[str](), list[str](), list[str]()
    for variable in variables:
        path, start, value = variable.path, np.asarray(variable.value), stored.get(variable.path)
        rows, rows_before = (None, None) if own else (_rows(path, request), _rows(path, parent))
        if value is not None and rows is None and same and value.shape == start.shape:
            variable.assign(value)
            kept.append(path)
        elif (
            value is not None
            and rows
            and value.shape[1:] == start.shape[1:]
            and (same or not path.startswith("linear_"))
        ):
            variable.assign(_moved(start, rows, value, rows_before or []))
            (kept if rows == rows_before else partly).append(path)
        else:
            new.append(path)
    if not kept and not partly:
        fix = "leave it out, or keep model.name, model.hidden and model.embedding; of a model of your own it is not known "
        fix += "which weights are whose: columns, vocabularies and classes have to be the same too"
        raise ConfigError(f"none of the weights of version {parent.version} fits this model", where=WHERE, fix=fix)
    count, parts = counted(len(variables), "variable"), {"row by row": partly, "begin anew": new}
    says = [f"warm start from version {parent.version}: {len(kept)} of {count} as they were"]
    says += [f"{what}: {some(paths, 4)}" for what, paths in parts.items() if paths]
    return {"version": parent.version, "kept": kept, "partly": partly, "new": new, "says": "; ".join(says)}


def _stored(trained: Path) -> dict[str, NDArray[Any]]:
    """Returns the weights in a training's output folder, by the path of the variable; StoreError if they are unreadable."""
    try:
        paths = json.loads((trained / "model.json").read_text(encoding="utf-8"))["variables"]
        stored = tf.train.load_checkpoint(str(trained / WEIGHTS))
        return {path: stored.get_tensor(VARIABLE.format(number)) for number, path in enumerate(paths)}
    except (OSError, ValueError, KeyError, tf.errors.OpError) as error:
        problem, fix = f"cannot be read: {str(error).splitlines()[0]}", f"leave {WHERE} out, or train that version anew"
        raise StoreError(problem, where=str(trained), fix=fix) from None


def _must_match(of: TrainRequest | WarmStart) -> tuple[Any, ...]:
    """Returns what must be equal in two models before one takes the other's weights: input columns and classes, in order,
    the columns of the item tower, and the factor that scales the output of an ensemble's linear part."""
    layout = of.transform
    names = ([entry.name for entry in entries] for entries in (layout.categorical, layout.lists))
    seen = ([*layout.inputs()], [*layout.numeric], *names)  # images are inputs of their own
    speed = linear_speed(layout) if is_ensemble(of.model, layout) else 1.0
    return (*seen, layout.label.classes, of.model.item, speed)


def _categories(layout: Layout) -> dict[str, list[Any]]:
    """Returns for each column, by id, what the id means: ("value", "UA"), (op, buckets, number of the bucket), or `NULL`."""
    found = {}
    for fitted in layout.fitted:
        if fitted.size is not None:
            op, null = fitted.ops[-1], [NULL] * fitted.column.nullable
            values = [("value", value) for value in op.values] if op.op == "vocabulary" else []
            buckets = fitted.size - len(values) - len(null)
            found[fitted.column.name] = [*values, *((op.op, buckets, place) for place in range(buckets)), *null]
    return found


def _rows(path: str, of: TrainRequest | WarmStart) -> list[tuple[str, Any]] | None:
    """Returns the (column, value) of each row of an embedding table in a built-in model; None for other variables."""
    layer, _, name = path.partition("/")
    if name != "table":
        return None
    layout, lists = of.transform, "list" in layer
    entries = layout.lists if lists else layout.categorical
    places: Sequence[int] = range(len(entries))
    if of.model.name == "two_towers":
        side = sides(of.model, layout)[USER if layer.startswith(USER) else ITEM]
        places = side.lists if lists else side.categorical
    elif not layer.startswith("linear_"):
        places = seen_columns(entries, of.model, layout)
    categories = _categories(layout)
    return [(entries[place].name, value) for place in places for value in categories[entries[place].name]]


def _moved(start: NDArray[Any], rows: list[Any], value: NDArray[Any], before: list[Any]) -> NDArray[Any]:
    """Returns a table of embeddings for the values `rows`, with the rows that the earlier table `value` has for them. A
    new value gets the row of unknown values if there is one, else its initial row of `start`."""
    places = {row: place for place, row in enumerate(before)}
    sources = np.array([places.get(row, places.get((row[0], UNKNOWN), -1)) for row in rows], np.int64)
    return np.where((sources >= 0)[:, None], value[sources], start)
