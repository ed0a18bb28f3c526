"""The training stage: shards and a fitted transform in, trained weights and a history out.

    train(TrainRequest(...), Path("out"), monitor)      # {"steps": 2000, "final_loss": 0.41, "traces": 1, ...}

`out` gets `weights` (a TensorFlow checkpoint of every model variable), `model.json` and `history.json`. Given a folder
for checkpoints, a killed or stopped training continues where the last checkpoint was taken and ends at the same bits as
one that was never interrupted: same order of rows, same masks, same compiled mode.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

from headway.monitor import Monitor
from tfcore import models
from tfcore.feeds import Feed
from tfcore.runtime import prepare
from tfcore.train.checkpoint import Checkpoints, Found, Variables
from tfcore.train.data import TrainingData, class_counts, class_names
from tfcore.train.early_stopping import Patience
from tfcore.train.learner import Learner
from tfcore.train.loop import Every, run
from tfcore.train.recorder import Recorder
from tfcore.train.request import VERSION, TrainRequest
from tfcore.train.sampling import logit_offsets
from tfcore.train.summaries import Summaries
from tfcore.train.weights import class_weights

__all__ = ["VERSION", "train"]

HISTORY_POINTS = 200


def train(request: TrainRequest, out: Path, monitor: Monitor, *, feed: Feed | None = None) -> dict[str, Any]:
    """Train as `request` says; see the module. With a `feed`, on its rows instead of the request's examples.

    Returns:
        steps, rows (of one epoch), epochs, seconds, steps_per_second, final_loss, lowest_loss, best_loss and best_step
        (on the carve), stopped ("end" or "early"), skipped (steps that were not finite), traces, jit ("jit" or
        "graph"), threads, parameters, resumed_from.

    Raises:
        Cancelled: on request, after a checkpoint was saved.
        ConfigError, DataError, StoreError: with the place and what to do.
    """
    return _Training(request, monitor, feed).run(out)


class _Training:
    """One training: its pieces, and what happens between calls of the compiled steps."""

    def __init__(self, request: TrainRequest, monitor: Monitor, feed: Feed | None = None):
        self.request, self.monitor, config = request, monitor, request.training
        self.threads = prepare(config.threads, log=monitor.log)
        self.patience = Patience(config.early_stopping) if config.early_stopping else None
        weights = class_weights(
            config.class_weights,
            class_names(request.transform),
            class_counts(request.transform),
            request.transform.label.task,
        )
        self.data = TrainingData(
            request.examples,
            request.transform,
            seed=request.seed,
            training=config,
            class_weights=weights,
            preprocess=request.preprocess,
            feed=feed,
        )
        self.total = config.total_steps(self.data.rows)
        self.stack = self.data.stack(min(config.steps_per_call, self.total))

        self.checkpoints = (
            Checkpoints(request.checkpoints, keep=config.keep_checkpoints, log=monitor.log)
            if request.checkpoints
            else None
        )
        found = self.checkpoints.newest() if self.checkpoints else None
        self.learner = self._learner(found)
        self.best = [tf.Variable(v.value, trainable=False) for v in self.model.variables] if self.patience else []
        self.recorder = Recorder(
            total=self.total, batch=config.batch_size, monitor=monitor, non_finite_limit=config.non_finite_limit
        )
        self.summaries = Summaries(request.summaries if config.summaries else None)
        self.start, self.seconds = 0, 0.0
        if found:
            self._resume(found)

    def _learner(self, found: Found | None) -> Learner:
        request, config, label = self.request, self.request.training, self.request.transform.label
        step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        self.model = models.build(request.model, request.transform, seed=request.seed, step=step, module=request.module)
        return Learner(
            model=self.model,
            task=label.task,
            step=step,
            specs=self.data.specs(self.stack),
            optimizer=config.optimizer,
            clip_norm=config.clip_norm,
            label_std=models.label_scale(request.transform)[0] if label.task == "regression" else 1.0,
            offsets=self._offsets(),
            # compiled and plain steps round differently, so a resumed training keeps the mode it began in
            jit={"jit": "on", "graph": "off"}[found.state["jit"]] if found else config.jit,  # type: ignore[arg-type]
            log=self.monitor.log,
        )

    def _offsets(self) -> list[float] | None:
        sampling, rates = self.request.training.sampling, self.data.rates
        corrected = sampling is not None and sampling.correct == "logits" and rates is not None
        return logit_offsets(rates, self.request.transform.label.task) if corrected and rates else None

    def run(self, out: Path) -> dict[str, Any]:
        began = time.monotonic()
        try:
            step = self._steps(began)
        finally:
            self.summaries.close()
        stopped = "early" if step < self.total else "end"
        if self.patience and self.patience.best_step is not None:
            for variable, best in zip(self.model.variables, self.best, strict=True):
                variable.assign(best)
        out.mkdir(parents=True, exist_ok=True)
        models.save_weights(self.model, out / models.WEIGHTS)
        return self._finish(out, step, stopped)

    def _steps(self, began: float) -> int:
        """Run the loop to its end; on a request to stop, save a checkpoint and raise Cancelled."""
        config = self.request.training
        every = [Every(self._history_steps(), self._point, at_end=True)]
        if config.early_stopping:
            every.append(Every(config.early_stopping.every_steps, self._evaluate_carve, at_end=True))
        if self.checkpoints:
            # last, so that a checkpoint holds what the others did at its step
            every.append(Every(config.checkpoint_every_steps, lambda step: self._save(step, began)))
        step = self.start
        if not (self.patience and self.patience.exhausted):
            step = run(
                self.learner,
                self.data.stacks(self.stack),
                start=self.start,
                total=self.total,
                rates=lambda first, count: config.learning_rate.rates(first, count, self.total),
                every=every,
                report=self.recorder,
                cancelled=self.monitor.cancelled,
            )
        finished = step == self.total or bool(self.patience and self.patience.exhausted)
        if not finished:
            self._save(step, began)
            self.monitor.check()
        self.seconds += time.monotonic() - began
        return step

    def _history_steps(self) -> int:
        """Steps between two points of the history: a multiple of the stack, so that calls stay whole."""
        return self.stack * max(1, math.ceil(self.total / HISTORY_POINTS / self.stack))

    def _point(self, step: int) -> None:
        rate = float(self.request.training.learning_rate.rates(step - 1, 1, self.total)[0])
        point = self.recorder.point(step, learning_rate=rate)
        self.summaries.write(step, loss=point["loss"], learning_rate=rate)

    def _evaluate_carve(self, step: int) -> bool:
        assert self.patience is not None
        loss = self.learner.evaluate(self.data.carve())
        better = self.patience.update(step, loss)
        if better:
            for best, variable in zip(self.best, self.model.variables, strict=True):
                best.assign(variable.value)
        self.recorder.carve(step, loss)
        self.summaries.write(step, carve_loss=loss)
        if self.patience.exhausted:
            self.monitor.log(
                f"stopped at step {step}: the loss on the carve has not fallen since step {self.patience.best_step}"
            )
        return self.patience.exhausted

    def _variables(self) -> Variables:
        return self.learner.variables() | ({"best": self.best} if self.best else {})

    def _save(self, step: int, began: float) -> None:
        if self.checkpoints is None or self.learner.mode is None:
            return  # nowhere to, or nothing ran yet
        state = {
            "jit": self.learner.mode,
            "threads": self.threads,
            "seconds": self.seconds + time.monotonic() - began,
            "recorder": self.recorder.state(),
            "patience": self.patience.state() if self.patience else None,
        }
        self.checkpoints.save(step, self._variables(), state)

    def _resume(self, found: Found) -> None:
        assert self.checkpoints is not None
        self.checkpoints.restore(found, self._variables())
        self.start, self.seconds = found.step, found.state["seconds"]
        self.recorder.restore(found.state["recorder"])
        if self.patience and found.state["patience"]:
            self.patience.restore(found.state["patience"])
        self.monitor.log(f"resumed at step {found.step:,} of {self.total:,}")
        if found.state["threads"] != self.threads:
            self.monitor.log(
                f"warning: the checkpoint was taken with {found.state['threads']} threads and {self.threads} run now, "
                "so the last bits of the weights may differ from an uninterrupted training's"
            )

    def _finish(self, out: Path, step: int, stopped: str) -> dict[str, Any]:
        request, config = self.request, self.request.training
        rows = step * config.batch_size
        history = self.recorder.history
        if self.recorder.skipped:
            self.monitor.log(
                f"warning: {self.recorder.skipped} steps were skipped: their loss or gradients were not finite"
            )
        if self.data.images.refused:
            self.monitor.log(f"warning: TensorFlow refused images {self.data.images.refused} times; they were skipped")
        losses = [point["loss"] for point in history if point.get("loss") is not None]
        result = {
            "steps": step,
            "rows": self.data.rows,
            "epochs": round(rows / self.data.rows, 4) if self.data.rows else None,
            "seconds": round(self.seconds, 3),
            "steps_per_second": self.recorder.steps_per_second,
            "final_loss": losses[-1] if losses else None,
            "lowest_loss": min(losses) if losses else None,
            "best_loss": self.patience.best_loss if self.patience else None,
            "best_step": self.patience.best_step if self.patience else None,
            "stopped": stopped,
            "skipped": self.recorder.skipped,
            "refused_images": self.data.images.refused,
            "traces": self.learner.traces,
            "jit": self.learner.mode,
            "threads": self.threads,
            "parameters": int(sum(math.prod(v.shape) for v in self.model.trainable_variables)),
            "resumed_from": self.start or None,
        }
        model = {
            "model": request.model.model_dump(mode="json"),
            "seed": request.seed,
            "task": request.transform.label.task,
        }
        _write(
            out / "model.json", model | {"weights": models.WEIGHTS, "variables": [v.path for v in self.model.variables]}
        )
        _write(out / "history.json", {"history": history, "result": result})
        return result


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
