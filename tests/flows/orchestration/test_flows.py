"""What keeps a flow run's process alive when its worker dies, or the server is away."""

import inspect
import logging
import os
import subprocess
import sys
import textwrap

import pytest
from prefect import flow_engine
from prefect.exceptions import CancelledRun, FailedRun

from flows.orchestration.flows import go_on_without_lease


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_printing_outlives_the_reader(closed):
    script = """
        import logging, subprocess, sys
        from rich.console import Console
        early = Console(file=sys.stderr)  # such as a log handler of Prefect's, which was there before
        from flows.orchestration.flows import outlive_reader
        outlive_reader()
        sys.stdin.readline()
        for _ in range(3):
            print("a line", flush=True)
            for console in (Console(), early):
                console.print("rich ends a process whose pipe is broken")
            logging.warning("to stderr")
        subprocess.run([sys.executable, "-c", "print(1)"], check=True)
        raise SystemExit(7)
    """
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdin=subprocess.PIPE, **{closed: write}
    )
    os.close(write)
    os.close(read)  # the worker died
    process.communicate(b"\n", timeout=60)
    assert process.returncode == 7


def test_a_flow_run_goes_on_without_the_lease_of_its_slot(monkeypatch):
    """By the private name flow_engine.maintain_concurrency_lease: it fails where a version's engine calls another."""
    given = []
    monkeypatch.setattr(flow_engine, "maintain_concurrency_lease", lambda *arguments, **options: given.append(options))
    go_on_without_lease()
    flow_engine.maintain_concurrency_lease("a lease", 300, raise_on_lease_renewal_failure=True)
    assert given == [{"raise_on_lease_renewal_failure": False}]
    body = inspect.getsource(flow_engine.FlowRunEngine.setup_run_context)
    assert "maintain_concurrency_lease(" in body and "raise_on_lease_renewal_failure" in body


@pytest.mark.parametrize(
    ("error", "kept"), [(FailedRun("no span"), False), (CancelledRun("stopped"), False), (OSError("away"), True)]
)
def test_prefects_traceback_of_a_state_that_has_words_is_no_line_of_the_log(error, kept):
    logger, exited = logging.getLogger("prefect.flow_runs"), "Engine execution exited with unexpected exception"
    record = logger.makeRecord(logger.name, logging.ERROR, "", 0, exited, (), (type(error), error, None))
    assert bool(logger.filter(record)) == kept
