"""The pairwise ranking loss and its gradient: the op in C++ against its twin in TensorFlow's own ops.

    python bench/ranking.py
    python bench/ranking.py --groups 2 --rounds 1

Groups of 200 to 1,000 items with labels 0 to 4, float32. Loss and gradient of one batch in a tf.function, best time of
several; and the peak of resident memory above what the process had before it. Every case runs in a process of its own; all
of them give the same values, which is checked. Under XLA the pairs are one matrix of all rows by all rows, whose memory
bounds the number of groups. Required of the op: 10x what XLA makes of matrices of pairs, in speed and in memory, for both kinds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import common
import numpy as np

SMALLEST, LARGEST = 200, 1000
REQUIRED = 10.0
TITLES = {"op": "the op in C++", "twin": "TensorFlow's own ops", "xla": "the same under XLA"}
KINDS: dict[str, dict[str, object]] = {
    "logistic": {"kind": "logistic"},
    "lambdarank": {"kind": "lambdarank"},
    "lambdarank, k=10": {"kind": "lambdarank", "k": 10},
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--groups", type=int, default=4)
    options.add_argument("--seconds", type=float, default=4.0)
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--kind", choices=list(KINDS), help="this loss alone")
    options.add_argument("--case", choices=list(TITLES), help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.case:
        print(json.dumps(measure(arguments.case, KINDS[arguments.kind], arguments.groups, arguments.seconds)))
        return
    common.header("ranking")
    from tfcore.ops.compile import build

    build()
    for kind in [arguments.kind] if arguments.kind else KINDS:
        best: dict[str, dict[str, float]] = {}
        for _ in range(arguments.rounds):
            for case in TITLES:
                given = ["--groups", str(arguments.groups), "--seconds", str(arguments.seconds), "--kind", kind]
                found = json.loads(common.child(__file__, "--case", case, *given).splitlines()[-1])
                same = best.setdefault(case, found)
                best[case] = {key: min(found[key], same[key]) for key in found}
        op = best["op"]
        print(f"# {kind}: {op['rows']:,.0f} rows, {op['pairs']:,.0f} pairs")
        for case, found in best.items():
            if not abs(found["loss"] - op["loss"]) <= 1e-5 * op["loss"]:
                raise SystemExit(f"{case} gives {found['loss']}, the op {op['loss']}")
            if not abs(found["slope"] - op["slope"]) <= 1e-5 * op["slope"]:
                raise SystemExit(f"{case} gives gradients of {found['slope']}, the op {op['slope']}")
            line = f"{TITLES[case]:22s} {found['seconds'] * 1e3:9.2f} ms {found['megabytes']:9.1f} MB"
            if case != "op":
                speed, memory = found["seconds"] / op["seconds"], found["megabytes"] / op["megabytes"]
                line += f"   the op: {speed:6.1f}x the speed, {memory:6.1f}x less memory"
            if case == "xla":
                line += f"   required: {REQUIRED:.0f}x"
            print(line, flush=True)


def measure(case: str, options: dict[str, object], groups: int, seconds: float) -> dict[str, float]:
    """Seconds of a batch, megabytes above the start, and what came out."""
    import tensorflow as tf

    from tfcore.train.ranking import pairwise_loss

    def run(scores: tf.Tensor, labels: tf.Tensor, splits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(scores)
            loss = pairwise_loss(scores, labels, splits, native=case == "op", **options)  # type: ignore[arg-type]
            total = tf.reduce_sum(loss)
        return total, tape.gradient(total, scores)

    rng = np.random.default_rng(0)
    lengths = rng.integers(SMALLEST, LARGEST + 1, groups)
    splits = tf.constant(np.cumsum([0, *lengths]))
    rows = int(lengths.sum())
    scores = tf.constant(rng.normal(size=rows) * 2, tf.float32)
    labels = tf.constant(rng.choice(5, rows, p=[0.5, 0.2, 0.15, 0.1, 0.05]), tf.float32)
    # everything is loaded, its memory counts as the start; the shapes differ, so nothing of what is measured is there yet
    warm = tf.function(run, jit_compile=case == "xla")
    warm(tf.zeros([4]), tf.constant([0.0, 1, 2, 0]), tf.constant([0, 4], tf.int64))
    function = tf.function(run, jit_compile=case == "xla", reduce_retracing=False)
    before = common.peak_rss_mb()
    total, gradient = function(scores, labels, splits)
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < 3 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        total, gradient = function(scores, labels, splits)
        total.numpy()
        times.append(time.perf_counter() - start)
    counted = 0
    for first, last in zip(splits.numpy()[:-1], splits.numpy()[1:], strict=True):
        sizes = np.bincount(labels.numpy()[first:last].astype(int), minlength=5)
        counted += (int(last - first) ** 2 - int((sizes**2).sum())) // 2
    return {
        "seconds": min(times),
        "megabytes": common.peak_rss_mb() - before,
        "loss": float(total),
        "slope": float(tf.norm(gradient)),
        "rows": rows,
        "pairs": counted,
    }


if __name__ == "__main__":
    main()
