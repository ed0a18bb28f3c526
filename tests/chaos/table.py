"""The table of faults: what is done to what, how that has to end, and the test that proves it.

Tests take their rows from FAULTS by the fixture `row` (tests/conftest.py), which asserts their ends. The table of
docs/reliability.md is written from it and from what the tests measured, by the pytest plugin that this module is:

    pytest -m chaos -p tests.chaos.table                             # prints what was measured when the tests have ended
    pytest -m chaos -p tests.chaos.table --faults-into docs/reliability.md    # writes its table, between its marks

What was measured is a user property of a test, `faults`: (fault, where, the cells). What was not measured now is kept as it
was.
"""

from __future__ import annotations

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
        Fault("the machine sleeps", "past 3 schedules", "one Completed, the others Cancelled"),
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
        ),
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
        Fault("kill -9 of the worker", "in training", "Running, then Completed"),
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
        Fault("no worker takes the run (alarm late)", "before the run", "Late"),
    ],
    "tests/flows/test_deployed.py::test_one_gpu_is_for_one_training_and_either_half_is_cancelled_or_killed_and_resumed": [
        Fault("kill -9 of the second half", "in training", "Crashed"),
        Fault("kill -9 of the first half", "while it waits for the store's lock", "Crashed, and no second half"),
    ],
    "tests/flows/test_retrain.py::test_a_run_outlives_its_worker_and_ends_when_its_state_is_set": [
        Fault("kill -9 of the worker, then the run's state is set", "in training", "Running, then Cancelled"),
    ],
    "tests/flows/test_retrain.py::test_a_worker_that_dies_with_its_run_and_one_that_is_stopped": [
        Fault("kill -9 of the worker and the flow run's process", "while Pending", "Crashed: it did not start"),
        Fault("SIGTERM to the worker of a run that was started again", "in training", "Cancelled"),
    ],
    "tests/flows/test_killed_runs.py::test_a_run_killed_after_every_step_promotes_what_one_that_lived_does": [
        Fault(
            "kill -9 of headway run", "after each step, in a new store", "promoted, with the metrics of one that lived"
        ),
    ],
    "tests/flows/test_killed_runs.py::test_runs_killed_in_a_store_with_a_champion_lose_none_of_what_was_there": [
        Fault("kill -9 of headway run", "after each step, in a store with a champion", "no version is lost"),
    ],
    "tests/tfcore/train/test_killed.py::test_images_too_a_training_that_is_killed_again_and_again_ends_at_the_same_bits": [
        Fault("kill -9 of a training on images", "at a step, in a checkpoint", "the weights of one that lived"),
    ],
    "tests/tfcore/train/test_killed.py::test_a_killed_training_goes_on_with_the_same_patients_held_out": [
        Fault("kill -9 of a training on rows of units", "at a step", "the weights of one that lived"),
    ],
    "tests/tfcore/train/test_frozen_peer.py::test_a_peer_that_freezes_ends_the_other_within_half_a_minute": [
        Fault(
            "SIGSTOP to the chief of a cluster (TF_CONFIG)", "in training", "the other ends with an error within 30 s"
        ),
        Fault(
            "SIGSTOP to another worker of a cluster (TF_CONFIG)",
            "in training",
            "the other ends with an error within 30 s",
        ),
    ],
    "tests/tfcore/train/test_distributed.py"
    "::test_workers_that_are_stopped_and_killed_again_and_again_end_at_the_same_bits": [
        Fault(
            "kill -9 of a worker of a cluster (TF_CONFIG)",
            "at a step, in a checkpoint",
            "the weights of one that lived",
        ),
    ],
    "tests/tfcore/train/test_distributed.py"
    "::test_workers_on_images_that_are_killed_again_and_again_end_at_the_same_bits": [
        Fault("kill -9 of a worker on images", "at a step, in a checkpoint", "the weights of one that lived"),
    ],
    "tests/tfcore/train/test_distributed.py"
    "::test_a_mirrored_training_that_is_killed_again_and_again_ends_at_the_same_bits": [
        Fault("kill -9 of a mirrored training", "at a step, in a checkpoint", "the weights of one that lived"),
    ],
    "tests/headway/registry/test_killed.py::test_a_promotion_killed_anywhere_leaves_the_old_champion_or_the_new_one": [
        Fault("kill -9 of a promotion", "before each single write", "the old champion or the new one"),
    ],
    "tests/headway/registry/test_killed.py::test_a_rollback_killed_anywhere_leaves_the_old_champion_or_the_one_before": [
        Fault("kill -9 of a rollback", "before each single write", "the champion or the one before"),
    ],
    "tests/headway/registry/test_killed.py::test_an_alias_killed_anywhere_points_where_it_did_or_where_it_shall": [
        Fault("kill -9 of a change of an alias", "before each single write", "the old version or the new one"),
    ],
    "tests/headway/registry/test_killed.py::test_a_publication_killed_anywhere_leaves_a_whole_version_or_none": [
        Fault("kill -9 of a publication", "before each single write", "no new version or a whole one"),
    ],
    "tests/headway/registry/test_killed.py::test_a_collection_killed_anywhere_leaves_each_version_whole_or_gone": [
        Fault("kill -9 of a clean-up", "before each single write", "each version is whole or gone"),
    ],
    "tests/headway/registry/test_killed.py::test_a_commit_killed_anywhere_leaves_a_whole_output_or_none": [
        Fault("kill -9 of a commit", "before each single write", "no output or a whole one"),
    ],
    "tests/headway/storage/test_objects.py::test_commits_and_promotions_from_four_processes_lose_and_double_nothing": [
        Fault("four processes commit and promote at once", "on a disk, in a bucket", "each is there once"),
    ],
    "tests/headway/storage/test_objects.py"
    "::test_a_thousand_promotions_from_four_processes_are_one_history_and_each_is_served": [
        Fault("four processes promote at once, a thousand times", "on a disk, in a bucket", "one history, all served"),
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
"""What the tests of tests/chaos measure. The page has their table; what the others measure is only printed."""
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
        for row in faults if test.startswith("tests/chaos/") and test != SOAK else ():
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
