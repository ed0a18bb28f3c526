"""The section on what made a run: its raw files, its code, its tools and its config."""

import json
from collections.abc import Iterator
from contextlib import suppress

import yaml

from flows.records import Code
from flows.report.model import Row, Section, Table
from flows.report.results import RunResults
from headway.errors import HeadwayError
from headway.messages import counted, some
from headway.registry.registry import Registry

_MOST_FILES = 400


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
        rest = len(files) - _MOST_FILES
        more = f"{counted(rest, 'further row')}: lineage.json of the version has all" if rest > 0 else ""
        tables.append(Table("Raw files", files[:_MOST_FILES], more, folded=True))
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
