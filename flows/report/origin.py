"""What made a run: its steps with the reasons why they ran, its raw files, its code and its config.

in_words(first_difference(old, new), "train")      # "training.batch_size is 64, before 256"
steps_explained(store, record)                                  # the steps of a run, each with its reason
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress

import yaml

from flows.records import Code, RunRecord, StepRecord, records
from flows.report.model import Row, Section, Table
from flows.report.results import RunResults
from headway.config import Frozen
from headway.errors import HeadwayError
from headway.messages import agree, counted, duration, listed, some
from headway.registry.registry import Registry
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
    reason: str
    """Why it ran, or which run had made what was reused."""
    output: str
    """Its path."""
    kept: bool
    """The store still has it."""


def steps_explained(store: Store, record: RunRecord) -> list[Explained]:
    """The steps of a run."""
    made = _makers(store) if any(step.cached for step in record.stages) else {}

    def reason(step: StepRecord) -> str:
        if not step.cached:
            return why_it_ran(step.why, step.stage)
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


def _makers(store: Store) -> dict[str, str]:
    """{fingerprint: the last run that made this output}"""
    return {step.fingerprint: run.run for run in reversed(list(records(store))) for step in run.ran}


_MOST_FILES, _MOST_STEPS, _FEW_STEPS = 400, 200, 20


def what_ran(record: RunRecord) -> Section:
    """The steps of a run, each with the reason why it ran and its output."""
    ran, steps = len(record.ran), len(record.stages)
    rows: list[Row] = [
        {
            "step": step.title,
            "what": "reused" if step.cached else "ran",
            "took": "" if step.cached else duration(step.seconds),
            "why": "" if step.cached else why_it_ran(step.why, step.stage),
            "output": f"stages/{step.stage}/{step.fingerprint}",
        }
        for step in record.stages
    ]
    reused = f"{steps - ran} {agree(steps - ran, 'was', 'were')} reused"
    cut = f", broken off: {listed(record.broken_off)}" if record.broken_off else ""
    sentence = f"{ran} of {counted(steps, 'step')} ran, {reused}{cut}; {duration(record.seconds)} in all."
    shown = Table("Steps of this run", rows[-_MOST_STEPS:], _more(len(rows) - _MOST_STEPS), folded=steps > _FEW_STEPS)
    return Section("What ran", [sentence], tables=[shown] if rows else [])


def origin(results: RunResults) -> Section:
    """The lineage: raw files, code, tools, the config."""
    record = results.record
    files = list(_files(results))
    sentences = list(_code(record.code))
    if record.version is not None:
        sentences.insert(0, f"Version {record.version} of {record.pipeline} was made by this run or is its champion.")
    tables = []
    if files:
        total = sum(file["bytes"] for file in files)
        sentences.append(f"{counted(len(files), 'raw file')}, {counted(total, 'byte')}, each with its checksum.")
        tables.append(Table("Raw files", files[:_MOST_FILES], _more(len(files) - _MOST_FILES), folded=True))
    tools = [{"tool": name, "version": version} for name, version in (record.code.tools if record.code else {}).items()]
    tables += [Table("Tools", tools, folded=True)] if tools else []
    texts = [("The config of this run, with what --set changed", _yaml(record.config))] if record.config else []
    return Section("Where it comes from", sentences, tables=tables, texts=texts)


def _files(results: RunResults) -> Iterator[Row]:
    """The raw files, by span, as the version of this run keeps them; without their paths where nothing keeps those."""
    known = dict(results.files)
    if (number := results.record.version) is not None:
        registry = Registry(results.store, results.record.pipeline)
        with suppress(HeadwayError, OSError, KeyError):  # it was removed
            lineage = registry.lineage(registry.version(number))
            known = {span["span"]: span["files"] for span in lineage.get("spans", [])} | known
    for span, output in results.ingested().items():
        for file in known.get(span) or results.key(output.title).get("files") or []:
            yield {"span": span, "file": file.get("path", ""), "bytes": file["bytes"], "crc32c": file["crc32c"]}


def _more(count: int) -> str:
    return (
        f"{counted(count, 'further row')}: headway show, and lineage.json of the version, have all" if count > 0 else ""
    )


def _code(code: Code | None) -> Iterator[str]:
    if code is None:
        return
    if git := code.git:
        changed = f"changes in {some(git.changed, 5)} that are not committed" if git.changed else "nothing changed"
        yield f"Code: commit {git.commit[:12]} on {git.branch}, with {changed}."
    for file, digest in code.modules.items():
        yield f"Your module {file}: sha256 {digest[:16]}…"


def _yaml(config: object) -> str:
    # through JSON: no tags of Python's, whatever a value's type
    return yaml.safe_dump(json.loads(json.dumps(config)), sort_keys=False, allow_unicode=True, width=110)
