"""Warm start: a category's vector stays with its category; the rest is taken where names, shapes and meanings agree."""

import json

import numpy as np
import pytest

from headway.errors import ConfigError, StoreError
from headway.schema.columns import Column
from tfcore.heads.label_parameters import LabelParameters
from tfcore.models.config import ModelConfig
from tfcore.train.request import TrainRequest, WarmStart
from tfcore.transform.parameters import Fitted, FittedOp, TransformParameters, apply_numeric


def _words(name, words, oov=1):
    column = Column(name=name, type="bytes", nullable=True)
    op = FittedOp(op="vocabulary", words=tuple(words), oov_buckets=oov)
    return Fitted(column=column, ops=(op,), size=len(words) + oov + 1)


def _number(name, mean, std, edges=()):
    op = FittedOp(op="standardize", mean=mean, std=std)
    return Fitted(column=Column(name=name, type="float32", nullable=False), ops=(op,), fill=0.0, edges=edges)


EDGES = (-1.0, 0.0, 1.0)
LABEL = {"task": "regression", "type": "float32"}
BEFORE = TransformParameters(
    fitted=(_words("carrier", ["UA", "B6", "DL"]), _number("delay", 3.0, 2.0, EDGES), _words("origin", ["EWR", "JFK"])),
    label=LabelParameters(mean=10.0, std=4.0, **LABEL),
)
AFTER = BEFORE.model_copy(
    update={
        "fitted": (_words("carrier", ["B6", "ZZ", "UA"]), BEFORE.fitted[1], _words("origin", ["JFK", "LGA", "EWR"]))
    }
)
"""As many values of the carrier as before: a table of the same shape."""
ROWS = [("UA", "EWR", 1.0), ("B6", "JFK", 7.0), ("ZZ", "LGA", -2.0), (None, "JFK", 3.0), ("XX", None, 0.5)]
"""carrier, origin, delay; ZZ and LGA are values that the earlier model did not know, XX one that neither does."""


def _inputs(layout):
    given = {"carrier": [r[0] for r in ROWS], "origin": [r[1] for r in ROWS], "delay": [r[2] for r in ROWS]}
    numeric, categorical = [], []
    for fitted in layout.fitted:
        op, values = fitted.ops[-1], given[fitted.column.name]
        if fitted.size is None:
            numeric.append(apply_numeric(op, np.asarray(values, np.float64)))
        else:
            known = {word: place for place, word in enumerate(op.words)}
            ids = [fitted.size - 1 if v is None else known.get(v, len(known)) for v in values]
            categorical.append(ids)
    return {"numeric": np.asarray(numeric, np.float32).T, "categorical": np.asarray(categorical, np.int32).T}


@pytest.fixture
def trained(tf, tmp_path):
    """(outputs, WarmStart) of a model of a layout, all of whose weights differ from the initial ones."""
    from tfcore.models.build import WEIGHTS, build, save_weights

    def make(config, layout=BEFORE, **more):
        model = build(config, layout, seed=1)
        random = np.random.default_rng(0)
        for variable in model.variables:
            variable.assign(random.normal(0.0, 0.3, variable.shape))
        folder = tmp_path / "trained"
        folder.mkdir(exist_ok=True)
        save_weights(model, folder / WEIGHTS)
        (folder / "model.json").write_text(json.dumps({"variables": [v.path for v in model.variables]}))
        parent = WarmStart(version=3, trained=folder, transform=layout, model=config)
        return np.asarray(model(_inputs(layout), training=False)), parent

    return make


def warm_started(config, parent, layout):
    """The model, and the report."""
    from tfcore.models.build import build
    from tfcore.train.warm_start import warm_start

    model = build(config, layout, seed=2)
    return model, warm_start(model, TrainRequest(transform=layout, model=config), parent)


def _begun(config, parent, layout=AFTER):
    model, report = warm_started(config, parent, layout)
    return np.asarray(model(_inputs(layout), training=False)), report


@pytest.mark.parametrize(
    "config",
    [
        {"name": "mlp", "hidden": (16, 8), "embedding": 3},
        {"name": "mlp", "hidden": (), "embedding": 3},
        {"name": "ensemble", "hidden": (8,)},
        {"name": "two_towers", "item": ("origin",), "hidden": (8,), "embedding": 4},
        {"name": "two_towers", "item": ("carrier",), "hidden": (), "embedding": 4},
    ],
)
def test_the_first_predictions_are_those_of_the_earlier_model_whatever_became_of_vocabularies(trained, config):
    config = ModelConfig(**config)
    before, parent = trained(config)
    after, report = _begun(config, parent)
    # ZZ and LGA stood for unknown values, and do
    assert np.allclose(after, before, atol=1e-5), (before, after)
    assert not report["new"] and all(path.endswith("/table") for path in report["partly"])
    assert "warm start from version 3" in report["says"] and "row by row: " in report["says"]


def test_a_vector_follows_its_value(trained):
    from tfcore.train.warm_start import _stored

    config = ModelConfig(name="mlp", hidden=(8,), embedding=3)
    _, parent = trained(config)
    model, _ = warm_started(config, parent, AFTER)
    old = _stored(parent.trained.file)["embeddings/table"]
    new = np.asarray(next(v for v in model.variables if v.path == "embeddings/table").value)
    # carrier: UA, B6, DL, unknown, null; origin: EWR, JFK, unknown, null
    assert np.array_equal(new[:5], old[[1, 3, 0, 3, 4]]) and np.array_equal(new[5:], old[[6, 7, 5, 7, 8]])


def _labelled(*classes):
    label = LabelParameters(task="multiclass", type="bytes", classes=classes, counts=(1,) * len(classes))
    return BEFORE.model_copy(update={"label": label})


OTHERS = {
    "classes in another order": (_labelled("a", "b", "c"), _labelled("c", "a", "b")),
    "another number in the place of one": (
        BEFORE,
        BEFORE.model_copy(update={"fitted": (BEFORE.fitted[0], _number("distance", 3.0, 2.0), BEFORE.fitted[2])}),
    ),
    "columns in another order": (BEFORE, BEFORE.model_copy(update={"fitted": BEFORE.fitted[::-1]})),
}


@pytest.mark.parametrize("change", OTHERS)
def test_weights_that_would_go_to_another_column_or_class_begin_anew(trained, change):
    config, (before, after) = ModelConfig(name="mlp", hidden=(8,), embedding=3), OTHERS[change]
    _, parent = trained(config, before)
    _, report = warm_started(config, parent, after)
    assert report["kept"] + report["partly"] == ["embeddings/table"]
    assert set(report["new"]) == {"hidden_0/kernel", "hidden_0/bias", "output/kernel", "output/bias"}


def test_other_layers_begin_anew_and_are_named(trained):
    _, parent = trained(ModelConfig(name="mlp", hidden=(16,), embedding=3))
    _, report = _begun(ModelConfig(name="mlp", hidden=(8,), embedding=3), parent)
    assert set(report["new"]) == {"hidden_0/kernel", "hidden_0/bias", "output/kernel"}
    assert report["partly"] == ["embeddings/table"] and report["kept"] == ["output/bias"]
    alone = BEFORE.model_copy(update={"fitted": BEFORE.fitted[1:2]})
    with pytest.raises(ConfigError, match="none of the weights of version 3 fits this model"):
        warm_started(ModelConfig(name="mlp", hidden=(4,), embedding=5), parent, alone)


def test_mistakes_are_named(trained, tmp_path):
    config = ModelConfig(name="mlp", hidden=(8,))
    _, parent = trained(config)
    binary = AFTER.model_copy(update={"label": LabelParameters(task="binary", type="int64")})
    with pytest.raises(ConfigError, match="version 3 was trained for a regression label, and this one is binary"):
        _begun(config, parent, binary)
    (parent.trained.file / "model.json").unlink()
    with pytest.raises(StoreError, match="cannot be read"):
        _begun(config, parent)


def _own(tf, units):
    import keras

    inputs = keras.Input([2], name="numeric")
    hidden = keras.layers.Dense(units, activation="relu")(inputs)  # without a name: Keras counts such layers
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(units)(hidden)))


def test_a_model_of_ones_own_is_taken_whole_or_not_at_all(tf, tmp_path):
    from tfcore.models.build import WEIGHTS, save_weights
    from tfcore.train.warm_start import warm_start

    config, old = ModelConfig(name="mine:model"), _own(tf, 2)
    save_weights(old, tmp_path / WEIGHTS)
    (tmp_path / "model.json").write_text(json.dumps({"variables": [v.path for v in old.variables]}))
    parent = WarmStart(version=3, trained=tmp_path, transform=BEFORE, model=config)

    def begin(model, layout):
        return warm_start(model, TrainRequest(transform=layout, model=config), parent)

    new = _own(tf, 2)
    assert len(begin(new, BEFORE)["kept"]) == 6
    assert all(np.array_equal(a, b) for a, b in zip(new.get_weights(), old.get_weights(), strict=True))
    for model, layout in ((_own(tf, 2), AFTER), (_own(tf, 3), BEFORE)):  # a vocabulary has changed; another model
        with pytest.raises(ConfigError, match="none of the weights of version 3 fits") as error:
            begin(model, layout)
        assert "not known which weights are whose" in error.value.fix
