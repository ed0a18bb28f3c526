"""Augmentation of training rows in the graph, between shuffle and batches.

    augment = Augment(config, parameters, seed=7)
    rows |= augment.placed(window, order, seen, epoch, first)       # where each row stands in its epoch
    rows = augment(rows)                                            # the same inputs, varied

Mixup comes first: a row is averaged with the one before it in the shuffled window, by a share of at least a half of its
own. Numbers and pixels are averaged, a category is one of the two, picked with that probability, and so is a row's
whole set of lists. The label's share takes the rows' weights into account, so that the loss is that of both rows, each
by its share and its weight; a class index becomes a probability for each class. Then images (`pixels`), noise, and last
columns shown as missing: what a null would have given the model.
"""

import math

import numpy as np
import tensorflow as tf

from tfcore.augment.config import AugmentConfig
from tfcore.augment.draws import Draws
from tfcore.augment.pixels import vary
from tfcore.augment.tables import LEVELS, beta_quantiles, normal_quantiles
from tfcore.heads.table import label_head
from tfcore.transform.fitted import Fitted
from tfcore.transform.layer import when_missing
from tfcore.transform.parameters import TransformParameters

Batch = dict[str, tf.Tensor]
_SALT = 0x617567 << 32
_EPOCH, _INDEX, _PARTNER = "augment/epoch", "augment/index", "augment/partner/"
_SHARE, _MIX_CATEGORY, _MIX_LISTS, _NOISE, _MISSING = range(1 << 16, (1 << 16) + 5)
"""Draws beyond those of any number of images."""
CHUNK_BYTES, CHUNK_ROWS = 1 << 20, 8192
"""Most at a time: what stays in a core's cache as float32."""


class Augment:
    """Augments training rows, between shuffle and batches; see the module.

    Args:
        parameters: the layout of the inputs.
        seed: of the run.

    Raises:
        ConfigError: a setting has nothing to work on.
    """

    def __init__(self, config: AugmentConfig, parameters: TransformParameters, *, seed: int):
        self._config, self._seed = config, seed + _SALT
        inputs = parameters.inputs()
        self._images = [name for name, (_, dtype) in inputs.items() if dtype == "uint8"]
        self._columns = _Columns(parameters)
        listed = inputs["lists"][0][0] if "lists" in inputs else 0
        config.check(
            images=len(self._images),
            colours=sum(inputs[name][0][-1] == 3 for name in self._images),
            shortest=min((min(inputs[name][0][:2]) for name in self._images), default=0),
            numeric=len(parameters.numeric),
            categorical=len(parameters.categorical) + listed,
        )
        head = label_head(parameters.label)
        self.classes = head.outputs if head.task.per_class else 0
        self.soft = bool(config.mixup and self.classes)
        """Whether a label is a probability for each class, float32 [rows, classes]."""
        row = sum(math.prod(inputs[name][0]) for name in self._images)
        self.chunk = max(8, min(CHUNK_ROWS, CHUNK_BYTES // max(1, row)))
        """Rows that are varied at a time."""

    def placed(self, window: Batch, order: tf.Tensor, skipped: tf.Tensor, epoch: tf.Tensor, first: tf.Tensor) -> Batch:
        """The columns that augmentation needs of the rows `window[order][skipped:]`: index, epoch, mixed-in row.

        Args:
            order: int32 [rows], the window's permutation.
            first: int64, the index in the epoch of the window's first row.
        """
        index = (first + tf.range(tf.size(order, tf.int64)))[skipped:]
        columns = {_INDEX: index, _EPOCH: tf.fill(tf.shape(index), tf.cast(epoch, tf.int64))}
        if self._config.mixup:
            before = tf.roll(order, 1, 0)[skipped:]
            columns |= {_PARTNER + name: tf.gather(value, before) for name, value in window.items()}
        return columns

    def __call__(self, rows: Batch) -> Batch:
        """Augment rows that have the columns of `placed`, and remove these; other dtypes and ranges stay."""
        config = self._config
        rows = dict(rows)
        draws = Draws(seed=self._seed, epoch=rows.pop(_EPOCH), index=rows.pop(_INDEX))
        if config.mixup:
            partner = {name: rows.pop(_PARTNER + name) for name in list(rows) if _PARTNER + name in rows}
            rows = self._mixed(rows, partner, draws)
        for number, name in enumerate(self._images):
            shape = rows[name].shape
            rows[name] = tf.ensure_shape(vary(rows[name], draws, config, number), shape)
        if config.noise:
            rows["numeric"] = self._noisy(rows["numeric"], draws)
        if config.feature_dropout:
            dropped = draws.uniform(_MISSING, columns=self._columns.count) < config.feature_dropout
            rows |= self._columns.hidden(rows, dropped)
        return rows

    def _mixed(self, rows: Batch, partner: Batch, draws: Draws) -> Batch:
        share = tf.gather(tf.constant(beta_quantiles(self._config.mixup)), draws.below(_SHARE, LEVELS))
        # a row that weighs nothing may hold anything
        share = tf.where((rows["weight"] > 0) & (partner["weight"] > 0), share, tf.ones_like(share))
        own, other = share * rows["weight"], (1.0 - share) * partner["weight"]
        weight = own + other
        mixed = dict(rows) | {"weight": weight}
        mixed["numeric"] = share[:, None] * rows["numeric"] + (1.0 - share)[:, None] * partner["numeric"]
        for name in self._images:
            part = share[:, None, None, None]
            both = part * tf.cast(rows[name], tf.float32) + (1.0 - part) * tf.cast(partner[name], tf.float32)
            mixed[name] = tf.cast(tf.round(both), tf.uint8)
        ids = rows["categorical"]
        if ids.shape[1]:
            keep = draws.uniform(_MIX_CATEGORY, columns=ids.shape[1]) < share[:, None]
            mixed["categorical"] = tf.where(keep, ids, partner["categorical"])
        if "lists" in rows:
            keep = (draws.uniform(_MIX_LISTS) < share)[:, None]
            mixed["lists"] = tf.where(keep, rows["lists"], partner["lists"])
        label_share = tf.math.divide_no_nan(own, weight)
        label, other = rows["label"], partner["label"]
        if self.soft:
            label, other = (tf.one_hot(classes, self.classes, dtype=tf.float32) for classes in (label, other))
            label_share = label_share[:, None]
        mixed["label"] = label_share * label + (1.0 - label_share) * other
        return mixed

    def _noisy(self, numeric: tf.Tensor, draws: Draws) -> tf.Tensor:
        values = tf.constant(self._columns.values)
        normal = tf.gather(tf.constant(normal_quantiles()), draws.below(_NOISE, LEVELS, columns=numeric.shape[1]))
        # as likely as adding it, and not a sum that the graph's optimizer would join to another
        return numeric - normal * (values * self._config.noise)


class _Columns:
    """The model inputs that each raw column makes, and their values when the column is missing."""

    def __init__(self, parameters: TransformParameters):
        self.count = len(parameters.fitted)
        owners: dict[str, list[int]] = {"numeric": [], "categorical": [], "lists": []}
        missing: dict[str, list[float]] = {"numeric": [], "categorical": [], "lists": []}
        values: list[float] = []
        sources = {part.name: part.source.name for part in parameters.parts}
        first: dict[str, int] = {}
        for place, fitted in enumerate(parameters.fitted):
            # the parts of a column are missing together
            number = first.setdefault(sources.get(fitted.column.name, fitted.column.name), place)
            kind = "numeric" if fitted.size is None else "categorical" if fitted.width is None else "lists"
            inputs = when_missing(fitted)
            width = len(fitted.numeric_names()) if kind == "numeric" else fitted.width or 1
            owners[kind] += [-1 if inputs is None else number] * width
            missing[kind] += [0.0] * width if inputs is None else inputs
            if kind == "numeric":
                values += _values(fitted)
        self.values = np.asarray(values, np.float32)
        """1 where a numeric input is a value, 0 where it only says that one is missing. [numeric]"""
        self._owners = {kind: np.asarray(owner, np.int32) for kind, owner in owners.items()}
        self._missing = {kind: np.asarray(inputs, np.float32) for kind, inputs in missing.items()}

    def hidden(self, rows: Batch, dropped: tf.Tensor) -> Batch:
        """The inputs as if the columns of `dropped` (bool [rows, columns]) were missing."""
        hidden: Batch = {}
        for kind, owner in self._owners.items():
            if not len(owner):
                continue
            value = rows[kind]
            mask = tf.gather(dropped, np.maximum(owner, 0), axis=1) & (owner >= 0)
            hidden[kind] = tf.where(mask, self._missing[kind].astype(value.dtype.as_numpy_dtype), value)
        return hidden


def _values(fitted: Fitted) -> list[float]:
    names = len(fitted.numeric_names())
    indicators = fitted.missing_indicator + fitted.nan_indicator if fitted.pixels is None else names
    return [1.0] * (names - indicators) + [0.0] * indicators
