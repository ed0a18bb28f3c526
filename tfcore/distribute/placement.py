"""Places a training on the CPU, a GPU, several mirrored devices, or one of several workers.

    placement = place(Choice("mirrored", replicas=2), gpus=len(tf.config.list_physical_devices("GPU")))
    with placement.scope():
        ...                                 # build the model and its optimizer

Devices must be set before TensorFlow first computes something, so logical CPU devices and workers get processes of their
own: `tfcore.train.launch`.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import tensorflow as tf

from headway.errors import ConfigError

Name = Literal["cpu", "gpu", "mirrored", "multi_worker"]


_KEPT: list[tf.distribute.Strategy] = []
"""Until the process ends: to let one go takes ten seconds, since it waits for a look at the others' health."""


@dataclass(frozen=True)
class Choice:
    """The devices and processes that `training.strategy` means on this machine."""

    name: Name
    replicas: int = 1
    """Devices that each batch is split over, of all workers together."""
    workers: int = 1
    logical: bool = False
    """The replicas are logical CPU devices, since there is no GPU."""

    @property
    def apart(self) -> bool:
        """Whether it needs new processes: one that has computed already cannot change these settings."""
        return self.logical or self.name == "multi_worker"


@dataclass(frozen=True)
class Placement:
    """The devices that hold the model; without a strategy, one device."""

    choice: Choice
    strategy: tf.distribute.Strategy | None = None
    worker: int = 0
    device: str | None = None

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


def place(choice: Choice, *, worker: int = 0, gpus: int = 0) -> Placement:
    """Set up the chosen devices; where the choice is `apart`, in a process that has not computed yet."""
    if choice.name == "mirrored":
        kind = "GPU" if gpus else "CPU"
        if not gpus:
            (cpu, *_) = tf.config.list_physical_devices("CPU")
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * choice.replicas)
        devices = [f"{kind}:{number}" for number in range(choice.replicas)]
        return Placement(choice, tf.distribute.MirroredStrategy(devices))
    if choice.name == "multi_worker":
        return Placement(choice, _multi_worker(gpus), worker=worker)
    if choice.name == "gpu":
        return Placement(choice, device="/GPU:0")
    return Placement(choice, device="/CPU:0" if gpus else None)


def _multi_worker(gpus: int) -> tf.distribute.Strategy:
    kind = tf.distribute.experimental.CommunicationImplementation
    # the ring sums in one order, whatever the timing; NCCL's own on GPUs
    options = tf.distribute.experimental.CommunicationOptions(implementation=kind.AUTO if gpus else kind.RING)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    _KEPT.append(strategy)
    return strategy


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
