"""The heads of the built-in tasks: losses, predictions, served outputs and where they start."""

from types import SimpleNamespace

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import ConfigError, DataError
from headway.schema.columns import Column
from headway.statistics.column_statistics import ColumnStatistics
from headway.tasks.table import task_of
from headway.tasks.user_task import load_task
from tests.example_shards import write_examples
from tests.properties import examples
from tfcore.heads.head import head_of, label_head
from tfcore.heads.label_parameters import fit_label
from tfcore.heads.losses import NAMED, with_loss
from tfcore.heads.weighted_labels import WeightedLabel
from tfcore.train.config import LOSSES, OptimizerConfig, TrainingConfig
from tfcore.train.step import TrainStep, make_optimizer

OUTPUT = np.array([[0.3], [2.0]], np.float32)
CLASSES = np.array([[0.3, -1.0], [2.0, 0.1]], np.float32)
SIGMOID = 1 / (1 + np.exp(-OUTPUT[:, 0]))
SOFTMAX = np.exp(CLASSES) / np.exp(CLASSES).sum(1, keepdims=True)


@pytest.mark.parametrize(
    ("task", "output", "expected"),
    [
        ("binary", OUTPUT, [-np.log(SIGMOID[0]), -np.log(1 - SIGMOID[1])]),
        ("multiclass", CLASSES, [-np.log(SOFTMAX[0, 1]), -np.log(SOFTMAX[1, 0])]),
        ("regression", OUTPUT, [0.49, 4.0]),
        ("count", OUTPUT, [np.exp(0.3) - 0.3, np.exp(2.0)]),
        # the label 1 lies above both outputs by 0.7 and 2, the label 0 below by 2 and 0.1
        ("quantiles(0.1, 0.9)", CLASSES, [(0.1 * 0.7 + 0.9 * 2.0) / 2, (0.9 * 2.0 + 0.1 * 0.1) / 2]),
    ],
)
def test_the_loss_of_each_row(task, output, expected):
    found = head_of(task, ("a", "b")).loss({"label": tf.constant([1, 0], tf.int64)}, tf.constant(output))
    assert found.shape == (2,) and np.allclose(found, expected, rtol=1e-5)


def test_smoothed_losses_of_classes_are_those_of_soft_labels():
    output, label = np.array([[0.3, -1.0, 2.0]], np.float32), tf.constant([1])
    soft = np.full((1, 3), 0.3 / 3)
    soft[0, 1] += 0.7
    expected = tf.nn.softmax_cross_entropy_with_logits(soft.astype(np.float32), output)
    for labels in (label, tf.one_hot(label, 3)):
        found = head_of("multiclass").loss({"label": labels}, output, smoothing=tf.constant(0.3))
        assert np.allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression", "count", "quantiles(0.2, 0.6)"])
def test_predictions_in_tensorflow_and_numpy_agree_and_are_what_is_served(task):
    classes = ("a", "b") if task == "multiclass" else ()
    head = head_of(task, classes)
    output = np.random.default_rng(0).normal(size=(50, head.outputs)).astype(np.float32)
    predictions = head.predictions(tf.constant(output)).numpy()
    np.testing.assert_allclose(predictions, task_of(task).from_output(output.astype(np.float64)), rtol=1e-5)
    served = head.served(tf.constant(output))
    wanted = [tuple(entry) for entry in task_of(task).outputs(classes)]
    assert [(name, value.dtype.name, tuple(value.shape[1:])) for name, value in served.items()] == wanted
    np.testing.assert_array_equal(served[task_of(task).output], predictions)


def test_quantiles_never_cross_and_the_middle_one_is_the_prediction():
    served = head_of("quantiles").served(tf.constant([[3.0, 1.0, 2.0]]))
    assert served["quantiles"].numpy().tolist() == [[1.0, 2.0, 3.0]] and served["prediction"].numpy().tolist() == [2.0]


@pytest.mark.parametrize(
    ("label", "prediction"),
    [
        (SimpleNamespace(task="binary", classes=None, counts=(90, 10)), [0.1]),
        (SimpleNamespace(task="multiclass", classes=("a", "b"), counts=(90, 10)), [[0.9, 0.1]]),
        (SimpleNamespace(task="regression", classes=None, mean=50.0, std=4.0), [50.0]),
        (SimpleNamespace(task="count", classes=None, mean=3.0, std=4.0), [3.0]),
        (
            SimpleNamespace(task="quantiles(0.1, 0.9)", classes=None, mean=50.0, std=4.0, quantiles=(42.0, 61.0)),
            [[42.0, 61.0]],
        ),
    ],
)
def test_a_model_starts_at_the_distribution_of_the_train_labels(label, prediction):
    head = label_head(label)
    start = head.initial_bias(label)
    scale, centre = head.scale_and_centre(label)
    bias = np.zeros(head.outputs, np.float32) if start is None else start
    np.testing.assert_allclose(head.predictions(tf.constant([bias * scale + centre])), prediction, rtol=1e-5)


OUTPUTS = np.array([[0.5], [3.0]], np.float32)


@pytest.mark.parametrize(
    ("task", "name", "expected"),
    [
        ("regression", "squared_error", [0.25, 9.0]),
        ("regression", "absolute_error", [0.5, 3.0]),
        ("regression", "huber", [0.125, 2.5]),
        (
            "binary",
            "focal",
            [
                (1 / (1 + np.exp(0.5))) ** 2 * np.log1p(np.exp(-0.5)),
                (1 / (1 + np.exp(-3.0))) ** 2 * np.log1p(np.exp(3.0)),
            ],
        ),
    ],
)
def test_named_losses(task, name, expected):
    head = with_loss(head_of(task), name)
    found = head.loss({"label": tf.constant([1.0, 0.0])}, OUTPUTS)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    before = head_of(task).loss({"label": tf.constant([1.0, 0.0])}, OUTPUTS)
    assert name == "squared_error" or not np.allclose(before, found), "the task's own head keeps its loss"


def test_a_loss_that_does_not_fit_the_task_is_refused_with_those_that_do():
    assert NAMED == LOSSES
    with pytest.raises(ConfigError, match="focal is not a loss of a regression task\n  fix: there is: squared_error"):
        with_loss(head_of("regression"), "focal")
    with pytest.raises(ConfigError, match="huber is not a loss of a multiclass task\n  fix: write module:function"):
        with_loss(head_of("multiclass", ["a", "b", "c"]), "huber")
    with pytest.raises(ValueError, match="loss"):
        TrainingConfig(loss="hubber")


def test_a_users_loss_is_checked_where_it_is_called(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import tensorflow as tf\n"
        "def cubed(batch, outputs):\n    return tf.abs(outputs[:, 0] - batch['label']) ** 3\n"
        "def mean(batch, outputs):\n    return tf.reduce_mean(outputs)\n"
        "def broken(batch, outputs):\n    return batch['nothing']\n"
    )

    def loss(name):
        head = with_loss(head_of("regression"), f"mine:{name}", tmp_path / "mine.py")
        return head.loss({"label": tf.constant([1.0, 0.0])}, OUTPUTS)

    np.testing.assert_allclose(loss("cubed"), [0.125, 27.0])
    said = r"the loss mine:mean is float32 of shape \(\)\n  fix: return one float32 per"
    with pytest.raises(ConfigError, match=said):
        loss("mean")
    with pytest.raises(ConfigError, match=r"mine\.py, line 7: the loss mine:broken failed: KeyError") as error:
        loss("broken")
    assert error.value.fix == "a batch has: label"


OWN = """
import tensorflow as tf

def error(label, prediction, columns):
    return 0.0

class Own:
    metrics = {"error": error}
    outputs = 2

    def loss(self, batch, outputs):
        return tf.square(outputs[:, 0] - batch["label"]) + outputs[:, 1] ** 2

    def predictions(self, outputs):
        return outputs[:, 0] * 2.0

class Steps(Own):
    def train_step(self, model, batch):
        with tf.GradientTape() as tape:
            loss = 7.0 * tf.reduce_mean(self.loss(batch, model({"numeric": batch["numeric"]}, training=True)))
        return loss, tape.gradient(loss, model.trainable_variables)
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path / "own.py"


def step_of(head):
    inputs = keras.Input((3,), name="numeric")
    outputs = keras.layers.Dense(2, kernel_initializer="ones")(inputs)
    model = keras.Model({"numeric": inputs}, outputs)
    optimizer = make_optimizer(OptimizerConfig(name="sgd"))
    optimizer.build(model.trainable_variables)
    counter = tf.Variable(0, dtype=tf.int64)
    return TrainStep(model=model, head=head, optimizer=optimizer, counter=counter)


BATCH = {"numeric": np.ones([4, 3], np.float32), "label": np.zeros(4, np.float32), "weight": np.ones(4, np.float32)}


def test_its_loss_gives_the_gradients_and_its_predictions_what_is_served(file):
    head = label_head(SimpleNamespace(task="own:Own", file=file, classes=None))
    assert head.outputs == 2 and head.task.name == "own:Own"
    part = step_of(head).part(BATCH)
    assert float(part.loss) == pytest.approx(18.0)
    np.testing.assert_allclose(part.gradients[0], np.full((3, 2), 6.0))
    assert head.served(tf.constant([[3.0, 1.0]]))["prediction"].numpy().tolist() == [6.0]


def test_its_train_step_replaces_the_step(file):
    head = head_of(load_task("own:Steps", file))
    part = step_of(head).part(BATCH)
    assert float(part.loss) == pytest.approx(126.0)
    np.testing.assert_allclose(part.gradients[0], np.full((3, 2), 42.0))


@pytest.mark.parametrize(
    ("body", "said", "fix"),
    [
        ("return 1.0", "line 5: train_step of the task t:Own returned one float", "return loss, tape.gradient"),
        ("return 1.0, [], {}", "line 5: train_step of the task t:Own returned 3 values", "return loss, tape.gradient"),
        (
            "return 1.0, [None]",
            "line 5: train_step of the task t:Own returned 1 instead of a gradient for each of the 2",
            "return",
        ),
        ("return tf.zeros([4]), [None, None]", "line 5: the loss of train_step has the shape (4,)", "take its mean"),
        (
            "return batch['labels']",
            "line 6: train_step of the task t:Own failed: KeyError: 'labels'",
            "numeric, label, weight",
        ),
        (
            "return batch['label'].numpy()",
            "line 6: train_step of the task t:Own failed",
            "tf.print; training: {eager: true}",
        ),
        ("return 1 / 0", "line 6: train_step of the task t:Own failed: ZeroDivisionError", "correct the line"),
    ],
)
def test_a_mistake_in_a_train_step_has_its_file_its_line_and_a_fix(tmp_path, body, said, fix):
    (tmp_path / "t.py").write_text(
        "import tensorflow as tf\nclass Own:\n    metrics = {'e': len}\n    loss = len\n"
        f"    def train_step(self, model, batch):\n        {body}\n"
    )
    step = step_of(head_of(load_task("t:Own", tmp_path / "t.py")))
    with pytest.raises(ConfigError) as error:
        tf.function(lambda batch: step.part(batch).loss)({name: tf.constant(value) for name, value in BATCH.items()})
    assert f"t.py, {said}" in str(error.value) and fix in error.value.fix


FLOAT, INT, TEXT = (Column(name="label", type=kind, nullable=False) for kind in ("float32", "int64", "bytes"))


def weighted(column, labels, weights, pieces=2):
    label = WeightedLabel(column)
    for part in np.array_split(np.arange(len(labels)), pieces):
        type = {"float32": pa.float32(), "int64": pa.int64(), "bytes": pa.binary()}[column.type]
        label.add(pa.array([labels[i] for i in part], type), pa.array([weights[i] for i in part], pa.float32()))
    return label


def fitted(column, labels, weights, task):
    return fit_label(ColumnStatistics("label", column.type), task, weighted=weighted(column, labels, weights))


@examples(60)
@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 4)), min_size=3, max_size=40))
def test_a_weight_of_n_is_n_rows(rows):
    labels, weights = (np.array(side) for side in zip(*rows, strict=True))
    repeated = np.repeat(labels, weights)
    if not len(repeated):
        return
    label = weighted(FLOAT, labels.tolist(), weights.tolist())
    np.testing.assert_allclose([label.mean, label.std], [repeated.mean(), repeated.std()], atol=1e-9)
    levels = [0.1, 0.5, 0.9]
    assert label.quantile(levels) == np.quantile(repeated, levels, method="inverted_cdf").tolist()


def test_rows_of_weight_0_do_not_count_at_all():
    r = np.random.default_rng(0)
    labels, weights = r.normal(size=1000), np.ones(1000)
    labels[::50], weights[::50] = 1e5, 0.0
    label = fitted(FLOAT, labels.tolist(), weights.tolist(), "quantiles(0.1, 0.5, 0.9)")
    assert abs(label.mean) < 0.2 and abs(label.std - 1) < 0.1 and max(label.quantiles) < 2 and abs(label.median) < 0.2
    # a class that only they have is none
    label = fitted(TEXT, [b"a", b"b", b"?", b"b"], [1, 2, 0, None], "auto")
    assert label.task == "binary" and label.classes == ("a", "b")
    assert label.counts == (1, 1) and label.base_rate == pytest.approx(2 / 3)
    label = fitted(INT, [0, 1, 2, 9, 2], [1.0, 1.0, 2.0, 0.0, 4.0], "multiclass")
    assert label.classes == (0, 1, 2) and label.counts == (1, 1, 3)
    # nor is it one of a label that is 0 or 1 elsewhere
    label, all_rows = weighted(INT, [0, 1, -1, 1], [1, 1, 0, 1]), ColumnStatistics("label", "int64")
    all_rows.update(pa.array([0, 1, -1, 1]))
    assert fit_label(all_rows, "auto", weighted=label).classes == (0, 1)


def test_no_row_that_counts_is_said():
    stats = ColumnStatistics("label", "float32")
    stats.update(pa.array([1.0, 2.0], pa.float32()))
    with pytest.raises(DataError, match="no train row with a label has a weight above 0"):
        fit_label(stats, "regression", weighted=weighted(FLOAT, [1.0, 2.0], [0, 0]))


@pytest.mark.parametrize("rows_per_record", [7, 4096])
def test_shards_are_read_again_where_rows_have_weights(tmp_path, rows_per_record):
    columns = [
        Column(name="x", type="float32", nullable=False),
        Column(name="w", type="float32", nullable=True, role="weight"),
        Column(name="label", type="float32", nullable=False),
    ]
    table = pa.table(
        {
            "x": pa.array(np.arange(40), pa.float32()),
            "w": pa.array([None if i == 3 else float(i % 4) for i in range(40)], pa.float32()),
            "label": pa.array([1e6 if i % 4 == 0 else i for i in range(40)], pa.float32()),
        }
    )
    written = write_examples(tmp_path, {"train": table}, columns, rows_per_record=rows_per_record)
    label = written.fit().label
    w, y = table["w"].fill_null(0).to_numpy(), table["label"].to_numpy()
    assert label.mean == pytest.approx(np.average(y, weights=w)) and label.mean < 40
