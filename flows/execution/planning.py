"""What a run would do, and why, as plain values: for `headway plan` and `Pipeline.plan`.

planned(run_spec)["steps"]      # [{"step": "train", "cached": False, "why": "config.training.steps: 100 -> 200", ...}, ...]
"""

from __future__ import annotations

from typing import Any

from flows.dag.dag import run_dag
from flows.dag.run_spec import RunSpec
from flows.execution.engine import Planner


def planned(run_spec: RunSpec) -> dict[str, Any]:
    """Go through the DAG without running or writing anything.

    Returns:
        window (its size; None: all spans), spans, steps (step, stage, fingerprint, cached, why: of each step that is known
        already), later (stages that depend on the verdict), notes, training (the chosen settings, None until they can be
        known), verdict (None: not known yet).
    """
    result = run_dag(run_spec, Planner(run_spec.store), freeze=False)
    steps: list[dict[str, Any]] = [
        {"step": o.title, "stage": o.stage, "fingerprint": o.fingerprint, "cached": o.hit, "why": o.why}
        for o in result.outputs
    ]
    verdict = result.verdict.verdict if result.verdict else None
    value: dict[str, Any] = {"window": run_spec.chosen_window.size, "spans": result.spans, "steps": steps}
    value |= {"later": result.later, "notes": [str(note) for note in result.notes]}
    return value | {"training": result.training, "verdict": verdict}
