"""A training in this process: rows, model, learner, scheduled numbers, and callbacks between calls of the compiled steps.

    class Bell(Callback):
        def actions(self, session):
            return [PeriodicAction(1000, lambda step: print(step, session.evaluate()))]

    session = TrainingSession(request, monitor, callbacks=[Bell()])
    session.run()                                     # trains; raises Cancelled where it was stopped
    session.model, session.step, session.end_reason   # the trained model, 2000, "end"

`tfcore.train.stage.train` runs a session with the callbacks that the request asks for, and writes the output.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from headway.errors import Cancelled, ConfigError, DataError
from headway.messages import counted
from headway.monitor import Monitor
from headway.storage.prefetch import Stager
from headway.tasks.user_task import UserTask
from tfcore.data.reader import Shards
from tfcore.graph.function import Jit
from tfcore.graph.retrace import RetraceGuard
from tfcore.heads.head import label_head, label_task
from tfcore.heads.losses import with_loss
from tfcore.models import build
from tfcore.models.config import CHOOSING
from tfcore.models.inputs import has_members
from tfcore.models.members import CHOICE
from tfcore.runtime.devices import numerics, prepare, relaxed_numerics, using_numerics
from tfcore.train.checkpoints import Checkpoints, Found, Variables
from tfcore.train.cost import choose_jit
from tfcore.train.loop import Learner, Outcome, PeriodicAction, run
from tfcore.train.request import TrainRequest
from tfcore.train.rows import training_data
from tfcore.train.schedule import StepValues, check_schedules
from tfcore.train.step import LIMIT, StepConfig
from tfcore.train.strategy import DistributedLearner, Placement, check_same_checkpoint, follow_chief
from tfcore.train.warm_start import warm_start

STEPS_PER_CALL = 128
"""The most steps in one call of the compiled loop: the call's own cost is then a hundredth. Slow steps come in smaller
calls, so that a request to stop is noticed soon."""


class Callback:
    """The base class of callbacks, which act between the steps of a training. Every method may be left out.

    Attributes:
        name: the key of the callback's `state()` in checkpoints; None: it has no state.
    """

    name: str | None = None

    def build(self, session: TrainingSession) -> None:
        """Make the callback's variables. The session has its data, model and learner; no checkpoint is restored yet."""

    def actions(self, session: TrainingSession) -> Sequence[PeriodicAction]:
        """Returns the actions, each with the number of steps after which it is repeated. An action that returns true
        ends the training. With several workers only the chief runs actions."""
        return ()

    def after_call(self, session: TrainingSession, outcome: Outcome) -> None:
        """React to the results of one call of the compiled steps, which ended at `session.step`. Runs on every worker."""

    def recorded(self, session: TrainingSession, values: Mapping[str, float | None]) -> None:
        """Receive figures of the step `session.step` that any callback passed to `session.record`."""

    def over(self) -> bool:
        """Returns whether this callback has ended the training. A session that resumes asks this before its first step."""
        return False

    def stopping(self, session: TrainingSession) -> None:
        """React to a request to stop the training before its end. With several workers only the chief calls this."""

    def finish(self, session: TrainingSession) -> None:
        """Change the trained model before it is written. Called after `close`, unless the training was stopped or failed."""

    def close(self) -> None:
        """Release resources: called when the training has ended, by itself, on request, or by an error."""

    def variables(self) -> Variables:
        """Returns the callback's variables that a checkpoint saves, in lists by name."""
        return {}

    def state(self) -> dict[str, Any] | None:
        """Returns the callback's JSON state that a checkpoint saves under `name`; None: there is none."""
        return None

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the callback from a `state()` that a checkpoint saved."""


class TrainingSession:
    """One training in this process; see the module.

    Args:
        stager: fetches shards from a bucket as they are read; None: the shards are on this disk.
        shards: the rows that are used in place of the request's examples.
        devices: a function that sets up the devices and returns their placement; called after the threads are set.

    Attributes:
        data: the batches; `data.stack_reader(stack)` gives the stacks that the learner takes.
        model, learner: the Keras model, and what trains it in compiled steps.
        values: the scheduled numbers by step: the learning rate and those of `training.schedules`.
        total: steps of the whole training. start, step: the steps where this process began and where it is.
        stack: the number of batches in a stack, which is also the most steps in one call.
        checkpoints: the checkpoints in the request's folder; None: the request has no folder.
        warm_start: which weights came from an earlier model (see `warm_start`); None: none did.
        callbacks: in the order in which they act.
    """

    def __init__(
        self,
        request: TrainRequest,
        monitor: Monitor,
        callbacks: Sequence[Callback] = (),
        *,
        stager: Stager | None = None,
        shards: Shards | None = None,
        devices: Callable[[], Placement] = lambda: Placement("cpu"),
    ):
        self.request, self.monitor, self.callbacks = request, monitor, list(callbacks)
        self.threads = prepare()
        self.placement = devices()
        self.data = training_data(request, shards, placement=self.placement, stager=stager)
        for note in self.data.rows.notes:
            monitor.log(note)
        self.total = self.data.total_steps()
        self.stack = self.data.stack(min(STEPS_PER_CALL, self.total))
        self.values = self._step_values()
        self.checkpoints = Checkpoints(request.checkpoints, log=monitor.warn) if request.checkpoints else None
        self.checkpoint = self.checkpoints.newest() if self.checkpoints else None
        """The checkpoint that this process resumes from; None: it begins at step 0."""
        with self.placement.scope():
            self.learner = self._learner()
            self.warm_start = warm_start(self.model, request, request.warm_start) if request.warm_start else None
        if self.warm_start is not None and CHOICE in self.warm_start["kept"]:
            self.values.initial_progress = CHOOSING  # its members have seen the rows that they would leave out
        if self.warm_start is not None and self.checkpoint is None:  # else its weights are to come
            monitor.log(self.warm_start["says"])
        if isinstance(self.learner.train_step.head.task, UserTask) and not self.placement.several:
            self._try_answers()
        self._workers: DistributedLearner | None = None
        if self.placement.several:
            assert isinstance(self.learner, DistributedLearner)
            self._workers = self.learner
            check_same_checkpoint(self._workers, self.checkpoint.step if self.checkpoint else None, request.checkpoints)
        for callback in self.callbacks:
            callback.build(self)
        self.start = self.step = 0
        self._seconds = 0.0
        self._began: float | None = None
        self._outside = numerics()
        self._guard = RetraceGuard(self.learner, action="warn", log=monitor.warn)
        if self.checkpoint:
            self._restore(self.checkpoint)

    def _step_values(self) -> StepValues:
        request, config, task = self.request, self.request.training, label_task(self.request.transform.label)
        own = request.model.user_defined or request.loss is not None or isinstance(task, UserTask)
        check_schedules(config.schedules, task, user=own)
        if config.loss is not None and "label_smoothing" in config.schedules:
            problem = f"the loss {config.loss} does not read label_smoothing"
            raise ConfigError(problem, where="training.schedules.label_smoothing", fix="leave it out")
        if "dropout" in config.schedules and not request.model.dropout:
            problem = "the model drops nothing"
            raise ConfigError(problem, where="training.schedules.dropout", fix="set model.dropout, or leave it out")
        schedules = {"learning_rate": config.learning_rate} | config.schedules
        return StepValues(schedules, self.total, progress=has_members(request.model, request.transform))

    def _learner(self) -> Learner:
        request, config = self.request, self.request.training
        head = label_head(request.transform.label)
        if config.loss is not None:
            head = with_loss(head, name=config.loss, file=request.loss)
        if head.train_step is not None and (config.micro_batches > 1 or self.placement.several):
            problem = "a train_step of a task's own takes whole batches"
            raise ConfigError(problem, where="training", fix="leave out micro_batches, and train in one process")
        step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        self.model = build.build(
            request.model,
            request.transform,
            seed=request.seed,
            step=step,
            module=request.module,
            precision=config.precision,
        )
        kind: Callable[..., Learner] = Learner
        if self.placement.strategy is not None:
            kind = functools.partial(DistributedLearner, placement=self.placement)
        # compiled and plain steps round differently, so a resumed training keeps the mode it began in
        kept: dict[str, Jit] = {"jit": "on", "graph": "off", "eager": "off"}
        gpu, specs = self.placement.on_gpu, self.data.specs(self.stack)
        self.jit = (
            kept[self.checkpoint.state["jit"]]
            if self.checkpoint
            else choose_jit(request, self.model, specs, steps=self.total, gpu=gpu, log=self.monitor.log)
        )
        return kind(
            model=self.model,
            head=head,
            step=step,
            specs=specs,
            config=StepConfig.of(request, self.model, head, rates=self.data.rows.rates, values=self.values.names),
            jit=self.jit,
            log=self.monitor.warn,
        )

    def _try_answers(self) -> None:
        """Trace the losses and predictions of a user's task, so that a mistake in them shows before the training."""
        specs = {n: tf.TensorSpec(spec.shape[1:], spec.dtype) for n, spec in self.data.specs(self.stack).items()}
        tf.function(self.learner.train_step.losses_and_predictions, autograph=False).get_concrete_function(specs)

    # --- what callbacks use

    def evaluate(self) -> float:
        """Returns the mean loss on the holdout, the train rows that are not trained on. `training.early_stopping` or
        the request's `trial` sets its size."""
        with using_numerics(self._outside):  # what relaxes the steps does not hold here
            return self.learner.evaluate(self.data.holdout())

    def record_holdout(self, loss: float) -> None:
        """Record a loss that `evaluate` returned, as `holdout_loss`."""
        self.record(holdout_loss=loss)

    def record(self, **values: float | None) -> None:
        """Pass figures of the current step to every callback: history and TensorBoard summaries keep them."""
        for callback in self.callbacks:
            callback.recorded(self, values)

    @property
    def seconds(self) -> float:
        """The time this training has run, summed over its processes."""
        return self._seconds + (0.0 if self._began is None else time.monotonic() - self._began)

    @property
    def end_reason(self) -> str:
        """Why the training ended: "end" (all steps were run), or "early" (a callback ended it before)."""
        return "early" if self.step < self.total else "end"

    def variables(self) -> Variables:
        """Returns the variables that a checkpoint saves."""
        variables: dict[str, Sequence[tf.Variable]] = dict(self.learner.variables())
        for callback in self.callbacks:
            variables |= callback.variables()
        return variables

    def state(self) -> dict[str, Any]:
        """Returns the JSON state that a checkpoint saves beside its variables."""
        return {
            "jit": self.learner.mode,
            "threads": self.threads,
            "devices": self.placement.facts(),
            "seconds": self.seconds,
            "in_row": int(self.learner.in_row),
        } | {callback.name: callback.state() for callback in self.callbacks if callback.name is not None}

    def _restore(self, checkpoint: Found) -> None:
        """Restore a checkpoint. Warns if other threads or devices may change the last bits of the weights."""
        assert self.checkpoints is not None
        with self.placement.scope():
            self.checkpoints.restore(checkpoint, self.variables())
        self.start = self.step = checkpoint.step
        self._seconds = checkpoint.state["seconds"]
        self.learner.in_row = np.int32(checkpoint.state["in_row"])
        for callback in self.callbacks:
            if callback.name is not None:
                callback.restore(checkpoint.state[callback.name])
        self.monitor.log(f"resumed at step {checkpoint.step:,} of {self.total:,}")
        exact = "the last bits of the weights may differ from those of an uninterrupted training"
        if checkpoint.state["threads"] != self.threads:
            self.monitor.warn(
                f"the checkpoint was taken with {counted(checkpoint.state['threads'], 'thread')}, this process has "
                f"{self.threads}: {exact}"
            )
        now = self.placement.facts()
        if (then := checkpoint.state["devices"]) != now:
            self.monitor.warn(
                f"the checkpoint was taken with {then['strategy']} and {counted(then['replicas'], 'replica')}, "
                f"this process has {now['strategy']} and {now['replicas']}: {exact}"
            )

    # --- running

    def run(self) -> int:
        """Train to the end. Returns the number of steps that were run, with those before a resume.

        Raises:
            Cancelled: the training was stopped on request, after each callback's `stopping` was called.
            DataError: too many steps in a row were not finite.
        """
        self._began, self._outside = time.monotonic(), numerics()
        config = self.request.training
        try:
            with (
                self.placement.device_scope(),
                relaxed_numerics(allow_tf32=config.precision == "tf32", keep_deterministic=config.deterministic),
            ):
                self._train()
        finally:
            self._seconds, self._began = self.seconds, None
            for callback in self.callbacks:
                callback.close()
        with self.placement.scope():
            for callback in self.callbacks:
                callback.finish(self)
        return self.step

    def wait_for_chief(self) -> None:
        """Wait until the chief calls this too: a worker that exits before counts as lost. A single process does not wait."""
        if self._workers:
            self._workers.from_chief(np.zeros(1))

    def _train(self) -> None:
        chief, workers = self.placement.chief, self._workers
        ended = any(callback.over() for callback in self.callbacks)

        def ending(act: Callable[[int], bool | None], step: int) -> bool | None:
            nonlocal ended
            ended |= bool(ends := act(step))
            return ends

        actions = [action for callback in self.callbacks for action in callback.actions(self)] if chief else []
        if not ended:
            if chief:  # seconds, in which no step is done
                if not self.step:
                    self.monitor.progress(0, self.total, "steps")
                if not self.request.training.eager:
                    self.monitor.log(f"{'tracing' if self.jit == 'off' else 'compiling'} the training step")
            self.step = run(
                self.learner,
                self.data.stack_reader(self.stack, self.total),
                start=self.start,
                total=self.total,
                values=self.values,
                every=[PeriodicAction(a.steps, functools.partial(ending, a.act), at_end=a.at_end) for a in actions],
                report=self._after_call,
                cancelled=self.monitor.cancelled,
                agreed=follow_chief(workers) if workers else lambda plan: plan,
            )
        stopped = self.step < self.total and not ended
        if stopped and chief:
            for callback in self.callbacks:
                callback.stopping(self)
        if workers:  # only the chief knows whether it was stopped, or ended early
            stopped = bool(workers.from_chief(np.asarray([stopped], np.float64))[0])
        if stopped:
            raise Cancelled("stopped on request; what was done is kept")

    def _after_call(self, step: int, outcome: Outcome) -> None:
        self.step = step
        for callback in self.callbacks:
            callback.after_call(self, outcome)
        self._guard.check()
        if self.learner.ended:
            raise DataError(
                f"loss or gradients were not finite {LIMIT} steps in a row, up to step {step:,}, whose loss is "
                f"{outcome.losses[-1]:g}",
                where="training",
                fix=f"{self._own_loss()}look for infinite or huge values in the data, lower learning_rate, or set "
                "training.clip_norm; training: {eager: true} names the first op that is not finite",
            )

    def _own_loss(self) -> str:
        """Returns the advice to check the user's own loss first; empty if Headway computes the loss."""
        task, name = self.learner.train_step.head.task, self.request.training.loss or ""
        own = name if ":" in name else task.name if isinstance(task, UserTask) else None
        return f"check {own}, which computes the loss: a logarithm or a root of 0, a division by 0; or " if own else ""
