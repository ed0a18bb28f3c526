"""What graph functions cost: the figures of docs/graph-functions, a section a page.

    python bench/graph_functions.py                     # all
    python bench/graph_functions.py --only python       # runtime-data, tf-function, sharing-state, python, data-access

runtime-data: a value that changes with every call, as an argument, as a variable, and as a Python number.
tf-function: a call of a traced function, eager, with its arguments checked, and what a new Python value costs instead.
sharing-state: what a function pays that reads and writes variables, tables and an iterator; saving and restoring it all.
python: a Python function in a pipeline, by row and by batch, beside TensorFlow ops and beside tf.numpy_function.
data-access: images a second through flip and crop; rows a second that the training reader hands over, plain and augmented.
Each case is timed in turn, and the best of five rounds counts; ratios of data-access are for processor time.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import common
import numpy as np
import tensorflow as tf

from tfcore.graph.function import GraphFunction
from tfcore.graph.python_op import numpy_op, python_op
from tfcore.graph.retrace import RetraceGuard

ROUNDS = 5


def best(cases: dict[str, Callable[[], Any]], repeat: int, rounds: int) -> dict[str, float]:
    """Seconds of one call of each case."""
    found = dict.fromkeys(cases, float("inf"))
    for call in cases.values():
        call()
    for _ in range(rounds):
        for name, call in cases.items():
            began = time.perf_counter()
            for _ in range(repeat):
                call()
            found[name] = min(found[name], (time.perf_counter() - began) / repeat)
    return found


def shown(title: str, found: dict[str, float], unit: float = 1e6, word: str = "us") -> None:
    print(f"\n## {title}")
    first = next(iter(found.values()))
    for name, seconds in found.items():
        print(f"{name:<52} {seconds * unit:10.1f} {word}   {seconds / first:8.2f}x", flush=True)


def layers(x: Any, rate: Any) -> Any:
    """Small enough that the price of the call is seen."""
    for _ in range(10):
        x = tf.nn.relu(x * rate + 0.5)
    return tf.reduce_sum(x)


def tf_function(rounds: int) -> None:
    x, rate = tf.ones([256, 50]), tf.constant(0.9)
    spec = {"x": tf.TensorSpec([256, 50], tf.float32), "rate": tf.TensorSpec([], tf.float32)}
    plain = tf.function(layers)
    checked = GraphFunction(layers, spec)
    guard = RetraceGuard(plain)

    def guarded() -> None:
        plain(x, rate)
        guard.check()

    cases = {
        "tf.function, tensors": lambda: plain(x, rate),
        "tf.function and a RetraceGuard's check": guarded,
        "graph_function, tensors": lambda: checked(x=x, rate=rate),
        "eager": lambda: layers(x, rate),
    }
    shown("a call, ten small layers", best(cases, 300, rounds))
    fresh = tf.function(layers)
    values: Iterator[float] = (i / 1e6 for i in itertools.count(1))
    shown(
        "a new value of an argument",
        best(
            {
                "as a tensor": lambda: plain(x, tf.constant(next(values))),
                "as a Python float": lambda: fresh(x, next(values)),
            },
            8,
            rounds,
        ),
    )
    times = {}
    for name, autograph in (("graph_function, autograph=False", False), ("graph_function, autograph=True", True)):
        seconds = []
        for _ in range(rounds):
            function = GraphFunction(layers, spec, autograph=autograph)
            began = time.perf_counter()
            function.trace()
            seconds.append(time.perf_counter() - began)
        times[name] = min(seconds)
    shown("a trace", times, 1e3, "ms")


def runtime_data(rounds: int) -> None:
    x, held = tf.ones([256, 50]), tf.Variable(0.9)
    by_argument = tf.function(layers)
    by_variable = tf.function(lambda x: layers(x, held))
    by_python = tf.function(layers)
    values: Iterator[float] = (i / 1e6 for i in itertools.count(1))

    def assigned() -> None:
        held.assign(next(values))
        by_variable(x)

    names = [f"number_{i}" for i in range(12)]
    specs = {name: tf.TensorSpec([], tf.float32) for name in names}
    many = GraphFunction(lambda numbers: layers(x, tf.add_n(list(numbers.values()))), {"numbers": specs})
    cases = {
        "the same value each time, as a tensor": lambda: by_argument(x, held),
        "a new one as an argument": lambda: by_argument(x, tf.constant(next(values))),
        "a new one assigned to a variable": assigned,
        "twelve new ones, as arguments of a graph_function": lambda: many(
            numbers={name: np.float32(next(values)) for name in names}
        ),
    }
    found = best(cases, 200, rounds)
    found |= best({"a new one as a Python float: a graph each": lambda: by_python(x, next(values))}, 8, rounds)
    shown("ten small layers and a value that changes", found)


def sharing_state(rounds: int) -> None:
    x, held, counter = tf.ones([256, 50]), tf.Variable(0.9), tf.Variable(0, dtype=tf.int64)
    constant = tf.constant(0.9)
    words = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    asked = tf.constant([f"word {i}" for i in range(1024)])
    words.insert(asked, tf.range(1024, dtype=tf.int64))
    once = tf.data.Dataset.from_tensors(x).repeat()
    inside, outside = iter(once), iter(once)
    taken = tf.function(lambda: layers(inside.get_next(), 0.9))
    given = tf.function(lambda x: layers(x, 0.9))

    def counted(x: Any) -> Any:
        counter.assign_add(1)
        return layers(x, 0.9)

    def looked_up(x: Any) -> Any:
        return layers(x, 0.9), words.lookup(asked)

    reads = tf.function(lambda x: layers(x, held))
    captures = tf.function(lambda x: layers(x, constant))
    writes, looks = tf.function(counted), tf.function(looked_up)
    cases = {
        "ten small layers": lambda: given(x),
        "and a tensor that is captured": lambda: captures(x),
        "and a variable that is read": lambda: reads(x),
        "and a variable that is counted up": lambda: writes(x),
        "and 1,024 words looked up in a table": lambda: looks(x),
        "the batch from Python's next(iterator)": lambda: given(next(outside)),
        "the batch from an iterator that is held": lambda: taken(),
    }
    shown("what a function reads and writes", best(cases, 300, rounds))

    import keras

    from tfcore.graph.shared_state import SharedState

    state = SharedState()
    model = keras.Sequential([keras.Input([100]), *(keras.layers.Dense(100) for _ in range(20))])
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    state.hold("model", model), state.hold("optimizer", optimizer), state.hold("words", words)
    with tempfile.TemporaryDirectory() as folder:
        numbers = itertools.count()
        kept = Path(folder) / "kept"
        state.save(kept)
        found = best(
            {
                "SharedState.save": lambda: state.save(Path(folder) / str(next(numbers))),
                "SharedState.restore": lambda: state.restore(kept),
            },
            3,
            rounds,
        )
    shown(f"{sum(map(len, state.groups().values()))} variables and a table of 1,024 words", found, 1e3, "ms")


ROWS = 8192


def python(rounds: int) -> None:
    vector = tf.TensorSpec([None], tf.float32)
    one = tf.TensorSpec([], tf.float32)
    log = lambda x: np.log1p(x)  # noqa: E731
    by_batch, by_row = numpy_op(log, vector, stateful=False), numpy_op(lambda x: np.float32(np.log1p(x)), one)
    eager = python_op(tf.math.log1p, vector)
    rows = tf.data.Dataset.from_tensor_slices(np.arange(ROWS, dtype=np.float32))

    def drained(dataset: tf.data.Dataset) -> Callable[[], None]:
        def drain() -> None:
            for _ in dataset:
                pass

        return drain

    batches = tf.data.Dataset.from_tensors(tf.range(4096, dtype=tf.float32)).repeat(64)
    warnings.simplefilter("ignore")
    found = best(
        {
            "TensorFlow ops": drained(batches.map(tf.math.log1p)),
            "tf.numpy_function": drained(batches.map(lambda x: tf.numpy_function(log, [x], tf.float32))),
            "numpy_op": drained(batches.map(by_batch)),
            "python_op": drained(batches.map(eager)),
        },
        2,
        rounds,
    )
    shown("log1p of a batch of 4,096 in a pipeline", {name: seconds / 64 for name, seconds in found.items()})
    found = best(
        {
            "batch(1024).map(op)": drained(rows.batch(1024).map(by_batch)),
            "map(op).batch(1024)": drained(rows.map(by_row).batch(1024)),
        },
        1,
        rounds,
    )
    shown(f"{ROWS:,} rows", found, 1e3, "ms")

    cube = {
        "TensorFlow ops": lambda x: x**3,
        "numpy_op, gradient given": numpy_op(lambda x: x**3, vector, gradient=lambda u, x: 3 * u * x**2),
        "python_op, gradient traced": python_op(lambda x: x**3, vector, gradient="traced"),
    }
    x = tf.ones([4096])

    def stepped(op: Any) -> Callable[[], Any]:
        @tf.function
        def step(x: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.reduce_sum(op(x))
            return tape.gradient(y, x)

        return lambda: step(x)

    shown("a value and its gradient, 4,096 rows", best({name: stepped(op) for name, op in cube.items()}, 50, rounds))


READERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "augment: mixup 0.2": {"augment": {"mixup": 0.2}},
    "sampling: negatives 0.25": {"sampling": {"negatives": 0.25}},
}


def data_access(rounds: int) -> None:
    print("\n## data access")
    for rows, side in ((256, 32), (32, 224)):
        rates = _rate(_augmented(rows, side), 2.0)
        print(f"{f'{rows} x {side} x {side} x 3: flip and crop':<52} {rates[0]:13,.0f} images/s", flush=True)
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder:
        written = _written(Path(folder), 200_000 * rounds)
        best = dict.fromkeys(READERS, (0.0, 0.0))
        for _ in range(rounds):  # in turn: machines are shared
            for name, settings in READERS.items():
                best[name] = max(best[name], _rate(_batches(written, settings), 2.0))
    for name, rates in best.items():
        share = rates[1] / best["plain"][1]
        print(f"{f'training reader, batches of 256: {name}':<52} {rates[0]:13,.0f} rows/s   {share:8.2f}x", flush=True)


def _rate(call: Callable[[], int], seconds: float) -> tuple[float, float]:
    """(per second of the clock, per second of processor time) of what `call` says it did, once it has warmed up."""
    warm = time.perf_counter() + seconds / 2
    while time.perf_counter() < warm:
        call()
    done, clock, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - clock < seconds:
        done += call()
    return done / (time.perf_counter() - clock), done / (time.process_time() - cpu)


def _augmented(rows: int, side: int) -> Callable[[], int]:
    from tfcore.train.augment import Draws, flip_crop
    from tfcore.train.config import AugmentConfig

    config, zero = AugmentConfig(flip="horizontal", crop=4), tf.constant(0, tf.int64)
    pixels = tf.constant(np.random.default_rng(0).integers(0, 256, (rows, side, side, 3), np.uint8))
    index = tf.range(rows, dtype=tf.int64)
    varied = tf.function(lambda pixels, index: flip_crop(pixels, Draws(seed=1, epoch=zero, index=index), config))
    return lambda: int(tf.shape(varied(pixels, index))[0])


def _written(folder: Path, rows: int) -> Any:
    """Write flights as train shards."""
    import train as training

    from tests.example_shards import write_examples

    table = common.flights(rows).drop_columns("row_id")
    names = [column.name for column in training.COLUMNS if column.name != "label"]
    columns = {name: table[name].cast("binary") if name in common.STRINGS else table[name] for name in names}
    columns["label"] = common.label_of(table).astype(np.int64)
    return write_examples(folder, {"train": training.pa.table(columns)}, training.COLUMNS, shards=4)


def _batches(written: Any, settings: dict[str, Any]) -> Callable[[], int]:
    from tfcore.train.config import TrainingConfig
    from tfcore.train.request import TrainRequest
    from tfcore.train.rows import training_data

    settings = {"transform": written.fit(), "training": TrainingConfig(**settings)}
    data = training_data(TrainRequest(examples=(written.part("train"),), **settings))
    stacks = data.stack_reader(data.stack(128))(0)
    return lambda: int(tf.size(next(stacks)["weight"]))


SECTIONS = {
    "data-access": data_access,
    "runtime-data": runtime_data,
    "tf-function": tf_function,
    "sharing-state": sharing_state,
    "python": python,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SECTIONS, help="one section")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="the best of so many counts")
    arguments = parser.parse_args()
    common.header("graph_functions")
    for name, section in SECTIONS.items():
        if arguments.only in (None, name):
            section(arguments.rounds)


if __name__ == "__main__":
    main()
