"""Rows varied on their way out of shards: the same after a resume and for any batch size; mixup's labels are right."""

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from headway.schema.columns import Column
from tests.example_shards import write_examples
from tests.patched import patched
from tfcore.heads.head import head_of
from tfcore.train.augment import _SALT, _SHARE, LEVELS, Augment, Draws, beta_quantiles
from tfcore.train.config import AugmentConfig, TrainingConfig
from tfcore.train.request import TrainRequest
from tfcore.train.rows import training_data
from tfcore.transform.config import ColumnTransform

pytestmark = pytest.mark.long
ROWS = 500
COLUMNS = (
    Column(name="x", type="float32", nullable=True),
    Column(name="y", type="int64", nullable=False),
    Column(name="carrier", type="bytes", nullable=True, encoding="dictionary"),
    Column(name="origin", type="bytes", nullable=False, encoding="dictionary"),
    Column(name="hashed", type="int64", nullable=False),
    Column(name="tags", type="bytes", nullable=True, encoding="dictionary", shape=(None,)),
    Column(name="photo", type="bytes", nullable=False),
    Column(name="w", type="float32", nullable=False, role="weight"),
)
TRANSFORMS = {
    "y": ColumnTransform(transform="standardize"),
    "carrier": ColumnTransform(transform="vocabulary"),
    "origin": ColumnTransform(transform="vocabulary"),
    "hashed": ColumnTransform(transform={"hash": {"buckets": 9}}),
    "tags": ColumnTransform(transform="vocabulary"),
    "photo": ColumnTransform(transform={"image": {"height": 6, "width": 5}}),
}
IMAGELESS = {name: transform for name, transform in TRANSFORMS.items() if name != "photo"}
"""Enough for what is of labels: reading images is most of a pipeline's time here."""
LABELS = {"binary": "int64", "multiclass": "bytes", "regression": "float32"}
EVERYTHING = {"flip": "horizontal", "crop": 1, "mixup": 0.4}


_small_windows = patched({"tfcore.train.rows.window_rows": lambda row_bytes: 100})


def table(task, rows=ROWS):
    rng = np.random.default_rng(0)
    numbers = np.arange(rows)
    # raw pixels: what files become is tested beside the transform of images
    photos = [rng.integers(0, 255, (6, 5, 3)).astype(np.uint8).tobytes() for _ in range(20)]
    label = {
        "binary": pa.array(numbers % 2),
        "multiclass": pa.array([[b"a", b"b", b"c"][i % 3] for i in numbers], pa.binary()),
        "regression": pa.array(numbers.astype(np.float32)),
    }[task]
    words = pa.array([None if i % 9 == 0 else f"w{i % 5}".encode() for i in numbers], pa.binary())
    return pa.table(
        {
            "x": pa.array(rng.normal(size=rows).astype(np.float32), mask=numbers % 10 == 0),
            "y": pa.array(numbers),
            "carrier": words.dictionary_encode(),
            "origin": pa.array([f"o{i % 3}".encode() for i in numbers], pa.binary()).dictionary_encode(),
            "hashed": pa.array(numbers % 50),
            "tags": pa.array(
                [None if i % 7 == 0 else [b"t%d" % (i % 4)] * (i % 3) for i in numbers], pa.list_(pa.binary())
            ),
            "photo": pa.array([photos[i % 20] for i in numbers], pa.binary()),
            "w": pa.array(rng.uniform(0.5, 2, rows).astype(np.float32)),
            "label": label,
        }
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    made = {}
    for task, kind in LABELS.items():
        columns = (*COLUMNS, Column(name="label", type=kind, nullable=False, role="label"))
        folder = tmp_path_factory.mktemp(task)
        made[task] = write_examples(folder, {"train": table(task)}, columns, rows_per_record=32, shards=3)
    return made


def data(found, task, augment, batch=16, transforms=TRANSFORMS):
    """One for all that begin somewhere in it, whose transform is traced once."""
    key = task, repr(augment), batch, *transforms
    if key not in found:
        training = TrainingConfig(batch_size=batch, augment=augment)
        parameters = found[task].fit(transforms, task)
        found[key] = training_data(
            TrainRequest(examples=(found[task].part("train"),), transform=parameters, training=training, seed=5)
        )
    return found[key]


def rows_of(found, task, augment, *, batch=16, stack=2, start=0, stacks=4, transforms=TRANSFORMS):
    """The rows of some stacks, one behind the other, by input."""
    begun = data(found, task, augment, batch, transforms).stack_reader(stack)(start)
    taken = [next(begun) for _ in range(stacks)]
    return {
        name: np.concatenate([s[name].numpy().reshape(stack * batch, *s[name].shape[2:]) for s in taken])
        for name in taken[0]
    }


@pytest.fixture(scope="module")
def plain(written):
    """plain(task, transforms) -> two epochs of rows as they are."""
    read = {}

    def rows(task, transforms=TRANSFORMS):
        key = (task, *transforms)
        if key not in read:
            read[key] = rows_of(written, task, None, stacks=32, transforms=transforms)
        return read[key]

    return rows


def first(rows, count):
    return {name: values[:count] for name, values in rows.items()}


@pytest.fixture(scope="module")
def whole(written):
    """More than two epochs of rows with everything varied."""
    rows = rows_of(written, "multiclass", EVERYTHING, stacks=40)
    for values in rows.values():
        values.flags.writeable = False
    return rows


def same(found, wanted, where):
    assert set(found) == set(wanted)
    for name in found:
        np.testing.assert_array_equal(found[name], wanted[name][where], err_msg=name)


@pytest.mark.parametrize(
    ("start", "batch", "stack"),
    [(31, 16, 2), (62, 16, 2), (8, 100, 1)],  # over the first epoch's end, over the second's, and within the second one
)
def test_a_resumed_training_sees_the_same_rows_at_any_step_in_batches_of_any_size(written, whole, start, batch, stack):
    found = rows_of(written, "multiclass", EVERYTHING, start=start, batch=batch, stack=stack, stacks=2)
    same(found, whole, slice(start * batch, (start + 2 * stack) * batch))


def test_threads_change_nothing(written, whole, monkeypatch):
    import tfcore.data.dataset

    monkeypatch.setattr(tfcore.data.dataset, "AUTOTUNE", 1)
    same(rows_of(written, "multiclass", EVERYTHING, stacks=20), whole, slice(640))


def test_epochs_and_copies_of_a_row_differ(written, plain):
    plain = plain("regression")
    varied = rows_of(written, "regression", {"flip": "both", "crop": 2}, stacks=32)
    for epoch in (0, 1):
        part = slice(epoch * ROWS, (epoch + 1) * ROWS)
        np.testing.assert_array_equal(varied["label"][part], plain["label"][part])
    first, second = (
        varied["image_photo"][e * ROWS : (e + 1) * ROWS][np.argsort(plain["label"][e * ROWS : (e + 1) * ROWS])]
        for e in (0, 1)
    )
    assert (first != second).any(axis=(1, 2, 3)).mean() > 0.9
    copies = first[::20]  # of one photo
    assert len({copy.tobytes() for copy in copies}) > len(copies) / 2


def test_mixup_mixes_inputs_and_labels_by_one_share(written, plain):
    plain = first(plain("multiclass"), 480)
    mixed = rows_of(written, "multiclass", {"mixup": 0.5}, stacks=15)
    inside = np.flatnonzero(np.arange(480) % 100 != 0)  # a window's first row has its last as partner
    mine, theirs, share = assert_mixed("multiclass", plain, mixed, inside)
    part = share[:, None, None, None]
    pixels = part * mine["image_photo"].astype(np.float32) + (1 - part) * theirs["image_photo"]
    assert abs(mixed["image_photo"][inside].astype(int) - pixels).max() < 0.51
    assert mixed["label"].shape == (480, 3) and mixed["label"].dtype == np.float32
    np.testing.assert_allclose(mixed["label"].sum(1), 1, atol=1e-6)


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_mixup_mixes_labels_of_one_number_too(written, task):
    """On rows made here: the label does not change how they come out of shards."""
    rng = np.random.default_rng(1)
    rows = {
        "numeric": rng.normal(size=(480, 3)).astype(np.float32),
        "categorical": rng.integers(0, 9, (480, 3)).astype(np.int32),
        "lists": rng.integers(-1, 4, (480, 2)).astype(np.int32),
        "label": np.float32(rng.integers(0, 2, 480) if task == "binary" else rng.normal(size=480)),
        "weight": rng.uniform(0.5, 2, 480).astype(np.float32),
    }
    augment = Augment(AugmentConfig(mixup=0.5), written[task].fit(IMAGELESS, task), seed=5)
    window = {name: tf.constant(value) for name, value in rows.items()}
    zero = tf.constant(0, tf.int64)
    found = augment(window | augment.extras(window, tf.range(480), tf.constant(0), zero, zero))
    assert_mixed(task, rows, {name: value.numpy() for name, value in found.items()}, np.arange(1, 480))


def assert_mixed(task, plain, mixed, inside):
    """(the rows at `inside`, those before them, the share of each of the former) of rows that were mixed in epoch 0."""
    index = tf.constant(inside, tf.int64)
    draws = Draws(seed=5 + _SALT, epoch=tf.constant(0, tf.int64), index=index)
    share = beta_quantiles(0.5)[draws.below(_SHARE, LEVELS).numpy()]
    mine, theirs = ({name: value[rows] for name, value in plain.items()} for rows in (inside, inside - 1))
    numbers = share[:, None] * mine["numeric"] + (1 - share)[:, None] * theirs["numeric"]
    np.testing.assert_allclose(mixed["numeric"][inside], numbers, atol=1e-6)
    ids = mixed["categorical"][inside]
    other = (ids != mine["categorical"]).any(1)
    assert ((ids == mine["categorical"]) | (ids == theirs["categorical"])).all() and other.any()
    own, rest = share * mine["weight"], (1 - share) * theirs["weight"]
    np.testing.assert_allclose(mixed["weight"][inside], own + rest, rtol=1e-6)
    # the loss is that of both rows, each by its share and weight
    output = tf.constant(
        np.random.default_rng(0).normal(size=(len(inside), 3 if task == "multiclass" else 1)), tf.float32
    )
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(output)
        loss = mixed["weight"][inside] * head_of(task).loss({"label": tf.constant(mixed["label"][inside])}, output)
        both = own * head_of(task).loss({"label": tf.constant(mine["label"])}, output)
        both += rest * head_of(task).loss({"label": tf.constant(theirs["label"])}, output)
    np.testing.assert_allclose(tape.gradient(loss, output), tape.gradient(both, output), rtol=1e-3, atol=1e-5)
    if task != "regression":  # of squares, the losses differ by what no model can change
        np.testing.assert_allclose(loss, both, rtol=1e-4)
    return mine, theirs, share


def test_a_row_of_no_weight_is_not_mixed_in(written):
    augment = Augment(AugmentConfig(mixup=1.0), written["regression"].fit(TRANSFORMS, "regression"), seed=0)
    window = {
        "numeric": tf.constant([[1.0] * 3, [5.0] * 3, [9.0] * 3]),
        "categorical": tf.zeros([3, 3], tf.int32),
        "lists": tf.zeros([3, 2], tf.int32),
        "image_photo": tf.zeros([3, 6, 5, 3], tf.uint8),
        "label": tf.constant([1.0, 5.0, 9.0]),
        "weight": tf.constant([1.0, 0.0, 1.0]),
    }
    placed = augment.extras(window, tf.range(3), tf.constant(0), tf.constant(0, tf.int64), tf.constant(0, tf.int64))
    found = augment(window | placed)
    assert found["label"].numpy()[2] == 9.0 and found["numeric"].numpy()[2, 0] == 9.0  # its partner weighs nothing
    assert found["weight"].numpy()[1] == 0.0
    assert 1.0 < found["label"].numpy()[0] <= 5.0


def test_in_a_graph_it_is_what_it_is_eagerly(written, plain):
    augment = Augment(AugmentConfig(**EVERYTHING), written["multiclass"].fit(TRANSFORMS, "multiclass"), seed=1)
    rows = first(plain("multiclass"), 96)
    window = {name: tf.constant(value) for name, value in rows.items()}
    order = tf.range(len(rows["weight"]), dtype=tf.int32)[::-1]
    shuffled = {name: tf.gather(value, order) for name, value in window.items()}
    placed = augment.extras(window, order, tf.constant(0), tf.constant(2, tf.int64), tf.constant(77, tf.int64))
    eager, graph = augment(shuffled | placed), tf.function(augment.__call__, autograph=False)(shuffled | placed)
    for name in rows:
        np.testing.assert_array_equal(eager[name], graph[name], err_msg=name)
        assert eager[name].dtype == rows[name].dtype or name == "label"
        assert eager[name].shape[1:] == rows[name].shape[1:] or name == "label"
