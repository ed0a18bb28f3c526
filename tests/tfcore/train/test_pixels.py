"""Images varied: exact pixels, one row at a time or all at once, eagerly or in a graph."""

import numpy as np
import pytest
import tensorflow as tf

from headway.errors import ConfigError
from tfcore.train.augment import CROP_X, CROP_Y, FLIP_X, FLIP_Y, Draws, flip_crop
from tfcore.train.config import AugmentConfig

ROWS, HEIGHT, WIDTH = 40, 9, 7
EVERYTHING = AugmentConfig(flip="both", crop=2, padding="reflect")


def pixels(rows=ROWS, channels=3):
    made = np.random.default_rng(1).integers(0, 256, (rows, HEIGHT, WIDTH, channels), np.uint8)
    return tf.constant(made)


def draws(rows=ROWS, epoch=0, first=0, seed=3):
    return Draws(seed=seed, epoch=tf.constant(epoch, tf.int64), index=tf.range(first, first + rows, dtype=tf.int64))


def test_a_flip_is_a_mirror_image_or_nothing():
    given, dice = pixels(), draws()
    for flip, axis, draw in (("horizontal", 1, FLIP_X), ("vertical", 0, FLIP_Y)):
        found = flip_crop(given, dice, AugmentConfig(flip=flip)).numpy()
        flipped = dice.below(draw, 2).numpy() == 1
        assert 8 < flipped.sum() < 32
        for row in range(ROWS):
            image = given[row].numpy()
            np.testing.assert_array_equal(found[row], np.flip(image, axis) if flipped[row] else image)


@pytest.mark.parametrize("padding", ["constant", "reflect"])
def test_a_crop_is_a_window_of_the_padded_image(padding):
    given, dice = pixels(), draws()
    found = flip_crop(given, dice, AugmentConfig(crop=3, padding=padding)).numpy()
    down, right = dice.below(CROP_Y, 7).numpy(), dice.below(CROP_X, 7).numpy()
    assert len(set(down)) == 7
    sides = ((3, 3), (3, 3), (0, 0))
    for row in range(ROWS):
        padded = np.pad(given[row].numpy(), sides, "constant" if padding == "constant" else "reflect")
        window = padded[down[row] : down[row] + HEIGHT, right[row] : right[row] + WIDTH]
        np.testing.assert_array_equal(found[row], window)


def test_one_colour_channel_takes_what_it_can():
    found = flip_crop(pixels(channels=1), draws(), EVERYTHING)
    assert found.shape == (ROWS, HEIGHT, WIDTH, 1) and found.dtype == tf.uint8


@pytest.mark.parametrize("size", [1, 3, 17])
def test_a_row_s_pixels_do_not_depend_on_its_batch(size):
    given = pixels()
    whole = flip_crop(given, draws(), EVERYTHING).numpy()
    graph = tf.function(lambda raw, first, rows: flip_crop(raw, draws(rows, first=first), EVERYTHING), autograph=False)
    for at in range(0, ROWS, size):
        part = given[at : at + size]
        rows = tf.constant(part.shape[0], tf.int64)
        np.testing.assert_array_equal(graph(part, tf.constant(at, tf.int64), rows), whole[at : at + size])
    assert whole.dtype == np.uint8 and whole.min() == 0 and whole.max() == 255


def test_another_epoch_or_seed_or_image_column_varies_otherwise():
    given = pixels()
    first = flip_crop(given, draws(), EVERYTHING).numpy()
    for other in (
        flip_crop(given, draws(epoch=1), EVERYTHING),
        flip_crop(given, draws(seed=4), EVERYTHING),
        flip_crop(given, draws(), EVERYTHING, number=1),
    ):
        assert (other.numpy() != first).any(axis=(1, 2, 3)).mean() > 0.9


def test_settings_without_anything_to_work_on_are_named():
    with pytest.raises(ValueError, match="has no setting"):
        AugmentConfig()
    for setting in ({"flip": "both"}, {"crop": 1}):
        with pytest.raises(ConfigError, match=f"training.augment.{next(iter(setting))}"):
            AugmentConfig(**setting, mixup=0.1).check(None)
    AugmentConfig(flip="none", crop=0, mixup=0.1).check(None)
    mirrored = AugmentConfig(crop=9, padding="reflect")
    with pytest.raises(ConfigError, match="9 pixels of padding cannot mirror an image whose shortest side has 9"):
        mirrored.check(9)
    mirrored.check(10)
