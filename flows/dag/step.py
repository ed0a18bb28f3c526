"""A step: one stage about to run on certain inputs, under the name its output will have.

    step = Step(stage="train", key={...}, request=lambda: TrainRequest(...), title="train")
    step.fingerprint                      # equal fingerprint = same output = nothing to do

The key is small JSON: the stage's VERSION, its own config, the fingerprints of the steps it reads. The request is made
only when the step has to run, since until then the outputs it points at need not exist.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from flows.upgrades import upgraded_result
from headway.config import Frozen, Result
from headway.storage.fingerprint import Difference, fingerprint
from headway.storage.store import Store

Answer = TypeVar("Answer", bound=Result)


@dataclass(frozen=True)
class Stage:
    """A stage function by name, so that a plan, a `--help` or a Prefect flow imports none of them."""

    name: str
    function: str
    """"module:function", called as function(request, out, monitor) -> JSON result."""
    tensorflow: bool = False
    """Runs in the TensorFlow child."""
    streams: bool = False
    """Fetches the shards of a store in a bucket as it reads them: the function takes `remote`."""
    many: str | None = None
    """"module:function" that runs several steps of the stage as one: function(requests, outs, monitor) -> results."""

    @property
    def version(self) -> int:
        """VERSION of the function's module, which is raised when the stage writes something else for the same input."""
        return _version(self.function.partition(":")[0])


@functools.cache
def _version(module: str) -> int:
    """Read VERSION from the module's source: importing a TensorFlow stage would import TensorFlow into this process."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if (
            isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == "VERSION" for target in node.targets)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, int)
        ):
            return node.value.value
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == "VERSION" for alias in node.names):
            return _version(node.module)
    raise RuntimeError(f"{module} has no VERSION")


@dataclass(frozen=True)
class Step:
    stage: Stage
    title: str
    key: dict[str, object]
    request: Callable[[], Frozen | dict[str, object]]
    runtime: dict[str, Any] = field(default_factory=dict)
    """Arguments that change how the stage runs, not what it writes: worker counts, checkpoint folders."""

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.key)

    def find(self, store: Store) -> Output | None:
        return find_output(store, self.stage.name, self.fingerprint, self.title)

    def output(
        self,
        path: Path,
        result: dict[str, Any] | None,
        *,
        seconds: float = 0.0,
        why: Difference | None = None,
        bytes: int = 0,
    ) -> Output:
        """The output of a step that did not find one."""
        return Output(self.title, self.stage.name, self.fingerprint, path, result, False, seconds, why, bytes)


@dataclass(frozen=True)
class Output:
    """The stored output of a step; `result` is None in a plan, for a step that has not run."""

    title: str
    stage: str
    fingerprint: str
    path: Path
    result: dict[str, Any] | None
    hit: bool
    seconds: float = 0.0
    why: Difference | None = None
    """For a miss: the first thing that differs from the nearest output there is."""
    bytes: int = 0
    """Of its files."""

    def get(self) -> dict[str, Any]:
        """The result; only for code that runs after the step did."""
        if self.result is None:
            raise RuntimeError(f"{self.title} has not run")
        return self.result

    def read(self, model: type[Answer]) -> Answer | None:
        """The result with its fields; None in a plan.

        Raises:
            ValidationError: it is none of such a stage.
        """
        return None if self.result is None else model.model_validate(upgraded_result(self.stage, self.result))


def find_output(store: Store, stage: str, fingerprint: str, title: str) -> Output | None:
    """The whole output of a step that the store has."""
    if (manifest := store.find(stage, fingerprint)) is None:
        return None
    path = store.output(stage, fingerprint)
    return Output(title, stage, fingerprint, path, manifest.result, hit=True, bytes=manifest.size)
