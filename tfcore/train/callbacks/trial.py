"""A trial of a study: looks at the loss on a holdout of the train rows, and ends a trial that is worse than others.

    trial = Trial(TrialConfig(holdout=0.2), prune=optuna_prune(pruning))
    trial.facts()          # {"holdout_loss": 0.41, "holdout_losses": [[1, 0.6], [2, 0.5], ...]}, once trained

With early stopping the trial's loss is that of the weights that are kept, else that of the last step.
"""

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headway.errors import Pruned
from headway.messages import number
from tfcore.train.request import LOOKS, Pruning, TrialConfig
from tfcore.train.session import Callback, PeriodicAction, TrainingSession


class Trial(Callback):
    """Records the holdout's loss about `LOOKS` times, at equal shares of the training whatever its length.

    Args:
        stops_early: early stopping looks at the holdout itself; its losses are taken.
        prune: from (look, loss) to whether the trial should end; None: it never should.
    """

    name = "trial"

    def __init__(self, config: TrialConfig, *, stops_early: bool, prune: Callable[[int, float], bool] | None = None):
        self.config, self._stops_early, self._prune = config, stops_early, prune
        self.losses: list[tuple[int, float]] = []
        """(look, loss), the look from 1 to LOOKS."""

    def actions(self, session: TrainingSession) -> Sequence[PeriodicAction]:
        if self._stops_early:
            return []
        every = max(1, session.total // LOOKS)
        return [PeriodicAction(every, lambda step: session.record_holdout(session.evaluate()), at_end=True)]

    def recorded(self, session: TrainingSession, values: Mapping[str, float | None]) -> None:
        if (loss := values.get("holdout_loss")) is None:
            return
        look = max(1, session.step * LOOKS // session.total)
        again = bool(self.losses) and self.losses[-1][0] == look
        if again:
            self.losses.pop()
        self.losses.append((look, loss))
        if self._prune is None or again or look == LOOKS or not self._prune(look, loss):
            return
        if (folder := session.request.checkpoints) is not None:
            shutil.rmtree(folder, ignore_errors=True)  # nothing goes on from here
        raise Pruned(
            f"ended at step {session.step:,} of {session.total:,}, at a loss of {number(loss)} on the holdout: other trials "
            "were better by then"
        )

    def facts(self) -> dict[str, Any]:
        """The trial's part of the training's result."""
        losses = [loss for _, loss in self.losses if math.isfinite(loss)]
        last = losses[-1] if losses and math.isfinite(self.losses[-1][1]) else None
        best = min(losses, default=None)
        return {"holdout_loss": best if self._stops_early else last, "holdout_losses": [list(at) for at in self.losses]}

    def state(self) -> dict[str, Any]:
        return {"losses": self.losses}

    def restore(self, state: dict[str, Any]) -> None:
        self.losses = [(look, loss) for look, loss in state["losses"]]


def optuna_prune(pruning: Pruning) -> Callable[[int, float], bool]:
    """Report a trial's losses to its Optuna study; the study's pruner says whether the trial should end."""
    import optuna  # an extra, which only a study needs

    from tfcore.train.settings.studies import storage_of

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruners = {
        "median": optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=LOOKS // 4),
        "hyperband": optuna.pruners.HyperbandPruner(min_resource=2, max_resource=LOOKS),
    }
    study = optuna.load_study(
        study_name=pruning.study, storage=storage_of(pruning.journal), pruner=pruners[pruning.pruner]
    )
    running = next(trial for trial in study.get_trials(deepcopy=False) if trial.number == pruning.trial)
    trial = optuna.trial.Trial(study, running._trial_id)  # there is no public way to go on with another process's trial

    def prune(look: int, loss: float) -> bool:
        if math.isfinite(loss):
            trial.report(loss, look)
        return trial.should_prune()

    return prune
