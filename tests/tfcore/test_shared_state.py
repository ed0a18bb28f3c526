"""State between graphs: seen by all, checkpointed by name, and nothing in a copy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from headway.errors import StoreError
from tfcore.graph_function import graph_function
from tfcore.shared_state import SharedState, SharingError, captured_values

X = {"x": tf.TensorSpec([None, 2], tf.float32)}


def model(width=3):
    keras.utils.set_random_seed(0)
    inputs = keras.Input([2], name="x")
    hidden = keras.layers.Dense(width, name="hidden")(inputs)
    return keras.Model(inputs, keras.layers.Dense(1, name="output")(hidden))


def made(width=3):
    state = SharedState()
    state.counter("seen")
    state.knob("rate", 0.1)
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
    assert captured_values(train.trace(), state) == captured_values(evaluate.trace(), state) == []


def test_what_is_held_by_value_is_found():
    frozen, large = tf.constant([1.0, 2.0]), np.zeros(4096, np.float32)
    concrete = tf.function(lambda x: x @ frozen[:, None] + tf.reduce_sum(large)).get_concrete_function(X["x"])
    assert {text.split(" (")[0] for text in captured_values(concrete)} == {"float32 [2]", "float32 [4096]"}


def test_a_checkpoint_comes_back_by_name_and_says_what_did_not(tmp_path):
    state = made()
    train, _ = functions(state)
    train(x=ROWS, words=WORDS)
    state.save(tmp_path / "state")
    other = made()
    assert other.restore(tmp_path / "state").whole
    values = {name: v.numpy() for name, v in other.named().items()}
    assert {"seen", "rate", "model/hidden/kernel", "loss/total"} < set(values)
    assert all(np.array_equal(v.numpy(), values[name]) for name, v in state.named().items())
    assert other["words"].lookup(tf.constant(WORDS)).numpy().tolist() == [0, 1]
    # a state that has grown and shrunk since
    grown = SharedState()
    grown.hold("model", model(width=5))
    grown.counter("later")
    report = grown.restore(tmp_path / "state")
    assert report.restored == ("model/output/bias",) and report.not_found == ("later",)
    assert report.different == ("model/hidden/bias", "model/hidden/kernel", "model/output/kernel")
    assert "seen" in report.not_used and "words" in report.not_used and not report.whole
    assert str(report).startswith(
        "restored 1 of 5 variables; not found: later; of another dtype or shape: model/hidden/bias"
    )
    with pytest.raises(StoreError, match="no shared state"):
        grown.restore(tmp_path / "nothing")


def test_a_table_is_one_resource_after_export(tmp_path):
    class Served(tf.Module):
        def __init__(self):
            self.table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
            state = SharedState()
            state.hold("words", self.table)
            spec = tf.TensorSpec([None], tf.string)
            self.learn = tf.function(
                lambda words: (state["words"].insert(words, tf.range(tf.size(words, tf.int64), dtype=tf.int64)), words)[
                    1
                ],
                input_signature=[spec],
            )
            self.find = tf.function(lambda words: state["words"].lookup(words), input_signature=[spec])

    served = Served()
    served.learn(tf.constant([b"old"]))
    tf.saved_model.save(served, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    assert loaded.find(tf.constant([b"old", b"new"])).numpy().tolist() == [0, -1]
    loaded.learn(tf.constant([b"x", b"new"]))
    assert loaded.find(tf.constant([b"old", b"new"])).numpy().tolist() == [0, 1]


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (tf.constant(1.0), "a copy of its own"),
        (0.5, "a copy of its own"),
        (np.zeros(2), "a copy of its own"),
        (tf.data.Dataset.range(3), "goes through it anew"),
        (iter(tf.data.Dataset.range(3)), "whoever asks first"),
        (iter([1]), "whoever asks first"),
        (keras.optimizers.Adam(), "optimizer.build"),
        (keras.Sequential([keras.layers.Dense(1)]), "call it on a batch"),
        ({"a": 1}, "hold variables"),
    ],
)
def test_what_cannot_be_shared_says_so(thing, words):
    with pytest.raises(SharingError, match=words):
        SharedState().hold("thing", thing)


def test_names_are_unique():
    state = SharedState()
    state.counter("a")
    with pytest.raises(SharingError, match="held already"):
        state.counter("a")
    with pytest.raises(SharingError, match="there is: a"):
        state["b"]
    state.hold("several", [tf.Variable(1.0), tf.Variable(2.0)])
    assert list(state.named()) == ["a", "several/0", "several/1"]
