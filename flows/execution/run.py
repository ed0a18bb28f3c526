"""One run from start to end: lock, plan, DAG, promotion, record.

    result = execute(run_spec, engine_for, report)       # {"run": ..., "state": "promoted", "version": 3, ...}

Used by the command line and by the Prefect flow, which differ only in who calls the steps.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flows.dag.dag import road
from flows.dag.replay_stage import ReplayProcess
from flows.dag.run_spec import ALREADY, End, Executor, RunSpec
from flows.dag.step import Output
from flows.execution.engine import Planner
from flows.execution.tensorflow_process import Child
from flows.progress.terminal import Reporter
from headway.clock import now
from headway.errors import Cancelled, HeadwayError
from headway.redaction import redact, redacted
from headway.registry.gc import not_collecting
from headway.registry.registry import Event, Version
from headway.storage.atomic_io import storage_error

GC_SECONDS = 60.0
"""How long a run waits at least for `headway gc` to end."""


@dataclass(frozen=True)
class Helpers:
    """The helper processes of a run. Both start early when a plan says that they will be needed."""

    child: Child
    replay: ReplayProcess

    @classmethod
    @contextmanager
    def open(cls, report: Reporter) -> Iterator[Helpers]:
        replay = ReplayProcess()
        try:
            with Child(on_line=lambda line: report.note(f"  | {line}")) as child:
                yield cls(child, replay)
        finally:
            replay.close()


CallerFor = Callable[[Helpers, Callable[[Output], None]], Executor]
"""(the processes, what to tell of each output) -> who calls the steps."""


def execute(
    run_spec: RunSpec, caller_for: CallerFor, report: Reporter, *, wait_seconds: float = 0.0, run: str | None = None
) -> dict[str, Any]:
    """Run the DAG under the pipeline's lock, promote what the gate lets through, and record the run.

    Returns:
        The run as it is kept in runs/<run>.json.

    Raises:
        Locked: another run of this pipeline is going on, or `headway gc` does not end.
        HeadwayError: as the stages raise; the run is recorded as failed.
    """
    name = run_spec.loaded.pipeline.name
    run = run or new_run_name()
    run_spec.store.create()
    lock = run_spec.store.lock(f"run-{name}", {"run": run})

    def on_wait(who: str) -> None:
        report.note(f"waiting for {who}")

    with lock.held(wait_seconds=wait_seconds, on_wait=on_wait):
        not_collecting(run_spec.store, wait_seconds=max(wait_seconds, GC_SECONDS), on_wait=on_wait)
        return _Run(run_spec, run, caller_for, report).go()


def new_run_name() -> str:
    """Sorts by time."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(2)


class _Run:
    def __init__(self, run_spec: RunSpec, run: str, caller_for: CallerFor, report: Reporter):
        self.run_spec, self.caller_for, self.report = run_spec, caller_for, report
        self.began = time.perf_counter()
        self.notes: list[str] = []
        pipeline = run_spec.loaded.pipeline
        self.record: dict[str, Any] = {
            "run": run,
            "pipeline": pipeline.name,
            "file": str(run_spec.loaded.file),
            "state": "running",
            "started": now(),
            "window": run_spec.window,
            "until": run_spec.until,
            "seed": run_spec.chosen_seed,
            "force": run_spec.force,
            "last": run_spec.last,
            "stages": [],
        }

    def go(self) -> dict[str, Any]:
        for folder in self.run_spec.store.sweep():
            self.report.note(f"removed the incomplete folder of a run that died: {folder.name}")
        if self.run_spec.registry.repair():
            self.report.note("a promotion was interrupted before it served the champion: it is served now")
        try:
            with Helpers.open(self.report) as helpers:
                self._begin(helpers)
                end = road(self.run_spec, self.caller_for(helpers, self._output))
            self._finish(end)
        except HeadwayError as error:
            for note in self.notes:  # what was found out on the way may be why
                self.report.note(f"note: {note}")
            self._failed("cancelled" if isinstance(error, Cancelled) else "failed", str(error))
            raise
        except OSError as error:
            told = storage_error(error, self.run_spec.store.root)
            self._failed("failed", redact(str(told or f"{type(error).__name__}: {error}")))
            raise told or error from None
        except BaseException as error:
            self._failed("failed", redact(f"{type(error).__name__}: {error}"))
            raise
        return self.record

    def _begin(self, helpers: Helpers) -> None:
        """Look ahead; start TensorFlow now if it will be needed, so that it imports while Beam ingests."""
        planner = Planner(self.run_spec.store)
        plan = road(self.run_spec, planner, freeze=False)
        self.notes = plan.notes
        if planner.tensorflow:
            self.record["spans"] = plan.spans
            self.run_spec.store.save_run(self.record)
            helpers.child.spawn()
            if self.run_spec.last in (None, "replay"):
                helpers.replay.start()

    def _output(self, output: Output) -> None:
        self.report.output(output)
        stage = {
            "stage": output.stage,
            "title": output.title,
            "fingerprint": output.fingerprint,
            "cached": output.hit,
            "seconds": round(output.seconds, 3),
            "why": output.why,
        }
        self.record["stages"].append(stage)
        if output.stage == "train" and not output.hit:
            # its weights are in the store: nothing resumes from here any more
            self.run_spec.store.discard(self.run_spec.store.checkpoints / output.fingerprint)
        if "spans" in self.record:  # so that a run which is killed later shows how far it came
            self.run_spec.store.save_run(self.record | {"seen": now()})

    def _finish(self, end: End) -> None:
        record = self.record
        record["spans"], record["notes"] = end.spans, end.notes
        record |= {"columns": end.columns} if end.columns else {}
        record["warnings"] = [a["message"] for a in end.anomalies if a["severity"] == "warning"]
        if end.training is not None:
            record["training"] = end.training
        verdict = end.verdict
        if verdict is not None:
            kept = ("verdict", "promote", "reasons", "primary", "outcome")
            record["verdict"] = {key: verdict[key] for key in kept if verdict.get(key) is not None}
            if baselines := (verdict.get("metrics") or {}).get("baselines"):
                record["baselines"] = baselines
            if end.test is not None:
                record["test"] = end.test
        if end.evaluation is not None:
            record["metrics"] = end.evaluation.get("metrics")
        elif end.facts.get("metrics"):
            record["metrics"] = end.facts["metrics"]
            if end.facts.get("baselines"):
                record["baselines"] = end.facts["baselines"]
        record["state"] = "done"
        if verdict is not None and verdict["verdict"] == ALREADY:
            record |= {"state": ALREADY, "version": verdict["champion"]}
        elif verdict is not None and self.run_spec.last is None:
            record["state"] = "promoted" if verdict["promote"] else verdict["verdict"]
            if verdict["promote"]:
                self.report.check()  # a run that was cancelled during the last stages changes nothing in production
                version, event = promote(self.run_spec, end, run=record["run"])
                record |= {"version": version.number, "serving": event.serving}
        self._close()

    def _failed(self, state: str, error: str) -> None:
        self.record |= {"state": state, "error": error, "notes": self.notes}
        self._close()

    def _close(self) -> None:
        self.record |= {"ended": now(), "seconds": round(time.perf_counter() - self.began, 3)}
        # what is for people to read; the rest is also worked with
        self.record |= {key: redacted(self.record[key]) for key in ("notes", "warnings", "error") if key in self.record}
        self.run_spec.store.save_run(self.record)


def promote(run_spec: RunSpec, end: End, *, run: str) -> tuple[Version, Event]:
    """Publish the run's export as a version, unless a run that died after publishing left it there, and promote it."""
    assert end.export is not None and end.verdict is not None
    registry = run_spec.registry
    version = registry.find("export", end.facts["export"])
    if version is None:
        saved_model = run_spec.store.local(end.export.path) / end.export.get()["saved_model"]
        version = registry.publish(saved_model, end.facts | {"run": run, "replay": end.replay})
    verdict = end.verdict["verdict"]
    event = registry.promote(
        version.number,
        reason="; ".join(end.verdict["reasons"]),
        run=run,
        verdict=verdict,
        force=verdict == "forced",
    )
    return version, event
