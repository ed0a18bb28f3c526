"""tfcore.train.auto: what is left out is chosen by the size of the data, what is given stays; no TensorFlow."""

import pytest

from headway.storage.fingerprint import fingerprint
from tfcore.models.config import CHOOSING, ModelConfig
from tfcore.train.auto import FEW, LARGE, MOST_STEPS, Facts, resolve, settings_text
from tfcore.train.config import EarlyStoppingConfig, TrainingConfig


def facts(rows, task="binary", **more):
    return Facts(rows=rows, width=10, task=task, **more)


def resolved(rows, training=None, model=None, **more):
    return resolve(TrainingConfig(**(training or {})), ModelConfig(**(model or {})), facts(rows, **more))


def dumped(configs):
    return [config.model_dump(mode="json") for config in configs]


@pytest.mark.parametrize("rows", [1, 30, 147, 800, 1500, 5000, 60_000, 2_000_000])
def test_an_ensemble_passes_over_few_rows_often_and_chooses_its_decay_before_the_rate_rises_again(rows):
    training, model = resolved(rows)
    passes = training.steps * training.batch_size / rows
    assert training.epochs is None and training.early_stopping is None and model.hidden == (128, 128)
    assert passes >= 0.99 and (passes <= 121 or training.steps <= 120)
    rate = training.learning_rate
    assert rate.name == "cosine" and rate.restart_step == round(CHOOSING * training.steps)
    assert rate.warmup_steps < max(2, rate.restart_step / 10)
    assert "no holdout" in settings_text(training, model)
    assert f"twice, from step {rate.restart_step:,}" in settings_text(training, model)


def test_the_work_of_an_ensemble_is_that_of_a_row_up_to_a_bound_of_all():
    """More rows have fewer passes, and so have more inputs."""
    found = [resolved(rows)[0] for rows in (20_000, 60_000, 600_000)]
    passes = [t.steps * t.batch_size / rows for t, rows in zip(found, (20_000, 60_000, 600_000), strict=True)]
    assert passes[0] == pytest.approx(passes[1], rel=0.01) and passes[2] < 0.15 * passes[1]
    wide = resolve(TrainingConfig(), ModelConfig(), Facts(rows=20_000, width=60, task="binary"))[0]
    assert wide.steps < 0.6 * found[0].steps


def test_an_ensemble_keeps_what_is_given():
    training, model = resolved(5000, {"steps": 700, "learning_rate": 0.1}, {"hidden": (7,)})
    assert (training.steps, training.learning_rate, model.hidden) == (700, 0.1, (7,))
    assert resolved(5000, {"epochs": 3})[0].steps is None
    assert resolved(5000, {"optimizer": "sgd"})[0].learning_rate == 0.001


def test_a_table_with_images_trains_as_an_mlp():
    assert resolved(5000, images=True)[0] == resolved(5000, model={"name": "mlp"}, images=True)[0]
    alone = resolve(TrainingConfig(), ModelConfig(), Facts(rows=5000, width=0, task="binary", images=True))[1]
    assert alone.hidden == ()


@pytest.mark.parametrize("rows", [99, 800, 1500, 5000, LARGE - 1])
def test_an_mlp_is_plain_and_a_holdout_ends_its_training(rows):
    training, model = resolved(rows, model={"name": "mlp"})
    assert model == ModelConfig(name="mlp") and training.steps <= MOST_STEPS
    assert training.learning_rate.name == "cosine" and training.learning_rate.restart_step == 0
    assert (training.early_stopping is None) == (rows < 100)
    said = settings_text(training, model)
    assert ("no holdout" in said) == (rows < 100) and "mlp" in said


def test_two_towers_of_few_rows_is_a_product_of_embeddings():
    towers = {"name": "two_towers", "item": ("i",)}
    few, many = (resolved(rows, model=towers)[1] for rows in (5_000, FEW))
    assert few.hidden == () and few.l2 > few.linear_l2 > 0
    assert many == ModelConfig(**towers)
    assert resolved(FEW, model={"name": "mine:build"})[1] == ModelConfig(name="mine:build")


def test_steps_rise_with_the_rows():
    for name in ("ensemble", "mlp"):
        found = [resolved(rows, model={"name": name})[0] for rows in (50, 400, 900, 5000, 19_000)]
        assert [training.steps for training in found] == sorted(training.steps for training in found)
        assert [training.batch_size for training in found] == sorted(training.batch_size for training in found)


@pytest.mark.parametrize("rows", [LARGE, 30_000_000])
def test_many_rows_are_trained_on_for_three_epochs(rows):
    assert dumped(resolved(rows, model={"name": "mlp"})[:1]) == dumped([TrainingConfig()])
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
    training, _ = resolved(rows, given, {"name": "mlp"})
    wanted = TrainingConfig(**given)
    assert all(getattr(training, name) == getattr(wanted, name) for name in given)
    if {"epochs", "steps"} & given.keys():
        assert training.early_stopping is None  # a length that is given is run in full
        assert None in (training.epochs, training.steps)


def test_what_is_left_out_beside_a_given_key_is_chosen():
    training, _ = resolved(147, {"epochs": 3}, {"name": "mlp"})
    assert training.batch_size == 32 and training.steps is None
    assert training.learning_rate.warmup_steps == 1  # of 14 steps
    assert resolved(147, {"optimizer": "sgd"}, {"name": "mlp"})[0].learning_rate == 0.001
    assert resolved(147, model={"embedding": 3})[1] == ModelConfig(embedding=3, hidden=(128, 128))


@pytest.mark.parametrize("name", ["ensemble", "mlp"])
def test_batches_can_be_split_and_hold_whole_groups(name):
    assert resolved(147, {"micro_batches": 64}, {"name": name})[0].batch_size == 64
    assert resolved(147, {"strategy": "mirrored"}, {"name": name})[0].batch_size == 256
    assert resolved(147, {"ranking": {}}, {"name": name})[0].batch_size == 256


def test_models_without_penalties_have_a_holdout():
    for more in ({"model": {"name": "mine:build"}}, {"images": True}, {"model": {"name": "mlp"}}):
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
    assert said in settings_text(TrainingConfig(epochs=epochs), ModelConfig())
