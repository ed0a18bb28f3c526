"""What a training costs on a device, compiled by XLA or not: how `training.strategy: auto` and `training.jit: auto` decide.

    work = work_of(request, rows=1_000_000)      # Work(steps=11_719, flops=20_736_000, ...)
    device, why = choose_device(work, gpus=1, cores=16)             # "cpu", "11,719 steps of 0.02 GFLOP take ..."
    repays_compiling(steps=2_000, batch=128)                        # False
    slow_under_xla(model, specs)                                    # "Conv2D", or None

A GPU that is there costs seconds to start, and each step of a small model costs as much on it as on the CPU, or more. The
figures are those of one H100 beside 16 cores (docs/training.md); what they decide between differs by much more than they err.

XLA takes seconds to compile the steps (4 to 5 s for a built-in model on two cores) and then spares each of them 0.8 to
1.2 ms at 128 rows and 2.3 ms at 512 to 2,048; on a GPU, where each op of a plain step is started by itself, 4 ms. What is
decided depends on the settings and the kind of device alone: a compiled step and a plain one round differently, so that a
timing would decide over a training's bits.

XLA's CPU compiler has no fast kernel for the gradients of convolutions and pooling: a step of a small convolutional model
took nine times as long compiled as plain, and pooling's gradient is refused where ops are deterministic. On a GPU
deterministic XLA scatters one row after the other: a step that adds up the gradients of 4,096 ids took fifteen times as
long compiled as plain. Headway's own embeddings do without (`tfcore.models.layers.looked_up`), others are found here.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import keras
import tensorflow as tf

from tfcore.graph.function import Jit
from tfcore.graph.python_errors import all_nodes
from tfcore.graph.xla import intended
from tfcore.models.config import STACKED
from tfcore.train.config import LARGE_BATCH
from tfcore.train.request import TrainRequest

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


def work_of(request: TrainRequest, *, rows: int) -> Work | None:
    """The work of a training on `rows` train rows; None: of a user's model or of images nobody knows it beforehand."""
    training, model, transform = request.training, request.model, request.transform
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


SLOW = frozenset(
    {
        "AvgPool",
        "AvgPool3D",
        "Conv2D",
        "Conv2DBackpropInput",
        "Conv3D",
        "Conv3DBackpropInputV2",
        "DepthwiseConv2dNative",
        "Dilation2D",
        "MaxPool",
        "MaxPool3D",
        "MaxPoolV2",
        "MaxPoolWithArgmax",
    }
)
"""Ops, by TensorFlow's names, whose gradients are slow when XLA compiles them for a CPU."""


LEAST_STEPS = 2_500
LEAST_ROWS = 2_500_000
"""The steps, or the rows of all steps together, from which the compiled steps repay their compilation."""


LEAST_STEPS_ON_GPU = 700
SCATTERS = frozenset({"ScatterNd", "SegmentSumV2", "TensorScatterAdd", "UnsortedSegmentSum"})
"""What adds up the gradients of `tf.gather` and its like, by TensorFlow's names."""


def choose_jit(
    request: TrainRequest,
    model: keras.Model,
    specs: Mapping[str, tf.TensorSpec],
    *,
    steps: int,
    gpu: bool,
    log: Callable[[str], None],
) -> Jit:
    """Whether XLA compiles the steps, as `training.jit` says; of `auto` the log says why it does not.

    Args:
        specs: of a stack.
    """
    config, said = request.training, "training.jit: auto runs steps uncompiled"
    if config.eager or config.jit != "auto":
        return "off" if config.eager else config.jit
    if not repays_compiling(steps, config.batch_size, gpu=gpu):
        return "off"
    rows = request.transform.inputs()
    inputs = {name: specs[name] for name in rows}
    op = None
    if gpu and config.deterministic:  # only in one order are they slow
        op = scatters_under_xla(model, inputs)
    elif not gpu and (request.model.user_defined or any(len(row) > 2 for row, _ in rows.values())):
        op = slow_under_xla(model, inputs)  # only images go through such ops in a built-in model
    if op is not None:
        calls, where = ("the gradients of the model need", "a GPU") if gpu else ("the model calls", "a CPU")
        log(f"{said}: {calls} {op}, which XLA makes slow on {where}")
        return "off"
    if config.ranking is None or config.batch_size < LARGE_BATCH:
        return "auto"
    log(f"{said}: training.ranking has a loss that XLA makes slow for so large a batch")
    return "off"


def repays_compiling(steps: int, batch: int, *, gpu: bool = False) -> bool:
    """Whether a training of `steps` batches of `batch` rows ends sooner with its compilation counted in."""
    return steps >= (LEAST_STEPS_ON_GPU if gpu else LEAST_STEPS) or steps * batch >= LEAST_ROWS


def slow_under_xla(model: keras.Model, specs: Mapping[str, tf.TensorSpec]) -> str | None:
    """The first such op, by name, that `model` calls in training; None when it calls none, or cannot be traced."""
    inputs = {name: tf.TensorSpec([None, *spec.shape[2:]], spec.dtype) for name, spec in specs.items()}
    try:
        forward = tf.function(lambda batch: model(batch, training=True), autograph=False)
        graph = forward.get_concrete_function(inputs).graph.as_graph_def()
    except Exception:  # the trace of the step says what is wrong, in words
        return None
    return min({node.op for node in all_nodes(graph)} & SLOW, default=None)


def scatters_under_xla(model: keras.Model, specs: Mapping[str, tf.TensorSpec]) -> str | None:
    """The first scatter, by name, in `model`, its own losses and their gradients as they are compiled for a GPU; None when
    there is none, or they cannot be traced."""
    inputs = {name: tf.TensorSpec(spec.shape[1:], spec.dtype) for name, spec in specs.items()}

    def gradients(batch: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            targets = [model(batch, training=True), *model.losses]
        found = tape.gradient(targets, model.trainable_variables)
        return [tf.convert_to_tensor(gradient) for gradient in found if gradient is not None]

    try:
        with intended():
            graph = tf.function(gradients, autograph=False).get_concrete_function(inputs).graph.as_graph_def()
    except Exception:  # as above
        return None
    return min({node.op for node in all_nodes(graph)} & SCATTERS, default=None)
