"""The space of `headway tune`: what it may vary, and what it may not, with the key in the error."""

from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from flows.config.pipeline import read_pipeline
from flows.config.tune_config import Range, TuneConfig
from flows.pipeline.tune import check_space, overrides_at, space_of
from flows.records import ResolvedSettings
from headway.errors import ConfigError
from tfcore.train.auto import Facts, resolve


def test_a_space_is_ranges_and_choices():
    config = TuneConfig.model_validate(
        {
            "space": {
                "training.learning_rate.settings.initial": {"low": 1e-4, "high": 1e-2, "log": True},
                "training.batch_size": {"low": 32, "high": 256},
                "model.hidden": [[64], [], [64, 32]],
            }
        }
    )
    rate, batch, hidden = config.space.values()
    assert isinstance(rate, Range) and not rate.whole and rate.log
    assert isinstance(batch, Range) and batch.whole
    assert hidden == ([64], [], [64, 32])


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"gate.primary": ["auc", "loss"]}, "gate.primary: a space varies keys of training and model"),
        ({"training": ["auto", {}]}, "training: a space varies keys"),
        ({"training.class_weights": [None, "balanced"]}, "training.class_weights: it weighs the holdout's rows too"),
        ({"training.early_stopping.holdout": [0.1, 0.2]}, "training.early_stopping.holdout: trials would be judged on"),
        ({"training.batch_size": [64]}, "training.batch_size: a list needs two choices or more"),
        ({"training.batch_size": [64, 64]}, "training.batch_size: a choice stands twice"),
        ({"model.dropout": {"low": 0.5, "high": 0.1}}, "low 0.5 is not below high 0.1"),
        ({"model.l2": {"low": 0, "high": 0.1, "log": True}}, "low 0 has no logarithm"),
    ],
)
def test_a_bad_space_is_refused_by_its_key(space, said):
    with pytest.raises(ValidationError, match=said):
        TuneConfig.model_validate({"space": space})


PIPELINE = "name: p\nsource: {format: csv, path: data.csv}\nlabel: y\n"


@pytest.fixture
def made(tmp_path):
    """(loaded, base) of a pipeline with some more lines, of 5,000 train rows."""

    def make(more=""):
        file = tmp_path / "pipeline.yaml"
        file.write_text(PIPELINE + more)

        loaded, size = read_pipeline(file), Facts(rows=5_000, width=8, task="binary")
        training, model = resolve(loaded.pipeline.training, loaded.pipeline.model, size)
        base = SimpleNamespace(data_facts=size)
        settings = {"training": training.model_dump(mode="json"), "model": model.model_dump(mode="json")}
        base.settings = ResolvedSettings(rows=5_000, says="", **settings)
        return loaded, base

    return make


def test_a_key_within_a_chosen_schedule_keeps_the_rest_of_what_was_chosen_for_that_batch(made):
    loaded, base = made("model: {name: mlp}\ntraining: auto\n")
    overrides = overrides_at(
        loaded, base, {"training.learning_rate.settings.initial": 0.01, "training.batch_size": 512}
    )
    pipeline = loaded.with_overrides(overrides).pipeline
    rate = pipeline.training.learning_rate
    # 1,000 steps, of which a twentieth warms up
    assert (rate.name, rate.initial, rate.warmup_steps, pipeline.training.batch_size) == ("cosine", 0.01, 50, 512)
    # every key that the point does not name is chosen as before
    assert pipeline.training.model_fields_set == {"learning_rate", "batch_size"}


def test_a_pipeline_without_a_space_gets_one_for_its_model(made):
    loaded, base = made("model: {name: mlp}\n")
    space = space_of(loaded, base)
    assert set(space) == {
        "training.learning_rate.settings.initial",
        "training.batch_size",
        "model.hidden",
        "model.dropout",
        "model.l2",
    }
    rate = space["training.learning_rate.settings.initial"]
    assert isinstance(rate, Range)
    assert rate.low < base.settings.training["learning_rate"]["settings"]["initial"] < rate.high
    check_space(loaded, base, space)
    ensemble, base = made("model: {name: ensemble}\n")
    check_space(ensemble, base, space_of(ensemble, base))


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"training.lerning_rate": (0.1, 0.2)}, "training.lerning_rate: 0.1 does not fit"),
        ({"training.batch_size": (64, "zwei")}, "training.batch_size: 'zwei' does not fit"),
        ({"model.dropout": Range(low=0.1, high=1.5)}, "model.dropout: 1.5 does not fit"),
        ({"training.early_stopping.patience": (2, 3)}, "training.early_stopping is None here, which has no patience"),
    ],
)
def test_a_value_that_does_not_fit_the_pipeline_is_named_before_anything_is_trained(made, space, said):
    loaded, base = made()
    with pytest.raises(ConfigError) as raised:
        check_space(loaded, base, space)
    assert said in str(raised.value) and "tune.space" in raised.value.where
