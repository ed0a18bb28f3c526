"""Chooses the devices of a training: `training.strategy` on this machine; `auto` by the work of the steps.

    choice = chosen(request, log=monitor.log)                       # Choice("mirrored", replicas=2)
    work = work_of(training, model, transform, rows=1_000_000)      # Work(steps=11_719, flops=20_736_000, ...)
    device, why = choose_device(work, gpus=1, cores=16)             # "cpu", "11,719 steps of 0.02 GFLOP take ..."

A GPU that is there costs seconds to start, and each step of a small model costs as much on it as on the CPU, or more. The
figures are those of one H100 beside 16 cores (docs/training.md); what they decide between differs by much more than they err.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import tensorflow as tf

from headway.errors import ConfigError
from headway.process import cores
from tfcore.data.source import Feed
from tfcore.distribute.placement import Choice, given_cluster
from tfcore.models.config import STACKED, ModelConfig
from tfcore.train.request import TrainRequest
from tfcore.train.settings.config import TrainingConfig
from tfcore.train.settings.ranking import LARGE_BATCH
from tfcore.train.steps.xla_choice import repays_compiling
from tfcore.transform.parameters import TransformParameters

Device = Literal["cpu", "gpu", "mirrored"]
_DEVICES: dict[Device, str] = {"cpu": "the CPU", "gpu": "one GPU", "mirrored": "all GPUs"}
COMPILE_SECONDS, GPU_SECONDS = 2.0, 3.0
"""To compile the steps, and to start a GPU with its libraries."""
CPU_STEP, CPU_STEP_PLAIN, CPU_CORE_FLOPS = 0.5e-3, 1.5e-3, 50e9
"""Seconds of a step that computes next to nothing, compiled and not, and what a core computes in a second."""
GPU_STEP, GPU_STEP_PLAIN, GPU_FLOPS = 0.25e-3, 5e-3, 45e12
MIRRORED_STEP = 6e-3
"""Uncompiled but for the gradients, with an all-reduce."""
PAIR_SECONDS, GPU_RANKING = 30e-9, 3e-3
"""Of the loss of `ranking`: on the CPU each pair of a batch's rows, on a GPU a step."""
BACKWARD = 3
"""A training step computes so many times what a prediction does."""


@dataclass(frozen=True)
class Work:
    """What a training computes."""

    steps: int
    flops: float
    """Of a step, forward and backward."""
    batch: int
    ranking: bool = False
    jit: Literal["auto", "on", "off"] = "auto"

    def compiled(self, *, gpu: bool) -> bool:
        """Whether XLA is to compile the steps."""
        if self.jit != "auto":
            return self.jit == "on"
        large = self.ranking and self.batch >= LARGE_BATCH
        return not large and repays_compiling(self.steps, self.batch, gpu=gpu)

    def seconds(self, *, gpus: int, cores: int) -> float:
        """About how long it takes on so many GPUs; 0: on the CPU."""
        if gpus > 1:
            return GPU_SECONDS + self.steps * (MIRRORED_STEP + self.flops / (gpus * GPU_FLOPS))
        compiled = self.compiled(gpu=gpus > 0)
        once = COMPILE_SECONDS * compiled
        if gpus:
            step = (GPU_STEP if compiled else GPU_STEP_PLAIN) + self.flops / GPU_FLOPS
            return GPU_SECONDS + once + self.steps * (step + GPU_RANKING * self.ranking)
        step = (CPU_STEP if compiled else CPU_STEP_PLAIN) + self.flops / (cores * CPU_CORE_FLOPS)
        return once + self.steps * (step + PAIR_SECONDS * self.batch**2 * self.ranking)


def work_of(training: TrainingConfig, model: ModelConfig, transform: TransformParameters, *, rows: int) -> Work | None:
    """The work of a training on `rows` train rows; None: of a user's model or of images nobody knows it beforehand."""
    if model.user_defined or any(dtype == "uint8" for _, dtype in transform.inputs().values()):
        return None
    width = len(transform.numeric) * (model.embedding if model.quantile_bins else 1)
    most = math.inf if model.most_ids is None else model.most_ids
    width += model.embedding * (len(transform.lists) + sum(entry.size <= most for entry in transform.categorical))
    sizes = [width, *model.hidden, 1]
    products = sum(before * after for before, after in itertools.pairwise(sizes))
    products *= STACKED if model.name == "stacked" else 1
    if training.retrieval is not None:  # each row's user with each item of the batch
        products += training.batch_size * (model.embedding + 1)
    return Work(
        steps=training.total_steps(rows),
        flops=2.0 * BACKWARD * products * training.batch_size,
        batch=training.batch_size,
        ranking=training.ranking is not None,
        jit=training.jit,
    )


def choose_device(work: Work | None, *, gpus: int, cores: int, splits: bool = True) -> tuple[Device, str]:
    """The device where the training ends first, and the reason in words.

    Args:
        gpus: at least one.
        splits: whether a batch may be split over several.
    """
    several = splits and gpus > 1
    if work is None:
        return "mirrored" if several else "gpu", "how much a step computes is not known beforehand"
    times: dict[Device, float] = {
        "cpu": work.seconds(gpus=0, cores=cores),
        "gpu": work.seconds(gpus=1, cores=cores),
    }
    if several:
        times["mirrored"] = work.seconds(gpus=gpus, cores=cores)
    chosen = min(times, key=lambda device: times[device])
    names = {"cpu": "the CPU", "gpu": "a GPU", "mirrored": f"{gpus} GPUs"}
    estimates = ", ".join(f"{seconds:,.0f} s on {names[device]}" for device, seconds in times.items())
    return chosen, f"{work.steps:,} steps of {work.flops / 1e9:.3g} GFLOP take about {estimates}"


def choose(
    config: TrainingConfig,
    *,
    gpus: int = 0,
    cpus: int = 1,
    cluster: tuple[list[str], int] | None = None,
    work: Work | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> Choice:
    """Resolve the config's strategy.

    Args:
        gpus, cpus: GPUs, and logical CPU devices that this process has configured.
        cluster: the workers that TF_CONFIG names and which of them this is, where it is set.
        work: what the training computes, if that is known: `auto` takes the device where it ends first.
        log: told what `auto` chose where there is a GPU, and why.

    Raises:
        ConfigError: it cannot be had, or a batch cannot be split so.
    """
    name = config.strategy
    if name == "auto":
        # one device where several cannot do it: nobody asked for them
        whole = config.ranking is not None or config.retrieval is not None
        splits = not whole and not config.eager and config.micro_batches == 1 and not config.batch_size % max(gpus, 1)
        name = "cpu"
        if gpus:
            name, why = choose_device(work, gpus=gpus, cores=cores(), splits=splits)
            log(f"training.strategy: auto trains on {_DEVICES[name]}: {why}")
    if name == "gpu" and not gpus:
        raise ConfigError(
            "gpu, but TensorFlow sees no GPU on this machine",
            where="training.strategy",
            fix="set it to auto or cpu; 'headway doctor' tells which devices there are",
        )
    if name in ("mirrored", "multi_worker") and config.ranking is not None:
        raise ConfigError(
            f"{name} splits the rows of a batch over devices, which would cut groups, and the pairs of a group's rows that "
            "are on two devices would not be learned from",
            where="training.ranking",
            fix="train on one device (training.strategy: cpu or gpu), or leave ranking out",
        )
    if name in ("mirrored", "multi_worker") and config.retrieval is not None:
        raise ConfigError(
            f"{name} splits the rows of a batch over devices, and a row is compared with all items of its batch",
            where="training.retrieval",
            fix="train on one device (training.strategy: cpu or gpu), or leave retrieval out",
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
        _check_split(config, replicas, "replicas")
        return Choice("mirrored", replicas=replicas, logical=gpus < 2)
    if name == "multi_worker":
        if cluster is None:
            raise ConfigError(
                "multi_worker, but the environment has no TF_CONFIG, which says who the workers are",
                where="training.strategy",
                fix="give each worker its TF_CONFIG: docs/training.md; or set training.strategy to auto",
            )
        addresses, worker = cluster
        _check_split(config, len(addresses), "workers")
        return Choice("multi_worker", replicas=len(addresses), workers=len(addresses), worker=worker)
    return Choice(name)


def _check_split(config: TrainingConfig, parts: int, what: str) -> None:
    batch, micro = config.batch_size, config.micro_batches
    if batch % (parts * micro):
        each = parts * micro
        cut = f"{parts} {what}" + (f" with {micro} micro-batches each" if micro > 1 else "")
        raise ConfigError(
            f"a batch of {batch} cannot be split evenly over {cut}",
            where="training.batch_size",
            fix=" or ".join(str(size) for size in (batch - batch % each, batch - batch % each + each) if size),
        )


def chosen(
    request: TrainRequest, *, feed: Feed | None = None, log: Callable[[str], None] = lambda line: None
) -> Choice:
    """Resolve the request's strategy for this machine.

    Args:
        feed: where the rows come from in place of the request's examples; it lives in this process.
        log: see `choose`.
    """
    config = request.training
    cluster = given_cluster() if config.strategy == "multi_worker" else None
    gpus = len(tf.config.list_physical_devices("GPU"))
    (cpu, *_) = tf.config.list_physical_devices("CPU")
    cpus = len(tf.config.get_logical_device_configuration(cpu) or [cpu])
    work = work_of(config, request.model, request.transform, rows=_rows(request, feed)) if gpus else None
    choice = choose(config, gpus=gpus, cpus=cpus, cluster=cluster, work=work, log=log)
    if choice.name == "multi_worker" and feed is not None:
        raise ConfigError(
            "multi_worker trains in several processes, which do not share the rows of a feed",
            where="training.strategy",
            fix="leave it out, or train on ingested examples",
        )
    return choice


def _rows(request: TrainRequest, feed: Feed | None) -> int:
    """The train rows."""
    if feed is not None:
        return feed.shards.total
    return sum(part.result["splits"].get(part.split, {}).get("rows", 0) for part in request.examples)
