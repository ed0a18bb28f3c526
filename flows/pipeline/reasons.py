"""The reasons why steps ran or would run, in words; and the steps of a run, each with its reason.

reason_text(first_difference(old, new), "train")      # "training.batch_size is 64, before 256"
steps_explained(store, record)                     # for `headway show`
"""

import re

from flows.records import RunRecord, StepRecord, records
from headway.config import Frozen
from headway.storage.fingerprint import Difference
from headway.storage.store import Store

_DIGEST = re.compile(r"\b[0-9a-f]{16,}\b")
_AS_THEY_ARE = (
    "transform",
    "predictions",
    "champion",
    "examples",
    "schema",
    "columns",
    "verdict",
    "evaluation",
    "split",
)
_NAMES = {name: f"the {name}" for name in _AS_THEY_ARE} | {
    "statistics": "the statistics of the window",
    "analysed": "the statistics of the computed columns",
    **dict.fromkeys(("train", "model"), "the trained model"),
    "candidate": "the candidate's predictions",
    **dict.fromkeys(("beside", "scored"), "the champion's predictions"),
    **dict.fromkeys(("spans", "parts"), "the spans of the window"),
    "eval": "the spans of eval",
    "splits": "the proof of the splits",
    **dict.fromkeys(("features", "stored"), "the columns"),
    "read": "the columns that are read",
    "module": "your Python module",
    "file": "a file of the pipeline",
    "serving": "the file of serving rows",
    "rolled_back": "the list of rolled-back versions",
    "export": "the exported model",
    "slices": "the list of slices",
    "auto": "the list of columns whose transform is chosen",
    "searched": "the columns that are searched for the worst slices",
    "card": "the text of the model card",
}


def reason_text(why: Difference | None, stage: str, never: str = "has not run yet") -> str:
    """Returns the reason why a step runs, as a short phrase without digests (--explain has them); empty if `why` is None.

    Args:
        never: the phrase for a step that has never run.
    """
    if why is None:
        return ""
    if why.kind == "never run" or (why.kind == "new" and why.place == ("model", "version")):
        return never
    if why.kind in ("damaged", "follows"):
        return str(why)
    first, names = why.place[0], [name for name in why.place if not name.startswith("[")]
    digest, counted = bool(_DIGEST.search(f"{why.old} {why.new}")), why.kind == "entries"
    match first:
        case "span" if why.kind == "value":
            return f"span {why.new} is new"
        case "files":
            return "a file of this span changed, came or went"
        case "version":
            back = why.old.isdecimal() and why.new.isdecimal() and int(why.new) < int(why.old)
            return f"Headway's code of this stage is {'older' if back else 'newer'}"
        case "config" | "training" | "source" | "label":
            key = ".".join(names[1:] if first == "config" else names)
            plain = why.kind == "value" and not digest and "{" not in why.old + why.new
            return f"{key} is {why.new}, before {why.old}" if plain else f"{key} changed"
        case "inputs" if counted:
            return f"the window has {why.new} spans in {names[-1]}, before {why.old}"
        case "inputs" if stage in ("statistics", "splits"):
            return "the spans of the window changed"
    known = [_NAMES[name] for name in (names[-1:] if stage == "evaluate" else []) + names if name in _NAMES]
    if known:
        return f"{known[-1] if first in ('inputs', 'model') else known[0]} changed"
    return str(why) if why.kind == "value" and not digest else f"{'.'.join(names)} changed"


class Explained(Frozen):
    """A step of a run, with the reason why it ran or was reused."""

    stage: str
    title: str
    fingerprint: str
    cached: bool
    seconds: float
    reason: str
    """Why it ran, or which run made the output that was reused."""
    output: str
    """The path of its output."""
    kept: bool
    """Whether the store still has the output."""


def steps_explained(store: Store, record: RunRecord) -> list[Explained]:
    """Returns the steps of a run, each with the reason why it ran or was reused."""
    cached = any(step.cached for step in record.stages)
    last_first = reversed(list(records(store))) if cached else ()  # the last run that made an output is named
    made = {step.fingerprint: run.run for run in last_first for step in run.executed_steps}

    def reason(step: StepRecord) -> str:
        if not step.cached:
            return reason_text(step.why, step.stage, never="for the first time")
        return f"made by run {made[step.fingerprint]}" if step.fingerprint in made else ""

    return [
        Explained(
            **step.model_dump(include={"stage", "title", "fingerprint", "cached", "seconds"}),
            reason=reason(step),
            output=str(store.output(step.stage, step.fingerprint)),
            kept=store.find(step.stage, step.fingerprint) is not None,
        )
        for step in record.stages
    ]
