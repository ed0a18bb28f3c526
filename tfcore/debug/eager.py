"""One training step run eagerly, op by op, with what every layer gave and what became of every variable.

seen = eager_step(learner, batch, {"learning_rate": 0.01})
seen["layers"], seen["variables"], seen["loss"], seen["applied"]

It is the learner's own step, so what is seen is what is trained with; its variables are put back afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from tfcore.debug.layers import watched
from tfcore.debug.summary import summarize
from tfcore.train.learner import Learner


def eager_step(learner: Learner, batch: Mapping[str, tf.Tensor], knobs: Mapping[str, float]) -> dict[str, Any]:
    """Run one step on `batch` and put everything back.

    Args:
        batch: "numeric" [B, n], "label" [B], "weight" [B], ...: one batch of a stack.
        knobs: the value of each of the learner's.

    Returns:
        inputs: the batch's tensors, {name, **summary}.
        layers: as `tfcore.debug.layers.watched` tells.
        variables: {name, gradient (summary; None where none reaches it), weight (summary, before the step), change (the
        length of what the step added over the weight's own)}.
        loss; gradient_norm; applied: false where the step was skipped; seconds.
    """
    model = learner.model
    trained = list(model.trainable_variables)
    everything = [variable for group in learner.variables().values() for variable in group]
    learner.knobs.assign({name: tf.constant(knobs[name], tf.float32) for name in learner.knobs.variables_by_name})
    kept = [variable.numpy() for variable in everything]
    weights = [variable.numpy() for variable in trained]
    began = time.perf_counter()
    try:
        with watched(model) as layers, _asked(trained) as found:
            loss, _, applied = learner._train_step(batch)
        changes = [_change(before, variable.numpy()) for before, variable in zip(weights, trained, strict=True)]
    finally:
        for variable, value in zip(everything, kept, strict=True):
            variable.assign(value)
    gradients = _summed(found, len(trained))
    return {
        "inputs": [{"name": name} | summarize(value) for name, value in batch.items()],
        "layers": layers,
        "variables": [
            {
                "name": variable.path,
                "gradient": None if gradient is None else summarize(gradient),
                "weight": summarize(weight),
                "change": change,
            }
            for variable, gradient, weight, change in zip(trained, gradients, weights, changes, strict=True)
        ],
        "loss": _finite(float(loss)),
        "gradient_norm": _norm(gradients),
        "applied": bool(applied),
        "seconds": round(time.perf_counter() - began, 4),
    }


@contextmanager
def _asked(trained: list[Any]) -> Iterator[list[list[Any]]]:
    """The gradients of the `trained` variables as tapes give them inside, with None where there is none.

    The learner makes zeros of those, as an optimizer needs; here the difference is what is looked for.
    """
    answers: list[list[Any]] = []
    own = tf.GradientTape.gradient

    def gradient(tape: Any, target: Any, sources: Any, *arguments: Any, **keywords: Any) -> Any:
        result = own(tape, target, sources, *arguments, **keywords)
        if isinstance(sources, list) and len(sources) == len(trained):
            answers.append(list(result))
        return result

    tf.GradientTape.gradient = gradient
    try:
        yield answers
    finally:
        tf.GradientTape.gradient = own


def _summed(answers: list[list[Any]], count: int) -> list[Any]:
    """Over the parts of a batch, if it came in several."""
    total: list[Any] = [None] * count
    for answer in answers:
        for i, gradient in enumerate(answer):
            if gradient is not None:
                gradient = tf.convert_to_tensor(gradient)
                total[i] = gradient if total[i] is None else total[i] + gradient
    return total


def _change(before: np.ndarray[Any, Any], after: np.ndarray[Any, Any]) -> float | None:
    if not np.issubdtype(before.dtype, np.floating):
        return None
    length = float(np.linalg.norm(before.astype(np.float64)))
    step = float(np.linalg.norm(after.astype(np.float64) - before.astype(np.float64)))
    return _finite(step / length) if length else None


def _norm(gradients: list[Any]) -> float | None:
    there = [gradient for gradient in gradients if gradient is not None]
    return _finite(float(tf.linalg.global_norm(there))) if there else None


def _finite(value: float) -> float | None:
    """JSON has no form for others."""
    return value if np.isfinite(value) else None
