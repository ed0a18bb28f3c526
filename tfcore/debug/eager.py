"""Runs one training step eagerly, op by op, and records layer outputs and variable changes.

seen = eager_step(learner, batch, {"learning_rate": 0.01})
seen["layers"], seen["variables"], seen["loss"], seen["applied"]

It is the learner's own step, so what is seen is what is trained with; its variables are put back afterwards.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfcore.debug.layer_report import watched
from tfcore.debug.summary import summarize
from tfcore.train.steps.learner import Learner

ROUNDING = 1e-6
"""Relative difference of a variable that rounding explains."""


def eager_step(learner: Learner, batch: Mapping[str, tf.Tensor], knobs: Mapping[str, float]) -> dict[str, Any]:
    """Run one step on `batch` eagerly and restore all state afterwards.

    Args:
        batch: "numeric" [B, n], "label" [B], "weight" [B], ...: one batch of a stack.
        knobs: the value of each of the learner's.

    Returns:
        inputs: the batch's tensors, {name, **summary}.
        layers: as `tfcore.debug.layer_report.watched` tells.
        variables: {name, gradient (summary; None where none reaches it), weight (summary, before the step), change (the
        length of what the step added over the weight's own), moved (whether it added what no rounding explains)}.
        loss; gradient_norm; applied: false where the step was skipped; excused: for a loss scale that was too large;
        seconds.
    """
    model = learner.model
    trained = list(model.trainable_variables)
    everything = [variable for group in learner.variables().values() for variable in group]
    learner.knobs.assign({name: tf.constant(knobs[name], tf.float32) for name in learner.knobs.variables_by_name})
    saved = [variable.numpy() for variable in everything]
    weights = [variable.numpy() for variable in trained]
    began = time.perf_counter()
    try:
        with watched(model) as layers:
            part = learner.train_step.part(batch)
            done = learner.train_step.finish(part, learner.train_step.keep())
        after = [variable.numpy() for variable in trained]
    finally:
        for variable, value in zip(everything, saved, strict=True):
            variable.assign(value)
    unreached = learner.train_step.unreached_eagerly
    gradients = [None if v.path in unreached else g for v, g in zip(trained, part.gradients, strict=True)]
    return {
        "inputs": [{"name": name} | summarize(value) for name, value in batch.items()],
        "layers": layers,
        "variables": [
            {
                "name": variable.path,
                "gradient": None if gradient is None else summarize(gradient),
                "weight": summarize(weight),
                "change": _change(weight, moved),
                "moved": _moved(weight, moved),
            }
            for variable, gradient, weight, moved in zip(trained, gradients, weights, after, strict=True)
        ],
        "loss": _finite(float(part.loss)),
        "gradient_norm": _finite(float(tf.linalg.global_norm(part.gradients))),
        "applied": bool(done.applied),
        "excused": done.retryable is not None and bool(done.retryable),
        "seconds": round(time.perf_counter() - began, 4),
    }


def _change(before: np.ndarray[Any, Any], after: np.ndarray[Any, Any]) -> float | None:
    if not np.issubdtype(before.dtype, np.floating):
        return None
    length = float(np.linalg.norm(before.astype(np.float64)))
    step = float(np.linalg.norm(after.astype(np.float64) - before.astype(np.float64)))
    return _finite(step / length) if length else None


def _moved(before: np.ndarray[Any, Any], after: np.ndarray[Any, Any]) -> bool:
    """Whether a variable changed by more than rounding in another order of the same sums."""
    step = np.abs(after.astype(np.float64) - before.astype(np.float64))
    return bool(np.max(step, initial=0.0) > ROUNDING * np.max(np.abs(before.astype(np.float64)), initial=0.0))


def _finite(value: float) -> float | None:
    """The value; None for NaN and infinity, which JSON cannot hold."""
    return value if np.isfinite(value) else None
