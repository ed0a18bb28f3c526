"""Stages on another worker: another process, with another working folder, the same store and no raw files."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest

from flows.config.pipeline import read_pipeline
from flows.config.production import Stage
from flows.dag.run_spec import RunSpec
from flows.dag.step import Stage as Stage_
from flows.dag.step import Step
from flows.execution.elsewhere import client, order, server
from flows.execution.elsewhere.client import Elsewhere
from flows.execution.elsewhere.exchange import Exchange
from flows.execution.elsewhere.server import serve
from flows.execution.engine import Engine
from flows.execution.limits import limited
from flows.execution.run import execute
from flows.progress.terminal import Reporter
from headway.config import Frozen
from headway.errors import Cancelled, ConfigError, DataError, HeadwayError, LimitExceeded
from headway.storage.process_identity import alive
from headway.storage.remote_store import open_store
from headway.storage.store import Store

ROOT = Path(__file__).parents[4]
PIPELINE = """
name: churn
source: {format: parquet, path: "data/{span}.parquet"}
label: y
columns: {id: {role: key}, x: standardize, c: vocabulary}
split: {mode: time}
model: {name: "net:build"}
training: {steps: 16, batch_size: 64, steps_per_call: 8, checkpoint_every_steps: 8}
gate: {baseline: false}
evaluation: {importance: 100}
"""
MODEL = """
import keras

def build(layout, options):
    inputs = {name: keras.Input(shape, dtype=dtype, name=name) for name, (shape, dtype) in layout.inputs().items()}
    return keras.Model(inputs, keras.layers.Dense(1)(inputs["numeric"]))
"""
WORKER = """
import sys, threading
from pathlib import Path
from flows.config.pipeline import read_pipeline
from flows.execution.elsewhere.exchange import Exchange
from flows.execution.elsewhere.server import serve
from flows.progress.terminal import Lines

loaded = read_pipeline(Path("."))
store = loaded.open_store()
made = serve(store, loaded.folder, Exchange(store, sys.argv[1]), Lines(), ready=lambda say: say("it is my turn"))
print("made", *made)
"""


class Started:
    """The process of a worker, as a flow sees the flow run that it started."""

    def __init__(self, folder, exchange):
        self.name = "the other worker"
        self.log = folder / "worker.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", WORKER, exchange], cwd=folder, stdout=log, stderr=log, text=True
            )

    def ended(self):
        code = self.process.poll()
        if code is None:
            return None
        return ("COMPLETED" if code == 0 else "CRASHED"), f"exit {code}: {self.log.read_text()[-2000:]}"

    def waits(self):
        return None

    def stop(self):
        pass  # it reads so in the store


class Report(Reporter):
    def __init__(self):
        super().__init__()
        self.lines, self.seen = [], []

    def note(self, line):
        self.lines.append(line)

    def monitor(self, title):
        report, monitor = self, super().monitor(title)
        monitor.log = lambda line: report.lines.append(f"{title}: {line}")
        monitor.progress = lambda done, total, unit, **facts: report.seen.append((title, done))
        return monitor


@pytest.fixture
def folders(tmp_path, land):
    """(the flow's, the worker's): pipeline.yaml in both, raw files in the first."""
    (tmp_path / "flow").mkdir()
    for month in ("2024-01", "2024-02"):
        land(tmp_path / "flow" / "data", month)
    (tmp_path / "elsewhere").mkdir()

    def write(queues, store=None, **other):
        for folder in (tmp_path / "flow", tmp_path / "elsewhere"):
            text = f"{PIPELINE}queues: {json.dumps(queues)}\nstore: {store or tmp_path / 'store'}\n"
            for old, new in other.items():
                text = text.replace(f"{old}: ", f"{old}: {new} #") if "\n" + old in text else f"{text}{old}: {new}\n"
            (folder / "pipeline.yaml").write_text(text)
            (folder / "net.py").write_text(MODEL)
        return tmp_path / "flow", tmp_path / "elsewhere"

    return write


@pytest.fixture
def run(forked):
    """run(flow, elsewhere, start=...) -> (record, report, the started workers)."""
    workers = []

    def go(flow, elsewhere, report=None, workers=workers):
        loaded = read_pipeline(flow)

        def start(queue, exchange, title):
            workers.append(Started(elsewhere, exchange))
            return workers[-1]

        report = report or Report()
        spec = RunSpec(loaded=loaded, store=loaded.open_store(), start=start if elsewhere else None)
        return execute(spec, report), report, workers

    yield go
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            worker.process.kill()


def _checksums(store):
    """{stage/fingerprint/file: crc32c} of every file that holds neither a time that was measured nor an id that was drawn."""
    found = {}
    for stage, folder in store.all_outputs():
        for entry in store.manifest(folder).files:
            if Path(entry.path).name not in ("history.json", "replay.json", "fingerprint.pb"):
                found[f"{stage}/{folder.name}/{entry.path}"] = entry.crc32c
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_another_worker_makes_has_the_bytes_of_a_run_in_one_process(folders, run, tmp_path):
    flow, elsewhere = folders({}, store=tmp_path / "alone")
    alone, _, _ = run(flow, None)
    expected = _checksums(read_pipeline(flow).open_store())
    assert {name.partition("/")[0] for name in expected} >= {"ingest", "train", "evaluate", "importance", "export"}
    (flow / "schema.pbtxt").unlink()

    # every stage but ingest, which alone reads raw files
    queues = dict.fromkeys([*set(get_args(Stage)) - {"ingest"}], "gpu")
    folders({"tensorflow": "gpu"} | queues)
    record, report, workers = run(flow, elsewhere)
    assert record.state == alone.state == "promoted"
    store = read_pipeline(flow).open_store()
    assert _checksums(store) == expected
    assert len(workers) == 1, "one worker, and one TensorFlow process, makes all of them"
    assert workers[0].process.wait(60) == 0 and "made statistics" in workers[0].log.read_text()
    assert not (elsewhere / "store").exists() and not (elsewhere / "data").exists()
    assert not [*store.exchanges.iterdir()], "the worker cleans up"
    said = "\n".join(report.lines)
    assert "the other worker" in said and "it is my turn" in said, "what the worker says is in the flow's log"
    assert ("train", 16) in report.seen, "and so is its progress"
    assert [step.title for step in record.stages] == [step.title for step in alone.stages]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_flow_that_is_stopped_stops_its_worker_which_saves_first(folders, run):
    flow, elsewhere = folders({"train": "gpu"}, training="{steps: 400000, batch_size: 64, checkpoint_every_steps: 64}")
    report = Report()
    store = read_pipeline(flow).open_store()

    def stop():
        deadline = time.monotonic() + 300
        while not [*store.checkpoints.glob("*/*/checkpoint.json")] and time.monotonic() < deadline:
            time.sleep(0.2)
        report.stop.set()

    threading.Thread(target=stop, daemon=True).start()
    workers = []
    with pytest.raises(Cancelled):
        run(flow, elsewhere, report, workers)
    assert [*store.checkpoints.glob("*/*/checkpoint.json")]
    assert workers[0].process.poll() is not None, "it has ended before the flow does"
    assert not [*store.exchanges.iterdir()]


@pytest.fixture
def toys(folders, tmp_path, monkeypatch):
    """toys(stage) -> a run in this process whose stage transform is that function, on a worker that is a thread."""
    local = read_pipeline(folders({"transform": "gpu"})[0]).open_store()
    threads = []

    def made(function, *, store=local, worker_store=None, kind=None, steps=1, between=lambda started: None, limit=None):
        store.create()
        if limit:
            folders({"transform": "gpu"}, limits=json.dumps({"transform": limit}))
        worker_store = worker_store or store
        monkeypatch.setitem(sys.modules, "toys", SimpleNamespace(function=function, __name__="toys"))
        stage = Stage_("transform", "toys:function")
        monkeypatch.setattr(Stage_, "version", 1)
        monkeypatch.setitem(order.STAGES, "transform", stage)
        report, other = Report(), Report()

        class Thread:
            name = "a thread"
            end = None

            def __init__(self, exchange):
                self.thread = threading.Thread(target=self.work, args=[exchange], daemon=True)
                threads.append(self)
                self.thread.start()

            def work(self, exchange):
                try:
                    serve(worker_store, tmp_path / "elsewhere", Exchange(worker_store, exchange), other)
                    self.end = ("COMPLETED", "made")
                except Exception as error:
                    self.end = (kind or "FAILED", str(error))

            def ended(self):
                return self.end

            def waits(self):
                return None

            def stop(self):
                other.stop.set()

        loaded = read_pipeline(tmp_path / "flow")
        spec = RunSpec(loaded=loaded, store=store, start=lambda queue, exchange, title: Thread(exchange))
        keys = [{"stage": "transform", "version": 1, "number": number} for number in range(steps)]
        with Elsewhere(spec, report) as elsewhere:
            engine = Engine(store, child=None, monitor_for=report.monitor, elsewhere=elsewhere)
            for key in keys:
                step = Step(stage, "transform", key, lambda: {"module": tmp_path / "flow" / "net.py"})
                (output,) = engine.call_many([step])
                between(threads)
        return output, report, other

    monkeypatch.setattr(client, "LOOK_SECONDS", 0.2)
    yield made
    for thread in threads:
        thread.thread.join(20)
        assert not thread.thread.is_alive()


class Request(Frozen):
    module: Path


def plain(request: Request, out, monitor):
    return {"result": 1}


def test_an_output_that_another_worker_made_is_found_in_the_store(toys, tmp_path):
    def function(request: Request, out, monitor):
        assert request.module == tmp_path / "elsewhere" / "net.py", "the worker has paths of its own"
        (out / "data").write_text("made")
        monitor.log("a line")
        return {"result": 1}

    output, report, _ = toys(function)
    assert output.get() == {"result": 1} and (output.path / "data").read_text() == "made"
    assert "transform: a line" in report.lines


def test_a_worker_that_is_not_needed_is_let_go_and_another_is_asked_later(toys, monkeypatch):
    monkeypatch.setattr(client, "IDLE_SECONDS", 0.1)
    ended = []

    def between(started):
        deadline = time.monotonic() + 20
        while not started[-1].end and time.monotonic() < deadline:
            time.sleep(0.05)
        ended.append(started[-1].end)

    toys(plain, steps=2, between=between)
    assert ended == [("COMPLETED", "made"), ("COMPLETED", "made")]


def test_a_store_in_a_bucket_is_enough(toys, bucket_name, tmp_path):
    """Two machines: two working copies of one bucket."""
    stores = [open_store(f"s3://{bucket_name}/store", tmp_path / copy) for copy in ("a", "b")]
    output, _, _ = toys(plain, store=stores[0], worker_store=stores[1])
    assert output.get() == {"result": 1} and stores[0].find("transform", output.fingerprint)
    assert not (tmp_path / "a" / "stages" / "transform").exists(), "nothing was fetched that nobody reads"


def test_an_error_there_is_the_same_error_here(toys):
    def function(request: Request, out, monitor):
        raise DataError("row 3 is wrong", where="a.csv", fix="mend it")

    with pytest.raises(DataError, match=r"row 3 is wrong(?s:.*)mend it"):
        toys(function)


LIMITED = """
import ctypes, os, pathlib

def function(request, out, monitor):
    pathlib.Path(request["module"]).with_name("pid").write_text(str(os.getpid()))
    %s
    ctypes.PyDLL(None).sleep(600)  # holds the interpreter's lock: no thread of this process runs
"""


@pytest.mark.parametrize(
    ("limit", "work", "words"),
    [
        ({"minutes": 0.1}, "", r"limits\.transform\.minutes: transform ran for 0\.\d+ min, and the limit is 0\.1"),
        ({"memory_gb": 0.3}, "kept = b'1' * 500_000_000", r"transform took 0\.\d+ GB of memory, and the limit is 0\.3"),
    ],
)
def test_a_limit_ends_a_stage_on_another_worker_also_in_native_code(toys, tmp_path, monkeypatch, limit, work, words):
    (tmp_path / "toys.py").write_text(LIMITED % work)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    monkeypatch.setitem(limited.__wrapped__.__kwdefaults__, "grace", 0.2)
    with pytest.raises(LimitExceeded, match=words) as raised:
        toys(None, limit=limit)
    assert raised.value.exit_code == 7 and "raise limits.transform" in str(raised.value)
    assert not alive(int((tmp_path / "elsewhere" / "pid").read_text())), "it was killed there"


def test_no_secret_of_the_worker_lies_in_the_store(toys, monkeypatch):
    written = []
    put = Exchange.put

    def spied(self, message, value):
        written.append(json.dumps(value))
        put(self, message, value)

    def function(request: Request, out, monitor):
        monitor.log("reading s3://me:s3cr3t-v4lue@bucket/a")
        raise RuntimeError("s3://me:s3cr3t-v4lue@bucket/a is gone")

    monkeypatch.setattr(Exchange, "put", spied)
    with pytest.raises(HeadwayError, match=r"s3://\*\*\*@bucket/a is gone"):
        toys(function)
    assert any("reading s3://***@bucket/a" in text for text in written)
    assert not any("s3cr3t-v4lue" in text for text in written)


def test_a_worker_with_other_code_makes_nothing(toys, tmp_path, monkeypatch):
    def function(request: Request, out, monitor):
        raise AssertionError("it must not run")

    (tmp_path / "elsewhere" / "net.py").write_text(MODEL + "# another commit")
    with pytest.raises(ConfigError, match=r"net\.py differs from the flow's(?s:.*)same commit"):
        toys(function)
    (tmp_path / "elsewhere" / "net.py").unlink()
    with pytest.raises(ConfigError, match=r"net\.py is not here"):
        toys(function)
    versions = iter([{"tensorflow": "1.0"}])
    ours = order.code()
    monkeypatch.setattr(order, "code", lambda: next(versions, ours))
    with pytest.raises(ConfigError, match=r"tensorflow is 1\.0 where the flow runs, and \S+ on this worker"):
        toys(function)


def test_a_worker_with_another_store_says_so(toys, tmp_path, monkeypatch):
    monkeypatch.setattr(server, "FIRST_ORDER_SECONDS", 0.3)
    with pytest.raises(HeadwayError, match=r"asks for nothing under exchange(?s:.*)must be the same"):
        toys(plain, worker_store=Store(tmp_path / "another"))


def test_a_worker_that_dies_or_is_cancelled_ends_the_flow(toys, tmp_path, monkeypatch):
    monkeypatch.setattr(server, "FIRST_ORDER_SECONDS", 0.1)
    other = Store(tmp_path / "another")
    with pytest.raises(HeadwayError, match=r"a thread ended \(crashed\) before transform was made"):
        toys(plain, worker_store=other, kind="CRASHED")
    with pytest.raises(Cancelled, match="was cancelled"):
        toys(plain, worker_store=other, kind="CANCELLED")


def test_a_request_that_leads_out_of_the_store_is_refused(tmp_path):
    for name in ("../../etc/passwd", "/etc/passwd", 3):
        with pytest.raises(ConfigError, match="leads out of"):
            order._received({"path": {"$store": name}}, tmp_path, tmp_path)
    for module in ("/srv/x.py", {"$store": "x.py"}):
        with pytest.raises(ConfigError, match="not a file of the pipeline's folder"):
            order._received({"inner": [{"module": module}]}, tmp_path, tmp_path)
    metrics = {"loss": 0.6, "file": "train-0.tfrecord", "module": {"$pipeline": "net.py"}}
    assert order._received(metrics, tmp_path, tmp_path) == metrics | {"module": str(tmp_path / "net.py")}
    with pytest.raises(ConfigError, match="does not name the exchange"):
        Exchange(Store(tmp_path), "../runs")
