"""What a run did, what it found done, and how long each took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flows.tell.figures.drawing import FIRST, LINE
from flows.tell.figures.strips import Strips
from flows.tell.parts import Part, Table
from flows.tell.rerun_reasons import why_it_ran
from headway.messages import agree, counted, duration

_MOST_SPANS = 3


def what_ran(record: Mapping[str, Any]) -> Part:
    """The steps of a run."""
    stages = _grouped(record.get("stages", []))
    longest = max((stage["seconds"] for stage in stages), default=0.0) or 1.0
    strips = Strips(len(stages), height=14)
    for row, stage in enumerate(stages):
        if not stage["cached"]:
            strips.box(row, 0, stage["seconds"] / longest, FIRST)
        else:
            strips.box(row, 0, 0.012, LINE)
    rows = [
        {
            "step": stage["title"],
            "what": "reused" if stage["cached"] else stage["ran"],
            "took": "" if stage["cached"] else duration(stage["seconds"]),
            "time taken": svg,
            "why": "" if stage["cached"] else _why(stage),
            "output": f"{stage['stage']}/{stage['fingerprint'][:12]}" if stage["fingerprint"] else "",
        }
        for stage, svg in zip(stages, strips.svgs(), strict=True)
    ]
    ran = sum(not stage["cached"] for stage in record.get("stages", []))
    all_of_them = len(record.get("stages", []))
    reused = f"{ran} of {counted(all_of_them, 'step')} ran, {all_of_them - ran} {agree(all_of_them - ran, 'was', 'were')} reused"
    sentences = [f"{reused}; {duration(record.get('seconds', 0.0))} in all."]
    return Part("What ran", sentences, tables=[Table("Steps of this run", rows)] if rows else [])


def _grouped(stages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The steps, those of many spans together."""
    ingests = [stage for stage in stages if stage["stage"] == "ingest"]
    if len(ingests) <= _MOST_SPANS:
        return [{"ran": "ran", **stage} for stage in stages]
    ran = [stage for stage in ingests if not stage["cached"]]
    whys = {_why(stage) for stage in ran}
    together = {
        "stage": "ingest",
        "title": f"ingest, {counted(len(ingests), 'span')}",
        "cached": not ran,
        "ran": "ran" if len(ran) == len(ingests) else f"{len(ran)} ran, {len(ingests) - len(ran)} reused",
        "seconds": sum(stage["seconds"] for stage in ran),
        "why": None,
        "said": whys.pop() if len(whys) == 1 else "",
        "fingerprint": "",
    }
    return [together, *({"ran": "ran", **stage} for stage in stages if stage["stage"] != "ingest")]


def _why(stage: Mapping[str, Any]) -> str:
    return str(stage.get("said") or why_it_ran(stage.get("why"), stage["stage"]))
