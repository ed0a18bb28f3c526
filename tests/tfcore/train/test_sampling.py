"""Rows left out or repeated by class: how many, the same ones after a resume, and probabilities that stay calibrated."""

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from headway.errors import ConfigError
from headway.monitor import Monitor
from headway.schema.columns import Column
from tests.example_shards import write_examples
from tests.patched import patched
from tfcore.evaluation.request import EvaluateRequest, TrainedModel
from tfcore.evaluation.stage import predict
from tfcore.models.config import ModelConfig
from tfcore.train.config import SamplingConfig, TrainingConfig, logit_offsets
from tfcore.train.request import TrainRequest
from tfcore.train.rows import class_rates, training_data
from tfcore.train.stage import train

pytestmark = pytest.mark.long
ROWS = 20_000
COLUMNS = (
    Column(name="x", type="float32", nullable=False),
    Column(name="number", type="int64", nullable=False, role="passthrough"),
    Column(name="label", type="int64", nullable=False, role="label"),
)


def table(seed, rows=ROWS):
    """One in twenty rows is positive, more often where x is large."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows).astype(np.float32)
    probability = 1 / (1 + np.exp(-(1.5 * x - 3.85)))
    label = rng.uniform(size=rows) < probability
    return pa.table({"x": x, "number": np.arange(rows), "label": label.astype(np.int64)})


_small_windows = patched({"tfcore.train.rows.window_rows": lambda row_bytes: 3000})


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    return write_examples(folder, {"train": table(0), "eval": table(1)}, COLUMNS, rows_per_record=512, shards=3)


def labels(written, sampling, *, batch=100, stack=5, start=0, stacks=4, data=None, **training):
    """(data, a sample's rows); of `data` where it is there, since it looks through the labels as it is made."""
    config = TrainingConfig(batch_size=batch, sampling=sampling, **training)
    asked = TrainRequest(examples=(written.part("train"),), transform=written.fit(), training=config, seed=4)
    data = data or training_data(asked)
    begun = data.stack_reader(stack)(start)
    taken = [next(begun) for _ in range(stacks)]
    rows = [
        np.concatenate([s[n].numpy().reshape(stack * batch, -1) for s in taken]) for n in ("numeric", "label", "weight")
    ]
    return data, np.concatenate(rows, 1)


@pytest.mark.parametrize(("early", "starts"), [(None, (17, 70)), ({"holdout": 0.2}, (44,))])
def test_a_resumed_training_sees_the_same_sample(written, early, starts):
    sampling = {"rates": {"0": 0.1, "1": 2.5}}
    data, whole = labels(written, sampling, stacks=16, early_stopping=early)  # over two epochs
    positive = table(0)["label"].to_numpy().sum()
    kept = 0.8 if early else 1.0
    assert abs(data.rows.count - kept * (0.1 * (ROWS - positive) + 2.5 * positive)) < 100
    for start in starts:
        _, found = labels(written, sampling, start=start, stacks=2, data=data)
        np.testing.assert_array_equal(found, whole[start * 100 : start * 100 + 1000])
    if early is None:
        _, other = labels(written, sampling, batch=37, stack=7, stacks=3)
        np.testing.assert_array_equal(other, whole[: len(other)])


def test_another_epoch_keeps_other_negatives_and_every_positive(written):
    data, whole = labels(written, {"negatives": 0.1}, stacks=13)
    epochs = whole[: 2 * data.rows.count]
    first, second = epochs[: data.rows.count - 100], epochs[data.rows.count + 100 :]
    negatives = [set(rows[rows[:, 1] == 0][:, 0].tolist()) for rows in (first, second)]
    positives = [set(rows[rows[:, 1] == 1][:, 0].tolist()) for rows in (first, second)]
    assert len(negatives[0] & negatives[1]) < 0.2 * len(negatives[0])
    assert len(positives[0] & positives[1]) > 0.8 * len(positives[0])
    assert set(whole[:, 2]) == {1.0}


def test_balanced_either_way_the_classes_come_equally_often(written):
    for balance in ("over", "under"):
        data, rows = labels(written, {"balance": balance}, stacks=4)
        assert abs(rows[:, 1].mean() - 0.5) < 0.05
        assert (data.rows.count > 1.8 * ROWS) if balance == "over" else (data.rows.count < 0.2 * ROWS)


@pytest.mark.parametrize("correct", ["logits", "weights", "none"])
def test_probabilities_stay_calibrated(written, tmp_path, correct):
    transform = written.fit()
    training = {"batch_size": 128, "epochs": 5, "learning_rate": 0.03, "jit": "off", "summaries": False}
    sampling = {"negatives": 0.1, "correct": correct}
    request = TrainRequest(
        examples=(written.part("train"),),
        transform=transform,
        model=ModelConfig(name="mlp", hidden=(8,)),
        training=TrainingConfig(**training, sampling=sampling),
    )
    train(request, tmp_path / "train", Monitor())
    model = TrainedModel(path=tmp_path / "train", config=request.model)
    asked = EvaluateRequest(model=model, transform=transform, examples=(written.part("eval"),))
    found = predict(asked, tmp_path / "evaluate", Monitor())
    import pyarrow.parquet as pq

    scored = pq.read_table(tmp_path / "evaluate" / "predictions.parquet")
    said, true = scored["prediction"].to_numpy().mean(), scored["label"].to_numpy().mean()
    assert found["metrics"]["auc"] > 0.75
    if correct == "none":
        assert said > 3 * true
    else:
        assert abs(said / true - 1) < 0.15


def test_rates_are_checked():
    counts = {"a": 900, "b": 90, "c": 10}
    assert class_rates(SamplingConfig(balance="over"), list(counts), counts, "multiclass") == [1, 10, 90]
    assert class_rates(SamplingConfig(balance="under"), list(counts), counts, "multiclass") == [10 / 900, 10 / 90, 1]
    assert logit_offsets([0.1, 1.0], "binary") == pytest.approx([2.302585])
    assert logit_offsets([0.5, 1.0, 2.0], "multiclass") == pytest.approx([-0.693147, 0, 0.693147])
    with pytest.raises(ValidationError, match="give one of"):
        SamplingConfig()
    with pytest.raises(ConfigError, match="'z' is not a class"):
        class_rates(SamplingConfig(rates={"z": 0.5}), list(counts), counts, "multiclass")
    with pytest.raises(ConfigError, match="no negatives"):
        class_rates(SamplingConfig(negatives=0.5), list(counts), counts, "multiclass")
    with pytest.raises(ConfigError, match="no classes"):
        class_rates(SamplingConfig(negatives=0.5), [], None, "regression")
