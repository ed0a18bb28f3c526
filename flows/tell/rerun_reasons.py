"""Explains why a step is not cached: the differences from the most similar stored output.

in_words(first_difference(old, new), "train")      # "training.batch_size is 64, before 256"
steps_explained(store, record)                                  # the steps of a run, each with its reason
"""

import re

from pydantic import computed_field

from flows.records import RunRecord, records
from headway.config import Frozen
from headway.storage.fingerprint import Difference, texts
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
    "serving": "the file of logged requests",
    "rolled_back": "the list of rolled-back versions",
    "export": "the exported model",
    "slices": "the list of slices",
    "auto": "the list of columns whose transform is chosen",
    "searched": "the columns that are searched for the worst slices",
    "card": "the text of the model card",
}


def in_words(why: Difference | None, stage: str, never: str = "has not run yet") -> str:
    """The reason as a short sentence; a place in a key, and digests, are left to --explain.

    Args:
        never: what is said of a step that never ran.
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
        case "config" | "training" | "source" | "label" | "records":
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


def why_it_ran(why: Difference | None, stage: str) -> str:
    """The reason of a step that has run by now."""
    return in_words(why, stage, never="for the first time")


class Explained(Frozen):
    """A step of a run, with the reason why it ran or was reused."""

    stage: str
    title: str
    fingerprint: str
    cached: bool
    seconds: float
    differs: Difference | None
    """It ran: from the most similar output there was."""
    reason: str
    """The same in words; empty for one that was reused."""
    output: str
    """Its path."""
    kept: bool
    """The store still has it."""
    reads: "tuple[Read, ...]"
    made_by: str | None = None
    """Of one that was reused: the run that made it, and in how many seconds."""
    made_in: float | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def why(self) -> str | None:
        """What differs, with its place in the key."""
        return str(self.differs) if self.differs else None


class Read(Frozen):
    """A step of the run that another reads."""

    title: str
    cached: bool
    reason: str


def steps_explained(store: Store, record: RunRecord) -> list[Explained]:
    """The steps of a run."""
    steps: list[Explained] = []
    made = _makers(store) if any(step.cached for step in record.stages) else {}
    for step in record.stages:
        manifest = store.find(step.stage, step.fingerprint)
        key = dict(manifest.key) if manifest else {}
        inside = set(texts(key))
        made_by, made_in = made.get(step.fingerprint, (None, None)) if step.cached else (None, None)
        steps.append(
            Explained(
                **step.model_dump(exclude={"why", "span", "at"}),
                differs=step.why,
                reason="" if step.cached else why_it_ran(step.why, step.stage),
                output=str(store.output(step.stage, step.fingerprint)),
                kept=manifest is not None,
                reads=tuple(
                    Read(title=r.title, cached=r.cached, reason=r.reason) for r in steps if r.fingerprint in inside
                ),
                made_by=made_by,
                made_in=made_in,
            )
        )
    return steps


def _makers(store: Store) -> dict[str, tuple[str, float]]:
    """Return {fingerprint: (run, seconds)} of the last run that made each output."""
    return {step.fingerprint: (run.run, step.seconds) for run in reversed(list(records(store))) for step in run.ran}
