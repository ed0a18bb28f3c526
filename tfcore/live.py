"""Training on live data: a feed's generator as stacks of batches, in the order in which the rows come.

    for stack in live_stacks(feed, transform, labeler, batch=256, stack=32, first_row=0): ...

There is no epoch and no shuffle: what has not come yet cannot be drawn from. Rows are transformed and varied a batch of
the generator's at a time, and cut into batches of one shape; a row's partner in mixup is of the same batch of the
generator's, so only with mixup do its batches' sizes matter.
"""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf

from headway.errors import DataError
from tfcore.augment.rows import Augment
from tfcore.decode import Decoder, Labeler
from tfcore.feeds import Feed
from tfcore.shards import Batch
from tfcore.transform.graph import Transform


def live_stacks(
    feed: Feed,
    transform: Transform,
    labeler: Labeler,
    *,
    batch: int,
    stack: int,
    first_row: int = 0,
    augment: Augment | None = None,
) -> Iterator[Batch]:
    """Stacks as `tfcore.dataset.training_dataset` makes them.

    Raises:
        DataError: the generator gave what does not fit, or ended.
    """
    decoder = Decoder(feed.columns, feed.shards.rows_per_record, [column.name for column in feed.columns])

    def prepared(first: tf.Tensor, record: tf.Tensor) -> Batch:
        columns = decoder(record)
        rows: Batch = dict(transform(columns))
        label, weight = labeler(columns)
        usable = rows.pop("usable", None)
        rows["label"] = label
        rows["weight"] = weight if usable is None else tf.where(usable, weight, tf.zeros_like(weight))
        if augment is None:
            return rows
        order = tf.range(tf.size(label))
        return augment(rows | augment.placed(rows, order, tf.constant(0), tf.constant(0, tf.int64), first))

    def stacked(rows: Batch) -> Batch:
        return {name: tf.reshape(value, [stack, batch, *value.shape[1:]]) for name, value in rows.items()}

    rows = feed.records(first_row).map(prepared, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    dataset = rows.rebatch(stack * batch, drop_remainder=True).map(stacked).prefetch(1)
    given = 0
    for value in feed.safe(dataset):
        given += 1
        yield value
    raise DataError(
        f"ended after {given * stack * batch:,} rows that fill whole stacks of {stack} batches of {batch}, and the "
        "training goes on",
        where="the generator",
        fix="lower training.steps, training.batch_size or training.steps_per_call, or give more rows",
    )
