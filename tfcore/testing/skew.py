"""Asserts that a SavedModel predicts in another process exactly what the training process predicted."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import HeadwayError
from headway.monitor import Monitor
from headway.process import Scratch
from headway.records.spec import total
from headway.schema.columns import Column
from tfcore.export.replay.replay_process import ReplayProcess, replay_request
from tfcore.export.signatures import tensor_names
from tfcore.testing.example_shards import Written


def assert_no_skew(
    saved_model: Path,
    examples: Written,
    split: str,
    *,
    expected: NDArray[Any],
    output: str,
    bound: float = 1e-5,
) -> None:
    """Raise AssertionError unless a moved copy of `saved_model` predicts `expected` for the rows of a split.

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
    with Scratch("skew") as folder:
        moved = Path(folder) / "moved"
        shutil.copytree(saved_model, moved)
        np.save(Path(folder) / "expected.npy", np.asarray(expected), allow_pickle=False)
        described = json.loads((moved / "assets.extra" / "signatures.json").read_text(encoding="utf-8"))
        inputs = {tensor["name"] for tensor in described["serving_default"]["inputs"]}
        question = replay_request(
            moved,
            _columns(examples, inputs),
            [{"path": str((examples.folder / s["file"]).absolute()), "rows": total(s["rows"])} for s in shards],
            Path(folder) / "expected.npy",
            rows_per_record=examples.result["rows_per_record"],
            output=output,
            bound=bound,
        )
        try:
            answer = ReplayProcess().ask(question, Monitor())
        except HeadwayError as error:
            raise AssertionError(str(error)) from None
    if "error" in answer:
        raise AssertionError(f"{saved_model} could not be run: {answer['error']}")
    if not answer["ok"]:
        worst = answer["worst"]
        raise AssertionError(
            f"{worst['signature']} differs by {worst['difference']:.3g} in row {worst['row']} (bound {bound:g}): "
            f"it says {worst['found']}, expected {worst['expected']}\n  the row: {worst['columns']}"
        )


def _columns(examples: Written, inputs: set[str]) -> list[Column]:
    """The raw columns that the model takes."""
    raw = [column for column in examples.columns if column.role != "label"]
    names = tensor_names(raw)
    return [column for column in raw if names[column.name] in inputs]
