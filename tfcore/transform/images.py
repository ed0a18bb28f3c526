"""Decodes images to pixels, in the graph.

    decode_images(files, present, (96, 96, 3))       # uint8 [rows, 96, 96, 3]

Training and evaluation use `ImageDecoder` in place of `decode_images`. Ingest has checked every image with Pillow, but TensorFlow
refuses a few images that Pillow takes, and one image should not end a training of hours. `ImageDecoder` gives black pixels for a
refused image, and says which rows have one, so that they get weight 0. It counts refused images, and fails beyond a bound. It
decodes all rows of a record in one loop, and row by row if one of them fails.
"""

import math
import re
import threading
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import DataError
from headway.messages import counted
from tfcore.graph.python_op import numpy_op

Pixels = tuple[int, int, int]
MOST_REFUSED = 0.01
"""The largest share of images that TensorFlow may refuse before a training or an evaluation ends."""


def decode_one(file: tf.Tensor, pixels: Pixels) -> tf.Tensor:
    """Decode one file (string, scalar) to uint8 [height, width, channels], turned as its EXIF orientation says.

    Raises tf.errors.InvalidArgumentError for a damaged file.
    """
    height, width, channels = pixels
    image = tf.io.decode_image(file, channels=channels, expand_animations=False)
    image.set_shape([None, None, channels])
    turn = _orientation(file)
    image = tf.cond(turn > 1, lambda: _upright(image, turn), lambda: image)
    image.set_shape([None, None, channels])

    def resized() -> tf.Tensor:
        floats = tf.image.resize(image, [height, width], antialias=True)
        return tf.cast(tf.clip_by_value(tf.round(floats), 0.0, 255.0), tf.uint8)

    fits = tf.reduce_all(tf.equal(tf.shape(image)[:2], [height, width]))
    return tf.ensure_shape(tf.cond(fits, lambda: image, resized), pixels)


def _orientation(file: tf.Tensor) -> tf.Tensor:
    """Returns the EXIF orientation of a JPEG or PNG, 1 to 8, int64; 1 where it has none."""
    is_png = tf.equal(tf.strings.substr(file, 0, 4), b"\x89PNG")
    parts = tf.strings.split(file, tf.where(is_png, b"eXIf", b"Exif\0\0"), 1)

    def found() -> tf.Tensor:
        head = tf.io.decode_raw(tf.strings.substr(parts[1], 0, 1 << 16), tf.uint8)
        data = tf.concat([tf.cast(head, tf.int64), tf.zeros([8], tf.int64)], 0)
        is_little = data[0] == ord("I")

        def number(digits: tf.Tensor) -> tf.Tensor:
            digits = tf.cond(is_little, lambda: digits, lambda: tf.reverse(digits, [-1]))
            return tf.reduce_sum(digits * 256 ** tf.range(tf.shape(digits, tf.int64)[-1]), -1)

        start = tf.minimum(number(data[4:8]), tf.size(data, tf.int64) - 2)
        entries = data[start + 2 : start + 2 + 12 * number(data[start : start + 2])]
        entries = tf.reshape(entries[: tf.size(entries) // 12 * 12], [-1, 12])
        values = tf.boolean_mask(number(entries[:, 8:10]), number(entries[:, :2]) == 0x0112)
        first = tf.concat([values, [1]], 0)[0]
        is_exif = (number(data[2:4]) == 42) & (first <= 8)
        return tf.where(is_exif, first, 1)

    return tf.cond(tf.size(parts) > 1, found, lambda: tf.constant(1, tf.int64))


def _upright(image: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Turn and mirror an image so that it is upright. `orientation` is its EXIF orientation, 1 to 8."""

    def where(orientations: list[int], change: Callable[[tf.Tensor], tf.Tensor], image: tf.Tensor) -> tf.Tensor:
        return tf.cond(tf.reduce_any(orientation == orientations), lambda: change(image), lambda: image)

    image = where([5, 6, 7, 8], lambda image: tf.transpose(image, [1, 0, 2]), image)
    image = where([2, 3, 6, 7], lambda image: tf.reverse(image, [1]), image)
    return where([3, 4, 7, 8], lambda image: tf.reverse(image, [0]), image)


def decode_images(files: tf.Tensor, present: tf.Tensor | None, pixels: Pixels, *, raw: bool = False) -> tf.Tensor:
    """Decode files (string [rows]) to uint8 [rows, height, width, channels]; zeros for rows that are not `present`.

    Args:
        raw: the files are the pixels themselves, one byte each, row by row.

    Raises:
        tf.errors.InvalidArgumentError: a file is damaged, or has another number of raw pixels; raised as the graph runs.
    """
    if raw:
        return _raw_pixels(files, present, pixels)

    def decode_row(row: tuple[tf.Tensor, ...]) -> tf.Tensor:
        if len(row) == 1:
            return decode_one(row[0], pixels)
        return tf.cond(row[1], lambda: decode_one(row[0], pixels), lambda: tf.zeros(pixels, tf.uint8))

    rows = (files,) if present is None else (files, present)
    decoded = tf.map_fn(decode_row, rows, fn_output_signature=tf.TensorSpec(pixels, tf.uint8))
    return tf.ensure_shape(decoded, [None, *pixels])


def _raw_pixels(values: tf.Tensor, present: tf.Tensor | None, pixels: Pixels) -> tf.Tensor:
    size = math.prod(pixels)
    if present is not None:
        values = tf.where(present, values, tf.constant(bytes(size)))
    whole = tf.reduce_all(tf.equal(tf.strings.length(values), size))
    message = f"raw pixels have {size:,} bytes ({' x '.join(map(str, pixels))}), but the values have"
    with tf.control_dependencies([tf.debugging.Assert(whole, [message, tf.strings.length(values)])]):
        flat = tf.io.decode_raw(values, tf.uint8)
    return tf.reshape(flat, [-1, *pixels])


class ImageDecoder:
    """Decodes like `decode_images`, but gives black pixels for images that TensorFlow refuses. Only for input pipelines.

    Args:
        rows: the number of rows of one pass over the data. At most so many rows are decoded ahead of the rows `seen`.

    Attributes:
        refused: how many images were skipped so far, counted each time they were read.
        seen: how many rows the input pipeline has handed over so far; its reader sets it.
    """

    def __init__(self, rows: int):
        self.rows, self.refused, self.seen = rows, 0, 0
        self._lock = threading.Lock()

    @tf.autograph.experimental.do_not_convert
    def __call__(
        self, files: tf.Tensor, present: tf.Tensor | None, pixels: Pixels, *, raw: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns pixels as `decode_images` does, and a mask of usable rows. A DataError if too many images were refused."""
        rows = (files,) if present is None else (files, present)

        def decode(files: tf.Tensor, present: tf.Tensor | None = None) -> tuple[tf.Tensor, tf.Tensor]:
            return decode_images(files, present, pixels, raw=raw), tf.ones_like(files, tf.bool)

        def row_by_row() -> tuple[tf.Tensor, tf.Tensor]:
            def decode_row(row: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, tf.Tensor]:
                images, usable = _unless_refused(decode, tuple(part[None] for part in row), pixels)
                good = tf.size(usable) > 0
                return tf.cond(good, lambda: images[0], lambda: tf.zeros(pixels, tf.uint8)), good

            signature = (tf.TensorSpec(pixels, tf.uint8), tf.TensorSpec([], tf.bool))
            images, usable = tf.map_fn(decode_row, rows, fn_output_signature=signature)

            def count(files: NDArray[np.object_], usable: NDArray[np.bool_]) -> NDArray[np.bool_]:
                self._count(files[~usable], pixels if raw else None)
                return usable

            usable = numpy_op(count, tf.TensorSpec([None], tf.bool), thread_safe=True)(files, usable)
            return tf.ensure_shape(images, [None, *pixels]), usable

        images, usable = _unless_refused(decode, rows, pixels)
        return tf.cond(tf.equal(tf.size(usable), tf.size(files)), lambda: (images, usable), row_by_row)

    def _count(self, refused: NDArray[np.object_], raw: Pixels | None) -> None:
        with self._lock:
            self.refused += len(refused)
            if self.refused > math.ceil(MOST_REFUSED * (self.rows + self.seen)):
                raise DataError(
                    f"TensorFlow refused {counted(self.refused, 'image')}, more than {MOST_REFUSED:.0%} of them: "
                    + (_reason(refused[0]) if raw is None else _not_raw(len(refused[0]), raw)),
                    where="images",
                    fix="look at the images: leave out the rows of broken ones, or write them anew",
                )


def _reason(file: bytes) -> str:
    """Returns why TensorFlow refuses a file."""
    try:
        with tf.device("/CPU:0"):
            tf.io.decode_image(file, expand_animations=False)
    except tf.errors.InvalidArgumentError as error:
        line = str(error.message).splitlines()[0]
        return re.sub(r"\{\{.*?\}\} | \[Op:\w+\]", "", line)
    return "its pixels have other channels"


def _not_raw(size: int, pixels: Pixels) -> str:
    return f"a value has {size:,} bytes, not the {math.prod(pixels):,} of {' x '.join(map(str, pixels))} raw pixels"


def _unless_refused(
    decode: Callable[..., tuple[tf.Tensor, tf.Tensor]], rows: tuple[tf.Tensor, ...], pixels: Pixels
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the images and flags that `decode` gives, both empty if it fails. Only a dataset can go on after an error."""
    decoded = tf.data.Dataset.from_tensors(rows).map(decode).ignore_errors()
    none = tf.data.Dataset.from_tensors((tf.zeros([0, *pixels], tf.uint8), tf.zeros([0], tf.bool)))
    options = tf.data.Options()
    options.autotune.enabled = options.experimental_optimization.apply_default_optimizations = False
    return decoded.concatenate(none).take(1).with_options(options).get_single_element()
