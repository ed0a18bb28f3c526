"""Steps as JSON that a worker with other paths can run, and the checks that it runs the same code on the same store.

    order = order_of(steps, loaded, store)            # the run's side: keys, requests, versions; plain JSON
    steps = steps_of(order, folder, store)            # the worker's: the same steps, under its own paths

A path in the store is sent as {"$store": "stages/ingest/ab12"}, one in the pipeline's folder as {"$pipeline": "model.py"}. An
output's name is the fingerprint of its key, and keys hold no paths: both sides mean the same output by it.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from flows.config.pipeline import LoadedPipeline
from flows.dag.run_spec import STAGES
from flows.dag.step import Step
from headway.errors import ConfigError
from headway.storage import manifest as manifests
from headway.storage.store import Store
from headway.user_code import files as user_files

_COMPARED = ("headway", "tensorflow", "keras", "numpy", "pyarrow")
_CODE = ("module", "preprocess", "loss", "file")
"""What requests call files of the user's code."""
_STORE, _PIPELINE = "$store", "$pipeline"
_PACKAGES = ("headway", "beam_jobs", "tfcore", "flows")


def order_of(steps: Sequence[Step], loaded: LoadedPipeline, store: Store) -> dict[str, Any]:
    """Return steps, all of one stage, as JSON."""
    sent = [
        {
            "title": step.title,
            "key": step.key,
            "request": _sent(step.request(), store.root, loaded.folder),
        }
        for step in steps
    ]
    stage = steps[0].stage.name
    limit = next((limit for name, limit in loaded.pipeline.limits.items() if name == stage), None)
    return {
        "stage": stage,
        "steps": sent,
        "limit": limit and limit.model_dump(mode="json"),
        "code": code(),
        "modules": {name: user_files.digest(loaded.folder / name) for name in sorted(_modules(sent))},
    }


def steps_of(order: dict[str, Any], folder: Path, store: Store) -> list[Step]:
    """Return the steps of an order, with this machine's paths.

    Args:
        folder: the pipeline's, here.

    Raises:
        ConfigError: Headway, a package that it stands on, or the user's code is another here than where the run is.
    """
    for name, theirs in order["code"].items():
        if (ours := code().get(name)) != theirs:
            what = "Headway's code" if name == "source" else name
            raise ConfigError(
                f"{what} is {theirs} where the flow runs, and {ours} on this worker, which would not make the same output",
                where=f"stage {order['stage']}",
                fix="install the same version on both, and start both workers again",
            )
    for name, theirs in order["modules"].items():
        file = folder / name
        if not file.is_file() or user_files.digest(file) != theirs:
            problem = "differs from the flow's, or a file that it imports does" if file.is_file() else "is not here"
            fix = "bring the pipeline's folder on this worker to the same commit as the flow's"
            raise ConfigError(f"{name} {problem}", where=str(file), fix=fix)
    stage = STAGES[order["stage"]]
    steps = []
    for sent in order["steps"]:
        if (theirs := sent["key"].get("version")) != stage.version:
            problem = f"{stage.name} has version {theirs} where the flow runs, and {stage.version} on this worker"
            raise ConfigError(problem, where=f"stage {stage.name}", fix="install the same version on both")
        request = _received(sent["request"], store.root, folder)
        steps.append(Step(stage, sent["title"], sent["key"], functools.partial(dict, request)))
    return steps


@functools.cache
def code() -> dict[str, str]:
    """Return the versions that decide about an output's bytes, and a digest of Headway's own source files."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        spec = find_spec(package)
        assert spec is not None and spec.origin is not None
        root = Path(spec.origin).parent
        for path in sorted(root.rglob("*.py")):
            digest.update(f"{package}/{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    versions = manifests.tools()
    return {name: versions.get(name, "not installed") for name in _COMPARED} | {"source": digest.hexdigest()[:12]}


def _sent(value: Any, store: Path, folder: Path) -> Any:
    """A request as JSON without paths of this machine."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", by_alias=True)
    if isinstance(value, dict):
        return {key: _sent(inner, store, folder) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_sent(inner, store, folder) for inner in value]
    if isinstance(value, str | Path):
        for name, root in ((_STORE, store), (_PIPELINE, folder)):
            if str(value) == str(root) or str(value).startswith(f"{root}/"):
                return {name: str(value)[len(str(root)) + 1 :]}
        return str(value)
    return value


def _received(value: Any, store: Path, folder: Path) -> Any:
    if isinstance(value, dict):
        for name, root in ((_STORE, store), (_PIPELINE, folder)):
            if value.keys() == {name}:
                return _inside(root, value[name])
        _check_code(value)
        return {key: _received(inner, store, folder) for key, inner in value.items()}
    if isinstance(value, list):
        return [_received(inner, store, folder) for inner in value]
    return value


def _check_code(request: dict[str, Any]) -> None:
    """Refuse Python files that are not the pipeline's own: whoever writes to the store runs no code on its workers.

    Raises:
        ConfigError: a file of the user's code is named that does not lie in the pipeline's folder.
    """
    for key in _CODE:
        value = request.get(key)
        in_store = isinstance(value, dict) and value.keys() == {_STORE}  # a metric is called loss, too
        if in_store or (isinstance(value, str) and value.endswith(".py")):
            problem = f"{key} is {value!r}, which is not a file of the pipeline's folder"
            raise ConfigError(problem, where="exchange", fix="who wrote this into the store?")


def _inside(root: Path, name: Any) -> str:
    """A path below `root`.

    Raises:
        ConfigError: it would leave it.
    """
    if not isinstance(name, str) or name.startswith("/") or ".." in name.split("/"):
        raise ConfigError(f"{name!r} leads out of {root}", where="exchange", fix="who wrote this into the store?")
    return str(root / name) if name else str(root)


def _modules(value: Any) -> set[str]:
    """The user's Python files that a request names."""
    if isinstance(value, dict):
        if value.keys() == {_PIPELINE}:
            return {value[_PIPELINE]} if str(value[_PIPELINE]).endswith(".py") else set()
        value = list(value.values())
    return set().union(*map(_modules, value)) if isinstance(value, list) else set()
