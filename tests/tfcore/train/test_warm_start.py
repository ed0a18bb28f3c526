"""Warm start: a model begins where the earlier one ended, whatever became of vocabularies, columns, units and classes."""

import json

import numpy as np
import pytest

from headway.errors import ConfigError, StoreError
from headway.schema.columns import Column
from tfcore.heads.label_parameters import LabelParameters
from tfcore.models.config import ModelConfig
from tfcore.train.request import TrainRequest, WarmStart
from tfcore.transform.fitted import Fitted, FittedOp, apply_numeric
from tfcore.transform.parameters import TransformParameters


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
AFTER = TransformParameters(
    fitted=(
        _words("origin", ["JFK", "LGA", "EWR"]),
        _words("carrier", ["B6", "ZZ", "UA"]),
        _number("delay", 2.5, 1.5, EDGES),
        _number("distance", 0.0, 1.0, EDGES),
    ),
    label=LabelParameters(mean=12.0, std=5.0, **LABEL),
)
ROWS = [("UA", "EWR", 1.0), ("B6", "JFK", 7.0), ("ZZ", "LGA", -2.0), (None, "JFK", 3.0), ("XX", None, 0.5)]
"""carrier, origin, delay; ZZ and LGA are values that the earlier model did not know, XX one that neither does."""


def _inputs(layout):
    given = {"carrier": [r[0] for r in ROWS], "origin": [r[1] for r in ROWS], "delay": [r[2] for r in ROWS]}
    given["distance"] = [5.0] * len(ROWS)
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


def _begun(config, parent, layout=AFTER, log=lambda line: None):
    from tfcore.models.build import build
    from tfcore.train.warm_start import warm_start

    model = build(config, layout, seed=2)
    request = TrainRequest(transform=layout, model=config)
    report = warm_start(model, request, parent, assign=True, log=log)
    return np.asarray(model(_inputs(layout), training=False)), report


@pytest.mark.parametrize(
    "config",
    [
        {"name": "mlp", "hidden": (16, 8), "embedding": 3},
        {"name": "mlp", "hidden": (), "embedding": 3},
        {"name": "mlp", "hidden": (8,), "linear": True, "bins": 2},
        {"name": "wide_deep", "hidden": (8,), "embedding": 4},
    ],
)
def test_the_first_predictions_are_those_of_the_earlier_model(trained, config):
    if config.get("bins"):
        layout = AFTER.model_copy(update={"fitted": (*AFTER.fitted[:2], BEFORE.fitted[1], AFTER.fitted[3])})
    else:
        layout = AFTER
    config, said = ModelConfig(**config), []
    before, parent = trained(config)
    after, report = _begun(config, parent, layout, said.append)
    assert np.allclose(after, before, atol=2e-4 if config.bins else 1e-4), (before, after)
    # what stands for the new values is what stood for unknown ones
    assert report["columns"]["carrier"] == {"kept": 2, "new": ["ZZ"], "dropped": ["DL"]}
    assert report["columns"]["origin"] == {"kept": 2, "new": ["LGA"], "dropped": []}
    assert report["restandardized"] == ([] if config.bins else ["delay"])
    assert not report["new"] and not report["dropped"]
    assert "warm start from version 3" in said[0] and "carrier: 2 values kept, 1 new (ZZ), 1 dropped (DL)" in said[0]


def test_numbers_between_a_minimum_and_a_maximum_follow_these(trained):
    def layout(minimum, maximum, low, high):
        op = FittedOp(op="min_max", minimum=minimum, maximum=maximum, low=low, high=high)
        delay = BEFORE.fitted[1].model_copy(update={"ops": (op,)})
        return BEFORE.model_copy(update={"fitted": (BEFORE.fitted[0], delay, BEFORE.fitted[2])})

    config = ModelConfig(hidden=(8,), embedding=3)
    before, parent = trained(config, layout(-2.0, 7.0, 0.0, 1.0))
    after, report = _begun(config, parent, layout(-3.0, 9.0, -1.0, 2.0))
    assert np.allclose(after, before, atol=1e-5) and report["restandardized"] == ["delay"]


def test_the_length_of_a_list_does_not_move_with_its_values(tf):
    from tfcore.train.warm_start import _moved

    def layout(mean):
        op = FittedOp(op="standardize", mean=mean, std=1.0)
        delays = Column(name="delays", type="float32", nullable=False, shape=(None,))
        fitted = Fitted(column=delays, ops=(op,), fill=0.0, pool=("mean", "sum", "length"), longest=4)
        return TransformParameters(fitted=(fitted,), label=BEFORE.label)

    assert [*_moved(layout(1.0), layout(3.0))] == ["delays__mean"]


@pytest.mark.parametrize("name", ["mlp", "stacked"])
def test_models_whose_features_meet_begin_exactly_where_only_vocabularies_changed(trained, name):
    config = ModelConfig(name=name, hidden=(8,), embedding=3)
    layout = BEFORE.model_copy(
        update={"fitted": (_words("carrier", ["DL", "UA", "ZZ", "B6"]), BEFORE.fitted[1], BEFORE.fitted[2])}
    )
    before, parent = trained(config)
    after, report = _begun(config, parent, layout)
    assert np.allclose(after, before, atol=1e-5)
    assert report["partly"] == ["embeddings/table"]


def test_an_embedding_follows_its_value(tf, trained):
    from tfcore.models.build import build
    from tfcore.train.warm_start import _stored, warm_start

    config = ModelConfig(hidden=(8,), embedding=3)
    _, parent = trained(config)
    model = build(config, AFTER, seed=2)
    warm_start(model, TrainRequest(transform=AFTER, model=config), parent, assign=True, log=print)
    old = _stored(parent.trained.file)["embeddings/table"]
    new = np.asarray(next(v for v in model.variables if v.path == "embeddings/table").value)
    # carrier: UA, B6, DL, unknown, null; origin: EWR, JFK, unknown, null
    origin, carrier = new[:5], new[5:]
    assert np.array_equal(origin, old[[6, 7, 5, 7, 8]])
    assert np.array_equal(carrier, old[[1, 3, 0, 3, 4]])


def test_classes_keep_their_weights_in_another_order(trained):
    def labelled(*classes):
        label = LabelParameters(task="multiclass", type="bytes", classes=classes, counts=(1,) * len(classes))
        return BEFORE.model_copy(update={"label": label})

    config = ModelConfig(hidden=(8,), linear=True)
    before, parent = trained(config, labelled("a", "b", "c"))
    after, report = _begun(config, parent, labelled("c", "a", "b"))
    assert np.allclose(after, before[:, [2, 0, 1]], atol=1e-5)
    assert "output/bias" in report["partly"]


def test_other_layers_begin_anew_and_are_named(trained):
    _, parent = trained(ModelConfig(hidden=(16,), embedding=3))
    _, report = _begun(ModelConfig(hidden=(8,), embedding=3), parent)
    assert set(report["new"]) == {"hidden_0/kernel", "hidden_0/bias", "output/kernel"}
    assert report["partly"] == ["embeddings/table"]
    with pytest.raises(ConfigError, match="none of the weights of version 3 fits this model"):
        binary = BEFORE.model_copy(update={"label": LabelParameters(task="regression", type="float32")})
        _begun(ModelConfig(name="stacked", hidden=(4,), embedding=5), parent, binary)


def test_mistakes_are_named(trained, tmp_path):
    config = ModelConfig(hidden=(8,))
    _, parent = trained(config)
    binary = AFTER.model_copy(update={"label": LabelParameters(task="binary", type="int64")})
    with pytest.raises(ConfigError, match="version 3 was trained for a regression label, and this one is binary"):
        _begun(config, parent, binary)
    (parent.trained.file / "model.json").unlink()
    with pytest.raises(StoreError, match="cannot be read"):
        _begun(config, parent)


def test_layers_without_a_name_are_matched_by_their_order():
    from tfcore.train.warm_start import _ordered

    before = _ordered(["dense_7/kernel", "dense_7/bias", "towers/scale", "dense_9/kernel"])
    assert before == _ordered(["dense/kernel", "dense/bias", "towers/scale", "dense_1/kernel"])
