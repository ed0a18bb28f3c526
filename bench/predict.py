"""Batch prediction, side by side: Beam's RunInference on row dicts against Headway's, over the same SavedModel.

    python bench/predict.py                   # both; about two minutes on 2 cores
    python bench/predict.py --rounds 1 --rows 500000

The tutorial reads Parquet as rows (dicts), gives them to RunInference with a model handler that calls the SavedModel's
serving_nullable on each batch Beam makes, and writes a JSON line per row. Headway reads the same columns of the same file in
Arrow batches and writes Parquet with the key and each row's source. Both run on Beam's in-process runner. Every run is a process
of its own; rows/s leave imports out, peak memory is of the whole process.

Wanted: at least 20 times the rows/s.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from common import child, header, peak_rss_mb, required, write_parquet

from headway.process import mark_own_process

RATIO = 20.0
NUMBERS, TEXTS = ("dep_delay", "distance", "sched_dep_time"), ("carrier", "origin")


def main() -> None:
    mark_own_process()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=3_300_000, help="rows that Headway predicts")
    parser.add_argument("--tutorial-rows", type=int, default=100_000, help="rows that the tutorial's pipeline predicts")
    parser.add_argument("--rounds", type=int, default=2, help="the best of so many counts")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--child", choices=["model", "tutorial", "tutorial-threads", "headway"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child == "model":
        save_model(arguments.folder / "model")
        return
    if arguments.child:
        with tempfile.TemporaryDirectory(prefix="headway-bench-") as out:
            run = headway if arguments.child == "headway" else tutorial
            print(json.dumps(run(arguments, Path(out)) | {"peak": peak_rss_mb()}))
        return
    header("predict")
    folder = Path(tempfile.mkdtemp(prefix="headway-bench-"))
    try:
        compare(arguments, folder)
    finally:
        shutil.rmtree(folder)


def compare(arguments: argparse.Namespace, folder: Path) -> None:
    """Run both by turns and print what came of it."""
    child(__file__, "--child", "model", "--folder", str(folder))
    for rows in {arguments.rows, arguments.tutorial_rows}:
        write_parquet(rows, folder / f"{rows}.parquet")

    def run(kind: str, rows: int) -> dict[str, Any]:
        options = ["--rows", str(rows), "--workers", str(arguments.workers)]
        figures = json.loads(child(__file__, "--child", kind, "--folder", str(folder), *options).splitlines()[-1])
        if figures["predicted"] != rows:
            raise SystemExit(f"{kind} predicted {figures['predicted']} of {rows} rows")
        rate = rows / figures["seconds"]
        speed = f"{rows:>10,} rows {figures['seconds']:7.2f} s {rate:>11,.0f} rows/s"
        print(f"{kind:18s} {speed} {figures['peak']:6.0f} MB peak  mean {figures['mean']:.6f}", flush=True)
        return figures | {"rate": rate}

    tutorials, headways = [], []
    for _ in range(arguments.rounds):
        for kind in ("tutorial", "tutorial-threads"):
            tutorials.append(run(kind, arguments.tutorial_rows))
        headways.append(run("headway", arguments.rows))
    ratio = max(f["rate"] for f in headways) / max(f["rate"] for f in tutorials)
    required("rows/s, headway over tutorial", ratio, least=RATIO)


def columns() -> tuple[Any, ...]:
    from headway.schema.columns import Column

    return (
        *(Column(name=name, type="float32", nullable=True) for name in NUMBERS),
        *(Column(name=name, type="bytes", nullable=True, encoding="dictionary") for name in TEXTS),
    )


# --- in a process of its own


def save_model(path: Path) -> None:
    """An untrained network of the usual size over five raw columns; what it says does not matter here."""
    import tensorflow as tf

    from tfcore.export.saved_model import save

    class Transform(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            words = tf.constant(["UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "EWR", "LGA", "JFK"])
            self.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(words, tf.range(11)), 11)

        def __call__(self, raw: dict[str, Any]) -> dict[str, Any]:
            numeric = []
            for values, present, *_ in (raw[name] for name in NUMBERS):
                known = tf.logical_and(present, tf.logical_not(tf.math.is_nan(values)))
                numeric.append(tf.where(known, values, 0.0) / 1000.0)
            return {
                "numeric": tf.stack(numeric, -1),
                "categorical": tf.stack([self.table.lookup(raw[n].values) for n in TEXTS], -1),
            }

        def named(self, raw: dict[str, Any]) -> dict[str, Any]:
            return self(raw)

    tf.random.set_seed(1)
    sizes = [3 + 2 * 8, 64, 32, 1]
    table = tf.Variable(tf.random.normal([12, 8]))
    weights = [tf.Variable(tf.random.normal(pair, stddev=0.3)) for pair in itertools.pairwise(sizes)]

    def predict(inputs: dict[str, Any]) -> dict[str, Any]:
        embedded = tf.reshape(tf.gather(table, inputs["categorical"]), [-1, 16])
        hidden = tf.concat([inputs["numeric"], embedded], 1)
        for weight in weights[:-1]:
            hidden = tf.nn.relu(hidden @ weight)
        logit = (hidden @ weights[-1])[:, 0]
        return {"probability": tf.sigmoid(logit), "logit": logit}

    save(path, transform=Transform(), predict=predict, variables=[table, *weights], columns=columns(), task="binary")


def tutorial(arguments: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Rows as dicts through RunInference, a JSON line each; with one worker in this thread, or with worker threads."""
    import apache_beam as beam
    import numpy as np
    import tensorflow as tf
    from apache_beam.ml.inference.base import ModelHandler, RunInference
    from apache_beam.options.pipeline_options import PipelineOptions

    model_path = str(arguments.folder / "model")

    class Handler(ModelHandler):
        def load_model(self):
            return tf.saved_model.load(model_path)

        def batch_elements_kwargs(self):
            return {"min_batch_size": 256, "max_batch_size": 4096}

        def run_inference(self, batch, model, inference_args=None):
            tensors = {}
            for name in (*NUMBERS, *TEXTS):
                values = [row[name] for row in batch]
                empty: Any = 0.0 if name in NUMBERS else ""
                kind = tf.float32 if name in NUMBERS else tf.string
                tensors[name] = tf.constant([empty if value is None else value for value in values], kind)
                tensors[name + "__present"] = tf.constant([value is not None for value in values])
            found = model.signatures["serving_nullable"](**tensors)["probability"].numpy()
            return [{"row_id": row["row_id"], "prediction": float(p)} for row, p in zip(batch, found, strict=True)]

    options: dict[str, Any] = {"direct_running_mode": "in_memory", "direct_num_workers": 1}
    if arguments.child == "tutorial-threads":
        options = {"direct_running_mode": "multi_threading", "direct_num_workers": arguments.workers}
    started = time.perf_counter()
    with beam.Pipeline("FnApiRunner", options=PipelineOptions(flags=[], **options)) as pipeline:
        wanted = ["row_id", *NUMBERS, *TEXTS]
        rows = pipeline | beam.io.ReadFromParquet(str(arguments.folder / f"{arguments.rows}.parquet"), columns=wanted)
        found = rows | RunInference(Handler())
        found | beam.Map(json.dumps) | beam.io.WriteToText(str(out / "found"))
    seconds = time.perf_counter() - started
    lines = [json.loads(line) for path in out.iterdir() for line in path.open()]
    return {"seconds": seconds, "predicted": len(lines), "mean": float(np.mean([line["prediction"] for line in lines]))}


def headway(arguments: argparse.Namespace, out: Path) -> dict[str, Any]:
    """One call of the job, checksums of the input and loading the model included."""
    import pandas  # noqa: F401 - pyarrow looks for it once, before the clock runs
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    import tfcore.export.predictor  # noqa: F401 - and TensorFlow
    from beam_jobs.predict.request import CopiedColumn, PredictRequest
    from beam_jobs.predict.stage import predict
    from beam_jobs.runners.config import RunnerConfig
    from headway.monitor import Monitor
    from headway.sources.config import SourceConfig
    from headway.sources.spans import ONE_SPAN, files

    started = time.perf_counter()
    source = SourceConfig(format="parquet", path=str(arguments.folder / f"{arguments.rows}.parquet"))
    request = PredictRequest(
        files=files(source, ONE_SPAN),
        source=source,
        columns=columns(),
        model=str(arguments.folder / "model"),
        digest="bench",
        loader="tfcore.export.predictor:load",
        passthrough=(CopiedColumn(name="row_id"),),
    )
    result = predict(request, out, Monitor(), runner=RunnerConfig(workers=arguments.workers))
    seconds = time.perf_counter() - started
    parts = [pq.read_table(out / part["file"], columns=["prediction"]) for part in result["parts"]]
    mean = sum(pc.sum(part["prediction"]).as_py() for part in parts) / result["counts"]["predicted"]
    return {"seconds": seconds, "predicted": result["counts"]["predicted"], "mean": mean}


if __name__ == "__main__":
    main()
