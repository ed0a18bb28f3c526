"""`tfcore.fit`: rows of any form to a trained model, by the same objects as a pipeline's stages."""

import subprocess
import sys
import threading

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

import tfcore
from headway.errors import Cancelled, ConfigError, DataError, HeadwayError
from headway.monitor import Monitor
from headway.sources.config import SourceConfig
from headway.tabular.label import LabelConfig
from headway.tabular.splits import SplitConfig
from tests.same_bytes import assert_same_bytes
from tfcore.data.source import Feed
from tfcore.library.raw_rows import RawRows
from tfcore.library.stored_rows import StoredRows
from tfcore.models.build import VARIABLE, build
from tfcore.models.config import ModelConfig
from tfcore.train.request import TrainRequest
from tfcore.train.settings.auto import Facts, resolve
from tfcore.train.settings.config import TrainingConfig
from tfcore.train.stage import train

ROWS = 400
QUICK = {"steps": 40, "jit": "off", "steps_per_call": 10}


def made(rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    x, letter = rng.normal(size=rows).astype(np.float32), rng.choice(["a", "b", "c"], rows)
    vector = rng.normal(size=(rows, 3)).astype(np.float32)
    y = x + 2 * (letter == "a") + vector[:, 0] > 0.5
    return {"x": x, "letter": letter, "vector": vector, "y": y}


@pytest.fixture(scope="module")
def rows():
    return made()


MODEL = {"name": "mlp", "hidden": [16]}
TRAINING = {"steps": 300, "jit": "off"}


@pytest.fixture(scope="module")
def trained(rows):
    return tfcore.fit(rows, label="y", model=MODEL, training=TRAINING, seed=3)


def test_it_learns_and_is_measured_on_rows_that_it_did_not_see(trained):
    assert trained.metrics["auc"] > 0.9
    assert trained.result["steps"] == 300 and trained.result["rows"] < ROWS
    assert trained.history[-1]["loss"] < trained.history[0]["loss"]
    assert repr(trained).startswith("<Trained binary model of 3 columns, ")


def test_predictions_are_a_row_each_in_their_order_in_any_form(trained, rows):
    predicted = trained.predict(rows)
    assert predicted.shape == (ROWS,) and predicted.dtype == np.float64
    table = pa.table({name: rows[name] for name in ("letter", "x")} | {"vector": list(rows["vector"])})
    assert_same_bytes(trained.predict(table), predicted)
    frame = table.to_pandas()
    assert_same_bytes(trained.predict(frame[::-1].reset_index(drop=True)), predicted[::-1].copy())
    measured = trained.evaluate(rows)
    accuracy = np.mean((predicted >= 0.5) == rows["y"])
    assert measured["accuracy"] == pytest.approx(accuracy) and measured["auc"] > 0.9


def test_a_missing_value_is_null_in_every_form(trained, rows):
    few = {name: values[:3].copy() for name, values in rows.items()}
    few["x"][1] = np.nan
    null = {**few, "x": pa.array([float(few["x"][0]), None, float(few["x"][2])], pa.float32())}
    assert_same_bytes(trained.predict(few), trained.predict(null))


def test_the_inputs_are_what_the_model_sees(trained, rows):
    inputs = trained.inputs(rows)
    assert {name: value.shape for name, value in inputs.items()} == {"numeric": (ROWS, 4), "categorical": (ROWS, 1)}
    logits = trained.model(inputs, training=False).numpy()[:, 0]
    assert np.allclose(1 / (1 + np.exp(-logits.astype(np.float64))), trained.predict(rows), atol=1e-6)


def test_the_exported_model_predicts_the_same(trained, rows, tmp_path):
    path = trained.export(tmp_path / "exported")
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    asked = {name: tf.constant(rows[name]) for name in ("x", "letter", "vector")}
    assert np.abs(signature(**asked)["probability"].numpy() - trained.predict(rows)).max() < 1e-5
    with pytest.raises(ConfigError, match="something already"):
        trained.export(path)


def test_the_weights_are_those_of_the_training_stage(trained, rows, tmp_path):
    stored = StoredRows.of(RawRows.of(rows), label=LabelConfig(column="y"), split=SplitConfig())
    size = Facts(rows=stored.splits["train"].num_rows, width=5, task="binary")
    training, config = resolve(TrainingConfig(**TRAINING), ModelConfig(**MODEL), size)
    request = TrainRequest(transform=trained.parameters, model=config, training=training, seed=3)
    train(request, tmp_path, Monitor(), feed=Feed.from_arrow(stored.splits["train"], stored.stored.columns))
    found = tf.train.load_checkpoint(str(tmp_path / "weights"))
    kept = [found.get_tensor(VARIABLE.format(number)) for number in range(len(trained.model.variables))]
    assert_same_bytes([variable.numpy() for variable in trained.model.variables], kept)


@pytest.mark.parametrize("form", ["csv", "parquet", "folder", "source", "arrow"])
def test_rows_of_files_and_of_memory_are_split_and_stored_alike(form, rows, tmp_path):
    import pyarrow.csv
    import pyarrow.parquet as pq

    table = pa.table({"x": rows["x"], "letter": rows["letter"], "y": rows["y"].astype(np.int64)})
    expected = StoredRows.of(RawRows.of(table), label=LabelConfig(column="y"), split=SplitConfig(test=0.1))
    assert {*expected.splits} == {"train", "eval", "test"}
    file = tmp_path / ("rows.csv" if form in ("csv", "source") else "rows.parquet")
    (pyarrow.csv.write_csv if file.suffix == ".csv" else pq.write_table)(table, file)
    given = {
        "csv": file,
        "parquet": str(file),
        "folder": tmp_path,
        "source": SourceConfig(format="csv", path=str(file)),
        "arrow": table.to_batches()[0],
    }[form]
    found = StoredRows.of(RawRows.of(given), label=LabelConfig(column="y"), split=SplitConfig(test=0.1))
    for name, split in expected.splits.items():
        assert found.splits[name].num_rows == split.num_rows
        assert found.splits[name].column("label").to_pylist() == split.column("label").to_pylist()


@pytest.mark.parametrize(
    ("labels", "shape", "task"),
    [
        (lambda rows: rows["letter"], (ROWS, 3), "multiclass"),
        (lambda rows: rows["x"] * 3, (ROWS,), "regression"),
    ],
)
def test_the_label_tells_the_task(labels, shape, task, rows):
    given = {"v": rows["vector"], "x": rows["x"] + 0.1, "label": labels(rows)}
    trained = tfcore.fit(given, label="label", training=QUICK, model={"hidden": []}, split=None)
    assert trained.parameters.label.task == task and trained.metrics == {}
    assert trained.predict(given).shape == shape
    assert trained.evaluate(given)["loss"] is not None


def test_columns_have_the_roles_and_transforms_of_a_pipeline(rows):
    given = rows | {"weight": np.r_[np.zeros(ROWS // 2), np.ones(ROWS - ROWS // 2)], "text": rows["letter"]}
    columns = {"weight": "weight", "text": "ignore", "x": ["standardize"], "*": "auto"}
    trained = tfcore.fit(given, label="y", columns=columns, training=QUICK, model={"hidden": []})
    assert {column.name for column in trained.parameters.raw} == {"x", "letter", "vector"}
    half = {name: values[ROWS // 2 :] for name, values in given.items()}
    assert trained.evaluate(given)["loss"] == pytest.approx(trained.evaluate(half)["loss"])


def test_a_keras_model_is_trained_in_place(rows):
    model = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    trained = tfcore.fit({"v": rows["vector"], "y": rows["y"]}, label="y", model=model, training=QUICK)
    numeric = trained.inputs({"v": rows["vector"]})["numeric"]
    assert np.allclose(model(numeric), trained.model({"numeric": numeric, "categorical": np.zeros((ROWS, 0))}))
    named = {"numeric": keras.Input([4], name="numeric")}
    head = keras.Model(named, keras.layers.Dense(1)(named["numeric"]))
    before = head.get_weights()
    tfcore.fit(rows, label="y", model=head, training=QUICK)
    assert not np.array_equal(before[0], head.get_weights()[0])


def test_a_function_of_the_layout_makes_the_model(rows):
    def wide(layout, options):
        inputs = {name: keras.Input(shape, dtype=dtype, name=name) for name, (shape, dtype) in layout.inputs().items()}
        return keras.Model(inputs, keras.layers.Dense(1, name="mine")(inputs["numeric"]))

    one = tfcore.fit(rows, label="y", model=wide, training=QUICK | {"learning_rate": 1e-12}, seed=1)
    assert one.model.get_layer("mine") and "test_fit:wide" in one.settings
    again = build(ModelConfig(), one.parameters, seed=1, builder=wide)  # what the seed gives
    for ours, theirs in zip(one.model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)
    with pytest.raises(ConfigError, match=r"test_fit:.*lambda.*: the function failed: KeyError: 'numbers'"):
        tfcore.fit(rows, label="y", model=lambda layout: layout.inputs()["numbers"], training=QUICK)


def test_another_precision_gives_a_model_of_float32(rows):
    training = QUICK | {"precision": "bfloat16", "learning_rate": 0.05}
    trained = tfcore.fit(rows, label="y", training=training, model={"hidden": [8]})
    assert trained.metrics["auc"] > 0.85
    inputs = trained.inputs(rows)
    assert trained.model(inputs, training=False).dtype == tf.float32
    assert {layer.compute_dtype for layer in trained.model.layers if layer.weights} == {"float32"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"label": "z"}, r"there is no column 'z'.*\n.*there is: 'x'|there is no column 'z'"),
        ({"label": "x +"}, "label: "),
        ({"model": "mpl"}, "did you mean 'mlp'"),
        ({"model": "mine:model"}, "give the function itself"),
        ({"model": {"name": "mine:model"}}, "give it itself"),
        ({"training": {"step": 3}}, r"training: .*step"),
        ({"split": {"mode": "time"}}, "no spans"),
        ({"split": {"eval": 2}}, "split: .*eval"),
        ({"task": "my:Task"}, "beside a pipeline"),
        ({"training": {"loss": "my:loss"}}, "beside a pipeline"),
        ({"columns": "all"}, "neither 'auto' nor"),
        ({"columns": {"x": "standardise"}}, "standardise"),
        ({"columns": {"xx": "ignore", "*": "auto"}}, "there is no column 'xx'"),
        ({"columns": {"letter": ["standardize"]}}, "standardize needs numbers"),
        ({"label": "x > 99"}, "has the label 0"),
        ({"model": keras.Sequential([keras.layers.Dense(1)])}, "takes one tensor.*\n.*give keras.Model"),
        ({"rows": {}}, "there are no columns"),
        ({"rows": {"x": np.zeros(0)}}, "there are no rows"),
        ({"rows": {"x": np.zeros(3), "y": np.zeros(2)}}, "column 'y' has 2 rows, and 'x' has 3"),
        ({"rows": {"x": np.zeros([3, 2, 2])}}, "has the shape"),
        ({"rows": {"x": 3}}, "expected an array, given int"),
        ({"rows": {"x": [1, "a"], "y": [0, 1]}}, "column 'x' cannot be read"),
        ({"rows": [1, 2]}, "expected a table, given list"),
        ({"rows": "nowhere/*.csv"}, "no file matches"),
        ({"rows": __file__}, "does not end as"),
    ],
)
def test_bad_input_is_a_sentence_with_the_fix(change, words, rows):
    given = {"rows": rows, "label": "y", "training": QUICK, **change}
    with pytest.raises(HeadwayError, match=f"(?s){words}"):
        tfcore.fit(given.pop("rows"), **given)


def test_rows_that_do_not_fit_are_told_and_too_many_of_them_refused(rows):
    texts = rows["x"].astype(str).astype(object)
    texts[17] = "n/a?"
    trained = tfcore.fit(rows | {"x": texts}, label="y", training=QUICK, model={"hidden": []}, columns=_number("x"))
    assert trained.rejected.to_pylist()[0] | {"reason": ""} == {
        "file": "", "row": 17, "column": "x", "value": "n/a?", "reason": "",
    }  # fmt: skip
    assert any("1 of 400 rows" in note and "row 17, column 'x': 'n/a?'" in note for note in trained.notes)
    with pytest.raises(DataError, match=r"row 17, column 'x': 'n/a\?'"):
        trained.predict(rows | {"x": texts})
    texts[:50] = "bad?"
    with pytest.raises(DataError, match="50 of 400 rows"):
        tfcore.fit(rows | {"x": texts}, label="y", columns=_number("x"))
    with pytest.raises(DataError, match="there is no column 'letter'"):
        trained.predict({"x": rows["x"]})


def _number(name):
    return {name: {"type": "float"}, "*": "auto"}


def test_a_monitor_hears_of_the_training_and_stops_it(rows):
    heard = []

    class Ear(Monitor):
        def progress(self, done, total, unit, **facts):
            heard.append((done, unit))
            self.stop.set()

    with pytest.raises(Cancelled):
        tfcore.fit(rows, label="y", training={**QUICK, "steps": 5000}, monitor=Ear(threading.Event()))
    assert heard


@pytest.mark.long
def test_stacked_finds_an_interaction_and_of_noise_learns_next_to_nothing():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(900, 4)).astype(np.float32)
    product, noise = x[:, 0] * x[:, 1], rng.normal(size=900)
    training = {"steps": 400, "jit": "off", "learning_rate": {"name": "cosine", "initial": 0.005}}

    def fitted(label):
        rows = {f"x{place}": x[:, place] for place in range(4)} | {"y": label.astype(np.float32)}
        return tfcore.fit(rows, label="y", model={"name": "stacked", "hidden": [16]}, training=training)

    assert fitted(product).metrics["r2"] > 0.7
    assert fitted(noise).metrics["r2"] > -0.05


def test_a_number_that_names_schools_is_learned_school_by_school_where_values_recur():
    rng = np.random.default_rng(0)
    school, noise, x = rng.integers(0, 60, 1500), rng.integers(0, 60, 1500), rng.normal(size=1500)
    label = rng.normal(size=60)[school] + x + rng.normal(size=1500)
    rows = {"school": school, "noise": noise, "x": x.astype(np.float32), "y": label.astype(np.float32)}
    trained = tfcore.fit(rows, label="y", model={"recurring": True, "hidden": [8]}, training=QUICK | {"steps": 400})
    assert [entry.name for entry in trained.parameters.categorical] == ["school__value", "noise__value"]
    assert trained.metrics["r2"] > 0.5  # 0.67 of the variance can be known, 0.33 without schools
    weights = trained.model.get_layer("wide_categorical").table.numpy()
    size = trained.parameters.categorical[0].size
    assert np.linalg.norm(weights[size:]) < 0.2 * np.linalg.norm(weights[:size])


def test_what_stacked_knows_of_people_does_not_count_where_the_split_keeps_people_apart():
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(150), 8)
    x, label = rng.normal(size=(150, 4))[who] + 0.02 * rng.normal(size=(1200, 4)), rng.normal(size=150)[who]
    rows = {f"x{place}": x[:, place].astype(np.float32) for place in range(4)} | {"who": who, "y": label.astype("f")}
    trained = tfcore.fit(
        rows,
        label="y",
        model={"name": "stacked", "hidden": [16]},
        training={"steps": 200, "jit": "off", "learning_rate": {"name": "cosine", "initial": 0.005}},
        columns={"who": {"role": "key"}, "*": "auto"},
        split={"key": "who"},
    )
    weights = np.exp(10 * trained.model.get_layer("stack").shares.numpy())
    # 0.9 by rows: other rows of the same people, whom eval does not have, favour nets that learn people by heart
    assert weights[:2].sum() / weights.sum() < 0.3


LOADS = """
import os, sys
import tensorflow  # once for all, and with it keras: what tfcore does before that is in tests/headway/test_process_tuning.py
for imports in sys.argv[2:]:
    if not os.fork():
        exec(imports)
        model = keras.saving.load_model(sys.argv[1])
        print(type(model.layers[-1]).__module__, len(model.layers), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, imports
"""


@pytest.mark.long
def test_a_saved_model_loads_in_a_fresh_process_that_imported_tfcore(trained, tmp_path):
    orders = "import keras; import tfcore", "import tfcore; from keras import saving; import keras"
    model = build(ModelConfig(name="stacked", hidden=(8,)), trained.parameters, seed=0)
    model.save(tmp_path / "model.keras")
    command = [sys.executable, "-c", LOADS, str(tmp_path / "model.keras"), *orders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == [f"{type(model.layers[-1]).__module__} {len(model.layers)}"] * 2


def test_a_trained_model_is_one_that_keras_saves_and_loads(trained, rows, tmp_path):
    trained.model.save(tmp_path / "model.keras")
    again, inputs = keras.saving.load_model(tmp_path / "model.keras"), trained.inputs(rows)
    assert_same_bytes(again(inputs, training=False), trained.model(inputs, training=False))


@pytest.mark.long
def test_two_towers_choose_among_a_batch_s_items_and_other_models_say_why_not(rows):
    towers = {"name": "two_towers", "item": ["letter"], "hidden": [4], "embedding": 2}
    training = {**QUICK, "batch_size": 32, "retrieval": {}}
    columns = {"*": "auto", "letter": "vocabulary"}
    trained = tfcore.fit(rows, label="y", columns=columns, model=towers, training=training)
    assert np.isfinite(trained.history[-1]["loss"])
    with pytest.raises(ConfigError, match="only two_towers has vectors of items, not mlp"):
        tfcore.fit(rows, label="y", columns=columns, model="mlp", training=training)


def test_a_source_with_a_filter_is_refused_and_a_file_without_rows_says_so(trained, tmp_path):
    (tmp_path / "rows.csv").write_text("x,letter,y\n1,a,0\n")
    with pytest.raises(ConfigError, match="rows are not filtered here"):
        tfcore.fit(SourceConfig(format="csv", path=str(tmp_path / "rows.csv"), where="x < 10"), label="y")
    table = pa.table({name: pa.array(list(values)) for name, values in made(1).items() if name != "y"})
    pq.write_table(table.slice(0, 0), tmp_path / "empty.parquet")
    with pytest.raises(DataError, match="there are no rows"):
        trained.predict(tmp_path / "empty.parquet")


def test_a_row_without_a_label_may_be_without_a_split():
    rows = made(60)
    rows["s"] = [None if at == 3 else "eval" if at % 4 == 0 else "train" for at in range(60)]
    rows["y"] = [None if at == 3 else bool(y) for at, y in enumerate(rows["y"])]
    ingested = StoredRows.of(
        RawRows.of(rows),
        label=LabelConfig(column="y"),
        columns="auto",
        split=SplitConfig(mode="column", column="s"),
        task="auto",
    )
    assert ingested.splits["train"].num_rows + ingested.splits["eval"].num_rows == 59
    assert any("1 row has no label" in note for note in ingested.notes)
