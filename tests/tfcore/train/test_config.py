"""tfcore.train's config, schedules and patience: no TensorFlow in any of them."""

import inspect
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.config import load
from headway.errors import ConfigError
from tfcore.models.config import ModelConfig
from tfcore.train.callbacks import EarlyStopping
from tfcore.train.config import SETTINGS, EarlyStoppingConfig, TrainingConfig
from tfcore.train.schedule import OPTIONAL, REQUIRED, Schedule, StepValues, check_schedules, cosine

COSINE = Schedule(name="cosine", settings={"initial": 0.01, "warmup_steps": 7})


def test_shorthands():
    config = TrainingConfig.model_validate({"learning_rate": 0.1, "optimizer": "sgd", "early_stopping": True})
    assert config.learning_rate == 0.1
    assert TrainingConfig.model_validate({"learning_rate": "cosine"}).learning_rate == Schedule(name="cosine")
    assert config.optimizer.name == "sgd"
    assert config.early_stopping == EarlyStoppingConfig()
    assert [TrainingConfig.model_validate({"jit": word}).jit for word in (True, False, "auto")] == ["on", "off", "auto"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"ranking": {}, "strategy": "multi_worker"}, "would cut the groups of training.ranking"),
        ({"ranking": {}, "micro_batches": 2}, "would cut the groups of training.ranking"),
        ({"ranking": {}, "augment": {"mixup": 0.2}}, "mixup makes rows of two groups"),
        ({"ranking": {"k": 3}}, "only lambdarank has it"),
        ({"ranking": {"share": 0.0}}, "ranking.share"),
        ({"ranking": {"share": 1.0}}, "ranking.share"),
        ({"retrieval": {}, "batch_size": 16_384}, "at most 8,192 rows"),
        ({"retrieval": {}, "micro_batches": 2}, "compares the items of whole batches"),
        ({"retrieval": {}, "augment": {"mixup": 0.2}}, "mixup makes rows of two items"),
        ({"retrieval": {}, "strategy": "mirrored"}, "compares a row with all items of its batch"),
        ({"eager": True, "jit": "on"}, "leave out jit: on"),
        ({"eager": True, "strategy": "mirrored"}, "leave out strategy: mirrored"),
        ({"epochs": 1, "steps": 2}, "exclude each other"),
        ({"optimizer": {"name": "sgd", "settings": {"momentun": 0.9}}}, "did you mean 'momentum'?"),
        ({"optimizer": {"name": "sgd", "settings": {"beta_1": 0.9}}}, "beta_1: sgd has no such setting"),
        ({"optimizer": {"name": "sgd", "momentum": 0.9}}, "known keys: name, settings"),
        ({"optimizer": "adamm"}, "adamm"),
        ({"learning_rate": {"name": "cosin"}}, "cosin"),
        ({"learning_rate": True}, "a number"),
        ({"learning_rate": 0}, "not a learning rate"),
        ({"learning_rate": {"name": "cosine", "settings": {"initial": -1}}}, "not a learning rate"),
        ({"learning_rate": {"name": "cosine", "settings": {"warmup_steps": 0.5}}}, "0.5 is not a number of steps"),
        ({"learning_rate": {"name": "CosineDecay", "settings": {"decay_step": 5}}}, "did you mean 'decay_steps'?"),
        ({"learning_rate": {"name": "CosineDecay", "settings": {"decay_steps": 5}}}, "needs initial_learning_rate"),
        ({"schedules": {"temperature": 0}}, "above 0"),
        ({"schedules": {"label_smoothing": 1.0}}, "below 1"),
        ({"schedules": {"x": float("nan")}}, "finite"),
        ({"schedules": {"x": 1e-60}}, "which float32 does not hold; it would be 0"),
        ({"schedules": {"temperature": {"name": "cosine", "settings": {"initial": 2}}}}, "above 0"),
        ({"schedules": {"dropout": {"name": "cosine"}}}, "cosine needs settings: {initial: ...}"),
        ({"schedules": {"Margin": 1.0}}, "not a name"),
        ({"schedules": {"clip_norm": 1.0}}, "has a key of its own: training.clip_norm"),
        ({"class_weights": {"1": -1}}, "class_weights"),
        ({"batchsize": 3}, "did you mean 'batch_size'?"),
        ({"early_stopping": {"holdout": 0.9}}, "early_stopping.holdout"),
        ({"batch_size": 100, "micro_batches": 8}, "8 does not divide batch_size 100; 5 does"),
        ({"micro_batches": 0}, "micro_batches"),
        ({"precision": "half"}, "'float32', 'tf32', 'bfloat16' or 'float16'"),
    ],
)
def test_mistakes_are_named(value, words):
    with pytest.raises(ConfigError) as caught:
        load(TrainingConfig, value, where="pipeline.yaml: training")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"name": "mpl"}, "no model 'mpl'"),
        ({"item": ["a"]}, "item: only two_towers has it"),
        ({"l2": 0.1}, "l2: only mlp and two_towers have it"),
        ({"name": "two_towers", "item": ["a"], "dropout": 0.1}, "dropout: two_towers does not have it"),
        ({"options": {"a": 1}}, "only a user's function"),
        ({"name": "mine:model", "hidden": [3]}, "put it under options"),
    ],
)
def test_model_mistakes_are_named(value, words):
    with pytest.raises(ConfigError) as caught:
        load(ModelConfig, value, where="pipeline.yaml: model")
    assert words in str(caught.value)


@pytest.mark.parametrize("config", [ModelConfig(name="mine:model", options={"a": 1}), ModelConfig(), TrainingConfig()])
def test_a_config_survives_json(config):
    assert type(config).model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("config", "rows", "steps"),
    [({"steps": 7}, 10, 7), ({"epochs": 2}, 512, 4), ({"epochs": 2}, 513, 5), ({}, 256, 3), ({"epochs": 0.1}, 10, 1)],
)
def test_total_steps(config, rows, steps):
    assert TrainingConfig(**config).total_steps(rows) == steps


@given(st.integers(0, 90), st.integers(1, 40))
def test_a_rate_depends_on_its_step_only(first, count):
    whole, part = cosine(COSINE, 0, 200, 100), cosine(COSINE, first, count, 100)
    assert part.dtype == np.float32
    assert part.tobytes() == whole[first : first + count].tobytes()


def test_cosine_rises_in_its_warm_up_and_falls_to_zero_at_the_end():
    rates = cosine(COSINE, 0, 101, 100)
    assert np.allclose(rates[[0, 6, 7]], [0.01 / 7, 0.01, 0.01])
    assert math.isclose(rates.max(), 0.01, rel_tol=1e-6)
    assert rates[100] == 0 and (np.diff(rates[7:]) < 0).all()


def test_cosine_with_a_restart_is_two_of_them_one_after_the_other():
    again = Schedule(name="cosine", settings=COSINE.settings | {"restart": 40})
    rates = cosine(again, 0, 100, 100)
    np.testing.assert_array_equal(rates, np.concatenate([cosine(COSINE, 0, 40, 40), cosine(COSINE, 0, 60, 60)]))
    np.testing.assert_array_equal(rates[30:50], cosine(again, 30, 20, 100))
    np.testing.assert_array_equal(cosine(again, 0, 40, 40), cosine(COSINE, 0, 40, 40))  # it would restart at the end
    with pytest.raises(ConfigError, match=r"settings\.restart: 0\.4 is not a step"):
        load(TrainingConfig, {"learning_rate": {"name": "cosine", "settings": {"restart": 0.4}}}, where="x")


def test_an_ensemble_is_told_how_much_of_the_training_is_done():
    values = StepValues({"learning_rate": 0.1}, 200, progress=True)
    assert values.names == ["learning_rate", "progress"] and values.at(3) == {"learning_rate": pytest.approx(0.1)}
    np.testing.assert_allclose(values(50, 3)["progress"], [0.25, 0.255, 0.26], rtol=1e-6)
    values.initial_progress = 0.5
    np.testing.assert_allclose(values(0, 201)["progress"][[0, 100, 200]], [0.5, 0.75, 1.0])
    with pytest.raises(ConfigError, match="progress is the share of the steps that are done"):
        check_schedules(["progress"], "binary", user=True)


def test_the_settings_are_those_that_keras_has():
    import keras

    later = {"name", "learning_rate", "clipnorm", "clipvalue", "global_clipnorm", "use_ema", "ema_momentum"}
    later |= {"ema_overwrite_frequency", "loss_scale_factor", "gradient_accumulation_steps", "kwargs"}
    for name in SETTINGS:
        made = keras.optimizers.get(name)
        assert SETTINGS[name] == {*inspect.signature(type(made)).parameters} - later, name
    for name in {*REQUIRED} - {"cosine"}:
        given = inspect.signature(getattr(keras.optimizers.schedules, name)).parameters
        needed = {key for key, one in given.items() if one.default is inspect.Parameter.empty}
        assert REQUIRED[name] == needed and REQUIRED[name] | OPTIONAL.get(name, set()) == {*given} - {"name"}, name


def test_patience_counts_and_survives_json():
    patience = EarlyStopping(EarlyStoppingConfig(patience=2, min_delta=0.01))
    assert [patience.update(step, loss) for step, loss in [(1, 0.5), (2, 0.495), (3, 0.4)]] == [True, False, True]
    assert not patience.over()
    patience.update(4, math.nan)
    again = EarlyStopping(EarlyStoppingConfig(patience=2, min_delta=0.01))
    again.restore(patience.state())
    again.update(5, 0.4)
    assert again.over()
    assert (again.best_loss, again.best_step) == (0.4, 3)
