"""What one run costs as spans, rows and columns grow: seconds, memory, disk; and the next run, with one more span.

    python bench/capacity.py               # the table of docs/operations.md, in Markdown (about ten minutes)
    python bench/capacity.py --quick       # its smallest row

Synthetic rows: of five columns four are numbers and one is text with 50 values. Spans are Parquet files, the last one judges, and
one epoch is trained. Seconds are those of `headway run` as a process, memory is the highest sum over it and its children at any
time (proportional set size, looked at every 0.1 s), disk is what the store holds, files with several names counted once.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import header

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
SIZES = [BASE, (48, 10_000, 20), *((12, rows, 20) for rows in ROWS), (12, 10_000, 200), (12, 10_000, 1_000)]


@dataclass(frozen=True)
class Cost:
    """What one command cost."""

    seconds: float
    memory: int
    disk: int


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


def measured(folder: Path) -> Cost:
    """Run the pipeline as a process."""
    began, memory = time.perf_counter(), 0
    command = [sys.executable, "-P", "-m", "flows.cli", "run", str(folder), "--quiet"]
    with tempfile.TemporaryFile("w+") as said, subprocess.Popen(command, stdout=said, stderr=said) as process:
        while process.poll() is None:
            memory = max(memory, sum(map(_proportional, _family(process.pid))))
            time.sleep(0.1)
        if process.returncode not in (0, 4):  # 4: the gate kept the champion, which is a whole run too
            said.seek(0)
            raise SystemExit(said.read())
    return Cost(time.perf_counter() - began, memory, _held(folder / "store"))


def _family(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [one for child in task.read_text().split() for one in _family(int(child))]
        except OSError:  # it has ended
            continue
    return found


def _proportional(pid: int) -> int:
    """Bytes of memory of a process; pages that it shares with others are divided among them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


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


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--quick", action="store_true", help="the smallest size alone")
    arguments = options.parse_args()
    header("capacity")
    print(
        "\n| spans | rows per span | columns | raw files | first run | memory | store | next run, one span more | it adds |"
    )
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for size in SIZES[:1] if arguments.quick else SIZES:
        print(row(*size), flush=True)


if __name__ == "__main__":
    main()
