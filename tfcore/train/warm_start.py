"""Warm start: a model begins with the weights of an earlier one, each row of them following what it stands for.

    report = warm_start(model, request, WarmStart(version=3, trained=..., transform=..., model=...), log=print)
    report["columns"]["carrier"]           # {"kept": 14, "new": ["ZZ"], "dropped": ["YV"]}

At its first step a built-in model with the same layers predicts about what the earlier one does: an embedding follows its
value wherever that stands in the vocabulary, a new value begins as the unknown ones were, a new column without any effect, and
what changed in how numbers and the label are standardized is taken into the weights (exactly, but behind `soft_clip` and bins).
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import ConfigError, StoreError
from headway.messages import counted, some
from tfcore.heads.table import label_head
from tfcore.models.build import VARIABLE, WEIGHTS
from tfcore.models.linear_part import linear_speed
from tfcore.train.request import TrainRequest, WarmStart
from tfcore.train.weight_parts import UNKNOWN, Part, axes, outputs_of

Array = NDArray[np.float32]
TABLES = ("embeddings", "wide_categorical", "list_embeddings", "wide_lists")
WHERE = "training.warm_start"


def warm_start(
    model: keras.Model, request: TrainRequest, parent: WarmStart, *, assign: bool, log: Callable[[str], None]
) -> dict[str, Any]:
    """Give `model` the parent's weights; see the module.

    Args:
        assign: False: only report, as for a training that was resumed.

    Returns:
        version; kept, partly, new and dropped (paths of variables); columns: of each whose vocabulary changed how many values
        were kept, and which are new and dropped; restandardized: names of numbers; says: a sentence of all that.

    Raises:
        ConfigError: it was trained for another task, or none of its weights fits.
        StoreError: its weights cannot be read.
    """
    task, before = request.transform.label.task, parent.transform.label.task
    if task != before:
        problem = f"version {parent.version} was trained for a {before} label, and this one is {task}"
        raise ConfigError(problem, where=WHERE, fix="leave warm_start out, or name a version of this task")
    old = _stored(parent.trained.file)
    if request.model.user_defined or parent.model.user_defined:
        values, report = _of_user_model(model, old)
    else:
        values, report = _BuiltIn(model, request, parent, old).fit()
    if not report["kept"] and not report["partly"]:
        raise ConfigError(
            f"none of the weights of version {parent.version} fits this model",
            where=WHERE,
            fix="leave warm_start out, or keep model.name, model.hidden and model.embedding as they were",
        )
    if assign:
        for variable in model.variables:
            if variable.path in values:
                variable.assign(values[variable.path])
    report = {"version": parent.version} | report
    report["says"] = _sentence(report)
    log(report["says"])
    return report


def _stored(trained: Path) -> dict[str, Array]:
    """The weights of a training's output by the path of their variable."""
    try:
        paths = json.loads((trained / "model.json").read_text(encoding="utf-8"))["variables"]
        stored = tf.train.load_checkpoint(str(trained / WEIGHTS))
        return {path: stored.get_tensor(VARIABLE.format(number)) for number, path in enumerate(paths)}
    except (OSError, ValueError, KeyError, tf.errors.OpError) as error:
        fix = "leave training.warm_start out, or train that version anew"
        raise StoreError(f"cannot be read: {str(error).splitlines()[0]}", where=str(trained), fix=fix) from None


def _of_user_model(model: keras.Model, old: dict[str, Array]) -> tuple[dict[str, Array], dict[str, Any]]:
    """By the layers' names; Keras counts those that a model does not name, so of these by their order."""
    stored = dict(zip(_ordered(list(old)), old.values(), strict=True))
    values: dict[str, Array] = {}
    names = _ordered([variable.path for variable in model.variables])
    for name, variable in zip(names, model.variables, strict=True):
        value = stored.get(name)
        if value is not None and value.shape == tuple(variable.shape) and np.issubdtype(value.dtype, np.floating):
            values[variable.path] = value
    report: dict[str, Any] = {
        "kept": list(values),
        "partly": [],
        "new": [v.path for v in model.variables if v.path not in values and "seed" not in v.path],
        "dropped": [path for name, path in zip(stored, old, strict=True) if name not in names],
        "columns": {},
        "restandardized": [],
    }
    return values, report


def _ordered(paths: Sequence[str]) -> list[str]:
    """Paths with the numbers of layers counted from 0: dense_7/kernel and dense_8/kernel are dense#0 and dense#1."""
    layers: dict[str, str] = {}
    counts: Counter[str] = Counter()
    named = []
    for path in paths:
        layer, _, rest = path.partition("/")
        if layer not in layers:
            base = re.sub(r"_\d+$", "", layer)
            layers[layer] = f"{base}#{counts[base]}"
            counts[base] += 1
        named.append(f"{layers[layer]}/{rest}")
    return named


class _BuiltIn:
    """The weights of one built-in model for another."""

    def __init__(self, model: keras.Model, request: TrainRequest, parent: WarmStart, old: dict[str, Array]):
        self.model, self.request, self.parent, self.old = model, request, parent, old
        self.moved = {
            name: (scale, shift)
            for name, (scale, shift) in _moved(parent.transform, request.transform).items()
            if (scale, shift) != (1.0, 0.0)
        }
        """Of numbers: what they were, as scale * what they are + shift."""

    def fit(self) -> tuple[dict[str, Array], dict[str, Any]]:
        new_config, old_config = self.request.model, self.parent.model
        new_layout, old_layout = self.request.transform, self.parent.transform
        values: dict[str, Array] = {}
        kept, partly, fresh = list[str](), list[str](), list[str]()
        for variable in self.model.variables:
            path, value = variable.path, self.old.get(variable.path)
            start = np.asarray(variable.value)
            if not np.issubdtype(start.dtype, np.floating):
                continue
            if value is None or value.ndim != start.ndim:
                fresh.append(path)
                continue
            new_parts = axes(new_config, new_layout, path, start.shape)
            old_parts = axes(old_config, old_layout, path, value.shape)
            found = _followed(path, start, new_parts, value, old_parts)
            if found is None:
                fresh.append(path)
                continue
            values[path], whole = found
            (kept if whole else partly).append(path)
        self._numbers_moved(values)
        self._label_moved(values)
        columns = {}
        before, after = _vocabularies(old_layout), _vocabularies(new_layout)
        for name in dict.fromkeys([*after, *before]):
            was, now = before.get(name, []), after.get(name, [])
            if was != now and (set(was) != set(now)):
                columns[name] = {
                    "kept": len(set(was) & set(now)),
                    "new": [value for value in now if value not in was],
                    "dropped": [value for value in was if value not in now],
                }
        floating = [v.path for v in self.model.variables if v.value.dtype.is_floating]
        return values, {
            "kept": kept,
            "partly": partly,
            "new": fresh,
            "dropped": [path for path in self.old if path not in floating and "seed" not in path],
            "columns": columns,
            "restandardized": sorted(self.moved),
        }

    def _numbers_moved(self, values: dict[str, Array]) -> None:
        """Have weights of numbers see them as they are standardized now."""
        names = self.request.transform.numeric
        moved = [(place, *self.moved[name]) for place, name in enumerate(names) if name in self.moved]
        if not moved:
            return
        config = self.request.model
        seen = [] if config.quantile_bins else [("number", name) for name in names]
        first = "hidden_0" if config.hidden else "output"
        for path, into, speed in (
            ("wide_numeric/kernel", "output/bias", linear_speed(self.parent.model, self.parent.transform)),
            ("numeric_embeddings/slopes", "numeric_embeddings/bias", 1.0),
            (f"{first}/kernel", f"{first}/bias", 1.0),
        ):
            if path not in values or into not in values:
                continue
            kernel, places = values[path], range(len(names))
            if path.startswith(first):
                parts = axes(config, self.request.transform, path, kernel.shape)[0]
                if parts is None or not seen or config.name == "stacked":
                    continue
                places = range(parts.index(seen[0]), parts.index(seen[0]) + len(names))
            for place, scale, shift in moved:
                row = kernel[places[place]]
                if path.startswith("numeric_embeddings"):
                    values[into][place] += shift * row
                else:
                    values[into] = values[into] + shift * speed * row
                kernel[places[place]] = scale * row

    def _label_moved(self, values: dict[str, Array]) -> None:
        """Have the last layer and the linear part give what they gave, in the units of the label as they are now."""
        speeds = [linear_speed(of.model, of.transform) for of in (self.parent, self.request)]
        labels = self.parent.transform.label, self.request.transform.label
        before, now = map(outputs_of, labels)
        (old_scale, old_centre), (scale, centre) = (
            [np.broadcast_to(unit, len(parts)) for unit in label_head(label).units(label)]
            for label, parts in zip(labels, (before, now), strict=True)
        )
        place = [before.index(part) if part in before else None for part in now]
        # a column that the parent did not have stays as it is
        ratio = np.asarray([1.0 if at is None else old_scale[at] / scale[i] for i, at in enumerate(place)])
        moved = [0.0 if at is None else (old_centre[at] - centre[i]) / scale[i] for i, at in enumerate(place)]
        for path in values:
            if path.startswith("wide_"):
                values[path] = (values[path] * (ratio * speeds[0] / speeds[1])).astype(np.float32)
            elif path.startswith("output/"):
                values[path] = (values[path] * ratio).astype(np.float32)
        if "output/bias" in values:
            values["output/bias"] = (values["output/bias"] + np.asarray(moved)).astype(np.float32)


def _followed(
    path: str, start: Array, new: Sequence[list[Part] | None], value: Array, old: Sequence[list[Part] | None]
) -> tuple[Array, bool] | None:
    """The new value of a variable and whether all of it was kept; None where its shape is another one."""
    whole, layer = True, path.partition("/")[0]
    result = value.astype(np.float32)
    for axis, (now, before) in enumerate(zip(new, old, strict=True)):
        if now is None or before is None:
            if start.shape[axis] != value.shape[axis]:
                return None
            continue
        if now == before:
            continue
        whole = False
        places = {part: place for place, part in enumerate(before)}
        # a new value begins as those did that were unknown
        sources = [
            places.get(part, places.get((part[0], UNKNOWN)) if layer in TABLES and axis == 0 else None) for part in now
        ]
        known = [place for place, source in enumerate(sources) if source is not None]
        taken = np.take(result, [source for source in sources if source is not None], axis=axis)
        shape = list(result.shape)
        shape[axis] = len(now)
        # weights of a new input begin at zero, so that it has no effect; of anything else at their initial values
        into_layer = path.endswith("kernel") and axis == 0
        filled = np.zeros(shape, np.float32)
        if not into_layer and list(start.shape) == shape:
            filled = start.astype(np.float32).copy()
        index: list[Any] = [slice(None)] * result.ndim
        index[axis] = known
        filled[tuple(index)] = taken
        result = filled
    return (result.copy(), whole) if result.shape == start.shape else None


def _vocabularies(layout: Any) -> dict[str, list[Any]]:
    return {
        fitted.column.name: list(fitted.ops[-1].words or fitted.ops[-1].integers or ())
        for fitted in layout.fitted
        if fitted.size is not None and fitted.ops[-1].op == "vocabulary"
    }


def _moved(old: Any, new: Any) -> dict[str, tuple[float, float]]:
    """Of each number that both have, what it was: scale * what it is + shift."""
    before = {fitted.column.name: fitted for fitted in old.fitted}
    moved: dict[str, tuple[float, float]] = {}
    for fitted in new.fitted:
        was = before.get(fitted.column.name)
        if was is None or fitted.size is not None or was.size is not None or not fitted.ops or not was.ops:
            continue
        if [op.op for op in fitted.ops] != [op.op for op in was.ops]:
            continue
        now, then = _affine(fitted.ops[-1]), _affine(was.ops[-1])
        if now is None or then is None or now == then:
            continue
        (centre, width), (old_centre, old_width) = now, then
        # of a list what is the mean or the greatest moves as its values do, their sum or number does not
        figures = [f"{fitted.column.name}__{figure}" for figure in fitted.pool if figure not in ("sum", "length")]
        for name in figures if fitted.pool else fitted.numeric_names():
            if not name.endswith(("__missing", "__nan")):
                moved[name] = (width / old_width, (centre - old_centre) / old_width)
    return moved


def _affine(op: Any) -> tuple[float, float] | None:
    """(centre, width) of an operation (x - centre) / width."""
    if op.op == "standardize":
        return op.mean, op.std
    if op.op == "min_max":
        width = (op.maximum - op.minimum) / (op.high - op.low)
        return op.minimum - op.low * width, width
    return None


def _sentence(report: dict[str, Any]) -> str:
    total = len(report["kept"]) + len(report["partly"]) + len(report["new"])
    found = [
        f"warm start from version {report['version']}: {len(report['kept'])} of {counted(total, 'variable')} as they were"
    ]
    if report["partly"]:
        found.append(f"{len(report['partly'])} row by row ({some(report['partly'], 4)})")
    for name, column in report["columns"].items():
        changes = [f"{counted(column['kept'], 'value')} kept"]
        changes += [
            f"{len(column[what])} {what} ({some(column[what], 3)})" for what in ("new", "dropped") if column[what]
        ]
        found.append(f"{name}: {', '.join(changes)}")
    if report["new"]:
        found.append(f"begin anew: {some(report['new'], 4)}")
    if report["dropped"]:
        found.append(f"dropped: {some(report['dropped'], 4)}")
    return "; ".join(found)
