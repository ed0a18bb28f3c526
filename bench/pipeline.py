"""The whole road on a small table: raw CSV to a promoted model, and again with nothing changed.

    python bench/pipeline.py

The table has the shape of TFX's taxi example: 15,000 rows, 18 columns, 1,000 steps of 40. For comparison, measured once on
a machine of 2 cores: TFX 1.21's local pipeline took 47-58 s inside the pipeline and 54-74 s as a process on such a table,
and 8 s for a cached re-run. Required of Headway, as a process: under 20 s, and under 2 s when nothing changed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import pyarrow.csv as csv
from common import header, raw_flights, typed

ROWS, COLUMNS = 15_000, 18
PIPELINE = """
name: small
source: {format: csv, path: flights.csv}
label: arr_delay > 15
model: {name: mlp}
columns: {"*": auto, arr_time: ignore, air_time: ignore}
split: {mode: hash, eval: 0.3333}
training: {steps: 1000, batch_size: 40}
"""


def timed(*arguments: str) -> float:
    """Seconds of a headway command as a process."""
    began = time.perf_counter()
    typed(*arguments)
    return time.perf_counter() - began


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=ROWS)
    options.add_argument("--rounds", type=int, default=3)
    arguments = options.parse_args()
    header("pipeline")
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        folder = Path(scratch)
        table = raw_flights().slice(0, arguments.rows)
        # time_hour only repeats the others
        csv.write_csv(table.drop_columns(["time_hour"]), folder / "flights.csv")
        assert table.num_columns - 1 == COLUMNS
        (folder / "pipeline.yaml").write_text(PIPELINE)
        cold, cached = [], []
        for _ in range(arguments.rounds):
            shutil.rmtree(folder / "store", ignore_errors=True)
            cold.append(timed("run", scratch))
            cached.append(timed("run", scratch))
        print(f"raw CSV to promoted model, empty store   {_figures(cold)}   required: under 20 s")
        print(f"the same again, nothing changed          {_figures(cached)}   required: under 2 s")
        print(typed("show", scratch))


def _figures(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"median {ordered[len(ordered) // 2]:6.2f} s  ({ordered[0]:.2f} to {ordered[-1]:.2f})"


if __name__ == "__main__":
    main()
