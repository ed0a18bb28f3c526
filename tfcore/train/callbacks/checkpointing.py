"""When a checkpoint is taken: every so many steps, at a request to stop, and where the holdout's loss is among the best."""

from collections.abc import Sequence

from tfcore.train.callbacks.early_stopping import EarlyStopping
from tfcore.train.session import Callback, PeriodicAction, TrainingSession


class Checkpointing(Callback):
    """Saves `session.variables()` and `session.state()`. Comes behind all others, so that a checkpoint holds what they did.

    Args:
        early: whose looks at the holdout say which checkpoints are the best; with `training.keep_best`.
    """

    def __init__(self, early: EarlyStopping | None = None):
        self._early = early
        self._saved: int | None = None

    def actions(self, session: TrainingSession) -> Sequence[PeriodicAction]:
        config, early = session.request.training, self._early
        periodic = PeriodicAction(config.checkpoint_every_steps, lambda step: self._save(session))
        if early is None or not config.keep_best:
            return [periodic]
        best = PeriodicAction(early.every_steps, lambda step: self._save_best(session, early), at_end=True)
        return [best, periodic]

    def stopping(self, session: TrainingSession) -> None:
        self._save(session)

    def _save_best(self, session: TrainingSession, early: EarlyStopping) -> None:
        assert early.last is not None
        if session.checkpoints is not None and session.checkpoints.among_best(early.last[1]):
            self._save(session)

    def _save(self, session: TrainingSession) -> None:
        """Take the checkpoint of the present step, once."""
        step = session.step
        if session.checkpoints is None or session.learner.mode is None or self._saved == step:
            return  # nowhere to, nothing ran yet, or it is there
        last = self._early.last if self._early else None
        loss = last[1] if last and last[0] == step else None
        session.checkpoints.save(step, session.variables(), session.state(), loss=loss)
        self._saved = step
