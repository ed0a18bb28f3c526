"""The whole road on wide tables: what each stage costs at 10, 100, 1,000 and 5,000 columns of 1,500 rows.

    python bench/width.py
    python bench/width.py --columns 2000 --kinds mixed --texts 0.3

Every run is `headway run` as a process on an empty store, then `headway predict` on the same file; seconds of the stages are
those of the run's own record, and training start is what a training takes beside its steps: reading, building, tracing and
compiling before the first ones have run, and saving after the last. Memory is the peak of all processes together, what they share
counted once. Required: a
stage's time at 5,000 columns is at most 6 times that at 1,000, and the whole road takes less than 60 s at 2,000 columns and
150 s at 5,000, on two quiet cores.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import header, watched

ROWS = 1_500
STAGES = ("ingest", "statistics", "validate", "transform", "train", "evaluate", "gate", "export", "replay")
START = "training start"
MOST_RATIO, WHOLE = 6.0, {2_000: 60.0, 5_000: 150.0}
NOTICEABLE = 1.0
"""Stages that take less than this at 5,000 columns are not judged by their ratio."""


def write_table(path: Path, columns: int, kinds: str, texts: float) -> None:
    random = np.random.default_rng(0)
    made: dict[str, pa.Array] = {}
    score, informative = np.zeros(ROWS), 20
    for i in range(columns):
        kind = (
            "text" if i % 100 < texts * 100 else ("float", "int", "id", "null")[i % 4] if kinds == "mixed" else "float"
        )
        values = random.normal(size=ROWS).astype(np.float32)
        if kind == "float" and informative:  # the model has to beat a constant
            score, informative = score + values, informative - 1
        if kind == "text":
            made[f"c{i}"] = pa.array([f"w{v}" for v in random.integers(0, 30, ROWS)])
        elif kind in ("int", "id"):
            made[f"c{i}"] = pa.array(random.integers(0, 40 if kind == "int" else 10**6, ROWS))
        else:
            made[f"c{i}"] = pa.array(values, mask=random.random(ROWS) < 0.1 if kind == "null" else None)
    made["y"] = pa.array((score + random.normal(size=ROWS) > 0).astype(np.int64))
    pq.write_table(pa.table(made), path)


def timed(*arguments: str) -> tuple[float, float]:
    """(seconds, peak MB) of a headway command as a process."""
    samples = watched(*arguments, every=0.2)
    return samples[-1].seconds, max(sample.memory for sample in samples) / 1e6


def steps_seconds(store: Path) -> float:
    """What the steps of the only training in a store took, without those that were traced and compiled."""
    (history,) = (store / "stages" / "train").glob("*/history.json")
    result = json.loads(history.read_text())["result"]
    return result["steps"] / result["steps_per_second"] if result["steps_per_second"] else 0.0


def measured(columns: int, kinds: str, texts: float) -> dict[str, float]:
    """{stage: seconds} of one table, and the peak memory as "MB"."""
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        folder = Path(scratch)
        write_table(folder / "1.parquet", columns, kinds, texts)
        (folder / "pipeline.yaml").write_text(
            "name: wide\nsource: {format: parquet, path: '{span}.parquet'}\nlabel: y\ncolumns: auto\nmodel: {name: mlp}\n"
        )
        whole, peak = timed("run", scratch, "--force")  # the model may be no better than a constant
        (record,) = (folder / "store" / "runs").glob("*.json")
        found = dict.fromkeys(STAGES, 0.0)
        for stage in json.loads(record.read_text())["stages"]:
            if stage["stage"] in found:
                found[stage["stage"]] += stage["seconds"]
        found[START] = found["train"] - steps_seconds(folder / "store")
        predict, more = timed(
            "predict", scratch, "--input", str(folder / "1.parquet"), "--output", str(folder / "scored")
        )
        return found | {"predict": predict, "whole road": whole, "MB": max(peak, more)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--columns", type=int, nargs="*", default=[10, 100, 1_000, 2_000, 5_000])
    options.add_argument("--kinds", choices=["float", "mixed"], default="float")
    options.add_argument("--texts", type=float, default=0.0, help="share of the columns that are text")
    arguments = options.parse_args()
    header("width")
    found = {}
    for columns in arguments.columns:
        found[columns] = measured(columns, arguments.kinds, arguments.texts)
        print(f"{columns:>6,} columns: " + ", ".join(f"{k} {v:.1f}" for k, v in found[columns].items()), flush=True)
    good = True
    if {1_000, 5_000} <= set(found):
        for stage in (*STAGES, START, "predict"):
            ratio = found[5_000][stage] / max(found[1_000][stage], 1e-3)
            passed = ratio <= MOST_RATIO or found[5_000][stage] < NOTICEABLE
            good &= passed
            print(f"{stage}: t(5,000) / t(1,000) = {ratio:.2f}{'' if passed else f', above {MOST_RATIO:.0f}'}")
    for columns, most in WHOLE.items():
        if columns in found:
            good &= (passed := found[columns]["whole road"] < most)
            print(
                f"{columns:,} columns: {found[columns]['whole road']:.1f} s, {'under' if passed else 'above'} {most:.0f} s"
            )
    print("passed" if good else "failed")


if __name__ == "__main__":
    main()
