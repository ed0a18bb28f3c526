"""The head of a model of several labels: one body, and a head for each label.

    head = MultiHead(label)                      # LabelParameters with `further` labels
    head.loss(batch, outputs)                    # the main label's plus each further one's, weighted; float32 [rows]

The outputs of the heads stand side by side, the main label's first. `batch["labels"]` is float32 [rows, further labels]: the
number, or the index of the class; NaN where a row has none, which then counts nothing in that label's loss. Each loss is taken
in its label's own deviation, so that weights of 1 mean about the same whatever the labels' units are.
"""

import copy
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import ConfigError
from headway.tasks.base import Output
from tfcore.heads.base import Batch, FurtherHead, Head, Tensors

LABELS = "labels"
"""The further labels in a batch."""


class MultiHead(Head):
    """A main head, which decides, and those of further labels.

    Args:
        label: the parameters of the main label, with its `further` ones.
        head_of: makes the head of one label's parameters.

    Raises:
        ConfigError: the main label's task has a train_step of its own.
    """

    def __init__(self, label: Any, head_of: Callable[[Any], Head]):
        main = head_of(label)
        if main.train_step is not None:
            problem = (
                f"the train_step of {main.task.name} knows one label, and labels names {label.further[0].name!r} too"
            )
            raise ConfigError(
                problem, where="labels", fix="give the task a loss instead of train_step, or leave out labels"
            )
        super().__init__(main.task, main.classes)
        self._main, self.meaning = main, f"{main.meaning} for the label"
        self._scale: float = main.units(label)[0]
        self.outputs = main.outputs
        self.further = ()
        for each in label.further:
            head = head_of(each)
            at = slice(self.outputs, self.outputs + head.outputs)
            unit = head.units(each)[0] ** head.degree
            self.further += (FurtherHead(each.name, head, each.weight, unit, at),)
            self.outputs = at.stop
            self.meaning += f", {head.meaning} for {each.name}"

    @property
    def main(self) -> Head:
        return self._main

    @property
    def own(self) -> int:
        return self._main.outputs

    @property
    def label_dtype(self) -> tf.DType:
        return self._main.label_dtype

    def changed(self, change: Callable[[Head], Head]) -> Self:
        """The same heads with another main one."""
        changed = copy.copy(self)
        changed._main = change(self._main)
        return changed

    def loss(self, batch: Batch, outputs: tf.Tensor, *, smoothing: tf.Tensor | tf.Variable | None = None) -> tf.Tensor:
        return tf.add_n(list(self.losses(batch, outputs, smoothing=smoothing).values()))

    def losses(self, batch: Batch, outputs: tf.Tensor, *, smoothing: tf.Tensor | tf.Variable | None = None) -> Tensors:
        main = self._main.loss(batch, outputs[:, : self.own], smoothing=smoothing)
        losses = {"label": main / self._scale**self._main.degree}
        for number, (name, head, weight, unit, at) in enumerate(self.further):
            value = batch[LABELS][:, number]
            present = tf.math.is_finite(value)
            # also in the gradient 0 times NaN is NaN, so the label goes as well as the loss
            label = tf.cast(tf.where(present, value, tf.zeros_like(value)), head.label_dtype)
            loss = head.loss({**batch, "label": label}, outputs[:, at])
            losses[name] = tf.where(present, loss * (weight / unit), tf.zeros_like(loss))
        return losses

    def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        return self._main.predictions(outputs[:, : self.own])

    def exact(self, outputs: NDArray[np.float64]) -> NDArray[np.float64] | None:
        return self._main.exact(outputs[:, : self.own])

    def served(self, outputs: tf.Tensor) -> Tensors:
        served = self._main.served(outputs[:, : self.own])
        for each in self.further:
            served |= {f"{each.name}/{name}": v for name, v in each.head.served(outputs[:, each.at]).items()}
        return served

    def described(self) -> tuple[Output, ...]:
        further = (
            output._replace(name=f"{each.name}/{output.name}")
            for each in self.further
            for output in each.head.described()
        )
        return (*self._main.described(), *further)

    def decided(self, predictions: Tensors, argument: tf.Tensor) -> Tensors:
        return self._main.decided(predictions, argument)

    def _heads(self, label: Any) -> list[tuple[Head, Any]]:
        """Each head with the parameters of its label, the main one first."""
        return [(self._main, label), *((each.head, of) for each, of in zip(self.further, label.further, strict=True))]

    def units(self, label: Any) -> tuple[Any, Any]:
        """(scale, centre) of each column of the output, float32 [outputs]."""
        units = [head.units(of) for head, of in self._heads(label) for _ in range(head.outputs)]
        scale, centre = np.asarray(units, np.float32).T
        return scale, centre

    def start(self, label: Any) -> NDArray[np.float32] | None:
        starts = [(head.start(of), head.outputs) for head, of in self._heads(label)]
        if all(start is None for start, _ in starts):
            return None
        return np.concatenate([np.zeros(width, np.float32) if start is None else start for start, width in starts])
