"""What only a GPU can show; `make gpu`. Elsewhere these are skipped: the other tests hide GPUs from TensorFlow."""

import io
import threading
import time

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from PIL import Image

from headway.errors import Cancelled
from headway.schema.columns import Column
from tests.example_shards import write_examples
from tests.tfcore.train.trainings import COLUMNS, Lines, table, weights
from tfcore.evaluation.request import EvaluateRequest, TrainedModel
from tfcore.evaluation.stage import predict
from tfcore.models.config import ModelConfig
from tfcore.private_api import op_determinism
from tfcore.runtime.tensorflow_process import Child
from tfcore.train.config import TrainingConfig
from tfcore.train.request import TrainRequest
from tfcore.train.stage import train
from tfcore.transform.config import ColumnTransform
from tfcore.transform.images import ImageDecoder

GPUS = len(tf.config.list_physical_devices("GPU"))
MODEL = ModelConfig(name="mlp", hidden=(64, 32), embedding=8, dropout=0.1)
"""Widths that a GPU's products would be rounded for: multiples of eight."""
MODEL_LARGE = ModelConfig(name="mlp", hidden=(1024, 1024, 1024), embedding=8)


@pytest.fixture(autouse=True, scope="module")
def _there_is_one(request):
    if not GPUS:
        (pytest.fail if request.config.option.gpu else pytest.skip)("needs a GPU: make gpu")


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    splits = {"train": table(20_000, 1), "eval": table(2000, 2)}
    return write_examples(tmp_path_factory.mktemp("examples"), splits, COLUMNS, shards=4)


def request(examples, model=MODEL, *, module=None, checkpoints=None, **training):
    settings = {"batch_size": 256, "steps": 60, "learning_rate": 0.01, "strategy": "gpu"} | training
    return TrainRequest(
        examples=(examples.part("train"),),
        transform=examples.fit({"hour": ColumnTransform(transform="vocabulary")}, "binary"),
        model=model,
        module=module,
        training=TrainingConfig(**settings),
        seed=3,
        checkpoints=checkpoints,
    )


@pytest.mark.parametrize("jit", ["off", "on"])
def test_a_gpu_trains_the_model_that_a_cpu_trains(examples, tmp_path, jit):
    losses = []
    for strategy in ("cpu", "gpu"):
        result = train(request(examples, jit=jit, strategy=strategy), tmp_path / strategy, Lines())
        assert (result["strategy"], result["traces"]) == (strategy, 1)
        losses.append(result["final_loss"])
    assert abs(losses[0] - losses[1]) < 1e-4
    cpu, gpu = (np.concatenate([w.ravel() for w in weights(tmp_path / name).values()]) for name in ("cpu", "gpu"))
    # an activation that only one of them rounds to above zero moves the weights of its unit
    assert np.quantile(np.abs(cpu - gpu), 0.95) < 2e-5


@pytest.mark.parametrize("jit", ["off", "on"])
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_stopped_training_ends_at_the_bits_of_one_that_was_not(examples, tmp_path, jit, precision):
    settings = {"jit": jit, "precision": precision}
    train(request(examples, **settings), tmp_path / "whole", Lines())
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Cancelled):
        patch.setattr("tfcore.train.callbacks.PROGRESS_SECONDS", 0.0)
        train(request(examples, checkpoints=tmp_path / "checkpoints", **settings), tmp_path / "cut", Lines(stop=20))
    result = train(request(examples, checkpoints=tmp_path / "checkpoints", **settings), tmp_path / "cut", Lines())
    assert 20 <= result["resumed_from"] < 60
    whole, cut = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert all(value.tobytes() == cut[name].tobytes() for name, value in whole.items())


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_half_the_bits_learn_as_much(examples, tmp_path, precision):
    losses = []
    for bits in ("float32", precision):
        result = train(request(examples, precision=bits, steps=300), tmp_path / bits, Lines())
        losses.append(result["final_loss"])
        assert result["skipped"] == 0
    assert losses[0] < 0.45 and abs(losses[1] - losses[0]) < 0.01


def test_a_built_in_model_with_embeddings_is_compiled_and_each_step_is_short(examples, tmp_path):
    lines = Lines()
    result = train(request(examples, steps=2000), tmp_path, lines)
    assert (result["strategy"], result["jit"], result["traces"]) == ("gpu", "jit", 1)
    assert lines.lines == ["compiling the training step"]
    assert result["steps_per_second"] > 500  # added up one row after the other it would be fewer than 100


def test_auto_leaves_a_small_training_on_the_cpu_and_takes_the_gpu_for_a_large_one(examples, tmp_path):
    chosen = []
    for name, model, settings in (("small", MODEL, {}), ("large", MODEL_LARGE, {"steps": 400, "batch_size": 2048})):
        lines = Lines()
        chosen.append(train(request(examples, model, strategy="auto", **settings), tmp_path / name, lines)["strategy"])
        assert f"training.strategy: auto trains on {'the CPU' if name == 'small' else 'one GPU'}: " in lines.lines[0]
    assert chosen == ["cpu", "gpu"]


def test_tables_too_large_for_one_hot_ids_train_compiled_and_give_the_same_bits(examples, tmp_path, monkeypatch):
    results = [train(request(examples, jit="on"), tmp_path / "one_hot", Lines())["final_loss"]]
    monkeypatch.setattr("tfcore.models.layers.MOST_ONE_HOT", 1)
    for name in ("first", "again"):
        result = train(request(examples, jit="on"), tmp_path / name, Lines())
        results.append(result["final_loss"])
        assert result["jit"] == "jit"
    first, again = weights(tmp_path / "first"), weights(tmp_path / "again")
    assert all(value.tobytes() == again[name].tobytes() for name, value in first.items())
    assert abs(results[1] - results[0]) < 1e-4


def test_an_ensemble_is_compiled(examples, tmp_path):
    lines = Lines()
    result = train(request(examples, ModelConfig(hidden=(16,)), steps=1000), tmp_path, lines)
    assert result["jit"] == "jit", lines.lines


def test_tf32_rounds_in_the_training_alone(examples, tmp_path):
    losses = []
    for precision in ("float32", "tf32"):
        found = train(request(examples, MODEL_LARGE, precision=precision), tmp_path / precision, Lines())
        losses.append(found["final_loss"])
        assert not tf.config.experimental.tensor_float_32_execution_enabled()
    float32, tf32 = (np.concatenate([w.ravel() for w in weights(tmp_path / p).values()]) for p in ("float32", "tf32"))
    assert abs(losses[1] - losses[0]) < 0.01 and np.abs(float32 - tf32).max() > 1e-6


def test_tf32_is_faster_in_a_process_of_headway_s(examples, tmp_path):
    """With the flags of XLA that it is started with."""
    speeds, large = [], ModelConfig(name="mlp", hidden=(2048, 2048, 2048))
    with Child(environment={"CUDA_VISIBLE_DEVICES": "0"}) as child:
        for precision in ("float32", "tf32"):
            asked = request(examples, large, precision=precision, jit="on", batch_size=4096, steps=150)
            (tmp_path / precision).mkdir()
            result = child.call("tfcore.train.stage:train", asked, tmp_path / precision)
            speeds.append(result["steps_per_second"])
    assert speeds[1] > 1.5 * speeds[0]


def test_without_determinism_a_user_s_embedding_is_compiled(examples, tmp_path):
    module, lines = tmp_path / "mine.py", Lines()
    module.write_text(USERS)
    asked = request(
        examples, ModelConfig(name="mine:embedded"), module=module, steps=1000, deterministic=False, strategy="gpu"
    )
    result = train(asked, tmp_path / "out", lines)
    assert result["jit"] == "jit", lines.lines
    assert result["steps_per_second"] > 500 and op_determinism()


USERS = """
import keras

def inputs_of(layout):
    inputs = {name: keras.Input(shape, dtype=dtype, name=name) for name, (shape, dtype) in layout.inputs().items()}
    return inputs, inputs["numeric"], inputs["categorical"]

def embedded(layout, options):
    inputs, numbers, ids = inputs_of(layout)
    vectors = keras.layers.Flatten()(keras.layers.Embedding(40, 4)(ids))
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()([numbers, vectors])))

def normalized(layout, options):
    inputs, numbers, _ = inputs_of(layout)
    x = keras.layers.BatchNormalization()(keras.layers.Dense(16)(numbers))
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dropout(0.2)(x)))
"""


@pytest.mark.parametrize(
    ("model", "mode", "said"),
    [("embedded", "graph", "the gradients of the model need UnsortedSegmentSum"), ("normalized", "jit", "compiling")],
)
def test_a_users_model_is_compiled_unless_its_gradients_scatter(examples, tmp_path, model, mode, said):
    module, lines = tmp_path / "mine.py", Lines()
    module.write_text(USERS)
    asked = request(examples, ModelConfig(name=f"mine:{model}"), module=module, steps=1000)
    result = train(asked, tmp_path / "out", lines)
    assert result["jit"] == mode, lines.lines
    assert [line for line in lines.lines if said in line]


def test_evaluation_beside_a_gpu_gives_what_a_cpu_gives(examples, tmp_path):
    asked = request(examples)
    train(asked, tmp_path / "trained", Lines())
    trained = TrainedModel(path=tmp_path / "trained", config=MODEL, seed=3)
    question = EvaluateRequest(model=trained, transform=asked.transform, examples=(examples.part("eval"),))
    found = []
    for device in ("/GPU:0", "/CPU:0"):
        with tf.device(device):
            predict(question, tmp_path / device[1:4], Lines())
        found.append(np.load(tmp_path / device[1:4] / "expected.npy"))
    np.testing.assert_allclose(found[0], found[1], atol=1e-6, rtol=0)


def test_threads_that_decode_images_do_not_get_each_others_errors():
    good = []
    for seed in range(4):
        pixels = np.random.default_rng(seed).integers(0, 255, (16, 20, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(out := io.BytesIO(), "PNG")
        good.append(out.getvalue())
    cut_off = b"\xff\xd8\xff\xe0 cut off"
    decode = tf.function(lambda file: ImageDecoder(1 << 30)(file[None], None, (8, 6, 3)))
    expected = [decode(tf.constant(file))[0] for file in good]
    until, wrong = time.monotonic() + 3, []

    def read():
        while time.monotonic() < until:
            for file, pixels in zip(good, expected, strict=True):
                try:
                    found, usable = decode(tf.constant(file))
                    assert usable.numpy().all() and (found.numpy() == pixels.numpy()).all()
                except Exception as error:
                    wrong.append(error)

    def refuse():
        while time.monotonic() < until:
            if decode(tf.constant(cut_off))[1].numpy().any():
                wrong.append("a broken image was taken")

    threads = [threading.Thread(target=one) for one in (read, read, read, refuse, refuse)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
def test_a_batch_split_over_gpus_trains_as_on_one(examples, tmp_path):
    train(request(examples), tmp_path / "one", Lines())
    result = train(request(examples, strategy="mirrored"), tmp_path / "two", Lines())
    assert result["replicas"] == GPUS
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, atol=2e-5, rtol=0, err_msg=name)


def test_steps_of_large_groups_run_uncompiled_and_say_so(tmp_path):
    rng = np.random.default_rng(0)
    rows, x = 4000, rng.standard_normal(4000).astype(np.float32)
    queries = pa.array([f"{number:04d}".encode() for number in np.sort(rng.integers(0, 400, rows))])
    columns = (
        Column(name="x", type="float32", nullable=False),
        Column(name="query", type="bytes", nullable=False, encoding="dictionary", role="group"),
        Column(name="label", type="int64", nullable=False, role="label"),
    )
    made = pa.table({"x": x, "query": queries, "label": (x > 0).astype(np.int64)})
    ranked = write_examples(tmp_path / "examples", {"train": made}, columns, shards=2)
    lines = Lines()
    asked = TrainRequest(
        examples=(ranked.part("train"),),
        transform=ranked.fit(task="binary"),
        model=ModelConfig(name="mlp", hidden=(8,)),
        training=TrainingConfig(batch_size=512, steps=800, strategy="gpu", ranking={}),
    )
    assert train(asked, tmp_path / "out", lines)["jit"] == "graph"
    assert any("training.ranking has a loss that XLA makes slow" in line for line in lines.lines)
