"""What a comparison comes to: which side is better, as far as the interval of their difference tells.

found = outcome_of("auc", {"difference": -0.1, "interval": [-0.12, -0.08]}, "higher")    # "worse": B is
ending = compared_ending(a, b, value)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from flows.tell.comparison.sides import Side
from flows.tell.ending import Ending, Tone
from headway.messages import counted, number, signed, window_text
from headway.tasks.table import direction, task_of

UNCLEAR: Literal["no clear difference"] = "no clear difference"
Outcome = Literal["better", "worse", "no clear difference", ""]
_TONES: dict[str, Tone] = {"better": "green", "worse": "red"}


def primary_of(a: Side, b: Side) -> tuple[str | None, str | None]:
    """The metric that decides and which values of it are better, as the gate of a side has them, else the task; (None, None)
    where no metric is known of both."""
    both = [name for name in a.facts["metrics"] if name in b.facts["metrics"]]
    for side in (b, a):
        verdict = side.material.verdict
        if verdict is not None and verdict.primary in both:
            return verdict.primary, verdict.better
    task = a.facts["task"]
    own = task is None or ":" in task
    if not own and task_of(task).primary in both:
        return task_of(task).primary, None
    return (both[0], None) if both else (None, None)


def outcome_of(metric: str, spread: Mapping[str, Any] | None, better: str | None = None) -> Outcome:
    """Whether B is better by a metric: the interval of B - A lies wholly on one side of 0."""
    if spread is None or spread.get("interval") is None or spread.get("difference") is None:
        return ""
    low, high = spread["interval"]
    if low <= 0 <= high:
        return UNCLEAR
    return "better" if (low > 0) == (direction(metric, better) > 0) else "worse"


def compared_ending(a: Side, b: Side, value: Mapping[str, Any]) -> Ending:
    """The comparison in one sentence, and what differs between the two.

    Args:
        value: of the comparison.
    """
    word, tone, headline = _verdict(a, b, value["difference"])
    return Ending(word=word, tone=tone, headline=headline, reasons=tuple(_differing(value, a.title, b.title)))


def _verdict(a: Side, b: Side, found: Mapping[str, Any] | None) -> tuple[str, Tone, str]:
    without = [side.title for side in (a, b) if not side.facts["metrics"]]
    if without:
        sentence = (
            f"{' and '.join(without)} {'has' if len(without) == 1 else 'have'} no metrics: nothing was evaluated."
        )
        return "not evaluated", "plain", capital(sentence)
    if a.facts["task"] != b.facts["task"]:
        if gone := [side.title for side in (a, b) if side.facts["task"] is None]:
            return "not compared", "amber", f"It cannot be told which one is better: {_task_gone(gone[0])}."
        known = [f"{side.title} has the task {side.facts['task']}" for side in (a, b)]
        return "different tasks", "plain", capital(f"{known[0]}, {known[1]}: their metrics do not compare.")
    metric, better = primary_of(a, b)
    if metric is None:
        return "different metrics", "plain", capital(f"{a.title} and {b.title} have no metric in common.")
    values = [number(side.facts["metrics"][metric]["value"]) for side in (a, b)]
    spread = found["metrics"].get(metric) if found else None
    if found is None or spread is None:
        why = "the interval of their difference is not known" if found else why_none(a, b)
        levels = [f"{value} in {side.title}{_of_spans(side)}" for value, side in zip(values, (a, b), strict=True)]
        return (
            "not compared",
            "amber",
            f"It cannot be told which one is better: {metric} is {' and '.join(levels)}; {why}.",
        )
    apart = f"{metric} {signed_spread(spread)}"
    rows = f"on the {counted(found['rows'], 'row')} that both scored"
    outcome = outcome_of(metric, spread, better)
    if outcome in _TONES:
        sentence = f"{b.title} is {outcome} than {a.title}: {apart} {rows}."
        return f"{b.label} is {outcome}", _TONES[outcome], capital(sentence)
    said = "No clear difference between" if outcome else "The difference has no interval, so nothing is clear between"
    return UNCLEAR, "plain", f"{said} {a.title} and {b.title}: {apart} {rows}."


def _of_spans(side: Side) -> str:
    spans = side.facts["spans"]["eval"]
    return f" (rows of {window_text(spans)})" if spans else ""


def why_none(a: Side, b: Side) -> str:
    """Why no difference is computed between the two."""
    task = a.facts["task"]
    if task != b.facts["task"]:
        if gone := [side.title for side in (a, b) if side.facts["task"] is None]:
            return _task_gone(gone[0])
        return "metrics do not compare: their tasks differ"
    if task is not None and ":" in task:
        told = f"no difference is computed of {task}, a task of your own"
        return f"{told}; where the gate judged one against the other, its reasons have it"
    return "metrics are of different rows: no run scored the same rows with both"


def _task_gone(title: str) -> str:
    return f"the store no longer has the evaluation of {title}, and so its task is not known"


def _differing(value: Mapping[str, Any], a: str, b: str) -> list[str]:
    said = []
    data = value["data"]
    for key, title in (("only_a", a), ("only_b", b)):
        if data[key]:
            said.append(f"{counted(len(data[key]), 'training span')} only in {title}")
    if data["files_changed"]:
        said.append(f"the raw files of {counted(len(data['files_changed']), 'span')} changed in between")
    columns = value["columns"] or {}
    if changed := sum(len(names) for names in columns.values()):
        said.append(f"{counted(changed, 'column')} differ" + ("s" if changed == 1 else ""))
    if value["config"]:
        said.append(f"{counted(len(value['config']), 'setting')} differ" + ("s" if len(value["config"]) == 1 else ""))
    if value["code"]:
        said.append(f"the code or its tools differ: {', '.join(each['key'] for each in value['code'][:4])}")
    return [capital(each) for each in said] or [
        "No difference in data, columns, settings or code, as far as they were kept"
    ]


def rows_of_both(found: Mapping[str, Any]) -> str:
    """The rows on which two sides are compared, and who scored them."""
    return f"{counted(found['rows'], 'row')} that " + (
        f"run {found['run']} scored with both" if found["run"] else "each one's own run scored"
    )


def signed_spread(spread: Mapping[str, Any]) -> str:
    """A difference with its interval."""
    interval = spread["interval"]
    return signed(spread["difference"]) + (f" ({signed(interval[0])} to {signed(interval[1])})" if interval else "")


def capital(text: str) -> str:
    """A text that begins a sentence."""
    return text[:1].upper() + text[1:]
