"""Absolute thresholds of the candidate: over all evaluation rows, and on slices.

checked = check_thresholds(config, models, values)
checked.failures                     # ["auc on carrier=UA (812 rows) is 0.61, below the required minimum of 0.7"]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headway.evaluation.gate.scored_models import ScoredModels
from headway.evaluation.gate_config import Bounds, GateConfig, slice_and_value
from headway.evaluation.slices import named, slice_rows
from headway.messages import counted, number


@dataclass(kw_only=True)
class Checked:
    """What became of each threshold."""

    checks: list[dict[str, Any]] = field(default_factory=list)
    """metric, bound (min or max), limit, value, passed, reason; on a slice also on (as the config has it),
    slice, slice_value and rows."""
    notes: list[str] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        return [check["reason"] for check in self.checks if not check["passed"]]

    @property
    def met(self) -> str | None:
        """One sentence, if every threshold is met; of a slice's values it names the one that is nearest to the limit."""
        if not self.checks or self.failures:
            return None
        nearest: dict[tuple[str, str | None, str], dict[str, Any]] = {}
        for check in self.checks:
            key = check["metric"], check.get("on"), check["bound"]
            room = abs(check["value"] - check["limit"])
            if key not in nearest or room < abs(nearest[key]["value"] - nearest[key]["limit"]):
                nearest[key] = check
        return "every threshold is met: " + ", ".join(_met(check) for check in nearest.values())


def _met(check: dict[str, Any]) -> str:
    sign = "at least" if check["bound"] == "min" else "at most"
    where = f" on {check['where']}" if "where" in check else ""
    return f"{check['metric']}{where} {number(check['value'])} ({sign} {number(check['limit'])})"


def check_thresholds(config: GateConfig, models: ScoredModels, values: dict[str, float | None]) -> Checked:
    """Hold the candidate against every threshold.

    Args:
        values: its metrics over all rows.
    """
    checked = Checked()
    for name, threshold in config.thresholds.items():
        checked.checks += _sides(name, threshold, values[name])
        for key, bounds in threshold.slices.items():
            _on_slice(checked, config, models, name, key, bounds)
    return checked


def _sides(name: str, bounds: Bounds, value: float | None, **at: Any) -> Iterator[dict[str, Any]]:
    where = f" on {at['where']} ({counted(at['rows'], 'row')})" if at else ""
    for side, limit in (("min", bounds.min), ("max", bounds.max)):
        if limit is None:
            continue
        passed = value is not None and (value >= limit if side == "min" else value <= limit)
        beyond = "below the required minimum" if side == "min" else "above the allowed maximum"
        reason: str | None = f"{name}{where} is {number(value)}, {beyond} of {number(limit)}"
        if value is None:
            reason = f"{name}{where} has no value on these rows, and a threshold asks for one"
        facts = {"metric": name, "bound": side, "limit": limit, "value": value, "passed": passed}
        yield facts | {"reason": None if passed else reason} | at


def _on_slice(checked: Checked, config: GateConfig, models: ScoredModels, name: str, key: str, bounds: Bounds) -> None:
    """A value that is named has to have rows and a value of the metric; of all values, those that have are looked at."""
    column, only = slice_and_value(key)
    rows, metric = models.judged(name)
    small = unknown = looked = 0
    for value, at in slice_rows(models.candidate, column):
        if only not in (None, value):
            continue
        if len(at) < config.slice_min_rows:
            small += 1
            continue
        measured = metric.on(rows.at(at))
        if measured is None and only is None:
            unknown += 1
            continue
        looked += 1
        facts = {"on": key, "slice": column, "slice_value": value, "where": named(column, value), "rows": len(at)}
        checked.checks += _sides(name, bounds, measured, **facts)
    least = f"{config.slice_min_rows:,} rows (gate.slice_min_rows)"
    if looked:
        left_out = ((small, f"with fewer than {least}"), (unknown, "on which it has no value"))
        checked.notes += [
            f"{name} was not checked on {counted(values, 'value')} of {column} {why}"
            for values, why in left_out
            if values
        ]
        return
    if only is None:
        why = f"no value of {column} has {least}" + (f" and a value of {name}" if unknown else "")
    else:
        why = f"it has fewer than {least}" if small else "no evaluation row has this value"
    reason = f"{name} cannot be checked on {key}: {why}"
    facts = dict.fromkeys(("bound", "limit", "value")) | {"passed": False, "reason": reason}
    checked.checks.append({"metric": name, "on": key, "slice": column, "slice_value": only, **facts})
