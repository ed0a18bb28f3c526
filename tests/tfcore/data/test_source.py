"""Rows from shards and from memory are of one type, train the same bits, and are refused by name."""

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from headway.errors import ConfigError, DataError
from headway.monitor import Monitor
from headway.schema.columns import Column
from tests.example_shards import write_examples
from tests.patched import patched
from tests.tfcore.train.trainings import request, weight_bits
from tfcore.data.reader import shards_of
from tfcore.data.source import element_spec, rows_in_memory
from tfcore.train.stage import train

ROWS = 1000
COLUMNS = (
    Column(name="x", type="float32", nullable=True),
    Column(name="hour", type="int64", nullable=False),
    Column(name="carrier", type="bytes", nullable=False, encoding="dictionary"),
    Column(name="pair", type="float32", nullable=False, shape=(2,)),
    Column(name="tags", type="bytes", nullable=True, shape=(None,)),
    Column(name="label", type="int64", nullable=False, role="label"),
)


def table(rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows).astype(np.float32)
    carrier = rng.integers(0, 4, rows)
    pairs = pa.array(rng.normal(size=rows * 2).astype(np.float32))
    return pa.table(
        {
            "x": pa.array(x, mask=rng.random(rows) < 0.1),
            "hour": rng.integers(0, 24, rows),
            "carrier": pa.array([b"AA", b"BB", b"CC", b"DD"], pa.binary()).take(pa.array(carrier)),
            "pair": pa.FixedSizeListArray.from_arrays(pairs, 2),
            "tags": pa.array(
                [None if i % 9 == 0 else [b"t%d" % (i % 3)] * (i % 4) for i in range(rows)], pa.list_(pa.binary())
            ),
            "label": (x + 0.3 * carrier > 0.5).astype(np.int64),
        }
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    tables = {"train": table(), "eval": table(500, 1)}
    return write_examples(tmp_path_factory.mktemp("examples"), tables, COLUMNS, rows_per_record=64, shards=3)


_short_calls = patched({"tfcore.train.trainer.STEPS_PER_CALL": 8})


def asked(written, **training):
    """A training of rows in memory."""
    return request(written, steps=48, **training).model_copy(update={"examples": ()})


def in_memory(rows=None):
    return rows_in_memory(table() if rows is None else rows, COLUMNS, rows_per_record=64, shards=3)


def as_numpy(rows):
    """The same rows as a dict of arrays."""
    return {
        "x": rows["x"].fill_null(0).to_numpy(),
        "x__present": rows["x"].is_valid().to_numpy(),
        "hour": rows["hour"].to_numpy(),
        "carrier": rows["carrier"].to_numpy(),
        "pair": rows["pair"].combine_chunks().flatten().to_numpy().reshape(-1, 2),
        "tags": rows["tags"].to_pylist(),
        "label": rows["label"].to_numpy(),
    }


def elements_of(rows):
    """A user's Dataset of the same rows, a few at a time."""
    parts = [as_numpy(rows.slice(at, 300)) for at in range(0, len(rows), 300)]
    return [part | {"x": part["x"], "tags": tf.ragged.constant(
        [tags or [] for tags in part["tags"]], tf.string, row_splits_dtype=tf.int64
    ), "tags__present": np.array([tags is not None for tags in part["tags"]])} for part in parts]  # fmt: skip


def dataset(rows=None):
    elements = elements_of(table() if rows is None else rows)
    return tf.data.Dataset.from_generator(lambda: iter(elements), output_signature=element_spec(COLUMNS))


def test_records_from_memory_are_those_of_shards_in_files(written):
    assert element_spec(COLUMNS)["pair"] == tf.TensorSpec([None, 2], tf.float32)
    shards = shards_of([written.part("train")])
    records = tuple(tuple(tf.data.TFRecordDataset(path).as_numpy_iterator()) for path in shards.paths)
    for rows in (in_memory(), in_memory(as_numpy(table())), in_memory(dataset())):
        assert rows.total == ROWS and rows.row_counts == shards.row_counts and rows.records == records


@pytest.mark.long
def test_training_from_memory_ends_at_the_bits_of_training_from_shards(written, tmp_path):
    options = {"early_stopping": {"every_steps": 16}, "sampling": {"rates": {"0": 0.7}}}
    train(request(written, steps=48, **options), tmp_path / "shards", Monitor())
    for name, rows in (("table", table()), ("arrays", as_numpy(table())), ("dataset", dataset())):
        train(asked(written, **options), tmp_path / name, Monitor(), shards=in_memory(rows))
        assert weight_bits(tmp_path / name) == weight_bits(tmp_path / "shards"), name


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": np.zeros(50)}, r"column 'x': expected float \[rows\], given float64 \[50\]"),
        ({"hour": np.zeros((50, 2), np.int64)}, r"column 'hour': expected int64 \[rows\], given int64 \[50, 2\]"),
        ({"hour": ["1"] * 50}, r"column 'hour': expected int64 \[rows\], given list"),
        ({"carrier": np.zeros(50, np.int64)}, r"column 'carrier': expected binary \[rows\], given int64 \[50\]"),
        ({"pair": np.zeros((50, 3), np.float32)}, r"column 'pair': expected .* \[rows, 2\], given float32 \[50, 3\]"),
        ({"tags": [[1.5]] * 50}, r"column 'tags': expected list<.*binary> \[rows\], given list"),
        ({"label": np.zeros(49, np.int64)}, r"column 'label': expected 50 rows, as 'x' has, given 49"),
        ({"lable": np.zeros(50, np.int64)}, r"column 'lable' is not expected\n.*'label'"),
        ({"x__present": np.zeros(50)}, r"column 'x__present': expected bool \[50\]"),
    ],
)
def test_what_does_not_fit_is_named(columns, message):
    with pytest.raises(DataError, match=message):
        rows_in_memory(as_numpy(table(50)) | columns, COLUMNS)


def test_a_missing_column_and_a_null_are_named():
    with pytest.raises(DataError, match=r"column 'hour': expected int64 \[rows\], given nothing"):
        rows_in_memory(table(50).drop_columns("hour"), COLUMNS)
    nulls = table(50).set_column(1, "hour", pa.array([None] * 50, pa.int64()))
    with pytest.raises(DataError, match=r"column 'hour': expected int64 \[rows\] without nulls, given 50 nulls"):
        rows_in_memory(nulls, COLUMNS)
    with pytest.raises(DataError, match=r"column 'hour': expected int64 \[rows\], given int32"):
        rows_in_memory(table(50).set_column(1, "hour", pa.array([0] * 50, pa.int32())), COLUMNS)


def test_what_is_no_table_and_no_rows_are_refused_in_words(written, tmp_path):
    with pytest.raises(DataError, match="expected a dict of arrays, an Arrow table or a Dataset, given list"):
        rows_in_memory([1, 2], COLUMNS)
    with pytest.raises(ConfigError, match="neither examples nor shards"):
        train(asked(written), tmp_path, Monitor())
