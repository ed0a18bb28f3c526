"""What learns: a model, its optimizer, and the one compiled program that runs up to K steps on a stack of batches.

    learner = Learner(model=model, task="binary", config=TrainingConfig(), step=step, specs=specs)
    outcome = learner.run(stack, first=0, steps=32, knobs={"learning_rate": rates})    # outcome.losses: float32 [32]

A stack holds K batches: "numeric" [K, B, n], "categorical" [K, B, m], "label" [K, B], "weight" [K, B], and
"group" [K, B] where the order within groups is learnt too. Batches `first`
to `first + steps - 1` are trained on, so a call can begin and end anywhere in a stack without another trace or
compilation. The loss of a batch is the weighted mean of its rows' losses. A step whose loss or gradients are not finite
changes nothing but the step count: neither weights, optimizer, nor a moving average. Every knob is an argument, one value
a step: a knob that the learner was not given is not in the program at all.
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
from tfcore.knobs import KnobVariables
from tfcore.ranking.groups import GROUP, NO_GROUP, group_splits
from tfcore.ranking.loss import pairwise_loss
from tfcore.shared_state import SharedState
from tfcore.train.config import OptimizerConfig
from tfcore.train.ranking import RankingConfig

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
        knobs: the variables of the knobs; "learning_rate" is always one of them. Those of `tfcore.train.knobs.MEANINGS`
            are read here, others by the model.
        label_std: for regression; gradients are those of the error in standard deviations, so that learning rate and
            clipping mean the same whatever the label's unit. The reported loss stays in the label's unit squared.
        ranking: has the order within "group" of a batch count too; rows of a group follow each other, see
            `tfcore.ranking.groups`. The reported loss stays the rows'.
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
        knobs: KnobVariables | None = None,
        label_std: float = 1.0,
        offsets: Sequence[float] | None = None,
        ranking: RankingConfig | None = None,
        jit: Jit = "auto",
        log: Callable[[str], None] | None = None,
    ):
        self.model, self.task, self.step = model, task, step
        self.optimizer = make_optimizer(optimizer)
        # before the first trace: its variables must exist, and a checkpoint must find them
        self.optimizer.build(model.trainable_variables)
        self.knobs = knobs or KnobVariables(["learning_rate"])
        self._offsets = None if offsets is None else np.asarray(offsets, np.float32)
        self._std, self._variance = float(label_std), float(label_std) ** 2
        self._ranking = ranking
        self.stack, self.batch = (int(size) for size in specs["weight"].shape)
        # what a layer moves on its own in a training step (batch normalisation), to be put back when it is skipped
        self._moving = [v.value for v in model.non_trainable_variables if v.value.dtype.is_floating]
        scalar = tf.TensorSpec([], tf.int32)
        values = {name: tf.TensorSpec([self.stack], tf.float32) for name in self.knobs.variables_by_name}
        self._run = GraphFunction(
            self._train_steps,
            {"stack": dict(specs), "first": scalar, "steps": scalar, "knobs": values},
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

    @property
    def traces(self) -> int:
        return self._run.traces

    @property
    def mode(self) -> str | None:
        """ "jit" or "graph"; None before the first call."""
        return self._run.mode

    def variables(self) -> dict[str, list[tf.Variable]]:
        """Everything a step reads and writes, for a checkpoint; see `state`."""
        return self.state.groups()

    def run(self, stack: Stack, *, first: int, steps: int, knobs: Mapping[str, NDArray[np.float32]]) -> Outcome:
        """Train on batches first .. first + steps - 1 of `stack`; knobs[name][i] is the knob's value for batch i. [K]"""
        losses, weights, applied = self._run(stack=stack, first=np.int32(first), steps=np.int32(steps), knobs=knobs)
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

    def _train_steps(self, stack: Stack, first: tf.Tensor, steps: tf.Tensor, knobs: Mapping[str, tf.Tensor]) -> Any:
        positions = tf.range(self.stack)

        def body(i: tf.Tensor, losses: tf.Tensor, weights: tf.Tensor, applied: tf.Tensor) -> Any:
            self.knobs.assign({name: values[i] for name, values in knobs.items()})
            loss, weight, ok = self._train_step({key: value[i] for key, value in stack.items()})
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

    def _train_step(self, batch: Stack) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        before = [tf.identity(variable) for variable in self._moving]
        trained = [variable.value for variable in self.model.trainable_variables]
        with tf.GradientTape() as tape:
            output = self._output(batch, training=True)
            losses, weights = self._row_losses(batch, output, training=True)
            weight = tf.reduce_sum(weights)
            loss = tf.math.divide_no_nan(tf.reduce_sum(losses * weights), weight)
            own = list(self.model.losses)
            if own and (times := self.knobs.get("regularization")) is not None:
                own = [times * extra for extra in own]
            objective = loss / self._variance
            if self._ranking is not None:
                objective += self._ranking.share * (self._ranking_loss(self._ranking, batch, output) - objective)
            objective = tf.add_n([objective, *own])
        gradients = [
            # dense also for embeddings: the optimizer's moments are dense anyway
            tf.zeros_like(variable) if gradient is None else tf.convert_to_tensor(gradient)
            for gradient, variable in zip(tape.gradient(objective, trained), trained, strict=True)
        ]
        norm = tf.linalg.global_norm(gradients)
        ok = tf.math.is_finite(norm) & tf.math.is_finite(objective)
        if (most := self.knobs.get("clip_norm")) is not None:
            scale = most / tf.maximum(norm, most)
            gradients = [gradient * scale for gradient in gradients]
        self.optimizer.learning_rate = tf.convert_to_tensor(self.knobs.variables_by_name["learning_rate"])

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
        losses, weights = self._row_losses(batch, self._output(batch, training=False), training=False)
        # a padded row may hold anything; nothing times zero weight is still not a number
        return tf.reduce_sum(tf.where(weights > 0, losses * weights, 0.0)), tf.reduce_sum(weights)

    def _output(self, batch: Stack, *, training: bool) -> tf.Tensor:
        inputs = {name: value for name, value in batch.items() if name not in ("label", "weight", GROUP)}
        return tf.cast(self.model(inputs, training=training), tf.float32)

    def _ranking_loss(self, config: RankingConfig, batch: Stack, output: tf.Tensor) -> tf.Tensor:
        group, weights = batch[GROUP], tf.cast(batch["weight"], tf.float32)
        return pairwise_loss(
            output[:, 0] / self._std,
            batch["label"],
            group_splits(group),
            weights=tf.where(group == NO_GROUP, tf.zeros_like(weights), weights),
            kind=config.kind,
            k=config.k,
            reduction="mean",
        )

    def _row_losses(self, batch: Stack, output: tf.Tensor, *, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """(loss, weight) of each row, both float32 [B]."""
        label, weights = batch["label"], tf.cast(batch["weight"], tf.float32)
        if not training:
            return row_losses(self.task, label, output), weights
        if (temperature := self.knobs.get("temperature")) is not None:
            output /= temperature
        if self._offsets is not None:
            output += self._offsets
        if (positive := self.knobs.get("positive_weight")) is not None:
            # a label that mixup made stands for two rows, each with a weight of its own
            factor = positive * label + (1.0 - label)
            weights, label = weights * factor, tf.math.divide_no_nan(positive * label, factor)
        return row_losses(self.task, label, output, smoothing=self.knobs.get("label_smoothing")), weights


def row_losses(
    task: Task, label: tf.Tensor, output: tf.Tensor, *, smoothing: tf.Tensor | tf.Variable | None = None
) -> tf.Tensor:
    """The loss of each row from the model's output [rows, outputs]: natural log loss, or the squared error. [rows]

    Args:
        label: [rows], or of several classes also float32 [rows, classes], a probability for each, as mixup gives.
        smoothing: the share of the label's weight that is spread evenly over all classes (Szegedy et al., "Rethinking
            the Inception architecture", 2016, section 7); float32 scalar.
    """
    if task == "binary":
        target = tf.cast(label, tf.float32)
        if smoothing is not None:
            target = target * (1.0 - smoothing) + 0.5 * smoothing
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=target, logits=output[:, 0])
    if task == "multiclass":
        if label.shape.rank == 2:
            loss = tf.nn.softmax_cross_entropy_with_logits(labels=label, logits=output)
        else:
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.cast(label, tf.int32), logits=output)
        if smoothing is not None:
            even = -tf.reduce_mean(tf.nn.log_softmax(output), axis=1)
            loss = loss * (1.0 - smoothing) + even * smoothing
        return loss
    return tf.square(output[:, 0] - tf.cast(label, tf.float32))


def make_optimizer(config: OptimizerConfig) -> keras.optimizers.Optimizer:
    """The Keras optimizer of `config`. Its learning rate is a variable that every step sets anew."""
    return _OPTIMIZERS[config.name](learning_rate=0.0, **config.settings())
