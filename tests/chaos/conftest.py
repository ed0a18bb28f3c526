"""One PostgreSQL, server, watch and worker for all tests of faults, and tiny pipelines deployed on them."""

import shutil
from pathlib import Path

import pytest

from tests.chaos.host import Host
from tests.chaos.tiny_pipeline import TinyPipeline


def pytest_collection_modifyitems(items):
    """One process for all tests that share the host, where pytest-xdist deals tests by group."""
    for item in items:
        if "host" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("host"))
            item.add_marker(pytest.mark.prefect_server)


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
    """The host, with everything up: what the test before killed is started again."""
    if not all(host_once.pid(name) for name in ("server", "watch", "worker")) or not host_once.healthy():
        host_once.database.start()
        host_once.up()
    return host_once


@pytest.fixture
def deployed(host, tmp_path):
    """deployed(name, extra="") -> a TinyPipeline that `headway deploy` has put on the server."""

    def make(name, extra=""):
        pipeline = TinyPipeline(tmp_path / name, name, extra)
        host.headway("deploy", pipeline.folder)
        return pipeline

    return make


@pytest.fixture
def row(record_property):
    """row(fault, seen, seconds, repeats): a row of the table in docs/reliability.md; see tests.chaos.table.

    Args:
        fault: what was done to what.
        seen: the state of the run, and the first words of its message.
        seconds: from the fault's end until the server said what is true.
        repeats: what the next run did again.
    """

    def note(fault, seen, seconds, repeats):
        record_property("fault", {"fault": fault, "seen": seen, "seconds": seconds, "repeats": repeats})

    return note
