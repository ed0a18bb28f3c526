"""Reading: shards to shuffled, transformed batches, three ways side by side.

    python bench/reader.py

1. Row by row: TFRecordDataset.map(parse_single_example).shuffle.batch on classic Examples.
2. Vectorised: interleave, shuffle, batch, parse_example on classic Examples.
3. Headway: row groups, parsed, transformed and shuffled as a whole, rebatched into stacks of 32.
Headway's rows are transformed (two standardized columns, six vocabularies) and shuffled within windows of 65,536; the
other two only parse and shuffle. Required of 3: 200x the first, 10x the second. Every case runs in a process of its own, in
turn; the best round of each counts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import common
import pyarrow as pa
import train as training

from tests.example_shards import write_examples

ROWS, CLASSIC_ROWS, STACK = 3_300_000, 262_144, 32
REQUIRED = {"rows": 200.0, "vectorised": 10.0}
TITLES = {
    "rows": "row by row: map(parse_single_example).shuffle.batch",
    "vectorised": "interleave.shuffle.batch.map(parse_example)",
    "headway": "Headway: row groups, transformed, shuffled",
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--data", help="keep the shards here (default: a temporary folder)")
    options.add_argument("--batch", type=int, default=256)
    options.add_argument("--seconds", type=float, default=4.0)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--rows", type=int, default=ROWS, help="in Headway's shards")
    options.add_argument("--only", nargs="+", choices=list(TITLES), default=list(TITLES), help="and Headway's")
    options.add_argument("--case", choices=list(TITLES), help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.case:
        print(run_case(arguments))
        return
    common.header("reader")
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        arguments.data = arguments.data or scratch
        prepare_data(Path(arguments.data), arguments.rows)
        best = dict.fromkeys([*(case for case in arguments.only if case != "headway"), "headway"], 0.0)
        for _ in range(arguments.rounds):
            for case in best:
                given = ["--case", case, "--data", arguments.data, "--batch", str(arguments.batch)]
                answer = common.child(__file__, *given, "--seconds", str(arguments.seconds))
                best[case] = max(best[case], float(answer.splitlines()[-1]))
    for case, rate in best.items():
        least = f"   required: {REQUIRED[case]:.0f}x" if case in REQUIRED else ""
        print(f"{TITLES[case]:54s} {rate:12,.0f} rows/s   Headway: {best['headway'] / rate:6.1f}x{least}")


def prepare_data(folder: Path, rows: int) -> None:
    """Row groups of so many rows, classic Examples of some; files that exist are kept."""
    if (folder / "transform.json").exists():
        return
    table = training.split_table()["train"]
    whole = pa.concat_tables([table] * (-(-rows // table.num_rows))).slice(0, rows)
    groups = write_examples(folder / "groups", {"train": whole}, training.COLUMNS, shards=16)
    training.write_classic(folder / "classic", table.slice(0, CLASSIC_ROWS))
    (folder / "groups" / "result.json").write_text(json.dumps(groups.result))
    (folder / "transform.json").write_text(groups.fit().model_dump_json())


def run_case(arguments: argparse.Namespace) -> float:
    from tfcore.transform.layer import Transform
    from tfcore.transform.parameters import TransformParameters

    folder = Path(arguments.data)
    if arguments.case == "headway":
        parameters = TransformParameters.model_validate_json((folder / "transform.json").read_text())
        dataset, rows = headway_dataset(folder, Transform(parameters), parameters, arguments.batch)
    else:
        files = sorted(str(path) for path in (folder / "classic").glob("*.tfrecord"))
        make = row_by_row if arguments.case == "rows" else vectorised
        dataset, rows = make(files, arguments.batch), arguments.batch
    return measure(dataset, rows, arguments.seconds)


def measure(dataset: Any, rows: int, seconds: float) -> float:
    """Rows a second once the pipeline has warmed up."""
    iterator = iter(dataset)
    warm = time.perf_counter() + 1.0
    next(iterator)
    while time.perf_counter() < warm:
        next(iterator)
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        next(iterator)
        steps += 1
    return steps * rows / (time.perf_counter() - began)


def headway_dataset(folder: Path, transform: Any, parameters: Any, batch: int) -> tuple[Any, int]:
    from tfcore.data.dataset import Inputs, RowPlan, training_dataset
    from tfcore.data.reader import Labeler, Shards

    result = json.loads((folder / "groups" / "result.json").read_text())
    shards = Shards.of([(folder / "groups", result, "train")])
    labeler = Labeler(parameters.label)
    plan, inputs = RowPlan.of(shards, seed=0), Inputs(shards, transform, labeler)
    return training_dataset(plan, inputs, batch=batch, stack=STACK), STACK * batch


def _spec() -> dict[str, Any]:
    import tensorflow as tf

    kinds = {"int64": (tf.int64, 0), "float32": (tf.float32, 0.0), "bytes": (tf.string, "")}
    return {column.name: tf.io.FixedLenFeature([], *kinds[column.type]) for column in training.COLUMNS}


def row_by_row(files: list[str], batch: int) -> Any:
    import tensorflow as tf

    spec = _spec()
    dataset = tf.data.TFRecordDataset(files).repeat().map(lambda record: tf.io.parse_single_example(record, spec))
    return dataset.shuffle(10_000).batch(batch, drop_remainder=True)


def vectorised(files: list[str], batch: int) -> Any:
    import tensorflow as tf

    spec, auto = _spec(), tf.data.AUTOTUNE
    dataset = tf.data.Dataset.from_tensor_slices(files).repeat()
    dataset = dataset.interleave(
        lambda file: tf.data.TFRecordDataset(file, buffer_size=1 << 20),
        cycle_length=8,
        block_length=64,
        num_parallel_calls=auto,
    )
    dataset = dataset.shuffle(10_000).batch(batch, drop_remainder=True, num_parallel_calls=auto)
    return dataset.map(lambda records: tf.io.parse_example(records, spec), num_parallel_calls=auto).prefetch(auto)


if __name__ == "__main__":
    main()
