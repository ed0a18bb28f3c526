"""What a training costs on a device, compiled by XLA or not: how `training.strategy: auto` and `training.jit: auto` decide.

    work = work_of(request, rows=1_000_000)                         # Work(steps=11_719, flops=20_736_000, ...)
    device, why = choose_device(work, gpus=1)                       # "cpu", "11,719 steps of 0.02 GFLOP are 0.24 TFLOP, ..."
    slow_under_xla(model, specs)                                    # "Conv2D", or None

A GPU takes seconds to start, and a step of a small model takes as long on it as on the CPU, or longer. The bounds follow
from the times of one H100 beside 16 cores (docs/training.md): the seconds to start it, and the time of a step.

XLA takes seconds to compile the steps: 4 to 5 s for a built-in model on two cores. A compiled step then takes 0.8 to 1.2 ms
less at 128 rows, and 2.3 ms less at 512 to 2,048. On a GPU, which starts each op of a plain step separately, it takes 4 ms
less. The decision depends on the settings and the kind of device alone, not on a timing: compiled and plain steps round
differently, so that a timing would decide over a training's bits.

XLA's CPU compiler has no fast kernel for the gradients of convolutions and pooling: a step of a small convolutional model
took nine times as long compiled as plain, and pooling's gradient is refused where ops are deterministic. On a GPU
deterministic XLA scatters one row after the other: a step that adds up the gradients of 4,096 ids took fifteen times as
long compiled as plain. Headway's embeddings do without (`tfcore.models.layers.look_up_rows`), others are found here.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import keras
import tensorflow as tf

from tfcore.graph.function import Jit
from tfcore.graph.python_op import all_nodes
from tfcore.graph.xla import compiling_intended
from tfcore.models.config import MEMBERS
from tfcore.models.inputs import WIDEST, has_members, is_ensemble, seen_columns
from tfcore.train.config import LARGE_BATCH, repays_compiling
from tfcore.train.request import TrainRequest

Device = Literal["cpu", "gpu", "mirrored"]
GPU_FLOPS = 2e12
"""A training with fewer operations ends sooner on the CPU, since a GPU takes seconds to start."""
MIRRORED_FLOPS = 5e11
"""A step that computes less takes as long on several GPUs, with its all-reduce, as on one."""
PAIR_FLOPS = 300
"""About the floating-point operations of the `ranking` loss for each pair of rows in a batch."""
BACKWARD = 3
"""The operations of a training step, as a multiple of those of a prediction."""


@dataclass(frozen=True)
class Work:
    """The amount of computation in a training."""

    steps: int
    flops: float
    """Floating-point operations of one step, forward and backward."""


def work_of(request: TrainRequest, *, rows: int) -> Work | None:
    """Returns the work of a training on `rows` train rows. None for a user's model and for models with image inputs:
    their work is not known beforehand."""
    training, model, transform = request.training, request.model, request.transform
    if model.user_defined or any(dtype == "uint8" for _, dtype in transform.inputs().values()):
        return None
    members, width = is_ensemble(model, transform), len(transform.numeric)
    width = max(width, min(width * model.embedding, WIDEST)) if members else width
    width += model.embedding * sum(
        len(seen_columns(entries, model, transform)) for entries in (transform.categorical, transform.lists)
    )
    sizes = [width, *model.hidden, 1]
    products = sum(before * after for before, after in itertools.pairwise(sizes))
    products *= MEMBERS if members else 1
    if training.retrieval is not None:  # each row's user with each item of the batch
        products += training.batch_size * (model.embedding + 1)
    flops = 2.0 * BACKWARD * products * training.batch_size
    if training.ranking is not None:
        flops += PAIR_FLOPS * training.batch_size**2
    return Work(training.total_steps(rows), flops)


def choose_device(work: Work | None, *, gpus: int, splits: bool = True) -> tuple[Device, str]:
    """Returns the device where the training ends first, and the reason in words.

    Args:
        gpus: at least one.
        splits: whether a batch may be split over several GPUs.
    """
    several = splits and gpus > 1
    if work is None:
        return "mirrored" if several else "gpu", "how much a step computes is not known beforehand"
    total = work.steps * work.flops
    one: Device = "mirrored" if several and work.flops >= MIRRORED_FLOPS else "gpu"
    why = f"{work.steps:,} steps of {work.flops / 1e9:.3g} GFLOP are {total / 1e12:.3g} TFLOP"
    return "cpu" if total < GPU_FLOPS else one, f"{why}, and a GPU ends sooner from {GPU_FLOPS / 1e12:g} on"


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


SCATTERS = frozenset({"ScatterNd", "SegmentSumV2", "TensorScatterAdd", "UnsortedSegmentSum"})
"""Ops, by TensorFlow's names, that add up the gradients of `tf.gather` and similar ops."""


def choose_jit(
    request: TrainRequest,
    model: keras.Model,
    specs: Mapping[str, tf.TensorSpec],
    *,
    steps: int,
    gpu: bool,
    log: Callable[[str], None],
) -> Jit:
    """Returns `training.jit`, but "off" where "auto" would not save time. Logs an op or a loss that is slow with XLA.

    Args:
        specs: the TensorSpecs of a stack, by name.
    """
    config, said = request.training, "training.jit: auto runs steps uncompiled"
    if config.eager or config.jit != "auto":
        return "off" if config.eager else config.jit
    members = has_members(request.model, request.transform)
    if not repays_compiling(steps, config.batch_size, gpu=gpu, members=members):
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


def slow_under_xla(model: keras.Model, specs: Mapping[str, tf.TensorSpec]) -> str | None:
    """Returns the name of an op of `SLOW` that `model` calls in training; None if it calls none or cannot be traced."""
    inputs = {name: tf.TensorSpec([None, *spec.shape[2:]], spec.dtype) for name, spec in specs.items()}
    try:
        forward = tf.function(lambda batch: model(batch, training=True), autograph=False)
        graph = forward.get_concrete_function(inputs).graph.as_graph_def()
    except Exception:  # the trace of the step says what is wrong, in words
        return None
    return min({node.op for node in all_nodes(graph)} & SLOW, default=None)


def scatters_under_xla(model: keras.Model, specs: Mapping[str, tf.TensorSpec]) -> str | None:
    """Returns the first op of `SCATTERS`, by name, that `model`, its own losses or their gradients have when compiled
    for a GPU. None if there is none, or the model cannot be traced."""
    inputs = {name: tf.TensorSpec(spec.shape[1:], spec.dtype) for name, spec in specs.items()}

    def gradients(batch: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            targets = [model(batch, training=True), *model.losses]
        found = tape.gradient(targets, model.trainable_variables)
        return [tf.convert_to_tensor(gradient) for gradient in found if gradient is not None]

    try:
        with compiling_intended():
            graph = tf.function(gradients, autograph=False).get_concrete_function(inputs).graph.as_graph_def()
    except Exception:  # as above
        return None
    return min({node.op for node in all_nodes(graph)} & SCATTERS, default=None)
