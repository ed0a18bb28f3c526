"""Which side of a comparison is better, as far as the interval of their difference tells."""

from __future__ import annotations

from collections.abc import Sequence

from flows.tell.comparison.same_rows import OnSlice, SameRows, Spread
from flows.tell.comparison.sides import Side
from flows.tell.ending import Ending, Tone
from flows.tell.paired import UNCLEAR, change_text, outcome_of
from headway.evaluation.verdict import Check
from headway.messages import counted
from headway.metrics.base import Better
from headway.tasks.table import task_of

_TONES: dict[str, Tone] = {"better": "green", "worse": "red"}


def primary_of(a: Side, b: Side) -> tuple[str | None, Better | None]:
    """The metric that decides and which values of it are better, as the gate of a side has them, else the task; (None, None)
    where no metric is known of both."""
    both = [name for name in a.metrics if name in b.metrics]
    for side in (b, a):
        verdict = side.material.verdict
        if verdict is not None and verdict.primary in both:
            return verdict.primary, verdict.better
    own = a.task is None or ":" in a.task
    if not own and task_of(str(a.task)).primary in both:
        return task_of(str(a.task)).primary, None
    return (both[0], None) if both else (None, None)


def apart(a: Side, b: Side, same: SameRows | None) -> list[Check]:
    """B against A by every metric on the same rows; that which decides comes first."""
    primary, better = primary_of(a, b)
    found = same.metrics if same is not None else {}
    return [
        check_of(name, each.a, each.b, each, better if name == primary else None)
        for name, each in sorted(found.items(), key=lambda item: item[0] != primary)
    ]


def check_of(
    metric: str, a: float | None, b: float | None, apart: Spread | OnSlice, better: Better | None, **where: object
) -> Check:
    """A metric of both as a check, whose change is B - A."""
    made = {"name": "same rows", "metric": metric, "before": a, "value": b, "better": better, "outcome": "", **where}
    return Check.model_validate(made | {"change": apart.difference, "interval": apart.interval})


def compared_ending(a: Side, b: Side, same: SameRows | None, differing: Sequence[str]) -> Ending:
    """The comparison in one sentence, and what differs between the two."""
    word, tone, headline = _verdict(a, b, same)
    return Ending(word=word, tone=tone, headline=capital(headline), reasons=tuple(map(capital, differing)))


def _verdict(a: Side, b: Side, same: SameRows | None) -> tuple[str, Tone, str]:
    if without := [side.title for side in (a, b) if not side.metrics]:
        has = "has" if len(without) == 1 else "have"
        return "not evaluated", "plain", f"{' and '.join(without)} {has} no metrics: nothing was evaluated."
    cannot = "It cannot be told which one is better"
    if a.task != b.task:
        if None in (a.task, b.task):
            return "not compared", "amber", f"{cannot}: {why_none(a, b)}."
        known = [f"{side.title} has the task {side.task}" for side in (a, b)]
        return "different tasks", "plain", f"{known[0]}, {known[1]}: their metrics do not compare."
    metric, _ = primary_of(a, b)
    if metric is None:
        return "different metrics", "plain", f"{a.title} and {b.title} have no metric in common."
    found = next((each for each in apart(a, b, same) if each.metric == metric), None)
    if same is None or found is None:
        why = "the interval of their difference is not known" if same else why_none(a, b)
        return "not compared", "amber", f"{cannot} by {metric}: {why}."
    by = f"{metric} {change_text(found)} on the {counted(same.rows, 'row')} that both scored"
    if (outcome := outcome_of(found)) in _TONES:
        return f"{b.label} is {outcome}", _TONES[outcome], f"{b.title} is {outcome} than {a.title}: {by}."
    between = (
        "No clear difference between"
        if found.outcome
        else "The difference has no interval, so nothing is clear between"
    )
    return UNCLEAR, "plain", f"{between} {a.title} and {b.title}: {by}."


def why_none(a: Side, b: Side) -> str:
    """Why no difference is computed between the two."""
    if a.task != b.task:
        if gone := [side.title for side in (a, b) if side.task is None]:
            return f"the store no longer has the evaluation of {gone[0]}, and so its task is not known"
        return "metrics do not compare: their tasks differ"
    if a.task is not None and ":" in a.task:
        told = f"no difference is computed of {a.task}, a task of your own"
        return f"{told}; where the gate judged one against the other, its reasons have it"
    return "metrics are of different rows: no run scored the same rows with both"


def capital(text: str) -> str:
    """A text that begins a sentence."""
    return text[:1].upper() + text[1:]
