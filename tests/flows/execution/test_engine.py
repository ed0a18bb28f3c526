"""The engine: an output that is damaged is made anew by the run that finds it, once."""

import sys
from types import SimpleNamespace

import pytest

from flows.dag.step import Stage, Step
from flows.execution.engine import Engine, Planner
from headway.errors import ConfigError, DataError, StoreError
from headway.monitor import Monitor
from headway.storage.store import Store

CALLS: list[str] = []


class Plain(dict):
    """A request that is what it was given as."""

    @classmethod
    def model_validate(cls, value):
        return cls(value)


def first(request: Plain, out, monitor):
    CALLS.append("first")
    (out / "data").write_text("right")
    if request.get("always"):
        (out / "data").write_text("wrong")
    return {"made": len(CALLS)}


def second(request: Plain, out, monitor):
    CALLS.append("second")
    if (request["of"] / "data").read_text() != "right":
        raise request.get("error", DataError)("the data are not right")
    (out / "more").write_text("more")
    return {}


LINES: list[str] = []


class Lines(Monitor):
    def log(self, line):
        LINES.append(line)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(...) -> the stages of two steps, in a new engine: what a new run is."""
    monkeypatch.setitem(sys.modules, "stages", SimpleNamespace(first=first, second=second, many=None))
    store = Store(tmp_path / "store")
    store.create()

    def walk(number=1, engine=False, **request):
        CALLS.clear()
        LINES.clear()
        made = Engine(store, child=None, monitor_for=lambda title: Lines())
        [one] = made.call_many([Step(Stage("one", "stages:first"), "one", {"n": 1}, lambda: request)])
        two = Step(Stage("two", "stages:second"), "two", {"n": number}, lambda: {"of": one.path} | request)
        made.call_many([two])
        return made if engine else one.path

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
    engine = run(number=2, engine=True)
    (path / "data").write_text("WRONG")
    with pytest.raises(StoreError, match="it was made anew in this run, and is damaged again") as caught:
        engine.call_many([Step(Stage("two", "stages:second"), "two", {"n": 3}, lambda: {"of": path})])
    assert "check the disk" in caught.value.fix


def test_a_plan_does_not_blame_settings_that_follow_from_outputs_not_made_yet(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "stages", SimpleNamespace(first=first, second=second, many=None))
    store = Store(tmp_path / "store")
    store.create()

    def walk(executor, rows, hidden):
        one = Step(Stage("one", "stages:first"), "one", {"rows": rows}, dict)
        [made] = executor.call_many([one])
        key = {"config": {"hidden": hidden}, "inputs": {"one": made.fingerprint}}
        [two] = executor.call_many([Step(Stage("two", "stages:second"), "two", key, lambda: {"of": made.path})])
        return str(two.why)

    walk(Engine(store, child=None, monitor_for=lambda title: Lines()), 1, [16])
    assert walk(Planner(store), 2, "auto").startswith("inputs.one: ")  # "auto" is chosen by rows that nobody counted
    assert walk(Planner(store), 1, [8]) == "config.hidden[0]: 16 -> 8"
