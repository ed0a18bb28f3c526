"""Runs as they are looked back on: their true state, which one is meant, and why a step would run."""

import datetime
import json
import os
import re
import time

import pytest

from flows.pipeline.listeners import Pace, Progress
from flows.pipeline.reasons import reason_text
from flows.pipeline.run import mark_killed_runs, run_name
from flows.records import find, progress_path, read_record, refresh, runs_of
from flows.report.text import summary
from flows.report.verdict import ending_of
from headway.errors import StoreError
from headway.messages import duration
from headway.storage.fingerprint import NEVER_RUN, Difference
from headway.storage.process_identity import boot_id, host_name, start_time
from headway.storage.store import Store
from tests.run_files import save_run

TRAINED = {"stage": "train", "title": "train", "fingerprint": "0" * 32, "cached": False, "seconds": 60.0, "why": None}
STATISTICS = TRAINED | {"stage": "statistics", "title": "statistics", "cached": True}


def _run(name, **more):
    began = {"run": name, "pipeline": "p", "state": "done", "started": "2024-05-01T10:00:00.000Z", "stages": []}
    return began | {"spans": ["a", "b"], "seed": 0, "seconds": 1.0} | more


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store")
    store.create()
    save_run(store, _run("20240501-100000-aa", stages=[STATISTICS, TRAINED], metrics={"auc": 0.75}, version=2))
    save_run(store, _run("20240501-110000-bb", stages=[STATISTICS]))
    save_run(store, _run("20240502-100000-cc", pipeline="other", stages=[TRAINED]))
    return store


def test_a_run_is_found_by_its_beginning_and_the_default_is_the_last_training(store):
    assert find(store, None, pipeline="p").run == "20240501-100000-aa"
    assert find(store, "latest", pipeline="p").run == "20240501-110000-bb"
    assert find(store, "20240502", pipeline="p").pipeline == "other"
    with pytest.raises(StoreError, match="2 runs begin with '20240501'"):
        find(store, "20240501", pipeline="p")
    with pytest.raises(StoreError, match="there is no run 'x'"):
        find(store, "x", pipeline="p")


def test_a_stage_is_the_candidates_whatever_else_went_through_it():
    titles = ["evaluate", "evaluate champion 3", "evaluate test", "measure", "measure test"]
    stages = [
        TRAINED | {"stage": title.split()[0], "title": title, "fingerprint": f"{i:032x}"}
        for i, title in enumerate(titles)
    ]
    stages += [TRAINED | {"stage": "ingest", "title": f"ingest {span}"} for span in ("a", "b")]
    run = read_record(_run("r", stages=stages))
    assert [run.step(name).title for name in ("evaluate", "measure", "ingest")] == ["evaluate", "measure", "ingest b"]
    assert run.step("evaluate champion 3").fingerprint.endswith("1") and run.step("gate") is None


def _owner(**more):
    return {
        "run": "r",
        "host": host_name(),
        "boot": boot_id(),
        "pid": os.getpid(),
        "process_started": start_time(os.getpid()),
        "renewed": "2024-05-01T10:01:30.000Z",
        "expires": time.time() + 60,
    } | more


def test_a_run_whose_process_is_gone_is_killed_and_says_how_long_it_ran():
    run = read_record(_run("r", state="running", seen="2024-05-01T10:00:20.000Z", seconds=0.0))
    assert refresh(run, _owner(), time.time()).state == "running"
    assert refresh(run, _owner(), time.time()).seconds > 1000
    dead = refresh(run, _owner(process_started="1"), time.time())
    assert (dead.state, dead.seconds) == ("killed", 90.0)  # the lease's last sign of life
    silent = refresh(run, _owner(host="elsewhere", expires=time.time() - 1), time.time())
    assert (silent.state, silent.seconds) == ("killed", 90.0)
    for owner in (None, _owner(run="another")):  # the lock is somebody else's by now
        assert (refresh(run, owner, time.time()).state, refresh(run, owner, time.time()).seconds) == ("killed", 20.0)


def test_a_killed_run_says_which_step_it_was_in_and_the_next_run_writes_that_down(store):
    killed, others = "20240503-100000-dd", "20240503-110000-ee"
    save_run(store, _run(killed, state="running", seconds=0.0, seen="2024-05-01T10:00:00.200Z"))
    save_run(store, _run(others, state="running", pipeline="other"))
    began = datetime.datetime.fromisoformat(runs_of(store)[-1].started).timestamp()
    step = Progress(step="train", done=2816, total=30000, unit="steps", facts={"loss": 0.5})
    unrecorded, begun = "20240503-120000-ff", run_name(store.clock())
    for run in (killed, others, unrecorded, begun):
        progress_path(store, run).write_text(json.dumps([step.model_dump()]))
        os.utime(progress_path(store, run), (began + 8, began + 8))

    def told():
        record = find(store, killed, pipeline="p")
        assert (record.state, record.seconds, record.started_count) == ("killed", 8.0, len(record.executed_steps) + 1)
        assert "died in train (2,816 of 30,000 steps); what was done is kept" in ending_of(record).headline
        assert "broken off: train (2,816 of 30,000 steps)" in summary(record)

    told()
    mark_killed_runs(store, "p")
    left = {name.removesuffix(".progress") for name in store.children(store.runs_folder) if "progress" in name}
    assert left == {others, begun}, "of other pipelines, and of a run that may be about to make its record"
    assert json.loads((store.runs_folder / f"{killed}.json").read_text())["state"] == "killed"
    told()


_DIFFERENCE = re.compile(
    r"(?P<place>\w[^: ]*)(?: is (?P<lack>new|gone)|: (?P<order>another order)|: (?P<old>.*?)(?P<many> entries)? -> (?P<new>.*))",
    re.DOTALL,
)


def difference(why):
    """A Difference, of its text."""
    if why == "never run":
        return NEVER_RUN
    found = _DIFFERENCE.fullmatch(why)
    if found is None:
        return Difference(kind="damaged", new=why)
    place = tuple(re.findall(r"\[[^\]]*\]|[^.\[\]]+", found["place"]))
    kind = found["lack"] or ("order" if found["order"] else "entries" if found["many"] else "value")
    return Difference.model_validate(
        {"kind": kind, "place": place, "old": found["old"] or "", "new": found["new"] or ""}
    )


@pytest.mark.parametrize(
    ("why", "stage", "words"),
    [
        ("never run", "ingest", "has not run yet"),
        ("span: 2024-03 -> 2024-04", "ingest", "span 2024-04 is new"),
        ("inputs.train: 3 entries -> 4", "statistics", "the window has 4 spans in train, before 3"),
        (f"inputs.train[0][0]: {'0a' * 16} -> {'1b' * 16}", "statistics", "the spans of the window changed"),
        (f"inputs.statistics: {'0a' * 16} -> {'1b' * 16}", "transform", "the statistics of the window changed"),
        ("config.model.hidden: 1 entries -> 4", "train", "model.hidden changed"),
        ("searched: 0 entries -> 5", "measure", "the columns that are searched for the worst slices changed"),
        ("searched[0]: area: 5 -> radius: 5", "measure", "the columns that are searched for the worst slices changed"),
        ("config.training.batch_size: 256 -> 64", "train", "training.batch_size is 64, before 256"),
        (f"inputs.transform: {'0a' * 16} -> {'1b' * 16}", "train", "the transform changed"),
        (f"model.train: {'0a' * 16} -> {'1b' * 16}", "evaluate", "the trained model changed"),
        ("model.version is new", "evaluate", "has not run yet"),
        ('champion: null -> {"name": "version 1 (2024-01 to 2024-...', "validate", "the champion changed"),
        ("auto: 3 entries -> 4", "validate", "the list of columns whose transform is chosen changed"),
        ("auto is new", "validate", "the list of columns whose transform is chosen changed"),
        ("version: 4 -> 5", "statistics", "Headway's code of this stage is newer"),
        ("version: 11 -> 10", "ingest", "Headway's code of this stage is older"),
        ("files[a.csv].crc32c: 1 -> 2", "ingest", "a file of this span changed, came or went"),
    ],
)
def test_a_plan_says_why_in_words(why, stage, words):
    assert reason_text(difference(why), stage) == words and str(difference(why)) == why
    assert reason_text(None, stage) == ""


def test_no_time_is_estimated_before_it_means_something():
    now = [0.0]

    def words(pace, done):
        rate, left = pace.of(done, 60_434)
        known = {"step": "train", "done": done, "total": 60_434, "unit": "steps"}
        return Progress(**known, per_second=rate, seconds_left=left).words().split(" steps", 1)[1]

    pace = Pace(lambda: now[0])
    now[0] = 40.0  # imports and tracing
    assert words(pace, 8) == ""
    now[0] = 42.0
    assert words(pace, 400) == ""
    now[0] = 50.0
    assert words(pace, 508) == ", 50 steps/s"
    now[0] = 60.0
    assert words(pace, 1008) == ", 50 steps/s, 20 min left"
    slow = Pace(lambda: now[0])
    words(slow, 30_000)  # resumed
    now[0] += 100.0
    assert words(slow, 30_030) == ", 0.3 steps/s, 28 h left"


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.04, "0.0 s"), (45, "45 s"), (120, "2 min"), (102_700, "29 h"), (400_000, "5 days")]
)
def test_a_time_is_reported_in_the_unit_that_a_person_would_say(seconds, words):
    assert duration(seconds) == words
