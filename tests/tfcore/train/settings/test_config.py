"""tfcore.train's config, schedules and patience: no TensorFlow in any of them."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.config import load
from headway.errors import ConfigError
from tfcore.models.config import ModelConfig
from tfcore.train.callbacks.early_stopping import Patience
from tfcore.train.settings.config import EarlyStoppingConfig, TrainingConfig
from tfcore.train.settings.schedule import ConstantRate, CosineRate, ExponentialRate, PiecewiseRate

SCHEDULES = [
    ConstantRate(initial=0.01, warmup_steps=10),
    CosineRate(name="cosine", initial=0.01, final=0.001, warmup_steps=7),
    ExponentialRate(name="exponential", initial=0.01, decay=0.5, every_steps=20, shape="stairs"),
    PiecewiseRate(name="piecewise", boundaries=(10, 50), values=(0.1, 0.01, 0.001)),
]


def test_the_configs_import_no_tensorflow():
    modules = "tfcore.train.settings.config, tfcore.models.config"
    code = f"import sys, {modules}; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_shorthands():
    config = TrainingConfig.model_validate({"learning_rate": 0.1, "optimizer": "sgd", "early_stopping": True})
    assert config.learning_rate == ConstantRate(initial=0.1)
    assert config.optimizer.name == "sgd"
    assert config.early_stopping == EarlyStoppingConfig()
    assert [TrainingConfig.model_validate({"jit": word}).jit for word in (True, False, "auto")] == ["on", "off", "auto"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"epochs": 1, "steps": 2}, "exclude each other"),
        ({"optimizer": {"name": "sgd", "beta_1": 0.9}}, "beta_1: sgd has no such setting"),
        ({"optimizer": "adamm"}, "adamm"),
        ({"learning_rate": {"name": "cosin"}}, "cosin"),
        ({"learning_rate": {"name": "piecewise", "boundaries": [5], "values": [1.0]}}, "1 boundary needs 2 values"),
        ({"class_weights": {"1": -1}}, "class_weights"),
        ({"batchsize": 3}, "did you mean 'batch_size'?"),
        ({"early_stopping": {"holdout": 0.9}}, "early_stopping.holdout"),
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
        ({"item": ["a"]}, "item: only two_towers has it, not mlp"),
        ({"name": "stacked", "hidden": []}, "give it one or more"),
        ({"name": "stacked", "l2": 0.1}, "l2: the members of stacked decay their weights instead"),
        ({"most_ids": 50}, "set linear: true"),
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


@given(st.sampled_from(SCHEDULES), st.integers(0, 90), st.integers(1, 40))
def test_a_rate_depends_on_its_step_only(schedule, first, count):
    whole = schedule.rates(0, 200, 100)
    part = schedule.rates(first, count, 100)
    assert part.dtype == np.float32
    assert part.tobytes() == whole[first : first + count].tobytes()


def test_the_shapes_of_the_schedules():
    constant, cosine, stairs, pieces = (s.rates(0, 101, 100) for s in SCHEDULES)
    assert np.allclose(constant[[0, 4, 9, 50]], [0.001, 0.005, 0.01, 0.01])
    assert math.isclose(cosine.max(), 0.01, rel_tol=1e-6)
    assert math.isclose(cosine[100], 0.001, rel_tol=1e-6)
    assert np.allclose(stairs[[0, 19, 20, 40]], [0.01, 0.01, 0.005, 0.0025])
    assert np.allclose(pieces[[9, 10, 49, 50, 100]], [0.1, 0.01, 0.01, 0.001, 0.001])


def test_patience_counts_and_survives_json():
    patience = Patience(EarlyStoppingConfig(patience=2, min_delta=0.01))
    assert [patience.update(step, loss) for step, loss in [(1, 0.5), (2, 0.495), (3, 0.4)]] == [True, False, True]
    assert not patience.exhausted
    patience.update(4, math.nan)
    again = Patience(EarlyStoppingConfig(patience=2, min_delta=0.01))
    again.restore(patience.state())
    again.update(5, 0.4)
    assert again.exhausted
    assert (again.best_loss, again.best_step) == (0.4, 3)


def test_settings_that_came_later_are_not_written_out_while_they_have_their_default():
    """What is written out goes into a training's fingerprint: one without them keeps the one it had."""
    newer = {"augment", "sampling", "micro_batches", "precision", "stop_at_loss", "keep_best"}
    assert not newer & TrainingConfig().model_dump(mode="json").keys()
    used = {"micro_batches": 2, "precision": "float16", "stop_at_loss": 0.0}
    assert used.items() <= TrainingConfig(**used).model_dump(mode="json").items()
    written = TrainingConfig(**used)
    assert TrainingConfig.model_validate(written.model_dump(mode="json")) == written


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"batch_size": 100, "micro_batches": 8}, "8 does not divide batch_size 100; 5 does"),
        ({"micro_batches": 0}, "greater than or equal to 1"),
        ({"keep_best": 2}, "set training.early_stopping"),
        ({"precision": "half"}, "'float32', 'tf32', 'bfloat16' or 'float16'"),
        ({"stop_at_loss": float("nan")}, "finite number"),
    ],
)
def test_settings_that_do_not_go_together_are_mistakes(given, words):
    with pytest.raises(ValueError, match=words):
        TrainingConfig(**given)
