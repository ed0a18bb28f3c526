"""The rows of a training: stacks of batches, and the holdout for early stopping.

data = TrainingData(examples, parameters, seed=0, training=TrainingConfig(), class_weights=None)
stacks = data.stacks(32)            # from a step to the stacks that begin with its batch
data.holdout()                        # batches of the rows that are never trained on
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import ConfigError, DataError
from headway.schema.columns import UNIT, named_for
from headway.stages.refs import Examples
from headway.storage.prefetch import Stager
from headway.tasks.table import task_of
from tfcore.data.dataset import (
    Resample,
    classes_of,
    evaluation_dataset,
    least_label,
    safe,
    training_dataset,
    training_plan,
    training_rows,
)
from tfcore.data.groups import GROUP, GroupOrder
from tfcore.data.order import shard_order
from tfcore.data.reader import labeler, owned
from tfcore.data.shards import Batch, Holdout, shards_of
from tfcore.data.source import Feed
from tfcore.heads.table import label_head, label_task
from tfcore.models.config import ModelConfig
from tfcore.models.linear import LinearModel, cheap
from tfcore.models.towers.item_index import collect
from tfcore.train.augment import Augment
from tfcore.train.config import TrainingConfig
from tfcore.train.cost import repays_compiling
from tfcore.train.request import Latest
from tfcore.train.rows import Drawn, GroupRuns, class_rates, draw, group_runs
from tfcore.train.strategy import PLACE, Choice, Placement, compact, slice_of
from tfcore.transform.images import Tolerant
from tfcore.transform.parameters import TransformParameters
from tfcore.transform.preprocess import transform_of

SHUFFLE_BYTES, LEAST_SHUFFLE_ROWS = 48 * 2**20, 65_536
"""The shuffle window. Several are under way at once, so memory takes a few times that. With sorted data (by time, say) windows
much smaller than an epoch cost accuracy, since the last rows weigh more."""
MOST_SHUFFLE_BYTES = 192 * 2**20
"""Wide rows, such as images, are shuffled in smaller windows than those."""
STACK_ROWS, STACK_BYTES = 262_144, 64 * 2**20
"""Most in a stack: of large batches, fewer are handed over at once."""
MOST_OPEN_SHARDS = 64
HOLDOUT_BATCH = 8192
KEPT_BYTES = 128 * 2**20
"""Rows that take no more are parsed and transformed once, and not in every epoch."""
HOLDOUT_MEMORY_BYTES = 256 * 2**20
"""A holdout up to this size is kept in memory instead of being read each time."""


class TrainingData:
    """The rows of a training; see the module.

    Args:
        examples: the train split of each span, in window order.
        feed: rows from elsewhere, instead of `examples`.
        class_weights: [classes], multiplied into the rows' weights, of the holdout too.
        stager: brings the shards as they are read; None: they are here.
        placement: where the rows are trained on.
        holdout: the holdout's share of the train rows, which need one; None: that of early stopping, if there is any.
        latest: the split is by time, and so the holdout.
        units: batches have "group", the id of each row's unit, where the split has units.
    """

    def __init__(
        self,
        examples: Sequence[Examples],
        parameters: TransformParameters,
        *,
        seed: int,
        training: TrainingConfig,
        class_weights: Sequence[float] | None = None,
        preprocess: Path | None = None,
        feed: Feed | None = None,
        stager: Stager | None = None,
        placement: Placement | None = None,
        holdout: float | None = None,
        latest: Latest | None = None,
        units: bool = False,
    ):
        self._placement = placement or Placement(Choice("cpu"))
        if feed is None and not examples:
            raise ConfigError("there is nothing to train on: neither examples nor a feed", where="training")
        self._parameters, self._seed, self._training = parameters, seed, training
        self._shards = feed.shards if feed is not None else shards_of(examples, stager)
        self.images = Tolerant(self._shards.total)
        self._transform = transform_of(parameters, preprocess, tolerant=self.images)
        self._labeler = labeler(self._shards, parameters, class_weights)
        early, needed = training.early_stopping, holdout is not None
        if holdout is None and early is not None:
            holdout = early.holdout
        self._outside: Holdout | None = None
        self._inside: Holdout | None = None
        self._holdout: tf.data.Dataset | None = None
        self._held_out: list[Batch] | None = None
        self._kept: Batch | None = None
        """The rows that are trained on, where they stay in memory."""
        self._as_they_are = class_weights is None
        self._group = named_for(self._shards.columns, "group")
        self._unit = (UNIT if self._shards.unit else self._group) if units else None
        if training.ranking is not None:
            training.ranking.check(
                parameters.label.task,
                group=self._group,
                mixup=bool(training.augment and training.augment.mixup),
            )
        self._augment = Augment(training.augment, parameters, seed=seed) if training.augment else None
        self.rates: list[float] | None = None
        """How often a row of each class comes in an epoch, where that is not once."""
        self._resample: Resample | None = None
        self.rows = self.holdout_rows = 0
        """Of an epoch."""
        self.notes: tuple[str, ...] = ()
        """What there is to say of the rows."""
        self._discovered: GroupRuns | None = None
        self._groups: GroupOrder | None = None
        self._resample = self._sampled(training, seed)
        if training.ranking is not None:
            self._find_groups()
        if holdout is not None and self._shards.total:
            self._hold_out(draw(self._shards, holdout, group=self._group, latest=latest), needed=needed)
        if training.ranking is not None:
            self._whole_groups(training.batch_size)
        ranking, task = training.ranking, parameters.label.task
        if ranking is not None and ranking.kind == "lambdarank" and not task_of(task).has_classes:
            ranking.check_gains(least_label(self._shards, self._labeler))
        self._shards.ahead(shard_order(len(self._shards.paths), seed, 0))  # they come while the model is built
        self.rows = (
            self._resample.expected(self._shards, self._outside)
            if self._resample
            else training_rows(self._shards, self._outside)
        )
        self.holdout_rows = training_rows(self._shards, self._inside) if self._inside else 0
        if not self.rows:
            raise DataError("the train split has no rows", where="split", fix="widen the window, or hold out less")
        if self._inside and not self.holdout_rows:
            raise DataError(
                f"a holdout of {holdout} holds none of the {self.rows} train rows",
                where="training.early_stopping.holdout",
                fix="raise it, or train without early stopping",
            )

    def _sampled(self, training: TrainingConfig, seed: int) -> Resample | None:
        config, label = training.sampling, self._parameters.label
        if config is None:
            return None
        self.rates = class_rates(config, class_names(self._parameters), class_counts(self._parameters), label.task)
        classes = classes_of(self._shards, self._labeler)
        return Resample(self.rates, classes, seed=seed, inverse=config.correct == "weights")

    def _hold_out(self, drawn: Drawn, *, needed: bool) -> None:
        if drawn.holdout is None:
            if needed:
                fix = "a key, group or column with more values in the train rows"
                raise DataError(f"there is no holdout to judge by: {drawn.problem}", where="split", fix=fix)
            self.notes = (*self.notes, f"without a holdout nothing stops the training early: {drawn.problem}")
            return
        self._inside, self._outside = drawn.holdout, drawn.holdout.inverse

    def _find_groups(self) -> None:
        assert self._group is not None
        self._discovered = group_runs(self._shards, self._group)
        self._shards, self.notes = self._discovered.shards, self._discovered.notes

    def _whole_groups(self, batch: int) -> None:
        """Plan how whole groups fill batches."""
        assert self._group is not None and self._discovered is not None
        plan = training_plan(
            self._shards, self._seed, self._outside, self._resample, window=self.window_rows, cycle=self._cycle
        )
        self._groups = GroupOrder(
            self._group, plan, self._shards, batch=batch, holdout=self._outside, resample=self._resample
        )
        self._discovered.check_sizes(self._groups.most(), batch)

    @property
    def _cycle(self) -> int:
        """The number of shards read at a time: as many as possible, so that a window has rows of the whole epoch."""
        return max(1, min(MOST_OPEN_SHARDS, len(self._shards.paths)))

    def total_steps(self) -> int:
        """Steps to train for."""
        groups = self._groups
        return self._training.total_steps(self.rows, groups.batches if groups and self.rows else None)

    @property
    def _compiled(self) -> bool:
        """Whether XLA compiles the assembly of batches in memory; the rows are the same either way."""
        jit = "off" if self._training.eager else self._training.jit
        return jit == "on" or (jit == "auto" and repays_compiling(self.total_steps(), self._training.batch_size))

    def epochs(self, step: int) -> float | None:
        """How many `step` steps are; None where there are none."""
        if not self.rows:
            return None
        if self._groups is not None:
            return self._groups.epochs(step)
        return step * self._training.batch_size / self.rows

    @property
    def _row_bytes(self) -> int:
        inputs = self._parameters.inputs().values()
        label = 4 * self._augment.classes if self._augment and self._augment.soft else 4
        return sum(math.prod(shape) * (1 if dtype == "uint8" else 4) for shape, dtype in inputs) + label + 4

    @property
    def window_rows(self) -> int:
        """Rows that are shuffled together."""
        few = max(256, min(LEAST_SHUFFLE_ROWS, MOST_SHUFFLE_BYTES // self._row_bytes))
        return max(few, SHUFFLE_BYTES // self._row_bytes)

    def stack(self, most: int) -> int:
        """Batches handed over at once: `most`, or fewer where they are large."""
        batch = self._training.batch_size
        return max(1, min(most, STACK_ROWS // batch, STACK_BYTES // (batch * self._row_bytes)))

    def specs(self, stack: int) -> dict[str, tf.TensorSpec]:
        """Return the specs of a stack."""
        several = self._placement.several
        # a worker has some rows of each batch
        shape = [stack, None if several else self._training.batch_size]
        label = label_head(self._parameters.label).label_dtype
        inputs = {
            name: tf.TensorSpec([*shape, *row], dtype) for name, (row, dtype) in self._parameters.inputs().items()
        }
        spec = tf.TensorSpec(shape, label)
        if self._augment and self._augment.soft:
            spec = tf.TensorSpec([*shape, self._augment.classes], tf.float32)
        place = {PLACE: tf.TensorSpec(shape, tf.int32)} if several else {}
        ranked = {GROUP: tf.TensorSpec(shape, tf.int64)} if self._training.ranking or self._unit else {}
        return inputs | ranked | {"label": spec, "weight": tf.TensorSpec(shape, tf.float32)} | place

    def stacks(
        self, stack: int, model: keras.Model | None = None, total: int | None = None
    ) -> Callable[[int], Iterator[Batch]]:
        """Return a function from a step to the stacks that begin with its batch, for `model`; endless or to `total`."""
        own = self._own(model)

        def begin(step: int) -> Iterator[Batch]:
            batch = self._training.batch_size
            dataset = training_dataset(
                self._shards,
                self._transform,
                self._labeler,
                seed=self._seed,
                batch=batch,
                stack=stack,
                start_step=step,
                holdout=self._outside,
                window_rows=self.window_rows,
                cycle=self._cycle,
                augment=self._augment,
                resample=self._resample,
                own=own,
                keep_bytes=KEPT_BYTES,
                on_kept=self._keep,
                groups=self._groups,
                unit=self._unit,
                jit=self._compiled,
                count=None if total is None else -(-(total - step) // stack),
            )
            return self._seen(safe(self._placed(dataset, own=own is not None), self._shards), stack * batch)

        return begin

    def _seen(self, batches: Iterator[Batch], rows: int) -> Iterator[Batch]:
        """Count the rows that are handed over, for the share of the images that may be refused."""
        for each in batches:
            self.images.seen += rows
            yield each

    def _keep(self, rows: Batch) -> None:
        self._kept = rows

    @tf.autograph.experimental.do_not_convert  # as in `tfcore.data.dataset`
    def _placed(self, dataset: tf.data.Dataset, *, own: bool) -> tf.data.Dataset:
        """Prepare the stacks for the devices of this process."""
        where = self._placement
        if where.several:
            workers = where.choice.workers
            share = compact(workers, self._training.micro_batches) if own else slice_of(where.worker, workers)
            return dataset.map(share, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(2)
        if where.device and "GPU" in where.device:
            return dataset.apply(tf.data.experimental.prefetch_to_device(where.device, buffer_size=2))
        return dataset

    def _own(self, model: keras.Model | None) -> NDArray[np.bool_] | None:
        """Return a mask of the shards that this worker reads, or None for all of them. With own shards, rows of weight
        0 fill up its batches, which a layer's means over the rows of a batch would count."""
        where, mixes = self._placement, self._training.augment is not None and self._training.augment.mixup
        means = model is not None and (
            model.losses or any(v.value.dtype.is_floating for v in model.non_trainable_variables)
        )
        if not where.several or self._resample is not None or mixes or means:
            return None
        return owned(self._shards, worker=where.worker, workers=where.choice.workers)

    def facts(self, model: keras.Model) -> dict[str, Any]:
        """Return facts for the training's result: for several workers, whether each reads its own shards or all."""
        if not self._placement.several:
            return {}
        return {"reads": "all shards" if self._own(model) is None else "own shards"}

    @property
    def has_holdout(self) -> bool:
        return self._inside is not None

    def holdout(self) -> Iterable[Batch]:
        """The held_out rows in their order, in batches of one shape."""
        if self._held_out is not None:
            return self._held_out
        if self._holdout is None:  # made once: its graph takes longer than its rows
            batch = min(HOLDOUT_BATCH, self.holdout_rows)
            self._holdout = evaluation_dataset(
                self._shards, self._transform, self._labeler, batch=batch, holdout=self._inside
            )
        names = self.specs(1).keys() - {PLACE, GROUP}
        read = self._seen(safe(self._holdout, self._shards), min(HOLDOUT_BATCH, self.holdout_rows))
        batches = ({name: rows[name] for name in names} for rows in read)
        if self.holdout_rows * self._row_bytes > HOLDOUT_MEMORY_BYTES:
            return batches
        self._held_out = list(batches)
        return self._held_out

    def linear_baseline(self) -> LinearModel | None:
        """The linear baseline of the train rows' numbers and categories, the holdout's among them; None where it is not cheap."""
        layout = self._parameters
        sizes = [entry.size for entry in layout.categorical]
        images = any(fitted.pixels is not None for fitted in layout.fitted)
        no_linear = label_task(layout.label).linear is None
        if no_linear or images or not cheap(self._shards.total, len(layout.numeric) + sum(sizes)):
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
            self._shards,
            self._transform,
            labeler(self._shards, self._parameters),
            batch=min(HOLDOUT_BATCH, self._shards.total),
        )
        for rows in safe(dataset, self._shards):
            yield {name: rows[name].numpy()[rows["valid"].numpy()] for name in names}

    def _all_rows(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return all train rows with the holdout's and without class weights, in the order of the manifests."""
        inside, kept, held_out = self._inside, self._kept, self._held_out
        if kept is None or not self._as_they_are or (inside is not None and held_out is None):
            batches = list(self._batches(names))
            return {name: np.concatenate([batch[name] for batch in batches]) for name in names}
        found = {name: kept[name].numpy() for name in names}  # another look would make another graph
        if inside is not None and held_out is not None:
            out = np.concatenate([inside.keeps(*each) for each in enumerate(self._shards.counts)])
            for name, others in found.items():
                found[name] = np.empty((len(out), *others.shape[1:]), others.dtype)
                found[name][~out] = others
                found[name][out] = np.concatenate([rows[name].numpy() for rows in held_out])[: self.holdout_rows]
        return found


def class_names(parameters: TransformParameters) -> list[str]:
    """The label's classes as they are written in a config, in the order of the model's outputs."""
    return [str(name) for name in parameters.label.classes or (0, 1)]


def class_counts(parameters: TransformParameters) -> dict[str, int] | None:
    counts: Any = parameters.label.counts
    return dict(zip(class_names(parameters), counts, strict=True)) if counts else None
