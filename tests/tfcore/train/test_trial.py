"""A trial of a study: its losses on the holdout, and when it ends early."""

from types import SimpleNamespace

import pytest

from headway.errors import Pruned
from tfcore.train.callbacks import Trial, optuna_prune
from tfcore.train.request import LOOKS, Pruning, TrialConfig, storage_of


def _session(tmp_path, total):
    folder = tmp_path / "checkpoints"
    folder.mkdir(exist_ok=True)
    return SimpleNamespace(step=0, total=total, request=SimpleNamespace(checkpoints=folder))


def _trained(trial, session, losses):
    for step, loss in losses:
        session.step = step
        trial.recorded(session, {"holdout_loss": loss})
    return trial.facts()


def test_looks_are_shares_of_a_training_of_any_length(tmp_path):
    trial = Trial(TrialConfig(holdout=0.2), stops_early=False)
    facts = _trained(trial, _session(tmp_path, 1000), [(50, 0.9), (500, 0.4), (1000, 0.5)])
    assert facts == {"holdout_loss": 0.5, "holdout_losses": [[1, 0.9], [10, 0.4], [LOOKS, 0.5]]}
    # early stopping keeps the best weights
    assert Trial(TrialConfig(holdout=0.2), stops_early=True).facts()["holdout_loss"] is None
    stopped = Trial(TrialConfig(holdout=0.2), stops_early=True)
    assert _trained(stopped, _session(tmp_path, 100), [(10, 0.4), (20, 0.6)])["holdout_loss"] == 0.4
    # a loss that is not finite at the end is none
    assert (
        _trained(Trial(TrialConfig(holdout=0.2), stops_early=False), _session(tmp_path, 10), [(10, float("nan"))])[
            "holdout_loss"
        ]
        is None
    )


def test_a_trial_that_is_worse_than_the_median_of_others_ends_and_leaves_no_checkpoint(tmp_path):
    optuna = pytest.importorskip("optuna")
    journal = tmp_path / "tune.journal"
    study = optuna.create_study(study_name="s", storage=storage_of(journal))

    def losses(level):
        return [(step, level) for step in range(50, 1001, 50)]

    def run(level):
        begun = study.ask()
        pruning = Pruning(journal=journal, study="s", trial=begun.number, pruner="median")
        trial = Trial(TrialConfig(holdout=0.2), stops_early=False, prune=optuna_prune(pruning))
        session = _session(tmp_path, 1000)
        study.tell(begun, _trained(trial, session, losses(level))["holdout_loss"])

    for level in (0.5, 0.4, 0.6, 0.5):
        run(level)
    run(0.45)
    with pytest.raises(Pruned, match=r"ended at step 250 of 1,000, at a loss of 0\.9"):
        run(0.9)
    assert not (tmp_path / "checkpoints").exists()
