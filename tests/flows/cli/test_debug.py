"""`headway debug step`: on ingested spans, with a model of the user's that goes wrong, and without writing to the store."""

import json
import shutil

import pytest

MODULE = """
import keras
import numpy as np
import tensorflow as tf

from tfcore.graph.python_op import numpy_op

rank = numpy_op(lambda x: np.argsort(x).astype(np.float32), tf.TensorSpec([None], tf.float32), gradient="stop")


class Ratio(keras.layers.Layer):
    def call(self, x):
        return x / (x - x)


class Rank(keras.layers.Layer):
    def call(self, x):
        return x + rank(x[:, 0])[:, None]


def preprocess(columns):
    if tf.reduce_max(columns["distance"]) > 0:
        miles = columns["distance"]
    else:
        miles = -columns["distance"]
    return {"thousands": tf.cast(miles, tf.float32) / 1000.0}


def model(layout, options):
    inputs = {name: keras.Input(row, dtype=dtype, name=name) for name, (row, dtype) in layout.inputs().items()}
    x = keras.layers.Dense(4, name="first")(inputs["numeric"])
    x = Rank(name="rank")(x)
    x = Ratio(name="ratio")(x)
    x = keras.layers.Dense(4, activation="relu", name="second")(x)
    return keras.Model(inputs, keras.layers.Dense(1, name="output")(x))
"""


@pytest.fixture
def broken(exported):
    """With the spans ingested, and nothing else."""
    project = exported
    for stage in (project / "store" / "stages").iterdir():
        if stage.name != "ingest":
            shutil.rmtree(stage)
    (project / "mine.py").write_text(MODULE)
    text = (project / "pipeline.yaml").read_text()
    text = text.replace("model: {hidden: [16, 8], embedding: 4}", 'model: {name: "mine:model"}')
    text += 'preprocess: {function: "mine:preprocess", columns: {thousands: standardize}}\n'
    (project / "pipeline.yaml").write_text(text)
    return project


def _files(folder):
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_model_that_goes_wrong_is_reported_where_and_the_store_stays_as_it_is(broken, typed):
    done = typed("debug", "step", broken, "--set", "store=none")
    assert done.returncode == 5 and "headway ingest" in done.stderr
    typed("ingest", broken, check=0)
    before = _files(broken / "store")
    done = typed("debug", "step", broken, "--resumed", "--out", broken / "seen")
    assert done.returncode == 5 and "no checkpoint of this training" in done.stderr
    long = ["--set", "training.steps=2500"]  # so that XLA is asked
    done = typed("debug", "step", broken, "--steps", "3", "--json", *long, check=0)
    found = json.loads(done.stdout)
    after = _files(broken / "store")
    assert {path: time for path, time in after.items() if path.parts[0] != "debug"} == before
    assert {path.parts[0] for path in after} - {path.parts[0] for path in before} == {"debug"}

    first = found["problems"][0]
    assert (first["kind"], first["where"]) == ("not finite", "layer 'ratio' (Ratio)")
    assert "its inputs were finite" in first["problem"]
    layers = {layer["layer"]: layer for layer in found["layers"]}
    assert list(layers) == ["first", "rank", "ratio", "second", "output"]
    assert layers["second"]["bad_inputs"] and not layers["rank"]["outputs"][0]["nan"]
    assert not found["applied"] and found["compiled"]["applied"] == [False] * 3

    compiled = found["compiled"]
    assert [name.partition(" (mine.py:")[0] for name in compiled["python"]] == ["mine:<lambda>"]
    assert compiled["mode"] == "graph" and "XLA cannot compile" in compiled["refused"]
    folder = broken / "store" / "debug"
    assert list(folder.rglob("profile/**/*.xplane.pb"))
    (text,) = folder.glob("*/report.txt")
    lines = text.read_text().splitlines()
    assert lines[1].startswith("  not finite: layer 'ratio' (Ratio): is the first")
    assert any("mine:<lambda>" in line for line in lines)


def test_mistakes_are_named(project, typed, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for more, words in [
        (["--steps", "0"], "is not a whole number from 1"),
        (["--out", tmp_path / "full"], "not an empty folder"),
    ]:
        done = typed("debug", "step", project, *more)
        assert done.returncode == 2 and words in done.stderr
