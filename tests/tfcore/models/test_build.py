"""tfcore.models.build: shapes, seeds, user modules, weights."""

import functools
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from headway.errors import ConfigError, StoreError
from tests.same_bytes import assert_same_bytes
from tfcore.graph.python_op import all_nodes
from tfcore.heads.head import head_of
from tfcore.models.build import build, load_trained, load_weights, save_weights
from tfcore.models.config import BUILT_IN, ModelConfig
from tfcore.models.layers import HashDropout, ListEmbedding, OffsetEmbedding, hash_uniform, sum_by_id
from tfcore.train.cost import SCATTERS


def layout(task="binary", numeric=2, sizes=(5, 7), classes=None, **label):
    return SimpleNamespace(
        rows=100,
        numeric=tuple(f"n{i}" for i in range(numeric)),
        categorical=tuple(SimpleNamespace(name=f"c{i}", size=size) for i, size in enumerate(sizes)),
        lists=(),
        edges=((-1.0, 0.0, 1.0), ())[:numeric] + ((),) * (numeric - 2),
        inputs=lambda: {"numeric": ((numeric,), "float32"), "categorical": ((len(sizes),), "int32")},
        label=SimpleNamespace(task=task, classes=classes, **label),
    )


def rows(layout, count=6, seed=0):
    rng = np.random.default_rng(seed)
    sizes = [entry.size for entry in layout.categorical]
    return {
        "numeric": tf.constant(rng.standard_normal((count, len(layout.numeric))), tf.float32),
        "categorical": tf.constant(rng.integers(0, sizes or 1, (count, len(sizes))), tf.int32),
    }


ANY_TASK = [name for name in BUILT_IN if name != "two_towers"]
SMALL = {"hidden": (8, 4), "embedding": 3}


@pytest.mark.parametrize("name", ANY_TASK)
@pytest.mark.parametrize(
    ("kind", "width"),
    [
        (layout(), 1),
        (layout(numeric=0), 1),
        (layout(sizes=()), 1),
        (layout("multiclass", classes=["a", "b", "c"]), 3),
        (layout("regression", mean=100.0, std=10.0), 1),
        (layout("count", mean=3.0), 1),
        (layout("quantiles(0.1, 0.9)", mean=100.0, std=10.0, quantiles=(80.0, 120.0)), 2),
    ],
)
def test_built_in_models_give_one_output_for_each_row(name, kind, width):
    model = build(ModelConfig(name=name, **SMALL), kind, seed=1)
    assert model(rows(kind)).shape == (6, width)


@pytest.mark.parametrize("name", ANY_TASK)
def test_the_initial_weights_are_a_function_of_the_seed(name):
    def weights(seed):
        keras.random.normal([3])  # what was drawn before must not matter
        model = build(ModelConfig(name=name, **SMALL), layout(), seed=seed)
        return [value.tobytes() for value in model.get_weights()]

    assert weights(3) == weights(3)
    assert weights(3) != weights(4)


def test_outputs_begin_at_what_the_label_is_on_average():
    kind = layout(counts=(90, 10))
    model = build(ModelConfig(**SMALL), kind, seed=0)
    nothing = {key: tf.zeros_like(value) for key, value in rows(kind).items()}
    assert np.allclose(head_of("binary").predictions(model(nothing)), 0.1, atol=0.03)
    kind = layout("multiclass", classes=["a", "b"], counts=(90, 10))
    assert np.allclose(
        head_of("multiclass", ["a", "b"]).predictions(build(ModelConfig(**SMALL), kind, seed=0)(nothing))[:, 1],
        0.1,
        atol=0.03,
    )
    kind = layout("regression", mean=2000.0, std=3.0)
    assert np.allclose(build(ModelConfig(**SMALL), kind, seed=0)(nothing), 2000, atol=1)


def test_the_linear_part_of_an_ensemble_begins_at_the_base_rate_and_has_the_penalty_of_a_logistic_regression():
    kind = layout(numeric=64, counts=(90, 10))  # 66 inputs: it learns 32 / 66 * 10 times as fast
    model = build(ModelConfig(**SMALL), kind, seed=0)
    np.testing.assert_allclose(head_of("binary").predictions(model(rows(kind))), 0.1, atol=1e-6)
    assert not float(sum(model.losses))
    table, speed = model.get_layer("linear_numeric").kernel, 10.0 * 32 / 66
    table.assign(tf.ones_like(table))
    assert np.isclose(float(tf.add_n(model.losses)), 64 * speed**2 / 2 / kind.rows)
    inputs = rows(kind)
    logit = np.log(0.1 / 0.9) + speed * tf.reduce_sum(inputs["numeric"], axis=1)
    np.testing.assert_allclose(model(inputs)[:, 0], logit, rtol=1e-4)


def test_members_see_no_column_of_few_rows_per_id_and_the_linear_part_sees_all():
    kind = layout(sizes=(5, 51, 50))
    model = build(ModelConfig(**SMALL), kind, seed=0)
    assert model.get_layer("embeddings").table.shape == (55, 3)
    assert model.get_layer("linear_categorical").table.shape == (106, 1)
    kind.rows = 51 * 20
    assert build(ModelConfig(**SMALL), kind, seed=0).get_layer("embeddings").table.shape == (106, 3)


def test_an_ensemble_whose_members_see_no_column_is_its_linear_part():
    alone = layout(numeric=0, sizes=(70,))
    wanted = ["linear_categorical/table", "output/bias"]
    assert [variable.path for variable in build(ModelConfig(**SMALL), alone, seed=0).variables] == wanted


def test_weights_of_members_and_of_what_they_share_decay_and_biases_and_the_linear_part_do_not():
    model = build(ModelConfig(**SMALL), layout(), seed=0)
    decaying = {variable.path for variable in model.variables if getattr(variable, "decay", None) is not None}
    kernels = {f"{name}/kernel" for name in ("hidden_0", "hidden_1", "output")}
    assert decaying == kernels | {"embeddings/table", "numeric_embeddings/slopes", "numeric_embeddings/bins"}


def test_numbers_have_narrower_embeddings_the_more_there_are():
    for numbers, width in ((2, 8), (100, 5), (600, 1)):
        kind = layout(numeric=numbers)
        slopes = build(ModelConfig(hidden=(4,)), kind, seed=0).get_layer("numeric_embeddings").slopes
        assert slopes.shape == (numbers, width)


def test_an_ensemble_of_images_is_an_mlp():
    kind, _ = with_everything()
    names = {layer.name for layer in build(ModelConfig(**SMALL), kind, seed=0).layers}
    assert names >= {layer.name for layer in build(ModelConfig(name="mlp", **SMALL), kind, seed=0).layers}
    assert "members" not in names


def test_one_table_looks_up_what_a_table_for_each_column_would():
    layer = OffsetEmbedding((5, 7), 3, seed=0)
    ids = tf.constant([[0, 0], [4, 6]])
    table = (layer(ids), layer.table.numpy())[1]
    assert np.array_equal(layer(ids), [[table[0], table[5]], [table[4], table[11]]])


@pytest.mark.parametrize(
    ("layer", "shape"),
    [(OffsetEmbedding((3, 4), 2, seed=1), [6, 2]), (ListEmbedding((3, 4), (2, 1), 2, seed=1), [6, 3])],
)
def test_for_a_gpu_an_embedding_has_the_same_gradient_without_a_scatter(layer, shape, monkeypatch):
    ids = tf.constant(np.random.default_rng(0).integers(0, 3, shape), tf.int32)
    upstream = np.random.default_rng(1).standard_normal((6, 2, 2)).astype(np.float32)

    def run(jit):
        @tf.function(input_signature=[tf.TensorSpec(shape, tf.int32)], jit_compile=jit, autograph=False)
        def differentiated(ids):
            with tf.GradientTape() as tape:
                found = layer(ids)
                total = tf.reduce_sum(found * upstream)
            return found, tf.convert_to_tensor(tape.gradient(total, layer.trainable_variables[0]))

        nodes = {node.op for node in all_nodes(differentiated.get_concrete_function().graph.as_graph_def())}
        return nodes & SCATTERS, differentiated(ids)

    plain, expected = run(False)
    assert plain == {"UnsortedSegmentSum"} and run(True)[0] == plain
    monkeypatch.setattr("tfcore.graph.xla._device", lambda: "GPU")
    assert run(False)[0] == plain, "only where XLA compiles"
    scatters, found = run(True)
    assert scatters == set()
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6, atol=1e-7)
    monkeypatch.setattr("tfcore.models.layers.MOST_ONE_HOT", 7 * 6)  # a larger matrix takes too much memory
    scatters, found = run(True)
    assert scatters == set()
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("count", "compiled"), [*((count, False) for count in (1, 2, 3, 64, 1000)), (1, True), (3, True), (64, True)]
)
def test_terms_are_summed_by_id_as_a_scatter_sums_them(count, compiled):
    random = np.random.default_rng(count)
    ids = random.integers(0, 50, count) ** 2 // 7  # many of the low ids, none of most
    terms = random.standard_normal((count, 3)).astype(np.float32)
    summed = tf.function(functools.partial(sum_by_id, rows=400), jit_compile=compiled, autograph=False)
    expected = np.zeros((400, 3))
    np.add.at(expected, ids, terms)
    np.testing.assert_allclose(summed(tf.constant(terms), tf.constant(ids, tf.int32)), expected, rtol=1e-5, atol=1e-5)


def test_dropout_masks_are_the_same_with_and_without_xla_and_change_with_every_part():
    def draw(step, seed, salt):
        return hash_uniform([50, 20], seed, step, salt)

    plain = draw(tf.constant(7, tf.int64), 3, 1).numpy()
    jitted = tf.function(draw, jit_compile=True, autograph=False)(tf.constant(7, tf.int64), 3, 1).numpy()
    assert_same_bytes(plain, jitted)
    assert plain.min() >= 0
    assert plain.max() < 1
    for other in [(8, 3, 1), (7, 4, 1), (7, 3, 2), (7 + 2**32, 3, 1)]:
        different = draw(tf.constant(other[0], tf.int64), *other[1:]).numpy()
        assert abs(np.corrcoef(plain.ravel(), different.ravel())[0, 1]) < 0.1


def test_dropout_drops_its_share_scales_the_rest_and_is_off_in_prediction():
    layer = HashDropout(0.3, seed=0, salt=0, step=tf.Variable(0, dtype=tf.int64))
    x = tf.ones([200, 100])
    dropped = layer(x, training=True).numpy()
    assert abs((dropped == 0).mean() - 0.3) < 0.02
    assert np.allclose(dropped[dropped > 0], 1 / 0.7)
    assert np.array_equal(layer(x, training=False), x)
    with pytest.raises(ValueError, match="built to predict"):
        HashDropout(0.3, seed=0, salt=0, step=None)(x, training=True)


def test_weights_come_back_and_other_models_are_refused(tmp_path):
    model, again = (build(ModelConfig(**SMALL), layout(), seed=seed) for seed in (1, 2))
    save_weights(model, tmp_path / "weights")
    load_weights(again, tmp_path / "weights")
    assert np.array_equal(model(rows(layout())), again(rows(layout())))
    with pytest.raises(StoreError, match=r"output/|hidden_0/|linear_"):
        load_weights(build(ModelConfig(hidden=(9,), embedding=3), layout(), seed=1), tmp_path / "weights")
    with pytest.raises(StoreError, match="cannot be read"):
        load_weights(again, tmp_path / "nothing")


def test_a_trained_model_is_built_once_for_the_same_weights_and_has_those_that_are_in_the_file_now(tmp_path):
    weights, kind = tmp_path / "weights", layout()
    models = [build(ModelConfig(**SMALL), kind, seed=seed) for seed in (1, 2)]
    found = []
    for model in models:
        save_weights(model, weights)
        found.append(load_trained(ModelConfig(**SMALL), kind, seed=0, module=None, weights=weights))
        np.testing.assert_allclose(found[-1](rows(kind)), model(rows(kind)), rtol=1e-6)
    assert found[0] is found[1]
    save_weights(models[0], tmp_path / "others")
    others = load_trained(ModelConfig(**SMALL), kind, seed=0, module=None, weights=tmp_path / "others")
    assert others is not found[1]
    np.testing.assert_allclose(found[1](rows(kind)), models[1](rows(kind)), rtol=1e-6)  # as it was


def with_everything(task="binary", images=True):
    """A layout of numbers, categories, lists of categories and images."""
    kind = layout(task, counts=(90, 10))
    kind.lists = (SimpleNamespace(name="l", size=6, width=4),)
    inputs = kind.inputs() | {"lists": ((4,), "int32")} | ({"photo": ((8, 8, 3), "uint8")} if images else {})
    kind.inputs = lambda: inputs
    given = rows(kind)
    given["lists"] = tf.constant(np.random.default_rng(1).integers(-1, 6, (6, 4)), tf.int32)
    if images:
        given["photo"] = tf.constant(np.random.default_rng(1).integers(0, 256, (6, 8, 8, 3)), tf.uint8)
    return kind, given


@pytest.mark.parametrize("name", ANY_TASK)
def test_keras_saves_and_loads_a_built_in_model(tmp_path, name):
    kind, given = with_everything(images=name == "mlp")
    step = tf.Variable(0, dtype=tf.int64)
    config = ModelConfig(name=name, dropout=0.25, **SMALL)
    model = build(config, kind, seed=3, step=step)
    for variable in model.variables:  # as if trained: not what the seed gives
        variable.assign_add(np.random.default_rng(0).normal(0, 0.1, variable.shape).astype("float32"))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_same_bytes(model(given, training=False).numpy(), loaded(given, training=False).numpy())
    names = {type(layer).__name__ for layer in loaded.layers}
    assert {"HashDropout", "OffsetEmbedding", "ListEmbedding"} <= names
    assert loaded.get_layer("dropout_0").get_config()["rate"] == 0.25
    with pytest.raises(ValueError, match="built to predict"):
        loaded(given, training=True)
    assert keras.models.clone_model(model).count_params() == model.count_params()


@pytest.mark.parametrize(
    "layer",
    [
        lambda: HashDropout(0.3, seed=5, salt=2, step=tf.Variable(0, dtype=tf.int64), name="d"),
        lambda: OffsetEmbedding(np.array([5, 7]), 3, seed=4, initial="zeros"),
        lambda: ListEmbedding((5, 7), (2, 3), 3, seed=4, power=0.5),
    ],
    ids=["HashDropout", "OffsetEmbedding", "ListEmbedding"],
)
def test_a_layer_comes_back_from_its_config(layer):
    layer = layer()
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert type(again) is type(layer) and again.get_config() == layer.get_config()
    if not isinstance(layer, HashDropout):
        ids = tf.constant([[0, 1, 2, 3, -1], [4, 3, 2, 1, 0]], tf.int32)[
            :, : 5 if "List" in type(layer).__name__ else 2
        ]
        assert_same_bytes(layer(ids).numpy(), again(ids).numpy())


USER = """
import keras

def good(layout, options):
    inputs = {"numeric": keras.Input((len(layout.numeric),), name="numeric"),
              "categorical": keras.Input((len(layout.categorical),), dtype="int32", name="categorical")}
    x = keras.layers.Dense(options["width"], activation="relu")(inputs["numeric"])
    return keras.Model(inputs, keras.layers.Dense(options.get("outputs", 1))(x))

def one_input(layout, options):
    x = keras.Input((len(layout.numeric),))
    return keras.Model(x, keras.layers.Dense(1)(x))

def nothing(layout, options):
    return None

def fails(layout, options):
    return layout.numerics

def compiled(layout, options):
    model = good(layout, {"width": 4})
    model.compile("sgd", loss="hinge")
    return model

class Focal(keras.Model):
    def compute_loss(self, **given):
        return 0.0

class Steps(Focal):
    def train_step(self, data):
        return {}

def with_loss(layout, options):
    model = good(layout, {"width": 4})
    return Focal(model.input, model.output)

def with_step(layout, options):
    model = good(layout, {"width": 4})
    return Steps(model.input, model.output)

def patched(layout, options):
    model = good(layout, {"width": 4})
    object.__setattr__(model, "train_step", lambda data: {})
    return model

import tensorflow as tf

class Scale(keras.layers.Layer):
    def __init__(self, held, **keywords):
        super().__init__(**keywords)
        self.weight, self.held, self.rate = self.add_weight(shape=[]), held, 0.5
        self.own = [self.weight.value]

    def call(self, x):
        return x * self.weight

class Holder(tf.Module):
    def __init__(self):
        self.deep = tf.Variable(1.0)

def scaled(layout, options):
    held = {"variable": lambda: tf.Variable(1.0), "list": lambda: [{"a": tf.Variable(1.0)}], "module": Holder,
            "table": lambda: tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1), "number": lambda: 1.0,
            "static": lambda: tf.constant([1.0])}[options["held"]]()
    inputs = good(layout, {"width": 4}).input
    return keras.Model(inputs, keras.layers.Dense(1)(Scale(held, name="scale")(inputs["numeric"])))

def closing(layout, options):
    factor = tf.Variable(1.0)
    inputs = good(layout, {"width": 4}).input
    x = keras.layers.Lambda(lambda x: x * factor, name="times")(inputs["numeric"])
    return keras.Model(inputs, keras.layers.Dense(1)(x))
"""


def test_a_layer_may_hold_its_weights_and_constants(module):
    for held in ("number", "static"):
        config = ModelConfig(name="my_models:scaled", options={"held": held})
        assert len(build(config, layout(), seed=0, module=module).variables) == 3


@pytest.fixture
def module(tmp_path):
    file = tmp_path / "my_models.py"
    file.write_text(USER)
    return file


def test_a_users_model_is_built_from_its_file_by_the_seed(module):
    config = ModelConfig(name="my_models:good", options={"width": 4})
    first, second = (build(config, layout(), seed=5, module=module).get_weights() for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        ("goodd", {}, "did you mean 'good'?"),
        ("good", {}, "KeyError: 'width'"),
        ("good", {"width": 4, "outputs": 2}, "output is float32 of shape ['rows', 2]"),
        ("one_input", {}, "inputs are"),
        ("nothing", {}, "returned a NoneType, not a keras.Model"),
        ("fails", {}, "my_models.py, line 18"),
        ("compiled", {}, "the model is compiled (optimizer SGD, loss hinge), and Headway trains it otherwise"),
        ("compiled", {}, "return the model without compile()"),
        ("with_loss", {}, "the class Focal has a compute_loss of its own, and Headway does not call it"),
        ("with_step", {}, "the class Steps has a train_step of its own"),
        ("with_step", {}, "self.add_loss(...)"),
        ("patched", {}, "has a train_step of its own"),
        (
            "scaled",
            {"held": "variable"},
            "layer 'scale' (Scale) holds a tf.Variable as 'held', which Keras does not count",
        ),
        ("scaled", {"held": "variable"}, "self.add_weight(shape=..."),
        ("scaled", {"held": "list"}, "holds a tf.Variable as \"held[0]['a']\""),
        ("scaled", {"held": "module"}, "holds a tf.Variable as 'held.deep'"),
        ("scaled", {"held": "table"}, "holds a MutableHashTable as 'held', which is not a weight of the model"),
        ("closing", {}, "layer 'times' (Lambda) holds a tf.Variable as 'function: factor'"),
    ],
)
def test_what_is_wrong_with_a_users_model_is_named(module, function, options, words):
    with pytest.raises(ConfigError) as caught:
        build(ModelConfig(name=f"my_models:{function}", options=options), layout(), seed=0, module=module)
    assert words in str(caught.value)


def test_a_module_that_is_missing_or_broken_is_named(tmp_path):
    config = ModelConfig(name="gone:model")
    with pytest.raises(ConfigError, match="no such file"):
        build(config, layout(), seed=0, module=tmp_path / "gone.py")
    broken = tmp_path / "gone.py"
    broken.write_text("x = 1\ndef f(:\n")
    with pytest.raises(ConfigError, match=r"gone.py, line 2: cannot be loaded: SyntaxError"):
        build(config, layout(), seed=0, module=broken)
