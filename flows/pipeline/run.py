"""One run from start to end: lock, plan, steps, promotion, record, report.

    record = execute(context, report)       # record.state, record.version

The command line calls `execute` without a server. The Prefect flow passes `wrap`, to make each call of the engine a task.
"""

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from importlib import import_module
from typing import Any

from beam_jobs.ingest.request import IngestRequest
from beam_jobs.runners.beam_import import begin_import
from flows.pipeline import mlflow_tracking
from flows.pipeline.context import Context
from flows.pipeline.dag import Executor, check_last, needs_tensorflow, plan_needs_tensorflow, stages_of, walk
from flows.pipeline.engine import Engine, look_ahead
from flows.pipeline.listeners import Reporter, open_log
from flows.pipeline.provenance import changes_since, code_of, lineage_of
from flows.records import (
    ChampionSummary,
    RunRecord,
    State,
    StepRecord,
    read_record,
    record_or_none,
    refresh,
    with_its_last_steps,
)
from flows.report.verdict import explain
from headway.errors import Cancelled, HeadwayError, Overtaken
from headway.messages import now, window_text
from headway.redaction import redact, redacted
from headway.registry.gc import run_lease
from headway.registry.leases import WAIT_SECONDS
from headway.registry.registry import NOBODY, Event, Version
from headway.schema.notes import Note
from headway.stages.step import Output
from headway.storage.atomic_io import storage_error
from headway.storage.store import Store
from tfcore.runtime.tensorflow_process import Child
from tfcore.transform.fit import TransformRequest

_STATES: dict[type[HeadwayError], State] = {Cancelled: State.CANCELLED, Overtaken: State.OVERTAKEN}
_UNRECORDED_SECONDS = 86_400.0
"""A .progress file of this age without a record belongs to a run that was killed before it wrote its first record."""


def run_name(seconds: float) -> str:
    """Returns a run's name from its start in seconds since 1970; names sort by time, to a 65,536th of a second."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(seconds)) + f"-{int(seconds % 1 * 65536):04x}"


def execute(
    context: Context,
    report: Reporter,
    *,
    wrap: Callable[[Executor], Executor] = lambda engine: engine,
    wait_seconds: float = 0.0,
    locked: bool = False,
) -> RunRecord:
    """Run the DAG under the pipeline's lock, promote what the gate lets through, and record the run.

    Args:
        wrap: takes the engine, and returns the executor that the DAG calls instead.
        wait_seconds: how long to wait for another run of the pipeline to end.
        locked: whether the caller holds the pipeline's lock already, for several runs.

    Returns:
        The run's record, as runs/<run>.json keeps it; with the address of the report, which is written later.

    Raises:
        ConfigError: the DAG has no stage `context.last`, or MLflow is needed and not installed.
        Locked: another run of this pipeline is going on, or `headway clean` does not end.
        HeadwayError: a stage failed, or the promotion came too late; the record says how the run ended.
    """
    check_last(context.last)
    mlflow_tracking.check(context.loaded)
    name = context.loaded.pipeline.name
    context.store.create()
    run = run_name(context.store.clock())
    lock = None if locked else context.store.lock(f"run-{name}", {"run": run})

    def on_wait(who: str) -> None:
        report.note(f"waiting for {who}")

    patience = max(wait_seconds, WAIT_SECONDS)
    with (
        nullcontext() if lock is None else lock.held(wait_seconds=wait_seconds, on_wait=on_wait),
        run_lease(context.store, name, run, wait_seconds=patience, on_wait=on_wait),
        open_log(context.store, run) as log,
    ):
        if lock is not None:
            mark_killed_runs(context.store, name)
        told = report.of(run, mlflow_tracking.MLflow(context.loaded, context.registry), log)
        return _Run(context, run, told).go(wrap)


def mark_killed_runs(store: Store, pipeline: str) -> None:
    """Record as killed the pipeline's unfinished runs, and delete their .progress files; the caller holds the lock."""
    for file in store.runs_folder.glob("*.progress"):
        record = record_or_none(store, file.stem)
        if record is not None and record.pipeline == pipeline:
            if record.going_on:
                with_its_last_steps(store, refresh(record, None, store.clock())).save(store)
            file.unlink(missing_ok=True)
        elif record is None and file.stem < run_name(store.clock() - _UNRECORDED_SECONDS):
            file.unlink(missing_ok=True)


class _Run:
    def __init__(self, context: Context, run: str, report: Reporter):
        self.context = context
        self.began = time.perf_counter()
        self.notes: list[Note] = []
        pipeline = context.loaded.pipeline
        self.record = RunRecord(
            run=run,
            pipeline=pipeline.name,
            file=str(context.loaded.file),
            state=State.RUNNING,
            started=now(),
            window=context.chosen_window.size,
            until=context.until,
            seed=context.chosen_seed,
            force=context.force,
            last=context.last,
            code=code_of(context.loaded),
            config=redacted(pipeline.model_dump(mode="json", exclude_unset=True)),
        )
        self.looked = False
        """Whether the plan found steps that need TensorFlow: from then on the record is saved after each step."""
        self.report = report
        report.run(self.record)

    def note(self, **fields: Any) -> None:
        """Set fields of the record."""
        self.record = self.record.model_copy(update=fields)

    def go(self, wrap: Callable[[Executor], Executor]) -> RunRecord:
        try:
            self._tidy()
            with Child(on_line=self.report.relay) as child:
                self._plan(child)
                engine = Engine(self.context.store, child=child, report=self.report, on_output=self._output)
                walk(self.context, wrap(engine))
                child.let_go()  # it takes a while to give its memory back
                self._judged()
                self._promote()
                self._close()
        except HeadwayError as error:
            for note in self.notes:  # what was found out on the way may be why
                self.report.note(f"note: {note}")
            state = next((state for kind, state in _STATES.items() if isinstance(error, kind)), State.FAILED)
            self._failed(state, str(error))
            raise
        except OSError as error:
            problem = storage_error(error, self.context.store.root)
            self._failed(State.FAILED, redact(str(problem or f"{type(error).__name__}: {error}")))
            raise problem or error from None
        except BaseException as error:
            self._failed(State.FAILED, redact(f"{type(error).__name__}: {error}"), drawn=isinstance(error, Exception))
            raise
        return self.record

    def _tidy(self) -> None:
        """Delete incomplete folders of runs that died, and finish a promotion that was interrupted; note both."""
        for folder in self.context.store.sweep():
            self.report.note(f"removed the incomplete folder of a run that died: {folder.name}")
        if self.context.registry.repair():
            self.report.note("a promotion was interrupted before it served the champion: it is served now")

    def _plan(self, child: Child) -> None:
        """Plan the run. If a planned step needs TensorFlow, save the record, and start the import, to go on during ingest."""
        context = self.context
        if not context.store.children(context.store.stages / IngestRequest.name):
            # while the plan reads the raw files: whatever it finds, none of it is ingested yet
            begin_import()
            if needs_tensorflow(stages_of(context)):
                child.spawn()
        _ = context.columns  # the plan and the run read the raw files once
        plan = look_ahead(context)
        if chosen := str(context.chosen_window):
            self.report.note(f"window: {chosen}: {window_text(plan.spans)}")
        self.notes = plan.notes
        if plan_needs_tensorflow(plan):
            self.looked = True
            self.note(spans=plan.spans)
            self.record.save(context.store)
            child.spawn()

    def _output(self, output: Output[Any]) -> None:
        self.report.output(output)
        if output.stage == TransformRequest.name and not output.hit:
            threading.Thread(target=_import_later_ones, name="later-imports", daemon=True).start()
        ran = StepRecord(
            stage=output.stage,
            title=output.title,
            fingerprint=output.fingerprint,
            cached=output.hit,
            span=output.json()["span"] if output.stage == IngestRequest.name else None,
            seconds=round(output.seconds, 3),
            at=round(time.perf_counter() - self.began, 3),
            why=output.why,
        )
        self.note(stages=(*self.record.stages, ran))
        if self.looked:  # so that a run which is killed later shows how far it came
            self.note(seen=now())
            self.record.save(self.context.store)

    def _judged(self) -> None:
        """Put the results of the steps into the record: columns, settings, metrics, verdict, warnings."""
        context, verdict = self.context, self.context.verdict
        warnings = [a.message + f"; {a.fix}" * bool(a.fix) for a in context.anomalies if a.severity == "warning"]
        self.note(
            state=State.DONE,
            spans=context.spans,
            notes=tuple(context.notes),
            columns=tuple(context.column_table),
            training=context.settings,
            warnings=tuple(warnings),
            **_measured(context),
        )
        if verdict is not None:
            self.note(verdict=verdict.brief, test=context.test)
            if verdict.champion is not None and verdict.basis != "same model":  # it was compared
                found = explain(verdict).alarms
                unmended = [alarm.brief for alarm in found if alarm.concern]
                number, alarms = verdict.champion.version, tuple(map(str, found))
                changes = tuple(changes_since(context, number, self.record))
                self.note(
                    champion=ChampionSummary(version=number, alarms=alarms, changes=changes),
                    warnings=(*warnings, *unmended),
                )

    def _promote(self) -> None:
        """Publish the candidate if the verdict allows it; make it the champion, or point the alias at it. Set the run's state."""
        context, verdict = self.context, self.context.verdict
        if verdict is None:
            return
        if verdict.basis == "same model":
            assert verdict.champion is not None
            self.note(state=State.ALREADY, version=verdict.champion.version)
            if context.alias is not None:
                self._name(verdict.champion.version)
        elif context.last is None:
            self.note(state=State(verdict.status))
            if verdict.promote:
                self.report.check()  # a run that was cancelled during the last stages changes nothing in production
                version = publish(context, self.record)
                self.note(version=version.number)  # a promotion that comes too late leaves it in the registry
                if context.alias is None:
                    self.note(serving=promote(context, version, run=self.record.run).serving)
                else:
                    self._name(version.number)

    def _name(self, number: int) -> None:
        """Point the alias that the run was asked for at a version, and record that."""
        alias = self.context.alias
        assert alias is not None
        self.context.registry.set_alias(
            alias, number, reason=self.context.reason or "named by a run", run=self.record.run
        )
        self.note(state=State.NAMED, alias=alias)

    def _failed(self, state: State, error: str, *, drawn: bool = True) -> None:
        self.note(state=state, error=error, notes=tuple(self.notes))
        self._close(drawn=drawn and state != State.CANCELLED)  # who stops a run does not want to wait
        if self.record.report is not None:
            self.report.note(f"report: {self.record.report}")

    def _close(self, *, drawn: bool = True) -> None:
        self.note(ended=now(), seconds=round(time.perf_counter() - self.began, 3), seen=None)
        # what is for people to read; the rest is also worked with
        notes = tuple(note.model_copy(update={"text": redact(note.text)}) for note in self.record.notes)
        self.note(notes=notes, warnings=tuple(redacted(self.record.warnings)))
        self.note(error=redacted(self.record.error))
        try:
            self.record.save(self.context.store)
        except OSError as error:
            if self.record.error is None:
                raise
            # what ended the run is told all the same: most often it is the disk, too
            self.report.note(redact(f"the record of this run was not written: {error}"))
        if drawn:
            self._draw()
        self._renew_site()
        self.report.run(self.record)

    def _draw(self) -> None:
        """Write the HTML report of the run; an error in it becomes a note."""
        try:
            from flows.report.page import write

            spec = self.context
            files = {span: [file.model_dump(mode="json") for file in files] for span, files in spec.memo.items()}
            self.note(report=write(spec.store, read_record(self.record.as_json()), files))
        except Exception as error:
            text = str(error).strip().splitlines() or [""]
            self.report.note(redact(f"the report of this run was not written: {type(error).__name__}: {text[0][:300]}"))

    def _renew_site(self) -> None:
        from flows.report.site import renew_site

        renew_site(self.context.store, self.record.pipeline, self.report.note)


def _import_later_ones() -> None:
    """Import the modules of evaluation and report ahead. Runs in a thread beside the training. Errors are ignored."""
    with suppress(Exception):  # the import of whoever needs it fails, too
        for name in ("headway.evaluation.measure", "headway.evaluation.gate", "flows.report.page", "flows.report.site"):
            import_module(name)


def _measured(context: Context) -> dict[str, Any]:
    """Returns the record's metrics and baselines: the candidate's, or the champion's if that is the same model."""
    judged = context.verdict and context.verdict.metrics.baselines
    if (found := context.evaluation) is not None:
        return {"metrics": found.metrics, "baselines": judged or found.baselines}
    facts = context.facts
    return {"metrics": facts.get("metrics") or {}, "baselines": judged or facts.get("baselines") or {}}


def publish(context: Context, record: RunRecord) -> Version:
    """Publish the run's exported model as a version, and return it. A model that was published before keeps its version."""
    registry, export = context.registry, context.export
    version = registry.find("export", export.fingerprint)
    if version is not None:
        return version
    saved_model = context.store.local(export.path) / export.value.saved_model
    asked_for = record.model_dump(include={"run", "started", "file", "window", "until", "seed", "force"})
    lineage = lineage_of(context, asked_for, code=record.code, steps=record.stages)
    return registry.publish(saved_model, context.facts | {"run": record.run}, lineage)


def promote(context: Context, version: Version, *, run: str) -> Event:
    """Make a version the champion, and return the registry's event.

    Raises:
        Overtaken: without force, if the champion is no longer the one that the gate compared with.
    """
    verdict = context.verdict
    assert verdict is not None
    compared = NOBODY if context.champion is None else context.champion.number
    return context.registry.promote(
        version.number,
        reason="; ".join([*([context.reason] if context.reason else []), *map(str, explain(verdict).reasons)]),
        run=run,
        basis=verdict.basis,
        anchor=verdict.anchors,
        force=verdict.basis == "forced",
        against=None if context.force else compared,
    )
