"""Importing Headway, or calling it as a library, changes nothing that holds for the whole process."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SCRIPT = """
import gc, importlib, logging, os, pkgutil, random, signal, sys, warnings
import apache_beam, keras, numpy as np, tensorflow as tf  # what these do to a process is theirs
import apache_beam.runners.worker.operations  # Beam's runner: says once that it is slow
from keras.src.backend.common import global_state
from tensorflow.python.eager.context import context as context_of

context = context_of()

def state():
    yield "environment", dict(os.environ)
    yield "random", random.getstate()
    yield "numpy.random", np.random.get_state()[1].tolist()
    yield "stderr", (os.fstat(2).st_dev, os.fstat(2).st_ino)
    yield "gc", (gc.isenabled(), gc.get_freeze_count())
    yield "signals", [signal.getsignal(number) for number in (2, 15)]
    yield "devices", tf.config.get_visible_devices()
    yield "products", tf.config.experimental.tensor_float_32_execution_enabled()
    yield "seeds", (context._seed, context._rng.getstate() if hasattr(context, "_rng") else None)
    yield "keras seed", global_state.get_global_attribute("global_random_seed")
    yield "dtype policy", keras.config.dtype_policy().name
    yield "image format", keras.config.image_data_format()
    yield "warnings", list(warnings.filters)
    yield "logging", (logging.getLogger().level, list(logging.getLogger().handlers))
    yield "path", list(sys.path)
    yield "strategy", tf.distribute.has_strategy()
    yield "eager functions", tf.config.functions_run_eagerly()
    yield "optimizer", tf.config.optimizer.get_jit()
    yield "threads", tf.config.threading.get_intra_op_parallelism_threads()
    yield "keras", sys.modules["keras"]

dup2, duplicated = os.dup2, []
os.dup2 = lambda *given, **named: (duplicated.append(given), dup2(*given, **named))[1]
before = dict(state())
names = []
for package in ("headway", "tfcore", "beam_jobs", "flows"):
    path = importlib.import_module(package).__path__
    names += [found.name for found in pkgutil.walk_packages(path, package + ".")]
assert len(names) > 200, names
# these import Prefect, which does as it likes
prefects = ("flows.orchestration.",)
for name in names:
    if not name.startswith(prefects):
        importlib.import_module(name)
    gone = [other for other in ("headway", "tfcore", "flows", "keras") if sys.modules.get(other) is None]
    assert not gone, f"{name} takes {gone} out of sys.modules"
from tfcore.runtime.devices import prepare
prepare()
with importlib.import_module("headway.user_code.quiet_stderr").startup():
    pass
import pyarrow as pa, tempfile
from pathlib import Path
from headway.monitor import Monitor
from headway.schema.columns import Column
from tfcore.models.config import ModelConfig
sys.path.insert(0, str(Path(sys.argv[1])))
from tests.example_shards import write_examples
sys.path.pop(0)
from tfcore.train.request import TrainRequest
from tfcore.train.trainer import TrainingSession
from tfcore.train.config import TrainingConfig
rng = np.random.default_rng(0)
rows = pa.table({"x": rng.normal(size=200).astype("f"), "label": rng.integers(0, 2, 200)})
columns = Column(name="x", type="float32", nullable=False), Column(name="label", type="int64", nullable=False, role="label")
with tempfile.TemporaryDirectory() as folder:
    written = write_examples(Path(folder), {"train": rows}, columns)
    training, model = TrainingConfig(steps=20, jit="off", batch_size=32), ModelConfig(name="mlp", hidden=(4,), dropout=0.1)
    asked = TrainRequest(examples=(written.part("train"),), transform=written.fit(), model=model, training=training, seed=3)
    TrainingSession(asked, Monitor()).run()
for what, value in state():
    assert value == before[what], f"{what} was changed"
assert not duplicated, "a file descriptor was changed"
tf.random.normal([1])  # deterministic ops would refuse to draw unseeded
print("done", file=sys.stderr)
"""


@pytest.mark.long
def test_importing_every_module_and_training_in_this_process_leave_the_process_as_it_was():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(Path(__file__).parents[1])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.endswith("done\n")
