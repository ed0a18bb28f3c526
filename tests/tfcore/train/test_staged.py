"""A training whose shards are fetched while it reads them: the same weights, and an error that names the object."""

import functools
import json
import shutil

import numpy as np
import pyarrow as pa
import pytest

from headway.errors import StoreError
from headway.monitor import Monitor
from headway.schema.columns import Column
from headway.stages.refs import Examples
from headway.storage.prefetch import RemoteFiles
from headway.storage.store import Store, open_store
from tests.example_shards import write_examples
from tests.tfcore.train.trainings import Lines, weight_bits
from tfcore.evaluation.request import EvaluateRequest, TrainedModel
from tfcore.evaluation.stage import predict
from tfcore.train.config import TrainingConfig
from tfcore.train.request import TrainRequest
from tfcore.train.stage import train

FP = "0123456789abcdef" * 2
COLUMNS = (
    Column(name="x", type="float32", nullable=True),
    Column(name="tags", type="int64", nullable=False, shape=(None,)),
    Column(name="label", type="int64", nullable=False, role="label"),
)


def ingest(store: Store, per_record=64):
    """A span of nine shards of train and of eval, written and committed."""
    rng = np.random.default_rng(3)

    def table(rows):
        x = rng.standard_normal(rows).astype(np.float32)
        lists = [list(range(n)) for n in rng.integers(0, 4, rows)]
        columns = {"x": pa.array(x, mask=rng.random(rows) < 0.1), "tags": pa.array(lists, pa.list_(pa.int64()))}
        return pa.table(columns | {"label": pa.array((x > 0).astype(np.int64))})

    with store.open("ingest", FP, {"stage": "ingest"}) as staging:
        made = write_examples(
            staging.path / "span",
            {"train": table(1800), "eval": table(400)},
            COLUMNS,
            rows_per_record=per_record,
            shards=9,
        )
        for path in (staging.path / "span").iterdir():
            path.rename(staging.path / path.name)
        (staging.path / "span").rmdir()
        staging.commit(result={})
    return made


def ask(store: Store, made, **training) -> TrainRequest:
    settings = {"epochs": 2, "batch_size": 64, "jit": "off"} | training
    return TrainRequest(
        examples=[{"path": store.output("ingest", FP), "split": "train", "result": made.result}],
        transform=made.fit(),
        training=TrainingConfig.model_validate(settings),
        seed=5,
    )


def score(store: Store, made, model, **options):
    """Predictions of eval, in a folder of the model's."""
    request = EvaluateRequest(
        model=TrainedModel(path=model, seed=5),
        transform=made.fit(),
        examples=[{"path": store.output("ingest", FP), "split": "eval", "result": made.result}],
    )
    return predict(request, model / "scored", Monitor(), **options)


SAMPLED = {"sampling": {"negatives": 0.7}}  # whose rows are read in each epoch
EARLY = {"early_stopping": {"holdout": 0.2, "every_steps": 20, "patience": 10}}
OPTIONS = {64: SAMPLED, 1: EARLY}
"""By the rows of a record."""


@pytest.fixture(scope="module")
def of_local_store(tmp_path_factory):
    """of_local_store(per_record) -> (folder with the model "one", its span, result of its predictions)."""

    @functools.cache
    def make(per_record):
        folder = tmp_path_factory.mktemp("local")
        local = Store(folder / "store")
        local.create()
        made = ingest(local, per_record)
        train(ask(local, made, **OPTIONS[per_record]), folder / "one", Monitor())
        return folder, made, score(local, made, folder / "one")

    return make


@pytest.mark.parametrize(
    ("bucket_url", "per_record"),
    # each kind of bucket and of record once: neither knows of the other
    [("s3", 64), pytest.param("gs", 1, marks=pytest.mark.long)],
    indirect=["bucket_url"],
)
def test_weights_and_predictions_are_bit_for_bit_those_of_a_local_store(
    bucket_url, per_record, of_local_store, tmp_path
):
    folder, made, one = of_local_store(per_record)
    a = open_store(f"{bucket_url}/store", tmp_path / "a")
    a.create()
    ingest(a, per_record)
    b = open_store(f"{bucket_url}/store", tmp_path / "b")
    b.create()
    request = ask(b, made, **OPTIONS[per_record])
    remote = b.localize(request.input_paths(), later=True)
    # as it crosses to the child
    remote = RemoteFiles.model_validate(json.loads(json.dumps(remote.model_dump(mode="json"))))
    monitor = Lines()
    train(request, tmp_path / "two", monitor, remote=remote)
    assert weight_bits(folder / "one") == weight_bits(tmp_path / "two")
    assert any("fetched 9 shards" in line for line in monitor.lines)

    asked = Examples(path=b.output("ingest", FP), split="eval", result=made.result).paths()
    two = score(b, made, tmp_path / "two", remote=b.localize(asked, later=True))
    assert one["metrics"] == two["metrics"]
    first, second = (folder / "one" / "scored", tmp_path / "two" / "scored")
    assert (first / "predictions.parquet").read_bytes() == (second / "predictions.parquet").read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("bucket_url", ["s3"], indirect=True)
def test_a_shard_that_cannot_be_had_ends_the_training_with_its_name(bucket_url, tmp_path):
    a = open_store(f"{bucket_url}/store", tmp_path / "a")
    a.create()
    made = ingest(a)
    name = next(key for key in a.objects.listing("stages") if "train-00004" in key)
    good = a.objects.read(name)
    a.objects.write(name, good[:-1] + bytes([good[-1] ^ 1]))
    shutil.rmtree(a.root)
    a.create()
    request = ask(a, made)
    with pytest.raises(StoreError, match=r"train-00004.*: has crc32c .*its bytes changed"):
        train(request, tmp_path / "out", Monitor(), remote=a.localize(request.input_paths(), later=True))
    a.objects.write(name, good)
    remote = a.localize(request.input_paths(), later=True)
    assert train(request, tmp_path / "out", Monitor(), remote=remote)["steps"] > 0
