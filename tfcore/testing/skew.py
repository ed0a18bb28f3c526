"""Asserts that a SavedModel predicts in a process of its own what the training process predicted."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.records.spec import feature_spec, total
from headway.schema.columns import LABEL
from tfcore.export.signatures import replay_columns
from tfcore.testing.example_shards import Written

SECONDS = 240.0


def assert_no_skew(
    saved_model: Path,
    examples: Written,
    split: str,
    *,
    expected: NDArray[Any],
    output: str,
    bound: float = 1e-5,
) -> None:
    """AssertionError unless a moved copy of `saved_model` predicts `expected` for the rows of a split.

    A fresh process that has TensorFlow and NumPy, and neither Keras nor Headway, reads the shards and asks
    `serving_default`, `serving_nullable` and `serve_examples`.

    Args:
        expected: float, [rows] or [rows, classes]: what was predicted in training, in the order of the shards.
        output: the signature output to compare.
        bound: of |difference| / max(1, |expected|).

    Raises:
        AssertionError: the worst row, its columns and both values; or why the model could not be asked.
    """
    shards = examples.result["splits"][split]["shards"]
    rows = sum(total(shard["rows"]) for shard in shards)
    if len(expected) != rows:
        raise AssertionError(f"{len(expected)} predictions were given for the {rows} rows of {split}")
    per_record = examples.result["rows_per_record"]
    with tempfile.TemporaryDirectory(prefix="headway-skew-") as folder:
        moved = Path(folder) / "moved"
        shutil.copytree(saved_model, moved)
        np.save(Path(folder) / "expected.npy", np.asarray(expected), allow_pickle=False)
        described = json.loads((moved / "assets.extra" / "signatures.json").read_text(encoding="utf-8"))
        inputs = {tensor["name"] for tensor in described["serving_default"]["inputs"]}
        columns = replay_columns([column for column in examples.columns if column.name != LABEL])
        question = {
            "saved_model": str(moved),
            "spec": feature_spec(examples.columns, per_record),
            "rows_per_record": per_record,
            "columns": [column for column in columns if column["tensor"] in inputs],
            "shards": [{"path": str(examples.folder / s["file"]), "rows": total(s["rows"])} for s in shards],
            "expected": str(Path(folder) / "expected.npy"),
            "output": output,
            "bound": bound,
        }
        answer = _ask(question)
    if "error" in answer:
        raise AssertionError(f"{saved_model} could not be asked: {answer['error']}")
    if not answer["ok"]:
        worst = answer["worst"]
        raise AssertionError(
            f"{worst['signature']} differs by {worst['difference']:.3g} in row {worst['row']} (bound {bound:g}): "
            f"it says {worst['found']}, expected {worst['expected']}\n  the row: {worst['columns']}"
        )


def _ask(question: dict[str, Any]) -> dict[str, Any]:
    script = importlib.util.find_spec(
        "tfcore.export.replay_main"
    )  # by its path: importing it would bar Keras from this process
    assert script is not None
    done = subprocess.run(
        [sys.executable, "-I", str(script.origin)],
        input=json.dumps(question) + "\n",
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        last = "\n".join(done.stderr.strip().splitlines()[-20:])
        raise AssertionError(f"the process that was to load the model ended with {done.returncode}:\n{last}")
    return json.loads(lines[-1])
