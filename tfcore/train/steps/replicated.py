"""The learner over several replicas: one batch, its rows split, one step for all.

    with placement.scope():
        learner = DistributedLearner(placement=placement, model=..., ...)         # else as tfcore.train.steps.learner.Learner
    outcome = learner.run(stack, first=0, steps=32, values=values)

Each replica takes the gradient of its rows' share of the batch's loss: the sum of weighted losses over the weight of the
*whole* batch, so that the shares add up to what one device computes. One all-reduce a step carries gradients and loss; from
then on every replica has the same numbers, and decides alike: clip, apply, or skip. The loop is outside of
`strategy.run`, since TensorFlow allows neither a loop nor a condition around the optimizer inside; only the gradients are
compiled with XLA, for the same reason. Micro-batches are those of a replica's rows, added up before the all-reduce; a loss
scale is decided on after it, so that all replicas skip and scale together.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import ConfigError, StoreError
from tfcore.distribute.placement import Placement
from tfcore.distribute.worker_slice import PLACE
from tfcore.graph.function import refusal
from tfcore.graph.scheduled import now, stepping
from tfcore.train.steps.learner import Learner, Outcome, Stack
from tfcore.train.steps.loop import StepPlan
from tfcore.train.steps.micro_batches import accumulated
from tfcore.train.steps.train_step import StepResult

_REFUSALS = (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError, tf.errors.InternalError)
SUM = tf.distribute.ReduceOp.SUM


class DistributedLearner(Learner):
    """A learner over several replicas; see the module. A stack holds whole batches, which the replicas of this process
    split; that of one worker among several holds its rows of each, their places in the batch as "place", and any number
    of rows of weight 0."""

    def __init__(self, *, placement: Placement, **keywords: Any):
        assert placement.strategy is not None
        self._placement: Placement = placement
        self._strategy: tf.distribute.Strategy = placement.strategy
        self._specs: Mapping[str, tf.TensorSpec] = keywords["specs"]
        jit, log = keywords.pop("jit", "auto"), keywords.get("log") or (lambda line: None)
        super().__init__(**keywords, jit="off")
        if self.train_step.config.micro_batches and self.train_step.keep():
            raise ConfigError(
                "the model has float variables that are not trained, a layer's moving averages perhaps, which replicas "
                "cannot share within a step",
                where="training.micro_batches",
                fix="leave it out, or train on one device",
            )
        if hasattr(self.optimizer, "_all_reduce_sum_gradients"):
            # they are summed already, and a second sum costs as much as the first
            self.optimizer._all_reduce_sum_gradients = list
            self._again = 1.0
        else:
            self._again = 1.0 / placement.replicas
        self._jit, self._log = jit, log
        self._compiled: Callable[..., Any] | None = None
        self._summed = tf.function(self._sum, input_signature=[tf.TensorSpec([None], tf.float64)], autograph=False)
        self._mode: str | None = None

    @property
    def mode(self) -> str | None:
        return self._mode

    def run(self, stack: Stack, **keywords: Any) -> Outcome:
        with self._placement.scope():
            if self._mode is None:
                self._choose_mode(stack)
            return super().run(stack, **keywords)

    def _rows(self, stack: Stack) -> int:
        rows = int(stack["weight"].shape[1])
        return rows if self._placement.several else rows // self._placement.replicas

    def evaluate(self, batches: Iterable[Mapping[str, tf.Tensor]]) -> float:
        """Evaluate in this process alone, on its first device."""
        with self._placement.scope():
            return super().evaluate(batches)

    def from_chief(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The chief's `values` on every worker; float64 of one length."""
        addends = values if self._placement.chief else np.zeros_like(values)
        with self._placement.scope():
            return np.asarray(self._summed(tf.constant(addends, tf.float64)))

    def _sum(self, values: tf.Tensor) -> tf.Tensor:
        def of_replica(values: tf.Tensor) -> tf.Tensor:
            # a sum goes where its terms lie, and an argument lies nowhere yet
            return tf.distribute.get_replica_context().all_reduce(SUM, tf.identity(values))

        return self._first(self._strategy.run(of_replica, args=(values,)))

    def _first(self, value: Any) -> Any:
        """Return one replica's value of a result that is the same on all replicas."""
        return self._strategy.experimental_local_results(value)[0]

    def _choose_mode(self, stack: Stack) -> None:
        """Compile the gradients if XLA takes them. The trial changes nothing and runs no collective, since one that is
        interrupted in the middle of a step is lost for the process."""
        self._mode = "graph"
        if self._jit == "off":
            return
        refused = None
        if self.train_step.keep():
            refused = "a layer keeps moving averages, which the replicas share"
        else:
            compiled = tf.function(self._part_of_rows, jit_compile=True, autograph=False)
            # as the steps will have it, where rows are not known beforehand: what is compiled here is then theirs
            signature: list[Any] = [{key: tf.TensorSpec(s.shape[1:], s.dtype) for key, s in self._specs.items()}]
            signature += [tf.TensorSpec([], tf.int32)] if self.train_step.config.micro_batches else []

            @tf.function(autograph=False, input_signature=signature)
            def once(some: Stack, count: tf.Tensor | None = None) -> None:
                def of_replica() -> Any:
                    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
                    values = {name: tf.constant(0.5) for name in self.values}
                    return compiled(*self._share(some, replica), values, tf.constant(1.0), count)

                self._strategy.run(of_replica)

            zeros = {key: tf.zeros_like(tf.convert_to_tensor(stack[key])[0]) for key in self._specs}
            try:
                once(zeros, *([tf.constant(1)] if self.train_step.config.micro_batches else []))
            except _REFUSALS as error:
                refused = refusal(error)
        if refused is None:
            self._mode, self._compiled = "jit", compiled
        elif self._jit == "on":
            raise ConfigError(
                f"XLA cannot compile the gradients: {refused}", where="training.jit", fix="set it to auto or off"
            )
        else:
            self._log(f"XLA cannot compile the gradients, so they run uncompiled: {refused}")

    def _train_step(self, batch: Stack, micro_batches: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor, StepResult]:
        weight = tf.reduce_sum(self.train_step.row_weights(batch))
        if self._placement.several:
            weight = self._sum(weight)
        run = self._strategy.run
        kept = run(self.train_step.keep)
        loss, objective, finite, gradients = run(self._replica_part, args=(batch, dict(now()), weight, micro_batches))
        self.train_step.set_rate()

        def apply() -> tf.Tensor:
            run(self.train_step.apply, args=(gradients,))
            return tf.constant(True)

        def skip() -> tf.Tensor:
            run(self.train_step.skip, args=(kept,))
            return tf.constant(False)

        # a condition on what all replicas have alike, and outside of strategy.run
        applied = tf.cond(self._first(finite), apply, skip)
        self.train_step.counter.assign_add(1)
        retryable = self.train_step.retryable(applied, self._first(objective))
        return self._first(loss), weight, StepResult(applied, retryable)

    def _replica_part(
        self, batch: Stack, values: dict[str, tf.Tensor], total: tf.Tensor, micro_batches: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, list[tf.Tensor]]:
        """Return a batch's (loss, objective, whether it and its gradients are finite, those gradients), the same on
        every replica. Runs in a replica."""
        context = tf.distribute.get_replica_context()
        rows, places = self._share(batch, context.replica_id_in_sync_group)
        parts = (self._compiled or self._part_of_rows)(rows, places, values, total, micro_batches)
        *gradients, loss, objective = context.all_reduce(SUM, parts)
        norm = tf.linalg.global_norm(gradients)
        finite = tf.math.is_finite(norm) & tf.math.is_finite(objective)
        clipped = self.train_step.clipped(gradients, norm)
        return loss, objective, finite, [gradient * self._again for gradient in clipped]

    def _part_of_rows(
        self,
        rows: Stack,
        places: tf.Tensor,
        values: dict[str, tf.Tensor],
        total: tf.Tensor,
        micro_batches: tf.Tensor | None,
    ) -> list[tf.Tensor]:
        """Return gradients, loss and objective of a replica's rows, as parts of the whole batch's."""
        share = 1.0 / self._placement.replicas
        with stepping(values) as read:  # a replica runs in a thread of its own
            if micro_batches is None:
                part = self.train_step.part(rows, total=total, share=share, first_row=places)
            else:
                part = accumulated(self.train_step, rows, micro_batches, total=total, share=share, places=places)
        self._read |= read
        return [*part.gradients, part.loss, part.objective]

    def _share(self, batch: Stack, replica: Any) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Return (a replica's rows of a batch, their places in it)."""
        if PLACE in batch:
            return {key: value for key, value in batch.items() if key != PLACE}, batch[PLACE]
        share = self.batch // self._placement.replicas
        first = replica * share
        with tf.device("/CPU:0"):  # so that only a replica's rows go to its device
            return {key: value[first : first + share] for key, value in batch.items()}, first + tf.range(share)


def agreement(learner: DistributedLearner) -> Callable[[StepPlan], StepPlan]:
    """Return the function that gives all workers the chief's plan, for `tfcore.train.steps.loop.run`. A collective's
    name includes its place in the loop, so that all workers must make the same steps in the same calls."""

    def agreed(turn: StepPlan) -> StepPlan:
        stop, steps = learner.from_chief(np.asarray([float(turn.stop), float(turn.steps)])).tolist()
        return StepPlan(bool(stop), int(steps))

    return agreed


def same_start(learner: DistributedLearner, step: int | None, checkpoints: Path | None) -> None:
    """Raise StoreError unless all workers found the chief's checkpoint; `step` None means none was found."""
    own_step = -1 if step is None else step
    chief_step = int(learner.from_chief(np.asarray([own_step], np.float64))[0])
    if own_step != chief_step:
        here, there = ("no checkpoint" if n < 0 else f"the checkpoint of step {n}" for n in (own_step, chief_step))
        raise StoreError(
            f"this worker found {here} and the chief {there}",
            where=str(checkpoints),
            fix="give all workers one folder for checkpoints, on a disk that they share",
        )
