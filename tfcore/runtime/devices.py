"""TensorFlow's threads, determinism and precision: set once, before any op runs, and only in processes that Headway started.

mark_own_process()                        # headway.process: in the process's entry point
threads = prepare()          # as many as there are cores, or what this process was already running with
"""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from headway.errors import ConfigError
from headway.process import cores, is_own_process
from tfcore.private_api import op_determinism, set_op_determinism


def prepare() -> int:
    """Make ops deterministic and float32 products exact; return the number of threads that compute. That is the number of cores,
    or the number that this process was already running with.

    In a process that Headway did not start, nothing is changed: there a training resumes exactly only if the caller has made
    ops deterministic.
    """
    return deterministic_process() if is_own_process() else _threads_there_are()


def deterministic_process(threads: int | None = None) -> int:
    """Make TensorFlow deterministic in this whole process: deterministic ops, exact float32 products, a fixed seed and, if
    nothing was computed yet, the number of threads. The same training then ends at the same bits. Ops that draw random numbers
    without a seed of their own draw from the fixed seed, or raise an error.

    Args:
        threads: the number of threads that compute; None: as many as there are cores.

    Returns:
        The number of threads that compute.

    Raises:
        ConfigError: TensorFlow computes with another number of threads already.
    """
    tf.config.experimental.enable_op_determinism()
    # a GPU would round what it multiplies to 10 bits, and what a CPU serves would be other predictions by a thousandth
    tf.config.experimental.enable_tensor_float_32_execution(False)
    tf.random.set_seed(0)  # deterministic ops refuse to draw unseeded; Headway itself draws from hashes
    count = threads or cores()
    try:
        tf.config.threading.set_intra_op_parallelism_threads(count)
        tf.config.threading.set_inter_op_parallelism_threads(count)
    except RuntimeError:
        actual = _threads_there_are()
        if threads not in (None, actual):
            problem = f"TensorFlow computes with {actual} threads already, so {threads} cannot be set"
            fix = "call deterministic_process before anything else of TensorFlow"
            raise ConfigError(problem, where="deterministic_process", fix=fix) from None
        return actual
    return count


def _threads_there_are() -> int:
    return tf.config.threading.get_intra_op_parallelism_threads() or cores()


@contextlib.contextmanager
def relaxed_numerics(*, allow_tf32: bool, keep_deterministic: bool) -> Iterator[None]:
    """Within the block, TensorFlow may be less exact, never more. With `allow_tf32` a GPU may round factors of float32 products
    to 10 bits. Without `keep_deterministic` ops need not give the same bits each time. Restores the settings after the block."""
    before = numerics()
    with using_numerics((before[0] or allow_tf32, before[1] and keep_deterministic)):
        yield


def numerics() -> tuple[bool, bool]:
    """Returns whether float32 products may be rounded to TensorFloat-32, and whether ops are deterministic."""
    return tf.config.experimental.tensor_float_32_execution_enabled(), op_determinism()


@contextlib.contextmanager
def using_numerics(given: tuple[bool, bool]) -> Iterator[None]:
    """Within the block, compute with settings that `numerics` returned; restore the present settings after it."""
    before = numerics()
    _set_numerics(given)
    try:
        yield
    finally:
        _set_numerics(before)


def _set_numerics(given: tuple[bool, bool]) -> None:
    tf.config.experimental.enable_tensor_float_32_execution(given[0])
    set_op_determinism(given[1])
