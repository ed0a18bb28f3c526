"""`headway lineage`: the origin of a version as a tree, and which parts of it are missing or changed today."""

from collections.abc import Iterator, Sequence
from typing import Any

from flows.cli.commands import answer, arranged
from flows.cli.options import Options, PipelinePath
from flows.cli.versions.promotion import registry_of
from headway.errors import DataError
from headway.messages import counted, some, when, window_text

Node = tuple[str, list["Node"]]
_NOT_KEPT = "not known: the version is older than this record"
_SHOWN = 12
"""Spans; the JSON has all of them."""


def lineage(
    version: str = "champion",
    pipeline: PipelinePath = ".",
    /,
    *,
    verify: bool = False,
    options: Options = Options(),
) -> int:
    """A version's run, code, config, spans, shards and raw files; with --verify it ends with 3 when one has changed.

    Args:
        version: the version: its number, champion, previous or an alias.
        verify: read every raw file and compare its checksum; exit code 3 if one has changed.
    """
    from headway.registry.lineage import look, read

    (version,), pipeline = arranged([version], pipeline, "champion")
    _, registry = registry_of(pipeline, options)
    value = read(registry, registry.named(version))
    found = look(registry.store, value, read_bytes=verify)
    value["today"] = found | {"verified": verify}
    text = "\n".join(_lines(_tree(value, found, verify)))
    return answer(options, value, text, DataError.exit_code if verify and found["files"] else 0)


def _tree(value: dict[str, Any], found: dict[str, Any], verified: bool) -> Node:
    run, code, verdict = value["run"], value["code"], value["verdict"] or {}
    promoted = [f"{e['kind']} on {when(e['time'])} UTC by {e['by'] or 'somebody'}" for e in value["events"]]
    nodes: list[Node] = [
        (
            f"run {run['run'] or 'not known'}",
            [(f"{name}: {run[name]}", []) for name in run if name != "run" and str(run[name]) not in ("None", "False")],
        ),
        ("code" if code else f"code: {_NOT_KEPT}", list(_code(code)) if code else []),
        (f"config: {_config(value)}", []),
        (_judged(value["champion"], verdict), [(reason, []) for reason in verdict.get("reasons", [])]),
        ("outputs", [(_output(stage, found), []) for stage in value["stages"] if stage["stage"] != "ingest"]),
        (_data(value, found, verified), list(_spans(value, found))),
    ]
    title = f"{value['model']} version {value['version']}, made {when(value['created'])} UTC"
    return title + "".join(f"; {event}" for event in promoted), nodes


def _code(code: dict[str, Any]) -> Iterator[Node]:
    git = code["git"]
    if git is None:
        yield "git: the pipeline's folder was not in a repository", []
    else:
        changed = git["changed"]
        state = f", with changes in {some(changed, 3)}" if changed else ""
        yield f"git: commit {git['commit']} of {git['branch']}{state}", []
    yield "tools: " + ", ".join(f"{name} {version}" for name, version in code["tools"].items()), []
    for name, digest in code["modules"].items():
        yield f"{name}: sha256 {digest}", []


def _config(value: dict[str, Any]) -> str:
    if value["config"] is None:
        return _NOT_KEPT
    from headway.storage.fingerprint import fingerprint

    schema = value["schema"]
    known = f"; {schema['file']}: sha256 {schema['sha256']}" if schema else ""
    return f"{fingerprint(value['config'])}{known} (--json shows it whole; headway compare shows differences)"


def _judged(champion: int | None, verdict: dict[str, Any]) -> str:
    compared = f"compared with version {champion}" if champion else "compared with no champion"
    return f"{compared}: {verdict.get('verdict') or 'verdict not known'}"


def _output(stage: dict[str, Any], found: dict[str, Any]) -> str:
    problem = found["outputs"].get(stage["fingerprint"])
    return f"{stage['title']}: {stage['stage']}/{stage['fingerprint']}" + (f" ({problem} today)" if problem else "")


def _data(value: dict[str, Any], found: dict[str, Any], verified: bool) -> str:
    files = [file for span in value["spans"] for file in span["files"]]
    if problems := len(found["files"]):
        state = f"{problems} of them gone or changed today"
    elif not value["recorded"]:
        state = "whose names are not known: the version is older than this record"
    else:
        state = "every byte as it was read" if verified else "all there with their sizes (--verify reads their bytes)"
    window = window_text([span["span"] for span in value["spans"]])
    return f"data: {window}, {counted(len(value['spans']), 'span')}, {counted(len(files), 'raw file')}, {state}"


def _spans(value: dict[str, Any], found: dict[str, Any]) -> Iterator[Node]:
    spans = value["spans"]
    shown = spans[-_SHOWN:]
    # a span with a problem is shown whatever its place
    for span in spans:
        if span not in shown and not any(file.get("path") in found["files"] for file in span["files"]):
            continue
        uses = [split for split, parts in value["parts"].items() if any(part[0] == span["span"] for part in parts)]
        rows = f", {counted(span['rows']['written'], 'row')} of {span['rows']['read']:,}" if span.get("rows") else ""
        size = sum(shard["bytes"] for shard in span["shards"])
        gone = found["outputs"].get(span["ingest"])
        shards = f"{counted(len(span['shards']), 'shard')}, {counted(size, 'byte')}: ingest/{span['ingest']}"
        nodes: list[Node] = [(shards + (f" ({gone} today)" if gone else ""), [])]
        for file in span["files"]:
            problem = found["files"].get(file.get("path"))
            text = f"{file.get('path', 'a file')}: {counted(file['bytes'], 'byte')}, crc32c {file['crc32c']}"
            nodes.append((text + (f": {problem}" if problem else ""), []))
        yield f"{span['span']}: {' and '.join(uses) or 'not used'}{rows}", nodes
    if len(shown) < len(spans):
        yield f"{counted(len(spans) - len(shown), 'earlier span')}: --json has them", []


def _lines(node: Node, before: str = "") -> Iterator[str]:
    """The tree, a line each."""
    text, children = node
    yield text
    yield from _below(children, before)


def _below(children: Sequence[Node], before: str) -> Iterator[str]:
    for place, (text, inner) in enumerate(children, start=1):
        last = place == len(children)
        yield f"{before}{'└' if last else '├'}─ {text}"
        yield from _below(inner, before + ("   " if last else "│  "))
