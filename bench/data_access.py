"""Data access beside the graph: what augmentation, a sample by class and the way the rows come cost.

    python bench/data_access.py                    # all
    python bench/data_access.py --only images      # or: draws, reader, feeds

1. images: images a second through flip and crop, against one tf.image call a row in a map.
2. draws: random numbers a second, by counter and by tf.random.stateless_uniform with a seed a row.
3. reader: rows a second that the training reader hands over, plain and with each of augment and sampling.
4. feeds: rows a second of the same training reader from shards, from memory and from a generator.

Figures are for the processor time of the process as well as for the clock, since machines are shared.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import common
import numpy as np
import tensorflow as tf
import train as training

from tests.example_shards import Written, write_examples
from tfcore.augment.config import AugmentConfig
from tfcore.augment.draws import Draws
from tfcore.augment.rows import vary
from tfcore.data.source import Feed
from tfcore.train.settings.config import TrainingConfig
from tfcore.train.training_data import TrainingData

SIZES = {"256 x 32 x 32 x 3": (256, 32), "32 x 224 x 224 x 3": (32, 224)}
READERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "augment: mixup 0.2": {"augment": {"mixup": 0.2}},
    "sampling: negatives 0.25": {"sampling": {"negatives": 0.25}},
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", choices=["images", "draws", "reader", "feeds"])
    options.add_argument("--seconds", type=float, default=2.0)
    options.add_argument("--rounds", type=int, default=2, help="of each way of reading")
    options.add_argument("--rows", type=int, default=1_000_000)
    arguments = options.parse_args()
    common.header("data_access")
    parts = {"images": images, "draws": draws, "reader": reader, "feeds": feeds}
    for name, part in parts.items():
        if arguments.only in (None, name):
            part(arguments)


def measure(call: Callable[[], int], seconds: float) -> tuple[float, float]:
    """(per second of the clock, per second of processor time) of what `call` says it did."""
    call()
    done, clock, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - clock < seconds:
        done += call()
    return done / (time.perf_counter() - clock), done / (time.process_time() - cpu)


def show(title: str, unit: str, rates: tuple[float, float], base: float | None = None) -> None:
    ratio = f"  {rates[1] / base:6.2f}x" if base else ""
    print(f"{title:58s} {rates[0]:13,.0f} {unit}/s {rates[1]:13,.0f} {unit}/cpu s{ratio}", flush=True)


def images(arguments: argparse.Namespace) -> None:
    for size, (rows, side) in SIZES.items():
        pixels = tf.constant(np.random.default_rng(0).integers(0, 256, (rows, side, side, 3), np.uint8))
        index = tf.range(rows, dtype=tf.int64)
        naive = measure(lambda p=pixels, i=index: _ran(_row_by_row(p, i), p), arguments.seconds)
        show(f"{size}: tf.image.stateless_* a row", "images", naive)
        varied = _varied(AugmentConfig(flip="horizontal", crop=4))
        rates = measure(lambda f=varied, p=pixels, i=index: _ran(f(p, i), p), arguments.seconds)
        show(f"{size}: flip and crop", "images", rates, naive[1])


def _ran(made: tf.Tensor, pixels: tf.Tensor) -> int:
    assert made.shape == pixels.shape
    return int(pixels.shape[0])


def _varied(config: AugmentConfig) -> Any:
    zero = tf.constant(0, tf.int64)
    return tf.function(lambda pixels, index: vary(pixels, Draws(seed=1, epoch=zero, index=index), config))


@tf.function
def _row_by_row(pixels: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    """The same augmentation as TensorFlow's guide writes it: deterministic too, an image at a time."""

    def one(row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        image, place = row
        seed = tf.stack([tf.constant(1, tf.int64), place])
        side = image.shape[0]
        image = tf.image.stateless_random_flip_left_right(image, seed)
        image = tf.pad(image, [[4, 4], [4, 4], [0, 0]])
        return tf.image.stateless_random_crop(image, [side, side, 3], seed)

    spec = tf.TensorSpec(pixels.shape[1:], tf.uint8)
    return tf.map_fn(one, (pixels, index), fn_output_signature=spec, parallel_iterations=8)


def draws(arguments: argparse.Namespace) -> None:
    rows, columns = 8192, 16
    index = tf.range(rows, dtype=tf.int64)
    zero = tf.constant(0, tf.int64)
    counted = tf.function(lambda i: Draws(seed=1, epoch=zero, index=i).uniform(0, columns=columns))
    seeded = tf.function(
        lambda i: tf.map_fn(
            lambda place: tf.random.stateless_uniform([columns], tf.stack([zero, place])),
            i,
            fn_output_signature=tf.float32,
        )
    )
    naive = measure(lambda: int(tf.size(seeded(index))), arguments.seconds)
    show(f"{rows:,} rows of {columns}: stateless_uniform, a seed a row", "numbers", naive)
    rates = measure(lambda: int(tf.size(counted(index))), arguments.seconds)
    show(f"{rows:,} rows of {columns}: Draws", "numbers", rates, naive[1])


def _written(folder: str, rows: int) -> Written:
    table = common.flights(rows).drop_columns("row_id")
    label = common.label_of(table).astype(np.int64)
    names = [column.name for column in training.COLUMNS if column.name != "label"]
    columns = {name: table[name].cast("binary") if name in common.STRINGS else table[name] for name in names}
    return write_examples(
        Path(folder), {"train": training.pa.table(columns | {"label": label})}, training.COLUMNS, shards=4
    )


def _rate(data: TrainingData, seconds: float) -> tuple[float, float]:
    stack = data.stack(128)
    stacks: Iterator[Any] = data.stacks(stack)(0)
    warm = time.perf_counter() + 1.5  # until what was read ahead at the start is used up
    while time.perf_counter() < warm:
        next(stacks)
    return measure(lambda: int(tf.size(next(stacks)["weight"])), seconds)


def reader(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder:
        written = _written(folder, arguments.rows)
        best: dict[str, tuple[float, float]] = {}
        for _ in range(arguments.rounds):  # in turn, the best round of each counting: machines are shared
            for name, settings in READERS.items():
                data = TrainingData([written.part("train")], written.fit(), seed=0, training=TrainingConfig(**settings))
                best[name] = max(best.get(name, (0.0, 0.0)), _rate(data, arguments.seconds))
        for name, rates in best.items():
            show(f"training reader, batches of 256: {name}", "rows", rates, best["plain"][1])


def feeds(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder:
        written = _written(folder, arguments.rows)
        shards = Feed.from_shards([written.part("train")])
        batches = [_plain(batch) for batch in shards.batches()]
        table = training.pa.Table.from_batches(batches)

        ways = {"shards": shards, "memory": Feed.from_arrow(table, written.columns, shards=4)}
        config = TrainingConfig(steps=1_000_000)
        best: dict[str, tuple[float, float]] = {}
        for _ in range(arguments.rounds):
            for name, feed in ways.items():
                data = TrainingData([], written.fit(), seed=0, training=config, feed=feed)
                best[name] = max(best.get(name, (0.0, 0.0)), _rate(data, arguments.seconds))
        for name, rates in best.items():
            show(f"training reader, batches of 256: from {name}", "rows", rates, best["shards"][1])


def _plain(batch: Any) -> Any:
    arrays = [batch.column(c.name).cast(c.arrow) for c in training.COLUMNS]
    return training.pa.RecordBatch.from_arrays(arrays, names=[c.name for c in training.COLUMNS])


if __name__ == "__main__":
    main()
