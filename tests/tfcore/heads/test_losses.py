"""Losses by name and of the user's own."""

import numpy as np
import pytest
import tensorflow as tf

from headway.errors import ConfigError
from tfcore.heads.losses import NAMED, with_loss
from tfcore.heads.table import head_of
from tfcore.train.config import LOSSES, TrainingConfig

OUTPUTS = np.array([[0.5], [3.0]], np.float32)


@pytest.mark.parametrize(
    ("task", "name", "expected"),
    [
        ("regression", "squared_error", [0.25, 9.0]),
        ("regression", "absolute_error", [0.5, 3.0]),
        ("regression", "huber", [0.125, 2.5]),
        (
            "binary",
            "focal",
            [
                (1 / (1 + np.exp(0.5))) ** 2 * np.log1p(np.exp(-0.5)),
                (1 / (1 + np.exp(-3.0))) ** 2 * np.log1p(np.exp(3.0)),
            ],
        ),
    ],
)
def test_named_losses(task, name, expected):
    head = with_loss(head_of(task), name)
    found = head.loss({"label": tf.constant([1.0, 0.0])}, OUTPUTS)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    before = head_of(task).loss({"label": tf.constant([1.0, 0.0])}, OUTPUTS)
    assert name == "squared_error" or not np.allclose(before, found), "the task's own head keeps its loss"


def test_a_loss_that_does_not_fit_the_task_is_refused_with_those_that_do():
    assert NAMED == LOSSES
    with pytest.raises(ConfigError, match="focal is not a loss of a regression task\n  fix: there is: squared_error"):
        with_loss(head_of("regression"), "focal")
    with pytest.raises(ConfigError, match="huber is not a loss of a multiclass task\n  fix: write module:function"):
        with_loss(head_of("multiclass", ["a", "b", "c"]), "huber")
    with pytest.raises(ValueError, match="loss"):
        TrainingConfig(loss="hubber")


def test_a_users_loss_is_checked_where_it_is_called(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import tensorflow as tf\n"
        "def cubed(batch, outputs):\n    return tf.abs(outputs[:, 0] - batch['label']) ** 3\n"
        "def mean(batch, outputs):\n    return tf.reduce_mean(outputs)\n"
        "def broken(batch, outputs):\n    return batch['nothing']\n"
    )

    def loss(name):
        head = with_loss(head_of("regression"), f"mine:{name}", tmp_path / "mine.py")
        return head.loss({"label": tf.constant([1.0, 0.0])}, OUTPUTS)

    np.testing.assert_allclose(loss("cubed"), [0.125, 27.0])
    with pytest.raises(
        ConfigError, match=r"the loss mine:mean is float32 of shape \(\)\n  fix: return one float32 per"
    ):
        loss("mean")
    with pytest.raises(ConfigError, match=r"mine\.py, line 7: the loss mine:broken failed: KeyError") as error:
        loss("broken")
    assert error.value.fix == "a batch has: label"
