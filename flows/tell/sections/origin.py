"""Where a run's model comes from, down to the raw files, and how to make it again."""

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress

import yaml

from flows.records import Code
from flows.tell.material import Material
from flows.tell.rendering.cells import Row
from flows.tell.rendering.parts import Part, Table
from headway.errors import HeadwayError
from headway.messages import counted, some
from headway.registry.registry import Registry

_MOST_FILES, _MOST_OUTPUTS = 400, 200


def origin(material: Material) -> Part:
    """The lineage: raw files, code, outputs."""
    record = material.record
    files = list(_files(material))
    sentences = list(_code(record.code))
    if record.version is not None:
        sentences.insert(0, f"Version {record.version} of {record.pipeline} was made by this run or is its champion.")
    tables = []
    if files:
        total = sum(file["bytes"] for file in files)
        sentences.append(f"{counted(len(files), 'raw file')}, {counted(total, 'byte')}, each with its checksum.")
        tables.append(_table("Raw files", files, _MOST_FILES))
    tools = [{"tool": name, "version": version} for name, version in (record.code.tools if record.code else {}).items()]
    outputs = [{"step": step.title, "output": f"stages/{step.stage}/{step.fingerprint}"} for step in record.stages]
    tables += [_table("Outputs in the store", outputs, _MOST_OUTPUTS)] if outputs else []
    tables += [Table("Tools", tools, folded=True)] if tools else []
    return Part("Where it comes from", sentences, tables=tables)


def _files(material: Material) -> Iterator[Row]:
    """The raw files, by span, as the version of this run keeps them; without their paths where nothing keeps those."""
    known = dict(material.files)
    if (number := material.record.version) is not None:
        registry = Registry(material.store, material.record.pipeline)
        with suppress(HeadwayError, OSError, KeyError):  # it was removed
            lineage = registry.lineage(registry.version(number))
            known = {span["span"]: span["files"] for span in lineage.get("spans", [])} | known
    for span, output in material.ingested().items():
        for file in known.get(span) or material.key(output.title).get("files") or []:
            yield {"span": span, "file": file.get("path", ""), "bytes": file["bytes"], "crc32c": file["crc32c"]}


def _table(title: str, rows: Sequence[Row], most: int) -> Table:
    note = (
        f"{counted(len(rows) - most, 'further row')}: lineage.json of the version has all" if len(rows) > most else ""
    )
    return Table(title, rows[:most], note, folded=True)


def _code(code: Code | None) -> Iterator[str]:
    if code is None:
        return
    if git := code.git:
        changed = f"changes in {some(git.changed, 5)} that are not committed" if git.changed else "nothing changed"
        yield f"Code: commit {git.commit[:12]} on {git.branch}, with {changed}."
    for file, digest in code.modules.items():
        yield f"Your module {file}: sha256 {digest[:16]}…"


def again(material: Material) -> Part:
    """The commands and the config that make the same model again."""
    record = material.record
    code, spans = record.code or Code(), record.spans
    commands = [f"git checkout {code.git.commit}"] if code.git else []
    if headway := code.tools.get("headway"):
        commands.append(f"pip install headway=={headway} tensorflow=={code.tools.get('tensorflow', '*')}")
    words = ["headway", "run", record.file or "."]
    words += ["--to", record.last] if record.last is not None else []
    words += ["--window", str(len(spans)), "--until", spans[-1]] if spans else []
    words += ["--seed", str(record.seed)] if record.seed is not None else []
    commands += [shlex.join(words), shlex.join(["headway", "show", record.file or ".", record.run])]
    texts = [("The config of this run, with what --set changed", _yaml(record.config))] if record.config else []
    said = "The same raw files, config, seed and code have the same fingerprints: what the store still has of them is not run "
    return Part("How to make it again", [said + "again."], commands=commands, texts=texts)


def _yaml(config: object) -> str:
    # through JSON: no tags of Python's, whatever a value's type
    return yaml.safe_dump(json.loads(json.dumps(config)), sort_keys=False, allow_unicode=True, width=110)
