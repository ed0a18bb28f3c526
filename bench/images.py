"""Decoding images for training against `tf.io.decode_image` alone.

    python bench/images.py

1. alone: `tf.io.decode_image` on each file of a record's worth of files in memory, in a `tf.map_fn`; no pixels are kept.
2. decode: what the transform of the input pipeline does with them: the same, a file that TensorFlow refuses is skipped, another
   size is resized, and the record's pixels are put together.
3. mapped: `tf.data.Dataset.map(tf.io.decode_image)`, in parallel on all cores, in batches of 64.
4. from shards: Headway's input pipeline: records read and parsed, decoded, in batches of 64.

Of each the round with the least processor time counts, since machines are shared. Ratios are images per second of processor
time: decode to alone, and from shards to mapped.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import common
import numpy as np
import pyarrow as pa
import tensorflow as tf
from PIL import Image

from headway.schema.columns import Column
from tests.example_shards import write_examples
from tfcore.data.dataset import evaluation_dataset
from tfcore.data.reader import Labeler, Shards
from tfcore.transform.config import ColumnTransform
from tfcore.transform.images import ImageDecoder
from tfcore.transform.layer import Transform

REQUIRED = 0.8
RECORD_BYTES = 1 << 20
COLUMNS = (
    Column(name="photo", type="bytes", nullable=False),
    Column(name="label", type="int64", nullable=False, role="label"),
)
CASES = (  # format, side of the files, side of the pixels, channels, images
    ("PNG", 28, 28, 1, 32_000),
    ("PNG", 96, 96, 3, 2_400),
    ("JPEG", 96, 96, 3, 10_000),
    ("PNG", 224, 224, 3, 600),
    ("JPEG", 224, 224, 3, 3_000),
    ("JPEG", 512, 224, 3, 800),
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--scale", type=float, default=1.0, help="of the number of images")
    options.add_argument("--sides", type=int, nargs="+", help="images of these sides alone")
    arguments = options.parse_args()
    common.header("images")
    below = []
    for kind, side, wanted, channels, images in CASES:
        if side not in (arguments.sides or [side]):
            continue
        ratio = compare(kind, side, wanted, channels, max(64, int(images * arguments.scale)), arguments.rounds)
        if side == wanted and ratio < REQUIRED:
            below.append(f"{kind} {side}")
    if below:
        raise SystemExit(f"below {REQUIRED} of decode_image alone: {', '.join(below)}")


def compare(kind: str, side: int, wanted: int, channels: int, images: int, rounds: int) -> float:
    """Images per second of processor time: Headway's decoding over decode_image alone."""
    files = [_file(kind, side, channels, seed) for seed in range(64)]
    files = [files[i % len(files)] for i in range(images)]
    mean = sum(map(len, files)) // images
    together = max(2, RECORD_BYTES // mean)
    records = [tf.constant(files[at : at + together]) for at in range(0, images, together)]
    pixels = (wanted, wanted, channels)
    op = {"image": {"height": wanted, "width": wanted, "channels": channels}}
    table = pa.table({"photo": pa.array(files, pa.binary()), "label": pa.array([i % 2 for i in range(images)])})

    def decode(file: tf.Tensor) -> tf.Tensor:
        return tf.io.decode_image(file, channels=channels, expand_animations=False)

    def height(file: tf.Tensor) -> tf.Tensor:
        return tf.shape(decode(file))[0]

    def alone(record: tf.Tensor) -> tf.Tensor:
        return tf.map_fn(height, record, fn_output_signature=tf.TensorSpec([], tf.int32))

    def decoded(record: tf.Tensor) -> tf.Tensor:
        return ImageDecoder(0)(record, None, pixels)[0]

    with tempfile.TemporaryDirectory() as folder:
        written = write_examples(Path(folder), {"train": table}, COLUMNS, rows_per_record=together)
        parameters = written.fit({"photo": ColumnTransform(transform=op)}, "binary")
        shards = Shards.of([(written.folder, written.result, "train")])
        transform, labeler = Transform(parameters, tolerant=ImageDecoder(0)), Labeler(parameters.label)
        mapped = tf.data.Dataset.from_tensor_slices(tf.constant(files)).map(decode, num_parallel_calls=tf.data.AUTOTUNE)
        ways: dict[str, tuple[Any, Callable[[Any], Any]]] = {
            "alone": (records, tf.function(alone)),
            "decode": (records, tf.function(decoded)),
            "mapped": (mapped.batch(64), len),
            "from shards": (evaluation_dataset(shards, transform, labeler, batch=64), len),
        }
        times = {name: _least(batches, work, rounds) for name, (batches, work) in ways.items()}
    rates = {name: images / seconds for name, seconds in times.items()}
    ratios = rates["decode"] / rates["alone"], rates["from shards"] / rates["mapped"]
    size = f"{side} x {side} x {channels}" + ("" if side == wanted else f" to {wanted} x {wanted}")
    figures = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
    print(f"{kind:4s} {size}, {mean:,d} bytes: {figures} per cpu s; {ratios[0]:.2f} and {ratios[1]:.2f}", flush=True)
    return ratios[0]


def _least(batches: Iterable[Any], work: Callable[[Any], Any], rounds: int) -> float:
    """The processor time of the fastest round, in seconds; the first one traces and does not count."""
    seconds = []
    for _ in range(rounds + 1):
        began = time.process_time()
        for batch in batches:
            work(batch)
        seconds.append(time.process_time() - began)
    return min(seconds[1:])


def _file(kind: str, side: int, channels: int, seed: int) -> bytes:
    """A picture: soft shapes and a little noise, which compress about as photographs do."""
    draw = np.random.default_rng(seed)
    shapes = Image.fromarray(draw.integers(0, 256, (max(2, side // 16), max(2, side // 16), 3), np.uint8))
    pixels = np.asarray(shapes.resize((side, side), Image.Resampling.BICUBIC), np.int16)
    noisy = np.clip(pixels + draw.normal(0, 4, pixels.shape).round().astype(np.int16), 0, 255).astype(np.uint8)
    image = Image.fromarray(noisy if channels == 3 else noisy[:, :, 0])
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


if __name__ == "__main__":
    main()
