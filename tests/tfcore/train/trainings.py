"""What tests of whole trainings share: a small table, a monitor that stops them, and the weights that they end at."""

import numpy as np
import pyarrow as pa
import tensorflow as tf

from headway.monitor import Monitor
from headway.schema.columns import Column
from tfcore.models.config import ModelConfig
from tfcore.train.config import TrainingConfig
from tfcore.train.request import TrainRequest

MODEL = ModelConfig(name="mlp", hidden=(8,), embedding=3, dropout=0.1)
COLUMNS = (
    Column(name="delay", type="float32", nullable=True),
    Column(name="hour", type="int64", nullable=False),
    Column(name="carrier", type="bytes", nullable=False, encoding="dictionary"),
    Column(name="label", type="int64", nullable=False, role="label"),
)


def table(rows, seed):
    """Rows of COLUMNS, whose label can be learned from the others."""
    rng = np.random.default_rng(seed)
    delay = rng.standard_normal(rows).astype(np.float32)
    hour, carrier = rng.integers(0, 24, rows), rng.integers(0, 5, rows)
    label = delay + 0.1 * hour + 0.5 * carrier - 2.2 + 0.3 * rng.standard_normal(rows) > 0
    carriers = pa.array([b"AA", b"BB", b"CC", b"DD", b"EE"]).take(pa.array(carrier))
    delays = pa.array(delay, mask=rng.random(rows) < 0.1)
    return pa.table({"delay": delays, "hour": hour, "carrier": carriers, "label": label.astype(np.int64)})


def request(examples, task="binary", *, model=MODEL, checkpoints=None, **training):
    """A training of 60 steps."""
    training = {"batch_size": 32, "steps": 60, "jit": "off", "learning_rate": 0.01} | training
    return TrainRequest(
        examples=(examples.part("train"),),
        transform=examples.fit(task=task),
        model=model,
        training=TrainingConfig(**training),
        seed=3,
        checkpoints=checkpoints,
    )


class Lines(Monitor):
    """Keeps what is said, and asks to stop once `stop` steps were made, as a Ctrl-C would."""

    def __init__(self, stop=None):
        super().__init__()
        self.lines, self.seen, self.until = [], [], stop

    def progress(self, done, total, unit, **facts):
        self.seen.append((done, total, unit, facts))
        if self.until is not None and done >= self.until:
            self.stop.set()

    def log(self, line):
        self.lines.append(line)


def weights(out, name="weights"):
    """{variable: its values} of the model in a training's folder; or in a checkpoint's, by the name of its file."""
    reader = tf.train.load_checkpoint(str(out / name))
    return {name: reader.get_tensor(name) for name in sorted(reader.get_variable_to_shape_map()) if "model/" in name}


def weight_bits(out, name="weights"):
    """The same to the last bit, to be compared."""
    return {name: value.tobytes() for name, value in weights(out, name).items()}
