"""The devices of a training: one, several mirrored ones, or a worker of a cluster; and the learner on several replicas.

    placement = detect_placement(request, log=monitor.log)        # on this machine: Placement("mirrored", replicas=2)
    placement = set_up(placement, gpus=len(tf.config.list_physical_devices("GPU")))
    with placement.scope():
        learner = DistributedLearner(placement=placement, model=..., ...)     # else like tfcore.train.loop.Learner
    stacks = dataset.map(slice_of(worker=1, workers=2))   # [K, 256, ...] -> [K, 128, ...]

Mirrored devices are all in this process. Logical CPU devices must be configured before TensorFlow first computes
something. A worker must join its cluster, which the environment variable TF_CONFIG names, before that, too.

Each replica takes the gradient of its part of the batch's loss: the weighted sum of its rows' losses, divided by the weight
of the *whole* batch. So the parts add up to what one device computes, and any worker may have any rows. One all-reduce a
step sums gradients and loss. From then on every replica has the same numbers and decides the same: clip, apply, or skip.
The loop is outside of `strategy.run`, since TensorFlow allows neither a loop nor a condition around the optimizer inside.
For the same reason XLA compiles only the gradients. Micro-batches are parts of a replica's rows, added up before the
all-reduce. The loss scale is updated after the all-reduce, so that all replicas skip and scale together.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import ConfigError, StoreError
from headway.process import lifeline
from tfcore.data.reader import Batch, InMemoryShards, Shards
from tfcore.graph.function import refusal
from tfcore.graph.scheduled import current_values, stepping
from tfcore.train.cost import Device, Work, choose_device, work_of
from tfcore.train.loop import Learner, Outcome, Stack, StepPlan
from tfcore.train.request import TrainRequest
from tfcore.train.step import StepResult

_DEVICES: dict[Device, str] = {"cpu": "the CPU", "gpu": "one GPU", "mirrored": "all GPUs"}


def choose_placement(
    request: TrainRequest,
    *,
    gpus: int = 0,
    cpus: int = 1,
    cluster: tuple[list[str], int] | None = None,
    work: Work | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> Placement:
    """Returns the devices that `training.strategy` means on a machine with these GPUs, CPU devices and workers.

    Args:
        gpus, cpus: the number of GPUs, and of the logical CPU devices that this process has configured.
        cluster: the workers' addresses and this worker's number, from TF_CONFIG; None: it is not set.
        work: the amount of computation; None: unknown. `auto` takes the device where the training ends first.
        log: gets a line with what `auto` chose and why, if there is a GPU.

    Raises:
        ConfigError: the devices are not there, or cannot split a batch evenly.
    """
    config = request.training
    name, parts = config.strategy, config.micro_batches
    if name == "auto":
        # one device where several cannot do it: nobody asked for them
        whole = config.ranking is not None or config.retrieval is not None
        splits = not whole and not config.eager and parts == 1 and not config.batch_size % max(gpus, 1)
        name = "cpu"
        if gpus:
            name, why = choose_device(work, gpus=gpus, splits=splits)
            log(f"training.strategy: auto trains on {_DEVICES[name]}: {why}")
    if name == "gpu" and not gpus:
        raise ConfigError(
            "gpu, but TensorFlow sees no GPU on this machine",
            where="training.strategy",
            fix="set it to auto or cpu; 'headway doctor' tells which devices there are",
        )
    if name == "mirrored":
        replicas = gpus if gpus > 1 else cpus
        if replicas < 2:
            raise ConfigError(
                f"mirrored needs at least two devices, and TensorFlow sees {'one GPU' if gpus else 'no GPUs'}",
                where="training.strategy",
                fix="set it to auto; or, to rehearse in a process of your own, configure logical CPU devices there "
                "(tf.config.set_logical_device_configuration) and call tfcore.train.stage.train",
            )
        _check_split(config.batch_size, parts, replicas, "replicas")
        return Placement("mirrored", replicas=replicas, logical=gpus < 2)
    if name == "multi_worker":
        if cluster is None:
            raise ConfigError(
                "multi_worker, but the environment has no TF_CONFIG, which says who the workers are",
                where="training.strategy",
                fix="give each worker its TF_CONFIG: docs/training.md; or set training.strategy to auto",
            )
        addresses, worker = cluster
        _check_split(config.batch_size, parts, len(addresses), "workers")
        return Placement("multi_worker", replicas=len(addresses), workers=len(addresses), worker=worker)
    return Placement(name)


def _check_split(batch: int, micro: int, parts: int, what: str) -> None:
    each = parts * micro
    if batch % each:
        cut = f"{parts} {what}" + (f" with {micro} micro-batches each" if micro > 1 else "")
        raise ConfigError(
            f"a batch of {batch} cannot be split evenly over {cut}",
            where="training.batch_size",
            fix=" or ".join(str(size) for size in (batch - batch % each, batch - batch % each + each) if size),
        )


def detect_placement(
    request: TrainRequest, *, shards: Shards | None = None, log: Callable[[str], None] = lambda line: None
) -> Placement:
    """Returns the placement of a request on this machine's devices, and by TF_CONFIG; ConfigError if none is possible.

    Args:
        shards: the rows that are used in place of the request's examples.
        log: see `choose_placement`.
    """
    cluster = given_cluster() if request.training.strategy == "multi_worker" else None
    gpus = len(tf.config.list_physical_devices("GPU"))
    (cpu, *_) = tf.config.list_physical_devices("CPU")
    cpus = len(tf.config.get_logical_device_configuration(cpu) or [cpu])
    work = None
    if gpus:
        given = (part.result["splits"].get(part.split, {}).get("rows", 0) for part in request.examples)
        work = work_of(request, rows=shards.total if shards else sum(given))
    placement = choose_placement(request, gpus=gpus, cpus=cpus, cluster=cluster, work=work, log=log)
    if placement.several and isinstance(shards, InMemoryShards):
        raise ConfigError(
            "multi_worker trains in several processes, which do not share rows in memory",
            where="training.strategy",
            fix="leave it out, or train on ingested examples",
        )
    return placement


Name = Literal["cpu", "gpu", "mirrored", "multi_worker"]
TF_CONFIG = "TF_CONFIG"


@dataclass(frozen=True)
class Placement:
    """The devices that this process trains on by `training.strategy`. They are ready once `set_up` has set them up."""

    name: Name
    replicas: int = 1
    """Devices that each batch is split over, of all workers together."""
    workers: int = 1
    worker: int = 0
    """The number of this worker, from 0."""
    logical: bool = False
    """The replicas are logical CPU devices, since there are no two GPUs."""
    strategy: tf.distribute.Strategy | None = None
    """TensorFlow's strategy, which `set_up` makes; None: one device."""
    device: str | None = None

    @property
    def chief(self) -> bool:
        """Whether this process writes the training's output."""
        return self.worker == 0

    @property
    def several(self) -> bool:
        """Whether the training runs in several workers, each a process."""
        return self.name == "multi_worker"

    @property
    def on_gpu(self) -> bool:
        """Whether steps run on one or several GPUs."""
        return self.name != "cpu" and not self.logical and bool(tf.config.get_visible_devices("GPU"))

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the context manager in which variables have to be made and changed."""
        if self.strategy is not None:
            return self.strategy.scope()
        return self.device_scope()

    def device_scope(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the context manager in which ops run on `device`; without a device it does nothing."""
        return tf.device(self.device) if self.device else contextlib.nullcontext()

    def facts(self) -> dict[str, Any]:
        """Returns the strategy and the numbers of replicas and workers, for a training's result."""
        return {"strategy": self.name, "replicas": self.replicas, "workers": self.workers}


def set_up(placement: Placement, *, gpus: int = 0) -> Placement:
    """Set up the devices of a placement. Returns the placement with its `strategy`, or its `device`, set.

    Raises:
        ConfigError: this process has computed already, and cannot join a cluster any more.
    """
    if placement.name == "mirrored":
        kind = "CPU" if placement.logical else "GPU"
        devices = [f"{kind}:{number}" for number in range(placement.replicas)]
        return replace(placement, strategy=_mirrored(*devices))
    if placement.name == "multi_worker":
        return replace(placement, strategy=_multi_worker(os.environ[TF_CONFIG], gpus))
    if placement.name == "gpu":
        return replace(placement, device="/GPU:0")
    return replace(placement, device="/CPU:0" if gpus else None)


@functools.cache  # a second one would number its collectives anew, and TensorFlow refuses those of one number that differ
def _mirrored(*devices: str) -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(devices)


@functools.cache  # a process joins a cluster once, and to let it go takes ten seconds: it waits for a look at the others' health
def _multi_worker(cluster: str, gpus: int) -> tf.distribute.Strategy:
    """Join the cluster, and return this worker's strategy. Waits until all other workers have joined. `cluster` is the
    text of TF_CONFIG."""
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
    """Within the block this process ends when its parent ends or asks it to. This works even where native code keeps
    Python from running, such as the wait for other workers."""
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
    """Returns the workers' addresses and this worker's number, from the environment's TF_CONFIG; None: not set."""
    text = os.environ.get(TF_CONFIG)
    if not text:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"is not JSON: {error}", where=TF_CONFIG) from None
    return workers_of(value if isinstance(value, dict) else {})


def workers_of(tf_config: Mapping[str, Any]) -> tuple[list[str], int]:
    """Returns the workers' addresses and the number of this worker from a parsed TF_CONFIG. ConfigError if it names no
    workers, or not this one."""
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


def slice_of(worker: int, workers: int) -> Callable[[Batch], Batch]:
    """Returns a function that takes a stack, [batches, rows, ...] by name, and keeps this worker's rows of each batch."""

    def sliced(stack: Batch) -> Batch:
        size = stack["weight"].shape[1] // workers
        return {name: value[:, worker * size : (worker + 1) * size] for name, value in stack.items()}

    return sliced


_REFUSALS = (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError, tf.errors.InternalError)
SUM = tf.distribute.ReduceOp.SUM


class DistributedLearner(Learner):
    """A learner on several replicas; see the module. In one process a stack holds whole batches, which the replicas
    divide. With several workers a stack holds this worker's slice of each batch."""

    def __init__(self, *, placement: Placement, **keywords: Any):
        assert placement.strategy is not None
        self._placement: Placement = placement
        self._strategy: tf.distribute.Strategy = placement.strategy
        self._specs: Mapping[str, tf.TensorSpec] = keywords["specs"]
        jit, log = keywords.pop("jit", "auto"), keywords.get("log") or (lambda line: None)
        super().__init__(**keywords, jit="off")
        if self.config.micro_batches > 1 and self.train_step.copy_moving_averages():
            raise ConfigError(
                "the model has float variables that are not trained, a layer's moving averages perhaps, which replicas "
                "cannot share within a step",
                where="training.micro_batches",
                fix="leave it out, or train on one device",
            )
        if hasattr(self.optimizer, "_all_reduce_sum_gradients"):
            # they are summed already, and a second sum costs as much as the first
            self.optimizer._all_reduce_sum_gradients = list
            self._again = 1.0
        else:
            self._again = 1.0 / placement.replicas
        self._jit, self._log = jit, log
        self._compiled: Callable[..., Any] | None = None
        self._summed = tf.function(self._sum, input_signature=[tf.TensorSpec([None], tf.float64)], autograph=False)
        self._mode: str | None = None

    @property
    def mode(self) -> str | None:
        return self._mode

    def run(self, stack: Stack, **keywords: Any) -> Outcome:
        with self._placement.scope():
            if self._mode is None:
                self._choose_mode(stack)
            return super().run(stack, **keywords)

    def evaluate(self, batches: Iterable[Mapping[str, tf.Tensor]]) -> float:
        """Returns the mean loss (see `Learner`), computed in this process alone, on its first device."""
        with self._placement.scope():
            return super().evaluate(batches)

    def from_chief(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the chief's `values` on every worker. All workers must call this, each with as many values."""
        addends = values if self._placement.chief else np.zeros_like(values)
        with self._placement.scope():
            return np.asarray(self._summed(tf.constant(addends, tf.float64)))

    def _sum(self, values: tf.Tensor) -> tf.Tensor:
        def of_replica(values: tf.Tensor) -> tf.Tensor:
            # a sum goes where its terms lie, and an argument lies nowhere yet
            return tf.distribute.get_replica_context().all_reduce(SUM, tf.identity(values))

        return self._first(self._strategy.run(of_replica, args=(values,)))

    def _first(self, value: Any) -> Any:
        """Returns one replica's value of a result that is the same on all replicas."""
        return self._strategy.experimental_local_results(value)[0]

    def _choose_mode(self, stack: Stack) -> None:
        """Compile the gradients by XLA if it can. The trial changes no variable, and runs no collective operation: one
        that fails in the middle of a step would be lost for the process."""
        self._mode = "graph"
        if self._jit == "off":
            return
        refused = None
        if self.train_step.copy_moving_averages():
            refused = "a layer keeps moving averages, which the replicas share"
        else:
            compiled = tf.function(self._part_of_rows, jit_compile=True, autograph=False)
            # as the steps will have it: what is compiled here is then theirs
            signature: list[Any] = [{key: tf.TensorSpec(s.shape[1:], s.dtype) for key, s in self._specs.items()}]

            @tf.function(autograph=False, input_signature=signature)
            def once(some: Stack) -> None:
                def of_replica() -> Any:
                    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
                    values = {name: tf.constant(0.5) for name in self.config.values}
                    return compiled(*self._share(some, replica), values, tf.constant(1.0))

                self._strategy.run(of_replica)

            zeros = {key: tf.zeros_like(tf.convert_to_tensor(stack[key])[0]) for key in self._specs}
            try:
                once(zeros)
            except _REFUSALS as error:
                refused = refusal(error)
        if refused is None:
            self._mode, self._compiled = "jit", compiled
        elif self._jit == "on":
            raise ConfigError(
                f"XLA cannot compile the gradients: {refused}", where="training.jit", fix="set it to auto or off"
            )
        else:
            self._log(f"XLA cannot compile the gradients, so they run uncompiled: {refused}")

    def _train_step(self, batch: Stack) -> tuple[tf.Tensor, tf.Tensor, StepResult]:
        weight = tf.reduce_sum(self.train_step.row_weights(batch))
        if self._placement.several:
            weight = self._sum(weight)
        run = self._strategy.run
        kept = run(self.train_step.copy_moving_averages)
        loss, objective, finite, gradients = run(self._replica_part, args=(batch, dict(current_values()), weight))
        self.train_step.set_rate()

        def apply() -> tf.Tensor:
            run(self._apply, args=(gradients, dict(current_values())))
            return tf.constant(True)

        def skip() -> tf.Tensor:
            run(self.train_step.restore_moving_averages, args=(kept,))
            return tf.constant(False)

        # a condition on what all replicas have alike, and outside of strategy.run
        applied = tf.cond(self._first(finite), apply, skip)
        self.train_step.counter.assign_add(1)
        retryable = self.train_step.update_loss_scale(applied, self._first(objective))
        return self._first(loss), weight, StepResult(applied, retryable)

    def _apply(self, gradients: list[tf.Tensor], values: dict[str, tf.Tensor]) -> None:
        with stepping(values):  # a replica runs in a thread of its own
            self.train_step.apply(gradients)

    def _replica_part(
        self, batch: Stack, values: dict[str, tf.Tensor], total: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, list[tf.Tensor]]:
        """Returns the loss and the objective of a batch, whether objective and gradients are finite, and the clipped gradients,
        divided by the replica count if the optimizer sums them. Runs within a replica; all replicas return the same."""
        context = tf.distribute.get_replica_context()
        rows, first = self._share(batch, context.replica_id_in_sync_group)
        parts = (self._compiled or self._part_of_rows)(rows, first, values, total)
        *gradients, loss, objective = context.all_reduce(SUM, parts)
        norm = tf.linalg.global_norm(gradients)
        finite = tf.math.is_finite(norm) & tf.math.is_finite(objective)
        clipped = self.train_step.clipped(gradients, norm)
        return loss, objective, finite, [gradient * self._again for gradient in clipped]

    def _part_of_rows(
        self, rows: Stack, first_row: tf.Tensor, values: dict[str, tf.Tensor], total: tf.Tensor
    ) -> list[tf.Tensor]:
        """Returns gradients, loss and objective of a replica's rows; their sums over replicas are those of the batch."""
        share = 1.0 / self._placement.replicas
        with stepping(values) as read:  # a replica runs in a thread of its own
            part = self._part(rows, total=total, share=share, first_row=first_row)
        self._read |= read
        return [*part.gradients, part.loss, part.objective]

    def _share(self, batch: Stack, replica: Any) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Returns the rows of a batch that a replica computes, and the index of the first of these rows in the whole batch."""
        if self._placement.several:
            return dict(batch), tf.constant(self._placement.worker * self.batch)
        share = self.batch // self._placement.replicas
        first = replica * share
        with tf.device("/CPU:0"):  # so that only a replica's rows go to its device
            return {key: value[first : first + share] for key, value in batch.items()}, first


def follow_chief(learner: DistributedLearner) -> Callable[[StepPlan], StepPlan]:
    """Returns a function for `tfcore.train.loop.run` that replaces a worker's plan of its next steps by the chief's. All
    workers must make the same steps in the same calls, since a collective operation's name includes its place in the loop."""

    def agreed(turn: StepPlan) -> StepPlan:
        stop, steps = learner.from_chief(np.asarray([float(turn.stop), float(turn.steps)])).tolist()
        return StepPlan(bool(stop), int(steps))

    return agreed


def check_same_checkpoint(learner: DistributedLearner, step: int | None, checkpoints: Path | None) -> None:
    """Raise StoreError unless this worker found the checkpoint of the same step as the chief. `step` None: it found none."""
    own_step = -1 if step is None else step
    chief_step = int(learner.from_chief(np.asarray([own_step], np.float64))[0])
    if own_step != chief_step:
        here, there = ("no checkpoint" if n < 0 else f"the checkpoint of step {n}" for n in (own_step, chief_step))
        raise StoreError(
            f"this worker found {here} and the chief {there}",
            where=str(checkpoints),
            fix="give all workers one folder for checkpoints, on a disk that they share",
        )
