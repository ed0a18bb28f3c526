"""What a run did, what it found done, and how long each took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flows.records import Ran, RunRecord
from flows.tell.figures.drawing import FIRST, LINE
from flows.tell.figures.strips import Strips
from flows.tell.parts import Part, Table
from flows.tell.rerun_reasons import why_it_ran
from headway.messages import agree, counted, duration

_MOST_SPANS = 3


def what_ran(record: RunRecord) -> Part:
    """The steps of a run."""
    rows, ran, steps = _rows(record.stages), len(record.ran), len(record.stages)
    longest = max((row.seconds for row in rows), default=0.0) or 1.0
    strips = Strips(len(rows), height=14)
    for at, row in enumerate(rows):
        if row.took:
            strips.box(at, 0, row.seconds / longest, FIRST)
        else:
            strips.box(at, 0, 0.012, LINE)
    shown = [
        {"step": r.title, "what": r.what, "took": r.took, "time taken": svg, "why": r.why, "output": r.output}
        for r, svg in zip(rows, strips.svgs(), strict=True)
    ]
    reused = f"{steps - ran} {agree(steps - ran, 'was', 'were')} reused"
    sentence = f"{ran} of {counted(steps, 'step')} ran, {reused}; {duration(record.seconds)} in all."
    return Part("What ran", [sentence], tables=[Table("Steps of this run", shown)] if shown else [])


@dataclass(frozen=True)
class _Row:
    title: str
    what: str
    seconds: float
    took: str
    """Empty of what was reused."""
    why: str
    output: str


def _rows(stages: Sequence[Ran]) -> list[_Row]:
    """The steps, those of many spans together."""
    ingests = [step for step in stages if step.stage == "ingest"]
    if len(ingests) <= _MOST_SPANS:
        return [_row(step) for step in stages]
    ran = [step for step in ingests if not step.cached]
    whys = {_why(step) for step in ran}
    seconds = sum(step.seconds for step in ran)
    together = _Row(
        title=f"ingest, {counted(len(ingests), 'span')}",
        what=f"{len(ran)} ran, {len(ingests) - len(ran)} reused" if 0 < len(ran) < len(ingests) else _what(not ran),
        seconds=seconds,
        took=duration(seconds) if ran else "",
        why=whys.pop() if len(whys) == 1 else "",
        output="",
    )
    return [together, *(_row(step) for step in stages if step.stage != "ingest")]


def _row(step: Ran) -> _Row:
    took = "" if step.cached else duration(step.seconds)
    output = f"{step.stage}/{step.fingerprint[:12]}"
    return _Row(step.title, _what(step.cached), step.seconds, took, _why(step), output)


def _what(cached: bool) -> str:
    return "reused" if cached else "ran"


def _why(step: Ran) -> str:
    return "" if step.cached else why_it_ran(step.why, step.stage)
