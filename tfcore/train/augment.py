"""Augmentation of training rows in the graph, between shuffle and batches.

    augment = Augment(config, parameters, seed=7)
    rows |= augment.extras(window, order, seen, epoch, first)       # adds each row's index in its epoch
    rows = augment(rows)                                            # the same inputs, augmented

Mixup comes first: each row is averaged with the row before it in the shuffled window, and its own share is at least a
half. Numbers and pixels are averaged. A category is taken from one of the two rows, with the shares as probabilities; so
are all lists of a row together. A class index becomes a probability for each class. The label is averaged by share times
weight, so that the loss counts both rows by share and weight. Then `flip_crop` flips and crops images by one gather. It computes
with integers only, so that a row's pixels do not depend on its batch.

    draws = Draws(seed=7, epoch=epoch, index=index)          # int64 [rows] each
    draws.uniform(3)                                         # float32 [rows] in [0, 1)

A row's random numbers depend only on seed, epoch, row index and number of the draw. So they are the same in any batch, on
any thread, eagerly, in a graph, and after a resume. tf.random.stateless_* would need one call for each row.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.tabular.hashing import GOLDEN
from tfcore.data.reader import Batch, hash64
from tfcore.heads.head import label_head
from tfcore.train.config import AugmentConfig
from tfcore.transform.parameters import TransformParameters

_SALT = 0x617567 << 32
_EPOCH, _INDEX, _PARTNER = "augment/epoch", "augment/index", "augment/partner/"
FLIP_X, FLIP_Y, CROP_X, CROP_Y = range(4)
DRAWS = 16
"""The number of draws of one image column; the draws of the next column follow."""
_SHARE, _MIX_CATEGORY, _MIX_LISTS = range(1 << 16, (1 << 16) + 3)
"""The numbers of the other draws, above all numbers of image columns, however many there are."""
CHUNK_BYTES, CHUNK_ROWS = 1 << 20, 8192
"""The most bytes and rows that are varied at a time, so that they stay in a core's cache as float32."""
LEVELS = 1 << 16
"""Quantiles in the table of mixup's shares."""


class Augment:
    """Augments training rows after the shuffle, before they are put into batches; see the module.

    Args:
        parameters: the fitted transform, which has the layout of the inputs.
        seed: the seed of the training.

    Raises:
        ConfigError: flip or crop without an image among the inputs, or a crop too large for mirrored padding.
    """

    def __init__(self, config: AugmentConfig, parameters: TransformParameters, *, seed: int):
        self._config, self._seed = config, seed + _SALT
        inputs = parameters.inputs()
        self._images = [name for name, (_, dtype) in inputs.items() if dtype == "uint8"]
        config.check(min((min(inputs[name][0][:2]) for name in self._images), default=None))
        head = label_head(parameters.label)
        self.classes = head.outputs if head.task.per_class else 0
        self.soft = bool(config.mixup and self.classes)
        """Whether mixup makes a label the probabilities of all classes, float32 [rows, classes]."""
        row = sum(math.prod(inputs[name][0]) for name in self._images)
        self.chunk = max(8, min(CHUNK_ROWS, CHUNK_BYTES // max(1, row)))
        """Rows that are varied at a time."""

    def extras(self, window: Batch, order: tf.Tensor, skipped: tf.Tensor, epoch: tf.Tensor, first: tf.Tensor) -> Batch:
        """Returns columns that augmentation needs, to be added to the rows `window[order][skipped:]`. They are each
        row's index in the epoch, the epoch, and with mixup the columns of the row before it.

        Args:
            order: int32 [rows], the window's permutation.
            first: int64, the index of the window's first row in the epoch.
        """
        index = (first + tf.range(tf.size(order, tf.int64)))[skipped:]
        columns = {_INDEX: index, _EPOCH: tf.fill(tf.shape(index), tf.cast(epoch, tf.int64))}
        if self._config.mixup:
            before = tf.roll(order, 1, 0)[skipped:]
            columns |= {_PARTNER + name: tf.gather(value, before) for name, value in window.items()}
        return columns

    def __call__(self, rows: Batch) -> Batch:
        """Returns the augmented rows, without the columns of `extras`; inputs keep their dtypes and ranges."""
        config = self._config
        rows = dict(rows)
        draws = Draws(seed=self._seed, epoch=rows.pop(_EPOCH), index=rows.pop(_INDEX))
        if config.mixup:
            partner = {name: rows.pop(_PARTNER + name) for name in list(rows) if _PARTNER + name in rows}
            rows = self._mixed(rows, partner, draws)
        for number, name in enumerate(self._images):
            shape = rows[name].shape
            rows[name] = tf.ensure_shape(flip_crop(rows[name], draws, config, number), shape)
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


def flip_crop(pixels: tf.Tensor, draws: Draws, config: AugmentConfig, number: int = 0) -> tf.Tensor:
    """Returns images, uint8 [rows, height, width, channels], padded, flipped and cropped to their old size. `number` is
    the index of the image column: each column has its own random numbers."""
    if config.flip == "none" and not config.crop:
        return pixels
    first = number * DRAWS
    _, height, width, channels = pixels.shape
    pad = config.crop
    rows = _places(height, draws, config.flip in ("vertical", "both"), pad, first + FLIP_Y, first + CROP_Y)
    columns = _places(width, draws, config.flip in ("horizontal", "both"), pad, first + FLIP_X, first + CROP_X)
    if pad:
        sides = [[0, 0], [pad, pad], [pad, pad], [0, 0]]
        pixels = tf.pad(pixels, sides, "REFLECT" if config.padding == "reflect" else "CONSTANT")
    # as one index of all pixels: a gather with batch dimensions takes several times as long
    image = tf.range(tf.shape(pixels)[0], dtype=tf.int32)[:, None, None] * (height + 2 * pad)
    places = (image + rows[:, :, None]) * (width + 2 * pad) + columns[:, None, :]
    return tf.gather(tf.reshape(pixels, [-1, channels]), places)


def _places(size: int, draws: Draws, flips: bool, pad: int, flip: int, shift: int) -> tf.Tensor:
    """Returns for each position of the new side the position in the padded one to read; int32 [rows or 1, size]."""
    places = tf.range(size)[None]
    if flips:
        places = tf.where((draws.below(flip, 2) == 1)[:, None], places[:, ::-1], places)
    if pad:
        places += draws.below(shift, 2 * pad + 1)[:, None]
    return places


@lru_cache(maxsize=4)
def beta_quantiles(alpha: float) -> NDArray[np.float32]:
    """Returns `LEVELS` quantiles of max(x, 1 - x) for x ~ Beta(alpha, alpha), the share of a row itself in mixup.

    It is a table because a logarithm in the graph rounds differently in the middle of a vector than at its end: a row's
    result would depend on its position in the batch.
    """
    # with x = 1 / (1 + exp(-t)) the density in t, (x (1 - x))**alpha, is smooth for every alpha
    t = np.linspace(0.0, 40.0 / min(alpha, 1.0), 400_001)
    density = np.exp(-alpha * (t + 2.0 * np.log1p(np.exp(-t))))
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    at = np.interp((np.arange(LEVELS) + 0.5) / LEVELS, mass / mass[-1], t)
    return (1.0 / (1.0 + np.exp(-at))).astype(np.float32)


_COLUMNS = 1 << 20
"""The distance between the hash seeds of two draws; the columns of one draw lie between them."""


class Draws:
    """Random numbers for a batch of rows. Each is a hash of (seed, epoch, index of the row, number of the draw).

    Args:
        seed: the seed of the training.
        epoch: int64 [rows], or a scalar.
        index: int64 [rows]: the row's index in its epoch.
    """

    def __init__(self, *, seed: int, epoch: tf.Tensor, index: tf.Tensor):
        epoch, index = (tf.cast(value, tf.uint64) for value in (epoch, index))
        self._key = hash64(tf.bitwise.bitwise_xor(hash64(epoch, seed), index), 0)

    def bits(self, draw: int, columns: int | None = None) -> tf.Tensor:
        """Returns the random bits of the draw with number `draw`, uint64 [rows], or [rows, columns]."""
        if columns is None:
            return hash64(self._key, draw * _COLUMNS)
        steps = tf.range(columns, dtype=tf.int64)
        offsets = tf.cast(steps, tf.uint64) * tf.constant(GOLDEN, tf.uint64)
        return hash64(self._key[:, None] + offsets[None], draw * _COLUMNS)

    def uniform(self, draw: int, columns: int | None = None) -> tf.Tensor:
        """Returns uniform float32 numbers in [0, 1), [rows] or [rows, columns]: multiples of 2**-24, which are exact."""
        high = tf.bitwise.right_shift(self.bits(draw, columns), tf.constant(40, tf.uint64))
        return tf.cast(high, tf.float32) * (1.0 / (1 << 24))

    def below(self, draw: int, count: int) -> tf.Tensor:
        """Returns uniform random integers from 0 to count - 1, int32 [rows]."""
        high = tf.bitwise.right_shift(self.bits(draw), tf.constant(32, tf.uint64))
        return tf.cast(
            tf.bitwise.right_shift(high * tf.constant(count, tf.uint64), tf.constant(32, tf.uint64)), tf.int32
        )
