"""Spans are ingested in waves of bounded bytes, each of which is committed: a killed backfill repeats one at most."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from flows.pipeline import engine as module
from flows.pipeline.engine import Engine
from flows.pipeline.listeners import Listener, Reporter
from headway.stages.step import Step
from headway.storage.store import Store
from tests.beam_jobs.conftest import make_request
from tests.waiting import until

SPANS, WAVE = 20, 2


def steps_of(folder):
    """The ingests of some spans, of the same bytes each."""
    requests = [make_request(path) for path in sorted(folder.glob("*.csv"))]
    requests = [request.model_copy(update={"span": f"{i:02d}"}) for i, request in enumerate(requests)]
    module.WAVE_BYTES = WAVE * requests[0].input_bytes
    return [Step(request, f"ingest {request.span}") for request in requests]


def ingest(root, folder):
    """Ingest them; the titles of what ran."""
    ran = []
    store = Store(root)
    store.create()
    engine = Engine(store, child=None, report=Reporter(), on_output=ran.append)
    engine.call_many(steps_of(folder))
    return [output.title for output in ran if not output.hit]


@pytest.mark.long
def test_a_backfill_that_is_killed_repeats_one_wave_at_most(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "WAVE_BYTES", module.WAVE_BYTES)
    (tmp_path / "raw").mkdir()
    for i in range(SPANS):
        lines = [f"{100 * i + row:06d},{row % 8},s{row % 5},{row % 3}" for row in range(100)]
        (tmp_path / "raw" / f"{i:02d}.csv").write_text("\n".join(["id,x,s,y", *lines]) + "\n")
    code = f"""
        from pathlib import Path
        from tests.flows.pipeline.test_waves import ingest
        ingest(Path({str(tmp_path / "store")!r}), Path({str(tmp_path / "raw")!r}))
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], cwd=Path(__file__).parents[3])
    outputs = tmp_path / "store" / "stages" / "ingest"

    def done():
        assert process.poll() is None
        return len([*outputs.glob("*/manifest.json")])

    until(lambda: done() >= 0.9 * SPANS, seconds=120)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = len([*outputs.glob("*/manifest.json")])
    ran = ingest(tmp_path / "store", tmp_path / "raw")
    assert len(ran) == SPANS - kept and len(ran) <= SPANS * 0.1, "what was committed is not made again"
    assert len([*outputs.glob("*/manifest.json")]) == SPANS
    code += """
        import sys
        assert not {"apache_beam", "grpc"} & set(sys.modules), "every span is there: nothing needs Beam"
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=Path(__file__).parents[3], check=True)


@pytest.mark.long
def test_whole_ranges_of_a_span_whose_run_was_killed_are_kept(tmp_path):
    path = tmp_path / "raw.csv"
    path.write_text("\n".join(["id,x,s,y", *(f"{i:06d},{i % 8},s{i % 5},{i % 3}" for i in range(2000))]) + "\n")
    store = Store(tmp_path / "store")
    store.create()
    code = f"""
        import os
        from pathlib import Path
        from beam_jobs.ingest import range_worker
        from tests.flows.pipeline.test_waves import one
        work = range_worker.ingest_range
        def ingest_range(request, piece, folder, tick):
            if piece.index == 7:
                os.kill(os.getpid(), 9)
            return work(request, piece, folder, tick)
        range_worker.ingest_range = ingest_range
        one(Path({str(tmp_path / "store")!r}), Path({str(path)!r}))
    """
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=root).returncode == -signal.SIGKILL
    assert store.sweep() == [], "it has whole ranges"
    (left,) = store.staging.iterdir()
    whole = [each.name for each in (left / ".ranges").glob("?????-*")]
    assert whole
    # one whose bytes changed, as after a power cut, is made anew
    shard = next((left / ".ranges" / whole[0]).rglob("*.tfrecord"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    logs = Logs()
    (made,) = one(store.root, path, logs)
    assert f"{len(whole) - 1} range{'s' * (len(whole) != 2)} had been finished by a run that was killed" in logs.lines
    assert not [*store.staging.iterdir()]
    (anew,) = one(tmp_path / "anew", path)
    assert made.files == anew.files


class Logs(Listener):
    def __init__(self):
        self.lines = []

    def line(self, scope, text, level="info", step=""):
        self.lines.append(text)


def one(root, path, report=None):
    """Ingest a span of several ranges; the manifest of its output."""
    store = Store(root)
    store.create()
    request = make_request(path, range_size=2048)
    Engine(store, child=None, report=Reporter([report] if report else [])).call_many([Step(request, "ingest all")])
    return [store.find("ingest", request.fingerprint)]


def test_a_wave_holds_one_span_at_least_and_its_bytes_at_most(tmp_path, monkeypatch):
    class Span:
        def __init__(self, size):
            self.stage = self
            self.input_bytes = size

    monkeypatch.setattr(module, "WAVE_BYTES", 10)
    waves = module._waves([Span(size) for size in (4, 4, 4, 30, 1, 9, 0)])
    assert [[span.input_bytes for span in wave] for wave in waves] == [[4, 4], [4], [30], [1, 9, 0]]
    assert module._waves([]) == []
    monkeypatch.setattr(module, "WAVE_STEPS", 2)
    assert [len(wave) for wave in module._waves([Span(0)] * 5)] == [2, 2, 1]
