"""The batches of a training: stacks of those that are trained on, and the holdout for early stopping.

data = training_data(request)
stacks = data.stacks(32)              # from a step to the stacks that begin with its batch
data.holdout()                        # batches of the rows that are never trained on
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.schema.columns import UNIT, named_for
from headway.storage.prefetch import Stager
from tfcore.data.dataset import Inputs, RowCache, evaluation_dataset, training_dataset
from tfcore.data.groups import GROUP
from tfcore.data.order import shard_order
from tfcore.data.reader import Labeler, labeler, safe
from tfcore.data.shards import Batch, Shards, shards_of
from tfcore.heads.table import label_head, label_task
from tfcore.models.config import ModelConfig
from tfcore.models.inputs import has_members
from tfcore.models.linear import LinearModel, cheap
from tfcore.models.towers.item_index import collect
from tfcore.train.augment import Augment
from tfcore.train.config import repays_compiling
from tfcore.train.request import TrainRequest
from tfcore.train.rows import TrainingRows, class_counts, class_names, class_weights, plan_rows, row_bytes
from tfcore.train.strategy import Choice, Placement, slice_of
from tfcore.transform.images import ImageDecoder
from tfcore.transform.layer import Transform
from tfcore.transform.preprocess import transform_of

STACK_ROWS, STACK_BYTES = 262_144, 64 * 2**20
"""Most in a stack: of large batches, fewer are handed over at once."""
HOLDOUT_BATCH = 8192
KEPT_BYTES = 128 * 2**20
"""Rows that take no more are parsed and transformed once, and not in every epoch."""
HOLDOUT_MEMORY_BYTES = 256 * 2**20
"""A holdout up to this size is kept in memory instead of being read each time."""


def training_data(
    request: TrainRequest,
    shards: Shards | None = None,
    *,
    placement: Placement | None = None,
    stager: Stager | None = None,
) -> TrainingData:
    """The data of a training.

    Args:
        shards: the rows in place of the request's examples.
        placement: where the rows are trained on.
        stager: brings the shards as they are read; None: they are here.

    Raises:
        ConfigError, DataError: the rows cannot be had so, with the reason.
    """
    shards = shards or shards_of(request.examples, stager)
    parameters, training = request.transform, request.training
    task, images = parameters.label.task, ImageDecoder(shards.total)
    weights = class_weights(training.class_weights, class_names(parameters), class_counts(parameters), task)
    label = labeler(shards, parameters, weights)
    augment = Augment(training.augment, parameters, seed=request.seed) if training.augment else None
    transform = transform_of(parameters, request.preprocess, tolerant=images)
    rows = plan_rows(request, shards, label)
    shards.ahead(shard_order(len(shards.paths), request.seed, 0))  # they come while the model is built
    ids, group = None, named_for(shards.columns, "group")
    if training.ranking is not None or has_members(request.model, parameters):
        ids = UNIT if shards.unit and training.ranking is None else group
    return TrainingData(request, rows, transform, label, ids=ids, images=images, augment=augment, placement=placement)


class TrainingData:
    """The batches of a training; made by `training_data`.

    Attributes:
        rows: those of the training.
        images: counts those that TensorFlow could not decode.
    """

    def __init__(
        self,
        request: TrainRequest,
        rows: TrainingRows,
        transform: Transform,
        labeler: Labeler,
        *,
        images: ImageDecoder,
        ids: str | None = None,
        augment: Augment | None = None,
        placement: Placement | None = None,
    ):
        self.rows, self.images, self._plan = rows, images, rows.plan
        self._request, self._transform, self._labeler = request, transform, labeler
        self._parameters, self._training = request.transform, request.training
        self._ids, self._augment, self._placement = ids, augment, placement or Placement(Choice("cpu"))
        self._cache: RowCache | None = None
        self._holdout: tf.data.Dataset | None = None
        self._held_out: list[Batch] | None = None

    def total_steps(self) -> int:
        """Steps to train for."""
        groups = self._plan.groups
        return self._training.total_steps(self.rows.count, groups.batches if groups else None)

    def epochs(self, step: int) -> float:
        """How many `step` steps are."""
        if self._plan.groups is not None:
            return self._plan.groups.epochs(step)
        return step * self._training.batch_size / self.rows.count

    def stack(self, most: int) -> int:
        """Batches handed over at once: `most`, or fewer where they are large."""
        batch = self._training.batch_size
        return max(1, min(most, STACK_ROWS // batch, STACK_BYTES // (batch * self._row_bytes)))

    @property
    def _row_bytes(self) -> int:
        return row_bytes(self._request)

    def specs(self, stack: int) -> dict[str, tf.TensorSpec]:
        """Return the specs of a stack."""
        shape = [
            stack,
            self._training.batch_size // self._placement.choice.workers,
        ]  # a worker has its slice of each batch
        specs = {name: tf.TensorSpec([*shape, *row], dtype) for name, (row, dtype) in self._parameters.inputs().items()}
        if self._ids is not None:
            specs[GROUP] = tf.TensorSpec(shape, tf.int64)
        specs["label"] = tf.TensorSpec(shape, label_head(self._parameters.label).label_dtype)
        if self._augment and self._augment.soft:
            specs["label"] = tf.TensorSpec([*shape, self._augment.classes], tf.float32)
        specs["weight"] = tf.TensorSpec(shape, tf.float32)
        return specs

    def stacks(self, stack: int, total: int | None = None) -> Callable[[int], Iterator[Batch]]:
        """Return a function from a step to the stacks that begin with its batch; endless or to `total`."""
        inputs = Inputs(self._plan.shards, self._transform, self._labeler, ids=self._ids)

        def begin(step: int) -> Iterator[Batch]:
            batch, shards = self._training.batch_size, self._plan.shards
            if self._cache is None:
                self._cache = RowCache.of(self._plan, inputs, KEPT_BYTES)
            dataset = training_dataset(
                self._plan,
                inputs,
                batch=batch,
                stack=stack,
                start_step=step,
                cache=self._cache,
                augment=self._augment,
                jit=self._compiled,
                count=None if total is None else -(-(total - step) // stack),
            )
            return self._seen(safe(self._placed(dataset), shards), stack * batch)

        return begin

    @property
    def _compiled(self) -> bool:
        """Whether XLA compiles the assembly of batches in memory; the rows are the same either way."""
        jit = "off" if self._training.eager else self._training.jit
        return jit == "on" or (jit == "auto" and repays_compiling(self.total_steps(), self._training.batch_size))

    def _seen(self, batches: Iterator[Batch], rows: int) -> Iterator[Batch]:
        """Count the rows that are handed over, for the share of the images that may be refused."""
        for each in batches:
            self.images.seen += rows
            yield each

    @tf.autograph.experimental.do_not_convert  # as in `tfcore.data.dataset`
    def _placed(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Prepare the stacks for the devices of this process."""
        where = self._placement
        if (workers := where.choice.workers) > 1:
            share = slice_of(where.choice.worker, workers)
            return dataset.map(share, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(2)
        if where.device and "GPU" in where.device:
            return dataset.apply(tf.data.experimental.prefetch_to_device(where.device, buffer_size=2))
        return dataset

    def holdout(self) -> Iterable[Batch]:
        """The held-out rows in their order, in batches of one shape."""
        if self._held_out is not None:
            return self._held_out
        batch, shards = min(HOLDOUT_BATCH, self.rows.held_out_count), self._plan.shards
        if self._holdout is None:  # made once: its graph takes longer than its rows
            self._holdout = evaluation_dataset(
                shards, self._transform, self._labeler, batch=batch, holdout=self.rows.held_out
            )
        names = self.specs(1).keys() - {GROUP}
        read = self._seen(safe(self._holdout, shards), batch)
        batches = ({name: rows[name] for name in names} for rows in read)
        if self.rows.held_out_count * self._row_bytes > HOLDOUT_MEMORY_BYTES:
            return batches
        self._held_out = list(batches)
        return self._held_out

    def linear_baseline(self) -> LinearModel | None:
        """The linear baseline of the train rows' numbers and categories, the holdout's among them; None where it is not cheap."""
        layout = self._parameters
        sizes = [entry.size for entry in layout.categorical]
        images = any(fitted.pixels is not None for fitted in layout.fitted)
        no_linear = label_task(layout.label).linear is None
        if no_linear or images or not cheap(self._plan.shards.total, len(layout.numeric) + sum(sizes)):
            return None
        rows = self._all_rows(("numeric", "categorical", "label", "weight"))
        return LinearModel.fit(
            **rows, sizes=sizes, task=layout.label.task, classes=len(layout.label.classes or ()) or 1
        )

    def items(self, model: ModelConfig) -> dict[str, NDArray[Any]] | None:
        """The items of the train rows, of a model of two towers; None where there is no index of them."""
        if model.name != "two_towers":
            return None
        return collect(self._batches([*self._parameters.inputs()]), model, self._parameters)

    def _batches(self, names: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
        dataset = evaluation_dataset(
            self._plan.shards,
            self._transform,
            labeler(self._plan.shards, self._parameters),
            batch=min(HOLDOUT_BATCH, self._plan.shards.total),
        )
        for rows in safe(dataset, self._plan.shards):
            yield {name: rows[name].numpy()[rows["valid"].numpy()] for name in names}

    def _all_rows(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return all train rows with the holdout's and without class weights, in the order of the manifests."""
        inside, kept, held_out = self.rows.held_out, self._cache, self._held_out
        if kept is None or self._labeler.weighs_classes or (inside is not None and held_out is None):
            batches = list(self._batches(names))
            return {name: np.concatenate([batch[name] for batch in batches]) for name in names}
        found = {name: kept.rows[name].numpy() for name in names}  # another look would make another graph
        if inside is not None and held_out is not None:
            out = np.concatenate([inside.keeps(*each) for each in enumerate(self._plan.shards.counts)])
            for name, others in found.items():
                found[name] = np.empty((len(out), *others.shape[1:]), others.dtype)
                found[name][~out] = others
                found[name][out] = np.concatenate([rows[name].numpy() for rows in held_out])[: self.rows.held_out_count]
        return found
