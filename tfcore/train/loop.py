"""The training loop: each call of a compiled program runs up to K steps on a stack of K batches; actions run between calls.

    learner = Learner(model=model, head="binary", step=step, specs=specs, config=StepConfig(optimizer=adam))
    outcome = learner.run(stack, first=0, steps=32, values={"learning_rate": rates})    # outcome.losses: float32 [32]
    run(learner, batches, start=0, total=2000, values=StepValues(schedules, 2000), every=[PeriodicAction(1000, save)])

A stack holds K batches: "numeric" [K, B, n], "categorical" [K, B, m], "label" [K, B], "weight" [K, B]. With ranking it also
holds "group" [K, B]. A call trains on the batches `first` to `first + steps - 1`, and may begin and end anywhere in a stack
without another trace or compilation. The loss of a batch is the weighted mean of its rows' losses. A step whose loss or
gradients are not finite is skipped: it changes only the step count. After `StepConfig.limit` such steps in a row the program
ends early; the outcome holds the steps that it ran. Scheduled numbers are arguments, one value a step. The model and the loss
read them by `tfcore.graph.scheduled`. Micro-batches and a loss scale are in the program only if they are configured.

`batches(step)` yields stacks, the first of which begins with the batch of `step`. So the rows of a step depend neither on
how the steps are cut into calls, nor on where a training was resumed. Stacks begin at multiples of their size after a resume,
too, so that calls are cut as they would have been.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import ConfigError
from tfcore.graph.function import GraphFunction, Jit
from tfcore.graph.scheduled import stepping
from tfcore.graph.shared_state import SharedState
from tfcore.heads.head import Head
from tfcore.train.eager import checked_numerics
from tfcore.train.step import Part, StepConfig, StepResult, TrainStep, accumulate, make_optimizer

Stack = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """The results of the steps of one call, in their order."""

    losses: NDArray[np.float32]
    """[steps]; not finite where a step was skipped for its loss."""
    weights: NDArray[np.float32]
    """[steps]: the summed row weights of each batch."""
    applied: NDArray[np.bool_]
    """[steps]: false where the step was skipped."""
    retryable: NDArray[np.bool_]
    """[steps]: true where the step was skipped because the loss scale was too large; it has been lowered."""


class Learner:
    """A model, its optimizer and its compiled steps; see the module.

    Args:
        model: takes {"numeric", "categorical"}, gives [B, outputs].
        head: computes the loss; the name of a task stands for the task's head.
        step: int64 variable, counted up by one each step; dropout masks are drawn from it.
        specs: the TensorSpecs of a stack by name, with all dimensions known.

    Attributes:
        in_row: the number of steps in a row, up to the last one, that were not finite. Calls and checkpoints carry it
            on, so that the end of a training does not depend on how its steps were cut into calls.
    """

    def __init__(
        self,
        *,
        model: keras.Model,
        head: Head | str,
        step: tf.Variable,
        specs: Mapping[str, tf.TensorSpec],
        config: StepConfig = StepConfig(),
        jit: Jit = "auto",
        log: Callable[[str], None] | None = None,
    ):
        self.model, self.step, self.config = model, step, config
        self.optimizer = make_optimizer(config.optimizer)
        # before the first trace: its variables must exist, and a checkpoint must find them
        self.optimizer.build(model.trainable_variables)
        self.train_step = TrainStep(
            model=model,
            head=head,
            optimizer=self.optimizer,
            counter=step,
            config=config,
            log=log,
        )
        """The step whose pieces the compiled program is made of."""
        self.stack, self.batch = specs["weight"].shape
        scalar = tf.TensorSpec([], tf.int32)
        self._read: set[str] = set()
        self.in_row = np.int32(0)
        self._run = GraphFunction(
            self._train_steps,
            {
                "stack": dict(specs),
                "first": scalar,
                "steps": scalar,
                "values": {name: tf.TensorSpec([self.stack], tf.float32) for name in config.values},
                "in_row": scalar,
            },
            jit=jit,
            log=log,
        )
        self._evaluate: GraphFunction | None = None
        self.state = SharedState()
        """What training, evaluation and a checkpoint share. A model's variables include the seeds of random layers, which
        a checkpoint of the Keras object leaves out."""
        self.state.hold("model", model)
        self.state.hold("optimizer", self.optimizer)
        self.state.hold("step", step)
        if config.scale is not None:
            self.state.hold("loss_scale", config.scale)

    @property
    def ended(self) -> bool:
        """Whether the training is over because too many steps in a row were not finite."""
        return int(self.in_row) >= self.config.limit

    @property
    def traces(self) -> int:
        """The number of traces of the steps, or of the evaluation if that was traced more often."""
        return max(function.traces for function in self._functions)

    @property
    def compiled(self) -> list[Any]:
        """The compiled functions of steps and evaluation, which a `RetraceGuard` watches."""
        return [compiled for function in self._functions for compiled in function.compiled]

    @property
    def _functions(self) -> list[GraphFunction]:
        return [self._run, *([self._evaluate] if self._evaluate else [])]

    @property
    def mode(self) -> str | None:
        """The mode of the compiled steps, "jit" or "graph"; None before the first call."""
        return self._run.mode

    def variables(self) -> dict[str, list[tf.Variable]]:
        """Returns all variables that a step reads or writes, in lists by name, for a checkpoint; see `state`."""
        return self.state.groups()

    def run(self, stack: Stack, *, first: int, steps: int, values: Mapping[str, NDArray[np.float32]]) -> Outcome:
        """Train on batches first .. first + steps - 1 of `stack`. Ends before if too many steps in a row are not finite.

        Args:
            values: the scheduled numbers by name, float32 [K] each: one number for each batch of the stack.
        """
        numbers = {name: tf.constant(of_steps) for name, of_steps in values.items()}
        facts, ran, in_row = self._run(
            stack=stack, first=np.int32(first), steps=np.int32(steps), values=numbers, in_row=self.in_row
        )
        self.in_row = in_row.numpy()
        part = slice(first, int(ran))
        found = {name: value.numpy()[part] for name, value in facts.items()}
        return Outcome(**{"retryable": np.zeros_like(found["applied"]), **found})

    def evaluate(self, batches: Iterable[Mapping[str, tf.Tensor]]) -> float:
        """Returns the mean loss over `batches` ("numeric" [B, n], "label" [B], ...), weighted as in training, without
        dropout.

        All batches have one shape; rows that only fill up the last batch have weight 0. NaN if all weights are 0."""
        loss = weight = 0.0
        for batch in batches:
            if self._evaluate is None:
                specs = {key: tf.TensorSpec(value.shape, value.dtype) for key, value in batch.items()}
                self._evaluate = GraphFunction(self._loss_of_batch, {"batch": specs})
            batch_loss, batch_weight = self._evaluate(batch=batch)
            loss += float(batch_loss)
            weight += float(batch_weight)
        return loss / weight if weight else math.nan

    def _train_steps(
        self,
        stack: Stack,
        first: tf.Tensor,
        steps: tf.Tensor,
        values: Mapping[str, tf.Tensor],
        in_row: tf.Tensor,
    ) -> Any:
        positions = tf.range(self.stack)
        last = first + steps

        def should_continue(i: tf.Tensor, so_far: Any, in_row: tf.Tensor) -> tf.Tensor:
            return (i < last) & (in_row < self.config.limit)

        def body(i: tf.Tensor, so_far: Mapping[str, tf.Tensor], in_row: tf.Tensor) -> Any:
            batch = {key: value[i] for key, value in stack.items()}
            with stepping({name: value[i] for name, value in values.items()}) as read:
                loss, weight, done = self._train_step(batch)
            self._read |= read
            facts = {"losses": loss, "weights": weight, "applied": done.applied, "retryable": done.retryable}
            here = positions == i
            missed = 1 if done.retryable is None else tf.cast(~done.retryable, tf.int32)
            return (
                i + 1,
                {name: tf.where(here, facts[name], before) for name, before in so_far.items()},
                tf.where(done.applied, 0, in_row + missed),
            )

        zeros, never = tf.zeros([self.stack], tf.float32), tf.zeros([self.stack], tf.bool)
        facts = {"losses": zeros, "weights": zeros, "applied": never}
        if self.train_step.scale is not None:
            facts["retryable"] = never
        # one step after another: each reads the weights the last one wrote
        ran, facts, in_row = tf.while_loop(should_continue, body, (first, facts, in_row), parallel_iterations=1)
        if unread := [name for name in self.config.values if name not in self._read]:
            raise ConfigError(
                f"nothing in the step reads {unread[0]!r}",
                where=f"training.schedules.{unread[0]}",
                fix="read it by tfcore.graph.scheduled.scheduled in a layer's call or in the loss, or leave it out",
            )
        return facts, ran, in_row

    def _train_step(self, batch: Stack) -> tuple[tf.Tensor, tf.Tensor, StepResult]:
        kept = self.train_step.copy_moving_averages()
        weight = tf.reduce_sum(self.train_step.row_weights(batch))
        part = self._part(batch, total=weight)
        # a loss scale is found by gradients that overflow
        if tf.config.functions_run_eagerly() and self.train_step.scale is None and not self.train_step.finite(part):
            with checked_numerics(self.step):
                self.train_step.part(batch, total=weight)
        return part.loss, weight, self.train_step.apply_if_finite(part, kept)

    def _part(self, batch: Stack, **share: Any) -> Part:
        """Returns the loss and gradients of a batch, at once or by micro-batches. `share` goes to `TrainStep.part`."""
        if self.config.micro_batches == 1:
            return self.train_step.part(batch, **share)
        return accumulate(self.train_step, batch, **share)

    def _loss_of_batch(self, batch: Stack) -> tuple[tf.Tensor, tf.Tensor]:
        losses, weights = self.train_step.plain_losses(batch)
        # a padded row may hold anything; nothing times zero weight is still not a number
        return tf.reduce_sum(tf.where(weights > 0, losses * weights, 0.0)), tf.reduce_sum(weights)


FIRST_STEPS = 8
CALL_SECONDS = 0.5
"""How long a call may take, so that a request to stop is noticed soon; no result depends on it."""


@dataclass(frozen=True)
class StepPlan:
    """What the loop does next: stop, or run `steps` steps in one call. All workers must do the same."""

    stop: bool
    steps: int


@dataclass(frozen=True)
class PeriodicAction:
    """An action of the loop: `act(step)` is called after every `steps` steps. If it returns true the training ends."""

    steps: int
    act: Callable[[int], bool | None]
    at_end: bool = False
    """Whether it is called after the last step too."""

    def due(self, step: int, total: int) -> bool:
        return step % self.steps == 0 or (self.at_end and step == total)


def run(
    learner: Learner,
    batches: Callable[[int], Iterator[Stack]],
    *,
    start: int,
    total: int,
    values: Callable[[int, int], Mapping[str, NDArray[np.float32]]],
    every: Sequence[PeriodicAction] = (),
    report: Callable[[int, Outcome], None] = lambda step, outcome: None,
    cancelled: Callable[[], bool] = lambda: False,
    agreed: Callable[[StepPlan], StepPlan] = lambda turn: turn,
) -> int:
    """Train from step `start` up to `total`. Returns the step at which the training ended.

    That step is below `total` if the training was cancelled, an action ended it, or `Learner.ended` became true.

    Args:
        batches: a function from a step to an iterator of stacks, the first of which begins with that step's batch.
        values: a function from (first step, count) to the scheduled numbers of these steps, float32 [count] by name.
        every: the actions, in order; all that are due at a step are called before the training may end.
        report: called after each call of the compiled steps, with the step reached and the results.
        cancelled: asked between calls whether to stop.
        agreed: a function from this worker's plan to the plan that all workers follow.
    """
    if start >= total:
        return start
    step, used = start, start % learner.stack
    pace = FIRST_STEPS
    timed = False
    stacks = batches(start - used)
    stack: Stack | None = None
    ended = False
    while step < total and not learner.ended:
        if used == learner.stack:
            stack, used = None, 0
        boundary = min([total, *(each.steps * (step // each.steps + 1) for each in every)])
        steps = min(learner.stack - used, boundary - step, pace)
        turn = agreed(StepPlan(ended or cancelled(), steps))
        if turn.stop:
            break
        if stack is None:
            stack = next(stacks)
        began = time.perf_counter()
        now = values(step - used, learner.stack)
        outcome = learner.run(stack, first=used, steps=turn.steps, values=now)
        steps = len(outcome.losses)
        if timed:  # the first call also compiles
            pace = max(1, int(CALL_SECONDS * steps / max(time.perf_counter() - began, 1e-9)))
        timed = True
        step, used = step + steps, used + steps
        report(step, outcome)
        ends = [each.act(step) for each in every if each.due(step, total)]
        ended = any(ends)
    return step
