"""State between graphs: seen by all, checkpointed by name, and nothing in a copy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from headway.errors import StoreError
from tfcore.graph.function import graph_function
from tfcore.graph.shared_state import SharedState, SharingError, captured_values

X = {"x": tf.TensorSpec([None, 2], tf.float32)}


def model(width=3):
    keras.utils.set_random_seed(0)
    inputs = keras.Input([2], name="x")
    hidden = keras.layers.Dense(width, name="hidden")(inputs)
    return keras.Model(inputs, keras.layers.Dense(1, name="output")(hidden))


def made(width=3):
    state = SharedState()
    state.counter("seen")
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
    assert captured_values(train.trace(), state) == captured_values(evaluate.trace(), state) == []


@pytest.mark.parametrize(("values", "kind"), [(128, "Const"), (129, "Placeholder")])
def test_a_tensor_that_is_closed_over_is_copied_up_to_128_values_and_captured_by_reference_beyond(values, kind):
    tensor = tf.zeros([values])
    first, second = (tf.function(lambda: tensor + 1.0, autograph=False) for _ in range(2))
    for function in (first, second):
        graph = function.get_concrete_function().graph
        assert [captured is tensor for captured, _ in graph.captures] == [True]
        assert graph.captures[0][1].op.type == kind
    tensor = tf.ones([values])
    assert float(first()[0]) == 1.0  # another tensor of the name is not seen


def test_what_is_held_by_value_is_found():
    frozen, large = tf.constant([1.0, 2.0]), np.zeros(4096, np.float32)
    concrete = tf.function(lambda x: x @ frozen[:, None] + tf.reduce_sum(large)).get_concrete_function(X["x"])
    assert {text.split(" (")[0] for text in captured_values(concrete)} == {"float32 [2]", "float32 [4096]"}


def test_what_is_held_by_value_is_found_in_loops_branches_and_calls_once():
    large, frozen, scalar = np.arange(4096, dtype=np.float32), tf.constant([1.0, 2.0]), tf.TensorSpec([], tf.float32)

    def loop(y):
        return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + tf.reduce_sum(large)), (0, y))[1]

    def branch(y):
        return tf.cond(y > 0, lambda: y + tf.reduce_sum(large), lambda: y)

    inner = tf.function(lambda y: branch(loop(y)) * tf.reduce_sum(frozen), autograph=False)

    def call(y):
        with tf.GradientTape() as tape:
            tape.watch(y)
            loss = inner(y)
        return tape.gradient(loss, y)

    for body in (loop, branch, inner, call):
        names = captured_values(tf.function(body, autograph=False).get_concrete_function(scalar))
        expected = {"float32 [4096]"} | ({"float32 [2]"} if body in (inner, call) else set())
        assert {name.split(" (")[0] for name in names} == expected
        assert len(names) == len(expected)
    rows = tf.data.Dataset.range(3)
    over = tf.function(lambda: rows.map(lambda i: tf.gather(large, i)).reduce(0.0, lambda a, b: a + b), autograph=False)
    assert [n.split(" (")[0] for n in captured_values(over.get_concrete_function())] == ["float32 [4096]"]


def test_what_a_table_answers_for_other_words_is_its_own_wherever_it_is_held():
    words = tf.TensorSpec([None], tf.string)
    numbers = tf.lookup.KeyValueTensorInitializer(["a"], [1], value_dtype=tf.int64)
    module, kinds = tf.Module(), tf.lookup.experimental
    module.inner = [tf.lookup.StaticHashTable(numbers, 0), kinds.MutableHashTable(tf.string, tf.int64, -1)]
    layer = keras.layers.StringLookup(vocabulary=["a", "b"])
    net = keras.Sequential([keras.Input([], dtype="string"), layer])
    buckets = tf.lookup.StaticVocabularyTable(numbers, 2)
    state = SharedState()
    for name, thing in (("module", module), ("net", net), ("buckets", buckets)):
        state.hold(name, thing)
    tables = [*(table.lookup for table in module.inner), buckets.lookup, net]
    for look in tables:
        traced = tf.function(lambda x, look=look: look(x), autograph=False).get_concrete_function(words)
        assert captured_values(traced, state) == []
    alone = tf.function(lambda x: module.inner[0].lookup(x), autograph=False).get_concrete_function(words)
    assert captured_values(alone) == ["int64 []"]


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
        "restored 1 of 5 variables; not found: later; of another dtype, shape or dataset: model/hidden/bias"
    )
    with pytest.raises(StoreError, match="not a shared state"):
        grown.restore(tmp_path / "nothing")


def test_every_kind_of_table_comes_back_also_within_a_module(tmp_path):
    def tables():
        state, module = SharedState(), tf.Module()
        integers = (tf.int64, tf.int64, -1)
        module.inner = tf.lookup.experimental.MutableHashTable(*integers)
        state.hold("module", module)
        state.hold("dense", tf.lookup.experimental.DenseHashTable(*integers, empty_key=-1, deleted_key=-2))
        rows = tf.lookup.experimental.DenseHashTable(
            tf.int64, tf.float32, [0.0, 0.0], empty_key=[-1, -1], deleted_key=[-2, -2]
        )
        state.hold("rows", rows)
        state.hold("static", tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), 0))
        return state

    state, other = tables(), tables()
    assert list(state.parts()) == ["module/inner", "dense", "rows"]
    keys, values = tf.constant([3, 0], tf.int64), tf.constant([30, 1], tf.int64)
    for name in ("module/inner", "dense"):
        state.parts()[name].insert(keys, values)
        other.parts()[name].insert(tf.constant([8, 3], tf.int64), values)  # is to be gone
    state["rows"].insert(tf.constant([[1, 2]], tf.int64), tf.constant([[0.5, 0.25]]))
    state.save(tmp_path / "state")
    report = other.restore(tmp_path / "state")
    assert report.whole and report.restored == ("module/inner", "dense", "rows")
    for name in ("module/inner", "dense"):
        assert other.parts()[name].lookup(tf.constant([0, 3, 8], tf.int64)).numpy().tolist() == [1, 30, -1]
    assert other["rows"].lookup(tf.constant([[1, 2], [2, 1]], tf.int64)).numpy().tolist() == [[0.5, 0.25], [0, 0]]
    third = SharedState()
    third.hold("dense", tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1))
    assert third.restore(tmp_path / "state").different == ("dense",)


def test_a_dataset_is_each_function_s_own_pass_and_an_iterator_is_one_for_all(tmp_path):
    def made(dataset=None):
        state = SharedState()
        rows = state.hold("rows", tf.data.Dataset.range(10) if dataset is None else dataset)
        state.hold("once", iter(rows.shuffle(10, seed=1)))
        return state

    def functions(state):
        total = graph_function()(lambda: state["rows"].reduce(np.int64(0), lambda a, b: a + b))
        count = graph_function()(lambda: state["rows"].reduce(np.int64(0), lambda a, _: a + 1))
        first = graph_function()(lambda: state["once"].get_next())
        second = graph_function()(lambda: -state["once"].get_next())
        return total, count, first, second

    state = made()
    total, count, first, second = functions(state)
    assert [int(total()), int(count()), int(total())] == [45, 10, 45]
    taken = [int(first()), -int(second()), int(first())]
    assert all(captured_values(f.trace(), state) == [] for f in (total, count, first, second))
    state.save(tmp_path / "state")
    rest = [int(first()) for _ in range(7)]
    assert sorted(taken + rest) == list(range(10))
    other = made()
    assert other.restore(tmp_path / "state").restored == ("once",)
    *_, second = functions(other)
    assert [-int(second()) for _ in range(7)] == rest
    assert made(tf.data.Dataset.range(3).map(float)).restore(tmp_path / "state").different == ("once",)


def test_a_restore_that_cannot_read_all_of_it_changes_nothing(tmp_path):
    def made(value):
        state = SharedState()
        for name in ("first", "second"):
            state.hold(name, tf.Variable(tf.fill([500], value)))
            state.hold(f"{name} rows", iter(tf.data.Dataset.range(100).shuffle(100, seed=1)))
        state.hold("words", tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1))
        state["words"].insert(tf.constant(["a"]), tf.constant([int(value)], tf.int64))
        return state

    state, other, same = made(1.0), made(2.0), made(2.0)
    [next(state[f"{name} rows"]) for name in ("first", "second") for _ in range(5)]
    state.save(tmp_path / "state")
    file = next((tmp_path / "state").glob("state.data*"))
    whole = file.read_bytes()
    for sixteenth in range(16):
        data = bytearray(whole)
        data[len(data) * sixteenth // 16] ^= 255
        file.write_bytes(data)
        with pytest.raises(StoreError):
            other.restore(tmp_path / "state")
    assert float(other["first"][0]) == float(other["second"][0]) == 2.0
    assert int(other["words"].lookup(tf.constant("a"))) == 2
    for name in ("first rows", "second rows"):
        assert [int(v) for v in other[name]] == [int(v) for v in same[name]]


def test_a_checkpoint_of_something_else_changes_nothing(tmp_path):
    state = SharedState()
    first = state.hold("first", tf.Variable([0.0]))
    tf.train.Checkpoint(first=tf.Variable([1.0])).write(str(tmp_path / "state"))
    with pytest.raises(StoreError, match="is not a shared state"):
        state.restore(tmp_path)
    assert not first.numpy().any()


def test_an_iterator_of_another_pipeline_stands_where_it_stood_and_the_rest_is_restored(tmp_path):
    def made(rows):
        state, module = SharedState(), tf.Module()
        module.rows = [iter(rows)]
        state.hold("rows", iter(rows))
        state.hold("module", module)
        return state, state.counter("seen")

    state, seen = made(tf.data.Dataset.range(10))
    seen.assign(int(next(state["rows"]) + next(state["module"].rows[0])) + 5)
    state.save(tmp_path / "state")
    pipelines = [
        tf.data.Dataset.range(10).shuffle(5, seed=1, reshuffle_each_iteration=False).batch(2).unbatch(),
        tf.data.Dataset.range(10).map(lambda x: tf.numpy_function(lambda y: y, [x], tf.int64)),
    ]
    for rows in pipelines:
        rows = rows.map(lambda x: tf.ensure_shape(x, []))  # one element_spec for all
        (other, seen), same = made(rows), iter(rows)
        taken = [int(next(other["rows"])) for _ in range(3)]
        report = other.restore(tmp_path / "state")
        assert report.different == ("module/rows/0", "rows") and report.restored == ("seen",)
        assert int(seen) == 5
        assert taken + [int(v) for v in other["rows"]] == [int(v) for v in same]
    other, seen = made(tf.data.Dataset.range(10))
    assert other.restore(tmp_path / "state").whole
    assert int(next(other["rows"])) == int(next(other["module"].rows[0])) == 1


def test_a_table_that_cannot_take_the_entries_stays_as_it_was(tmp_path):
    def made(**how):
        state = SharedState()
        state.hold("rows", tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, **how))
        return state

    state = made(default_value=0.0, empty_key=-1, deleted_key=-2)
    state["rows"].insert(tf.constant([7, 8], tf.int64), tf.constant([0.5, 0.25]))
    state.save(tmp_path / "state")
    reserved = {"default_value": 0.0, "empty_key": 7, "deleted_key": -2}
    vectors = {"default_value": [0.0, 0.0], "empty_key": -1, "deleted_key": -2}
    for how, value in ((reserved, 3.0), (vectors, [3.0, 4.0])):
        other = made(**how)
        other["rows"].insert(tf.constant([9], tf.int64), tf.constant([value]))
        assert other.restore(tmp_path / "state").different == ("rows",)
        assert other["rows"].lookup(tf.constant([9], tf.int64)).numpy().tolist() == [value]


def test_a_variable_of_two_names_comes_back(tmp_path):
    def made(value):
        state, module = SharedState(), tf.Module()
        module.a, module.b = tf.Variable(value), tf.Variable(value + 1)
        module.tied = [module.a]
        state.hold("module", module)
        state.hold("again", module.b)
        return state

    state, other = made(1.0), made(0.0)
    assert list(state.named()) == ["module/a", "module/b", "again"]  # each once in a thing
    state.save(tmp_path / "state")
    assert other.restore(tmp_path / "state").whole
    assert [float(v) for v in other.named().values()] == [1.0, 2.0, 2.0]


def test_a_variable_of_unknown_rank_comes_back(tmp_path):
    state, other = SharedState(), SharedState()
    state.hold("any", tf.Variable([1.0, 2.0], shape=tf.TensorShape(None))).assign([[3.0]])
    state.save(tmp_path / "state")
    other.hold("any", tf.Variable(0.0, shape=tf.TensorShape(None)))
    assert other.restore(tmp_path / "state").whole and other["any"].numpy().tolist() == [[3.0]]


def test_a_save_that_fails_leaves_nothing_and_one_that_is_there_is_kept(tmp_path):
    state = made()
    state.save(tmp_path / "state")
    with pytest.raises(StoreError, match="is there already"):
        state.save(tmp_path / "state")
    rows = tf.data.Dataset.range(3).map(lambda x: tf.numpy_function(lambda y: y, [x], tf.int64))
    state.hold("rows", iter(rows))
    with pytest.raises(SharingError, match="the position of iterator 'rows' cannot be saved: PyFunc is stateful"):
        state.save(tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_what_is_exported_is_what_was_trained_and_goes_its_own_way_after(tmp_path):
    """Three functions: the one that is exported reads the same variables and table, and the loaded one has its own."""
    state = made()
    train, evaluate = functions(state)
    net = state["model"]

    class Served(tf.Module):
        def __init__(self):
            super().__init__()
            self.state = state
            spec = [X["x"], tf.TensorSpec([None], tf.string)]
            self.serve = tf.function(
                lambda x, words: {"y": net(x), "number": state["words"].lookup(words), "seen": state["seen"]},
                input_signature=spec,
            )

    served = Served()
    assert captured_values(served.serve.get_concrete_function(), state) == []
    train(x=ROWS, words=WORDS)
    expected = evaluate(x=ROWS, words=WORDS)
    tf.saved_model.save(served, str(tmp_path / "saved"))
    train(x=ROWS, words=np.array([b"c", b"d"]))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    then = loaded.serve(tf.constant(ROWS), tf.constant([b"a", b"b", b"d"]))
    assert np.array_equal(then["y"], expected[0]) and int(then["seen"]) == 4
    assert then["number"].numpy().tolist() == [0, 1, -1]
    now = served.serve(tf.constant(ROWS), tf.constant([b"d"]))
    assert int(now["seen"]) == 8 and now["number"].numpy().tolist() == [1]
    assert not np.array_equal(now["y"], expected[0])


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
        (lambda: tf.constant(1.0), "its own copy"),
        (lambda: 0.5, "its own copy"),
        (lambda: np.zeros(2), "its own copy"),
        (lambda: tf.data.Dataset.range(3).as_numpy_iterator(), "while it is traced"),
        (lambda: iter([1]), "while it is traced"),
        (lambda: keras.optimizers.Adam(), "optimizer.build"),
        (lambda: keras.Sequential([keras.layers.Dense(1)]), "call it on a batch"),
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
    names = list(state.named())
    # of one that is reached twice only the first name
    assert {"ranker/loss/total", "ranker/parts/free/0", "ranker/parts/norm/gamma", "ranker/seeds", "ranker/step"} < set(
        names
    )
    assert "ranker/net/hidden/kernel" in names and not any(name.startswith("ranker/weights") for name in names)
    assert len({id(v) for v in state.named().values()}) == len(names)
    for number, variable in enumerate(state.named().values()):
        variable.assign(tf.cast(tf.ones_like(variable) * (number + 2), variable.dtype))
    state.save(tmp_path / "state")
    assert other.restore(tmp_path / "state").whole
    assert all(np.array_equal(v, other.named()[name]) for name, v in state.named().items())
    assert np.array_equal(there.net(ROWS), back.net(ROWS)) and float(back.loss.result()) == float(there.loss.result())
    assert np.array_equal(there.random.normal([4]), back.random.normal([4]))
    assert np.array_equal(keras.random.normal([4], seed=there.seeds), keras.random.normal([4], seed=back.seeds))


def test_a_net_that_only_keras_knows_of_comes_back_within_a_module(tmp_path):
    def made(weight):
        module = tf.Module()
        layers = [keras.Input([2]), keras.layers.Dense(1, name="d")]
        module.net, module.step = keras.Sequential(layers, name="net"), tf.Variable(0)
        module.net.set_weights([np.full([2, 1], weight), np.ones(1)])
        state = SharedState()
        return state, state.hold("ranker", module)

    state, _ = made(7.0)
    state.save(tmp_path / "state")
    other, module = made(0.0)
    assert other.restore(tmp_path / "state").restored == ("ranker/step", "ranker/net/d/kernel", "ranker/net/d/bias")
    assert module.net.get_weights()[0].ravel().tolist() == [7.0, 7.0]


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
    assert len(state.named()) == 4 and len(state.groups()["net"]) == 2  # those that Keras would train
    state.save(tmp_path / "state")
    assert other.restore(tmp_path / "state").whole
    assert float(other["net"].layers[-1].scale) == 5.0 and float(other["module"].layer.scale) == 6.0


def test_what_has_no_variables_yet_is_refused_also_within_a_module():
    for lazy in (keras.metrics.F1Score(), keras.metrics.R2Score(), keras.layers.Dense(1), keras.optimizers.Adam()):
        module = tf.Module()
        module.inner = [lazy]
        with pytest.raises(SharingError, match=f"of its inner/0, an? {type(lazy).__name__}: its .* do not exist yet"):
            SharedState().hold("module", module)
    score = keras.metrics.F1Score()
    score.update_state([[1.0, 0.0]], [[0.9, 0.1]])
    state = SharedState()
    state.hold("f1", score)
    assert "f1/true_positives" in state.named()


def test_names_are_unique():
    state = SharedState()
    state.counter("a")
    with pytest.raises(SharingError, match="held already"):
        state.counter("a")
    with pytest.raises(SharingError, match="there is: a"):
        state["b"]
    state.hold("several", [tf.Variable(1.0), tf.Variable(2.0)])
    assert list(state.named()) == ["a", "several/0", "several/1"]


def test_parts_of_two_things_never_have_one_name():
    module = tf.Module()
    module.b, module.c = tf.Variable(1.0), tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    for taken in ("a/b", "a/c"):
        for first, second in ((("a", module), (taken, tf.Variable(2.0))), ((taken, tf.Variable(2.0)), ("a", module))):
            state = SharedState()
            state.hold(*first)
            with pytest.raises(SharingError, match=f"'{taken}' would be a part of both"):
                state.hold(*second)
            assert second[0] not in state._things
    state = SharedState()
    state.hold("a", module)
    state.hold("a/d", tf.Variable(2.0))
    module.d = tf.Variable(3.0)  # later
    with pytest.raises(SharingError, match="'a/d' would be a part of both 'a' and 'a/d'"):
        state.named()
