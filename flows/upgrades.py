"""Reads what earlier versions wrote: each function takes the JSON of any version and returns it as this one writes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headway.evaluation import verdict
from headway.storage.fingerprint import NEVER_RUN, Difference
from headway.tasks.table import direction

FORMAT = 3
"""Of a run's record."""
_ON_COLUMN = re.compile(r"""column ('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")( is left out)?:? (.*)""", re.DOTALL)
_DIFFERENCE = re.compile(
    r"(?P<place>\w[^: ]*)(?: is (?P<lack>new|gone)|: (?P<order>another order)|: (?P<old>.*?)(?P<many> entries)? -> (?P<new>.*))",
    re.DOTALL,
)
_OUTCOMES = {"equal": verdict.WITHIN, "blocked": verdict.BEYOND}
"""Words of comparisons, before format 2 of a verdict."""


def upgraded(value: object) -> object:
    """The JSON of a run's record; what is none is returned as it is, for the model to refuse.

    Before format 2 metrics could hold tables, and what a run had not come to yet was null; before format 3 notes and the
    reasons of a verdict were sentences.
    """
    if not isinstance(value, Mapping):
        return value
    if isinstance(notes := value.get("notes"), list):
        value = {**value, "notes": [_note(note) for note in notes]}
    if isinstance(steps := value.get("stages"), list):
        value = {**value, "stages": [_step(step) for step in steps]}
    if value.get("format", 1) >= FORMAT:
        return value
    record = {name: each for name, each in value.items() if each is not None}
    if isinstance(metrics := record.get("metrics"), Mapping):
        record["metrics"] = _numbers(metrics)
    if isinstance(baselines := record.get("baselines"), Mapping):
        record["baselines"] = {who: _numbers(of) for who, of in baselines.items() if isinstance(of, Mapping)}
    if isinstance(decided := record.get("verdict"), Mapping):
        record["verdict"] = _verdict(decided)
    return record


def upgraded_result(stage: str, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer of a stage, in which metrics could hold tables, and notes and reasons were sentences."""
    if stage == "gate":
        return _verdict(result)
    if stage == "transform":
        return {**result, "notes": [_note(note) for note in result["notes"]]}
    if stage not in ("measure", "evaluate") or not isinstance(metrics := result.get("metrics"), Mapping):
        return result
    return {**result, "metrics": _numbers(metrics)}


def _note(note: object) -> object:
    """A note, of a sentence that begins with a column's name."""
    if not isinstance(note, str):
        return note
    found = _ON_COLUMN.fullmatch(note)
    if found is None:
        return {"text": note}
    return {"column": ast.literal_eval(found[1]), "left_out": bool(found[2]), "text": found[3]}


def _step(step: object) -> object:
    """A step of a run, whose reason was a sentence."""
    if not isinstance(step, Mapping) or not isinstance(why := step.get("why"), str):
        return step
    return {**step, "why": difference(why)}


def difference(why: str) -> Difference:
    """Why a step ran, of the sentence that `Difference` was before."""
    if why == "never run":
        return NEVER_RUN
    found = _DIFFERENCE.fullmatch(why)
    if found is None:
        return Difference(kind="damaged", new=why)
    place = tuple(re.findall(r"\[[^\]]*\]|[^.\[\]]+", found["place"]))
    kind = found["lack"] or ("order" if found["order"] else "entries" if found["many"] else "value")
    return Difference.model_validate(
        {"kind": kind, "place": place, "old": found["old"] or "", "new": found["new"] or ""}
    )


def _numbers(metrics: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in metrics.items() if value is None or isinstance(value, int | float)}


def _verdict(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Before format 2 reasons were sentences, and each kind of check had a form of its own."""
    if value.get("format", 1) >= verdict.FORMAT:
        return value
    found = {name: each for name, each in value.items() if each is not None}
    said = [{"summary": text} for text in found.get("reasons") or ()]
    blocked = said[:1] if not found.get("promote") or found.get("verdict") == "forced" else []
    found["reasons"] = [reason | {"verdict": found.get("verdict")} for reason in blocked]
    found["notes"] = said[len(blocked) :]
    found["alarms"] = [{"summary": text, "concern": True} for text in found.get("alarms") or ()]
    found["checks"] = list(_checks(found))
    compared = found.get("comparisons") or {}
    found["left_out"] = compared.get("left_out") or []
    if isinstance(champion := found.get("champion"), int):
        found["champion"] = {"version": champion}
    return found | {"format": verdict.FORMAT}


def _checks(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    rows = found.get("rows")
    for check in found.get("thresholds") or ():
        side = {"min": "at least", "max": "at most"}.get(check.get("bound"), "")
        kept = {name: check.get(name) for name in ("metric", "slice", "slice_value", "value", "passed")}
        outcome = "met" if check["passed"] else "missed"
        of = {"name": verdict.THRESHOLD, "allowed": check.get("limit"), "limit": side, "outcome": outcome}
        yield kept | of | {"rows": check.get("rows", rows)}
    compared, champion, early = (found.get(name) or {} for name in ("comparisons", "champion", "reference"))
    for each in [*_listed(compared, "overall"), *_listed(compared, "slices")]:
        yield _compared(each, verdict.CHAMPION, champion)
    for each in _listed(compared, "reference"):
        yield _compared(each, verdict.EARLY_CHAMPION, early)
    for name, each in (found.get("baselines") or {}).items():
        outcome = {"candidate better": "better", "baseline better": "worse"}.get(each["outcome"], each["outcome"])
        kept = {"metric": each["metric"], "better": each["better"], "interval": each["interval"], "against": name}
        values = {"value": each["candidate"], "before": each["baseline"], "change": each["difference"]}
        yield {"name": f"{name} baseline", "outcome": outcome, "rows": rows} | kept | values
    for each in found.get("decay") or ():
        kept = {"metric": each["metric"], "allowed": each["tolerance"], "outcome": verdict.BEYOND}
        yield {"name": "champion decay", "value": each["today"]["value"], "before": each["then"]["value"]} | kept


def _listed(compared: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    return compared.get(name) or ()


def _outcome(each: Mapping[str, Any]) -> str:
    """The word for a comparison; the first verdicts named none."""
    if "outcome" in each or each.get("failed"):
        return str(each.get("outcome", "blocked"))
    if each["interval"] is None:
        return verdict.NOT_COMPARED
    low, high = sorted(direction(each["metric"], each.get("better")) * end for end in each["interval"])
    if low > 0 or high < 0:
        return "better" if low > 0 else "worse"
    return "equal" if low >= -each["tolerance"] else verdict.CANNOT_TELL


def _compared(each: Mapping[str, Any], name: str, other: Mapping[str, Any]) -> dict[str, Any]:
    said = _outcome(each)
    low_enough = said == "worse" and abs(each["interval"][0]) <= each["tolerance"] >= abs(each["interval"][1])
    outcome = _OUTCOMES.get(said, said)
    outcome = (verdict.WITHIN if low_enough else verdict.CANNOT_TELL) if outcome == "worse" else outcome
    same = ("metric", "slice", "interval", "better", "error", "seed_deviation", "p", "p_adjusted", "detectable", "rows")
    return {field: each.get(field) for field in same} | {
        "name": name,
        "slice_value": each.get("value"),
        "against": f"version {other.get('version')}",
        "value": each["candidate"],
        "before": each["champion"],
        "change": each["difference"],
        "allowed": each.get("tolerance"),
        "limit": each.get("tolerance_of") or "",
        "outcome": outcome,
        "passed": not each.get("failed"),
    }
