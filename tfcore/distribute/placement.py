"""Places a training on the CPU, a GPU, several mirrored devices, or one worker of a cluster.

    placement = place(Choice("mirrored", replicas=2), gpus=len(tf.config.list_physical_devices("GPU")))
    with placement.scope():
        ...                                 # build the model and its optimizer

`tfcore.train.strategy` makes the choice. All of it is in this process: who wants logical CPU devices configures them before
TensorFlow first computes something, and a worker joins its cluster (TF_CONFIG) before that.
"""

import contextlib
import fcntl
import functools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import tensorflow as tf

from headway.errors import ConfigError
from headway.process import lifeline

Name = Literal["cpu", "gpu", "mirrored", "multi_worker"]
TF_CONFIG = "TF_CONFIG"


@dataclass(frozen=True)
class Choice:
    """The devices that `training.strategy` means in this process."""

    name: Name
    replicas: int = 1
    """Devices that each batch is split over, of all workers together."""
    workers: int = 1
    worker: int = 0
    """The number of this one."""
    logical: bool = False
    """The replicas are logical CPU devices, since there are no two GPUs."""


@dataclass(frozen=True)
class Placement:
    """The devices that hold the model; without a strategy, one device."""

    choice: Choice
    strategy: tf.distribute.Strategy | None = None
    device: str | None = None

    @property
    def worker(self) -> int:
        return self.choice.worker

    @property
    def chief(self) -> bool:
        """Whether this process writes the training's output."""
        return self.worker == 0

    @property
    def replicas(self) -> int:
        return self.choice.replicas

    @property
    def several(self) -> bool:
        """Whether there are other workers."""
        return self.choice.name == "multi_worker"

    @property
    def on_gpu(self) -> bool:
        """Whether steps run on a GPU or several."""
        return self.choice.name != "cpu" and not self.choice.logical and bool(tf.config.get_visible_devices("GPU"))

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """The context of everything that makes or changes variables."""
        if self.strategy is not None:
            return self.strategy.scope()
        return self.device_scope()

    def device_scope(self) -> contextlib.AbstractContextManager[Any]:
        """The context of everything that computes."""
        return tf.device(self.device) if self.device else contextlib.nullcontext()

    def facts(self) -> dict[str, Any]:
        """The facts of the placement for a training's result."""
        return {"strategy": self.choice.name, "replicas": self.replicas, "workers": self.choice.workers}


def place(choice: Choice, *, gpus: int = 0) -> Placement:
    """Set up the chosen devices.

    Raises:
        ConfigError: this process has computed already, and cannot join a cluster any more.
    """
    if choice.name == "mirrored":
        kind = "CPU" if choice.logical else "GPU"
        devices = [f"{kind}:{number}" for number in range(choice.replicas)]
        return Placement(choice, _mirrored(*devices))
    if choice.name == "multi_worker":
        return Placement(choice, _multi_worker(os.environ[TF_CONFIG], gpus))
    if choice.name == "gpu":
        return Placement(choice, device="/GPU:0")
    return Placement(choice, device="/CPU:0" if gpus else None)


@functools.cache  # a second one would number its collectives anew, and TensorFlow refuses those of one number that differ
def _mirrored(*devices: str) -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(devices)


@functools.cache  # a process joins a cluster once, and to let it go takes ten seconds: it waits for a look at the others' health
def _multi_worker(cluster: str, gpus: int) -> tf.distribute.Strategy:
    """The strategy of this worker of a cluster, whose TF_CONFIG this is; waits until all the others are there."""
    kind = tf.distribute.experimental.CommunicationImplementation
    # the ring sums in one order, whatever the timing; NCCL's own on GPUs
    options = tf.distribute.experimental.CommunicationOptions(implementation=kind.AUTO if gpus else kind.RING)
    try:
        with _ending_with_parent():
            return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    except RuntimeError as error:
        raise ConfigError(
            f"this process cannot join a cluster any more, since it has computed already: {error}",
            where="training.strategy",
            fix="train in a fresh process, before anything else computes in TensorFlow",
        ) from error


@contextlib.contextmanager
def _ending_with_parent() -> Iterator[None]:
    """End this process when its parent ends or says so, even while native code keeps Python from running, as waiting
    for other workers does."""
    pipe = lifeline()
    if pipe is None:
        yield
        return
    before = fcntl.fcntl(pipe, fcntl.F_GETFL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, before | os.O_ASYNC)  # SIGIO, which nobody handles
    try:
        yield
    finally:
        fcntl.fcntl(pipe, fcntl.F_SETFL, before)


def given_cluster() -> tuple[list[str], int] | None:
    """Return (the workers' addresses, this worker's index) if the environment has a TF_CONFIG, else None."""
    text = os.environ.get(TF_CONFIG)
    if not text:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"is not JSON: {error}", where=TF_CONFIG) from None
    return workers_of(value if isinstance(value, dict) else {})


def workers_of(tf_config: Mapping[str, Any]) -> tuple[list[str], int]:
    """(the workers' addresses, the number of this worker) from TF_CONFIG; ConfigError if it names no workers."""
    where, fix = "TF_CONFIG", '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'
    cluster, task = tf_config.get("cluster"), tf_config.get("task")
    if not isinstance(cluster, dict) or not isinstance(task, dict):
        raise ConfigError("names no cluster and task", where=where, fix=fix)
    addresses = [*cluster.get("chief", []), *cluster.get("worker", [])]
    other = sorted(set(cluster) - {"chief", "worker"})
    if other or not addresses:
        raise ConfigError(f"has {', '.join(other) or 'no workers'}; only workers train here", where=where, fix=fix)
    kind, index = task.get("type"), task.get("index")
    if kind not in ("chief", "worker") or not isinstance(index, int) or not 0 <= index < len(cluster.get(kind, [])):
        raise ConfigError(f"this task is {task}, which the cluster does not have", where=where, fix=fix)
    return addresses, index + (len(cluster.get("chief", [])) if kind == "worker" else 0)
