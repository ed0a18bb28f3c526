"""The space of `headway tune`: what it may vary, and what it may not, with the key in the error."""

import pytest
from pydantic import ValidationError

from flows.config.tune_config import Range, TuneConfig


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
