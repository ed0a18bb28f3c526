"""A flow run that is caught in the middle of its training."""

from headway.messages import counted
from tests.prefect_server import FINAL
from tests.waiting import until


def past_checkpoint(host, pipeline, before, run):
    """Wait until a flow run's training has come past a checkpoint of its own; the training.

    Args:
        before: the pipeline's `checkpoints()` when the run was started.
    """

    def caught():
        return next((name for name, step in pipeline.checkpoints().items() if step > before.get(name, 0)), None)

    until(lambda: caught() or host.state(run) in FINAL, 240, lambda: (host.state(run), host.logs(run)))
    training = caught()
    assert training and host.state(run) == "RUNNING", (host.state(run), host.logs(run))
    return training


class Training:
    """A flow run in the middle of a slow training, which has come past a checkpoint of its own.

    Attributes:
        run, engine, child: the flow run's id, its process, its TensorFlow process.
    """

    def __init__(self, host, pipeline):
        self.pipeline = pipeline
        pipeline.slow()
        self._before, self._steps = pipeline.checkpoints(), pipeline.steps_done()
        self.run = host.start(f"retrain/{pipeline.name}")
        self._training = past_checkpoint(host, pipeline, self._before, self.run)
        self.engine = host.engine(self.run)
        assert self.engine, (host.state(self.run), host.logs(self.run))
        self.child = pipeline.training_process(self.engine)

    def to_repeat(self):
        """How many steps lie behind its newest checkpoint."""
        began, newest = (of.get(self._training, 0) for of in (self._before, self.pipeline.checkpoints()))
        return began + self.pipeline.steps_done() - self._steps - newest

    def repeats(self):
        """The same in words, for the table of faults."""
        steps = self.to_repeat()
        return counted(steps, "training step") if steps else "nothing: it goes on at the very step"
