"""One step under the glass: what is seen is what is trained with, and what is wrong is named where it begins."""

import json

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from headway.errors import Cancelled, HeadwayError
from headway.monitor import Monitor
from headway.schema.columns import Column
from tfcore.debug.eager import eager_step
from tfcore.debug.findings import problems
from tfcore.debug.inspect_step import debug_step
from tfcore.debug.layer_report import watched
from tfcore.debug.request import DebugRequest
from tfcore.debug.summary import summarize
from tfcore.graph.knobs import KnobVariables
from tfcore.models.config import ModelConfig
from tfcore.testing import assert_same_bytes, write_examples
from tfcore.train.request import TrainRequest
from tfcore.train.settings.config import OptimizerConfig, TrainingConfig
from tfcore.train.stage import train
from tfcore.train.steps.learner import Learner
from tfcore.transform.config import ColumnTransform

K, B, N = 2, 16, 3
SPECS = {
    "numeric": tf.TensorSpec([K, B, N], tf.float32),
    "label": tf.TensorSpec([K, B], tf.float32),
    "weight": tf.TensorSpec([K, B], tf.float32),
}
RATE = {"learning_rate": 0.01}


def stack(scale=1.0):
    rng = np.random.default_rng(0)
    numeric = (scale * rng.standard_normal((K, B, N))).astype(np.float32)
    label = (numeric.sum(2) > 0).astype(np.float32)
    return {
        key: tf.constant(v) for key, v in {"numeric": numeric, "label": label, "weight": np.ones_like(label)}.items()
    }


def model(*between):
    """Dense layers around whatever is to go wrong."""
    keras.utils.set_random_seed(0)
    inputs = {"numeric": keras.Input([N], name="numeric")}
    x = keras.layers.Dense(4, name="first")(inputs["numeric"])
    for layer in between:
        x = layer(x)
    return keras.Model(inputs, keras.layers.Dense(1, name="output")(x))


def learner(net, **keywords):
    step = tf.Variable(0, dtype=tf.int64, trainable=False)
    knobs = KnobVariables(["learning_rate"])
    optimizer = OptimizerConfig()
    return Learner(
        model=net, head="binary", step=step, specs=SPECS, optimizer=optimizer, knobs=knobs, jit="off", **keywords
    )


def seen(net, **batch):
    return eager_step(learner(net), {key: value[0] for key, value in stack().items()} | batch, RATE)


class Layer(keras.layers.Layer):
    """A function as a layer."""

    def __init__(self, function, **keywords):
        super().__init__(**keywords)
        self.function = function

    def call(self, x):
        return self.function(x)


@pytest.mark.parametrize(
    ("tensor", "facts"),
    [
        (lambda: tf.constant([0.0, 2.0, np.nan, np.inf]), ("float32", [4], 0.0, 2.0, 1.0, 0.25, 1, 1)),
        (lambda: tf.constant([np.nan], tf.bfloat16), ("bfloat16", [1], None, None, None, 0.0, 1, 0)),
        (lambda: tf.constant([[3, 0]], tf.int64), ("int64", [1, 2], 0.0, 3.0, 1.5, 0.5, 0, 0)),
        (lambda: tf.constant([True, False]), ("bool", [2], 0.0, 1.0, 0.5, 0.5, 0, 0)),
        (lambda: tf.zeros([0, 2]), ("float32", [0, 2], None, None, None, 0.0, 0, 0)),
        (lambda: tf.ragged.constant([[1.0], [], [3.0, 2.0]]), ("float32", [3, None], 1.0, 3.0, 2.0, 0.0, 0, 0)),
        (
            lambda: tf.IndexedSlices(tf.constant([[2.0]]), tf.constant([1]), tf.constant([2, 1])),
            ("float32", [2, 1], 0.0, 2.0, 1.0, 0.5, 0, 0),
        ),
        (lambda: tf.constant(["a"]), ("string", [1])),
    ],
)
def test_a_tensor_is_summed_up(tensor, facts):
    assert tuple(summarize(tensor()).values()) == facts


def test_the_eager_step_is_the_training_s_own_and_leaves_no_trace():
    it = learner(model(keras.layers.BatchNormalization(), keras.layers.ReLU()))
    values = stack()
    variables = {str(i): v for i, v in enumerate(v for group in it.variables().values() for v in group)}
    before = {name: variable.numpy() for name, variable in variables.items()}
    found = eager_step(it, {key: value[0] for key, value in values.items()}, RATE)
    assert_same_bytes({name: variable.numpy() for name, variable in variables.items()}, before)
    weights = [w.copy() for w in it.model.get_weights()]
    outcome = it.run(values, first=0, steps=1, knobs={"learning_rate": np.full(K, 0.01, np.float32)})
    assert found["loss"] == pytest.approx(float(outcome.losses[0]), rel=1e-5)
    kernel = np.linalg.norm(it.model.get_weights()[0] - weights[0]) / np.linalg.norm(weights[0])
    assert found["variables"][0]["change"] == pytest.approx(kernel, rel=1e-3)
    assert [layer["layer"].rstrip("_0123456789") for layer in found["layers"]] == [
        "first",
        "batch_normalization",
        "re_lu",
        "output",
    ]
    assert found["applied"] and problems(found, [float(outcome.losses[0])], [True]) == []


def test_the_first_layer_with_a_nan_is_named_and_only_that_one():
    inner = keras.Sequential([keras.layers.ReLU(), Layer(lambda x: tf.math.log(x - x), name="log")], name="inner")
    found = seen(model(inner))
    first, *rest = problems(found)
    assert (first["where"], first["kind"]) == ("layer 'log' (Layer)", "not finite")
    assert "its inputs were finite" in first["problem"]
    assert not [one for one in rest if "layer" in one["where"]]
    depths = {layer["layer"]: layer["depth"] for layer in found["layers"]}
    assert depths["log"] == 1 and depths["inner"] == 0
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("layer", "kind", "where"),
    [
        (lambda: Layer(lambda x: tf.nn.relu(x - 100.0), name="off"), "dead layer", "layer 'off' (Layer)"),
        (
            lambda: keras.layers.Lambda(lambda x: x * tf.constant([1.0, 0.0, 0.0, 1.0]), name="half"),
            "dead units",
            "layer 'half' (Lambda)",
        ),
        (lambda: Layer(lambda x: x * 1e9, name="huge"), "exploding", "layer 'huge' (Layer)"),
        (lambda: Layer(tf.stop_gradient, name="stop"), "no gradient", "variable 'first/kernel'"),
        (lambda: Layer(lambda x: x * 0.0 + 1.0, name="none"), "zero gradient", "variable 'first/kernel'"),
        (lambda: Layer(lambda x: tf.sqrt(x * 0.0) + x, name="root"), "not finite", "the gradient of 'first/kernel'"),
    ],
)
def test_problems_are_reported_with_their_place(layer, kind, where):
    found = problems(seen(model(layer())))
    assert (kind, where) in {(one["kind"], one["where"].partition(", ")[0]) for one in found}, found


def test_units_that_start_at_zero_are_not_dead_and_dead_ones_are_reported():
    keras.utils.set_random_seed(0)
    x = keras.Input([N], name="numeric")
    hidden = keras.layers.Dense(4, activation="relu", name="hidden")(x)
    gone = keras.layers.Dense(4, activation="relu", bias_initializer=keras.initializers.Constant(-100.0), name="gone")(
        x
    )
    half = keras.layers.Lambda(lambda h: h * tf.constant([1.0, 0.0, 0.0, 1.0]), name="half")(hidden)
    passed = keras.layers.ReLU(name="passed")(half)
    both = keras.layers.Concatenate(name="both")([passed, gone])
    parts = [
        keras.layers.Dense(1, kernel_initializer="zeros", name="output")(both),
        keras.layers.Rescaling(10.0, name="speed")(
            keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", name="wide")(x)
        ),
    ]
    net = keras.Model({"numeric": x}, keras.layers.Add(name="sum")(parts))
    found = problems(seen(net), later=["hidden/kernel", "hidden/bias"])
    assert [(one["kind"], one["where"]) for one in found if one["kind"] != "zero gradient"] == [
        ("dead units", "layer 'half' (Lambda)"),
        ("dead layer", "layer 'gone' (Dense)"),
    ]
    zero = [one["where"] for one in found if one["kind"] == "zero gradient"]
    assert zero == ["variable 'gone/kernel'", "variable 'gone/bias'"]


def test_wrong_inputs_and_a_loss_that_only_seems_finite_are_reported():
    bad = tf.constant(np.full((B, N), np.nan, np.float32))
    found = problems(seen(model(), numeric=bad), [0.5], [False])
    assert found[0]["where"] == "input 'numeric'" and "48 NaN in float32 [16, 3]" in found[0]["problem"]
    assert "eager is not graph" in [one["kind"] for one in found]
    skipped = problems(seen(model()), [None, 0.5], [False, True])
    assert [(one["kind"], one["problem"][-11:]) for one in skipped] == [("not finite", "1 of 2 were")]


def test_a_layer_that_raises_is_named_with_what_it_was_given():
    net = model(Layer(lambda x: x + tf.zeros([x.shape[0] or 1, 4]), name="sum"))
    net.get_layer("sum").function = lambda x: x + tf.zeros([7, 7])
    with pytest.raises(HeadwayError, match=r"layer 'sum', given float32 \(16, 4\): raised InvalidArgumentError"):
        seen(net)
    with watched(net) as calls:
        pass
    assert calls == [] and "call" not in vars(net.get_layer("sum"))


@pytest.mark.long
def test_the_stage_reports_and_profiles_and_touches_nothing_else(tmp_path):
    rng = np.random.default_rng(0)
    rows = pa.table({"x": rng.standard_normal(400).astype(np.float32), "label": rng.integers(0, 2, 400)})
    columns = (
        Column(name="x", type="float32", nullable=False),
        Column(name="label", type="int64", nullable=False, role="label"),
    )
    examples = write_examples(tmp_path / "examples", {"train": rows}, columns, rows_per_record=64)
    train = TrainRequest(
        examples=(examples.part("train"),),
        transform=examples.fit(task="binary"),
        model=ModelConfig(hidden=(4,)),
        training=TrainingConfig(batch_size=32, steps=50, steps_per_call=2, jit="on"),
        checkpoints=tmp_path / "checkpoints",
        summaries=tmp_path / "summaries",
        control=tmp_path / "control.json",
    )
    out = tmp_path / "out"
    found = debug_step(DebugRequest(train=train, steps=4), out, Monitor())
    compiled = found["compiled"]
    assert (compiled["mode"], compiled["refused"], compiled["python"]) == ("jit", None, [])
    assert len(compiled["losses"]) == 4 and len(compiled["seconds"]) == 3 and found["problems"] == []
    assert found["profile"] == str(out / "profile") and list((out / "profile").rglob("*.xplane.pb"))
    assert json.loads((out / "report.json").read_text()) == found
    assert sorted(path.name for path in tmp_path.iterdir()) == ["examples", "out"]
    uncompiled = train.training.model_copy(update={"jit": "off"})  # the report is the same, but for what XLA says
    linear = train.model_copy(update={"model": ModelConfig(hidden=(4,), linear=True), "training": uncompiled})
    found = debug_step(DebugRequest(train=linear, steps=2, profile=False), tmp_path / "linear", Monitor())
    (bias,) = (one for one in found["variables"] if one["name"] == "hidden_0/bias")
    assert (
        found["profile"] is None and bias["gradient"]["zeros"] == 1.0 and found["problems"] == []
    )  # behind an output that starts at zero


@pytest.mark.long
def test_the_step_after_a_checkpoint_is_the_one_that_the_training_goes_on_with(tmp_path):
    """Weights, rows and knobs are those of that step: its loss is what the training itself would have seen."""
    rng = np.random.default_rng(0)
    rows = pa.table({"x": rng.standard_normal(400).astype(np.float32), "label": rng.integers(0, 2, 400)})
    columns = (
        Column(name="x", type="float32", nullable=False),
        Column(name="label", type="int64", nullable=False, role="label"),
    )
    examples = write_examples(tmp_path / "examples", {"train": rows}, columns, rows_per_record=64)

    def request(**training):
        rate = {"name": "cosine", "initial": 0.05}
        settings = {"batch_size": 32, "steps": 50, "steps_per_call": 4, "learning_rate": rate, "jit": "off"} | training
        return TrainRequest(
            examples=(examples.part("train"),),
            transform=examples.fit(task="binary"),
            model=ModelConfig(hidden=(4,), dropout=0.2),
            training=TrainingConfig(**settings),
        )

    class Stop(Monitor):
        asked = 0

        def cancelled(self):  # before each call
            self.asked += 1
            if self.asked == 4:
                self.stop.set()
            return super().cancelled()

    whole = debug_step(DebugRequest(train=request(), steps=20, profile=False), tmp_path / "whole", Monitor())
    kept = tmp_path / "kept"
    with pytest.raises(Cancelled):
        train(request(checkpoint_every_steps=3).model_copy(update={"checkpoints": kept}), tmp_path / "trained", Stop())
    (newest,) = {max(int(path.name) for path in kept.iterdir())}
    assert newest % 4, "not where a stack begins"
    asked = DebugRequest(train=request(), checkpoints=kept, steps=4)  # a profile changes no bit
    found = debug_step(asked, tmp_path / "out", Monitor())
    assert found["step"] == newest
    assert found["loss"] == pytest.approx(whole["compiled"]["losses"][newest], rel=1e-5)
    assert found["compiled"]["losses"] == whole["compiled"]["losses"][newest : newest + 4]
    assert found["knobs"]["learning_rate"] < 0.05


class Read(keras.layers.Layer):
    """A kernel that has a gradient only eagerly."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1],), initializer="ones", name="kernel")

    def call(self, x):
        return x * (self.kernel if tf.executing_eagerly() else tf.stop_gradient(tf.convert_to_tensor(self.kernel)))


def test_a_variable_that_only_the_eager_step_trains_is_a_problem_and_a_line_of_the_training_s_log():
    lines = []
    inputs = {"numeric": keras.Input([N], name="numeric")}
    net = keras.Model(inputs, keras.layers.Dense(1, name="output")(Read(name="read")(inputs["numeric"])))
    it = learner(net, log=lines.append)
    values = stack()
    found = eager_step(it, {key: value[0] for key, value in values.items()}, RATE)
    assert lines == [] and problems(found) == []
    for _ in range(2):
        it.run(values, first=0, steps=1, knobs={"learning_rate": np.full(K, 0.01, np.float32)})
    assert it.train_step.unreached == ["read/kernel"]
    assert len(lines) == 1 and "no gradient reaches 'read/kernel': not trained" in lines[0]
    (told,) = problems(found, still=it.train_step.unreached)
    assert (told["kind"], told["where"]) == ("eager is not graph", "variable 'read/kernel'")


def of_ones_own(folder, x, label, source, transform=None, **training):
    """A training of the function `model` of a module with this source, on one column."""
    columns = (
        Column(name="x", type="float32", nullable=False),
        Column(name="label", type="int64", nullable=False, role="label"),
    )
    rows = pa.table({"x": x, "label": label})
    examples = write_examples(folder / "examples", {"train": rows}, columns, rows_per_record=64)
    module = folder / "mine.py"
    module.write_text(source)
    return TrainRequest(
        examples=(examples.part("train"),),
        transform=examples.fit(transform, task="binary"),
        model=ModelConfig(name="mine:model"),
        module=module,
        training=TrainingConfig(batch_size=16, steps_per_call=4, **training),
    )


def test_a_variable_that_the_compiled_step_leaves_unchanged_is_reported(tmp_path):
    rng = np.random.default_rng(0)
    source = (
        "import keras\nimport tensorflow as tf\n\n\nclass Scaled(keras.layers.Layer):\n"
        "    def build(self, shape):\n"
        "        self.read = self.add_weight(shape=(), initializer='ones', name='read')\n"
        "        self.once = self.add_weight(shape=(), initializer='ones', name='once')\n\n"
        "    def call(self, x):\n"
        "        if tf.executing_eagerly():\n"
        "            return x * self.read * self.once\n"
        "        return x * (0.0 * self.once + 1.0)\n\n\n"
        "def model(layout, options):\n"
        "    inputs = {n: keras.Input(r, dtype=d, name=n) for n, (r, d) in layout.inputs().items()}\n"
        "    return keras.Model(inputs, keras.layers.Dense(1)(Scaled(name='mine')(inputs['numeric'])))\n"
    )
    x, label = rng.standard_normal(128).astype(np.float32), rng.integers(0, 2, 128)
    train = of_ones_own(tmp_path, x, label, source, steps=8, jit="off")
    found = debug_step(DebugRequest(train=train, steps=2, profile=False), tmp_path / "out", Monitor())
    assert [(one["kind"], one["where"]) for one in found["problems"]] == [
        ("eager is not graph", "variable 'mine/read'"),  # no gradient
        ("eager is not graph", "variable 'mine/once'"),  # one that is 0
    ]


def test_a_step_that_fails_later_is_the_one_that_is_looked_at(tmp_path):
    values = np.zeros(128, np.float32)
    values[100] = 3e38  # one row, whose square is infinite
    source = (
        "import keras\n\n\ndef model(layout, options):\n"
        "    inputs = {n: keras.Input(r, dtype=d, name=n) for n, (r, d) in layout.inputs().items()}\n"
        "    square = keras.ops.square(inputs['numeric'])\n"
        "    return keras.Model(inputs, keras.layers.Dense(1)(square))\n"
    )
    as_it_is = {"x": ColumnTransform(transform="identity")}
    train = of_ones_own(tmp_path, values, np.arange(128) % 2, source, as_it_is, steps=16, non_finite_limit=2)
    found = debug_step(DebugRequest(train=train, steps=8, profile=False), tmp_path / "out", Monitor())
    first = found["compiled"]["applied"].index(False)
    assert found["step"] == first > 0
    assert found["problems"][0]["where"].startswith("layer 'square"), found["problems"]
