"""The engine: an output that is damaged is made anew by the run that finds it, once."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest

from flows.pipeline.engine import Engine, Planner, naming_steps
from flows.pipeline.listeners import Listener, Reporter
from headway.config import Result
from headway.errors import ConfigError, DataError, StoreError
from headway.stages.refs import Ref
from headway.stages.stage_class import Key, Stage
from headway.stages.step import Step
from headway.storage.store import Store

CALLS: list[str] = []


class First(Stage[Result]):
    name, version, runs = "one", 1, "stages:first"
    rows: Annotated[int, Key()] = 1
    always: bool = False


class Second(Stage[Result]):
    name, version, runs = "two", 1, "stages:second"
    n: Annotated[int, Key()] = 1
    hidden: Annotated[tuple[int, ...], Key("config", "hidden")] = ()
    one: Annotated[Ref[Any], Key("inputs", "one")]
    of: Path | None = None
    error: type[Exception] = DataError


def first(request, out, monitor):
    CALLS.append("first")
    (out / "data").write_text("wrong" if request.always else "right")
    return {"made": len(CALLS)}


def second(request, out, monitor):
    CALLS.append("second")
    if ((request.of or request.one.file) / "data").read_text() != "right":
        raise request.error("the data are not right")
    (out / "more").write_text("more")
    return {}


LINES: list[str] = []


class Lines(Listener):
    def on_line(self, scope, text, level="info", step=""):
        LINES.append(text)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(...) -> the stages of two steps, in a new engine: what a new run is."""
    monkeypatch.setitem(sys.modules, "stages", SimpleNamespace(first=first, second=second))
    store = Store(tmp_path / "store")
    store.create()

    def walk(number=1, engine=False, always=False, **request):
        CALLS.clear()
        LINES.clear()
        made = Engine(store, child=None, report=Reporter([Lines()]))
        [one] = made.call_many([Step(First(always=always), "one")])
        made.call_many([Step(Second(n=number, one=one.ref(), **request), "two")])
        return (made, one) if engine else one.path

    return walk


def test_a_flipped_byte_is_found_and_made_anew_by_the_run_that_reads_it(run):
    path = run()
    assert CALLS == ["first", "second"]
    (path / "data").write_text("wrong")
    run(number=2)
    assert CALLS == ["second", "first", "second"]
    assert (path / "data").read_text() == "right"
    [line] = LINES
    assert line.startswith("data of one: has crc32c") and line.endswith("so one is run again")
    run(number=3)
    assert CALLS == ["second"]


def test_an_error_that_no_damage_caused_stays_as_it_is(run):
    path = run()
    (path / "data").write_text("wrong")
    with pytest.raises(ConfigError):
        run(number=2, error=ConfigError)
    assert CALLS == ["second"]
    (path / "data").write_text("right")
    with pytest.raises(FileNotFoundError):
        run(number=2, of=path.parent)  # reads something else, which is not there
    assert CALLS == ["second"] and not LINES


def test_what_is_wrong_as_it_was_written_ends_the_run_and_does_not_loop(run):
    path = run()
    (path / "data").write_text("other")
    with pytest.raises(DataError, match="not right"):
        run(number=2, always=True)
    assert CALLS == ["second", "first", "second"]


def test_an_output_that_is_damaged_again_at_once_is_reported(run):
    path = run()
    (path / "data").write_text("wrong")
    engine, one = run(number=2, engine=True)
    (path / "data").write_text("WRONG")
    with pytest.raises(StoreError, match="it was made anew in this run, and is damaged again") as caught:
        engine.call_many([Step(Second(n=3, one=one.ref()), "two")])
    assert "check the disk" in caught.value.fix


def test_a_plan_names_the_first_thing_that_differs_from_the_nearest_output(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "stages", SimpleNamespace(first=first, second=second))
    store = Store(tmp_path / "store")
    store.create()

    def walk(executor, rows, hidden):
        [made] = executor.call_many([Step(First(rows=rows), "one")])
        [two] = executor.call_many([Step(Second(hidden=hidden, one=made.ref()), "two")])
        return str(two.why)

    walk(Engine(store, child=None, report=Reporter([Lines()])), 2, [16])
    assert walk(Planner(store), 3, [16]).startswith("inputs.one: ")
    assert walk(Planner(store), 2, [8]) == "config.hidden[0]: 16 -> 8"


def test_a_plan_goes_on_past_a_damaged_output_whose_answer_is_kept_but_not_past_a_verdict_that_is_gone(run, tmp_path):
    class Gate(First):
        name = "gate"

    run()
    store = Store(tmp_path / "store")
    steps = [Step(First()), Step(Gate())]
    for step in steps:
        Engine(store, child=None, report=Reporter([])).call_many([step])
        (store.output(step.stage.name, step.fingerprint) / "data").unlink()
    made, verdict = (Planner(store).call_many([step])[0] for step in steps)
    assert made.known and not made.hit and not verdict.known
    assert str(made.why) == str(verdict.why) == "data is gone"


A, B = "a" * 32, "b" * 32
TITLES = {("ingest", A): "ingest 2024-01"}


@pytest.mark.parametrize(
    ("where", "named", "find"),
    [
        (f"stages/ingest/{A}/train-00000-of-00004.tfrecord", "train-00000-of-00004.tfrecord of ingest 2024-01", True),
        (f"stages/ingest/{A}", "the output of ingest 2024-01", True),
        (f"stages/statistics/{B}/train/statistics.json", "train/statistics.json of statistics", True),
        (f"stages/.staging/train-{B}-1.2/weights/one.h5", "weights/one.h5 of train", False),
        (f"checkpoints/{B}/step-10", "step-10 of the checkpoints of train", False),
        ("models/churn/1/saved_model", None, False),
    ],
)
def test_a_folder_of_the_store_is_called_by_its_step(where, named, find, tmp_path):
    store = Store(tmp_path / "store")
    place = str(store.root / where)
    with pytest.raises(DataError) as caught, naming_steps(store, TITLES, "train"):
        raise DataError(f"{place}: cannot be read", where=place, fix="run again")
    error = caught.value
    assert error.where == (named or place) and error.problem == f"{named or place}: cannot be read"
    assert error.args == (error.problem,)
    assert error.fix == ("run again" if not find else "run again; headway show latest prints its folder")


class Written(Stage[Result]):
    name, version, runs = "ingest", 1, f"{__name__}:written"


class Broken(Stage[Result]):
    name, version, runs = "statistics", 1, f"{__name__}:broken"
    ingested: Annotated[Ref[Any], Key("inputs", "ingested")]


def broken(request, out, monitor):
    """A stage that cannot read its input."""
    raise DataError("cut off", where=str(request.ingested.file / "a.tfrecord"))


def written(request, out, monitor):
    (out / "a.tfrecord").write_text("rows")
    return {}


def test_a_stage_that_fails_in_an_engine_names_the_step_that_made_its_input(tmp_path):
    store = Store(tmp_path / "store")
    store.create()
    engine = Engine(store, child=None, report=Reporter())
    (made,) = engine.call_many([Step(Written(), "ingest 2024-01")])
    with pytest.raises(DataError) as caught:
        engine.call_many([Step(Broken(ingested=made.ref()), "statistics")])
    assert caught.value.where == "a.tfrecord of ingest 2024-01"
    assert caught.value.fix == "headway show latest prints its folder"
