"""A tiny pipeline of a user's own, outside of the clone, whose training can be made slow while a fault happens.

pipeline = TinyPipeline(folder, "churn")
pipeline.slow()                      # each step takes a while: there is time for a fault
pipeline.fast()                      # from now on a whole run takes seconds
pipeline.steps_done()                # training steps that were computed, in all runs together
pipeline.check()                     # the store is whole, and nothing was done twice
"""

import glob
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headway.registry.registry import Registry
from headway.storage.process_identity import is_alive
from headway.storage.store import Store
from tests.chaos.host import Host
from tests.waiting import until

STEPS, CHECKPOINT_EVERY = 120, 10
CONFIG = f"""
name: NAME
source: {{format: parquet, path: "data/{{span}}.parquet"}}
label: y
columns: {{id: {{role: key}}, x: standardize, c: vocabulary}}
split: {{mode: time}}
model: {{name: mlp, hidden: [4]}}
training:
  steps: {STEPS}
  batch_size: 32
  checkpoint_every_steps: {CHECKPOINT_EVERY}
  jit: off
  loss: "pace:loss"
evaluation: {{slices: []}}
gate: {{baseline: false, tolerance: {{auc: 0.5, loss: 0.9}}}}
store: store
"""
PACE = '''"""A loss that counts its steps, and waits at each as many seconds as a file named `slow` says."""

import time
from pathlib import Path

import numpy as np
import tensorflow as tf

HERE = Path(__file__).parent


def _step():
    with (HERE / "steps").open("ab") as out:
        out.write(b".")
    try:
        time.sleep(float((HERE / "slow").read_text()))
    except (FileNotFoundError, ValueError):
        pass
    return np.float32(0)


def loss(batch, outputs):
    nothing = tf.numpy_function(_step, [], tf.float32)
    nothing.set_shape([])
    label = tf.cast(batch["label"], tf.float32)
    return tf.nn.sigmoid_cross_entropy_with_logits(label, outputs[:, 0]) + tf.stop_gradient(nothing)
'''


def land(folder: Path, month: str, rows: int = 200) -> None:
    """A month's file appears whole; the same month has the same bytes everywhere."""
    r = np.random.default_rng(int(month.replace("-", "")))
    x, c = r.normal(size=rows).astype(np.float32), r.choice(["a", "b", "c"], rows)
    y = (x + (c == "a") + r.normal(size=rows) > 0).astype(np.int64)
    folder.mkdir(exist_ok=True)
    aside = folder / f".{month}"
    pq.write_table(pa.table({"id": np.arange(rows), "x": x, "c": c, "y": y}), aside)
    aside.replace(folder / f"{month}.parquet")


class TinyPipeline:
    """See the module.

    Args:
        folder: where it is written, with two months of data; it must not exist.
        extra: lines that are added to pipeline.yaml; store: among them is another store.
    """

    def __init__(self, folder: Path, name: str, extra: str = ""):
        self.folder, self.name = folder, name
        folder.mkdir(parents=True)
        config = CONFIG.replace("NAME", name)
        (folder / "pipeline.yaml").write_text(
            config.replace("store: store\n", "") + extra if "store:" in extra else config + extra
        )
        (folder / "pace.py").write_text(PACE)
        for _ in range(2):
            self.land()
        self.store = folder / "store"

    def land(self) -> str:
        """The data of the next month; its name."""
        landed = len([*(self.folder / "data").glob("*.parquet")])
        month = f"{2024 + landed // 12}-{landed % 12 + 1:02d}"
        land(self.folder / "data", month)
        return month

    def slow(self, seconds: float = 0.15) -> None:
        """Make each training step take so long."""
        (self.folder / "slow").write_text(str(seconds))

    def fast(self) -> None:
        """Let training run at its own speed."""
        (self.folder / "slow").unlink(missing_ok=True)

    def steps_done(self) -> int:
        """How many training steps were computed, by all runs together."""
        file = self.folder / "steps"
        return file.stat().st_size if file.exists() else 0

    def checkpoints(self) -> dict[str, int]:
        """By training that was begun and has not ended: the step of the newest checkpoint that it may go on from."""
        found: dict[str, int] = {}
        # Unlike Path.glob, glob.glob allows that a folder goes away meanwhile.
        for path in map(Path, glob.glob(f"{self.store}/checkpoints/*/[0-9]*")):
            found[path.parent.name] = max(int(path.name), found.get(path.parent.name, 0))
        return found

    def children(self, engine: int) -> list[int]:
        """The processes that a flow run's process has started and that live."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == engine and fields[0] != "Z":
                found.append(int(stat.parent.name))
        return found

    def training_process(self, engine: int) -> int:
        """The TensorFlow process of a flow run that trains."""
        for pid in self.children(engine):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"tfcore/runtime/start.py" in command:
                return pid
        raise AssertionError(f"process {engine} has no TensorFlow process: {self.children(engine)}")

    def runs(self) -> list[dict[str, Any]]:
        """The records of the store's runs, the oldest first."""
        return [json.loads(path.read_text(encoding="utf-8")) for path in sorted((self.store / "runs").glob("*.json"))]

    def registry(self) -> Registry:
        return Registry(Store(self.store), self.name)

    def champion(self) -> int | None:
        """The champion's version."""
        found = self.registry().champion()
        return None if found is None else found.number

    def promotions(self) -> list[int]:
        """The versions that became champion, in order."""
        return [event.version for event in self.registry().history()]

    def doubled(self) -> list[str]:
        """What was done twice that should be done once: an output written by two runs, an export published twice, a version
        promoted twice."""
        outputs = [stage for run in self.runs() for stage in run["stages"] if not stage["cached"]]
        done = [f"{stage['stage']} {stage['fingerprint'][:8]}" for stage in outputs]
        done += [f"version of export {version.facts['export'][:8]}" for version in self.registry().versions()]
        done += [f"promotion of version {version}" for version in self.promotions()]
        return [f"{what}: {count} times" for what, count in Counter(done).items() if count > 1]

    def problems(self) -> list[tuple[Path, str]]:
        """What `headway verify` finds."""
        return [*Store(self.store).verify(), *self.registry().verify()]

    def check(self, host: Host) -> None:
        """`headway verify` finds nothing, and nothing was done twice."""
        host.headway("verify", self.folder)
        assert not self.doubled()


def dead(pids: list[int], seconds: float = 30) -> None:
    """Wait until none of these processes lives."""
    until(lambda: not [pid for pid in pids if is_alive(pid)], seconds, lambda: pids)


def environment_of(pid: int) -> dict[str, str]:
    """The environment with which a process was started."""
    pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return {os.fsdecode(k): os.fsdecode(v) for k, _, v in (pair.partition(b"=") for pair in pairs if pair)}
