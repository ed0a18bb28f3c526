"""Callbacks that act between training steps: history, early stopping, TensorBoard summaries, trials, checkpoints.

    recorder = Recorder(total=2000, batch=256, monitor=monitor)      # as a callback of a session: Recorder()
    recorder(32, outcome)
    early_stopping.update(200, 0.51)      # True: the lowest loss so far

Losses are summed step by step in float64, so the history is the same however the steps were cut into calls.
"""

import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.summary_pb2 import SummaryMetadata  # tf.compat.v1 has it too, with 240 modules

from headway.errors import Pruned
from headway.messages import number
from headway.monitor import Monitor
from tfcore.train.checkpoints import Variables
from tfcore.train.config import EarlyStoppingConfig
from tfcore.train.loop import Outcome, PeriodicAction
from tfcore.train.request import LOOKS, Pruning, TrialConfig
from tfcore.train.trainer import Callback, TrainingSession

PROGRESS_SECONDS = 0.25
POINTS = 200
"""The number of points in a history, about."""


class Recorder(Callback):
    """Reports progress after each call of the compiled steps, and keeps the history. The history has loss and scheduled
    numbers at about `POINTS` steps, and what other callbacks record. A session sets the arguments by `build`."""

    name = "recorder"

    def __init__(self, *, total: int = 0, batch: int = 0, monitor: Monitor | None = None):
        self._total, self._batch, self._monitor = total, batch, monitor or Monitor()
        self.history: list[dict[str, Any]] = []
        self.skipped = self.retryable = 0  # of those skipped, the ones for a loss scale that was too large
        self._loss = self._weight = 0.0
        self._last_loss = math.nan
        self._holdout: float | None = None
        self._first_at: float | None = None
        self._first_step = self._last_step = self._shown_step = 0
        self._last_at = self._shown_at = 0.0

    def build(self, session: TrainingSession) -> None:
        self._total, self._batch, self._monitor = session.total, session.request.training.batch_size, session.monitor

    def actions(self, session: TrainingSession) -> Sequence[PeriodicAction]:
        # a multiple of the stack, so that calls stay whole
        steps = session.stack * max(1, math.ceil(session.total / POINTS / session.stack))
        return [
            PeriodicAction(
                steps, lambda step: session.record(loss=self.loss(), **session.values.at(step - 1)), at_end=True
            )
        ]

    def after_call(self, session: TrainingSession, outcome: Outcome) -> None:
        self(session.step, outcome)

    def recorded(self, session: TrainingSession, values: Mapping[str, float | None]) -> None:
        self.point(session.step, **values)

    def __call__(self, step: int, outcome: Outcome) -> None:
        rows = (outcome.losses, outcome.weights, outcome.applied, outcome.retryable)
        for loss, weight, applied, retryable in zip(*(row.tolist() for row in rows), strict=True):
            if applied:
                self._loss += loss * weight
                self._weight += weight
            else:
                self.skipped += 1
                self.retryable += retryable
        finite = outcome.losses[outcome.applied]
        if len(finite):
            self._last_loss = float(np.mean(finite))
        self._show(step)

    def loss(self) -> float | None:
        """Returns the weighted mean training loss since this method was called last; None if all steps since were skipped."""
        loss = self._loss / self._weight if self._weight else None
        self._loss = self._weight = 0.0
        return loss

    def point(self, step: int, **values: float | None) -> None:
        """Append the figures of `step` to the history; figures that are not finite become None."""
        finite = {name: value if value is None or math.isfinite(value) else None for name, value in values.items()}
        self.history.append({"step": step, **finite})
        self._holdout = finite.get("holdout_loss", self._holdout)

    @property
    def steps_per_second(self) -> float | None:
        """Steps per second, without the first call of this process, which also compiles; None if there was no other call."""
        if self._first_at is None or self._last_step <= self._first_step:
            return None
        return round((self._last_step - self._first_step) / max(self._last_at - self._first_at, 1e-9), 1)

    def state(self) -> dict[str, Any]:
        return {
            "history": self.history,
            "skipped": self.skipped,
            "excused": self.retryable,
            "loss": self._loss,
            "weight": self._weight,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.history, self.skipped, self.retryable = list(state["history"]), state["skipped"], state["excused"]
        self._loss, self._weight = state["loss"], state["weight"]

    def _show(self, step: int) -> None:
        now = time.monotonic()
        self._last_at, self._last_step = now, step
        facts: dict[str, Any] = {"loss": round(self._last_loss, 6) if math.isfinite(self._last_loss) else None}
        facts |= {} if self._holdout is None else {"holdout_loss": round(self._holdout, 6)}
        if self._first_at is None:  # the first call traced and compiled: no rate to tell yet
            self._first_at, self._first_step = now, step
        elif now - self._shown_at < PROGRESS_SECONDS and step != self._total:
            return
        else:
            rows = (step - self._shown_step) * self._batch
            facts["rows_per_second"] = round(rows / max(now - self._shown_at, 1e-9))
        self._shown_at, self._shown_step = now, step
        self._monitor.progress(step, self._total, "steps", **facts)


class EarlyStopping(Callback):
    """Evaluates the holdout every `every_steps` steps. Ends the training when the loss has not fallen in `patience`
    evaluations. The model gets the best weights in the end; until then separate variables hold them, in checkpoints too."""

    name = "patience"

    def __init__(self, config: EarlyStoppingConfig):
        self._config = config
        self.best_loss: float | None = None
        self.best_step: int | None = None
        self.without_improvement = 0
        self._best: list[tf.Variable] = []

    def build(self, session: TrainingSession) -> None:
        self._best = [tf.Variable(v.value, trainable=False) for v in session.model.variables]

    def actions(self, session: TrainingSession) -> Sequence[PeriodicAction]:
        if session.data.rows.held_out is None:
            return []
        return [PeriodicAction(self._config.every_steps, lambda step: self._look(session), at_end=True)]

    def _look(self, session: TrainingSession) -> bool:
        """Evaluate the holdout, record the loss, keep the best weights. Returns whether to end the training; logs it."""
        step, loss = session.step, session.evaluate()
        if self.update(step, loss):
            for best, variable in zip(self._best, session.model.variables, strict=True):
                best.assign(variable.value)
        session.record_holdout(loss)
        if self.over():
            session.monitor.log(
                f"stopped at step {step}: the loss on the holdout has not fallen since step {self.best_step}"
            )
        return self.over()

    def update(self, step: int, loss: float) -> bool:
        """Note the loss on the holdout after `step`. Returns whether it is finite and by more than `min_delta` the best."""
        better = math.isfinite(loss) and (self.best_loss is None or loss < self.best_loss - self._config.min_delta)
        if better:
            self.best_loss, self.best_step = loss, step
        self.without_improvement = 0 if better else self.without_improvement + 1
        return better

    def over(self) -> bool:
        return self.without_improvement >= self._config.patience

    def finish(self, session: TrainingSession) -> None:
        if self.best_step is not None:
            for variable, best in zip(session.model.variables, self._best, strict=True):
                variable.assign(best)

    def variables(self) -> Variables:
        return {"best": self._best}

    def state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("best_loss", "best_step", "without_improvement")}

    def restore(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


class Checkpointing(Callback):
    """Saves a training's variables and state as checkpoints. Must be the last callback, to save what the others did."""

    def __init__(self) -> None:
        self._saved: int | None = None

    def actions(self, session: TrainingSession) -> Sequence[PeriodicAction]:
        every = session.request.training.checkpoint_every_steps
        return [PeriodicAction(every, lambda step: self._save(session))]

    def stopping(self, session: TrainingSession) -> None:
        self._save(session)

    def _save(self, session: TrainingSession) -> None:
        """Save a checkpoint of this step, unless it is saved, no step was run, or the request has no folder for it."""
        step = session.step
        if session.checkpoints is None or session.learner.mode is None or self._saved == step:
            return  # nowhere to, nothing ran yet, or it is there
        session.checkpoints.save(step, session.variables(), session.state())
        self._saved = step


SCALARS = SummaryMetadata(plugin_data={"plugin_name": "scalars"})
"""The metadata that tf.summary.scalar writes; that function imports TensorBoard for it, which takes half a second."""


class Summaries(Callback):
    """Writes recorded figures to `folder` as TensorBoard scalars. The first figure creates the event file."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._writer: tf.summary.SummaryWriter | None = None

    def recorded(self, session: TrainingSession, values: Mapping[str, float | None]) -> None:
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(str(self._folder))
        with self._writer.as_default(step=session.step):
            for name, value in values.items():
                if value is not None:
                    tf.summary.write(name, tf.constant(value, tf.float32), metadata=SCALARS)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class Trial(Callback):
    """Evaluates the loss of a study's trial on the holdout, about `LOOKS` times at equal distances, and records it.

    Args:
        stops_early: early stopping evaluates the holdout already, and the trial takes its losses.
        prune: a function of (evaluation number, loss): true deletes the trial's checkpoints and raises Pruned.
    """

    name = "trial"

    def __init__(self, config: TrialConfig, *, stops_early: bool, prune: Callable[[int, float], bool] | None = None):
        self.config, self._stops_early, self._prune = config, stops_early, prune
        self.losses: list[tuple[int, float]] = []
        """Pairs of (look, loss): the number of the evaluation, from 1 to `LOOKS`, and its loss."""

    def actions(self, session: TrainingSession) -> Sequence[PeriodicAction]:
        if self._stops_early:
            return []
        every = max(1, session.total // LOOKS)
        return [PeriodicAction(every, lambda step: session.record_holdout(session.evaluate()), at_end=True)]

    def recorded(self, session: TrainingSession, values: Mapping[str, float | None]) -> None:
        if (loss := values.get("holdout_loss")) is None:
            return
        look = max(1, session.step * LOOKS // session.total)
        again = bool(self.losses) and self.losses[-1][0] == look
        if again:
            self.losses.pop()
        self.losses.append((look, loss))
        if self._prune is None or again or look == LOOKS or not self._prune(look, loss):
            return
        if (folder := session.request.checkpoints) is not None:
            shutil.rmtree(folder, ignore_errors=True)  # nothing goes on from here
        raise Pruned(
            f"ended at step {session.step:,} of {session.total:,}, at a loss of {number(loss)} on the holdout: other trials "
            "were better by then"
        )

    def facts(self) -> dict[str, Any]:
        """Returns the trial's part of the training's result: its loss on the holdout (the last or the best) and all losses."""
        losses = [loss for _, loss in self.losses if math.isfinite(loss)]
        last = losses[-1] if losses and math.isfinite(self.losses[-1][1]) else None
        best = min(losses, default=None)
        return {"holdout_loss": best if self._stops_early else last, "holdout_losses": [list(at) for at in self.losses]}

    def state(self) -> dict[str, Any]:
        return {"losses": self.losses}

    def restore(self, state: dict[str, Any]) -> None:
        self.losses = [(look, loss) for look, loss in state["losses"]]


def optuna_prune(pruning: Pruning) -> Callable[[int, float], bool]:
    """Returns a function of (evaluation number, loss): it tells the trial's Optuna study, whose pruner may end the trial."""
    import optuna  # an extra, which only a study needs

    from tfcore.train.request import storage_of

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruners = {
        "median": optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=LOOKS // 4),
        "hyperband": optuna.pruners.HyperbandPruner(min_resource=2, max_resource=LOOKS),
    }
    study = optuna.load_study(
        study_name=pruning.study, storage=storage_of(pruning.journal), pruner=pruners[pruning.pruner]
    )
    running = next(trial for trial in study.get_trials(deepcopy=False) if trial.number == pruning.trial)
    trial = optuna.trial.Trial(study, running._trial_id)  # there is no public way to go on with another process's trial

    def prune(look: int, loss: float) -> bool:
        if math.isfinite(loss):
            trial.report(loss, look)
        return trial.should_prune()

    return prune
