"""tfcore.models.towers.two_towers: whose inputs are whose, and vectors whose product is the score."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from headway.errors import ConfigError
from tfcore.models.build import build
from tfcore.models.config import ModelConfig
from tfcore.models.towers.two_towers import as_vectors, sides


def layout(task="binary"):
    return SimpleNamespace(
        numeric=("age", "price", "price__missing"),
        categorical=tuple(SimpleNamespace(name=name, size=5) for name in ("gender", "movie")),
        lists=tuple(SimpleNamespace(name=name, size=5, width=width) for name, width in (("genres", 2), ("liked", 3))),
        edges=((),) * 3,
        inputs=lambda: {"numeric": ((3,), "float32"), "categorical": ((2,), "int32"), "lists": ((5,), "int32")},
        label=SimpleNamespace(task=task, classes=["a", "b", "c"], counts=(1, 1, 1)),
    )


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "numeric": tf.constant(rng.standard_normal((count, 3)), tf.float32),
        "categorical": tf.constant(rng.integers(0, 5, (count, 2)), tf.int32),
        "lists": tf.constant(rng.integers(-1, 5, (count, 5)), tf.int32),
    }


CONFIG = {"name": "two_towers", "item": ("movie", "price", "genres"), "embedding": 3}


@pytest.mark.parametrize("hidden", [(), (4,)])
def test_the_product_of_the_vectors_orders_a_users_items_as_the_score_does(hidden):
    assert sides(ModelConfig(**CONFIG), layout()) == {"user": ([0], [0], [1]), "item": ([1, 2], [1], [0])}
    model = build(ModelConfig(**CONFIG, hidden=hidden), layout(), seed=1)
    for variable in model.variables:
        variable.assign(np.random.default_rng(variable.shape.rank).normal(0, 0.5, variable.shape))
    one = {name: tf.repeat(value, 20, axis=0) for name, value in rows(1).items()}
    items, of_user = rows(20, seed=1), {"numeric": [0], "categorical": [0], "lists": [2, 3, 4]}
    places = {name: np.isin(np.arange(value.shape[1]), of_user[name]) for name, value in one.items()}
    given = {name: tf.where(places[name], value, items[name]) for name, value in one.items()}
    user, item = as_vectors(model, "user", given).numpy(), as_vectors(model, "item", given).numpy()
    assert np.ptp(user, axis=0).max() == 0 and user.shape == (20, 4)
    difference = model(given).numpy()[:, 0] - (user * item).sum(1)
    np.testing.assert_allclose(difference, difference[0], rtol=1e-4)


@pytest.mark.parametrize(
    ("item", "task", "words"),
    [
        (("film",), "binary", "'film' gives the model no input"),
        (("movie", "price", "genres", "age", "gender", "liked"), "binary", "all columns are the item's"),
        (("movie",), "multiclass", "one number per row"),
    ],
)
def test_towers_that_cannot_stand_are_refused(item, task, words):
    with pytest.raises(ConfigError, match=words):
        build(ModelConfig(name="two_towers", item=item), layout(task), seed=0)


def test_the_config_names_what_is_missing_or_too_much():
    with pytest.raises(ValueError, match="needs the columns of the item"):
        ModelConfig(name="two_towers")
    with pytest.raises(ValueError, match="two_towers does not have it"):
        ModelConfig(**CONFIG, dropout=0.1)
    with pytest.raises(ValueError, match="only two_towers has it"):
        ModelConfig(item=("movie",))
