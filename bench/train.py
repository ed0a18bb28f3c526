"""Training: Headway's loop against Keras' fit and against its own limit, behind a reader, and in what is learned.

    python bench/train.py                     # every case below, at batch 256 and 4096
    python bench/train.py --only limit full   # some of them
    python bench/train.py --auc               # AUC on flights against a plain fit, three seeds each

All train embeddings of 8 and layers of 100-70-50-25 with Adam. `loop`, `fit` (Keras' default), `fast` (its fastest: 32
steps a call, XLA) and `full` are fed from memory. `full` is the loop as a training runs it: a schedule, a
RetraceGuard, the recorder's metrics and TensorBoard summaries. `limit` is the matrix products of a step alone,
forward and backward, over the same stacks in one tf.function. `road` reads row groups, transforms, shuffles and trains;
`naive` is TFRecordDataset.map(parse_single_example).shuffle.batch and model.fit on classic Examples of the same rows.
With --auc both sides have the same features, model and number of steps; required are means within 0.002.

Every case runs in a process of its own, all in turn, and the best second of each counts; of a road, which reads ahead, the best
two.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import common
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headway.process import mark_own_process
from headway.records.encode import encode_classic
from headway.records.tfrecord import ShardWriter
from headway.schema.columns import Column
from headway.tabular.hashing import mix64
from tests.example_shards import Written, write_examples
from tfcore.transform.parameters import TransformParameters

WIDTH, HIDDEN, RATE = 8, (100, 70, 50, 25), 0.001
WINDOW = 1.0
"""Seconds over which a speed is taken: many calls, some summaries."""
CLASSIC_ROWS = 65_536
"""Rows of the naive reader's file: it reads them over and over, and none of its speed depends on how many there are."""
RATIOS = (
    ("loop", "fit", {256: 4.0, 4096: 2.0}),
    ("loop", "fast", {256: 1.5, 4096: 1.1}),
    ("loop", "limit", {4096: 0.8}),
    ("road", "loop", {256: 0.75, 4096: 0.9}),
    ("road", "naive", {256: 30.0, 4096: 30.0}),
    ("full", "loop", {256: 0.95, 4096: 0.95}),
)
"""(case, what it is measured against, the ratio required at each batch size)."""
TITLES = {
    "fit": "model.fit",
    "fast": "model.fit(steps_per_execution=32, jit_compile=True)",
    "limit": "the step's matrix products alone",
    "loop": "Headway's loop, fed from memory",
    "full": "the same with a schedule, guard, metrics and summaries",
    "naive": "TFRecordDataset.map(parse_single_example).shuffle.batch + model.fit",
    "road": "Headway's reader and loop",
}
COLUMNS = (
    Column(name="month", type="int64", nullable=False),
    Column(name="day", type="int64", nullable=False),
    Column(name="sched_dep_time", type="int64", nullable=False),
    Column(name="dep_delay", type="float32", nullable=True),
    Column(name="distance", type="float32", nullable=False),
    Column(name="carrier", type="bytes", nullable=False, encoding="dictionary"),
    Column(name="origin", type="bytes", nullable=False, encoding="dictionary"),
    Column(name="dest", type="bytes", nullable=False, encoding="dictionary"),
    Column(name="label", type="int64", nullable=False, role="label"),
)


def main() -> None:
    mark_own_process()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--auc", action="store_true", help="compare the AUC instead of the speed")
    parser.add_argument("--only", nargs="+", choices=list(TITLES), help="these, and what they are measured against")
    parser.add_argument("--batch", type=int, nargs="+", default=[256, 4096])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of measuring in each round")
    parser.add_argument("--steps", type=int, default=3000, help="of each training with --auc")
    parser.add_argument("--data", help="folder for shards; default: a temporary one")
    parser.add_argument("--case", choices=[*TITLES, "auc"], help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(run_case(arguments)))
        return
    common.header("train")
    arguments.data = arguments.data or tempfile.mkdtemp(prefix="headway-bench-")
    prepare_data(Path(arguments.data))
    if arguments.auc:
        compare_auc(arguments)
    else:
        compare_speed(arguments)


def compare_speed(arguments: argparse.Namespace) -> None:
    ratios = [one for one in RATIOS if not arguments.only or {*one[:2]} & {*arguments.only}]
    cases = [name for name in TITLES if any(name in one[:2] for one in ratios)]
    for batch in arguments.batch:
        best = dict.fromkeys(cases, 0.0)
        for _ in range(arguments.rounds):
            for name in cases:
                best[name] = max(best[name], _child(arguments, case=name, batch=batch)["steps_per_second"])
        for name, speed in best.items():
            print(
                f"batch {batch:5d}  {TITLES[name]:68s} {speed:9,.1f} steps/s {speed * batch:12,.0f} rows/s", flush=True
            )
        for case, rival, required in ratios:
            least = f"  (required: {required[batch]:g})" if batch in required else ""
            print(f"batch {batch:5d}  {case} / {rival}: {best[case] / best[rival]:.2f}{least}", flush=True)


def compare_auc(arguments: argparse.Namespace) -> None:
    found = [_child(arguments, case="auc", batch=256, seed=seed) for seed in range(3)]
    for name in ("headway", "fit"):
        values = [one[name] for one in found]
        print(f"{name:8s} AUC {' '.join(f'{value:.5f}' for value in values)}  mean {np.mean(values):.5f}")
    difference = float(np.mean([one["headway"] - one["fit"] for one in found]))
    print(f"difference of the means {difference:+.5f} (required: at least -0.002) over {found[0]['rows']:,} eval rows")


def _child(arguments: argparse.Namespace, *, case: str, batch: int, seed: int = 0) -> dict[str, Any]:
    given = {"case": case, "batch": batch, "seed": seed, "data": arguments.data}
    given |= {"seconds": arguments.seconds, "steps": arguments.steps}
    options = [text for name, value in given.items() for text in (f"--{name}", str(value))]
    return json.loads(common.child(__file__, *options).splitlines()[-1])


# --- data: flights with an arrival delay, a fifth of them, picked by a hash, kept for evaluation


def split_table() -> dict[str, pa.Table]:
    raw = common.flights(336_776)
    raw = raw.filter(pc.is_valid(raw["arr_delay"]))
    columns = {column.name: raw[column.name] for column in COLUMNS if column.name != "label"}
    columns["label"] = pa.array(common.label_of(raw).astype(np.int64))
    for name in ("carrier", "origin", "dest"):
        columns[name] = columns[name].cast(pa.binary())
    kept = mix64(np.arange(raw.num_rows, dtype=np.uint64)) % np.uint64(5) == 0
    table = pa.table(columns)
    return {"train": table.filter(pa.array(~kept)), "eval": table.filter(pa.array(kept))}


def prepare_data(folder: Path) -> None:
    """Row groups of all rows for Headway, classic Examples of some for the naive reader; files that exist are kept."""
    if (folder / "facts.json").exists():
        return
    splits = split_table()
    groups = write_examples(folder / "groups", splits, COLUMNS, shards=8)
    write_classic(folder / "classic", splits["train"].slice(0, CLASSIC_ROWS))
    facts = {"groups": groups.result, "transform": groups.fit().model_dump(mode="json")}
    (folder / "facts.json").write_text(json.dumps(facts))


def write_classic(folder: Path, rows: pa.Table, shards: int = 8) -> None:
    """Write rows as classic Examples, one per record."""
    folder.mkdir()
    for number, start in enumerate(range(0, rows.num_rows, -(-rows.num_rows // shards))):
        with ShardWriter(folder / f"{number:05d}.tfrecord") as file:
            for batch in rows.slice(start, -(-rows.num_rows // shards)).to_batches():
                file.write_many(encode_classic(batch, COLUMNS))


class Data:
    """The prepared data, as a child process finds it."""

    def __init__(self, folder: Path):
        facts = json.loads((folder / "facts.json").read_text())
        self.groups = Written(folder / "groups", facts["groups"], COLUMNS, {})
        self.classic = folder / "classic"
        self.parameters = TransformParameters.model_validate(facts["transform"])

    def classic_files(self) -> list[str]:
        return sorted(map(str, self.classic.glob("*.tfrecord")))


# --- cases


def run_case(arguments: argparse.Namespace) -> dict[str, Any]:
    data, batch = Data(Path(arguments.data)), arguments.batch[0]
    if arguments.case == "auc":
        return auc_case(data, arguments.seed, arguments.steps)
    cases = {"fit": fit_case, "fast": fast_case, "limit": limit_case, "loop": loop_case, "full": full_case}
    case = (cases | {"naive": naive_case, "road": road_case})[arguments.case]
    return {"steps_per_second": case(data, batch, arguments.seconds)}


class Windows:
    """The most steps per second in any stretch of so many seconds: what else the machine does comes and goes."""

    def __init__(self, seconds: float = WINDOW) -> None:
        self.best, self._seconds = 0.0, seconds
        self._steps, self._began = 0, time.perf_counter()

    def add(self, steps: int) -> None:
        self._steps += steps
        passed = time.perf_counter() - self._began
        if passed >= self._seconds:
            self.best = max(self.best, self._steps / passed)
            self._steps, self._began = 0, time.perf_counter()


def measure_calls(call: Callable[[], int], seconds: float, window: float = WINDOW) -> float:
    """Steps per second of `call`, which returns how many it made; the first two calls (traces, caches) do not count."""
    call()
    call()
    windows, began = Windows(window), time.perf_counter()
    while time.perf_counter() - began < seconds or not windows.best:
        windows.add(call())
    return windows.best


def measure_fit(model: Any, dataset: Any, seconds: float, warm: int) -> float:
    """Steps per second of one long `model.fit`, after `warm` steps, so that no buffer is filled while the clock runs."""
    import keras

    class Clock(keras.callbacks.Callback):
        began = rate = 0.0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == warm:
                self.began = time.perf_counter()
            elif batch > warm and (passed := time.perf_counter() - self.began) >= seconds:
                self.rate = (batch - warm) / passed
                self.model.stop_training = True

    clock = Clock()
    model.fit(dataset, steps_per_epoch=1 << 30, epochs=1, verbose=0, callbacks=[clock])
    return clock.rate


def keras_model(parameters: TransformParameters, **options: Any) -> Any:
    """The plain Keras model: an Embedding for each column, as one would write it."""
    import keras

    numeric = keras.Input((len(parameters.numeric),), name="numeric")
    categorical = keras.Input((len(parameters.categorical),), dtype="int32", name="categorical")
    parts = [
        keras.layers.Embedding(entry.size, WIDTH)(categorical[:, i]) for i, entry in enumerate(parameters.categorical)
    ]
    x = keras.layers.Concatenate()([*parts, numeric])
    for units in HIDDEN:
        x = keras.layers.Dense(units, activation="relu")(x)
    model = keras.Model({"numeric": numeric, "categorical": categorical}, keras.layers.Dense(1)(x))
    model.compile(keras.optimizers.Adam(RATE), keras.losses.BinaryCrossentropy(from_logits=True), **options)
    return model


def rows_of(data: Data, batch: int, seed: int = 0) -> Any:
    from tfcore.train.config import TrainingConfig
    from tfcore.train.request import TrainRequest
    from tfcore.train.rows import training_data

    training, parts = TrainingConfig(batch_size=batch), (data.groups.part("train"),)
    return training_data(TrainRequest(examples=parts, transform=data.parameters, training=training, seed=seed))


def stack_of(batch: int) -> int:
    """Batches in a stack, as the training stage chooses by default."""
    from tfcore.train.rows import STACK_ROWS
    from tfcore.train.trainer import STEPS_PER_CALL

    return max(1, min(STEPS_PER_CALL, STACK_ROWS // batch))


def stacks_in_memory(data: Data, batch: int) -> list[dict[str, Any]]:
    rows, stack = rows_of(data, batch), stack_of(batch)
    stacks = rows.stack_reader(stack)(0)
    return [next(stacks) for _ in range(max(2, (1 << 18) // (stack * batch)))]


def fast_case(data: Data, batch: int, seconds: float) -> float:
    return fit_case(data, batch, seconds, steps_per_execution=32, jit_compile=True)


def limit_case(data: Data, batch: int, seconds: float) -> float:
    """What no step of this model can be faster than: its matrix products, compiled or plain, whichever is faster."""
    import tensorflow as tf

    from tfcore.runtime.devices import prepare

    prepare()
    stack = stack_of(batch)
    width = len(data.parameters.numeric) + WIDTH * len(data.parameters.categorical)
    sizes = (width, *HIDDEN, 1)
    layers = [tf.random.normal(shape, stddev=0.1) for shape in itertools.pairwise(sizes)]

    def steps(rows: tf.Tensor) -> list[tf.Tensor]:
        def body(i: tf.Tensor, sums: list[tf.Tensor]) -> Any:
            values = [rows[i]]
            for layer in layers:
                values.append(values[-1] @ layer)
            gradient, added = values[-1], list(sums)
            for place in reversed(range(len(layers))):
                added[place] += tf.matmul(values[place], gradient, transpose_a=True)
                gradient = tf.matmul(gradient, layers[place], transpose_b=True)
            added[-1] += tf.reduce_sum(gradient)  # of the embeddings: nothing may be left out as unused
            return i + 1, added

        sums = [tf.zeros_like(layer) for layer in layers]
        return tf.while_loop(lambda i, *_: i < stack, body, (0, sums), parallel_iterations=1)[1]

    rows = tf.random.normal([stack, batch, width])

    def speed(jit: bool) -> float:
        compiled = tf.function(steps, jit_compile=jit)

        def call() -> int:
            compiled(rows)[0].numpy()
            return stack

        return measure_calls(call, seconds / 2)

    return max(speed(True), speed(False))


def full_case(data: Data, batch: int, seconds: float) -> float:
    """The loop as the training stage runs it, but for the reader: what happens between calls included."""
    from headway.monitor import Monitor
    from tfcore.graph.retrace import RetraceGuard
    from tfcore.runtime.devices import prepare
    from tfcore.train.callbacks import Recorder, Summaries
    from tfcore.train.loop import PeriodicAction, run
    from tfcore.train.schedule import Schedule, StepValues

    prepare()
    total, stack = 1 << 24, stack_of(batch)
    # every step has a rate of its own
    values = StepValues({"learning_rate": Schedule(name="cosine", settings={"initial": RATE})}, total)
    learner = _learner(data, rows_of(data, batch).specs(stack), full=True)
    memory, guard = stacks_in_memory(data, batch), RetraceGuard(learner)
    recorder = Recorder(total=total, batch=batch, monitor=Monitor())
    began, last, first = 0.0, 0, 17 * stack  # the first summary costs what none after it does
    windows = Windows()

    with tempfile.TemporaryDirectory() as folder:
        summaries = Summaries(Path(folder) / "summaries")

        def report(step: int, outcome: Any) -> None:
            nonlocal began, last, windows
            recorder(step, outcome)
            guard.check()
            if began:
                windows.add(step - last)
            elif step >= first:
                began, windows = time.perf_counter(), Windows()
            last = step

        def point(step: int) -> None:
            figures = {"loss": recorder.loss(), **values.at(step)}
            recorder.point(step, **figures)
            summaries.recorded(SimpleNamespace(step=step), figures)

        def over() -> bool:
            return windows.best > 0 and time.perf_counter() - began >= seconds

        every = [PeriodicAction(16 * stack, point)]
        batches = lambda step: itertools.cycle(memory)  # noqa: E731
        run(learner, batches, start=0, total=total, values=values, every=every, report=report, cancelled=over)
        summaries.close()
    return windows.best


def fit_case(data: Data, batch: int, seconds: float, **options: Any) -> float:
    import tensorflow as tf

    stacks = stacks_in_memory(data, batch)
    flat = {
        name: np.concatenate([stack[name].numpy().reshape(-1, *stack[name].shape[2:]) for stack in stacks])
        for name in ("numeric", "categorical", "label")
    }
    inputs = {name: flat[name] for name in ("numeric", "categorical")}
    dataset = tf.data.Dataset.from_tensor_slices((inputs, flat["label"][:, None])).batch(batch, drop_remainder=True)
    dataset = dataset.cache().repeat().prefetch(4)
    model, steps = keras_model(data.parameters, **options), max(64, 131_072 // batch)

    def call() -> int:  # whole epochs without a callback: that is fit at its fastest
        model.fit(dataset, steps_per_epoch=steps, epochs=1, verbose=0)
        return steps

    return measure_calls(call, seconds)


def _learner(data: Data, specs: Any, *, full: bool = False) -> Any:
    import tensorflow as tf

    from tfcore.models import build
    from tfcore.models.config import ModelConfig
    from tfcore.train.loop import Learner
    from tfcore.train.step import StepConfig

    step = tf.Variable(0, dtype=tf.int64, trainable=False)
    model = build.build(ModelConfig(name="mlp", hidden=HIDDEN, embedding=WIDTH), data.parameters, seed=0, step=step)
    return Learner(
        model=model,
        head="binary",
        step=step,
        specs=specs,
        config=StepConfig(clip_norm=1e3 if full else None),
        jit="auto",
        log=print,
    )


def _steps(learner: Any, stacks: Any) -> Callable[[], int]:
    values = {"learning_rate": np.full(learner.stack, RATE, np.float32)}

    def call() -> int:
        learner.run(next(stacks), first=0, steps=learner.stack, values=values)
        return learner.stack

    return call


def loop_case(data: Data, batch: int, seconds: float) -> float:
    from tfcore.runtime.devices import prepare

    prepare()  # as the training stage runs it
    stacks = itertools.cycle(stacks_in_memory(data, batch))
    return measure_calls(_steps(_learner(data, rows_of(data, batch).specs(stack_of(batch))), stacks), seconds)


def road_case(data: Data, batch: int, seconds: float) -> float:
    from tfcore.runtime.devices import prepare

    prepare()
    rows, stack = rows_of(data, batch), stack_of(batch)
    call = _steps(_learner(data, rows.specs(stack)), rows.stack_reader(stack)(0))
    # twice as long as another's: what was read before it began is a fifth of it at most
    return measure_calls(call, seconds, window=2 * WINDOW)


def naive_case(data: Data, batch: int, seconds: float) -> float:
    """The reader that tutorials show, and the same transform behind it."""
    import tensorflow as tf

    from tfcore.transform.layer import Transform
    from tfcore.transform.raw_column import RawColumn

    kinds = {"int64": (tf.int64, 0), "float32": (tf.float32, 0.0), "bytes": (tf.string, "")}
    spec = {column.name: tf.io.FixedLenFeature([], *kinds[column.type]) for column in COLUMNS}
    transform = Transform(data.parameters)

    def features(rows: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        columns = {
            column.name: RawColumn(
                rows[column.name], tf.ones_like(rows[column.name], tf.bool) if column.nullable else None
            )
            for column in COLUMNS
        }
        return transform(columns), tf.cast(rows["label"], tf.float32)[:, None]

    dataset = tf.data.TFRecordDataset(data.classic_files()).repeat()
    dataset = dataset.map(lambda record: tf.io.parse_single_example(record, spec)).shuffle(10_000)
    dataset = dataset.batch(batch, drop_remainder=True).map(features)
    return measure_fit(keras_model(data.parameters), dataset, seconds, warm=2)


def auc_case(data: Data, seed: int, steps: int) -> dict[str, Any]:
    """AUC on the eval rows: Headway's stages, and a plain fit on the same features for as many steps of as many rows."""
    import keras
    import tensorflow as tf

    from headway.metrics.classification import auc
    from headway.monitor import Monitor
    from tfcore.data.dataset import evaluation_dataset
    from tfcore.data.reader import labeler, shards_of
    from tfcore.evaluation.request import EvaluateRequest, TrainedModel
    from tfcore.evaluation.stage import predict
    from tfcore.models.config import ModelConfig
    from tfcore.train.config import TrainingConfig
    from tfcore.train.request import TrainRequest
    from tfcore.train.stage import train
    from tfcore.transform.layer import Transform

    config, batch = ModelConfig(name="mlp", hidden=HIDDEN, embedding=WIDTH), 256
    training = TrainingConfig(steps=steps, batch_size=batch, learning_rate=RATE, summaries=False)
    parts = {split: data.groups.part(split) for split in ("train", "eval")}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        request = TrainRequest(
            examples=(parts["train"],), transform=data.parameters, model=config, training=training, seed=seed
        )
        train(request, out / "train", Monitor())
        model = TrainedModel(path=out / "train", config=config, seed=seed)
        asked = EvaluateRequest(model=model, transform=data.parameters, examples=(parts["eval"],))
        found = predict(asked, out / "evaluate", Monitor())

    def arrays(split: str) -> dict[str, np.ndarray]:
        shards = shards_of([parts[split]])
        rows = evaluation_dataset(shards, Transform(data.parameters), labeler(shards, data.parameters), batch=65_536)
        batches = [{name: value.numpy() for name, value in one.items()} for one in rows]
        return {name: np.concatenate([one[name][one["valid"]] for one in batches]) for name in batches[0]}

    rows, held = arrays("train"), arrays("eval")
    keras.utils.set_random_seed(seed)
    plain = keras_model(data.parameters)
    inputs = {name: rows[name] for name in ("numeric", "categorical")}
    dataset = tf.data.Dataset.from_tensor_slices((inputs, rows["label"][:, None]))
    dataset = dataset.shuffle(len(rows["label"]), seed=seed).repeat().batch(batch)
    plain.fit(dataset, steps_per_epoch=steps, epochs=1, verbose=0)
    logits = plain.predict({name: held[name] for name in inputs}, batch_size=4096, verbose=0)[:, 0]
    return {"headway": found["metrics"]["auc"], "fit": auc(held["label"], logits), "rows": found["rows"]}


if __name__ == "__main__":
    main()
