"""Knobs by step: schedules, changes by hand, and the file that carries them."""

import numpy as np
import pytest

from headway.config import load
from headway.errors import ConfigError
from tfcore.train.settings.config import TrainingConfig
from tfcore.train.settings.control_file import ControlFile
from tfcore.train.settings.knob_values import Knobs
from tfcore.train.settings.schedule import ConstantRate, CosineRate


def knobs():
    return Knobs({"learning_rate": CosineRate(name="cosine", initial=0.1), "dropout": ConstantRate(initial=0.2)}, 100)


def test_a_knob_follows_its_schedule_until_it_is_set_and_again_when_let_go():
    made = knobs()
    before = made.values(40, 10)
    assert made.change(40, {"learning_rate": 0.5}) == [{"step": 40, "knob": "learning_rate", "value": 0.5}]
    assert np.array_equal(made.values(40, 10)["learning_rate"], np.full(10, 0.5, np.float32))
    assert np.array_equal(made.values(40, 10)["dropout"], before["dropout"])
    assert made.change(44, {"learning_rate": 0.5}) == []
    other = knobs()
    other.restore(made.state())
    assert other.at(50) == made.at(50) and other.changes == made.changes
    made.change(50, {"learning_rate": None})
    assert np.array_equal(made.values(40, 10)["learning_rate"], before["learning_rate"])
    assert [change["value"] for change in made.changes] == [0.5, None]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"learning_rat": 1}, "did you mean 'learning_rate'"),
        ({"label_smoothing": 0.1}, "set it in the pipeline"),
        ({"dropout": 1.0}, "at least 0 and below 1"),
        ({"learning_rate": 0}, "above 0"),
        ({"learning_rate": float("nan")}, "not a finite number"),
        ({"learning_rate": True}, "not a number"),
        ({"learning_rate": 10**400}, "learning_rate is inf, which is not a finite number"),
        ({"dropout": -(10**400)}, "dropout is -inf, which is not a finite number"),
        ({"learning_rate": 1e-60}, "learning_rate is 1e-60, which float32 does not hold; it would be 0"),
        ({"dropout": -1e39}, "float32 does not hold; it would be infinite"),
        ({"dropout": 0.1, "learning_rate": "x"}, "not a number"),
    ],
)
def test_a_slip_changes_nothing_and_is_named(wanted, words):
    made = knobs()
    with pytest.raises(ConfigError) as caught:
        made.change(3, wanted)
    assert words in str(caught.value)
    assert made.changes == [] and made.at(3) == knobs().at(3)


def test_the_control_file_is_news_once_for_each_change(tmp_path):
    file = ControlFile(tmp_path / "below" / "knobs.json")
    assert file.news() is None
    file.write({"learning_rate": 0.1})
    file.write({"dropout": None})
    assert file.news() == {"learning_rate": 0.1, "dropout": None}
    assert file.news() is None
    file.path.write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="is not JSON"):
        file.news()
    file.path.write_text("[1]")
    with pytest.raises(ConfigError, match="not a JSON object"):
        file.news()
    file.begin()
    assert file.news() is None and not file.path.exists()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"learning_rate": 0}, "not a learning rate"),
        ({"learning_rate": {"name": "cosine", "initial": 0.1, "final": -1}}, "not a learning rate"),
        ({"knobs": {"learning_rate": 0.1}}, "a key of its own: training.learning_rate"),
        ({"knobs": {"temperature": 0}}, "above 0"),
        ({"knobs": {"temperature": {"initial": 2, "name": "constant", "warmup_steps": 5}}}, "above 0"),
        ({"knobs": {"label_smoothing": 1.0}}, "below 1"),
        ({"knobs": {"Margin": 1.0}}, "not a name for a knob"),
    ],
)
def test_mistakes_in_the_config_are_named(value, words):
    with pytest.raises(ConfigError) as caught:
        load(TrainingConfig, value, where="pipeline.yaml: training")
    assert words in str(caught.value)


def test_all_knobs_of_a_config():
    config = load(TrainingConfig, {"clip_norm": 1, "knobs": {"temperature": 2}}, where="")
    assert list(config.all_knobs(0.1)) == ["learning_rate", "clip_norm", "dropout", "temperature"]
    assert list(TrainingConfig().all_knobs()) == ["learning_rate"]
