"""One training step in separate pieces: the forward pass, the gradients, the update. `tfcore.train.loop` compiles them.

    step = TrainStep(model=model, head="binary", optimizer=optimizer, counter=counter)
    kept = step.copy_moving_averages()             # copies, which a skipped step restores
    part = step.part(batch)                        # the loss and the gradients of a whole batch
    done = step.apply_if_finite(part, kept)        # updates the variables, or skips the step if `part` is not finite

A batch may be computed in parts. Each part is given the summed weight of the whole batch, and its share of the rows. So the
sums of the parts' losses, objectives and gradients are those of the whole batch:

    total = tf.reduce_sum(step.row_weights(batch))
    parts = [step.part(rows, total=total, share=0.5, first_row=first) for rows, first in ((upper, 0), (lower, 128))]
    part = accumulate(step, batch, total=total)    # the same in micro-batches, which take the memory of one of them

`part` writes no variables but a layer's moving averages; `apply_if_finite` writes all other variables.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from headway.errors import ConfigError
from headway.messages import some
from tfcore.data.groups import GROUP, NO_GROUP, group_splits
from tfcore.graph.scheduled import step_value
from tfcore.heads.head import Head, head_of
from tfcore.models.layers import rows_from
from tfcore.models.members import Members
from tfcore.models.precision import LossScale
from tfcore.train.config import OptimizerConfig, RankingConfig, logit_offsets
from tfcore.train.ranking import pairwise_loss
from tfcore.train.request import TrainRequest
from tfcore.train.retrieval import RetrievalPart

Batch = Mapping[str, Any]
LIMIT = 10
"""Ten steps in a row that are not finite are no accident of a few bad rows: all that follow would be skipped too."""
_NAMES = 8
"""The most variables that a warning names."""


@dataclass(frozen=True)
class Part:
    """The loss, objective and gradients of some rows of a batch; summed over all parts, they are those of the batch."""

    loss: tf.Tensor
    """float32 scalar: the weighted mean of the rows' losses, in the label's units."""
    objective: tf.Tensor
    """float32 scalar: what is differentiated: the loss with ranking, retrieval and the model's own losses."""
    gradients: list[tf.Tensor]
    """float32, dense: one for each trainable variable of the model, in its order."""


@dataclass(frozen=True)
class StepResult:
    """What happened in a step: two bool scalars."""

    applied: tf.Tensor
    """False: the step was not finite, and changed nothing but the count of steps."""
    retryable: tf.Tensor | None = None
    """True: the step was skipped, and a smaller loss scale may mend that. None where there is no loss scale."""


@dataclass(frozen=True)
class StepConfig:
    """The settings of a training step: what it does besides computing the gradient of the rows' loss."""

    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    values: tuple[str, ...] = ("learning_rate",)
    """The names of the scheduled numbers that every step gets as tensors, with "learning_rate". `TrainStep` reads those of
    `tfcore.train.schedule.MEANINGS`; the model or its loss reads the others."""
    limit: int = LIMIT
    """The training ends after so many steps in a row whose loss or gradients are not finite."""
    label_std: float = 1.0
    """The standard deviation of a label with a unit; the objective measures errors by it. So learning rate and clipping
    mean the same in any unit. The reported loss stays in the label's unit squared."""
    clip_norm: float | None = None
    """The largest global norm of the gradients."""
    offsets: Sequence[float] | None = None
    """Added to the outputs while training and at no other time; see `tfcore.train.rows`."""
    ranking: RankingConfig | None = None
    """Makes the order of rows within a group part of the objective, for whole batches only. Rows of a group follow each
    other, see `tfcore.data.groups`. The reported loss stays the rows' loss."""
    retrieval: RetrievalPart | None = None
    """Makes the choice among a batch's items part of the objective, likewise for whole batches only."""
    scale: LossScale | None = None
    """The loss's factor while gradients are taken, for a model in float16; see `tfcore.models.precision`."""
    micro_batches: int = 1
    """How many parts each batch is cut into; a divisor of a device's rows."""

    @classmethod
    def of(
        cls,
        request: TrainRequest,
        model: keras.Model,
        head: Head,
        *,
        rates: Sequence[float] | None,
        values: Sequence[str],
    ) -> Self:
        """Returns the settings of a training's steps, from its request, its model and its head.

        Args:
            rates, values: how often a row of each class comes in an epoch (None: once); names of the scheduled numbers.
        """
        config, label, retrieval = request.training, request.transform.label, None
        if config.retrieval is not None:
            retrieval = RetrievalPart(model, config.retrieval, request.model, request.transform)
        corrected = config.sampling is not None and config.sampling.correct == "logits" and rates
        return cls(
            optimizer=config.optimizer,
            values=tuple(values),
            label_std=head.scale_and_centre(label)[0],
            clip_norm=config.clip_norm,
            offsets=logit_offsets(rates, label.task) if corrected and rates else None,
            ranking=config.ranking,
            retrieval=retrieval,
            scale=LossScale() if config.precision == "float16" else None,
            micro_batches=config.micro_batches,
        )


class TrainStep:
    """One training step in pieces: the forward pass, the gradients, the update.

    Args:
        model: takes the batch without "label", "weight" and groups, gives [rows, outputs]. In training an ensemble may give
            [rows, members, outputs]; then each member has a loss.
        head: computes the loss; the name of a task stands for the task's head.
        optimizer: built for the model's trainable variables.
        counter: int64 variable, counted up by one each step.
        log: gets one line, while the step is traced, with the variables that no gradient reaches.
    """

    def __init__(
        self,
        *,
        model: keras.Model,
        head: Head | str,
        optimizer: keras.optimizers.Optimizer,
        counter: tf.Variable,
        config: StepConfig = StepConfig(),
        log: Callable[[str], None] | None = None,
    ):
        self.unreached: list[str] = []
        """The paths of the variables that no gradient reaches in a traced step."""
        self._log = log or (lambda line: None)
        self.model, self.head, self.optimizer, self.counter = model, head_of(head), optimizer, counter
        self.config, self.scale = config, config.scale
        self._offsets = None if config.offsets is None else np.asarray(config.offsets, np.float32)
        self._std, self._unit = float(config.label_std), float(config.label_std) ** self.head.degree
        self._members = next((layer for layer in model.layers if isinstance(layer, Members)), None)
        # what a layer moves on its own in a training step (batch normalisation), to be put back when it is skipped
        self._moving = [v.value for v in model.non_trainable_variables if v.value.dtype.is_floating]

    def copy_moving_averages(self) -> list[tf.Tensor]:
        """Returns copies of the layers' moving averages, which a skipped step restores."""
        return [tf.identity(variable) for variable in self._moving]

    def row_weights(self, batch: Batch) -> tf.Tensor:
        """Returns the weight of each row in the loss, float32 [rows]. Does not call the model."""
        return self._targets(batch)[1]

    def part(
        self,
        batch: Batch,
        *,
        total: tf.Tensor | None = None,
        share: tf.Tensor | float | None = None,
        first_row: tf.Tensor | int | None = None,
    ) -> Part:
        """Returns the loss and gradients of `batch`: a whole batch if all other arguments are None, else a part of one.

        Args:
            total: the summed `row_weights` of the whole batch; float32 scalar.
            share: the part's share of the whole batch's rows, by which the model's own losses are multiplied.
            first_row: the index of the part's first row in the whole batch, on which dropout masks depend.
        """
        if self.head.train_step is not None:
            return self._users(batch)
        trained = [variable.value for variable in self.model.trainable_variables]
        with tf.GradientTape() as tape:
            with rows_from(first_row, batch.get(GROUP)):
                if self.config.retrieval is None:
                    output = self._output(batch, training=True)
                else:
                    output, user, item = self.config.retrieval.outputs(_inputs(batch), training=True)
            losses, weights = self._training_losses(batch, output)
            total = tf.reduce_sum(weights) if total is None else total
            loss = tf.math.divide_no_nan(tf.reduce_sum(losses * weights), total)
            own = [tf.cast(extra, tf.float32) for extra in self.model.losses]
            if (times := step_value("regularization")) is not None:
                own = [times * extra for extra in own]
            if share is not None:
                own = [share * extra for extra in own]
            objective = loss / self._unit
            if (ranking := self.config.ranking) is not None:
                scores = output if output.shape.rank == 2 else tf.reduce_mean(output, axis=1)
                objective += ranking.share * (self._order_loss(ranking, batch, scores) - objective)
            if self.config.retrieval is not None:
                chosen = self.config.retrieval.loss(batch, user, item, weights)
                objective += self.config.retrieval.share * (chosen - objective)
            objective = tf.add_n([objective, *own])
            scaled = objective if self.scale is None else objective * self.scale.value
        computed = tape.gradient(scaled, trained)
        unreached = [v.path for v, part in zip(self.model.trainable_variables, computed, strict=True) if part is None]
        self._note(unreached)
        gradients = [
            # dense also for embeddings: the optimizer's moments are dense anyway
            tf.zeros_like(variable) if gradient is None else tf.convert_to_tensor(gradient)
            for gradient, variable in zip(computed, trained, strict=True)
        ]
        if self.scale is not None:
            back = 1.0 / self.scale.value
            gradients = [gradient * back for gradient in gradients]
        return Part(loss, objective, gradients)

    def _users(self, batch: Batch) -> Part:
        """Returns the loss and gradients from the train_step of a user's task."""
        assert self.head.train_step is not None
        trained = self.model.trainable_variables
        loss, gradients = self.head.train_step(self.model, batch)
        self._note([v.path for v, gradient in zip(trained, gradients, strict=True) if gradient is None])
        filled = [
            tf.zeros_like(v.value) if gradient is None else tf.convert_to_tensor(gradient)
            for v, gradient in zip(trained, gradients, strict=True)
        ]
        return Part(loss, loss, filled)

    def _note(self, unreached: Sequence[str]) -> None:
        """Log variables that no gradient reaches, each once: the optimizer silently takes zeros for their gradients."""
        if new := [path for path in unreached if path not in self.unreached]:
            self.unreached += new
            self._log(
                f"no gradient reaches {some(new, _NAMES, repr)}: not trained. Is the layer used? Is there a "
                "tf.stop_gradient or a Python function (tf.py_function, tf.numpy_function) on the way to the loss?"
            )

    def finite(self, part: Part) -> tf.Tensor:
        """Returns whether the gradients and the objective of a whole batch are finite; bool scalar."""
        return tf.math.is_finite(tf.linalg.global_norm(part.gradients)) & tf.math.is_finite(part.objective)

    def apply_if_finite(self, part: Part, kept: Sequence[tf.Tensor]) -> StepResult:
        """Apply gradients if they and the objective are finite, else restore the moving averages `kept`. Counts the step."""
        norm = tf.linalg.global_norm(part.gradients)
        ok = tf.math.is_finite(norm) & tf.math.is_finite(part.objective)
        gradients = self.clipped(part.gradients, norm)
        self.set_rate()

        def apply() -> tf.Tensor:
            self.apply(gradients)
            return tf.constant(True)

        def skip() -> tf.Tensor:
            self.restore_moving_averages(kept)
            return tf.constant(False)

        applied = tf.cond(ok, apply, skip)
        self.counter.assign_add(1)
        return StepResult(applied, self.update_loss_scale(applied, part.objective))

    def update_loss_scale(self, applied: tf.Tensor, objective: tf.Tensor) -> tf.Tensor | None:
        """Update the loss scale after a step. Returns whether a smaller scale may mend a skipped step; None: no loss scale."""
        return None if self.scale is None else self.scale.update(applied, tf.math.is_finite(objective))

    def clipped(self, gradients: Sequence[tf.Tensor], norm: tf.Tensor) -> list[tf.Tensor]:
        """Returns the gradients, scaled down to the global norm `clip_norm` if their global norm, `norm`, is larger."""
        if (most := self.config.clip_norm) is None:
            return list(gradients)
        scale = most / tf.maximum(norm, most)
        return [gradient * scale for gradient in gradients]

    def set_rate(self) -> None:
        """Set the optimizer's learning rate to the scheduled one of the current step."""
        self.optimizer.learning_rate = step_value("learning_rate")

    def apply(self, gradients: Sequence[tf.Tensor]) -> None:
        variables = self.model.trainable_variables
        grown = [
            (variable, variable + gradient)
            for variable, gradient in zip(variables, gradients, strict=True)
            if getattr(variable, "grows", False)
        ]
        self.optimizer.apply(list(gradients), variables)
        for variable, value in grown:
            variable.assign(value)
        for variable in variables:
            if (decay := getattr(variable, "decay", None)) is not None:
                # beside the gradients: an optimizer like Adam would scale a penalty's up where the loss has little to say
                kept = 1.0 - self.optimizer.learning_rate * decay()
                variable.assign(variable * tf.maximum(kept, 0.0))

    def restore_moving_averages(self, kept: Sequence[tf.Tensor]) -> None:
        for variable, value in zip(self._moving, kept, strict=True):
            variable.assign(value)

    def plain_losses(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the loss and the weight of each row, float32 [rows] each. As in prediction there is no dropout, and
        no scheduled number applies."""
        return self.head.loss(batch, self._output(batch, training=False)), tf.cast(batch["weight"], tf.float32)

    def losses_and_predictions(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the loss and the prediction of each row, computed as in the evaluation."""
        output = self._output(batch, training=False)
        return self.head.loss(batch, output), self.head.predictions(output)

    def _training_losses(self, batch: Batch, output: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if (temperature := step_value("temperature")) is not None:
            output /= temperature
        if self._offsets is not None:
            output += self._offsets
        label, weights = self._targets(batch)
        # whatever a row of weight 0 holds, its loss is 0 and so are its gradients: infinity times 0 would be neither
        label, output = (_where(weights > 0, value, 0) for value in (label, output))
        rows, smoothing = {**batch, "label": label}, step_value("label_smoothing")
        if output.shape.rank == 2:
            return self.head.loss(rows, output, smoothing=smoothing), weights
        members, width = output.shape[1:]
        repeated = {name: tf.repeat(value, members, axis=0) for name, value in rows.items()}
        losses = self.head.loss(repeated, tf.reshape(output, [-1, width]), smoothing=smoothing)
        losses = tf.reshape(losses, [-1, members])
        return (tf.reduce_mean(losses, axis=1) if self._members is None else self._members.row_losses(losses)), weights

    def _targets(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the label and the weight of each row in training, with `positive_weight` applied."""
        label, weights = batch["label"], tf.cast(batch["weight"], tf.float32)
        if (positive := step_value("positive_weight")) is not None:
            # a label that mixup made stands for two rows, each with a weight of its own
            factor = positive * label + (1.0 - label)
            weights, label = weights * factor, tf.math.divide_no_nan(positive * label, factor)
        return label, weights

    def _order_loss(self, config: RankingConfig, batch: Batch, output: tf.Tensor) -> tf.Tensor:
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

    def _output(self, batch: Batch, *, training: bool) -> tf.Tensor:
        return tf.cast(self.model(_inputs(batch), training=training), tf.float32)


def _where(rows: tf.Tensor, value: tf.Tensor, other: float) -> tf.Tensor:
    """Returns `value`, of shape [rows, ...], with `other` in the rows where the mask `rows` is false."""
    return tf.where(tf.reshape(rows, [-1] + [1] * (len(value.shape) - 1)), value, tf.cast(other, value.dtype))


def _inputs(batch: Batch) -> dict[str, tf.Tensor]:
    return {name: value for name, value in batch.items() if name not in ("label", "weight", GROUP)}


def make_optimizer(config: OptimizerConfig) -> keras.optimizers.Optimizer:
    """Returns the Keras optimizer of `config`. Its learning rate is a variable, which every step sets."""
    settings = {"learning_rate": 0.0, **config.settings}
    try:
        return keras.optimizers.deserialize({"class_name": config.name, "config": settings})
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{config.name} of Keras refuses them: {error}",
            where="training.optimizer.settings",
            fix="correct the values",
        ) from error


def accumulate(
    step: TrainStep,
    batch: Batch,
    *,
    total: tf.Tensor,
    share: float = 1.0,
    first_row: tf.Tensor | int = 0,
) -> Part:
    """Returns the loss and gradients of `batch`, summed over `StepConfig.micro_batches` equal parts, one after another.

    Args:
        total: the summed row weights of the whole batch.
        share, first_row: as of `TrainStep.part`, where `batch` has the rows of one replica.
    """
    count = step.config.micro_batches
    size = tf.shape(batch["weight"])[0] // count

    def body(i: tf.Tensor, loss: tf.Tensor, objective: tf.Tensor, gradients: list[tf.Tensor]) -> Any:
        first = i * size
        micro = {name: _cut(value, first, size) for name, value in batch.items()}
        part = step.part(micro, total=total, share=share / count, first_row=first_row + first)
        added = [sum_ + gradient for sum_, gradient in zip(gradients, part.gradients, strict=True)]
        return i + 1, loss + part.loss, objective + part.objective, added

    zero = tf.zeros([], tf.float32)
    zeros = [tf.zeros_like(variable.value) for variable in step.model.trainable_variables]
    # one after another: side by side they would need the whole batch's memory
    end = tf.while_loop(lambda i, *_: i < count, body, (tf.constant(0), zero, zero, zeros), parallel_iterations=1)
    return Part(*end[1:])


def _cut(value: tf.Tensor, first: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Returns the rows first .. first + size - 1 of `value`. The static sizes of all other dimensions are kept."""
    rest = value.shape[1:]
    begin = tf.concat([[first], tf.zeros([len(rest)], tf.int32)], 0)
    cut = tf.slice(value, begin, tf.concat([[size], tf.constant(rest.as_list(), tf.int32)], 0))
    return tf.ensure_shape(cut, [None, *rest])
