"""What a run did, what it found done, when, and how long each took."""

from collections.abc import Iterator, Sequence

from flows.records import RunRecord, StepRecord
from flows.tell.figures.drawing import FIRST, LINE
from flows.tell.figures.strips import Box, strip
from flows.tell.rendering.cells import Row
from flows.tell.rendering.parts import Part
from flows.tell.rendering.tables import Table
from flows.tell.rerun_reasons import why_it_ran
from headway.messages import agree, counted, duration, listed

_MOST_SPANS = 3


def what_ran(record: RunRecord) -> Part:
    """The steps of a run."""
    ran, steps = len(record.ran), len(record.stages)
    rows = list(_rows(record.stages))
    reused = f"{steps - ran} {agree(steps - ran, 'was', 'were')} reused"
    cut = f", broken off: {listed(record.broken_off)}" if record.broken_off else ""
    sentence = f"{ran} of {counted(steps, 'step')} ran, {reused}{cut}; {duration(record.seconds)} in all."
    return Part("What ran", [sentence], tables=[Table("Steps of this run", rows)] if rows else [])


def _rows(stages: Sequence[StepRecord]) -> Iterator[Row]:
    """The steps, those of many spans together."""
    ingests = [step for step in stages if step.stage == "ingest"]
    together = [[step] for step in stages]
    if len(ingests) > _MOST_SPANS:
        together = [ingests, *([step] for step in stages if step.stage != "ingest")]
    seconds = [sum(step.seconds for step in steps if not step.cached) for steps in together]
    ends = [max((step.at or 0.0 for step in steps), default=0.0) for steps in together]
    whole = max([*ends, *seconds], default=0.0) or 1.0
    for steps, took, end in zip(together, seconds, ends, strict=True):
        begin = max(end - took, 0.0) / whole
        ran = [step for step in steps if not step.cached]
        reused, kept = not ran, len(steps) - len(ran)
        whys = {why_it_ran(step.why, step.stage) for step in ran}
        yield {
            "step": steps[0].title if len(steps) == 1 else f"ingest, {counted(len(steps), 'span')}",
            "what": "reused" if reused else "ran" if not kept else f"{len(ran)} ran, {kept} reused",
            "took": duration(took) if ran else "",
            "when": strip([Box(begin, begin + max(took / whole, 0.012), LINE if reused else FIRST)]),
            "why": whys.pop() if len(whys) == 1 else "",
        }
