"""Encoded images to pixels, in the graph.

    decode_images(files, present, (96, 96, 3))       # uint8 [rows, 96, 96, 3]

In training and evaluation, `Tolerant` stands in for `decode_images`: ingest has looked at every image with Pillow, but
TensorFlow refuses a few that Pillow takes, and one image should not end a training of hours. It gives black pixels, counts,
and stops beyond a bound; it says which rows those are, so that they can be given no weight.
"""

from __future__ import annotations

import threading

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import DataError
from headway.messages import counted
from tfcore.graph.python_op import numpy_op

Pixels = tuple[int, int, int]


def decode_one(file: tf.Tensor, pixels: Pixels) -> tf.Tensor:
    """Decode one file (string, scalar) to uint8 [height, width, channels]; InvalidArgumentError for a damaged one."""
    height, width, channels = pixels
    image = tf.io.decode_image(file, channels=channels, expand_animations=False)
    image.set_shape([None, None, channels])
    resized = tf.image.resize(image, [height, width], antialias=True)
    return tf.cast(tf.clip_by_value(tf.round(resized), 0.0, 255.0), tf.uint8)


def decode_now(file: bytes, pixels: Pixels) -> NDArray[np.uint8]:
    """Decode like `decode_one`, eagerly, with 2 ops instead of 14, whose calls would take longer than a small image."""
    height, width, channels = pixels
    # beside a GPU the ops would copy there and back, and threads that do so get each other's errors: TensorFlow's fault
    with tf.device("/CPU:0"):
        image = tf.io.decode_image(file, channels=channels, expand_animations=False)
        pixels_of_file: NDArray[np.uint8] = image.numpy()
        if pixels_of_file.shape[:2] == (height, width):
            return pixels_of_file
        size = np.array([height, width], np.int32)
        resized = tf.raw_ops.ScaleAndTranslate(  # tf.image.resize(antialias=True)
            images=tf.expand_dims(image, 0),
            size=size,
            scale=size.astype(np.float32) / np.array(pixels_of_file.shape[:2], np.float32),
            translation=np.zeros(2, np.float32),
            kernel_type="triangle",
            antialias=True,
        ).numpy()
    return np.clip(np.rint(resized[0]), 0.0, 255.0).astype(np.uint8)


def decode_images(files: tf.Tensor, present: tf.Tensor | None, pixels: Pixels) -> tf.Tensor:
    """Decode files (string [rows]) to uint8 [rows, height, width, channels]; zeros where not `present`."""
    present = tf.ones_like(files, tf.bool) if present is None else present

    def decode_row(row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        return tf.cond(row[1], lambda: decode_one(row[0], pixels), lambda: tf.zeros(pixels, tf.uint8))

    decoded = tf.map_fn(decode_row, (files, present), fn_output_signature=tf.TensorSpec(pixels, tf.uint8))
    return tf.ensure_shape(decoded, [None, *pixels])


class Tolerant:
    """Decodes like `decode_images`, but skips images that TensorFlow refuses; for input pipelines, never for an export.

    Args:
        most: more images than this are an error of the pipeline.

    Attributes:
        refused: how many images were skipped so far, each time they were read.
    """

    def __init__(self, most: int):
        self.most, self.refused = most, 0
        self._lock = threading.Lock()

    def __call__(self, files: tf.Tensor, present: tf.Tensor | None, pixels: Pixels) -> tuple[tf.Tensor, tf.Tensor]:
        """(pixels as of `decode_images`, whether each row can be used: bool [rows])."""
        present = tf.ones_like(files, tf.bool) if present is None else present

        def decode(
            files: NDArray[np.object_], present: NDArray[np.bool_]
        ) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
            images, usable = np.zeros([len(files), *pixels], np.uint8), np.ones(len(files), np.bool_)
            for row in np.flatnonzero(present):
                try:
                    images[row] = decode_now(files[row], pixels)
                except tf.errors.InvalidArgumentError as error:
                    usable[row] = False
                    self._count(error)
            return images, usable

        # a Python call a record, in which nearly all of the time is TensorFlow's decoding
        signature = (tf.TensorSpec([None, *pixels], tf.uint8), tf.TensorSpec([None], tf.bool))
        return numpy_op(decode, signature, thread_safe=True, stateful=False)(files, present)

    def _count(self, error: tf.errors.InvalidArgumentError) -> None:
        with self._lock:
            self.refused += 1
            if self.refused > self.most:
                raise DataError(
                    f"TensorFlow refused {counted(self.refused, 'image')}, more than {self.most}: "
                    f"{str(error.message).splitlines()[0]}",
                    where="training.max_refused_images",
                    fix="look at the images, or allow more",
                )
