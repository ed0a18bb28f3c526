"""What measuring and the gate cost on many eval rows: processor seconds, wall time, peak memory.

    python bench/judge.py                   # 1.3 million rows in 325,000 units of the split; half a minute
    python bench/judge.py --rows 5000000

A binary candidate, a champion and a linear baseline, two sliced columns, worst slices in six columns and their pairs. Required at
1.3 million rows: measuring in at most 5 processor seconds, the gate in 10.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import header, peak_rss_mb

from headway.evaluation.config import GateConfig
from headway.evaluation.gate import gate
from headway.evaluation.measure import measure
from headway.evaluation.predictions import UNIT
from headway.evaluation.requests import Candidate, Champion, GateRequest, MeasureRequest
from headway.evaluation.units import SplitUnits
from headway.monitor import Monitor
from headway.tasks.base import LabelFacts

TEXTS, NUMBERS = {"carrier": 16, "origin": 3, "dest": 100}, ("a", "b", "c")
NOISE = {"candidate": 0.3, "champion": 0.35, "linear": 0.6}


def predictions(rows: int, folder: Path) -> tuple[dict[str, Path], LabelFacts]:
    """The predictions of three models that know the truth more or less, on the same rows."""
    random = np.random.default_rng(0)
    truth = random.normal(size=rows)
    label = (random.random(rows) < 1 / (1 + np.exp(-truth))).astype(np.int64)
    columns = {name: pa.array(random.choice([f"{name}{i}" for i in range(of)], rows)) for name, of in TEXTS.items()}
    columns |= {name: pa.array(random.normal(size=rows).astype(np.float32)) for name in NUMBERS}
    own = {"row": np.arange(rows), "label": label, "weight": np.ones(rows), UNIT: random.integers(0, rows // 4, rows)}
    for model, noise in NOISE.items():
        prediction = 1 / (1 + np.exp(-(truth + noise * random.normal(size=rows))))
        pq.write_table(pa.table({**own, "prediction": prediction, **columns}), folder / f"{model}.parquet")
    return {model: folder / f"{model}.parquet" for model in NOISE}, LabelFacts(mean=float(label.mean()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_300_000)
    rows = parser.parse_args().rows
    header("judging many eval rows")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files, label = predictions(rows, folder)
        shared = {"task": "binary", "slices": ("carrier", "origin"), "baselines": {"linear": files["linear"]}}
        shared |= {"label": label, "units": SplitUnits(key="split.key")}
        searched = ("carrier", "origin", "dest", "a: 5", "b: 5", "c: 5")
        beside = {"champion": files["champion"]}
        measured = MeasureRequest(predictions=files["candidate"], searched=searched, beside=beside, **shared)
        judged = GateRequest(
            candidate=Candidate(model="new", predictions=files["candidate"]),
            champion=Champion(version=1, model="old", predictions=files["champion"], scored="before"),
            config=GateConfig(),
            to_beat=("linear",),
            **shared,
        )
        for stage, run in (
            ("measure", lambda: measure(measured, folder, Monitor())),
            ("gate", lambda: gate(judged, folder, Monitor())),
        ):
            wall, processor = time.perf_counter(), time.process_time()
            run()
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
            print(f"{stage}: {processor:.1f} processor s, {wall:.1f} s, peak so far {peak_rss_mb():,.0f} MB")


if __name__ == "__main__":
    main()
