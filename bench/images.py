"""Decoding images for training against `tf.io.decode_image` alone.

    python bench/images.py

1. alone: files in memory through `tf.data.Dataset.map(tf.io.decode_image)`, in parallel on all cores, in batches of 64.
2. loop: files in memory through `tf.map_fn`, several at once, and no pixels kept: less than a training needs.
3. Headway: the same files from shards: records read and parsed, decoded (one that TensorFlow refuses is skipped), resized
   where the file has another size, in batches of 64.

All in turns, several rounds. Rates are the rounds' medians; ratios are to the first. Machines are shared, so what is
required is asked of images per second of processor time.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import common
import numpy as np
import pyarrow as pa
import tensorflow as tf
from PIL import Image

from headway.schema.columns import Column
from tfcore.data.pipeline import Labeler, Shards, evaluation_dataset
from tfcore.testing import write_examples
from tfcore.transform.config import ColumnTransform
from tfcore.transform.images import Tolerant
from tfcore.transform.layer import Transform

REQUIRED = 0.8
RECORD_BYTES = 1 << 20
COLUMNS = (
    Column(name="photo", type="bytes", nullable=False),
    Column(name="label", type="int64", nullable=False, role="label"),
)
CASES = (  # format, side of the files, side of the pixels, channels, images
    ("PNG", 28, 28, 1, 20_000),
    ("PNG", 96, 96, 3, 3_000),
    ("JPEG", 96, 96, 3, 6_000),
    ("PNG", 224, 224, 3, 600),
    ("JPEG", 224, 224, 3, 1_500),
    ("JPEG", 512, 224, 3, 400),
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--scale", type=float, default=1.0, help="of the number of images")
    arguments = options.parse_args()
    common.header("images")
    below = []
    for kind, side, wanted, channels, images in CASES:
        ratio = compare(kind, side, wanted, channels, max(64, int(images * arguments.scale)), arguments.rounds)
        if side == wanted and ratio < REQUIRED:
            below.append(f"{kind} {side}")
    if below:
        raise SystemExit(f"below {REQUIRED} of decode_image alone: {', '.join(below)}")


def compare(kind: str, side: int, wanted: int, channels: int, images: int, rounds: int) -> float:
    """Headway's images per second of processor time over those of decode_image alone."""
    files = [_file(kind, side, channels, seed) for seed in range(min(images, 256))]
    files = [files[i % len(files)] for i in range(images)]
    table = pa.table({"photo": pa.array(files, pa.binary()), "label": pa.array([i % 2 for i in range(images)])})
    with tempfile.TemporaryDirectory() as folder:
        mean = sum(map(len, files)) // images
        written = write_examples(Path(folder), {"train": table}, COLUMNS, rows_per_record=max(2, RECORD_BYTES // mean))
        op = {"image": {"height": wanted, "width": wanted, "channels": channels}}
        parameters = written.fit({"photo": ColumnTransform(transform=op)}, "binary")
        shards = Shards.of([(written.folder, written.result, "train")])
        transform, labeler = Transform(parameters, tolerant=Tolerant(0)), Labeler(parameters.label)
        rows = evaluation_dataset(shards, transform, labeler, batch=64)
        everything = tf.constant(files)

        def decode(file: tf.Tensor) -> tf.Tensor:
            return tf.io.decode_image(file, channels=channels, expand_animations=False)

        alone = tf.data.Dataset.from_tensor_slices(everything).map(decode, num_parallel_calls=tf.data.AUTOTUNE)
        alone = alone.batch(64)
        heights = tf.TensorSpec([], tf.int32)
        loop = tf.function(lambda: tf.map_fn(lambda f: tf.shape(decode(f))[0], everything, fn_output_signature=heights))
        ways: dict[str, Callable[[], int]] = {
            "alone": lambda: sum(len(batch) for batch in alone),
            "loop": lambda: int(tf.size(loop())),
            "Headway": lambda: int(sum(tf.reduce_sum(tf.cast(batch["valid"], tf.int32)) for batch in rows)),
        }
        rates = _turns(ways, images, rounds)
    ratio, cpu = (rates["Headway"][i] / rates["alone"][i] for i in (0, 1))
    pixels = f"{side} x {side} x {channels}" + ("" if side == wanted else f" to {wanted} x {wanted}")
    figures = "; ".join(f"{name} {clock:9,.0f}/s {per_cpu:9,.0f}/cpu s" for name, (clock, per_cpu) in rates.items())
    print(f"{kind:4s} {pixels:26s} {mean:7,d} bytes: {figures}; ratio {ratio:.2f}, {cpu:.2f} of cpu", flush=True)
    return cpu


def _turns(ways: dict[str, Callable[[], int]], images: int, rounds: int) -> dict[str, tuple[float, float]]:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(rounds + 1):  # the first one traces and warms up
        for name, way in ways.items():
            clock, cpu = time.perf_counter(), time.process_time()
            assert way() == images
            if number:
                taken[name].append((images / (time.perf_counter() - clock), images / (time.process_time() - cpu)))
    return {
        name: (statistics.median(clock for clock, _ in rates), statistics.median(cpu for _, cpu in rates))
        for name, rates in taken.items()
    }


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
