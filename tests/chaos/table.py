"""The table of faults: what is done to what, how that has to end, and the test that proves it.

Tests take their rows from FAULTS by the fixture `row`, which asserts their ends. The table of
docs/reliability.md is written from it and from what the tests measured, by the pytest plugin that this module is:

    pytest -m chaos -p tests.chaos.table                             # prints what was measured when the tests have ended
    pytest -m chaos -p tests.chaos.table --faults-into docs/reliability.md    # writes its table, between its marks

What was measured is a user property of a test, `faults`: (fault, where, the cells). What was not measured now is kept as it
was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRUE_WITHIN = 120.0
"""Seconds after a fault within which the server has to say what is true of a run."""


@dataclass(frozen=True)
class Fault:
    """A row of the table.

    Attributes:
        fault: what is done to what.
        where: in what, or when.
        end: how that has to end. Of a flow run: its state, and words of the state's message after a colon.
    """

    fault: str
    where: str
    end: str

    def is_end(self, seen: str | Mapping[str, Any]) -> bool:
        """Whether it ended so; `seen`: in the words of `end`, or the flow run as the server has it."""
        if isinstance(seen, str):
            return seen == self.end
        state, _, words = self.end.partition(": ")
        found = seen["state"]
        return state in (found["type"].title(), found["name"]) and words in (found["message"] or "")


SOAK = "tests/chaos/test_soak.py::test_scheduled_runs_with_a_fault_in_half_of_them_need_nobody"
ANY = "at any moment"

FAULTS: dict[str, Sequence[Fault]] = {
    "tests/chaos/test_clocks.py::test_a_machine_that_sleeps_past_three_schedules_does_the_work_once": [
        Fault("the machine sleeps", "past 3 schedules", "one Completed, the others Cancelled")
    ],
    "tests/chaos/test_deployments.py::test_code_or_a_pipeline_that_is_gone_is_said_and_the_next_run_goes_on": [
        Fault("the worker's environment has no Headway", "before the run", "Crashed: exited with status code"),
        Fault("the worker's Python is gone", "before the run", "Crashed: there is no program"),
        Fault("the pipeline's folder is renamed", "in training", "Failed: no such file"),
        Fault("the pipeline's folder is gone", "before the run", "Failed: no such file"),
    ],
    "tests/chaos/test_deployments.py::test_a_worker_of_a_headway_of_another_format_says_so_and_changes_nothing": [
        Fault(
            "a worker of a Headway of another format than the store's",
            "before the run",
            "Failed: was written by another Headway",
        )
    ],
    "tests/chaos/test_disks.py::test_a_disk_that_is_full_or_read_only_ends_the_run_and_the_next_ones_go_on": [
        Fault("the store's disk is full", "in training", "Failed: no space left on device"),
        Fault("the store becomes read-only", "in training", "Failed: read-only file system"),
        Fault("the store is read-only", "before the run", "Failed: read-only file system"),
    ],
    "tests/chaos/test_killed_processes.py::test_the_state_is_true_the_store_is_whole_and_the_champion_stays": [
        Fault("kill -9 of the TensorFlow process", "in training", "Failed: was ended by SIGKILL during this call"),
        Fault("kill -9 of the flow run's process", "in training", "Crashed"),
        Fault("kill -9 of the worker and the flow run's process", "in training", "Crashed: its process is gone"),
        Fault("SIGTERM to the flow run's process", "in training", "Cancelled: stopped"),
        Fault("SIGTERM to the worker", "in training", "Cancelled: stopped"),
    ],
    "tests/chaos/test_killed_processes.py::test_a_run_outlives_its_worker_and_the_next_worker_takes_the_next_run": [
        Fault("kill -9 of the worker", "in training", "Running, then Completed")
    ],
    "tests/chaos/test_outages.py::test_a_run_outlives_outages_of_the_server_and_of_its_database": [
        Fault("the server is away for 5 s (kill -9)", "in training", "Running"),
        Fault("PostgreSQL is away for 5 s (kill -9)", "in training", "Running"),
        Fault("the server is away for 60 s (kill -9)", "while the run ends", "Completed"),
    ],
    "tests/chaos/test_cut_off.py::test_a_run_that_is_called_crashed_and_lives_and_the_next_one_promote_once_at_most": [
        Fault(
            "a live run is cut off from the server, called Crashed, and comes back",
            "in training, beside another run",
            "Cancelled, the other Failed: nobody promotes",
        ),
        Fault(
            "a live run is cut off from the server, and called Crashed, to its end",
            "in training, beside another run",
            "Completed, the other Failed: one promotes",
        ),
    ],
    "tests/chaos/test_alarms.py::test_who_is_to_be_told_hears_of_a_run_that_is_late_and_of_a_model_that_is_held": [
        Fault("no worker takes the run (alarm late)", "before the run", "Late")
    ],
    SOAK: [
        Fault("none", "-", "Completed"),
        Fault("kill -9 of the TensorFlow process", ANY, "Completed or Failed"),
        Fault("kill -9 of the flow run's process", ANY, "Crashed"),
        Fault("kill -9 of the worker", ANY, "Completed"),
        Fault("kill -9 of the worker and the flow run's process", ANY, "Crashed"),
        Fault("SIGTERM to the flow run's process", ANY, "Cancelled or Crashed"),
        Fault("SIGTERM to the worker", ANY, "Cancelled or Crashed"),
        Fault("kill -9 of the server", ANY, "Completed"),
        Fault("kill -9 of PostgreSQL", ANY, "Completed or Crashed"),
    ],
}
"""By the test that proves them."""

COLUMNS = "true state after", "what the next run repeats"
"""What the tests measure."""
_Cells = dict[tuple[str, str], list[str]]
_FOUND: _Cells = {}


def written(page: str, measured: _Cells) -> str:
    """The page with its table written from FAULTS, the cells that were measured, and those that it has already."""
    begin, end = "<!-- faults: written by the tests -->\n", "<!-- faults: end -->\n"
    before, _, rest = page.partition(begin)
    old, _, after = rest.partition(end)
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in old.splitlines()]
    cells = {(line[0], line[1]): line[3:] for line in lines} | dict(measured)
    table = [["fault", "where", "expected end", *COLUMNS], ["---"] * (3 + len(COLUMNS))]
    for test, faults in FAULTS.items():
        for row in faults if test != SOAK else ():
            found = cells.get((row.fault, row.where), ["-"] * len(COLUMNS))
            table.append([row.fault, row.where, row.end, *found])
    return before + begin + "".join(f"| {' | '.join(line)} |\n" for line in table) + end + after


def pytest_addoption(parser):
    parser.addoption("--faults-into", metavar="FILE", help="write the table of faults into this Markdown file")


def pytest_runtest_logreport(report):
    if report.when == "call" and report.passed:
        for name, value in report.user_properties:
            if name == "faults":
                fault, where, cells = value
                _FOUND[fault, where] = list(map(str, cells))


def pytest_terminal_summary(terminalreporter, config):
    for key, cells in _FOUND.items():
        terminalreporter.write_line(" | ".join([*key, *cells]))
    if target := config.getoption("--faults-into"):
        page = Path(target)
        page.write_text(written(page.read_text(encoding="utf-8"), _FOUND), encoding="utf-8")
