"""tfcore.train.auto: what is left out is chosen by the size of the data, what is given stays; no TensorFlow."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from flows.config.pipeline import Pipeline
from headway.errors import ConfigError
from headway.storage.fingerprint import fingerprint
from tfcore.models.config import STACKED, ModelConfig
from tfcore.train.auto import FEW, HOLDOUT, LARGE, MOST_STEPS, Facts, described, resolve
from tfcore.train.config import EarlyStoppingConfig, TrainingConfig


def facts(rows, task="binary", **more):
    return Facts(rows=rows, width=10, task=task, **more)


def resolved(rows, training=None, model=None, **more):
    return resolve(TrainingConfig(**(training or {})), ModelConfig(**(model or {})), facts(rows, **more))


def dumped(configs):
    return [config.model_dump(mode="json") for config in configs]


def test_it_needs_no_tensorflow():
    code = "import sys, tfcore.train.auto; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("rows", [1, 30, 147, 800, 1500, 5000, HOLDOUT - 1])
def test_few_rows_have_enough_small_batches_and_a_penalized_model_with_a_linear_part(rows, task):
    training, model = resolved(rows, task=task)
    assert 200 <= training.steps <= MOST_STEPS and training.epochs is None
    assert training.batch_size <= 128
    assert training.early_stopping is None
    assert training.learning_rate.name == "cosine"
    assert 0 < training.learning_rate.warmup_steps < training.steps / 10
    assert model.linear and model.l2 > model.linear_l2 > 0 and model.soft_clip
    assert model.hidden == ((16,) if rows < 500 else (32, 16) if rows < 1000 else (100, 70, 50, 25))
    assert model.most_ids == max(50, rows // 20)
    assert "a linear part" in described(training, model) and "no holdout" in described(training, model)
    assert model.scaled_penalties == (task == "regression") == ("unexplained share" in described(training, model))


@pytest.mark.parametrize("loss", ["huber", "absolute_error", "mine:f"])
def test_penalties_are_scaled_by_the_squared_error_alone(loss):
    """Other losses are no share of the label's variance; one of the user's may be below 0."""
    assert not resolved(1000, {"loss": loss}, task="regression")[1].scaled_penalties
    assert resolved(1000, {"loss": "squared_error"}, task="regression")[1].scaled_penalties
    for rows in (1000, LARGE):
        with pytest.raises(ConfigError, match=rf"(?s)model.scaled_penalties: .*training.loss is {loss}.*leave it out"):
            resolved(rows, {"loss": loss}, {"scaled_penalties": True}, task="regression")
    with pytest.raises(ValidationError, match=f"model.scaled_penalties needs .* training.loss is {loss}; leave it out"):
        Pipeline.model_validate(
            {"name": "p", "source": {"format": "csv", "path": "a.csv"}, "label": "y"}
            | {"model": {"scaled_penalties": True}, "training": {"loss": loss}}
        )
    with pytest.raises(ConfigError, match="the task is binary"):
        resolved(1000, model={"scaled_penalties": True})


@pytest.mark.parametrize("given", [{"l2": 0.01}, {"linear_l2": 0.01}, {"linear_l1": 0.01}, {"value_l1": 0.01}])
def test_a_penalty_of_the_user_s_keeps_its_meaning(given):
    assert not resolved(1000, model=given, task="regression")[1].scaled_penalties
    assert resolved(1000, model=given | {"scaled_penalties": True}, task="regression")[1].scaled_penalties


@pytest.mark.parametrize(("task", "share"), [("regression", 2.4), ("multiclass", 0.6)])
def test_values_that_recur_have_a_penalty_that_noise_of_so_many_rows_does_not_outweigh(task, share):
    training, model = resolved(1600, model={"recurring": True}, task=task)
    assert model.value_l1 == pytest.approx(share / 40) and f"l1 of values {model.value_l1:g}" in described(
        training, model
    )
    stacked = resolved(1600, model={"name": "stacked"}, task=task)[1]
    assert stacked.value_l1 == pytest.approx(model.value_l1 * (STACKED / (STACKED + 1)) * 0.8, rel=0.01)
    for given in ({}, {"name": "stacked", "recurring": False}, {"recurring": True, "linear": False}):
        assert resolved(1600, model=given, task=task)[1].value_l1 == 0.0
    # without a linear part nothing drops their noise
    for given in ({"name": "stacked", "linear": False}, {"recurring": True, "linear": False}):
        assert not ModelConfig(**given).recurring_numbers
        assert not resolved(1600, model=given, task=task)[1].recurring_numbers
    assert resolved(40_000, model={"recurring": True}, task=task)[1].value_l1 == pytest.approx(share / 200)


def test_so_few_rows_that_a_thousand_steps_are_hundreds_of_passes_have_fewer_and_longer_steps():
    found = [resolved(rows)[0] for rows in (1, 11, 33, 100, 128, 129, 160, 1000)]
    assert [training.steps for training in found] == [200, 200, 400, 800, 800, 1000, 1000, 1000]
    assert all(training.steps * training.learning_rate.initial == pytest.approx(2.0) for training in found)
    # a rate, a batch or an early stopping of the user's, a model without penalties: a thousand steps, as ever
    for given in (
        resolved(200, {"batch_size": 256}),
        resolved(20, {"early_stopping": {"every_steps": 500, "patience": 1, "holdout": 0.2}}),
        resolved(11, {"learning_rate": 0.1}),
        resolved(11, {"optimizer": "sgd"}),
        resolved(11, model={"name": "mine:f"}),
    ):
        assert given[0].steps == 1000
    assert (
        resolved(11, {"steps": 50})[0].learning_rate.initial
        == resolved(11, {"epochs": 3})[0].learning_rate.initial
        == 0.002
    )


def test_a_table_with_more_inputs_than_half_its_rows_has_a_sparse_linear_model():
    wide = Facts(rows=1600, width=2000, task="binary")
    training, model = resolve(TrainingConfig(), ModelConfig(), wide)
    assert 0.02 < model.linear_l1 < 0.03 and model.l2 == 0.1 and f"l1 {model.linear_l1:g}" in described(training, model)
    many = Facts(rows=1600, width=700, task="binary")  # inputs, and yet the table is not wide
    _, usual = resolve(TrainingConfig(), ModelConfig(), many)
    _, given = resolve(TrainingConfig(), ModelConfig(linear_l1=0.0), wide)
    assert given.linear_l1 == 0.0 and given.l2 == usual.l2 == 0.01 and given.linear
    _, alone = resolve(TrainingConfig(), ModelConfig(linear=False), wide)  # its hidden layers are all it has
    assert not alone.linear and alone.l2 < 0.1 and alone.linear_l1 == 0.0
    for rows, width in ((1600, 700), (150, 180)):
        assert (
            resolve(TrainingConfig(), ModelConfig(), Facts(rows=rows, width=width, task="binary"))[1].linear_l1 == 0.0
        )


def test_hidden_layers_of_many_inputs_have_a_larger_penalty():
    def l2(rows, width):
        return resolve(TrainingConfig(), ModelConfig(), Facts(rows=rows, width=width, task="binary"))[1].l2

    assert l2(8_000, 10) == l2(8_000, 60) < l2(8_000, 600) < l2(8_000, 2_000) == 0.01
    assert l2(300, 100) == l2(300, 10)  # few rows have a larger one anyway


@pytest.mark.parametrize("rows", [300, 5_000, 50_000])
def test_stacked_has_decays_in_place_of_the_hidden_layers_penalty_and_the_steps_of_a_penalized_model(rows):
    training, model = resolved(rows, model={"name": "stacked"})
    assert model.l2 == 0 < model.linear_l2
    assert training == resolved(rows)[0]


def test_penalties_fall_and_steps_rise_with_the_rows():
    found = [resolved(rows) for rows in (50, 400, 900, 5000, 19_000)]
    assert [model.l2 for _, model in found] == sorted((model.l2 for _, model in found), reverse=True)
    assert [training.steps for training, _ in found] == sorted(training.steps for training, _ in found)
    assert [training.batch_size for training, _ in found] == sorted(training.batch_size for training, _ in found)


def test_more_rows_have_a_holdout_as_well():
    training, model = resolved(50_000)
    assert training.early_stopping.holdout == 0.1 and training.early_stopping.patience == 10
    assert training.steps == MOST_STEPS
    said = described(training, model)
    assert "early stopping on a holdout of 10%" in said and "a linear part; l2 1.6e-05 (linear part 0.002)" in said


@pytest.mark.parametrize("rows", [FEW, 50_000, LARGE, 30_000_000])
def test_penalties_and_the_linear_part_stay_at_any_size(rows):
    """But weaker the more rows there are; and what is given stays."""
    _, model = resolved(rows)
    assert model.linear and model.hidden == ModelConfig().hidden and model.most_ids == max(50, rows // 1000)
    assert model.l2 == pytest.approx(0.8 / rows, rel=0.01) and model.linear_l2 == pytest.approx(100 / rows, rel=0.01)
    _, plain = resolved(rows, model={"linear": False, "l2": 0.0, "hidden": (7,)})
    assert (plain.linear, plain.l2, plain.hidden, plain.most_ids) == (False, 0.0, (7,), None)
    for other in ({"name": "two_towers", "item": ("i",)}, {"name": "mine:build"}):
        assert resolved(rows, model=other)[1] == ModelConfig(**other)


@pytest.mark.parametrize("rows", [LARGE, 30_000_000])
def test_many_rows_are_trained_on_for_three_epochs(rows):
    assert dumped(resolved(rows)[:1]) == dumped([TrainingConfig()])
    assert dumped(resolved(0)) == dumped((TrainingConfig(), ModelConfig()))


def test_steps_do_not_jump_where_the_data_become_large():
    assert TrainingConfig().total_steps(LARGE) == MOST_STEPS


@pytest.mark.parametrize(
    "given",
    [
        {"epochs": 3},
        {"steps": 7},
        {"batch_size": 200},
        {"learning_rate": 0.5},
        {"early_stopping": None},
        {"early_stopping": {"patience": 2}},
        {"epochs": 3, "batch_size": 256, "learning_rate": 0.001},
    ],
)
@pytest.mark.parametrize("rows", [100, 40_000])
def test_what_is_given_stays(given, rows):
    training, _ = resolved(rows, given)
    wanted = TrainingConfig(**given)
    assert all(getattr(training, name) == getattr(wanted, name) for name in given)
    if {"epochs", "steps"} & given.keys():
        assert training.early_stopping is None  # a length that is given is run in full
        assert None in (training.epochs, training.steps)


def test_what_is_left_out_beside_a_given_key_is_chosen():
    training, _ = resolved(147, {"epochs": 3})
    assert training.batch_size == 32 and training.steps is None
    assert training.learning_rate.warmup_steps == 1  # of 14 steps
    assert resolved(147, {"optimizer": "sgd"})[0].learning_rate == 0.001
    _, model = resolved(147, model={"hidden": (7,), "l2": 0.0})
    assert model.hidden == (7,) and model.l2 == 0.0 and model.linear


def test_batches_can_be_split_and_hold_whole_groups():
    assert resolved(147, {"micro_batches": 64})[0].batch_size == 64
    assert resolved(147, {"strategy": "mirrored"})[0].batch_size == 256
    assert resolved(147, {"ranking": {}})[0].batch_size == 256


def test_models_without_penalties_have_a_holdout():
    for more in ({"model": {"name": "mine:build"}}, {"images": True}, {"model": {"l2": 0.0}}):
        training, model = resolved(400, **more)
        looks = 7 if "images" in more else 25
        assert training.early_stopping == EarlyStoppingConfig(patience=10, every_steps=looks, holdout=0.2)
        assert not model.l2
        assert resolved(60, **more)[0].early_stopping is None
    assert resolved(400, model={"name": "mine:build", "options": {"a": 1}})[1].options == {"a": 1}


@pytest.mark.parametrize("rows", [147, 1500, 50_000, LARGE])
def test_the_values_written_out_are_the_same_training(rows):
    """Also after a way through JSON, as in a plan; and resolving again changes nothing."""
    training, model = resolved(rows)
    written = TrainingConfig.model_validate(training.model_dump(mode="json"))
    drawn = ModelConfig.model_validate(model.model_dump(mode="json"))
    again = resolve(written, drawn, facts(rows))
    assert fingerprint(dumped(again)) == fingerprint(dumped((training, model)))
    assert fingerprint(dumped(resolve(training, model, facts(rows)))) == fingerprint(dumped((training, model)))


def test_auto_stands_for_a_key_that_is_left_out():
    given = {"batch_size": "auto", "early_stopping": "auto", "jit": "auto", "epochs": 2}
    assert TrainingConfig.model_validate(given).model_fields_set == {"jit", "epochs"}


@pytest.mark.parametrize(("epochs", "said"), [(1, "1 epoch of"), (0.5, "0.5 epochs of"), (None, "3 epochs of")])
def test_epochs_are_counted_in_words(epochs, said):
    assert said in described(TrainingConfig(epochs=epochs), ModelConfig())
