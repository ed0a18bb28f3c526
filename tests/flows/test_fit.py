"""`headway.fit`: a table becomes a span of a store, and the ordinary pipeline makes a model of it."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import headway
from headway.errors import ConfigError, DataError
from headway.registry.registry import Registry
from tfcore.models.build import load_trained as trained_model
from tfcore.models.config import ModelConfig
from tfcore.transform.parameters import TransformParameters

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("forked")]
QUICK = {"steps": 40, "jit": "off", "summaries": False}


def made(rows=400, seed=0):
    rng = np.random.default_rng(seed)
    x, letter = rng.normal(size=rows).astype(np.float32), rng.choice(["a", "b", "c"], rows)
    return {"x": x, "letter": letter, "y": (x + 2 * (letter == "a") > 0.5).astype(int)}


def layers(model, **config):
    """(the Keras model that the run trained, its transform)."""
    (transform,) = (step for step in model.run.record["stages"] if step["stage"] == "transform")
    output = model.pipeline._store.find("transform", transform["fingerprint"])
    parameters = TransformParameters.model_validate(output.result["parameters"])
    weights = model.run.output("train") / "weights"
    return trained_model(ModelConfig(**config), parameters, seed=0, module=None, weights=weights).model, parameters


def test_a_table_in_any_form_is_trained_on_and_rows_are_predicted_in_their_order(tmp_path):
    rows, store = made(), tmp_path / "kept"
    with headway.fit(pd.DataFrame(rows), label="y", store=store, training=QUICK | {"steps": 300}) as model:
        assert model.run.state == "promoted" and model.run.metrics["auc"] > 0.9
        forms = pd.DataFrame(rows), pa.table(rows), {name: rows[name] for name in ("x", "letter")}
        first, *others = (model.predict(form)["prediction"].to_pylist() for form in forms)
        assert len(first) == 400 and all(other == first for other in others)
        assert model.predict({"x": [None], "letter": ["d"]}).num_rows == 1
        with pytest.raises(DataError, match="there is no column"):
            model.predict({"x": [1.0]})
    pipeline = headway.open(store)
    assert pipeline.predict(pa.table(rows))["prediction"].to_pylist() == first
    again = headway.fit(pd.DataFrame(rows), label="y", store=store, training=QUICK | {"steps": 300}, progress=False)
    assert again.run.state == "already champion" and again.predict(rows)["prediction"].to_pylist() == first


def test_a_temporary_store_goes_and_a_rejected_candidate_predicts_too(capfd):
    rows = made() | {"y": np.random.default_rng(1).integers(0, 2, 400)}
    model = headway.fit(rows, label="y", training=QUICK, gate={"thresholds": {"auc": {"min": 0.9}}})
    folder = model.pipeline.file.parent
    assert model.run.state == "rejected" and Registry(model.pipeline._store, "table").champion() is None
    assert model.predict(rows).num_rows == 400 and "replay" in capfd.readouterr().err
    model.close()
    assert not folder.exists()


def test_a_pipeline_of_the_user_s_own_and_wrong_keys_are_refused(tmp_path):
    (tmp_path / "pipeline.yaml").write_text("name: mine\n")
    with pytest.raises(ConfigError, match="there is another pipeline already"):
        headway.fit(made(), label="y", store=tmp_path)
    assert (tmp_path / "pipeline.yaml").read_text() == "name: mine\n"
    with pytest.raises(ConfigError, match="trianing"):
        headway.fit(made(), label="y", trianing={})
    with pytest.raises(ConfigError, match="z"):
        headway.fit(made(), label="z")
    with pytest.raises(DataError, match="given int"):
        headway.fit(5, label="y")


def test_the_default_finds_an_interaction_and_of_noise_learns_next_to_nothing():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(900, 4)).astype(np.float32)
    product, noise = x[:, 0] * x[:, 1], rng.normal(size=900)

    def r2(label):
        rows = {f"x{place}": x[:, place] for place in range(4)} | {"y": label.astype(np.float32)}
        with headway.fit(rows, label="y", model={"hidden": [16]}, training={"steps": 600, "jit": "off"}) as model:
            return model.run.metrics["r2"]

    assert r2(product) > 0.7
    assert r2(noise) > -0.05


def test_what_the_default_knows_of_people_does_not_count_where_the_split_keeps_people_apart():
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(150), 8)
    x, label = rng.normal(size=(150, 4))[who] + 0.02 * rng.normal(size=(1200, 4)), rng.normal(size=150)[who]
    rows = {f"x{place}": x[:, place].astype(np.float32) for place in range(4)} | {"who": who, "y": label.astype("f")}
    keys = {
        "model": {"hidden": [16]},
        "training": {"steps": 500, "jit": "off"},
        "columns": {"who": {"role": "key"}, "*": "auto"},
        "split": {"key": "who"},
    }
    with headway.fit(rows, label="y", **keys) as model:
        net, _ = layers(model, **model.run.record["training"]["model"])
    # 0.9 by rows: other rows of the same people, whom eval does not have, favour nets that learn people by heart
    losses = net.get_layer("members").losses_left_out.numpy()
    assert losses.argmin() >= 2 and losses[0] > 1.1 * losses.min(), losses


def test_stand_ins_of_weight_0_leave_the_model_as_good_as_without_them():
    r = np.random.default_rng(1)
    x = r.normal(size=2000).astype(np.float32)
    y = (x + r.normal(size=2000) * 0.3).astype(np.float32)
    stand_in = r.random(2000) < 0.02
    rows = {"x": x, "y": np.where(stand_in, np.float32(1e5), y), "w": np.where(stand_in, np.float32(0), 1.0)}
    with headway.fit(rows, label="y", columns={"*": "auto", "w": {"role": "weight"}}, model={}, seed=1) as model:
        assert model.run.metrics["rmse"] < 0.35, model.run.metrics
        assert model.run.metrics["label_mean"] < 1
