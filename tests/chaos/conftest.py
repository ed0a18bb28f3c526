"""A PostgreSQL, server and worker for the tests of faults of a process, and tiny pipelines deployed on them."""

import shutil
from pathlib import Path

import pytest

from tests.chaos.host import Host
from tests.chaos.table import FAULTS, TRUE_WITHIN
from tests.chaos.tiny_pipeline import TinyPipeline


def pytest_collection_modifyitems(items):
    """One process for the tests of a module, which share a host, where pytest-xdist deals tests by group."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and "host_once" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
            item.add_marker(pytest.mark.server)
            item.extra_keyword_matches.add("on_postgresql")


@pytest.fixture
def row(request, record_property):
    """row(fault, seen, seconds=None, repeats="-"): a row of this test in the table of faults, which has ended as it has to.

    Args:
        fault: what was done to what.
        seen: how that ended, in the words of the table; or the flow run as the server has it.
        seconds: from the fault's end until that was so.
        repeats: what the next run did again.
    """
    test = f"tests/chaos/{request.path.name}::{request.function.__name__}"
    rows = {row.fault: row for row in FAULTS[test]}
    values = request.node.callspec.params.values() if hasattr(request.node, "callspec") else ()
    expected = {value for value in values if isinstance(value, str) and value in rows} or {*rows}

    def note(fault, seen, seconds=None, repeats="-"):
        assert rows[fault].is_end(seen), (rows[fault], seen)
        expected.discard(fault)
        if seconds is not None:
            assert seconds <= TRUE_WITHIN
            cells = [f"{seconds:.0f} s" if seconds >= 1 else "under 1 s", repeats]
            record_property("faults", [fault, rows[fault].where, cells])

    yield note
    assert not expected, "rows of the table of faults that this test did not come to"


@pytest.fixture(scope="session")
def host_once(tmp_path_factory):
    if not (shutil.which("initdb") or [*Path("/usr/lib/postgresql").glob("*/bin/initdb")]):
        pytest.skip("PostgreSQL is not installed")
    host = Host(tmp_path_factory.mktemp("host"))
    try:
        host.up()
        yield host
    finally:
        host.down()


@pytest.fixture
def host(host_once):
    """The host, with everything up and nothing running: what the test before killed is started again."""
    if not all(host_once.pid(name) for name in ("server", "worker")) or not host_once.healthy():
        host_once.database.start()
        host_once.up()
    host_once.clear()
    return host_once


@pytest.fixture
def deployed(host, tmp_path):
    """deployed(name, extra="") -> a TinyPipeline that `headway deploy` has put on the server."""

    def make(name, extra=""):
        return _deploy(host, tmp_path / name, name, extra)

    return make


def _deploy(host, folder, name, extra=""):
    pipeline = TinyPipeline(folder, name, extra)
    host.headway("deploy", pipeline.folder)
    return pipeline


@pytest.fixture(scope="session")
def retrained(host_once, tmp_path_factory):
    """A deployed pipeline with a champion, for all tests that do no more to it than to land a month and to retrain."""
    pipeline = _deploy(host_once, tmp_path_factory.mktemp("retrained") / "retrained", "retrained")
    ended = host_once.ended(host_once.start("retrain/retrained"), 240)
    assert ended["name"] == "retrained 2024-01 to 2024-02: promoted 1", ended["state"]
    pipeline.check(host_once)
    return pipeline
