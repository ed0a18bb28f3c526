"""Spans are ingested in waves of bounded bytes, each of which is committed: a killed backfill repeats one at most."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Annotated

import pytest

from flows.pipeline import engine as module
from flows.pipeline.engine import Engine
from flows.pipeline.listeners import Listener, Reporter
from headway.config import Result
from headway.stages.stage_class import Key, Stage
from headway.stages.step import Step
from headway.storage.store import Store
from tests.beam_jobs.conftest import make_request

BROKEN = set()
"""The numbers of spans at which the process ends."""


class Span(Stage[Result]):
    """A stage whose steps run as one."""

    name, version, runs, runs_many = "ingest", 1, "", f"{__name__}:together"
    number: Annotated[int, Key()]

    @property
    def input_bytes(self):
        return 5


def together(spans, outs, monitor):
    for span, out in zip(spans, outs, strict=True):
        if span.number in BROKEN:
            raise KeyboardInterrupt
        (out / "rows").write_text("all")
    return [{} for _ in spans]


def test_a_wave_is_committed_before_the_next_one_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "WAVE_BYTES", 10)
    store, ran = Store(tmp_path / "store"), []
    store.create()

    def run():
        engine = Engine(store, child=None, report=Reporter(), on_output=lambda made: made.hit or ran.append(made.title))
        engine.call_many([Step(Span(number=number), f"ingest {number}") for number in range(6)])

    BROKEN.add(5)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert ran == ["ingest 0", "ingest 1", "ingest 2", "ingest 3"], "the third wave is not there"
    BROKEN.clear()
    run()
    assert ran[4:] == ["ingest 4", "ingest 5"], "what was committed is not made again"


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

    def on_line(self, scope, text, level="info", step=""):
        self.lines.append(text)


def one(root, path, report=None):
    """Ingest a span of several ranges; the manifest of its output."""
    store = Store(root)
    store.create()
    request = make_request(path, range_size=2048)
    Engine(store, child=None, report=Reporter([report] if report else [])).call_many([Step(request, "ingest all")])
    return [store.find("ingest", request.fingerprint)]


def test_a_wave_holds_one_span_at_least_and_its_bytes_at_most(monkeypatch):
    class Sized:
        def __init__(self, size):
            self.stage = self
            self.input_bytes = size

    monkeypatch.setattr(module, "WAVE_BYTES", 10)
    waves = module._waves([Sized(size) for size in (4, 4, 4, 30, 1, 9, 0)])
    assert [[span.input_bytes for span in wave] for wave in waves] == [[4, 4], [4], [30], [1, 9, 0]]
    assert module._waves([]) == []
    monkeypatch.setattr(module, "WAVE_STEPS", 2)
    assert [len(wave) for wave in module._waves([Sized(0)] * 5)] == [2, 2, 1]
