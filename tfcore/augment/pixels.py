"""Image augmentation in the graph: flip, crop, colour and cutout of a whole batch.

    vary(pixels, draws, config, number=0)        # uint8 [rows, height, width, channels], as it came

A flip and a crop are one gather. Colour is one affine map of an image's channels: hue and saturation a 3 by 3 matrix,
contrast a factor about the mean of all its values, brightness an offset; what leaves 0 .. 255 is clipped. Everything is
elementwise or in integers, so that a row's pixels do not depend on the batch it is in.
"""

import numpy as np
import tensorflow as tf

from tfcore.augment.config import AugmentConfig
from tfcore.augment.draws import Draws
from tfcore.augment.tables import ANGLES, hue_matrices

FLIP_X, FLIP_Y, CROP_X, CROP_Y, BRIGHTNESS, CONTRAST, SATURATION, HUE, CUT_X, CUT_Y = range(10)
DRAWS = 16
"""Draws of one image column; the next column's follow."""
_LUMA = (0.299, 0.587, 0.114)


def vary(pixels: tf.Tensor, draws: Draws, config: AugmentConfig, number: int = 0) -> tf.Tensor:
    """Augment uint8 [rows, height, width, channels] as `config` says; `number` is the number of the image column."""
    first = number * DRAWS
    if config.flip != "none" or config.crop:
        pixels = _moved(pixels, draws, config, first)
    if config.brightness or config.contrast or ((config.saturation or config.hue) and pixels.shape[-1] == 3):
        pixels = _coloured(pixels, draws, config, first)
    return _cut(pixels, draws, config.cutout, first) if config.cutout else pixels


def _moved(pixels: tf.Tensor, draws: Draws, config: AugmentConfig, first: int) -> tf.Tensor:
    """Pad, flip and crop: output pixel (y, x) of a row is input pixel (rows[y], columns[x])."""
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
    """Return the place on the padded side that each output place takes; int32 [rows or 1, size]."""
    places = tf.range(size)[None]
    if flips:
        places = tf.where((draws.below(flip, 2) == 1)[:, None], places[:, ::-1], places)
    if pad:
        places += draws.below(shift, 2 * pad + 1)[:, None]
    return places


def _coloured(pixels: tf.Tensor, draws: Draws, config: AugmentConfig, first: int) -> tf.Tensor:
    """Compute gain * (mixed - mean) + mean + offset: hue and saturation mix the channels, contrast is the gain."""
    _, height, width, channels = pixels.shape
    ones = tf.ones_like(draws.uniform(0))
    gain, offset = ones, 0.0 * ones
    if config.brightness:
        offset = 255.0 * draws.between(first + BRIGHTNESS, -config.brightness, config.brightness)
    if config.contrast:
        gain = draws.between(first + CONTRAST, 1.0 - config.contrast, 1.0 + config.contrast)
    flat = tf.reshape(pixels, [-1, height * width * channels])
    # integers add up to the same in any order
    mean = tf.cast(tf.reduce_sum(tf.cast(flat, tf.int32), 1), tf.float32) / float(height * width * channels)
    minus = (gain * mean - mean - offset)[:, None]
    if channels != 3 or not (config.saturation or config.hue):
        coloured = _to_bytes(tf.cast(flat, tf.float32) * gain[:, None] - minus)
    else:
        planes = tf.unstack(tf.reshape(pixels, [-1, height * width, 3]), axis=2)
        red, green, blue = (tf.cast(plane, tf.float32) for plane in planes)
        mixed = []
        for to_red, to_green, to_blue in _matrix(draws, config, first):
            # differences only: the graph's optimizer adds a chain of sums up in another order than eager execution
            value = red * (gain * to_red)[:, None] - green * (-gain * to_green)[:, None]
            mixed.append(_to_bytes(value - blue * (-gain * to_blue)[:, None] - minus))
        coloured = tf.stack(mixed, 2)
    return tf.reshape(coloured, [-1, height, width, channels])


def _matrix(draws: Draws, config: AugmentConfig, first: int) -> list[list[tf.Tensor]]:
    """Return the 3 by 3 factors [rows] from the channels to the new channels."""
    if config.hue:
        matrices = tf.gather(tf.constant(hue_matrices(config.hue)), draws.below(first + HUE, ANGLES))
        turn = [[matrices[:, i, j] for j in range(3)] for i in range(3)]
    else:
        ones = tf.ones_like(draws.uniform(0))
        turn = [[ones * float(i == j) for j in range(3)] for i in range(3)]
    if not config.saturation:
        return turn
    keep = draws.between(first + SATURATION, 1.0 - config.saturation, 1.0 + config.saturation)
    # a turn leaves grey where it is, so the way to grey is the same before it and after
    return [[keep * turn[i][j] + (1.0 - keep) * _LUMA[j] for j in range(3)] for i in range(3)]


def _cut(pixels: tf.Tensor, draws: Draws, side: int, first: int) -> tf.Tensor:
    """Black out a square whose centre lies anywhere; the part of it outside the image is lost."""
    _, height, width, channels = pixels.shape

    def outside(size: int, draw: int, each: int) -> tf.Tensor:
        begin = draws.below(draw, size)[:, None] - side // 2
        places = np.repeat(np.arange(size, dtype=np.int32), each)[None]
        return tf.cast((places < begin) | (places >= begin + side), tf.uint8)

    # a line of pixels is kept whole, or as far as the square does not cover it
    lines, places = outside(height, first + CUT_Y, 1), outside(width, first + CUT_X, channels)
    keep = tf.maximum(lines[:, :, None], places[:, None, :])
    return tf.reshape(tf.reshape(pixels, [-1, height, width * channels]) * keep, [-1, height, width, channels])


def _to_bytes(values: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.clip_by_value(tf.round(values), 0.0, 255.0), tf.uint8)
