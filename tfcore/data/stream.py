"""Training on live data: a feed's generator as stacks of batches, in the order in which the rows come.

    for stack in live_stacks(feed, transform, labeler, batch=256, stack=32, first_row=0): ...

There is no epoch and no shuffle: what has not come yet cannot be drawn from. Rows are transformed a batch of the
generator's at a time and varied a stack at a time, so that a row's partner in mixup does not hang on how the generator cuts.
"""

from collections.abc import Iterator

import tensorflow as tf

from headway.errors import DataError
from tfcore.augment.rows import Augment
from tfcore.data.decode import Decoder, Labeler
from tfcore.data.pipeline import labelled
from tfcore.data.shards import Batch
from tfcore.data.source import Feed
from tfcore.transform.layer import Transform


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
    """The dataset of stacks of a feed's rows, in the form of `tfcore.data.pipeline.training_dataset`.

    Raises:
        DataError: the generator gave what does not fit, or ended.
    """
    stacks = 0
    for value in feed.safe(_dataset(feed, transform, labeler, batch, stack, first_row, augment)):
        stacks += 1
        yield value
    raise DataError(
        f"ended after {stacks * stack * batch:,} rows that fill whole stacks of {stack} batches of {batch}, but the "
        "training needs more",
        where="the generator",
        fix="lower training.steps, training.batch_size or training.steps_per_call, or give more rows",
    )


@tf.autograph.experimental.do_not_convert  # there is nothing to convert, and looking takes a second
def _dataset(
    feed: Feed,
    transform: Transform,
    labeler: Labeler,
    batch: int,
    stack: int,
    first_row: int,
    augment: Augment | None,
) -> tf.data.Dataset:
    decoder = Decoder(feed.columns, feed.shards.rows_per_record, [column.name for column in feed.columns])

    def prepared(_: tf.Tensor, record: tf.Tensor) -> Batch:
        columns = decoder(record)
        return labelled(dict(transform(columns)), columns, labeler)

    def varied(rows: tf.data.Dataset) -> tf.data.Dataset:
        if augment is None:
            return rows
        order, zero = tf.range(stack * batch), tf.constant(0, tf.int64)

        def placed(number: tf.Tensor, rows: Batch) -> Batch:
            return rows | augment.placed(rows, order, tf.constant(0), zero, first_row + number * stack * batch)

        chunks = rows.enumerate().map(placed).rebatch(augment.chunk)
        chunks = chunks.map(augment, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        return chunks.rebatch(stack * batch, drop_remainder=True)

    def stacked(rows: Batch) -> Batch:
        return {name: tf.reshape(value, [stack, batch, *value.shape[1:]]) for name, value in rows.items()}

    rows = feed.records(first_row).map(prepared, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    return varied(rows.rebatch(stack * batch, drop_remainder=True)).map(stacked).prefetch(1)
