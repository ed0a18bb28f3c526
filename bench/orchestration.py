"""What Prefect adds to a run, on PostgreSQL, a server and a worker of this machine; and four pipelines at once.

    python bench/orchestration.py [--pipelines 4]

Added to a run: the time from the creation of the flow run until the server has its end, less what the run itself takes (its
record's `seconds`). Between two stages: from the end of a task until the start of the next one, by the times that the server
has. Lock errors: lines of the server's and PostgreSQL's logs that speak of a lock, a deadlock or a serialization failure.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from common import header

sys.path.insert(0, str(Path(__file__).parent.parent))
import itertools

from tests.chaos.host import Host
from tests.chaos.tiny_pipeline import TinyPipeline

LOCK_ERRORS = re.compile(r"deadlock|could not obtain lock|database is locked|could not serialize|lock timeout", re.I)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pipelines", type=int, default=4, help="how many at once (4)")
    options = parser.parse_args()
    header("orchestration")
    with tempfile.TemporaryDirectory() as folder:
        host = Host(Path(folder) / "host")
        try:
            host.up()
            names = [f"pipeline-{number}" for number in range(options.pipelines)]
            pipelines = {name: TinyPipeline(Path(folder) / name, name) for name in names}
            host.headway("deploy", *(pipeline.folder for pipeline in pipelines.values()))
            _alone(host, pipelines[names[0]])
            _together(host, pipelines)
        finally:
            host.down()


def _alone(host: Host, pipeline: TinyPipeline) -> None:
    print("\n| one run | s in all | s of the run itself | added | before it | between two stages, at most |")
    print("| --- | --- | --- | --- | --- | --- |")
    for about in ("the first", "everything cached", "everything cached"):
        began = time.time()
        flow_run = host.ended(host.start(f"retrain/{pipeline.name}"), 600)
        ended = _seconds(flow_run["end_time"])
        record = pipeline.runs()[-1]
        itself = float(record["seconds"])
        tasks = _tasks(host, flow_run["id"])
        gaps = [later - end for (_, end), (later, _) in itertools.pairwise(tasks)]
        before = tasks[0][0] - began
        print(
            f"| {about} | {ended - began:.1f} | {itself:.1f} | {ended - began - itself:.1f} | {before:.1f} | {max(gaps):.2f} |",
            flush=True,
        )


def _together(host: Host, pipelines: dict[str, TinyPipeline]) -> None:
    for pipeline in pipelines.values():
        pipeline.land()
    runs = {name: host.start(f"retrain/{name}") for name in pipelines}
    ends = {name: host.ended(run, 900) for name, run in runs.items()}
    print(
        f"\n| {len(runs)} at once | began | ended | state | between two stages, at most |\n| --- | --- | --- | --- | --- |"
    )
    first = min(_seconds(run["start_time"]) for run in ends.values())
    spans = []
    for name, run in ends.items():
        spans.append((_seconds(run["start_time"]) - first, _seconds(run["end_time"]) - first))
        tasks = _tasks(host, run["id"])
        gap = max(later - end for (_, end), (later, _) in itertools.pairwise(tasks))
        print(f"| {name} | {spans[-1][0]:.1f} | {spans[-1][1]:.1f} | {run['name']} | {gap:.2f} |")
    both = min(end for _, end in spans) - max(start for start, _ in spans)
    print(f"\nall of them ran for {max(both, 0.0):.1f} s of the same time; lines about locks: {_lock_errors(host)}")
    waited = [line for run in runs.values() for line in host.logs(run) if "waiting for" in line]
    print(f"runs that waited for another: {len(waited)}")


def _tasks(host: Host, run: str) -> list[tuple[float, float]]:
    """The beginning and end of each task, in order; tasks are written down some time after the run has ended."""
    query = {"task_runs": {"flow_run_id": {"any_": [run]}}, "sort": "EXPECTED_START_TIME_ASC"}
    for _ in range(60):
        tasks: list[dict[str, Any]] = host.ask("/task_runs/filter", query)
        if tasks and all(task["end_time"] for task in tasks):
            break
        time.sleep(0.5)
    return sorted((_seconds(task["start_time"]), _seconds(task["end_time"])) for task in tasks)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _lock_errors(host: Host) -> int:
    logs = [host.home / "server.log", host.database.data / "server.log"]
    return sum(bool(LOCK_ERRORS.search(line)) for log in logs for line in log.read_text(errors="replace").splitlines())


if __name__ == "__main__":
    main()
