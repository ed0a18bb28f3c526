"""A run in two halves: the first reads raw files, the second trains in another folder with the same store and no raw files."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from flows.config.pipeline import read_pipeline
from flows.pipeline import prepared
from flows.pipeline.context import Context
from flows.pipeline.dag import plan_needs_tensorflow
from flows.pipeline.engine import look_ahead
from flows.pipeline.listeners import Reporter
from flows.pipeline.prepared import PREPARE, load_prepared, needs_training, write_prepared
from flows.pipeline.run import execute
from headway.errors import ConfigError, StoreError

pytestmark = pytest.mark.long

PIPELINE = """
name: churn
source: {format: parquet, path: "data/{span}.parquet"}
label: y
columns: {"*": auto, id: {role: key}, x: standardize, c: vocabulary}
split: {mode: time}
model: {name: "net:build"}
preprocess: "net:more"
training: {steps: 16, batch_size: 64, checkpoint_every_steps: 8}
gate: {baseline: false}
queues: {tensorflow: gpu}
"""
MODEL = """
import keras
import tensorflow as tf

def more(columns):
    return {"twice": tf.cast(columns["x"], tf.float32) * 2.0}

def build(layout, options):
    inputs = {name: keras.Input(shape, dtype=dtype, name=name) for name, (shape, dtype) in layout.inputs().items()}
    return keras.Model(inputs, keras.layers.Dense(1)(inputs["numeric"]))
"""


@pytest.fixture
def folders(tmp_path, land):
    """folders(name, ...) -> folders with the same pipeline and store; the first has raw files."""

    def write(*names, **changes):
        made = [tmp_path / name for name in names]
        for folder in made:
            folder.mkdir(parents=True, exist_ok=True)
            config = yaml.safe_load(PIPELINE) | {"store": str(tmp_path / "store")} | changes
            (folder / "pipeline.yaml").write_text(yaml.safe_dump(config))
            (folder / "net.py").write_text(MODEL)
        for month in ("2024-01", "2024-02"):
            land(made[0] / "data", month)
        return made

    return write


def _spec(folder, **fields):
    loaded = read_pipeline(folder)
    return Context(loaded=loaded, store=loaded.open_store(), **fields)


def _prepare(folder, **fields):
    context = _spec(folder, last=PREPARE, **fields)
    record = execute(context, Reporter())
    write_prepared(context, record)
    return record


def _checksums(store):
    """{stage/fingerprint/file: crc32c} of every file that holds neither a time that was measured nor an id that was drawn."""
    found = {}
    for stage, folder in store.all_outputs():
        for entry in store.manifest(folder).files:
            if Path(entry.path).name not in ("history.json", "replay.json", "fingerprint.pb"):
                found[f"{stage}/{folder.name}/{entry.path}"] = entry.crc32c
    return found


@pytest.mark.timeout(600)
def test_two_halves_write_the_bytes_of_one_run_and_the_second_needs_no_raw_files(folders, forked, tmp_path):
    (flow,) = folders("flow", store=str(tmp_path / "alone"), preprocess=None)
    alone = execute(_spec(flow), Reporter())
    expected = _checksums(_spec(flow).store)
    assert {name.partition("/")[0] for name in expected} >= {"ingest", "train", "evaluate", "export"}
    (flow / "schema.pbtxt").unlink()

    flow, gpu = folders("flow", "gpu", preprocess=None)
    assert needs_training(_spec(flow)), "nothing is there yet"
    first = _prepare(flow, window=2)
    assert first.state == "done" and first.stages[-1].stage == PREPARE
    second = execute(load_prepared(_spec(gpu, until="2024-02"), first.run), Reporter())
    assert second.state == alone.state == "promoted" and second.spans == first.spans
    assert _checksums(_spec(gpu).store) == expected
    assert all(step.cached for step in second.stages[: len(first.stages)]), "found in the store"
    assert [step.title for step in second.stages] == [step.title for step in alone.stages]
    assert sorted(path.name for path in gpu.iterdir()) == ["net.py", "pipeline.yaml"]
    paths = {at: next((tmp_path / at).glob("models/*/1/lineage.json")) for at in ("store", "alone")}
    facts = {at: json.loads(path.read_text()) for at, path in paths.items()}
    assert facts["store"]["schema"] == facts["alone"]["schema"]
    assert facts["store"]["spans"] == facts["alone"]["spans"], "raw files, by their checksums"
    assert not needs_training(_spec(flow)), "no second half is needed for what is there"


def test_what_differs_between_the_two_machines_is_refused(folders, forked, tmp_path, monkeypatch):
    flow, gpu = folders("flow", "gpu", preprocess=None, columns={"id": {"role": "key"}, "x": "standardize"})
    run = _prepare(flow).run
    folders("flow", "gpu", preprocess=None, columns={"id": {"role": "key"}, "x": "standardize"}, training={"steps": 8})
    with pytest.raises(ConfigError, match=r"training: the config has another value than where(?s:.*)commit"):
        load_prepared(_spec(gpu), run)
    folders("flow", "gpu", preprocess=None, columns={"id": {"role": "key"}, "x": "standardize"}, queues={})
    assert load_prepared(_spec(gpu), run).spans == ("2024-01", "2024-02"), "queues are a machine's own"
    (gpu / "net.py").write_text(MODEL + "# another commit")
    with pytest.raises(ConfigError, match=r"net\.py differs(?s:.*)same commit"):
        load_prepared(_spec(gpu), run)
    (gpu / "net.py").write_text(MODEL)
    ours = prepared._tools()
    monkeypatch.setattr(prepared, "_tools", lambda: ours | {"tensorflow": "1.0"})
    with pytest.raises(ConfigError, match=r"tensorflow is \S+ where the window was prepared, and 1\.0 on this worker"):
        load_prepared(_spec(gpu), run)
    monkeypatch.undo()
    other = replace(_spec(gpu), store=_spec(gpu).store.__class__(tmp_path / "another"))
    with pytest.raises(StoreError, match=r"is not here(?s:.*)must be the same"):
        load_prepared(other, run)


def test_a_span_that_is_not_in_the_store_is_not_read_from_raw_files(folders, forked, tmp_path):
    flow, gpu = folders("flow", "gpu")
    first = _prepare(flow)
    assert first.step("analyse"), "the user's preprocessing is a part of the first half"
    context = load_prepared(_spec(gpu), first.run)
    assert all(output.hit for output in look_ahead(replace(context, last=PREPARE)).outputs)
    shutil.rmtree(next((tmp_path / "store" / "stages" / "ingest").iterdir()))
    with pytest.raises(StoreError, match=r"ingest 2024-0\d is not in the store as this worker would make it"):
        load_prepared(_spec(gpu), first.run)


def test_a_store_in_a_bucket_is_enough(folders, bucket_name, monkeypatch, tmp_path):
    """Two machines: two working copies of one bucket."""
    flow, gpu = folders("flow", "gpu", preprocess=None, store=f"s3://{bucket_name}/store")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache of flow"))
    first = _prepare(flow)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache of gpu"))
    context = load_prepared(_spec(gpu), first.run)
    assert context.store.root.is_relative_to(tmp_path / "cache of gpu"), "a copy of its own"
    plan = look_ahead(context)
    assert [output.fingerprint for output in plan.outputs if output.hit] == [step.fingerprint for step in first.stages]
    assert plan_needs_tensorflow(plan)
