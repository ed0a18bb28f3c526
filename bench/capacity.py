"""What one run costs as spans, rows and columns grow: seconds, memory, disk; and the next run, with one more span.

    python bench/capacity.py               # the table of docs/operations.md, in Markdown (about ten minutes)
    python bench/capacity.py --quick       # its smallest row
    python bench/capacity.py --rows 200_000_000        # seconds and memory by stage of one pipeline; 9 GB

Synthetic rows: of five columns four are numbers and one is text with 50 values. Spans are Parquet files, the last one judges, and
one epoch is trained. Seconds are those of `headway run` as a process, memory is the highest sum over it and its children at any
time (proportional set size, looked at every 0.1 s), disk is what the store holds, files with several names counted once.

The large pipeline has two numbers and a text of 1,000 values in ten spans, and four rows of each customer, who are kept
together by the split; a fifth of the rows judges.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import Sample, header, watched

PIPELINE = """
name: capacity
source: {format: parquet, path: "data/{span}.parquet"}
label: y
split: {mode: time}
training: {epochs: 1}
evaluation: {slices: []}
"""
BASE, ROWS = (12, 10_000, 20), (100_000, 1_000_000)
"""(spans, rows per span, columns)."""
LARGE = """
name: large
source: {{format: parquet, path: "data/{{span}}.parquet"}}
label: y
split: {{key: [customer], eval: 0.2}}
training: {{steps: 1000, batch_size: 16384}}
"""
SPANS, PIECE = 10, 1_000_000
SIZES = [BASE, (48, 10_000, 20), *((12, rows, 20) for rows in ROWS), (12, 10_000, 200), (12, 10_000, 1_000)]


@dataclass(frozen=True)
class Cost:
    """The seconds, memory and disk that one command took."""

    seconds: float
    memory: int
    disk: int
    samples: list[Sample]


def write_span(folder: Path, name: str, rows: int, columns: int) -> None:
    random = np.random.default_rng(int(name.replace("-", "")))
    table: dict[str, pa.Array] = {}
    signal = np.zeros(rows, np.float32)
    for k in range(columns):
        if k % 5 == 4:
            codes = random.integers(0, 50, rows)
            table[f"text{k}"] = pa.DictionaryArray.from_arrays(pa.array(codes), [f"value {c}" for c in range(50)])
        else:
            values = random.normal(size=rows).astype(np.float32)
            signal += values / (k + 1)
            table[f"x{k}"] = pa.array(values)
    table["y"] = pa.array((signal + random.normal(size=rows) > 0).astype(np.int64))
    pq.write_table(pa.table(table), folder / f"{name}.parquet")


def measured(folder: Path, every: float = 0.1) -> Cost:
    """Run the pipeline as a process, and look at it and its children `every` so many seconds."""
    samples = watched("run", str(folder), "--quiet", every=every)
    memory = max(sample.memory for sample in samples)
    return Cost(samples[-1].seconds, memory, _held(folder / "store"), samples)


def _held(folder: Path) -> int:
    files = {}
    for root, _, names in os.walk(folder):
        for name in names:
            info = (Path(root) / name).lstat()
            files[info.st_dev, info.st_ino] = info.st_size
    return sum(files.values())


def row(spans: int, rows: int, columns: int) -> str:
    """A row of the table: the first run, and the next one with one span more."""
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        folder = Path(scratch)
        (folder / "data").mkdir()
        (folder / "pipeline.yaml").write_text(PIPELINE)
        names = [f"{2000 + k // 12}-{k % 12 + 1:02d}" for k in range(spans + 1)]
        for name in names[:-1]:
            write_span(folder / "data", name, rows, columns)
        raw = _held(folder / "data")
        first = measured(folder)
        write_span(folder / "data", names[-1], rows, columns)
        more = measured(folder)
    cells = [f"{spans}", f"{rows:,}", f"{columns:,}", f"{raw / 1e6:,.0f} MB", f"{first.seconds:.0f} s"]
    cells += [f"{first.memory / 1e9:.1f} GB", f"{first.disk / 1e6:,.0f} MB", f"{more.seconds:.0f} s"]
    cells += [f"{(more.disk - first.disk) / 1e6:,.0f} MB"]
    return f"| {' | '.join(cells)} |"


def write_large(folder: Path, rows: int) -> None:
    """Two numbers, a text and a label, in spans."""
    (folder / "data").mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(LARGE.format())
    words = pa.array([f"word {i}" for i in range(1000)])
    effects = np.random.default_rng(0).normal(size=len(words)).astype(np.float32)
    ends = [rows * span // SPANS for span in range(SPANS + 1)]
    for year, (first, end) in enumerate(pairwise(ends), 2001):
        path, writer = folder / "data" / f"{year}.parquet", None
        for begin in range(first, end, PIECE):
            count = min(PIECE, end - begin)
            random = np.random.default_rng(begin)
            a, b = (random.normal(size=count).astype(np.float32) for _ in range(2))
            code = random.zipf(1.5, count) % len(words)
            label = a * np.abs(b) + effects[code] + random.normal(size=count) > 0
            word = pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int16)), words)
            table = pa.table(
                {
                    "customer": np.arange(begin, begin + count) // 4,
                    "a": a,
                    "b": b,
                    "word": word,
                    "y": label.astype(np.int8),
                }
            )
            writer = writer or pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()


def large(rows: int, parent: Path) -> None:
    """The stages of a run over so many rows: seconds, and the memory of all processes while each ran."""
    with tempfile.TemporaryDirectory(prefix="headway-bench-", dir=parent) as scratch:
        folder = Path(scratch) / "large"
        write_large(folder, rows)
        print(f"raw files: {_held(folder / 'data') / 1e6:,.0f} MB", flush=True)
        cost = measured(folder, 0.5)
        [record] = (json.loads(path.read_text()) for path in (folder / "store" / "runs").glob("*.json"))
    begin = late = cost.seconds - record["seconds"]  # the process starts before the run
    print("\n| stage | seconds | processor seconds | memory |\n| --- | ---: | ---: | ---: |")
    for stage, at in {step["stage"]: step["at"] for step in record["stages"]}.items():
        end = late + at
        inside = [sample for sample in cost.samples if begin <= sample.seconds <= end] or cost.samples[:1]
        processor, memory = inside[-1].processor - inside[0].processor, max(sample.memory for sample in inside)
        print(f"| {stage} | {end - begin:.0f} | {processor:.0f} | {memory / 1e9:.1f} GB |")
        begin = end
    processor = max(sample.processor for sample in cost.samples)
    print(
        f"| in all | {cost.seconds:.0f} | {processor:.0f} | {cost.memory / 1e9:.1f} GB |\n\nstore: {cost.disk / 1e6:,.0f} MB"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--quick", action="store_true", help="the smallest size alone")
    options.add_argument("--scale", type=float, default=1.0, help="of the rows of each size")
    options.add_argument("--rows", type=int, help="one pipeline of so many rows, by stage")
    options.add_argument("--folder", type=Path, help="where its files are made, and removed")
    arguments = options.parse_args()
    header("capacity")
    if arguments.rows:
        large(arguments.rows, arguments.folder)
        return
    print(
        "\n| spans | rows per span | columns | raw files | first run | memory | store | next run, one span more | it adds |"
    )
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for spans, rows, columns in SIZES[:1] if arguments.quick else SIZES:
        print(row(spans, round(rows * arguments.scale), columns), flush=True)


if __name__ == "__main__":
    main()
