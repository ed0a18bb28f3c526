"""The lineage of a published version: code, config, spans, shards and raw files with their digests.

    code = code_of(context.loaded)                     # the code at the start of the run
    lineage = lineage_of(context, run, code=code, steps=record.stages)  # kept beside the version, in lineage.json

A lineage can be read without the run's record and outputs, which may be deleted (`headway.registry.registry`).
"""

import hashlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from flows.config.pipeline import LoadedPipeline
from flows.pipeline.context import Context
from flows.records import Code, Git, RunRecord, StepRecord, record_or_none
from flows.report.changes import auto_changes, changed_settings, code_in, differences, why_chosen
from flows.report.model import cell
from flows.report.verdict import explain
from headway.errors import HeadwayError
from headway.messages import listed, some, window_text
from headway.redaction import redacted
from headway.storage import manifest as manifests
from headway.user_code import files as user_files

_GIT_SECONDS = 10.0


def code_of(loaded: LoadedPipeline) -> Code:
    """Returns the packages' versions, digests of the user's modules, and the git state of the pipeline's folder."""
    return Code(tools=manifests.tools(), modules=modules_of(loaded), git=git_of(loaded.folder))


def modules_of(loaded: LoadedPipeline) -> dict[str, str]:
    """Returns {path in the pipeline's folder: sha256} of the user's Python files, and of the files that they import."""
    files = dict.fromkeys(path for file in loaded.user_files.values() for path in user_files.imported_files(file))
    return {path.relative_to(loaded.folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def changes_since(context: Context, number: int, record: RunRecord) -> Iterator[tuple[str, Any, Any]]:
    """Yields (what, before, now) for each change since version `number`, then what stayed; nothing without its run's record."""
    version = context.registry.version(number)
    if (before := record_or_none(context.store, version.facts.get("run"))) is None:
        return
    was, now = ((window_text(run.spans), run.training and run.training.rows) for run in (before, record))
    yield from ((what, a, b) for what, a, b in zip(("spans", "train rows"), was, now, strict=True) if a != b)
    with suppress(HeadwayError):  # its lineage is damaged
        lineage = context.registry.lineage(version)
        known = {each["span"]: [(f["bytes"], f["crc32c"]) for f in each["files"]] for each in lineage["spans"]}
        both = [span for span in record.spans if known.get(span)]
        if files := [span for span in both if known[span] != [(f.bytes, f.crc32c) for f in context.files(span)]]:
            yield f"raw files of {some(files, 3)}", None, "changed"
        if lineage["schema"] is not None and lineage["schema"] != (schema := _schema(context)):
            yield lineage["schema"]["file"], None, "changed" if schema else "gone"
    settings = changed_settings(before, record)
    yield from ((each.key, each.a, each.b) for each in settings)
    if chosen := auto_changes(before, record):
        texts = [f"{each.key} {cell(each.a) or 'none'} -> {cell(each.b) or 'none'}" for each in chosen]
        yield f"chosen by auto{why_chosen(before, record).replace(',', '')}:", None, some(texts, 3)
    code = differences(code_in(before.code), code_in(record.code)) if before.code and record.code else []
    yield from ((each.key, None, "new" if each.a is None else "changed") for each in code)
    if same := [name for name, found in (("settings", settings), ("code", code)) if not found]:
        yield listed(same), None, "as before"


def git_of(folder: Path) -> Git | None:
    """Returns commit, branch and changed files of a folder's git repository; None without a repository or git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".") or ""
    branch = _git(folder, "rev-parse", "--abbrev-ref", "HEAD") or ""
    return Git(commit=commit, branch=branch, changed=tuple(line.split(maxsplit=1)[-1] for line in changed.splitlines()))


def _git(folder: Path, *arguments: str) -> str | None:
    # a look changes nothing in the repository, and starts no program that its config names
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *arguments]
    environment = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=_GIT_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def lineage_of(
    context: Context, run: dict[str, Any], *, code: Code | None, steps: Sequence[StepRecord]
) -> dict[str, Any]:
    """Returns the lineage of the version that a run publishes, as JSON without secrets.

    Args:
        run: the run's name, its start and what it was asked for.
    """
    loaded, facts, verdict = context.loaded, context.facts, context.verdict
    lineage = {
        "format": manifests.FORMAT,
        "run": run,
        "code": None if code is None else code.model_dump(mode="json"),
        "config": loaded.pipeline.model_dump(mode="json"),
        "schema": _schema(context),
        "champion": context.champion.number if context.champion else None,
        "verdict": {"status": verdict and verdict.status, "reasons": explain(verdict).sentences if verdict else []},
        "parts": {"train": facts["train_parts"], "eval": facts["eval_parts"]},
        "spans": _spans(context),
        "stages": [step.model_dump(include={"stage", "title", "fingerprint", "cached", "span"}) for step in steps],
    }
    return dict(redacted(lineage))


def _schema(context: Context) -> dict[str, str] | None:
    file, prepared = context.loaded.schema_file, context.prepared
    text = prepared.schema_text.encode() if prepared else file.read_bytes() if file.is_file() else None
    return None if text is None else {"file": file.name, "sha256": hashlib.sha256(text).hexdigest()}


def _spans(context: Context) -> list[dict[str, Any]]:
    found = []
    for span, output in context.ingested.items():
        manifest = context.store.manifest(output.path)
        shards = [entry for entry in manifest.files if entry.path.endswith(".tfrecord")] if manifest else []
        found.append(
            {
                "span": span,
                "ingest": output.fingerprint,
                "rows": manifest.counts.model_dump() if manifest and manifest.counts else None,
                "files": [f.model_dump(mode="json", include={"path", "bytes", "crc32c"}) for f in context.files(span)],
                "shards": [entry.model_dump(mode="json") for entry in shards],
            }
        )
    return found
