"""What learns: a model, its optimizer, and the one compiled program that runs up to K steps on a stack of batches.

    learner = Learner(model=model, task="binary", config=TrainingConfig(), step=step, specs=specs)
    outcome = learner.run(stack, first=0, steps=32, rates=rates)      # outcome.losses: float32 [32]

A stack holds K batches: "numeric" [K, B, n], "categorical" [K, B, m], "label" [K, B], "weight" [K, B]. Batches `first`
to `first + steps - 1` are trained on, so a call can begin and end anywhere in a stack without another trace or
compilation. The loss of a batch is the weighted mean of its rows' losses. A step whose loss or gradients are not finite
changes nothing but the step count: neither weights, optimizer, nor a moving average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.tasks import Task
from tfcore.graph_function import GraphFunction, Jit
from tfcore.train.config import OptimizerConfig

Stack = Mapping[str, Any]

_OPTIMIZERS = {
    "adam": keras.optimizers.Adam,
    "adamw": keras.optimizers.AdamW,
    "nadam": keras.optimizers.Nadam,
    "adamax": keras.optimizers.Adamax,
    "lion": keras.optimizers.Lion,
    "sgd": keras.optimizers.SGD,
    "rmsprop": keras.optimizers.RMSprop,
    "adagrad": keras.optimizers.Adagrad,
    "ftrl": keras.optimizers.Ftrl,
}


@dataclass(frozen=True)
class Outcome:
    """The steps of one call, in order."""

    losses: NDArray[np.float32]
    """[steps]; not finite where a step was skipped for its loss."""
    weights: NDArray[np.float32]
    """[steps]: the summed row weights of each batch."""
    applied: NDArray[np.bool_]
    """[steps]: false where the step was skipped."""


class Learner:
    """See the module.

    Args:
        model: takes {"numeric", "categorical"}, gives [B, outputs].
        task: decides the loss: sigmoid or softmax cross-entropy, or squared error.
        step: int64 variable, counted up by one each step; dropout masks are drawn from it.
        specs: of a stack, all dimensions known.
        optimizer: which, and its settings.
        clip_norm: largest global norm of the gradients.
        label_std: for regression; gradients are those of the error in standard deviations, so that learning rate and
            clipping mean the same whatever the label's unit. The reported loss stays in the label's unit squared.
        offsets: added to the outputs while training and at no other time; see `tfcore.train.sampling`.
    """

    def __init__(
        self,
        *,
        model: keras.Model,
        task: Task,
        step: tf.Variable,
        specs: Mapping[str, tf.TensorSpec],
        optimizer: OptimizerConfig,
        clip_norm: float | None = None,
        label_std: float = 1.0,
        offsets: Sequence[float] | None = None,
        jit: Jit = "auto",
        log: Callable[[str], None] | None = None,
    ):
        self.model, self.task, self.step = model, task, step
        self.optimizer = make_optimizer(optimizer)
        # before the first trace: its variables must exist, and a checkpoint must find them
        self.optimizer.build(model.trainable_variables)
        self._offsets = None if offsets is None else np.asarray(offsets, np.float32)
        self._clip, self._variance = clip_norm, float(label_std) ** 2
        self.stack, self.batch = (int(size) for size in specs["weight"].shape)
        # what a layer moves on its own in a training step (batch normalisation), to be put back when it is skipped
        self._moving = [v.value for v in model.non_trainable_variables if v.value.dtype.is_floating]
        scalar = tf.TensorSpec([], tf.int32)
        rates = tf.TensorSpec([self.stack], tf.float32)
        self._run = GraphFunction(
            self._train_steps,
            {"stack": dict(specs), "first": scalar, "steps": scalar, "rates": rates},
            jit=jit,
            log=log,
        )
        self._evaluate: GraphFunction | None = None

    @property
    def traces(self) -> int:
        return self._run.traces

    @property
    def mode(self) -> str | None:
        """ "jit" or "graph"; None before the first call."""
        return self._run.mode

    def variables(self) -> dict[str, list[tf.Variable]]:
        """Everything a step reads and writes, for a checkpoint. `model.variables` includes the seeds of random layers,
        which a checkpoint of the Keras object leaves out."""
        return {
            "model": [variable.value for variable in self.model.variables],
            "optimizer": [variable.value for variable in self.optimizer.variables],
            "step": [self.step],
        }

    def run(self, stack: Stack, *, first: int, steps: int, rates: NDArray[np.float32]) -> Outcome:
        """Train on batches first .. first + steps - 1 of `stack`; rates[i] is the learning rate for batch i. [K]"""
        losses, weights, applied = self._run(stack=stack, first=np.int32(first), steps=np.int32(steps), rates=rates)
        part = slice(first, first + steps)
        return Outcome(losses.numpy()[part], weights.numpy()[part], applied.numpy()[part])

    def evaluate(self, batches: Iterable[Mapping[str, tf.Tensor]]) -> float:
        """The weighted mean loss over `batches` ("numeric" [B, n], "label" [B], ...): as trained on, without dropout.

        All batches have one shape; rows that only pad the last have weight zero. NaN when there is no weight at all.
        """
        loss = weight = 0.0
        for batch in batches:
            if self._evaluate is None:
                specs = {key: tf.TensorSpec(value.shape, value.dtype) for key, value in batch.items()}
                self._evaluate = GraphFunction(self._loss_of_batch, {"batch": specs})
            batch_loss, batch_weight = self._evaluate(batch=batch)
            loss += float(batch_loss)
            weight += float(batch_weight)
        return loss / weight if weight else float("nan")

    def _train_steps(self, stack: Stack, first: tf.Tensor, steps: tf.Tensor, rates: tf.Tensor) -> Any:
        positions = tf.range(self.stack)

        def body(i: tf.Tensor, losses: tf.Tensor, weights: tf.Tensor, applied: tf.Tensor) -> Any:
            loss, weight, ok = self._train_step({key: value[i] for key, value in stack.items()}, rates[i])
            here = positions == i
            return (
                i + 1,
                tf.where(here, loss, losses),
                tf.where(here, weight, weights),
                tf.where(here, ok, applied),
            )

        zeros = tf.zeros([self.stack], tf.float32)
        last = first + steps
        start = (first, zeros, zeros, tf.zeros([self.stack], tf.bool))
        # one step after another: each reads the weights the last one wrote
        return tf.while_loop(lambda i, *_: i < last, body, start, parallel_iterations=1)[1:]

    def _train_step(self, batch: Stack, rate: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        before = [tf.identity(variable) for variable in self._moving]
        trained = [variable.value for variable in self.model.trainable_variables]
        with tf.GradientTape() as tape:
            losses, weights = self._row_losses(batch, training=True)
            weight = tf.reduce_sum(weights)
            loss = tf.math.divide_no_nan(tf.reduce_sum(losses * weights), weight)
            objective = tf.add_n([loss / self._variance, *self.model.losses])
        gradients = [
            # dense also for embeddings: the optimizer's moments are dense anyway
            tf.zeros_like(variable) if gradient is None else tf.convert_to_tensor(gradient)
            for gradient, variable in zip(tape.gradient(objective, trained), trained, strict=True)
        ]
        norm = tf.linalg.global_norm(gradients)
        ok = tf.math.is_finite(norm) & tf.math.is_finite(objective)
        if self._clip:
            scale = self._clip / tf.maximum(norm, self._clip)
            gradients = [gradient * scale for gradient in gradients]
        self.optimizer.learning_rate = rate

        def apply() -> tf.Tensor:
            self.optimizer.apply(gradients, self.model.trainable_variables)
            return tf.constant(True)

        def skip() -> tf.Tensor:
            for variable, value in zip(self._moving, before, strict=True):
                variable.assign(value)
            return tf.constant(False)

        applied = tf.cond(ok, apply, skip)
        self.step.assign_add(1)
        return loss, weight, applied

    def _loss_of_batch(self, batch: Stack) -> tuple[tf.Tensor, tf.Tensor]:
        losses, weights = self._row_losses(batch, training=False)
        # a padded row may hold anything; nothing times zero weight is still not a number
        return tf.reduce_sum(tf.where(weights > 0, losses * weights, 0.0)), tf.reduce_sum(weights)

    def _row_losses(self, batch: Stack, *, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """(loss, weight) of each row, both float32 [B]."""
        inputs = {name: value for name, value in batch.items() if name not in ("label", "weight")}
        output = tf.cast(self.model(inputs, training=training), tf.float32)
        if training and self._offsets is not None:
            output += self._offsets
        label, weights = batch["label"], tf.cast(batch["weight"], tf.float32)
        return row_losses(self.task, label, output), weights


def row_losses(task: Task, label: tf.Tensor, output: tf.Tensor) -> tf.Tensor:
    """The loss of each row from the model's output [rows, outputs]: natural log loss, or the squared error. [rows]"""
    if task == "binary":
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.cast(label, tf.float32), logits=output[:, 0])
    if task == "multiclass" and label.shape.rank == 2:  # a probability for each class, as mixup gives
        return tf.nn.softmax_cross_entropy_with_logits(labels=label, logits=output)
    if task == "multiclass":
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.cast(label, tf.int32), logits=output)
    return tf.square(output[:, 0] - tf.cast(label, tf.float32))


def make_optimizer(config: OptimizerConfig) -> keras.optimizers.Optimizer:
    """The Keras optimizer of `config`. Its learning rate is a variable that every step sets anew."""
    return _OPTIMIZERS[config.name](learning_rate=0.0, **config.settings())
