"""Absolute thresholds of the candidate: over all evaluation rows, and on slices.

check_thresholds(config, models, values, findings)
# adds checks, and reasons such as "auc on carrier=UA (812 rows) is 0.61, below the required minimum of 0.7"
"""

from headway.evaluation.gate.findings import Findings
from headway.evaluation.gate.scored_models import ScoredModels
from headway.evaluation.gate_config import Bounds, GateConfig, slice_and_value
from headway.evaluation.slices import named, slice_rows
from headway.evaluation.verdict import THRESHOLD, Check
from headway.messages import counted, number, some


def check_thresholds(
    config: GateConfig, models: ScoredModels, values: dict[str, float | None], findings: Findings
) -> list[Check]:
    """Hold the candidate against every threshold.

    Args:
        values: its metrics over all rows.
    """
    before = len(findings.checks)
    for name, threshold in config.thresholds.items():
        _sides(
            findings,
            Check(name=THRESHOLD, metric=name, value=values[name], rows=len(models.candidate), outcome=""),
            threshold,
        )
        for key, bounds in threshold.slices.items():
            _on_slice(findings, config, models, name, key, bounds)
    return findings.checks[before:]


def note_met(checks: list[Check], findings: Findings) -> None:
    """Say what is met, if every threshold is; of a slice's values the one that is nearest to the limit."""
    if not all(check.passed for check in checks):
        return
    nearest: dict[tuple[object, ...], Check] = {}
    for check in checks:
        key = check.metric, check.slice, check.limit, check.allowed
        if key not in nearest or _room(check) < _room(nearest[key]):
            nearest[key] = check
    for check in nearest.values():
        where = f" on {named(check.slice, check.slice_value)}" if check.slice else ""
        findings.note(
            f"{check.metric}{where} is {number(check.value)}, {check.limit} {number(check.allowed)} is required",
            check=check,
        )


def _room(check: Check) -> float:
    return abs((check.value or 0.0) - (check.allowed or 0.0))


def _sides(findings: Findings, looked: Check, bounds: Bounds) -> None:
    value, metric = looked.value, looked.metric
    where = ""
    if looked.slice:
        where = f" on {named(looked.slice, looked.slice_value)} ({counted(looked.rows or 0, 'row')})"
    for side, limit, beyond in (
        ("at least", bounds.min, "below the required minimum"),
        ("at most", bounds.max, "above the allowed maximum"),
    ):
        if limit is None:
            continue
        passed = value is not None and (value >= limit if side == "at least" else value <= limit)
        facts = {
            "allowed": limit,
            "limit": side,
            "passed": passed,
            "outcome": "met" if passed else "missed" if value is not None else "no value",
        }
        check = findings.looked(looked.model_copy(update=facts))
        if value is None:
            findings.block(
                "reject", f"{metric}{where} has no value on these rows, and a threshold asks for one", check=check
            )
        elif not passed:
            findings.block("reject", f"{metric}{where} is {number(value)}, {beyond} of {number(limit)}", check=check)


def _on_slice(
    findings: Findings, config: GateConfig, models: ScoredModels, name: str, key: str, bounds: Bounds
) -> None:
    """A value that is named has to have rows and a value of the metric; of all values, those that have are looked at."""
    column, only = slice_and_value(key)
    rows, metric = models.judged(name)
    few: set[str] = set()
    enough: set[str] = set()
    unknown = looked = 0
    for value, at in slice_rows(models.candidate, column):
        if only not in (None, value):
            continue
        if len(at) < config.slice_min_rows:
            few.add(value)
            continue
        enough.add(value)
        measured = metric.on(rows.at(at))
        if measured is None and only is None:
            unknown += 1
            continue
        looked += 1
        check = Check(
            name=THRESHOLD, metric=name, slice=column, slice_value=value, value=measured, rows=len(at), outcome=""
        )
        _sides(findings, check, bounds)
    least = f"{config.slice_min_rows:,} rows (gate.slice_min_rows)"
    every = models.rows_by_value(column)
    lost = sorted(
        value
        for value, count in every.items()
        if only in (None, value) and count >= config.slice_min_rows and value not in enough
    )
    if looked:

        def unchecked(values: int, why: str, concern: bool = False) -> None:
            if values:
                findings.note(
                    f"{name} was not checked on {counted(values, 'value')} of {column} {why}", concern=concern
                )

        unchecked(len(few.difference(lost)), f"with fewer than {least}")
        unchecked(unknown, "on which it has no value")
        unchecked(len(lost), f"with {least} or more, of which the random sample has fewer: {some(lost, 5)}", True)
        return
    if only is None:
        why = f"no value of {column} has {least}" + (f" and a value of {name}" if unknown else "")
        why += " in the random sample" if lost else ""
    elif only in lost:
        why = f"of its {every[only]:,} rows the random sample has fewer than {least}"
    else:
        why = f"it has fewer than {least}" if few or only in every else "no evaluation row has this value"
    check = findings.looked(
        Check(name=THRESHOLD, metric=name, slice=column, slice_value=only, outcome="not checked", passed=False)
    )
    findings.block("reject", f"{name} cannot be checked on {key}: {why}", check=check)
