"""Where a run's model comes from, down to the raw files, and how to make it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from flows.records import Code
from flows.tell.material import Material
from flows.tell.parts import Part, Table
from headway.errors import HeadwayError
from headway.messages import counted, some
from headway.registry import lineage as lineages
from headway.registry.registry import Registry

_MOST_FILES, _MOST_OUTPUTS = 400, 200


def origin(material: Material) -> Part:
    """The lineage: raw files, code, outputs."""
    record = material.record
    known = _recorded(material)
    files = list(_files(material, known))
    sentences = list(_code(record.code))
    if record.version is not None:
        sentences.insert(0, f"Version {record.version} of {record.pipeline} was made by this run or is its champion.")
    tables = []
    if files:
        total = sum(file["bytes"] for file in files)
        sentences.append(f"{counted(len(files), 'raw file')}, {counted(total, 'byte')}, each with its checksum.")
        tables.append(_table("Raw files", [_file(file) for file in files], _MOST_FILES))
    tools = [{"tool": name, "version": version} for name, version in (record.code.tools if record.code else {}).items()]
    outputs = [{"step": step.title, "output": f"stages/{step.stage}/{step.fingerprint}"} for step in record.stages]
    tables += [_table("Outputs in the store", outputs, _MOST_OUTPUTS)] if outputs else []
    tables += [Table("Tools", tools, folded=True)] if tools else []
    return Part("Where it comes from", sentences, tables=tables)


def _recorded(material: Material) -> dict[str, Any]:
    """Return {span: raw files} that the version of this run keeps."""
    number = material.record.version
    if number is None:
        return {}
    registry = Registry(material.store, material.record.pipeline)
    try:
        lineage = lineages.read(registry, registry.version(number))
    except (HeadwayError, OSError, KeyError):
        return {}
    return {span["span"]: span["files"] for span in lineage.get("spans", [])}


def _files(material: Material, known: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the raw files, by span; without their paths where nothing keeps those."""
    for span, output in material.ingested().items():
        files = material.files.get(span) or known.get(span) or material.key(output.title).get("files") or []
        for file in files:
            yield {"span": span, "path": file.get("path", ""), "bytes": file["bytes"], "crc32c": file["crc32c"]}


def _file(file: Mapping[str, Any]) -> dict[str, Any]:
    return {"span": file["span"], "file": file["path"], "bytes": f"{file['bytes']:,}", "crc32c": file["crc32c"]}


def _table(title: str, rows: list[dict[str, Any]], most: int) -> Table:
    note = f"{counted(len(rows) - most, 'further row')}: headway lineage --json has all" if len(rows) > most else ""
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
    code = record.code or Code()
    commands = [f"git checkout {code.git.commit}"] if code.git else []
    tools = code.tools
    if tools.get("headway"):
        commands.append(f"pip install headway=={tools['headway']} tensorflow=={tools.get('tensorflow', '*')}")
    spans = record.spans
    words = ["headway", record.last or "run", record.file or "."]
    words[1] = {"replay": "export", "statistics": "stats"}.get(words[1], words[1])
    if spans:
        words += ["--window", str(len(spans)), "--until", spans[-1]]
    words += ["--seed", str(record.seed)] if record.seed is not None else []
    commands.append(shlex.join(words))
    commands.append(shlex.join(["headway", "show", record.file or ".", record.run]))
    config = record.config
    texts = [("The config of this run, with what --set changed", _yaml(config))] if config else []
    sentences = [
        "The same raw files, config, seed and code have the same fingerprints: what the store still has of them is not run "
        "again."
    ]
    return Part("How to make it again", sentences, commands=commands, texts=texts)


def _yaml(config: Mapping[str, Any]) -> str:
    # through JSON: no tags of Python's, whatever a value's type
    return yaml.safe_dump(json.loads(json.dumps(config)), sort_keys=False, allow_unicode=True, width=110)
