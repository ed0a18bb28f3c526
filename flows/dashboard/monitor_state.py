"""What `headway monitor` found and `headway watch` knows of a pipeline, for pages.

found = checked_spans(store, "flights")
found.rows[-1].span, found.rows[-1].alarms, found.problem
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import ValidationError

from flows.production.state_files import CheckedSpan, MonitorState, WatchState
from flows.records import problem_of
from headway.storage.store import Store


@dataclass(frozen=True)
class Checked:
    rows: list[CheckedSpan] = field(default_factory=list)
    """By champion as they came, then by span."""
    problem: str | None = None
    """Why what monitor found cannot be shown."""


def checked_spans(store: Store, pipeline: str) -> Checked:
    """Everything that monitor found of a pipeline's champions."""
    try:
        return Checked(MonitorState.load(store, pipeline).checked)
    except (OSError, ValueError) as error:
        return Checked(problem=_problem(f"monitor/{pipeline}.json", "monitor", error))


def waiting_spans(store: Store, pipeline: str) -> list[str]:
    """Sentences on what `headway watch` waits for or has started."""
    try:
        state = WatchState.load(store, pipeline)
    except (OSError, ValueError) as error:
        return [_problem(f"watch/{pipeline}.json", "watch", error)]
    said = [f"headway watch has handled everything up to {state.handled}."] if state.handled else []
    if state.pending is not None:
        said.append(f"It has started a retrain up to {state.pending.until}, attempt {state.pending.attempt}.")
    if state.seen:
        said.append(f"It waits for {', '.join(state.seen)} to be complete.")
    return said


def _problem(file: str, command: str, error: Exception) -> str:
    if not isinstance(error, ValidationError) or not error.errors()[0]["loc"]:  # it is no JSON object
        return f"{file} is damaged; headway {command} makes it anew"
    return f"{file} is not what {command} writes: {problem_of(error)}"
