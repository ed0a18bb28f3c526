"""Warm start: a model begins with the weights of an earlier one, and a category's vector stays with its category.

    warm_start(model, request, WarmStart(version=3, trained=..., transform=..., model=...), assign=True, log=print)
    # warm start from version 3: 8 of 9 variables as they were; row by row: embeddings/table

A table of embeddings is taken row by row: the vector of a value moves to the value's place in the new vocabulary, and a new
value begins with the vector of unknown ones. Other weights are taken where names and shapes agree, if the model sees the same
columns and gives the same classes, in the same order: else a weight would go to another column. In a model of the user's own
nobody knows which weights are a category's, so that its vocabularies have to be the same.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import ConfigError, StoreError
from headway.messages import counted, some
from tfcore.models.build import VARIABLE, WEIGHTS
from tfcore.models.config import ModelConfig
from tfcore.models.inputs import Layout, seen_columns
from tfcore.models.linear_part import linear_speed
from tfcore.models.towers.two_towers import ITEM, USER, sides
from tfcore.train.request import TrainRequest, WarmStart

Array = NDArray[Any]
UNKNOWN, NULL = "<unknown>", "<null>"
WHERE = "training.warm_start"


def warm_start(
    model: keras.Model, request: TrainRequest, parent: WarmStart, *, assign: bool, log: Callable[[str], None]
) -> dict[str, Any]:
    """Give `model` the parent's weights, see the module; with `assign` false only report, as for a training that was resumed.

    Returns:
        version; kept, partly (rows moved) and new: paths of variables; says: a sentence of all that.

    Raises:
        ConfigError: it was trained for another task, or none of its weights fits.
        StoreError: its weights cannot be read.
    """
    layout, before = request.transform, parent.transform
    if (task := layout.label.task) != before.label.task:
        problem = f"version {parent.version} was trained for a {before.label.task} label, and this one is {task}"
        raise ConfigError(problem, where=WHERE, fix="leave warm_start out, or name a version of this task")
    stored, variables = _stored(parent.trained.file), [v for v in model.variables if v.value.dtype.is_floating]
    own, same = request.model.user_defined or parent.model.user_defined, _seen(request) == _seen(parent)
    if own:  # Keras counts the layers that a model does not name: of one model the order is the same in every process
        found = [value for value in stored.values() if value.dtype.kind == "f"]
        same = same and _categories(layout) == _categories(before)
        same = same and [value.shape for value in found] == [tuple(v.shape) for v in variables]
        stored = dict(zip([v.path for v in variables], found, strict=False))
    values: dict[str, Array] = {}
    kept, partly, new = list[str](), list[str](), list[str]()
    for variable in variables:
        path, start = variable.path, np.asarray(variable.value)
        value = stored.get(path)
        rows = None if own else _rows(path, request.model, layout)
        if value is None or value.ndim != start.ndim or value.shape[1:] != start.shape[1:]:
            new.append(path)
        elif rows is not None and (same or not path.startswith("wide_")):
            before_rows = _rows(path, parent.model, before) or []
            values[path] = _moved(start, rows, value, before_rows)
            (kept if rows == before_rows else partly).append(path)
        elif rows is None and same and value.shape == start.shape:
            values[path] = value
            kept.append(path)
        else:
            new.append(path)
    if not values:
        fix = "leave warm_start out, or keep model.name, model.hidden and model.embedding as they were; of a model of your own "
        fix += "it is not known which weights are whose: columns, vocabularies and classes have to be the same too"
        raise ConfigError(f"none of the weights of version {parent.version} fits this model", where=WHERE, fix=fix)
    for variable in variables if assign else ():
        if variable.path in values:
            variable.assign(values[variable.path])
    count, parts = counted(len(variables), "variable"), {"row by row": partly, "begin anew": new}
    says = [f"warm start from version {parent.version}: {len(kept)} of {count} as they were"]
    says += [f"{what}: {some(paths, 4)}" for what, paths in parts.items() if paths]
    log("; ".join(says))
    return {"version": parent.version, "kept": kept, "partly": partly, "new": new, "says": "; ".join(says)}


def _stored(trained: Path) -> dict[str, Array]:
    """The weights of a training's output by the path of their variable."""
    try:
        paths = json.loads((trained / "model.json").read_text(encoding="utf-8"))["variables"]
        stored = tf.train.load_checkpoint(str(trained / WEIGHTS))
        return {path: stored.get_tensor(VARIABLE.format(number)) for number, path in enumerate(paths)}
    except (OSError, ValueError, KeyError, tf.errors.OpError) as error:
        fix = "leave training.warm_start out, or train that version anew"
        raise StoreError(f"cannot be read: {str(error).splitlines()[0]}", where=str(trained), fix=fix) from None


def _seen(of: TrainRequest | WarmStart) -> tuple[Any, ...]:
    """The columns that a model sees and the classes that it gives, in their order; its item and its linear part's factor."""
    layout = of.transform
    names = ([entry.name for entry in entries] for entries in (layout.categorical, layout.lists))
    images = [name for name in layout.inputs() if name.startswith("image_")]
    return ([*layout.numeric], *names, images, layout.label.classes, of.model.item, linear_speed(of.model, layout))


def _categories(layout: Layout) -> dict[str, list[Any]]:
    """What each id of each categorical column stands for: ("value", "UA"), UNKNOWN, NULL, the place of a bucket."""
    return {fitted.column.name: _values_of(fitted) for fitted in layout.fitted if fitted.size is not None}


def _values_of(fitted: Any) -> list[Any]:
    last, nullable = fitted.ops[-1], fitted.column.nullable
    if last.op == "vocabulary":
        known: list[Any] = [
            ("value", value) for value in (last.words if last.words is not None else last.integers or ())
        ]
        buckets = last.oov_buckets or 0
        known += [UNKNOWN] if buckets == 1 else [(UNKNOWN, buckets, place) for place in range(buckets)]
    else:
        known = [(last.op, fitted.size - nullable, place) for place in range(fitted.size - nullable)]
    return [*known, NULL] if nullable else known


def _rows(path: str, config: ModelConfig, layout: Layout) -> list[tuple[str, Any]] | None:
    """(column, value) of each row of a built-in model's table; None: the variable is none."""
    layer, _, name = path.partition("/")
    if name != "table":
        return None
    entries = layout.lists if "list" in layer else layout.categorical
    places: Sequence[int] = range(len(entries))
    if config.name == "two_towers":
        side = sides(config, layout)[USER if layer.startswith(USER) else ITEM]
        places = side.lists if "list" in layer else side.categorical
    elif layer == "embeddings":
        places = seen_columns(config, layout)
    categories = _categories(layout)
    return [(entries[place].name, value) for place in places for value in categories[entries[place].name]]


def _moved(start: Array, rows: list[Any], value: Array, before: list[Any]) -> Array:
    """A table with each row at the place of its value; a new value has the row of unknown ones, or else the initial one."""
    places = {row: place for place, row in enumerate(before)}
    sources = np.array([places.get(row, places.get((row[0], UNKNOWN), -1)) for row in rows], np.int64)
    return np.where((sources >= 0)[:, None], value[sources], start)
