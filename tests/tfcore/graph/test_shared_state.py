"""State between graphs: seen by all, checkpointed by name, and nothing in a copy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from headway.errors import StoreError
from tfcore.graph.function import graph_function
from tfcore.graph.shared_state import SharedState, SharingError

X = {"x": tf.TensorSpec([None, 2], tf.float32)}


def model(width=3):
    keras.utils.set_random_seed(0)
    inputs = keras.Input([2], name="x")
    hidden = keras.layers.Dense(width, name="hidden")(inputs)
    return keras.Model(inputs, keras.layers.Dense(1, name="output")(hidden))


def made(width=3):
    state = SharedState()
    state.hold("seen", tf.Variable(0, dtype=tf.int64, trainable=False))
    state.hold("rate", tf.Variable(0.1, trainable=False, name="rate"))
    net = state.hold("model", model(width))
    optimizer = keras.optimizers.Adam()
    optimizer.build(net.trainable_variables)
    state.hold("optimizer", optimizer)
    state.hold("loss", keras.metrics.Mean(name="loss"))
    state.hold("words", tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1))
    return state


def functions(state):
    net, optimizer = state["model"], state["optimizer"]
    trained = [v.value for v in net.trainable_variables]

    @graph_function(signature={**X, "words": tf.TensorSpec([None], tf.string)})
    def train(x, words):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(net(x) - 1.0))
        optimizer.learning_rate = tf.convert_to_tensor(state["rate"])
        optimizer.apply(tape.gradient(loss, trained), net.trainable_variables)
        state["loss"].update_state(loss)
        state["words"].insert(words, tf.range(tf.size(words, tf.int64), dtype=tf.int64))
        return state["seen"].assign_add(tf.shape(x, tf.int64)[0])

    @graph_function(signature={**X, "words": tf.TensorSpec([None], tf.string)})
    def evaluate(x, words):
        return net(x), state["words"].lookup(words), state["seen"].read_value(), state["loss"].result()

    return train, evaluate


ROWS, WORDS = np.ones([4, 2], np.float32), np.array([b"a", b"b"])


def test_two_functions_see_each_other_s_writes_and_hold_nothing_by_value():
    state = made()
    train, evaluate = functions(state)
    before = evaluate(x=ROWS, words=WORDS)
    assert before[1].numpy().tolist() == [-1, -1] and int(before[2]) == 0
    for number in range(3):
        assert int(train(x=ROWS, words=WORDS)) == 4 * (number + 1)
    after = evaluate(x=ROWS, words=WORDS)
    assert not np.allclose(before[0], after[0])
    assert after[1].numpy().tolist() == [0, 1] and int(after[2]) == 12 and float(after[3]) > 0
    weights = [w.copy() for w in state["model"].get_weights()]
    state["rate"].assign(0.0)  # from outside
    train(x=ROWS, words=WORDS)
    assert all(np.array_equal(a, b) for a, b in zip(weights, state["model"].get_weights(), strict=True))
    assert train.traces == evaluate.traces == 1


def values(state):
    return {
        f"{name}/{path}": part.numpy()
        for name in state._things
        for path, part in state.parts(name).items()
        if isinstance(part, tf.Variable)
    }


def test_a_checkpoint_comes_back_by_name(tmp_path):
    state, other = made(), made()
    train, _ = functions(state)
    train(x=ROWS, words=WORDS)
    state.save(tmp_path / "state")
    other.restore(tmp_path / "state")
    before, after = values(state), values(other)
    assert {"seen/", "rate/", "model/hidden/kernel", "loss/total"} < set(after) and before.keys() == after.keys()
    assert all(np.array_equal(value, after[name]) for name, value in before.items())
    assert other["words"].lookup(tf.constant(WORDS)).numpy().tolist() == [0, 1]


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.hold("later", tf.Variable(0.0)),
        lambda state: state._things.pop("seen"),
        lambda state: state._things.update(model=model(width=5)),
        lambda state: state._things.update(rate=tf.Variable(1, trainable=False)),
        lambda state: state._things.update(words=tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, 0.0)),
    ],
    ids=["one more", "one less", "another shape", "another dtype", "another table"],
)
def test_a_checkpoint_of_another_state_is_refused(tmp_path, change):
    state, other = made(), made()
    state.save(tmp_path / "state")
    change(other)
    with pytest.raises(StoreError, match="cannot be restored: ") as caught:
        other.restore(tmp_path / "state")
    assert "hold the same things" in caught.value.fix
    with pytest.raises(StoreError, match="cannot be restored: "):
        other.restore(tmp_path / "nothing")


def test_every_kind_of_table_comes_back_also_within_a_module(tmp_path):
    def tables():
        state, module = SharedState(), tf.Module()
        integers = (tf.int64, tf.int64, -1)
        module.inner = tf.lookup.experimental.MutableHashTable(*integers)
        state.hold("module", module)
        state.hold("dense", tf.lookup.experimental.DenseHashTable(*integers, empty_key=-1, deleted_key=-2))
        state.hold("static", tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), 0))
        return state, [module.inner, state["dense"]]

    (state, filled), (other, empty) = tables(), tables()
    assert [list(state.parts(name)) for name in ("module", "dense", "static")] == [["inner"], [""], []]
    keys, numbers = tf.constant([3, 0], tf.int64), tf.constant([30, 1], tf.int64)
    for one, two in zip(filled, empty, strict=True):
        one.insert(keys, numbers)
        two.insert(tf.constant([8, 3], tf.int64), numbers)  # is to be gone
    state.save(tmp_path / "state")
    other.restore(tmp_path / "state")
    for table in empty:
        assert table.lookup(tf.constant([0, 3, 8], tf.int64)).numpy().tolist() == [1, 30, -1]


def test_a_dataset_is_each_function_s_own_pass_and_an_iterator_is_one_for_all(tmp_path):
    def made(dataset):
        state = SharedState()
        rows = state.hold("rows", dataset)
        state.hold("once", iter(rows.shuffle(10, seed=1)))
        return state

    def functions(state):
        total = graph_function()(lambda: state["rows"].reduce(np.int64(0), lambda a, b: a + b))
        count = graph_function()(lambda: state["rows"].reduce(np.int64(0), lambda a, _: a + 1))
        first = graph_function()(lambda: state["once"].get_next())
        second = graph_function()(lambda: -state["once"].get_next())
        return total, count, first, second

    state = made(tf.data.Dataset.range(10))
    total, count, first, second = functions(state)
    assert [int(total()), int(count()), int(total())] == [45, 10, 45]
    taken = [int(first()), -int(second()), int(first())]
    state.save(tmp_path / "state")
    rest = [int(first()) for _ in range(7)]
    assert sorted(taken + rest) == list(range(10))
    other = made(tf.data.Dataset.range(10))
    other.restore(tmp_path / "state")
    *_, second = functions(other)
    assert [-int(second()) for _ in range(7)] == rest


@pytest.mark.parametrize(
    "another",
    [
        lambda: tf.data.Dataset.range(10).shuffle(5, seed=1).batch(2).unbatch(),
        lambda: tf.data.Dataset.range(3).shuffle(2).map(float),
    ],
)
def test_the_place_of_an_iterator_fits_no_other_pipeline(tmp_path, another):
    state, other = SharedState(), SharedState()
    next(state.hold("once", iter(tf.data.Dataset.range(10))))
    state.save(tmp_path / "state")
    other.hold("once", iter(another().map(lambda x: tf.ensure_shape(x, []))))
    with pytest.raises(StoreError, match="cannot be restored: "):
        other.restore(tmp_path / "state")


def test_a_damaged_checkpoint_is_refused(tmp_path):
    state = made()
    state.save(tmp_path / "state")
    file = next(tmp_path.glob("state.data*"))
    file.write_bytes(bytes(byte ^ 255 for byte in file.read_bytes()))
    with pytest.raises(StoreError, match="cannot be restored: "):
        made().restore(tmp_path / "state")


def test_a_variable_of_two_names_comes_back(tmp_path):
    def made(value):
        state, module = SharedState(), tf.Module()
        module.a, module.b = tf.Variable(value), tf.Variable(value + 1)
        module.tied = [module.a]
        state.hold("module/s", module)
        state.hold("again", module.b)
        return state

    state, other = made(1.0), made(0.0)
    assert list(state.parts("module/s")) == ["a", "b"]  # each once in a thing
    state.save(tmp_path / "state")
    other.restore(tmp_path / "state")
    assert [float(v) for v in values(other).values()] == [1.0, 2.0, 2.0]


def test_the_place_of_a_dataset_that_calls_python_cannot_be_saved(tmp_path):
    state = SharedState()
    rows = tf.data.Dataset.range(3).map(lambda x: tf.numpy_function(lambda y: y, [x], tf.int64))
    state.hold("rows", iter(rows))
    with pytest.raises(StoreError, match="the shared state cannot be written: pyFunc is stateful"):
        state.save(tmp_path / "other")


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (lambda: tf.constant(1.0), "its own copy"),
        (lambda: 0.5, "its own copy"),
        (lambda: np.zeros(2), "its own copy"),
        (lambda: tf.data.Dataset.range(3).as_numpy_iterator(), "while it is traced"),
        (lambda: iter([1]), "while it is traced"),
        (lambda: keras.optimizers.Adam(), "optimizer.build"),
        (lambda: keras.Sequential([keras.layers.Dense(1)]), "call it on a batch first: it has no variables yet"),
        (lambda: keras.metrics.F1Score(), "call update_state"),
        (lambda: keras.metrics.R2Score(), "call update_state"),
        (lambda: {"a": 1}, "hold variables"),
    ],
)
def test_what_cannot_be_shared_is_refused(thing, words):
    with pytest.raises(SharingError, match=words):
        SharedState().hold("thing", thing())


class Ranker(tf.Module):
    """What Keras has, in a module of TensorFlow's."""

    def __init__(self):
        super().__init__()
        self.net = model()
        self.parts = {"norm": keras.layers.BatchNormalization(name="norm"), "free": [keras.Variable([1.0, 2.0])]}
        self.parts["norm"].build([None, 2])
        self.loss = keras.metrics.Mean()
        self.seeds, self.random = keras.random.SeedGenerator(1), tf.random.Generator.from_seed(1)
        self.step, self.weights = tf.Variable(0), [v.value for v in self.net.trainable_variables]
        self.optimizer = keras.optimizers.Adam()
        self.optimizer.build(self.net.trainable_variables)


def test_what_keras_and_others_keep_within_a_module_comes_back(tmp_path):
    state, other = SharedState(), SharedState()
    there, back = state.hold("ranker", Ranker()), other.hold("ranker", Ranker())
    parts = state.parts("ranker")
    # of one that is reached twice only the first name
    assert {"loss/total", "parts/free/0", "parts/norm/gamma", "seeds", "step", "net/hidden/kernel"} < set(parts)
    assert not any(name.startswith("weights") for name in parts) and len({id(v) for v in parts.values()}) == len(parts)
    for number, variable in enumerate(parts.values()):
        variable.assign(tf.cast(tf.ones_like(variable) * (number + 2), variable.dtype))
    state.save(tmp_path / "state")
    other.restore(tmp_path / "state")
    assert all(np.array_equal(value, values(other)[name]) for name, value in values(state).items())
    assert np.array_equal(there.net(ROWS), back.net(ROWS)) and float(back.loss.result()) == float(there.loss.result())
    assert np.array_equal(there.random.normal([4]), back.random.normal([4]))
    assert np.array_equal(keras.random.normal([4], seed=there.seeds), keras.random.normal([4], seed=back.seeds))


def test_a_variable_that_keras_does_not_list_comes_back_with_its_layer(tmp_path):
    class Scaled(keras.layers.Layer):
        def __init__(self):
            super().__init__(name="scaled")
            self.scale = tf.Variable(1.0)

        def call(self, x):
            return x * self.scale

    def made(value):
        net = keras.Sequential([keras.Input([2]), keras.layers.Dense(1, name="d"), Scaled()])
        net.layers[-1].scale.assign(value)
        state, module = SharedState(), tf.Module()
        module.layer = Scaled()
        module.layer(ROWS)
        module.layer.scale.assign(value + 1)
        state.hold("net", net)
        state.hold("module", module)
        return state

    state, other = made(5.0), made(0.0)
    assert len(values(state)) == 4 and len(state.groups()["net"]) == 2  # those that Keras would train
    state.save(tmp_path / "state")
    other.restore(tmp_path / "state")
    assert float(other["net"].layers[-1].scale) == 5.0 and float(other["module"].layer.scale) == 6.0


def test_what_has_no_variables_yet_is_refused_also_within_a_module():
    for lazy in (keras.metrics.F1Score(), keras.metrics.R2Score(), keras.layers.Dense(1), keras.optimizers.Adam()):
        module = tf.Module()
        module.inner = [lazy]
        with pytest.raises(SharingError, match="inner/0 has no variables yet"):
            SharedState().hold("module", module)
    score = keras.metrics.F1Score()
    score.update_state([[1.0, 0.0]], [[0.9, 0.1]])
    state = SharedState()
    state.hold("f1", score)
    assert "true_positives" in state.parts("f1")


def test_names_are_unique():
    state = SharedState()
    state.hold("a", tf.Variable(0))
    with pytest.raises(SharingError, match="held already"):
        state.hold("a", tf.Variable(0))
    state.hold("several", [tf.Variable(1.0), tf.Variable(2.0)])
    assert list(state.parts("several")) == ["0", "1"]
