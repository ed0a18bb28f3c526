"""The signatures `embed` and `top_k` of an exported model of two towers, from a table to a loaded SavedModel."""

import json

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from headway.errors import ConfigError
from headway.monitor import Monitor
from headway.schema.columns import Column
from tests.example_shards import write_examples
from tfcore.export.saved_model import ExportRequest, export
from tfcore.export.signatures import describe_towers
from tfcore.models.config import ModelConfig
from tfcore.models.towers.item_index import FILE
from tfcore.serving.request_json import RequestError
from tfcore.serving.served_model import ServedModel
from tfcore.train.config import TrainingConfig
from tfcore.train.request import TrainRequest
from tfcore.train.stage import train

pytestmark = pytest.mark.long
MODEL = ModelConfig(name="two_towers", item=("movie", "genres", "price"), embedding=3, hidden=())
COLUMNS = (
    Column(name="age", type="float32", nullable=False),
    Column(name="liked", type="bytes", nullable=False, shape=(None,)),
    Column(name="movie", type="bytes", nullable=False, encoding="dictionary"),
    Column(name="genres", type="bytes", nullable=False, shape=(None,)),
    Column(name="price", type="float32", nullable=True),
    Column(name="label", type="int64", nullable=False, role="label"),
)
MOVIES = [f"m{number}".encode() for number in range(12)]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """(the loaded model, its description, the genre of each movie, the folder)"""
    folder, rng = tmp_path_factory.mktemp("towers"), np.random.default_rng(0)
    movie, genre = rng.integers(0, 12, 2000), np.arange(12) % 3
    taste = rng.integers(0, 3, 2000)
    columns = {
        "age": pa.array(rng.normal(size=2000).astype(np.float32)),
        "liked": pa.array([[MOVIES[t], MOVIES[t + 3]] for t in taste], pa.list_(pa.binary())),
        "movie": pa.array([MOVIES[m] for m in movie], pa.binary()),
        "genres": pa.array([[f"g{genre[m]}".encode()] for m in movie], pa.list_(pa.binary())),
        "price": pa.array((movie / 4).astype(np.float32), mask=movie == 5),
        "label": pa.array((genre[movie] == taste).astype(np.int64)),
    }
    examples = write_examples(folder / "examples", {"train": pa.table(columns)}, COLUMNS)
    transform = examples.fit(task="binary")
    request = TrainRequest(
        examples=(examples.part("train"),),
        transform=transform,
        model=MODEL,
        training=TrainingConfig(steps=200, batch_size=128, learning_rate=0.05, jit="off"),
    )
    train(request, folder / "trained", Monitor())
    export(ExportRequest(trained=folder / "trained", transform=transform, model=MODEL), folder, Monitor())
    described = json.loads((folder / "saved_model" / "assets.extra" / "signatures.json").read_text())
    with np.load(folder / "trained" / FILE) as items:
        assert sorted(items["ids"].tolist()) == list(range(12))
    return tf.saved_model.load(folder / "saved_model"), described, genre, folder / "saved_model"


def user(taste, rows=1):
    liked = tf.constant([[MOVIES[taste], MOVIES[taste + 3]]] * rows)
    return {"age": tf.fill([rows], 0.5), "liked": liked, "liked__length": tf.fill([rows], tf.constant(2, tf.int64))}


def excluding(*rows):
    """The inputs `exclude` and its length, of rows of items."""
    longest = max(map(len, rows))
    padded = [[*row, *[MOVIES[0]] * (longest - len(row))] for row in rows]
    return {
        "exclude": tf.reshape(tf.constant(padded, tf.string), [len(rows), longest]),
        "exclude__length": tf.constant([len(row) for row in rows], tf.int64),
    }


@pytest.mark.parametrize("taste", [0, 2])
def test_top_k_gives_the_items_that_the_model_scores_highest_and_their_products(world, taste):
    model, described, genre, _ = world
    assert not {tensor["column"] for tensor in described["top_k"]["inputs"]} & {"movie", "genres", "price"}
    best = model.signatures["top_k"](**user(taste), **excluding([]), k=tf.constant(12))
    given = user(taste, 12) | {
        "movie": tf.constant(MOVIES),
        "genres": tf.constant([[f"g{g}".encode()] for g in genre]),
        "genres__length": tf.fill([12], tf.constant(1, tf.int64)),
        "price": tf.range(12.0) / 4,
        "price__present": tf.range(12) != 5,
    }
    logits = model.signatures["serving_nullable"](**given)["logit"].numpy()
    assert best["items"].numpy()[0].tolist() == [MOVIES[place] for place in np.argsort(-logits)]
    assert all(genre[MOVIES.index(name)] == taste for name in best["items"].numpy()[0, :4])
    vectors = model.signatures["embed"](**given)
    products = (vectors["user"] * vectors["item"]).numpy().sum(1)
    np.testing.assert_allclose(best["scores"].numpy()[0], np.sort(products)[::-1], rtol=1e-4, atol=1e-5)


def test_top_k_of_more_items_than_there_are_is_refused(world):
    with pytest.raises(tf.errors.InvalidArgumentError, match="k must be from 1 to 12"):
        world[0].signatures["top_k"](**user(0), **excluding([]), k=tf.constant(13))
    with pytest.raises(tf.errors.InvalidArgumentError, match="k must be from 1 to 10, not 11"):
        gone = excluding([MOVIES[1], MOVIES[2], MOVIES[2], b"no movie"])
        world[0].signatures["top_k"](**user(0), **gone, k=tf.constant(11))


def test_top_k_leaves_out_what_each_row_excludes(world):
    top_k = world[0].signatures["top_k"]
    every = top_k(**user(1), **excluding([]), k=tf.constant(12))["items"].numpy()[0].tolist()
    rows = [every[:3], [b"unknown", every[4]], []]
    best = top_k(**user(1, 3), **excluding(*rows), k=tf.constant(5))["items"].numpy().tolist()
    assert best == [[one for one in every if one not in row][:5] for row in rows]
    for_all = {"exclude": tf.constant([every[:2]]), "exclude__length": tf.constant([-1], tf.int64)}
    assert top_k(**user(1, 2), **for_all, k=tf.constant(3))["items"].numpy().tolist() == [every[2:5]] * 2
    with pytest.raises(tf.errors.InvalidArgumentError, match="exclude has"):
        top_k(**user(1, 3), **excluding([], []) | {"exclude__length": tf.constant([-1], tf.int64)}, k=tf.constant(5))


def test_a_request_over_http_may_exclude_items_for_some_of_its_rows(world):
    model = ServedModel(world[3], "movies", 1)
    model.warm_up()
    asker = {"age": 0.5, "liked": ["m1", "m4"]}
    reader = model.reader("top_k")
    rows = reader.of_instances([asker | {"exclude": ["m1", "m4"]}, asker])
    items = model.call(rows)["items"].tolist()
    assert len(items[0]) == 10 and items[0] == [one for one in items[1] if one not in (b"m1", b"m4")] + items[0][8:]
    columns = {"age": [0.5], "liked": [["m1", "m4"]], "k": 3}
    plain, without = (
        model.call(given)["items"][0].tolist()
        for given in (reader.of_inputs(columns), reader.of_inputs(columns | {"exclude": [["m1"]]}))
    )
    assert len(plain) == 3 and without[:2] == [one for one in plain if one != b"m1"][:2] and b"m1" not in without
    with pytest.raises(RequestError, match="k must be from 1 to 11, not 12"):
        model.call(reader.of_inputs(columns | {"exclude": [["m1"]], "k": 12}))
    with pytest.raises(RequestError, match="is 'm1', not a list"):
        reader.of_inputs(columns | {"exclude": ["m1"]})


def test_a_column_called_like_an_input_of_top_k_is_refused():
    columns = (*COLUMNS[:-1], Column(name="exclude", type="float32", nullable=False))
    with pytest.raises(ConfigError, match="'exclude' is an input of the signature top_k"):
        describe_towers(columns, ("movie",), 4, True)
