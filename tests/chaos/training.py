"""A flow run that is caught in the middle of its training."""

from tests.chaos.host import FINAL, until


class Training:
    """A flow run in the middle of a slow training, which has come past a checkpoint of its own.

    Attributes:
        run, engine, child: the flow run's id, its process, its TensorFlow process.
    """

    def __init__(self, host, pipeline):
        self.pipeline = pipeline
        pipeline.slow()
        self._checkpoint, self._steps = pipeline.checkpoint(), pipeline.steps_done()
        self.run = host.start(f"retrain/{pipeline.name}")
        until(
            lambda: pipeline.checkpoint() > self._checkpoint or host.state(self.run) in FINAL,
            240,
            lambda: (host.state(self.run), host.logs(self.run)),
        )
        self.engine = host.engine(self.run)
        assert host.state(self.run) == "RUNNING" and self.engine, (host.state(self.run), host.logs(self.run))
        self.child = pipeline.training_process(self.engine)

    def to_repeat(self):
        """How many steps lie behind its newest checkpoint."""
        return self._checkpoint + self.pipeline.steps_done() - self._steps - self.pipeline.checkpoint()
