"""Chooses the devices of `training.strategy: auto` by the work of the steps.

    work = work_of(training, model, transform, rows=1_000_000)      # Work(steps=11_719, flops=20_736_000, ...)
    device, why = choose_device(work, gpus=1, cores=16)             # "cpu", "11,719 steps of 0.02 GFLOP take ..."

A GPU that is there costs seconds to start, and each step of a small model costs as much on it as on the CPU, or more. The
figures are those of one H100 beside 16 cores (docs/training.md); what they decide between differs by much more than they err.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Literal

from tfcore.models.config import STACKED, ModelConfig
from tfcore.train.settings.config import TrainingConfig
from tfcore.train.settings.ranking import LARGE_BATCH
from tfcore.train.steps.xla_choice import repays_compiling
from tfcore.transform.parameters import TransformParameters

Device = Literal["cpu", "gpu", "mirrored"]
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
