"""The exported SavedModel: its signatures, nulls, names, refusals; and its replay in a fresh process.

One file, since importing TensorFlow costs seconds. The transform here is a small one of its own, so that what is tested
is the export; the whole road has its own test.
"""

import json

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from headway.errors import DataError, HeadwayError
from headway.monitor import Monitor
from headway.records.encode import packed
from headway.schema.columns import Column
from headway.schema.tensor_name import tensor_name
from headway.stages.refs import Ref
from headway.tasks.table import task_of
from tfcore.export import replay_main as replay_script
from tfcore.export.config import ServingLimits
from tfcore.export.model_card import FILE as CARD
from tfcore.export.model_card import CardFacts
from tfcore.export.replay import (
    ReplayProcess,
    ReplayRequest,
    _expected,
    difference_error,
    exceeded_limits,
    payload,
    replay,
    sample,
    serving_text,
)
from tfcore.export.saved_model import ExportRequest, export, save
from tfcore.graph.python_op import python_op
from tfcore.heads.head import head_of
from tfcore.heads.label_parameters import LabelParameters
from tfcore.models.build import build, save_weights
from tfcore.models.config import ModelConfig
from tfcore.testing import assert_signature
from tfcore.transform.layer import Transform
from tfcore.transform.parameters import Fitted, FittedOp, TransformParameters
from tfcore.transform.raw_column import RawColumn

COLUMNS = (
    Column(name="dep delay", type="float32", nullable=True),
    Column(name="hour", type="int64", nullable=False),
    Column(name="carrier", type="bytes", nullable=False, encoding="dictionary"),
    Column(name="tailnum", type="bytes", nullable=True),
    Column(name="seats", type="int64", nullable=True),
)
DELAY = tensor_name("dep delay")
N = 300
RNG = np.random.default_rng(0)
ROWS = {
    "dep delay": RNG.normal(10, 20, N).astype(np.float32),
    "hour": RNG.integers(0, 24, N),
    "carrier": np.array([b"AA", b"UA", b"B6", b"??"], object)[RNG.integers(0, 4, N)],
    "tailnum": np.array([b"N1", b"", "Ü".encode()], object)[RNG.integers(0, 3, N)],
    "seats": RNG.integers(2**40, 2**40 + 400, N),
}
PRESENT = {
    column.name: RNG.random(N) < 0.8 if column.nullable else np.ones(N, bool) for column in COLUMNS
}  # fmt: skip


class SmallTransform(tf.Module):
    """Numbers centred, nulls zero with an indicator, strings through a table."""

    def __init__(self):
        super().__init__()
        keys = tf.constant(["AA", "UA", "B6", "N1"])
        self.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, tf.range(4)), 4)

    def __call__(self, columns):
        numeric, categorical = [], []
        for name, (values, present, *_) in columns.items():
            known = tf.ones_like(values, tf.bool) if present is None else present
            if values.dtype == tf.string:
                categorical.append(tf.where(known, self.table.lookup(values), 5))
            else:
                centre = 2.0**40 if name == "seats" else 10.0
                centred = tf.cast(tf.cast(values, tf.float64) - centre, tf.float32) / 20.0
                numeric += [tf.where(known, centred, 0.0), tf.cast(known, tf.float32)]
        return {"numeric": tf.stack(numeric, -1), "categorical": tf.stack(categorical, -1)}

    def named(self, columns):
        inputs = self(columns)
        return {"dep_delay": inputs["numeric"][:, 0], "carrier": inputs["categorical"][:, 0]}


def small_model():
    keras.utils.set_random_seed(1)
    inputs = {
        "numeric": keras.Input([6], name="numeric"),
        "categorical": keras.Input([2], dtype="int32", name="categorical"),
    }
    embedded = keras.layers.Flatten()(keras.layers.Embedding(6, 3)(inputs["categorical"]))
    hidden = keras.layers.Dense(8, "relu")(keras.layers.Concatenate()([inputs["numeric"], embedded]))
    hidden = keras.layers.Dropout(0.5)(keras.layers.BatchNormalization()(hidden))
    return keras.Model(inputs, keras.layers.Dense(1)(hidden))


def binary(model):
    def predict(inputs):
        logit = tf.squeeze(model(inputs, training=False), -1)
        return {"probability": tf.sigmoid(logit), "logit": logit}

    return predict


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A SavedModel that was moved after it was saved, and the training process's predictions of ROWS."""
    folder = tmp_path_factory.mktemp("export")
    transform, model = SmallTransform(), small_model()
    predict = binary(model)
    arguments = {"columns": COLUMNS, "task": "binary", "variables": [v.value for v in model.variables]}
    signatures = save(folder / "staging" / "saved_model", transform=transform, predict=predict, **arguments)
    (folder / "staging").rename(folder / "moved")
    raw = {
        c.name: RawColumn(tf.constant(ROWS[c.name]), tf.constant(PRESENT[c.name]) if c.nullable else None, None)
        for c in COLUMNS
    }
    expected = predict(transform(raw))["probability"].numpy()
    path = folder / "moved" / "saved_model"
    return {"path": path, "signatures": signatures, "expected": expected, "loaded": tf.saved_model.load(str(path))}


def named_tensors(rows=slice(None), presence=True):
    names = {"dep delay": DELAY}
    tensors = {names.get(c.name, c.name): tf.constant(ROWS[c.name][rows]) for c in COLUMNS}
    if presence:
        tensors |= {
            names.get(c.name, c.name) + "__present": tf.constant(PRESENT[c.name][rows]) for c in COLUMNS if c.nullable
        }
    return tensors


def test_the_loaded_model_has_the_signatures_that_are_described(exported):
    """What is said of signatures, whose golden values are in test_signatures.py, is what the loaded model has."""
    own = {"dep_delay": ("float32", (None,)), "carrier": ("int32", (None,))}
    told = {
        name: [{t.name: (t.dtype, t.shape) for t in tensors} for tensors in (signature.inputs, signature.outputs)]
        for name, signature in exported["signatures"].items()
    }
    assert set(exported["loaded"].signatures) == set(told) and told["transform"][1] == own
    assert set(told["serving_nullable"][0]) == set(named_tensors())
    for name, (inputs, outputs) in told.items():
        assert_signature(exported["path"], inputs, outputs, signature=name)
    file = json.loads((exported["path"] / "assets.extra" / "signatures.json").read_text())
    assert file["serving_default"]["inputs"][0] == {
        "name": DELAY, "dtype": "float32", "shape": [None], "column": "dep delay", "default": None,
    }  # fmt: skip


def test_what_stands_at_a_null_does_not_matter(exported):
    tensors = named_tensors()
    for name, other in ((DELAY, np.float32("nan")), ("seats", 7), ("tailnum", b"N1")):
        values = tensors[name].numpy()
        values[~tensors[f"{name}__present"].numpy()] = other
        tensors[name] = tf.constant(values)
    found = exported["loaded"].signatures["serving_nullable"](**tensors)["probability"]
    assert found.numpy() == pytest.approx(exported["expected"], abs=1e-6)


def test_presence_may_be_one_value_for_all_rows_and_no_rows_are_fine(exported):
    serve = exported["loaded"].signatures["serving_nullable"]
    for value in (True, False):
        one = {name: tf.constant([value]) for name in (DELAY + "__present", "tailnum__present", "seats__present")}
        all_ = {name: tf.fill([N], value) for name in one}
        left, right = serve(**named_tensors(presence=False), **one), serve(**named_tensors(presence=False), **all_)
        np.testing.assert_array_equal(left["logit"], right["logit"])
    assert serve(**named_tensors(slice(0, 0)))["probability"].shape == (0,)
    assert exported["loaded"].signatures["serve_examples"](tf.constant([], tf.string))["logit"].shape == (0,)


def test_presence_that_is_left_out_defaults_to_present_in_a_server(exported):
    """TensorFlow Serving adds a signature's defaults to a request that has less than its inputs."""
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], str(exported["path"]))
    signature = meta.signature_def["serving_nullable"]
    wanted = {f"{name}__present": [True] for name in (DELAY, "tailnum", "seats")}
    assert {name: value.bool_val[:] for name, value in signature.defaults.items()} == wanted


def test_the_threshold_is_the_request_s_own(exported):
    classify = exported["loaded"].signatures["classify"]
    for threshold in (0.0, 0.3, 0.5, 1.0):
        found = classify(**named_tensors(), threshold=tf.constant(threshold))
        probability = found["probability"].numpy()
        assert probability == pytest.approx(exported["expected"], abs=1e-6)
        np.testing.assert_array_equal(found["decision"], probability >= np.float32(threshold))
        np.testing.assert_array_equal(found["threshold"], np.full(len(probability), threshold, np.float32))


def test_classify_decides_at_the_chosen_threshold_where_a_request_names_none(tmp_path):
    config = ModelConfig(name="mlp", hidden=(4,))
    parameters = TransformParameters(fitted=FITTED[:2], label=LABELS["binary"])
    save_weights(build(config, parameters, seed=5), tmp_path / "weights")
    card = CardFacts(
        model="toy", threshold={"rule": "as configured", "value": 0.3, "chosen_on": "no rows: the config names it"}
    )
    export(ExportRequest(trained=tmp_path, transform=parameters, model=config, card=card), tmp_path, Monitor())
    path = tmp_path / "saved_model"
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        classify = tf.compat.v1.saved_model.load(session, ["serve"], str(path)).signature_def["classify"]
    assert list(classify.defaults["threshold"].float_val) == [np.float32(0.3)]
    assert (
        "Threshold as configured: **0.3**, chosen on no rows: the config names it. `classify` decides at it where a request "
        "names no other." in (path / CARD).read_text()
    )


def test_the_transform_is_traced_once_for_all_signatures(tmp_path):
    traced = []

    class Counted(SmallTransform):
        def __call__(self, columns):
            traced.append(sorted(name for name, column in columns.items() if column.present is not None))
            return super().__call__(columns)

    model = small_model()
    variables = [variable.value for variable in model.variables]
    arguments = {"predict": binary(model), "columns": COLUMNS, "task": "binary", "variables": variables}
    save(tmp_path / "saved_model", transform=Counted(), **arguments)
    # and once more by name for the transform signature
    assert traced == 2 * [["dep delay", "seats", "tailnum"]]


def test_the_transform_signature_gives_the_model_s_inputs(exported):
    found = exported["loaded"].signatures["transform"](**named_tensors())
    delay = np.where(PRESENT["dep delay"], (ROWS["dep delay"] - 10) / 20, 0)
    assert found["dep_delay"].numpy() == pytest.approx(delay, abs=1e-6)


def example(**values):
    feature = {}
    for name, value in values.items():
        value = value if isinstance(value, list) else [value]
        kind = {float: "float_list", int: "int64_list", bytes: "bytes_list"}[type(value[0])] if value else "float_list"
        lists = {"float_list": tf.train.FloatList, "int64_list": tf.train.Int64List, "bytes_list": tf.train.BytesList}
        feature[name] = tf.train.Feature(**{kind: lists[kind](value=value)})
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def test_examples_name_what_is_wrong_with_them(exported):
    serve = exported["loaded"].signatures["serve_examples"]
    whole = {"dep delay": 1.0, "hour": 3, "carrier": b"AA"}
    assert serve(examples=tf.constant([example(**whole)]))["logit"].shape == (1,)
    nulls = [example(**{**whole, "dep delay": []}), example(hour=3, carrier=b"AA")]
    empty = serve(examples=tf.constant(nulls))["logit"]
    assert empty[0] == empty[1]  # an empty list and an absent feature are both null
    for bad, message in [
        (example(carrier=b"AA"), "hour"),
        (example(**{**whole, "dep delay": [1.0, 2.0]}), "several values of column dep delay"),
        (example(**{**whole, "hour": 1.5}), "hour"),
        (b"no example", "parse"),
    ]:
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            serve(examples=tf.constant([example(**whole), bad]))


def test_the_raw_columns_alone_are_enough_and_nan_is_null(exported):
    serve, nullable = (exported["loaded"].signatures[f"serving_{name}"] for name in ("default", "nullable"))
    tensors = named_tensors(presence=False)
    held = PRESENT["dep delay"] & (np.arange(N) % 3 > 0)
    tensors[DELAY] = tf.constant(np.where(held, ROWS["dep delay"], np.float32("nan")))
    everywhere = {name: tf.fill([N], True) for name in ("tailnum__present", "seats__present")}
    want = nullable(**tensors, **{DELAY + "__present": tf.constant(held)}, **everywhere)
    np.testing.assert_array_equal(serve(**tensors)["logit"], want["logit"])
    with pytest.raises((TypeError, tf.errors.InvalidArgumentError), match="hour"):
        serve(**{name: tensor for name, tensor in tensors.items() if name != "hour"})


def test_columns_of_different_lengths_are_refused(exported):
    tensors = named_tensors()
    for short in (1, 5):
        with pytest.raises(tf.errors.InvalidArgumentError, match="columns of different lengths"):
            exported["loaded"].signatures["serving_nullable"](**{**tensors, "hour": tensors["hour"][:short]})


@pytest.mark.parametrize("call", [tf.py_function, tf.numpy_function])
def test_python_functions_are_refused_by_name(tmp_path, call):
    def secret(x):
        return x * 2

    def predict(inputs):
        logit = tf.ensure_shape(call(secret, [inputs["numeric"][:, 0]], tf.float32), [None])
        return {"probability": tf.sigmoid(logit), "logit": logit}

    with pytest.raises(HeadwayError, match=r"calls Python functions.*secret \(test_saved_model.py:\d+\)") as info:
        save(tmp_path / "m", transform=SmallTransform(), predict=predict, columns=COLUMNS, task="binary", variables=[])
    assert info.value.where == "serving_default" and not (tmp_path / "m").exists()


def _number(x):
    return x * 2


def test_a_python_op_is_refused_with_its_file_and_what_to_do_instead(tmp_path):
    op = python_op(_number, tf.TensorSpec([None], tf.float32), gradient="traced")

    class Transforming(SmallTransform):
        def __call__(self, columns):
            inputs = super().__call__(columns)
            return {**inputs, "numeric": inputs["numeric"] + op(inputs["numeric"][:, 0])[:, None]}

    arguments = {"predict": binary(small_model()), "columns": COLUMNS, "task": "binary", "variables": []}
    with pytest.raises(HeadwayError, match=r":_number \(test_saved_model.py:\d+\)(.|\n)*StaticHashTable") as info:
        save(tmp_path / "m", transform=Transforming(), **arguments)
    assert info.value.where == "serving_default"
    kept = SmallTransform()
    kept.unused = tf.function(lambda x: op(x), input_signature=[tf.TensorSpec([None], tf.float32)])
    kept.unused.get_concrete_function()
    with pytest.raises(HeadwayError, match=r"kept with the model: .*:_number"):
        save(tmp_path / "m", transform=kept, **arguments)
    assert not (tmp_path / "m").exists()


def test_outputs_that_are_not_the_task_s_are_refused(tmp_path):
    def predict(inputs):
        return {"probability": inputs["numeric"], "logit": inputs["numeric"][:, 0]}

    with pytest.raises(HeadwayError, match="the model's outputs are"):
        save(tmp_path / "m", transform=SmallTransform(), predict=predict, columns=COLUMNS, task="binary", variables=[])


def test_a_variable_that_only_the_function_knows_is_saved(tmp_path):
    hidden = tf.Variable(3.0)

    def predict(inputs):
        return {"prediction": inputs["numeric"][:, 0] * 0.0 + hidden}

    arguments = {"columns": COLUMNS, "task": "regression", "variables": []}
    save(tmp_path / "m", transform=SmallTransform(), predict=predict, **arguments)
    found = tf.saved_model.load(str(tmp_path / "m")).signatures["serving_nullable"](**named_tensors())
    assert (found["prediction"].numpy() == 3.0).all()


# ---- replay ---------------------------------------------------------------------------------------------------------


def asked(folder, transform, predict, model=None):
    """The replay script's answer, asked in this process: it is what a batch of all rows gave that counts as trained."""
    variables = [v.value for v in model.variables] if model else []
    save(folder / "m", transform=transform, predict=predict, columns=COLUMNS, task="binary", variables=variables)
    loaded = tf.saved_model.load(str(folder / "m"))
    np.save(folder / "expected.npy", loaded.signatures["serving_nullable"](**named_tensors())["probability"].numpy())
    examples = write_shards(folder / "shards", (N,), 128)
    request = ReplayRequest(
        saved_model=folder / "m", examples=(examples,), predictions=folder, columns=COLUMNS, task="binary"
    )
    shards, _ = sample(request.examples, N)
    return replay_script.replay(payload(request, shards, folder / "m", folder / "expected.npy"))


class WithPreprocess(SmallTransform):
    """SmallTransform with one input changed by a function of the user's."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def __call__(self, columns):
        inputs = super().__call__(columns)
        changed = self.change(inputs["numeric"][:, 0])
        return inputs | {"numeric": tf.concat([changed[:, None], inputs["numeric"][:, 1:]], 1)}


@pytest.mark.parametrize(
    ("change", "cause", "inputs"),
    [
        (lambda x: x + tf.random.normal(tf.shape(x), seed=3), "random", ["dep_delay"]),
        (lambda x: x - tf.reduce_mean(x), "batch", ["dep_delay"]),
        (lambda x: x + tf.random.stateless_normal(tf.shape(x), [1, 2]), "batch", ["dep_delay"]),
        (lambda x: x * 1.5, None, []),
    ],
    ids=["random", "mean of the batch", "drawn by place", "row by row"],
)
def test_replay_finds_a_preprocess_that_is_random_or_looks_at_other_rows(tmp_path, change, cause, inputs):

    def predict(inputs):
        logit = tf.reduce_sum(inputs["numeric"], 1)
        return {"probability": tf.sigmoid(logit), "logit": logit}

    answer = asked(tmp_path, WithPreprocess(change), predict)
    assert (answer["ok"], answer["cause"]) == (cause is None, cause)
    assert answer.get("inputs", []) == inputs
    assert set(answer["signatures"]) == {"serving_default", "serving_nullable", "serve_examples"}


def test_replay_finds_a_model_that_looks_at_other_rows(tmp_path):
    model = small_model()

    def predict(inputs):
        logit = tf.squeeze(model(inputs, training=True), -1)  # BatchNormalization takes the batch's mean, Dropout draws
        return {"probability": tf.sigmoid(logit), "logit": logit}

    answer = asked(tmp_path, SmallTransform(), predict, model)
    assert not answer["ok"] and answer["cause"] == "random" and answer["inputs"] == []


def test_uneven_batches_hold_every_row_once_and_are_few():
    for rows in (1, 2, 3, 4, 5, 11, 300, 1000, 100_000):
        cuts = list(replay_script.uneven_batches(rows))
        assert [i for a, b in cuts for i in range(a, b)] == list(range(rows))
        assert len(cuts) <= 22 and (rows == 1 or any(b - a == 1 for a, b in cuts))


def test_replay_cuts_thousands_of_columns_in_numpy(monkeypatch):
    given = {f"c{i}": np.arange(6, dtype=np.float32) for i in range(600)} | {"text": np.array([b"a\0"] * 6, object)}
    sizes = []

    def signature(**tensors):
        assert (tensors["c0"].dtype, tensors["text"].dtype) == (tf.float32, tf.string)
        sizes.append(len(tensors["text"]))
        return {"y": tensors["c599"], "text": tensors["text"]}

    monkeypatch.delattr(tf.Tensor, "__getitem__")
    found = replay_script.in_batches(signature, given, replay_script.uneven_batches(6))
    assert found["y"].tolist() == list(range(6)) and found["text"].tolist() == [b"a\0"] * 6
    assert sizes == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("cause", "said"),
    [("random", "'noisy' draws random numbers"), ("batch", "'noisy' depends on the other rows of the batch")],
)
def test_what_the_replay_found_is_reported_with_the_fix(tmp_path, cause, said):
    worst = {"signature": "serving_default", "expected": [0.1], "found": [0.2], "columns": {"hour": 3}}
    answer = {"cause": cause, "inputs": ["noisy"], "worst": worst, "largest_difference": 0.1, "bound": 1e-5}
    request = ReplayRequest(saved_model=tmp_path, examples=(), predictions=tmp_path, columns=COLUMNS, task="binary")
    error = difference_error(answer, request)
    assert said in error.problem and "from its own columns alone" in error.fix


@pytest.mark.parametrize(("difference", "rounding"), [(8e-4, True), (0.5, False)])
def test_a_replay_off_by_the_rounding_of_far_labels_says_so(tmp_path, difference, rounding):
    """Labels spread over 13,000 by a few stand-ins: a float32 of that size is exact to 0.0008."""
    worst = {"signature": "serving_default", "expected": [0.1], "found": [0.1 + difference], "columns": {"hour": 3}}
    answer = {"cause": "other", "worst": worst, "largest_difference": difference, "bound": 1e-5}
    given = {"saved_model": tmp_path, "examples": (), "predictions": tmp_path, "columns": COLUMNS}
    error = difference_error(answer, ReplayRequest(**given, task="regression", label_std=13_000.0))
    assert ("the train labels spread over 13,000" in error.problem) == rounding
    assert ("give them weight 0" in error.fix) == rounding


def write_shards(folder, sizes, rows_per_record):
    """Shards as ingest writes them, made with TensorFlow's own Example: nothing of our writer is taken on trust."""
    shards, at = [], 0
    folder.mkdir(exist_ok=True)
    for i, size in enumerate(sizes):
        name = f"eval-{i:05d}-of-{len(sizes):05d}.tfrecord"
        records = []
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for start in range(at, at + size, rows_per_record):
                stop = min(start + rows_per_record, at + size)
                records.append(stop - start)
                writer.write(row_group(start, stop))
        shards.append({"file": name, "rows": packed(records)})
        at += size
    result = {"splits": {"eval": {"shards": shards}}}
    return {"path": str(folder), "split": "eval", "result": result}


def row_group(start, stop):
    values = {}
    for column in COLUMNS:
        name, part = column.name, ROWS[column.name][start:stop].tolist()
        if column.encoding == "dictionary":
            words = sorted(set(part))
            values |= {f"{name}/dict": words, f"{name}/codes": [words.index(word) for word in part]}
        else:
            values[name] = part
        if column.nullable:
            values[f"{name}/present"] = PRESENT[name][start:stop].astype(int).tolist()
    return example(**values)


def replay_request(exported, tmp_path, *, rows_per_record=64, sizes=(100, 150, 50), change=0.0, **fields):
    prediction = exported["expected"].astype(np.float64)
    prediction[120] += change
    pq.write_table(pa.table({"row": np.arange(N), "prediction": prediction}), tmp_path / "predictions.parquet")
    examples = write_shards(tmp_path / "shards", sizes, rows_per_record)
    return ReplayRequest(
        saved_model=exported["path"],
        examples=(examples,),
        predictions=tmp_path / "predictions.parquet",
        columns=COLUMNS,
        task="binary",
        **fields,
    )


class Here(ReplayProcess):
    """The replay script in this process: a fresh one costs an import of TensorFlow."""

    def start(self):
        pass

    def ask(self, request, monitor):
        return replay_script.replay(json.loads(json.dumps(request)))


def test_the_replay_measures_what_a_server_has_to_expect_and_holds_it_against_the_limits(exported, tmp_path):
    request, said = replay_request(exported, tmp_path), []
    monitor = Monitor()
    monitor.log = said.append
    result = replay(request, tmp_path, monitor, process=Here())
    assert json.loads((tmp_path / "replay.json").read_text()) == result
    assert result["ok"] and result["rows"] == N and result["largest_difference"] <= 1e-5
    assert set(result["signatures"]) == {"serving_default", "serving_nullable", "serve_examples"}
    assert f"replayed {N} rows" in said[-2] and said[-1] == serving_text(result)
    serving = result["serving"]
    size = sum(path.stat().st_size for path in exported["path"].rglob("*") if path.is_file())
    assert serving["size_mb"] == size / 1e6
    for rows in ("1", "64"):
        latency = serving["latency"][rows]
        assert 0 < latency["p50_ms"] <= latency["p99_ms"] and latency["calls"] >= 3
    request = replay_request(exported, tmp_path, limits={"size_mb": 1e-6, "p99_ms": 1e6})
    with pytest.raises(HeadwayError) as error:
        replay(request, tmp_path, Monitor(), process=Here())
    assert "size_mb is" in str(error.value)
    assert "p99_ms is" not in str(error.value) and "raise the limit" in str(error.value)


def test_a_difference_beyond_the_bound_is_an_error_that_shows_the_row(exported, tmp_path):
    early = ReplayProcess()
    early.start()
    with pytest.raises(HeadwayError, match="gives other predictions than the trained one") as info:
        replay(replay_request(exported, tmp_path, change=1e-3), tmp_path, Monitor(), process=early)
    assert "0.001 (bound 1e-05)" in info.value.problem and f"hour={ROWS['hour'][120]}" in info.value.problem
    assert not (tmp_path / "replay.json").exists()


def test_a_model_that_cannot_be_loaded_or_a_process_that_dies(exported, tmp_path, monkeypatch):
    request = replay_request(exported, tmp_path)
    broken = tmp_path / "broken"
    (broken / "variables").mkdir(parents=True)
    (broken / "saved_model.pb").write_bytes(b"no")
    with pytest.raises(HeadwayError, match="could not be replayed"):
        replay(request.model_copy(update={"saved_model": Ref(path=broken)}), tmp_path, Monitor())
    script = tmp_path / "dies.py"
    script.write_text("import sys; print('last words', file=sys.stderr); sys.exit(3)")
    monkeypatch.setattr("tfcore.export.replay.script", lambda: str(script))
    with pytest.raises(HeadwayError, match=r"exit code 3(?s:.*)last words"):
        replay(request, tmp_path, Monitor())


def test_predictions_of_other_rows_are_an_error(exported, tmp_path):
    request = replay_request(exported, tmp_path, sizes=(100, 150))
    with pytest.raises(DataError, match="300 predictions of 250 rows"):
        replay(request, tmp_path, Monitor())


def test_the_sample_is_spread_over_the_shards(exported, tmp_path):
    request = replay_request(exported, tmp_path, sizes=(10, 200, 90))
    shards, picked = sample(request.examples, 100)
    assert [shard["rows"] for shard in shards] == [10, 45, 45]
    assert picked.tolist() == [*range(10), *range(10, 55), *range(210, 255)]
    assert [shard["rows"] for shard in sample(request.examples, 10_000)[0]] == [10, 200, 90]
    assert [shard["rows"] for shard in sample(request.examples, 2)[0]] == [1, 1]
    with pytest.raises(DataError, match="no evaluation rows"):
        sample((), 10)


# ---- the stage, with the real transform and a real model -------------------------------------------------------------

VOCABULARY = FittedOp(op="vocabulary", words=("UA", "AA"), oov_buckets=2)
STANDARD = FittedOp(op="standardize", mean=10.0, std=20.0)
FITTED = (
    Fitted(column=COLUMNS[0], ops=(STANDARD,), fill=9.0, missing_indicator=True, edges=(-2.0, -0.5, 0.5, 1.5)),
    Fitted(column=COLUMNS[1], ops=(FittedOp(op="vocabulary", integers=(5, 6, 7), oov_buckets=1),), size=4),
    Fitted(column=COLUMNS[2], ops=(VOCABULARY,), size=4),
    Fitted(column=COLUMNS[3], ops=(FittedOp(op="hash", buckets=7),), size=8),
    Fitted(column=COLUMNS[4], ops=(FittedOp(op="standardize", mean=2.0**40, std=100.0),), fill=2.0**40),
)
LABELS = {
    "binary": LabelParameters(task="binary", type="int64", base_rate=0.2),
    "regression": LabelParameters(task="regression", type="float32", mean=100.0, std=30.0),
    "multiclass": LabelParameters(task="multiclass", type="bytes", classes=("lo", "mid", "hi")),
    "count": LabelParameters(task="count", type="int64", mean=3.0, std=2.0),
    "quantiles(0.1, 0.5, 0.9)": LabelParameters(
        task="quantiles(0.1, 0.5, 0.9)", type="float32", mean=100.0, std=30.0, quantiles=(60.0, 100.0, 140.0)
    ),
}


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("binary", "ensemble"),
        ("regression", "mlp"),
        ("multiclass", "ensemble"),
        ("count", "ensemble"),
        ("quantiles(0.1, 0.5, 0.9)", "ensemble"),
    ],
)
def test_the_stage_exports_what_was_trained_and_a_fresh_process_agrees(tmp_path, task, name):
    parameters = TransformParameters(fitted=FITTED, label=LABELS[task])
    config = ModelConfig(name=name, hidden=(16,), embedding=3)
    model, transform = build(config, parameters, seed=5), Transform(parameters)
    for variable in model.variables:  # as if trained: not what the seed gives
        variable.assign_add(np.random.default_rng(0).normal(0, 0.1, variable.shape).astype("float32"))
    save_weights(model, tmp_path / "weights")
    raw = {
        c.name: RawColumn(tf.constant(ROWS[c.name]), tf.constant(PRESENT[c.name]) if c.nullable else None)
        for c in COLUMNS
    }
    expected = (
        head_of(task, LABELS[task].classes)
        .predictions(model(transform(raw), training=False))
        .numpy()
        .astype(np.float64)
    )

    request = ExportRequest(trained=tmp_path, transform=parameters, model=config)
    result = export(ExportRequest.model_validate(request.model_dump(mode="json")), tmp_path, Monitor())
    assert result["saved_model"] == "saved_model" and result["bytes"] > 10_000
    assert json.loads(json.dumps(result)) == result
    loaded = tf.saved_model.load(str(tmp_path / "saved_model"))
    assert ("classify" in loaded.signatures) == (task in ("binary", "multiclass"))
    outputs = loaded.signatures["transform"].structured_outputs
    names = {name: (tensor.dtype.name, tuple(tensor.shape.as_list())) for name, tensor in outputs.items()}
    assert names[tensor_name("dep delay__missing")] == ("float32", (None,)) and names["carrier"] == ("int32", (None,))
    if task == "multiclass":
        found = loaded.signatures["serving_nullable"](**named_tensors())["class"].numpy()
        words = np.array([b"lo", b"mid", b"hi"])
        assert found.tolist() == words[expected.argmax(1)].tolist()
        classify = loaded.signatures["classify"]
        for k in (1, 3):
            top = classify(**named_tensors(), top_k=tf.constant(k))
            order = np.argsort(-expected, axis=1, kind="stable")[:, :k]
            assert top["classes"].numpy().tolist() == words[order].tolist()
            assert np.allclose(top["probabilities"], np.take_along_axis(expected, order, 1), atol=1e-5)
        for k in (0, 4):
            with pytest.raises(tf.errors.InvalidArgumentError, match="top_k must be from 1 to 3"):
                classify(**named_tensors(), top_k=tf.constant(k))

    column = task_of(task).output
    found = loaded.signatures["serving_nullable"](**named_tensors())[column].numpy()
    assert np.all(np.abs(found - expected) <= 1e-5 * np.maximum(1, np.abs(expected)))
    if task == "multiclass":  # one is enough: each costs an import of TensorFlow
        pq.write_table(pa.table({"prediction": list(expected)}), tmp_path / "predictions.parquet")
        examples = write_shards(tmp_path / "shards", (N,), 128)
        question = ReplayRequest(
            saved_model=tmp_path / "saved_model",
            examples=(examples,),
            predictions=tmp_path / "predictions.parquet",
            columns=parameters.raw,
            task=task,
            bound=1e-5,
        )
        answer = replay(question, tmp_path, Monitor())
        assert answer["rows"] == N and answer["largest_difference"] <= 1e-5


@pytest.mark.parametrize("classes", [None, 3])
def test_a_replay_reads_the_predictions_of_its_rows_from_wherever_they_lie_in_the_file(tmp_path, classes):
    rows = 150_000
    values = np.random.default_rng(0).random((rows, *([] if classes is None else [classes])))
    column = (
        pa.array(values) if classes is None else pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), classes)
    )
    pq.write_table(pa.table({"prediction": column}), tmp_path / "p.parquet")
    picked = np.concatenate([np.arange(5), np.arange(65_530, 65_540), np.arange(rows - 3, rows)])
    assert np.array_equal(_expected(tmp_path / "p.parquet", picked, rows), values[picked])
    with pytest.raises(DataError, match="150,000 predictions of 7 rows"):
        _expected(tmp_path / "p.parquet", picked, 7)


RESULT = {
    "load_seconds": 0.75,
    "serving": {
        "size_mb": 12.5,
        "latency": {
            "1": {"p50_ms": 0.9, "p99_ms": 2.4, "calls": 150},
            "64": {"p50_ms": 1.1, "p99_ms": 3.5, "calls": 130},
        },
    },
}


@pytest.mark.parametrize(
    ("limits", "broken"),
    [
        ({}, []),
        ({"size_mb": 12.5, "p99_ms": 2.4}, []),
        ({"size_mb": 12}, ["size_mb is 12.5, the limit 12"]),
        ({"size_mb": 12, "p99_ms": 1}, ["size_mb is 12.5, the limit 12", "p99_ms is 2.4, the limit 1"]),
    ],
)
def test_a_limit_is_broken_by_what_lies_beyond_it_and_said_with_both_numbers(limits, broken):
    assert exceeded_limits(RESULT, ServingLimits(**limits)) == broken


def test_what_a_server_has_to_expect_stands_in_a_line():
    wanted = "serving: 12.5 MB on disk, loaded in 0.75 s, 1 row p50 0.9 ms, p99 2.4 ms, 64 rows p50 1.1 ms, p99 3.5 ms"
    assert serving_text(RESULT) == wanted
