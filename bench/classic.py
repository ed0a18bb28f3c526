"""Classic tf.Examples, one row per record, as other people write them: four ways to read them, side by side.

    python bench/classic.py
    python bench/classic.py --rows 600000 --rounds 1

1. Row by row: map(parse_single_example).batch; and the same with parallel interleave and parallel map.
2. Vectorised: parallel interleave, batch, parallel map(parse_example), prefetch.
3. Headway's `read_examples` without its op, and with it.
All give the same 11 columns in batches of the same size, which is checked first; Headway also says which values are null.
Required of the op: 100x the first, 6x the second. Every case runs in a process of its own; the best round of each counts.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import common
import numpy as np
import pyarrow as pa

from headway.schema.columns import STORED, Column
from tfcore.testing import write_examples

SHARDS, CHECKED = 16, 20_000
REQUIRED = {"rows": 100.0, "vectorised": 6.0}
TITLES = {
    "rows": "row by row: map(parse_single_example).batch",
    "rows+parallel": "  with parallel interleave and parallel map",
    "vectorised": "parallel interleave.batch.parallel map(parse_example)",
    "twin": "Headway without the op",
    "op": "Headway: the op in C++",
}
KINDS = {"int": common.INTS, "float": common.FLOATS, "string": common.STRINGS}
COLUMNS = [
    Column(name=name, type=STORED[kind], nullable=kind == "float" and name != "distance")
    for kind, names in KINDS.items()
    for name in names
]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--data", help="keep the shards here (default: a temporary folder)")
    options.add_argument("--rows", type=int, default=3_300_000)
    options.add_argument("--batch", type=int, default=4096)
    options.add_argument("--seconds", type=float, default=4.0)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--case", choices=[*TITLES, "check"], help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.case == "check":
        check(arguments)
        return
    if arguments.case:
        print(measure(dataset(arguments.case, files(arguments), arguments.batch).repeat(), arguments.seconds))
        return
    common.header("classic")
    from tfcore.ops.compile import build

    build()
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        arguments.data = arguments.data or scratch
        prepare(arguments)
        given = ["--data", arguments.data, "--batch", str(arguments.batch), "--seconds", str(arguments.seconds)]
        print(common.child(__file__, "--case", "check", *given).splitlines()[-1], flush=True)
        best = dict.fromkeys(TITLES, 0.0)
        for _ in range(arguments.rounds):
            for case in TITLES:
                answer = common.child(__file__, "--case", case, *given)
                best[case] = max(best[case], float(answer.splitlines()[-1]))
    for case, rate in best.items():
        least = f"   required: {REQUIRED[case]:.0f}x" if case in REQUIRED else ""
        print(f"{TITLES[case]:54s} {rate:12,.0f} rows/s   the op: {best['op'] / rate:6.1f}x{least}")


def prepare(arguments: argparse.Namespace) -> None:
    """The shards; those that are there are kept."""
    folder = Path(arguments.data)
    if (folder / "done").exists():
        return
    table = common.flights(arguments.rows)
    table = pa.table({column.name: table[column.name].cast(column.arrow) for column in COLUMNS})
    write_examples(folder, {"train": table}, COLUMNS, rows_per_record=1, shards=SHARDS)
    (folder / "done").touch()


def files(arguments: argparse.Namespace) -> list[str]:
    return sorted(str(path) for path in Path(arguments.data).glob("*.tfrecord"))


def dataset(case: str, paths: list[str], batch: int) -> Any:
    """Batches of columns, dicts of tensors [rows]."""
    import tensorflow as tf

    from tfcore.ops.example_parser import read_examples

    if case in ("op", "twin"):
        return read_examples(paths, COLUMNS, rows=batch, native=case == "op")
    kinds = {"int64": (tf.int64, 0), "float32": (tf.float32, 0.0), "bytes": (tf.string, "")}
    spec = {column.name: tf.io.FixedLenFeature([], *kinds[column.type]) for column in COLUMNS}
    auto = tf.data.AUTOTUNE
    if case == "rows":
        return tf.data.TFRecordDataset(paths).map(lambda record: tf.io.parse_single_example(record, spec)).batch(batch)
    records = tf.data.Dataset.from_tensor_slices(paths).interleave(
        lambda path: tf.data.TFRecordDataset(path, buffer_size=1 << 20),
        cycle_length=8,
        block_length=64,
        num_parallel_calls=auto,
    )
    if case == "rows+parallel":
        rows = records.map(lambda record: tf.io.parse_single_example(record, spec), num_parallel_calls=auto)
        return rows.batch(batch).prefetch(auto)
    batches = records.batch(batch, num_parallel_calls=auto)
    return batches.map(lambda some: tf.io.parse_example(some, spec), num_parallel_calls=auto).prefetch(auto)


def measure(batches: Any, seconds: float) -> float:
    """Rows a second once the pipeline has warmed up."""
    iterator = iter(batches)
    warm = time.perf_counter() + 1.5
    next(iterator)
    while time.perf_counter() < warm:
        next(iterator)
    rows, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        rows += int(next(iterator)["row_id"].shape[0])
    return rows / (time.perf_counter() - began)


def check(arguments: argparse.Namespace) -> None:
    """Every case gives the same values of the same rows."""
    some = files(arguments)[:1]
    found = {}
    for case in TITLES:
        chunks: list[dict[str, Any]] = []
        for chunk in dataset(case, some, arguments.batch):
            chunks.append({column.name: chunk[column.name].numpy() for column in COLUMNS})
            if sum(len(rows["row_id"]) for rows in chunks) >= CHECKED:
                break
        found[case] = {name: np.concatenate([rows[name] for rows in chunks])[:CHECKED] for name in chunks[0]}
    for case, column in itertools.product(TITLES, COLUMNS):
        if not np.array_equal(found[case][column.name], found["rows"][column.name]):
            raise SystemExit(f"{case} gives other values of {column.name} than row by row")
    print(f"# all cases agree on the first {len(found['rows']['row_id']):,} rows")


if __name__ == "__main__":
    main()
