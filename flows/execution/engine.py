"""Runs steps against the store: reuse the stored output, or run the stage and commit what it wrote.

    engine = Engine(store, monitor=monitor, child=child)
    output = engine.call(step)                # blocks
    outputs = engine.call_many(steps)         # steps of one stage, run as one where the stage can

A step that fails has the outputs that it reads checked against their checksums: one that is damaged is made anew, once, and
the step is run again. Nothing here knows Prefect; a Prefect task calls the same engine.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import time
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from flows.dag.step import Output, Step
from flows.execution.damage import NEVER, Damaged, damaged_inputs
from flows.execution.tensorflow_process import Child
from headway.errors import HeadwayError, StoreError
from headway.monitor import Monitor
from headway.storage.fingerprint import first_difference
from headway.storage.manifest import Counts, Manifest
from headway.storage.store import Store

OnOutput = Callable[[Output], None]
Result = TypeVar("Result")


class Engine:
    """Executes steps.

    Args:
        store: where outputs are looked for and committed.
        child: the TensorFlow process; started by the first step that needs it, if not before.
        monitor_for: the monitor of a step, by its title.
        on_output: called after each step, hit or not.
        runtime: by stage, arguments that live in this process.
    """

    def __init__(
        self,
        store: Store,
        *,
        child: Child,
        monitor_for: Callable[[str], Monitor],
        on_output: OnOutput = lambda output: None,
        runtime: Mapping[str, dict[str, Any]] | None = None,
    ):
        self.store, self.child = store, child
        self._runtime = dict(runtime or {})
        self._monitor_for, self._on_output = monitor_for, on_output
        self._steps: dict[tuple[str, str], Step] = {}
        """Those that were called, in their order, so that a damaged output can be made anew."""
        self._made_anew: set[tuple[str, str]] = set()

    def call(self, step: Step) -> Output:
        return self.call_many([step])[0]

    def call_many(self, steps: Sequence[Step]) -> list[Output]:
        """The outputs of `steps`, all of one stage, in their order."""
        outputs: dict[int, Output] = {}
        missing: list[int] = []
        for step in steps:
            self._steps.setdefault((step.stage.name, step.fingerprint), step)
        for stage in {step.stage.name for step in steps}:
            self.store.prefetch(stage, [step.fingerprint for step in steps])
        for i, step in enumerate(steps):
            if (manifest := self.store.find(step.stage.name, step.fingerprint)) is not None:
                outputs[i] = self._output(step, manifest, hit=True)
                self._on_output(outputs[i])
            else:
                missing.append(i)
        if missing:
            todo = [steps[i] for i in missing]
            if todo[0].stage.many:
                ran = self._mended(todo, lambda: self._together(todo))
            else:
                ran = [self._mended([step], functools.partial(self._one, step)) for step in todo]
            outputs.update(zip(missing, ran, strict=True))
        return [outputs[i] for i in range(len(steps))]

    def _mended(self, steps: Sequence[Step], attempt: Callable[[], Result]) -> Result:
        """What `attempt` gives; where it fails for a damaged output that the steps read, once more with a new one.

        Raises:
            StoreError: the output was damaged again at once, or another run has to make it.
        """
        try:
            return attempt()
        except NEVER:
            raise
        except Exception as error:
            found = self._damaged(steps)
            if not found:
                raise
            self._make_anew(found, steps[0].title, error)
            return attempt()

    def _damaged(self, steps: Sequence[Step]) -> list[Damaged]:
        """What the steps read that is damaged, in the order in which it was made."""
        found: list[Damaged] = []
        # the step's own error is what is told, so what cannot be looked at is no news
        with contextlib.suppress(HeadwayError, OSError):
            for step in steps:
                found += damaged_inputs(self.store, step.request())
        places = {key: place for place, key in enumerate(self._steps)}
        # what is gone and was not made in this run may be meant to be gone: the statistics of an old champion
        found = [one for one in dict.fromkeys(found) if one.key in places or not one.gone]
        return sorted(found, key=lambda one: places.get(one.key, len(places)))

    def _make_anew(self, damaged: Sequence[Damaged], title: str, error: Exception) -> None:
        """Remove damaged outputs and run their steps again."""
        monitor = self._monitor_for(title)
        for one in damaged:
            if one.key in self._made_anew:
                raise StoreError(
                    f"{one.problem}; it was made anew in this run, and is damaged again",
                    where=str(one.path),
                    fix="check the disk and the memory of this machine, then run again",
                ) from error
            self._made_anew.add(one.key)
            monitor.log(f"{one.path}: {one.problem}; the output is damaged, so {one.stage} is run again")
            self.store.discard(self.store.output(*one.key))
        for one in damaged:
            if one.key in self._steps:
                self.call(self._steps[one.key])

    def _one(self, step: Step) -> Output:
        monitor = self._monitor_for(step.title)
        monitor.check()
        why = explain(self.store, step)
        started = time.perf_counter()
        request, remote = self._request(step)
        with (
            self.store.open(step.stage.name, step.fingerprint, step.key) as staging,
            self._checkpointing(step, request),
        ):
            if step.stage.tensorflow:
                result = self.child.call(step.stage.function, request, staging.path, monitor, **step.runtime, **remote)
            else:
                runtime = step.runtime | self._runtime.get(step.stage.name, {})
                function = load_function(step.stage.function)
                result = function(validated(function, request), staging.path, monitor, **runtime)
            manifest = _commit(staging, result, time.perf_counter() - started)
        return self._done(step, manifest, why)

    def _together(self, steps: list[Step]) -> list[Output]:
        """Several steps in one call of the stage; each has its own staging folder and its own commit."""
        stage = steps[0].stage
        assert stage.many is not None
        title = steps[0].title if len(steps) == 1 else f"{stage.name} ({len(steps)})"
        monitor = self._monitor_for(title)
        monitor.check()
        whys = [explain(self.store, step) for step in steps]
        started = time.perf_counter()
        with contextlib.ExitStack() as stack:
            stagings = [stack.enter_context(self.store.open(stage.name, s.fingerprint, s.key)) for s in steps]
            outs: list[Path] = [staging.path for staging in stagings]
            requests = [self._request(step)[0] for step in steps]
            results = load_function(stage.many)(requests, outs, monitor, **steps[0].runtime)
            seconds = time.perf_counter() - started
            rows = [max(1, (result.get("counts") or {}).get("read", 1)) for result in results]
            manifests = [
                _commit(staging, result, seconds * n / sum(rows))
                for staging, result, n in zip(stagings, results, rows, strict=True)
            ]
        return [self._done(s, m, w) for s, m, w in zip(steps, manifests, whys, strict=True)]

    def _request(self, step: Step) -> tuple[Any, dict[str, Any]]:
        """What the stage is asked, and how it gets the shards that are not on this disk yet; other files are."""
        request = step.request()
        remote = self.store.localize(request, later=step.stage.streams)
        return request, {"remote": remote} if remote else {}

    def _checkpointing(self, step: Step, request: Any) -> contextlib.AbstractContextManager[None]:
        if step.stage.name != "train":
            return contextlib.nullcontext()
        return self.store.checkpointing(step.fingerprint, keep_best=request["training"].get("keep_best", 0))

    def _done(self, step: Step, manifest: Manifest, why: str | None) -> Output:
        output = self._output(step, manifest, hit=False, why=why)
        self._on_output(output)
        return output

    def _output(self, step: Step, manifest: Manifest, *, hit: bool, why: str | None = None) -> Output:
        path = self.store.output(step.stage.name, step.fingerprint)
        return Output(
            title=step.title,
            stage=step.stage.name,
            fingerprint=step.fingerprint,
            path=path,
            result=manifest.result,
            hit=hit,
            seconds=0.0 if hit else manifest.seconds,
            why=why,
        )


class Planner:
    """Goes through the same DAG without running anything: each step is a hit, or a miss with its reason."""

    def __init__(self, store: Store):
        self.store = store
        self.outputs: list[Output] = []
        self.tensorflow = False
        """Whether a step that misses needs the TensorFlow child."""

    def call(self, step: Step) -> Output:
        manifest = self.store.find(step.stage.name, step.fingerprint)
        output = Output(
            title=step.title,
            stage=step.stage.name,
            fingerprint=step.fingerprint,
            path=self.store.output(step.stage.name, step.fingerprint),
            result=manifest.result if manifest else None,
            hit=manifest is not None,
            seconds=manifest.seconds if manifest else 0.0,
            why=None if manifest else explain(self.store, step),
        )
        self.tensorflow |= step.stage.tensorflow and not output.hit
        self.outputs.append(output)
        return output

    def call_many(self, steps: Sequence[Step]) -> list[Output]:
        return [self.call(step) for step in steps]


def explain(store: Store, step: Step) -> str:
    """Why `step` has no output: it is damaged, or the first thing that differs from the nearest one there is."""
    if reason := store.check(step.stage.name, step.fingerprint):
        return reason
    nearest = store.nearest(step.stage.name, step.key)
    if nearest is None:
        return "never run"
    return first_difference(nearest.key, step.key) or "never run"


def load_function(name: str) -> Callable[..., Any]:
    """The object that "module:attribute" names."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def validated(function: Callable[..., Any], request: Any) -> Any:
    """A request given as plain values, as the type that the function's first parameter is annotated with."""
    if not isinstance(request, dict):
        return request
    kind = next(iter(typing.get_type_hints(function).values()))
    return kind.model_validate(request)


def _commit(staging: Any, result: dict[str, Any], seconds: float) -> Manifest:
    counts = Counts(**result["counts"]) if result.get("counts") else None
    return staging.commit(result=result, counts=counts, seconds=seconds)
