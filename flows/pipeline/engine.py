"""Runs steps against the store: a stored output is reused; otherwise the stage runs and its files are committed.

    engine = Engine(store, child=child, report=report)
    outputs = engine.call_many(steps)         # blocks; runs the steps in one call if their stage supports that

When a step fails, the outputs that it reads are compared with their checksums. A damaged one is made again, at most
once per run, and the step runs again. Nothing here knows Prefect; a Prefect task calls the same engine.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from flows.pipeline.context import Context
from flows.pipeline.dag import walk
from flows.pipeline.damage import NEVER, damaged_inputs
from flows.pipeline.listeners import Reporter
from headway.errors import HeadwayError, StoreError
from headway.evaluation.requests import GateRequest
from headway.monitor import Monitor
from headway.stages.step import Output, Step, find_output, title_of
from headway.storage.fingerprint import NEVER_RUN, Difference, first_difference
from headway.storage.manifest import Counts, Manifest
from headway.storage.store import Store
from tfcore.runtime.tensorflow_process import Child

Damaged = dict[tuple[str, str], tuple[Path, str]]
"""{(stage, fingerprint): (first damaged file, problem)}"""
Titles = Mapping[tuple[str, str], str]
"""{(stage, fingerprint): title} of a run's steps."""
WAVE_BYTES, WAVE_STEPS = 2 << 30, 400
"""At most so many raw bytes and so many steps run and are committed together; a step with more bytes runs alone."""


class Engine:
    """The executor that runs steps: it returns their stored outputs, and runs the steps that have none.

    Args:
        store: where outputs are looked for and committed.
        child: the TensorFlow process; the first step that needs it starts it, if it does not run yet.
        report: is told of each step that runs, and gives each step the monitor to which it reports its progress.
        on_output: called with the output of each step, reused or new; None: `report.output`.
        runtime: {stage: further keyword arguments of the stage's function}; no fingerprint depends on them.
    """

    def __init__(
        self,
        store: Store,
        *,
        child: Child,
        report: Reporter,
        on_output: Callable[[Output[Any]], None] | None = None,
        runtime: Mapping[str, dict[str, Any]] | None = None,
    ):
        self.store, self.child = store, child
        self._runtime = dict(runtime or {})
        self._report, self._on_output = report, on_output or report.output
        self._steps: dict[tuple[str, str], Step] = {}
        """The steps that were called, in their order, so that a damaged output can be made again."""
        self._made_anew: set[tuple[str, str]] = set()

    @property
    def _titles(self) -> dict[tuple[str, str], str]:
        return {key: step.title for key, step in self._steps.items()}

    def call_many(self, steps: Sequence[Step]) -> list[Output[Any]]:
        """Returns the outputs of `steps`, in the same order; runs the steps that have none. All steps are of one stage."""
        for step in steps:
            self._steps.setdefault((step.stage.name, step.fingerprint), step)
        for stage in {step.stage.name for step in steps}:
            self.store.prefetch(stage, [step.fingerprint for step in steps])
        outputs = [find(self.store, step) for step in steps]
        for output in filter(None, outputs):
            self._on_output(output)
        missing = [step for step, output in zip(steps, outputs, strict=True) if output is None]
        together = _waves(missing) if missing and missing[0].stage.runs_many else [[step] for step in missing]
        ran = itertools.chain.from_iterable(self._mended(group) for group in together)
        return [output or next(ran) for output in outputs]

    def _mended(self, steps: Sequence[Step]) -> list[Output[Any]]:
        """Run steps. If they fail and an output they read is damaged, delete it, make it again if this run can, and rerun them.

        Raises:
            StoreError: the output was made again in this run and is damaged again.
        """
        try:
            return self._run(steps)
        except NEVER:
            raise
        except Exception as error:
            if not (damaged := self._damaged(steps)):
                raise
            with self._report.step(steps[0].title) as monitor:  # it waits
                self._make_anew(damaged, steps[0].title, monitor, error)
            return self._run(steps)

    def _damaged(self, steps: Sequence[Step]) -> Damaged:
        """Returns the damaged outputs that the steps read, this run's first, in its order. Others that are gone are left out."""
        damaged: Damaged = {}
        # the step's own error is raised, whatever fails while its inputs are read
        with contextlib.suppress(HeadwayError, OSError):
            for step in steps:
                damaged |= damaged_inputs(self.store, step.stage)
        # what is gone and was not made in this run may be meant to be gone: the statistics of an old champion
        gone = {k for k in damaged if k not in self._steps and self.store.manifest(self.store.output(*k)) is None}
        ordered = [*(key for key in self._steps if key in damaged), *damaged]
        return {key: damaged[key] for key in ordered if key not in gone}

    def _make_anew(self, damaged: Damaged, title: str, monitor: Monitor, error: Exception) -> None:
        """Delete damaged outputs, with a warning for each. Run the steps that make them again, if this run has called them."""
        for key, (file, problem) in damaged.items():
            if key in self._made_anew:
                again = StoreError(
                    f"{problem}; it was made anew in this run, and is damaged again",
                    where=str(file),
                    fix="check the disk and the memory of this machine, then run again",
                )
                name_steps(again, self.store, self._titles, title)
                raise again from error
            self._made_anew.add(key)
            step = self._titles.get(key, key[0])
            monitor.warn(f"{file.name} of {step}: {problem}; the output is damaged, so {step} is run again")
            self.store.discard(self.store.output(*key))
        for key in damaged:
            if key in self._steps:
                self.call_many([self._steps[key]])

    def _run(self, steps: Sequence[Step]) -> list[Output[Any]]:
        """Run steps of one stage in one call, and return their outputs."""
        stage, outputs = steps[0].stage, list[Output[Any]]()
        with naming_steps(self.store, self._titles, steps[0].title):
            with self._report.step(title_of(steps)) as monitor:
                monitor.check()
                whys = [explain(self.store, step) for step in steps]
                manifests = self._make(steps, monitor)
            for step, made, why in zip(steps, manifests, whys, strict=True):
                path = self.store.output(stage.name, step.fingerprint)
                outputs.append(step.output(path, made.result, seconds=made.seconds, why=why, bytes=made.size))
                self._on_output(outputs[-1])
        return outputs

    def _make(self, steps: Sequence[Step], monitor: Monitor) -> list[Manifest]:
        """Run steps here or in the TensorFlow process, commit each output from its staging folder, and return the manifests."""
        stage = steps[0].stage
        started = time.perf_counter()
        with contextlib.ExitStack() as stack:
            stagings = [
                stack.enter_context(self.store.open(stage.name, s.fingerprint, s.key, resumes=stage.delivers))
                for s in steps
            ]
            outs = [staging.path for staging in stagings]
            child = self.child if stage.tensorflow else None
            kept = stage.progress_folder()
            if kept is not None:
                stack.enter_context(self.store.checkpointing(kept.name))
            settings = self._runtime.get(stage.name, {})
            if stage.delivers and self.store.objects.remote:
                settings = settings | {"places": [staging.upload_folder for staging in stagings]}
            results = run_stage(steps, outs, monitor, self.store, child, **settings)
            seconds = time.perf_counter() - started
            rows = [max(1, (result.get("counts") or {}).get("read", 1)) for result in results]
            manifests = [
                staging.commit(
                    files=result.pop("files", None),
                    result=result,
                    counts=Counts(**result["counts"]) if result.get("counts") else None,
                    seconds=seconds * n / sum(rows),
                )
                for staging, result, n in zip(stagings, results, rows, strict=True)
            ]
        if kept is not None:  # the output is in the store: nothing resumes from what was kept any more
            self.store.discard(kept)
        return manifests


def _waves(steps: Sequence[Step]) -> list[list[Step]]:
    """Returns the steps in groups (waves). A wave runs and is committed together, so a killed run repeats at most one wave."""
    waves: list[list[Step]] = []
    room = 0
    for step in steps:
        room -= step.stage.input_bytes
        if not waves or room < 0 or len(waves[-1]) == WAVE_STEPS:
            waves.append([])
            room = WAVE_BYTES - step.stage.input_bytes
        waves[-1].append(step)
    return waves


class Planner:
    """An executor that runs nothing: it returns stored outputs, and for other steps outputs that say why they would run."""

    def __init__(self, store: Store):
        self.store = store

    def call_many(self, steps: Sequence[Step]) -> list[Output[Any]]:
        return [find(self.store, step) or self._missed(step) for step in steps]

    def _missed(self, step: Step) -> Output[Any]:
        path = self.store.output(step.stage.name, step.fingerprint)
        # what a damaged output answered is what it will answer again; but the verdict is a file of the gate's
        manifest = None if step.stage.name == GateRequest.name else self.store.manifest(path)
        return step.output(path, manifest.result if manifest else None, why=explain(self.store, step))


def look_ahead(context: Context) -> Context:
    """Walk over the DAG without running or writing anything, and return a copy of the context with what stored outputs give."""
    found = context.fresh()
    found.freezes = False
    return walk(found, Planner(context.store))


def find(store: Store, step: Step) -> Output[Any] | None:
    """Returns the stored output of a step; None if the store lacks it or one of its files."""
    return find_output(store, step.stage.name, step.fingerprint, step.title, step.stage.answers())


def run_stage(
    steps: Sequence[Step], outs: Sequence[Path], monitor: Monitor, store: Store, child: Child | None, **runtime: Any
) -> list[dict[str, Any]]:
    """Call the stage's function for the steps, in the child process if one is given. Return an answer (a dict) for each step."""
    stages, call = [step.stage for step in steps], child.call if child is not None else _call
    first = stages[0]
    settings: dict[str, Any] = steps[0].runtime | runtime
    # fetches what the store has in a bucket only, but for the shards of a stage that streams them
    if remote := store.localize((path for stage in stages for path in stage.input_paths()), later=first.streams):
        settings["remote"] = remote
    if first.runs_many:
        return list(call(first.runs_many, stages, outs, monitor, **settings))
    return [dict(call(first.runs, first, outs[0], monitor, **settings))]


def _call(function: str, request: Any, out: Any, monitor: Monitor, **runtime: Any) -> Any:
    return resolve_name(function)(request, out, monitor, **runtime)


def explain(store: Store, step: Step) -> Difference:
    """Returns why the store lacks the output of `step`: damage, the first difference from the most similar key, or NEVER_RUN."""
    if reason := store.check(step.stage.name, step.fingerprint):
        return Difference(kind="damaged", new=reason)
    nearest = store.nearest(step.stage.name, step.key, but=("trial",))  # a run is no variant of a study's trial
    return (first_difference(nearest.key, step.key) if nearest else None) or NEVER_RUN


@contextlib.contextmanager
def naming_steps(store: Store, titles: Titles, running: str) -> Iterator[None]:
    """If the block raises a HeadwayError about a folder of the store, name the folder's step in the error (see `name_steps`).

    Args:
        running: the title of the step that runs in the block; its output is still in the staging folder.
    """
    try:
        yield
    except HeadwayError as error:
        name_steps(error, store, titles, running)
        raise


def name_steps(error: HeadwayError, store: Store, titles: Titles, running: str) -> None:
    """If an error is about a folder of the store, name the step that the folder is of, instead of the folder's fingerprint."""
    place = error.where
    if place is None or not Path(place).is_relative_to(store.root):
        return
    find = None
    match Path(place).relative_to(store.root).parts:
        case (store.checkpoints.name, _, *file):
            title = whole = f"the checkpoints of {running}"
        case (store.stages.name, store.staging.name, _, *file):
            title, whole = running, f"the output of {running}"
        case (store.stages.name, stage, name, *file):
            title = titles.get((stage, name), stage)
            whole, find = f"the output of {title}", "headway show latest prints its folder"
        case _:
            return
    error.where = f"{'/'.join(file)} of {title}" if file else whole
    error.problem = error.problem.replace(place, error.where)
    error.args = (error.problem, *error.args[1:])
    if find is not None:
        error.fix = f"{error.fix}; {find}" if error.fix else find
