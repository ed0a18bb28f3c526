"""When a checkpoint is taken: every so many steps, and at a request to stop."""

from collections.abc import Sequence

from tfcore.train.session import Callback, PeriodicAction, TrainingSession


class Checkpointing(Callback):
    """Saves `session.variables()` and `session.state()`. Comes behind all others, so that a checkpoint holds what they did."""

    def __init__(self) -> None:
        self._saved: int | None = None

    def actions(self, session: TrainingSession) -> Sequence[PeriodicAction]:
        every = session.request.training.checkpoint_every_steps
        return [PeriodicAction(every, lambda step: self._save(session))]

    def stopping(self, session: TrainingSession) -> None:
        self._save(session)

    def _save(self, session: TrainingSession) -> None:
        """Take the checkpoint of the present step, once."""
        step = session.step
        if session.checkpoints is None or session.learner.mode is None or self._saved == step:
            return  # nowhere to, nothing ran yet, or it is there
        session.checkpoints.save(step, session.variables(), session.state())
        self._saved = step
