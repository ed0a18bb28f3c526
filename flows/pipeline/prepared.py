"""A run in two halves: the first prepares a window, the second trains on it, on a machine that may have no raw files.

    record = execute(replace(context, last="transform"), report)
    write_prepared(context, record)                            # runs/<run>.prepared, beside its record
    context = load_prepared(context, record.run)                # on another machine

Both halves are ordinary runs of the same DAG. The second finds the outputs of the first by their fingerprints, so both
need the same version of Headway, the same config and the same Python files of the user.
"""

import functools
import hashlib
import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from beam_jobs.ingest.request import IngestRequest
from flows.config.pipeline import LoadedPipeline
from flows.pipeline.context import Context, Prepared
from flows.pipeline.dag import plan_needs_tensorflow
from flows.pipeline.engine import look_ahead
from flows.pipeline.provenance import modules_of
from flows.records import RunRecord
from headway.errors import ConfigError, HeadwayError, StoreError
from headway.redaction import redacted
from headway.storage import manifest as manifests
from headway.storage.store import Store
from headway.validation.stage import ValidateRequest

PREPARE = "transform"
"""The stage that the first half ends with."""
_TOOLS = ("headway", "tensorflow", "keras", "numpy", "pyarrow")
_PACKAGES = ("headway", "beam_jobs", "tfcore", "flows")
_OF_A_MACHINE = {
    *("store", "source", "arrival", "predictions", "tracking", "schedule", "alarms", "secrets"),
    *("queues", "runner", "window"),
}
"""Keys of pipeline.yaml that may differ between the two machines: they do not change what a stage computes."""
_SAME_STORE = "the store of both workers must be the same: a bucket, or a folder that both see"
_SAME_COMMIT = "bring the pipeline's folder on both machines to the same commit"


class _Left(Prepared):
    """The content of runs/<run>.prepared: the prepared window, and the code and config that prepared it."""

    tools: dict[str, str]
    modules: dict[str, str]
    """Digests of the user's Python files."""
    config: dict[str, Any]


def needs_training(context: Context) -> bool:
    """Returns whether a step that the run still has to do needs TensorFlow; also True if planning the run raises an error."""
    try:
        return plan_needs_tensorflow(look_ahead(context))
    except HeadwayError:
        return True


def write_prepared(context: Context, record: RunRecord) -> None:
    """Write the window that a run has prepared to runs/<run>.prepared."""
    loaded, step = context.loaded, record.step(ValidateRequest.name)
    manifest = context.store.find(step.stage, step.fingerprint) if step else None
    key = manifest.key if manifest else {}
    left = _Left(
        spans=record.spans,
        files={span: context.files(span) for span in record.spans},
        schema_text=loaded.schema_file.read_text(encoding="utf-8"),
        unread=key.get("unread", ()),
        serving=key.get("serving"),
        tools=_tools(),
        modules=modules_of(loaded),
        config=_config(loaded),
    )
    text = json.dumps(redacted(left.model_dump(mode="json")))
    context.store.replace(_path(context.store, record.run), text + "\n")


def load_prepared(context: Context, run: str) -> Context:
    """Returns the context of a run that trains on the window that another run has prepared.

    Raises:
        StoreError: the store lacks the prepared window, or one of its ingested spans.
        ConfigError: Headway, a package in `_TOOLS`, the config or the user's code is not the one that prepared the window.
    """
    loaded, path = context.loaded, _path(context.store, run)
    try:
        left = _Left.model_validate_json(context.store.read(path))
    except (OSError, ValidationError):
        raise StoreError(f"what run {run} has prepared is not here", where=str(path), fix=_SAME_STORE) from None
    ours = _tools()
    for name, theirs in left.tools.items():
        if ours.get(name) != theirs:
            what = "Headway's code" if name == "source" else name
            raise ConfigError(
                f"{what} is {theirs} where the window was prepared, and {ours.get(name)} on this worker",
                where=f"run {run}",
                fix="install the same version on both, and start both workers again",
            )
    here = modules_of(loaded)
    for name in sorted(left.modules.keys() | here.keys()):
        if here.get(name) != left.modules.get(name):
            problem = f"{name} differs from the one where the window was prepared"
            raise ConfigError(problem, where=str(loaded.folder), fix=_SAME_COMMIT)
    config = _config(loaded)
    if differing := sorted(key for key in config | left.config if config.get(key) != left.config.get(key)):
        raise ConfigError(
            "the config has another value than where the window was prepared",
            where=f"{loaded.file}: {', '.join(differing)}",
            fix=_SAME_COMMIT,
        )
    found = replace(context, prepared=left, memo=dict(left.files))
    # the one stage that needs raw files
    for output in look_ahead(replace(found, last=IngestRequest.name)).outputs:
        if not output.hit:
            problem = f"{output.title} is not in the store as this worker would make it ({output.why})"
            raise StoreError(problem, where=str(output.path), fix=f"{_SAME_COMMIT}; {_SAME_STORE}")
    return found


def _path(store: Store, run: str) -> Path:
    return store.runs_folder / f"{run}.prepared"


def _config(loaded: LoadedPipeline) -> dict[str, Any]:
    value = loaded.pipeline.model_dump(mode="json", exclude_unset=True)
    return dict(redacted({key: each for key, each in value.items() if key not in _OF_A_MACHINE}))


@functools.cache
def _tools() -> dict[str, str]:
    """Returns {package: version} of the packages on which an output's bytes depend, and a digest of Headway's source files."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        spec = find_spec(package)
        assert spec is not None and spec.origin is not None
        root = Path(spec.origin).parent
        for path in sorted(root.rglob("*.py")):
            digest.update(f"{package}/{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    versions = manifests.tools()
    return {name: versions.get(name, "not installed") for name in _TOOLS} | {"source": digest.hexdigest()[:12]}
