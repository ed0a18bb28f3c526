"""The rows of a training, planned before the first step: which rows are held out, which form groups, and how often a row
of each class comes. Also their batches: stacks of the rows that are trained on, and the holdout for early stopping.

    data = training_data(request)
    stacks = data.stack_reader(32)    # a function: from a step to the stacks that begin with the step's batch
    data.holdout()                    # batches of the rows that are never trained on
    rows = plan_rows(request, shards, labeler)
    rows.plan                   # the RowPlan by which `tfcore.data.dataset` reads an epoch
    rows.held_out               # the rows on which early stopping measures the loss, or None
    drawn = draw_holdout(shards, 0.1, group="query", latest=None)
    drawn.holdout               # the rows that are held out; None: there can be no holdout, and drawn.problem says why
    found = group_runs(shards, "query")
    found.shards.runs           # the number of rows of each group, by shard
    class_rates(SamplingConfig(negatives=0.1), ["0", "1"], {"0": 900, "1": 100})      # [0.1, 1.0]

The holdout should differ from the other rows as much as eval does. With a split by time it is the latest rows. Else it is
whole units, chosen by a hash: a unit is the rows with one value of the split's key, or of the group column. Without either
it is single rows, chosen by a hash of their position. The draw depends on the shards and the share alone, so a training that
resumes after a kill draws the same holdout. Drawing reads only the columns that it needs, and keeps one bit per row.

The rows of a group have one value in the group column, and lie next to each other in one record. Rows of a group that are
scattered over a shard are an error in the input: most pairs of the group would never meet in a batch. A group with rows in
several shards is treated as several groups, and a note says how many there are. A row whose group is null is its own group.

A model that is trained on a tenth of the negatives predicts ten times the odds. `correct: logits` adds the logarithm of
the classes' rates to the output, in training only. So the output without it is calibrated for the rows as they are (the
offset is that of prior correction in King and Zeng, "Logistic regression in rare events data", 2001). `correct: weights`
multiplies each row's weight by 1 / rate instead.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import ConfigError, DataError
from headway.messages import agree, counted
from headway.schema.columns import UNIT, named_for
from headway.storage.prefetch import Stager
from headway.tabular.hashing import U64, mix64
from headway.tabular.list_arrays import run_starts
from headway.tasks.base import Task
from headway.tasks.table import task_of
from tfcore.data.dataset import Inputs, RowCache, RowPlan, evaluation_dataset, training_dataset, training_rows
from tfcore.data.groups import GROUP, NO_GROUP, GroupOrder, group_ids
from tfcore.data.order import shard_order
from tfcore.data.reader import (
    Batch,
    Holdout,
    Labeler,
    Resample,
    Shards,
    classes_of,
    labeler,
    least_label,
    map_records,
    map_shards,
    shards_of,
    with_data_errors,
)
from tfcore.heads.head import label_head, label_task
from tfcore.models.config import ModelConfig
from tfcore.models.inputs import has_members
from tfcore.models.linear import LinearModel, cheap
from tfcore.models.towers.item_index import collect_items
from tfcore.train.augment import Augment
from tfcore.train.config import SamplingConfig, repays_compiling
from tfcore.train.request import TimeSplit, TrainRequest
from tfcore.train.strategy import Placement, slice_of
from tfcore.transform.images import ImageDecoder
from tfcore.transform.layer import Transform, transform_of
from tfcore.transform.parameters import TransformParameters
from tfcore.transform.raw_column import RawColumn

SHUFFLE_BYTES, LEAST_SHUFFLE_ROWS = 48 * 2**20, 65_536
"""The size of a shuffle window; memory holds several windows at once. With sorted data (by time, say) windows much
smaller than an epoch cost accuracy, since the last rows weigh more."""
MOST_SHUFFLE_BYTES = 192 * 2**20
"""The most bytes of a window of wide rows, such as images, which may hold fewer than `LEAST_SHUFFLE_ROWS`."""
MOST_OPEN_SHARDS = 64
"""The most shards that are read at a time, so that a window has rows of the whole epoch."""
_HELD_SALT = 0x686F6C64  # "hold": another draw than the split's


@dataclasses.dataclass(frozen=True, eq=False)
class TrainingRows:
    """Which rows a training uses, and how often; see the module."""

    plan: RowPlan
    """Which rows are trained on, and in which order."""
    held_out: Holdout | None = None
    rates: list[float] | None = None
    """How often a row of each class comes in an epoch; None: once."""
    notes: tuple[str, ...] = ()
    """Lines about the rows for the log."""
    count: int = 0
    """Rows of an epoch."""
    held_out_count: int = 0


def plan_rows(request: TrainRequest, shards: Shards, labeler: Labeler) -> TrainingRows:
    """Decide which rows are trained on and which are held out. Each decision reads only the columns that it needs.

    A trial of a study must have a holdout. Without one, early stopping never ends the training, and a note says so.

    Raises:
        ConfigError, DataError: the rows do not allow what the request asks for; with the reason.
    """
    parameters, training, seed = request.transform, request.training, request.seed
    label, ranking, early = parameters.label, training.ranking, training.early_stopping
    group, notes, runs = named_for(shards.columns, "group"), tuple[str, ...](), None
    needed = request.trial is not None
    share = request.trial.holdout if request.trial else early.holdout if early else None
    rates = resample = held_out = None
    if ranking is not None:
        ranking.check(label.task, group=group)
    if training.sampling is not None:
        rates = class_rates(training.sampling, class_names(parameters), class_counts(parameters), label.task)
        inverse = training.sampling.correct == "weights"
        resample = Resample(rates, classes_of(shards, labeler), seed=seed, inverse=inverse)
    if ranking is not None and group is not None:
        runs = group_runs(shards, group)
        shards, notes = runs.shards, runs.notes
    if share is not None and shards.total:
        drawn = draw_holdout(shards, share, group=group, latest=request.latest)
        held_out = drawn.holdout
        if held_out is None and needed:
            fix = "a key, group or column with more values in the train rows"
            raise DataError(f"there is no holdout to judge by: {drawn.problem}", where="split", fix=fix)
        if held_out is None:
            notes = (*notes, f"without a holdout nothing stops the training early: {drawn.problem}")
    kept = held_out.inverse if held_out else None
    window, cycle = window_rows(row_bytes(request)), max(1, min(MOST_OPEN_SHARDS, len(shards.paths)))
    plan = RowPlan.of(shards, seed=seed, holdout=kept, resample=resample, window=window, cycle=cycle)
    if runs is not None:
        groups = GroupOrder(runs.column, plan.order, shards, batch=training.batch_size, holdout=kept, resample=resample)
        runs.check_sizes(groups.max_run_rows(), training.batch_size)
        plan = dataclasses.replace(plan, groups=groups)
    if ranking is not None and ranking.kind == "lambdarank" and not task_of(label.task).has_classes:
        ranking.check_gains(least_label(shards, labeler))
    count = resample.expected_rows(shards, kept) if resample else training_rows(shards, kept)
    held_out_count = training_rows(shards, held_out) if held_out else 0
    if not count:
        raise DataError("the train split has no rows", where="split", fix="widen the window, or hold out less")
    if held_out and not held_out_count:
        raise DataError(
            f"a holdout of {share} holds none of the {count} train rows",
            where="training.early_stopping.holdout",
            fix="raise it, or train without early stopping",
        )
    return TrainingRows(plan, held_out, rates, notes, count, held_out_count)


def window_rows(row_bytes: int) -> int:
    """Returns the number of rows that are shuffled together, given the bytes of a row."""
    few = max(256, min(LEAST_SHUFFLE_ROWS, MOST_SHUFFLE_BYTES // row_bytes))
    return max(few, SHUFFLE_BYTES // row_bytes)


def row_bytes(request: TrainRequest) -> int:
    """Returns the size of one row in bytes: the model's inputs, the label and the weight."""
    inputs, head = request.transform.inputs().values(), label_head(request.transform.label)
    augment = request.training.augment
    soft = bool(augment and augment.mixup and head.task.per_class)
    label = 4 * head.outputs if soft else 4
    return sum(math.prod(shape) * (1 if dtype == "uint8" else 4) for shape, dtype in inputs) + label + 4


# --- the holdout


@dataclasses.dataclass(frozen=True, eq=False)
class HoldoutDraw:
    holdout: Holdout | None
    problem: str = ""


def draw_holdout(shards: Shards, share: float, *, group: str | None, latest: TimeSplit | None) -> HoldoutDraw:
    """Returns a holdout of about `share` of the rows. If none can be drawn, `holdout` is None and `problem` says why.

    Args:
        group: the name of the group column; None: there is none.
        latest: the time by which the split is made; None: the split is not by time.
    """
    unit = UNIT if shards.unit else group
    if latest is None:
        if unit is None:
            return HoldoutDraw(Holdout.by_place(shards, share, inside=True))
        held = _top(_of_runs(np.concatenate([*_units(shards, unit)]), shards), share, shuffled=True)
        what = "one unit that the split keeps together"
    elif latest.column in [column.name for column in shards.columns]:
        held = _top(_of_runs(_lateness(shards, latest.column, unit), shards), share)
        what = f"one value of {latest.column!r}"
    else:
        held, what = _last(shards, share), "one group"
    if held is None:
        return HoldoutDraw(
            None, f"{what} takes more than half of the {counted(shards.total, 'train row')}, or all of them"
        )
    return HoldoutDraw(Holdout.of(np.split(held, np.cumsum(shards.row_counts)[:-1]), inside=True))


def _units(shards: Shards, column: str) -> Iterator[NDArray[np.uint32]]:
    """Yields for each shard a hash of each row's unit, such as its user. A row without a unit gets a hash of its own."""
    at = 0  # of 32 bits: units with the same hash go together
    for ids in map_shards(shards, column, group_ids):
        hashes = mix64(ids.view(U64), _HELD_SALT)
        if len(alone := np.flatnonzero(ids == NO_GROUP)):
            hashes[alone] = mix64((at + alone).astype(U64), _HELD_SALT + 1)
        yield (hashes >> U64(32)).astype(np.uint32)
        at += len(ids)


def _times(shards: Shards, column: str) -> Iterator[NDArray[Any]]:
    """Yields for each shard the values of a time column. NaN becomes -infinity, so that it is the earliest."""
    for times in map_shards(shards, column, RawColumn.plain):
        times = times.astype(np.bytes_) if times.dtype == object else times
        yield np.where(np.isnan(times), -np.inf, times) if times.dtype.kind == "f" else times


def _lateness(shards: Shards, column: str, unit: str | None) -> NDArray[np.int32]:
    """Returns each row's rank by time, int32 [rows]; later is greater. All rows of a unit get its latest row's rank."""
    ranks = _ranks(_times(shards, column))
    if unit is None:
        return ranks
    units = _ranks(_units(shards, unit))
    latest = np.full(int(units.max()) + 1, -1, np.int32)
    np.maximum.at(latest, units, ranks)
    return latest[units]


def _ranks(pieces: Iterable[NDArray[Any]]) -> NDArray[np.int32]:
    """Returns each value's rank among the distinct values of all pieces, int32 [rows]; the least has rank 0."""
    found = [*pieces]
    values = np.unique(np.concatenate(found))
    return np.concatenate([np.searchsorted(values, each).astype(np.int32) for each in found])


def _of_runs(order: NDArray[Any], shards: Shards) -> NDArray[Any]:
    """Returns `order` (a number per row), each number replaced by the greatest of its group where `shards` has groups."""
    if shards.runs is None:
        return order
    lengths = np.concatenate(shards.runs)
    return np.repeat(np.maximum.reduceat(order, np.cumsum(lengths) - lengths), lengths)


def _top(order: NDArray[Any], share: float, *, shuffled: bool = False) -> NDArray[np.bool_] | None:
    """Returns a mask of the rows with the greatest values in `order`, about `share` of all rows. Rows of equal value
    stay together. None: every choice would take more than half of the rows.

    Args:
        shuffled: the values are hashes. One that more than half of the rows have is then never held out.
    """
    values, counts = np.unique(order, return_counts=True)
    most = int(counts.argmax())
    first_of_all = shuffled and counts[most] * 2 > len(order)
    if first_of_all:
        values, counts = (np.append(of[most], np.delete(of, most)) for of in (values, counts))
    first = _nearest(np.cumsum(counts[::-1])[::-1], share, len(order))
    if first is None:
        return None
    late: NDArray[np.bool_] = order >= values[first]
    return late & (order != values[0]) if first_of_all else late


def _nearest(held: NDArray[Any], share: float, rows: int) -> int | None:
    """Returns the index of the number in `held` that is nearest to `share` * `rows`; None: all exceed half of `rows`."""
    off = np.where(held * 2 <= rows, np.abs(held - share * rows), np.inf)
    return int(off.argmin()) if np.isfinite(off).any() else None


def _last(shards: Shards, share: float) -> NDArray[np.bool_] | None:
    """Returns a mask of the last rows, about `share`: whole spans (such as days) if possible. None as in `_top`."""
    total, runs = shards.total, shards.runs
    starts = np.cumsum(shards.row_counts) - shards.row_counts
    begins: NDArray[Any] = starts[np.flatnonzero(np.diff(shards.spans or [0] * len(starts), prepend=-1))]
    first = _nearest(total - begins, share, total)
    if first is None or not share / 2 <= (total - begins[first]) / total <= share * 2:
        shard = int(np.searchsorted(starts, (1 - share) * total, "right")) - 1
        within = np.arange(shards.row_counts[shard]) if runs is None else np.cumsum(runs[shard]) - runs[shard]
        begins = np.append(starts[shard] + within, starts[shard + 1 : shard + 2])
        first = _nearest(total - begins, share, total)
    return None if first is None else np.arange(total) >= begins[first]


_RANKING = "training.ranking"


@dataclasses.dataclass(frozen=True, eq=False)
class GroupRuns:
    shards: Shards
    """The shards, with `runs` set."""
    column: str
    notes: tuple[str, ...] = ()

    def check_sizes(self, sizes: NDArray[np.int64], batch: int) -> None:
        """Raise DataError if a group has more than `batch` rows, since a batch holds whole groups.

        Args:
            sizes: the most rows that each group has in an epoch, int64 [groups], in the order of the shards.
        """
        every = np.append(sizes, 0)
        largest = int(np.argmax(every))
        if every[largest] <= batch:
            return
        begin = int(np.concatenate(self.shards.runs or ())[:largest].sum())
        many = int(np.sum(every > batch))
        raise DataError(
            f"{counted(many, 'group')} of {self.column!r} {agree(many, 'has', 'have')} more rows than a batch, which "
            f"is to hold whole ones: {_value(self.shards, self.column, begin)} has {int(every[largest]):,}, "
            f"training.batch_size is {batch:,}",
            where=_RANKING,
            fix=f"training.batch_size: {1 << math.ceil(math.log2(int(every[largest])))} (better several times a group), "
            "or smaller groups",
        )


def group_runs(shards: Shards, column: str) -> GroupRuns:
    """Returns the shards with the length of each group's run of consecutive rows, and notes on divided groups; see the module.

    Raises:
        DataError: the rows of a group do not lie together, or a shard is damaged.
    """
    runs, parts, scattered, where, at = list[NDArray[Any]](), [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], -1, 0
    for records, ids in zip(shards.rows, map_shards(shards, column, group_ids), strict=True):
        starts = run_starts(ids) | (ids == NO_GROUP)
        cuts = np.cumsum(records)
        starts[cuts[cuts < len(ids)]] = True
        begins = np.flatnonzero(starts)
        lengths = np.diff(begins, append=len(ids))
        runs.append(lengths.astype(np.min_scalar_type(-1 - int(lengths.max(initial=0)))))
        there = ids[begins]
        # parts that lie together were cut by the edge of a record
        whole = np.flatnonzero(run_starts(there) & (there != NO_GROUP))
        groups, first, counts = np.unique(there[whole], return_index=True, return_counts=True)
        if (twice := counts > 1).any():
            scattered.append(groups[twice])
            where = at + int(begins[whole[first[twice].min()]]) if where < 0 else where
        parts.append(there[there != NO_GROUP])
        at += len(ids)
    found, counts = np.unique(np.concatenate(parts), return_counts=True)
    of = f"of {len(found):,} in {column!r}"
    if many := len(np.unique(np.concatenate(scattered))):  # one may be scattered in several shards
        raise DataError(
            f"the rows of {counted(many, 'group')} {of} do not lie together, as those of {_value(shards, column, where)}",
            where=_RANKING,
            fix=f"sort the input by {column}, so that the rows of a group follow each other",
        )
    notes: tuple[str, ...] = ()
    if cut := int((counts > 1).sum()):
        where_they_are = f"{agree(cut, 'lies', 'lie')} in several spans, files or ranges of a file"
        notes = (f"{counted(cut, 'group')} {of} {where_they_are}: each part is ranked by itself",)
    return GroupRuns(dataclasses.replace(shards, runs=tuple(runs)), column, notes)


def _value(shards: Shards, column: str, row: int) -> str:
    """Returns the value of `column` in the row with number `row` over all shards, as text for a message."""
    at = 0
    for piece in map_records(shards, [column], lambda columns: columns[column].plain()):
        if row < at + len(piece):
            value = piece[row - at].numpy()
            if isinstance(value, bytes):
                return repr(value.decode("utf-8", "backslashreplace"))
            return f"{value:.9g}" if isinstance(value, np.floating) else str(value)
        at += len(piece)
    raise AssertionError(f"there is no row {row}")


_SAMPLING = "training.sampling"


def class_rates(
    config: SamplingConfig, classes: Sequence[str], counts: Mapping[str, int] | None, task: Task | str
) -> list[float]:
    """Returns how often a row of each class comes in an epoch on average, such as 0.1 for one row in ten.

    Args:
        classes: their names in the order of the model's outputs.
        counts: the number of train rows of each class, for `balance`; None: not known.

    Raises:
        ConfigError: the label does not allow what `config` says; it names the key.
    """
    task = task_of(task)
    if not task.has_classes:
        raise ConfigError(f"a {task.name} label has no classes", where=_SAMPLING)
    if config.negatives is not None:
        if task.per_class:
            fix = "say rates: {class: share} instead"
            raise ConfigError(f"a {task.name} label has no negatives", where=f"{_SAMPLING}.negatives", fix=fix)
        return [config.negatives, 1.0]
    if config.rates is not None:
        return by_class(config.rates, classes, f"{_SAMPLING}.rates")
    if not counts:
        raise ConfigError("balance needs the label's counts", where=f"{_SAMPLING}.balance")
    held = [counts[name] for name in classes if counts.get(name)]
    target = max(held) if config.balance == "over" else min(held)
    return [target / counts[name] if counts.get(name) else 1.0 for name in classes]


def class_weights(
    setting: str | Mapping[str, float] | None,
    classes: Sequence[str],
    counts: Mapping[str, int] | None,
    task: Task | str = "binary",
) -> list[float] | None:
    """Returns the loss weight of each class; None where `setting` is None.

    Args:
        setting: "balanced" (rows / (classes that have rows * rows of the class); 0 without rows), or by class (1 where left out).
        classes: their names in the order of the model's outputs.
        counts: the number of train rows of each class; "balanced" needs it, else ConfigError.
    """
    if setting is None:
        return None
    if not task_of(task).has_classes:
        raise ConfigError(f"a {task_of(task).name} label has no classes", where="training.class_weights")
    if isinstance(setting, str):
        if not counts:
            raise ConfigError("balanced needs the label's counts", where="training.class_weights")
        present = [name for name in classes if counts.get(name)]
        rows = sum(counts[name] for name in present)
        return [rows / (len(present) * counts[name]) if name in present else 0.0 for name in classes]
    return by_class(setting, classes, "training.class_weights")


def by_class(given: Mapping[str, float], classes: Sequence[str], where: str) -> list[float]:
    """Returns the number given for each class, 1 where none is given. ConfigError at `where` for a name that is no class."""
    unknown = [name for name in given if name not in classes]
    if unknown:
        fix = f"the classes are: {', '.join(list(classes)[:20])}"
        raise ConfigError(f"{unknown[0]!r} is not a class of the label", where=where, fix=fix)
    return [float(given.get(name, 1.0)) for name in classes]


def class_names(parameters: TransformParameters) -> list[str]:
    """Returns the label's classes as they are written in a config, in the order of the model's outputs."""
    return [str(name) for name in parameters.label.classes or (0, 1)]


def class_counts(parameters: TransformParameters) -> dict[str, int] | None:
    """Returns the number of train rows of each class; None where they were not counted."""
    counts: Any = parameters.label.counts
    return dict(zip(class_names(parameters), counts, strict=True)) if counts else None


STACK_ROWS, STACK_BYTES = 262_144, 64 * 2**20
"""The most rows and bytes of a stack, so that it has fewer batches where these are large."""
HOLDOUT_BATCH = 8192
KEPT_BYTES = 128 * 2**20
"""Rows that take no more than this are parsed and transformed once, and not in every epoch."""
HOLDOUT_MEMORY_BYTES = 256 * 2**20
"""A holdout up to this size is kept in memory instead of being read each time."""


def training_data(
    request: TrainRequest,
    shards: Shards | None = None,
    *,
    placement: Placement | None = None,
    stager: Stager | None = None,
) -> TrainingData:
    """Returns the data of a training.

    Args:
        shards: the rows in place of the request's examples.
        placement: the devices that train on the rows; None: the CPU.
        stager: fetches shards from a bucket as they are read; None: the shards are on this disk.

    Raises:
        ConfigError, DataError: the rows do not allow what the request asks for; with the reason.
    """
    shards = shards or shards_of(request.examples, stager)
    parameters, training = request.transform, request.training
    task, has_images = parameters.label.task, any(fitted.pixels is not None for fitted in parameters.fitted)
    images = ImageDecoder(shards.total) if has_images else None
    weights = class_weights(training.class_weights, class_names(parameters), class_counts(parameters), task)
    label = labeler(shards, parameters, weights)
    augment = Augment(training.augment, parameters, seed=request.seed) if training.augment else None
    transform = transform_of(parameters, request.preprocess, tolerant=images)
    rows = plan_rows(request, shards, label)
    shards.announce_order(shard_order(len(shards.paths), request.seed, 0))  # they come while the model is built
    ids, group = None, named_for(shards.columns, "group")
    if training.ranking is not None or has_members(request.model, parameters):
        ids = UNIT if shards.unit and training.ranking is None else group
    return TrainingData(request, rows, transform, label, ids=ids, images=images, augment=augment, placement=placement)


class TrainingData:
    """The batches of a training; made by `training_data`.

    Attributes:
        rows: which rows are trained on and held out.
        images: the image decoder, which counts the images that TensorFlow could not decode; None: no input is an image.
    """

    def __init__(
        self,
        request: TrainRequest,
        rows: TrainingRows,
        transform: Transform,
        labeler: Labeler,
        *,
        images: ImageDecoder | None = None,
        ids: str | None = None,
        augment: Augment | None = None,
        placement: Placement | None = None,
    ):
        self.rows, self.images, self._plan = rows, images, rows.plan
        self._request, self._transform, self._labeler = request, transform, labeler
        self._parameters, self._training = request.transform, request.training
        self._ids, self._augment, self._placement = ids, augment, placement or Placement("cpu")
        self._cache: RowCache | None = None
        self._holdout: tf.data.Dataset | None = None
        self._held_out: list[Batch] | None = None

    def total_steps(self) -> int:
        """Returns the number of steps to train."""
        groups = self._plan.groups
        return self._training.total_steps(self.rows.count, groups.batch_count if groups else None)

    def epochs(self, step: int) -> float:
        """Returns the number of epochs in the first `step` steps."""
        if self._plan.groups is not None:
            return self._plan.groups.epochs(step)
        return step * self._training.batch_size / self.rows.count

    def stack(self, most: int) -> int:
        """Returns the number of batches in a stack: `most`, or fewer where batches are large."""
        batch = self._training.batch_size
        return max(1, min(most, STACK_ROWS // batch, STACK_BYTES // (batch * self._row_bytes)))

    @property
    def _row_bytes(self) -> int:
        return row_bytes(self._request)

    def specs(self, stack: int) -> dict[str, tf.TensorSpec]:
        """Returns the specs of the tensors in a stack of `stack` batches, by name."""
        shape = [stack, self._training.batch_size // self._placement.workers]  # a worker has its slice of each batch
        specs = {name: tf.TensorSpec([*shape, *row], dtype) for name, (row, dtype) in self._parameters.inputs().items()}
        if self._ids is not None:
            specs[GROUP] = tf.TensorSpec(shape, tf.int64)
        specs["label"] = tf.TensorSpec(shape, label_head(self._parameters.label).label_dtype)
        if self._augment and self._augment.soft:
            specs["label"] = tf.TensorSpec([*shape, self._augment.classes], tf.float32)
        specs["weight"] = tf.TensorSpec(shape, tf.float32)
        return specs

    def stack_reader(self, stack: int, total: int | None = None) -> Callable[[int], Iterator[Batch]]:
        """Returns a function of a step: it yields stacks from that step's batch on, up to step `total` or endlessly (None)."""
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
            return self._seen(with_data_errors(self._for_this_process(dataset), shards), stack * batch)

        return begin

    @property
    def _compiled(self) -> bool:
        """Whether XLA compiles the code that makes batches from rows in memory. The batches are the same either way."""
        jit = "off" if self._training.eager else self._training.jit
        return jit == "on" or (jit == "auto" and repays_compiling(self.total_steps(), self._training.batch_size))

    def _seen(self, batches: Iterator[Batch], rows: int) -> Iterator[Batch]:
        """Yields the batches unchanged. Counts `rows` rows for each, of which the image decoder may refuse a share."""
        for each in batches:
            if self.images is not None:
                self.images.seen += rows
            yield each

    @property
    def refused_images(self) -> int:
        """How many images TensorFlow could not decode."""
        return 0 if self.images is None else self.images.refused

    @tf.autograph.experimental.do_not_convert  # as in `tfcore.data.dataset`
    def _for_this_process(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Returns the dataset for this process: with several workers a slice of each batch, else whole, prefetched to a GPU."""
        where = self._placement
        if (workers := where.workers) > 1:
            share = slice_of(where.worker, workers)
            return dataset.map(share, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(2)
        if where.device and "GPU" in where.device:
            return dataset.apply(tf.data.experimental.prefetch_to_device(where.device, buffer_size=2))
        return dataset

    def holdout(self) -> Iterable[Batch]:
        """Returns the held-out rows in their order, in batches of equal shape."""
        if self._held_out is not None:
            return self._held_out
        batch, shards = min(HOLDOUT_BATCH, self.rows.held_out_count), self._plan.shards
        if self._holdout is None:  # made once: its graph takes longer than its rows
            self._holdout = evaluation_dataset(
                shards, self._transform, self._labeler, batch=batch, holdout=self.rows.held_out
            )
        names = self.specs(1).keys() - {GROUP}
        read = self._seen(with_data_errors(self._holdout, shards), batch)
        batches = ({name: rows[name] for name in names} for rows in read)
        if self.rows.held_out_count * self._row_bytes > HOLDOUT_MEMORY_BYTES:
            return batches
        self._held_out = list(batches)
        return self._held_out

    def linear_baseline(self) -> LinearModel | None:
        """Returns a linear model fitted to the numbers, categories and lists of all train rows, held-out rows too. None if
        the task has no linear model, an input is an image, or the fit is not `cheap`."""
        layout, rows = self._parameters, self._plan.shards.total
        slots = [(each.size, 1) for each in layout.categorical] + [(each.size, each.width) for each in layout.lists]
        task, numbers = label_task(layout.label), len(layout.numeric)
        outputs = len(layout.label.classes or ()) if task.per_class else 1
        ids = outputs * (rows + sum(size + rows * width for size, width in slots))
        if task.linear is None or self.images is not None or not cheap(rows, numbers, ids):
            return None
        inputs = self._all_rows((*layout.inputs(), "label", "weight"))
        return LinearModel.fit(inputs, slots=slots, task=layout.label.task, classes=outputs)

    def items(self, model: ModelConfig) -> dict[str, NDArray[Any]] | None:
        """Returns each item's inputs in the train rows, by name. None unless two_towers has an index of its items."""
        if model.name != "two_towers":
            return None
        return collect_items(self._batches([*self._parameters.inputs()]), model, self._parameters)

    def _batches(self, names: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
        dataset = evaluation_dataset(
            self._plan.shards,
            self._transform,
            labeler(self._plan.shards, self._parameters),
            batch=min(HOLDOUT_BATCH, self._plan.shards.total),
        )
        for rows in with_data_errors(dataset, self._plan.shards):
            yield {name: rows[name].numpy()[rows["valid"].numpy()] for name in names}

    def _all_rows(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Returns the columns `names` of all train rows, held-out rows too, in manifest order. Class weights are left out."""
        inside, kept, held_out = self.rows.held_out, self._cache, self._held_out
        if kept is None or self._labeler.weighs_classes or (inside is not None and held_out is None):
            batches = list(self._batches(names))
            return {name: np.concatenate([batch[name] for batch in batches]) for name in names}
        found = {name: kept.rows[name].numpy() for name in names}  # another look would make another graph
        if inside is not None and held_out is not None:
            out = np.concatenate([inside.row_mask(*each) for each in enumerate(self._plan.shards.row_counts)])
            for name, others in found.items():
                found[name] = np.empty((len(out), *others.shape[1:]), others.dtype)
                found[name][~out] = others
                found[name][out] = np.concatenate([rows[name].numpy() for rows in held_out])[: self.rows.held_out_count]
        return found
