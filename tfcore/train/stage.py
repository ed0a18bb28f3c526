"""The training stage: shards and a fitted transform in, trained weights and a history out.

    train(TrainRequest(...), Path("out"), monitor)      # {"steps": 2000, "final_loss": 0.41, "traces": 1, ...}

`out` gets `weights` (a TensorFlow checkpoint of every model variable), `model.json` and `history.json`. Given a folder
for checkpoints, a killed or stopped training continues where the last checkpoint was taken and ends at the same bits as
one that was never interrupted: same order of rows, same masks, same compiled mode.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import Cancelled, ConfigError
from headway.monitor import Monitor
from headway.storage.prefetch import RemoteFiles, Stager
from tfcore.data.remote import staged
from tfcore.data.source import Feed
from tfcore.distribute.launch import chosen, train_apart
from tfcore.distribute.placement import Choice, Placement, place
from tfcore.graph.function import Jit
from tfcore.graph.knobs import KnobVariables
from tfcore.graph.retrace import RetraceGuard
from tfcore.losses.class_weights import class_weights
from tfcore.models import build
from tfcore.models.precision import LossScale
from tfcore.ops.library import library
from tfcore.runtime.devices import prepare
from tfcore.train.callbacks.checkpoint import Checkpoints, Found
from tfcore.train.callbacks.control_file import ControlFile, Knobs, check_knobs
from tfcore.train.callbacks.early_stopping import Patience
from tfcore.train.callbacks.history import Recorder
from tfcore.train.callbacks.progress import history_steps, look_at_carve, point, report
from tfcore.train.callbacks.saving import resume, save, save_best
from tfcore.train.callbacks.stop_condition import Ending
from tfcore.train.callbacks.summaries import Summaries
from tfcore.train.ranking_config import LARGE_BATCH
from tfcore.train.request import VERSION, TrainRequest
from tfcore.train.result import finish
from tfcore.train.steps.learner import Learner
from tfcore.train.steps.loop import Every, run
from tfcore.train.steps.replicated import DistributedLearner, agreement, same_start
from tfcore.train.steps.sampling import logit_offsets
from tfcore.train.training_data import MOST_OPEN_SHARDS, TrainingData, class_counts, class_names
from tfcore.train.xla_choice import slow_under_xla

__all__ = ["VERSION", "train"]


def train(
    request: TrainRequest,
    out: Path,
    monitor: Monitor,
    *,
    remote: RemoteFiles | None = None,
    feed: Feed | None = None,
) -> dict[str, Any]:
    """Train as `request` says; see the module. With a `feed`, on its rows instead of the request's examples.

    Args:
        remote: how shards that are in a bucket yet come here while others are trained on; changes no result.

    Returns:
        steps, rows (of one epoch), epochs, seconds, steps_per_second, final_loss, lowest_loss, best_loss and best_step
        (on the carve), stopped ("end", "early" or "loss"), skipped (steps that were not finite), traces, jit ("jit" or
        "graph"), threads, strategy, replicas, workers,
        parameters, resumed_from, knob_changes (what was set by hand: step, knob, value);
        of float16 also loss_scale (its last value, and the steps skipped to find it); with keep_best best_checkpoints
        (step, carve_loss, and where in `out` the weights are; best first).

    Raises:
        Cancelled: on request, after a checkpoint was saved.
        ConfigError, DataError, StoreError: with the place and what to do.
    """
    choice = chosen(request, feeds=feed is not None)
    if choice.apart:
        return train_apart(choice, request, out, monitor, remote=remote)
    gpus = len(tf.config.list_physical_devices("GPU"))
    return train_placed(request, out, monitor, lambda: place(choice, gpus=gpus), remote=remote, feed=feed)


def train_placed(
    request: TrainRequest,
    out: Path,
    monitor: Monitor,
    placed: Callable[[], Placement],
    *,
    remote: RemoteFiles | None = None,
    feed: Feed | None = None,
) -> dict[str, Any]:
    """`train` in this process, on the devices that `placed` takes once its threads are set."""
    with staged(remote, monitor, open_files=MOST_OPEN_SHARDS + 1) as stager:
        return _Training(request, monitor, stager, feed, placed).run(out)


class _Training:
    """One training: its pieces, and what happens between calls of the compiled steps."""

    def __init__(
        self,
        request: TrainRequest,
        monitor: Monitor,
        stager: Stager | None = None,
        feed: Feed | None = None,
        placed: Callable[[], Placement] = lambda: Placement(Choice("cpu")),
    ):
        self.request, self.monitor, config = request, monitor, request.training
        self.threads = prepare(config.threads, log=monitor.log)
        self.placement = placed()
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
            stager=stager,
            placement=self.placement,
        )
        for note in self.data.notes:
            monitor.log(note)
        self.total = self.data.total_steps()
        self.stack = self.data.stack(min(config.steps_per_call, self.total))

        task, user = request.transform.label.task, request.model.user_defined
        self.knobs = Knobs(config.all_knobs(request.model.dropout), self.total)
        check_knobs(config.knobs, task, user=user)
        chief = self.placement.chief
        self.control = ControlFile(request.control) if request.control and chief else None
        self.checkpoints = (
            Checkpoints(request.checkpoints, keep=config.keep_checkpoints, keep_best=config.keep_best, log=monitor.log)
            if request.checkpoints
            else None
        )
        found = self.checkpoints.newest() if self.checkpoints else None
        with self.placement.scope():
            self.learner = self._learner(found)
        self.workers: DistributedLearner | None = None
        """The learner, where there are other workers."""
        if self.placement.several:
            assert isinstance(self.learner, DistributedLearner)
            self.workers = self.learner
            same_start(self.workers, found.step if found else None, request.checkpoints)
        self.best = [tf.Variable(v.value, trainable=False) for v in self.model.variables] if self.patience else []
        self.recorder = Recorder(
            total=self.total, batch=config.batch_size, monitor=monitor, non_finite_limit=config.non_finite_limit
        )
        self.summaries = Summaries(request.summaries if config.summaries and chief else None)
        self.start, self.reached, self.seconds = 0, 0, 0.0
        self.saved: int | None = None
        self.carved: tuple[int, float] | None = None  # step and loss of the last look at the carve
        self.guard = RetraceGuard(self.learner, action="warn", log=monitor.log)
        if found:
            resume(self, found)
        elif self.control:
            self.control.begin()

    def _learner(self, found: Found | None) -> Learner:
        request, config, label = self.request, self.request.training, self.request.transform.label
        step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        knobs = KnobVariables(self.knobs.names)
        self.model = build.build(
            request.model,
            request.transform,
            seed=request.seed,
            step=step,
            module=request.module,
            knobs=knobs,
            precision=config.precision,
        )
        kind: Callable[..., Learner] = Learner
        if self.placement.strategy is not None:
            kind = functools.partial(DistributedLearner, placement=self.placement)
        return kind(
            model=self.model,
            task=label.task,
            step=step,
            specs=self.data.specs(self.stack),
            optimizer=config.optimizer,
            knobs=knobs,
            label_std=build.label_scale(request.transform)[0] if label.task == "regression" else 1.0,
            offsets=self._offsets(),
            micro_batches=config.micro_batches > 1,
            scale=LossScale() if config.precision == "float16" else None,
            ending=Ending(non_finite_limit=config.non_finite_limit, stop_at_loss=config.stop_at_loss),
            # compiled and plain steps round differently, so a resumed training keeps the mode it began in
            jit={"jit": "on", "graph": "off"}[found.state["jit"]] if found else self._jit(),
            ranking=config.ranking,
            log=self.monitor.log,
        )

    def _jit(self) -> Jit:
        config = self.request.training
        large = config.ranking is not None and config.batch_size >= LARGE_BATCH
        on_gpu = "GPU" in (self.placement.device or "")  # where the op has no kernel
        if config.jit != "auto" or on_gpu:
            return config.jit
        if (op := self._slow_op()) is not None:
            self.monitor.log(
                f"training.jit: auto runs steps uncompiled: the model calls {op}, which XLA makes slow on a CPU"
            )
            return "off"
        if not large or library() is None:
            return config.jit
        self.monitor.log("training.ranking uses the op in C++, which XLA has no kernel for: steps run uncompiled")
        return "off"

    def _slow_op(self) -> str | None:
        """An op of the model whose gradient XLA makes slow where it is trained; None when there is none."""
        choice, inputs = self.placement.choice, self.request.transform.inputs()
        if choice.name != "cpu" and not choice.logical and tf.config.get_visible_devices("GPU"):
            return None
        if not self.request.model.user_defined and all(len(row) < 3 for row, _ in inputs.values()):
            return None  # only images go through such ops in a built-in model
        specs = self.data.specs(self.stack)
        return slow_under_xla(self.model, {name: specs[name] for name in inputs})

    def _offsets(self) -> list[float] | None:
        sampling, rates = self.request.training.sampling, self.data.rates
        corrected = sampling is not None and sampling.correct == "logits" and rates is not None
        return logit_offsets(rates, self.request.transform.label.task) if corrected and rates else None

    def run(self, out: Path) -> dict[str, Any]:
        began = time.monotonic()
        try:
            with self.placement.device_scope():
                step = self._steps(began)
        finally:
            self.summaries.close()
        stopped = self.learner.ending.reason or ("early" if step < self.total else "end")
        if self.patience and self.patience.best_step is not None:
            with self.placement.scope():
                for variable, best in zip(self.model.variables, self.best, strict=True):
                    variable.assign(best)
        if self.workers and not self.placement.chief:
            # until the chief has written: a worker that leaves is a worker lost
            self.workers.from_chief(np.zeros(1))
            return {"steps": step, "worker": self.placement.worker}
        out.mkdir(parents=True, exist_ok=True)
        build.save_weights(self.model, out / build.WEIGHTS)
        result = finish(self, out, step, stopped)
        if self.workers:
            self.workers.from_chief(np.zeros(1))
        return result

    def _steps(self, began: float) -> int:
        """Run the loop to its end; on a request to stop, save a checkpoint and raise Cancelled."""
        config = self.request.training
        every = [Every(history_steps(self), functools.partial(point, self), at_end=True)]
        if config.early_stopping:
            every.append(Every(config.early_stopping.every_steps, functools.partial(look_at_carve, self), at_end=True))
            if self.checkpoints and config.keep_best:
                best = functools.partial(save_best, self, began=began)
                every.append(Every(config.early_stopping.every_steps, best, at_end=True))
        if self.checkpoints:
            # last, so that a checkpoint holds what the others did at its step
            every.append(Every(config.checkpoint_every_steps, lambda step: save(self, step, began)))
        if not self.placement.chief:
            every = []  # the chief says when, and writes
        step = self.start
        if not (self.patience and self.patience.exhausted):
            step = run(
                self.learner,
                self.data.stacks(self.stack, self.model, self.total),
                start=self.start,
                total=self.total,
                knobs=self._values,
                every=every,
                report=functools.partial(report, self),
                cancelled=self.monitor.cancelled,
                micro_batches=config.micro_batches,
                agreed=agreement(self.workers) if self.workers else lambda turn: turn,
            )
        ended = self.learner.ending.reason is not None
        stopped = step < self.total and not ended and not (self.patience and self.patience.exhausted)
        if stopped and self.placement.chief:
            save(self, step, began)
        if self.workers:  # only the chief knows whether it was stopped, or ended early
            stopped = bool(self.workers.from_chief(np.asarray([stopped], np.float64))[0])
        if stopped:
            raise Cancelled("stopped on request; what was done is kept")
        self.seconds += time.monotonic() - began
        return step

    def _values(self, first: int, count: int) -> dict[str, NDArray[np.float32]]:
        """The knobs' values, after a look at what was said since the last call."""
        if self.control:
            try:
                for change in self.knobs.change(self.reached, self.control.news() or {}):
                    to = "back to its schedule" if change["value"] is None else f"{change['value']:g}"
                    self.monitor.log(f"{change['knob']} is {to} from step {self.reached:,} on")
            except ConfigError as error:  # a slip of the hand must not cost a training
                self.monitor.log(f"warning: {self.control.path} is not heeded: {error}")
        return self.knobs.values(first, count)
