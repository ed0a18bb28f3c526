"""One run from start to end: lock, plan, DAG, promotion, record.

    record = execute(run_spec, report)       # record.state, record.version

Used by the command line, which calls stages one after the other without a server, and by the Prefect flow, which puts tasks
between the DAG and the engine.
"""

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from importlib import import_module
from typing import Any

from beam_jobs.ingest.request import IngestRequest
from beam_jobs.runners.beam_import import begin_import
from flows.dag.dag import run_dag
from flows.dag.resolved_window import Window
from flows.dag.run_spec import ALREADY, Executor, RunResult, RunSpec, need_tensorflow, stages_of
from flows.dag.step import Output
from flows.execution.engine import Engine, Planner
from flows.execution.provenance import changes_since, code_of, lineage_of
from flows.progress import mlflow_tracking
from flows.progress.log_file import logged
from flows.progress.reporter import Reporter
from flows.records import Judged, Ran, RunRecord, State, read_record, record_of, settled, with_its_last_steps
from headway.errors import Cancelled, HeadwayError, Overtaken
from headway.messages import now, window_text
from headway.redaction import redact, redacted
from headway.registry.gc import running
from headway.registry.leases import WAIT_SECONDS
from headway.registry.registry import Event, Version
from headway.schema.notes import Note
from headway.storage.atomic_io import storage_error
from headway.storage.store import Store
from tfcore.runtime.tensorflow_process import Child
from tfcore.train.request import TrainRequest
from tfcore.transform.parameters import TransformRequest

_STATES: dict[type[HeadwayError], State] = {Cancelled: State.CANCELLED, Overtaken: State.OVERTAKEN}
_UNRECORDED_SECONDS = 86_400.0
"""A run without a record, but with steps that it kept as running, was killed before its first one if it is so old."""


def run_name(seconds: float) -> str:
    """A name that sorts by time, to a 65,536th of a second: runs that begin in the same second have their order too."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(seconds)) + f"-{int(seconds % 1 * 65536):04x}"


def execute(
    run_spec: RunSpec,
    report: Reporter,
    *,
    wrap: Callable[[Executor], Executor] = lambda engine: engine,
    wait_seconds: float = 0.0,
    locked: bool = False,
) -> RunRecord:
    """Run the DAG under the pipeline's lock, promote what the gate lets through, and record the run.

    Args:
        wrap: gives the executor that calls the engine.
        locked: whether the caller holds the lock, for several runs.

    Returns:
        The run as it is kept in runs/<run>.json.

    Raises:
        Locked: another run of this pipeline is going on, or `headway clean` does not end.
        HeadwayError: as the stages raise; the run is recorded as failed.
    """
    mlflow_tracking.check(run_spec.loaded)
    name = run_spec.loaded.pipeline.name
    run_spec.store.create()
    run = run_name(run_spec.store.clock())
    lock = None if locked else run_spec.store.lock(f"run-{name}", {"run": run})

    def on_wait(who: str) -> None:
        report.note(f"waiting for {who}")

    patience = max(wait_seconds, WAIT_SECONDS)
    with (
        nullcontext() if lock is None else lock.held(wait_seconds=wait_seconds, on_wait=on_wait),
        running(run_spec.store, name, run, wait_seconds=patience, on_wait=on_wait),
        logged(run_spec.store, run, report) as both,
    ):
        if lock is not None:
            note_killed(run_spec.store, name)
        return _Run(run_spec, run, both).go(wrap)


def note_killed(store: Store, pipeline: str) -> None:
    """Write down how runs of the pipeline ended whose processes died; its lock is held, so none of them goes on."""
    for file in store.runs_folder.glob("*.progress"):
        record = record_of(store, file.stem)
        if record is not None and record.pipeline == pipeline:
            if record.going_on:
                with_its_last_steps(store, settled(record, None, store.clock())).save(store)
            file.unlink(missing_ok=True)
        elif record is None and file.stem < run_name(store.clock() - _UNRECORDED_SECONDS):
            file.unlink(missing_ok=True)


class _Run:
    def __init__(self, run_spec: RunSpec, run: str, report: Reporter):
        self.run_spec = run_spec
        self.began = time.perf_counter()
        self.notes: list[Note] = []
        pipeline = run_spec.loaded.pipeline
        self.record = RunRecord(
            run=run,
            pipeline=pipeline.name,
            file=str(run_spec.loaded.file),
            state=State.RUNNING,
            started=now(),
            window=run_spec.chosen_window.size,
            until=run_spec.until,
            seed=run_spec.chosen_seed,
            force=run_spec.force,
            last=run_spec.last,
            code=code_of(run_spec.loaded),
            config=redacted(pipeline.model_dump(mode="json", exclude_unset=True)),
        )
        self.looked = False
        """The plan is made: from here on the record is kept while the run goes on."""
        self.report = report.run(self.record)

    def note(self, **fields: Any) -> None:
        """Set fields of the record."""
        self.record = self.record.model_copy(update=fields)

    def go(self, wrap: Callable[[Executor], Executor]) -> RunRecord:
        try:
            self._tidy()
            with Child(on_line=self.report.relay) as child:
                window = self._begin(child)
                engine = Engine(
                    self.run_spec.store,
                    child=child,
                    report=self.report,
                    on_output=self._output,
                )
                run_result = run_dag(self.run_spec, wrap(engine), window=window)
                child.let_go()  # it takes a while to give its memory back
                self._finish(run_result)
        except HeadwayError as error:
            for note in self.notes:  # what was found out on the way may be why
                self.report.note(f"note: {note}")
            state = next((state for kind, state in _STATES.items() if isinstance(error, kind)), State.FAILED)
            self._failed(state, str(error))
            raise
        except OSError as error:
            problem = storage_error(error, self.run_spec.store.root)
            self._failed(State.FAILED, redact(str(problem or f"{type(error).__name__}: {error}")))
            raise problem or error from None
        except BaseException as error:
            self._failed(State.FAILED, redact(f"{type(error).__name__}: {error}"), drawn=isinstance(error, Exception))
            raise
        return self.record

    def _tidy(self) -> None:
        """Put right what an earlier run left that died."""
        for folder in self.run_spec.store.sweep():
            self.report.note(f"removed the incomplete folder of a run that died: {folder.name}")
        if self.run_spec.registry.repair():
            self.report.note("a promotion was interrupted before it served the champion: it is served now")

    def _begin(self, child: Child) -> Window:
        """Look ahead; start TensorFlow now if it will be needed, so that it imports while ranges are ingested."""
        if not self.run_spec.store.children(self.run_spec.store.stages / IngestRequest.name):
            # while the plan reads the raw files: whatever it finds, none of it is ingested yet
            begin_import()
            if need_tensorflow(stages_of(self.run_spec.loaded.pipeline, self.run_spec.last)):
                child.spawn()
        window = Window.of(self.run_spec)
        plan = run_dag(self.run_spec, Planner(self.run_spec.store), freeze=False, window=window)
        if chosen := str(self.run_spec.chosen_window):
            self.report.note(f"window: {chosen}: {window_text(plan.spans)}")
        self.notes = plan.notes
        if plan.trains:
            self.looked = True
            self.note(spans=tuple(plan.spans))
            self.record.save(self.run_spec.store)
            child.spawn()
        return window

    def _output(self, output: Output[Any]) -> None:
        self.report.output(output)
        if output.stage == TransformRequest.name and not output.hit:
            threading.Thread(target=_import_later_ones, name="later-imports", daemon=True).start()
        ran = Ran(
            stage=output.stage,
            title=output.title,
            fingerprint=output.fingerprint,
            cached=output.hit,
            span=output.get()["span"] if output.stage == IngestRequest.name else None,
            seconds=round(output.seconds, 3),
            at=round(time.perf_counter() - self.began, 3),
            why=output.why,
        )
        self.note(stages=(*self.record.stages, ran))
        if self.looked:  # so that a run which is killed later shows how far it came
            self.note(seen=now())
            self.record.save(self.run_spec.store)

    def _finish(self, run_result: RunResult) -> None:
        verdict = run_result.verdict
        warnings = [a.message + f"; {a.fix}" * bool(a.fix) for a in run_result.anomalies if a.severity == "warning"]
        self.note(
            state=State.DONE,
            spans=tuple(run_result.spans),
            notes=tuple(run_result.notes),
            columns=tuple(run_result.columns),
            training=run_result.training,
            warnings=tuple(warnings),
            **_measured(run_result),
        )
        if verdict is not None:
            self.note(verdict=verdict.brief, test=run_result.test)
            if verdict.champion is not None and verdict.verdict != ALREADY:  # it was compared
                unmended = [alarm.brief for alarm in verdict.alarms if alarm.concern]
                number, alarms = verdict.champion.version, tuple(map(str, verdict.alarms))
                changes = tuple(changes_since(self.run_spec, number, self.record))
                self.note(
                    champion=Judged(version=number, alarms=alarms, changes=changes),
                    warnings=(*warnings, *unmended),
                )
        if verdict is not None and verdict.verdict == ALREADY:
            assert verdict.champion is not None
            number = run_result.champion or verdict.champion.version
            self.note(state=State.ALREADY, version=number)
            if self.run_spec.alias is not None:
                self._name(number)
        elif verdict is not None and self.run_spec.last is None:
            self.note(state=State.PROMOTED if verdict.promote else State(verdict.verdict))
            if verdict.promote:
                self.report.check()  # a run that was cancelled during the last stages changes nothing in production
                version = publish(self.run_spec, run_result, self.record)
                self.note(version=version.number)  # a promotion that comes too late leaves it in the registry
                if self.run_spec.alias is None:
                    self.note(serving=promote(self.run_spec, run_result, version, run=self.record.run).serving)
                else:
                    self._name(version.number)
        self._close()

    def _name(self, number: int) -> None:
        """Point the alias that the run was asked for at a version."""
        alias = self.run_spec.alias
        assert alias is not None
        self.run_spec.registry.set_alias(
            alias, number, reason=self.run_spec.reason or "named by a run", run=self.record.run
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
            self.record.save(self.run_spec.store)
        except OSError as error:
            if self.record.error is None:
                raise
            # what ended the run is told all the same: most often it is the disk, too
            self.report.note(redact(f"the record of this run was not written: {error}"))
        if drawn:
            self._draw()
        if self.run_spec.last is None and self.record.state != State.CANCELLED:
            spec = self.run_spec
            mlflow_tracking.track(spec.loaded, spec.registry, self.record, history=self._history, note=self.report.note)
        self.report.run_ended(self.record, self.run_spec.registry)

    def _draw(self) -> None:
        """Draw the report; whatever goes wrong with it is a note."""
        try:
            from flows.tell.report_page import write

            spec = self.run_spec
            files = {span: [file.model_dump(mode="json") for file in files] for span, files in spec.memo.items()}
            self.note(report=write(spec.store, read_record(self.record.as_json()), files))
        except Exception as error:
            text = str(error).strip().splitlines() or [""]
            self.report.note(redact(f"the report of this run was not drawn: {type(error).__name__}: {text[0][:300]}"))

    def _history(self) -> list[dict[str, Any]]:
        """Return the points of this run's training; none of one that another run trained."""
        trained = next((step for step in self.record.ran if step.stage == TrainRequest.name), None)
        if trained is None:
            return []
        from flows.tell.sections.curves import recorded

        folder = self.run_spec.store.local(self.run_spec.store.output(trained.stage, trained.fingerprint))
        return recorded(folder / "history.json")


def _import_later_ones() -> None:
    """Import what judges and draws, while the model trains."""
    with suppress(Exception):  # the import of whoever needs it fails, too
        for name in ("headway.evaluation.results.stage", "headway.evaluation.gate.stage", "flows.tell.report_page"):
            import_module(name)


def _measured(run_result: RunResult) -> dict[str, Any]:
    """The metrics of the candidate, or of the champion that it is, and those of the baselines."""
    judged = run_result.verdict and run_result.verdict.metrics.baselines
    if (found := run_result.evaluation) is not None:
        return {"metrics": found.metrics, "baselines": judged or found.baselines}
    facts = run_result.facts
    return {"metrics": facts.get("metrics") or {}, "baselines": judged or facts.get("baselines") or {}}


def publish(run_spec: RunSpec, run_result: RunResult, record: RunRecord) -> Version:
    """Publish the run's export as a version: a new one, unless a run that died after publishing left it there."""
    assert run_result.export is not None
    registry = run_spec.registry
    version = registry.find("export", run_result.facts["export"])
    if version is not None:
        return version
    saved_model = run_spec.store.local(run_result.export.path) / run_result.export.get()["saved_model"]
    facts = run_result.facts | {"run": record.run, "replay": run_result.replay}
    return registry.publish(saved_model, facts, lineage_of(run_spec, run_result, record))


def promote(run_spec: RunSpec, run_result: RunResult, version: Version, *, run: str) -> Event:
    """Promote what the gate let through, unless the champion is another by now than the one it was compared with.

    Raises:
        Overtaken: it is; the version stays in the registry.
    """
    verdict = run_result.verdict
    assert verdict is not None
    return run_spec.registry.promote(
        version.number,
        reason="; ".join([*([run_spec.reason] if run_spec.reason else []), *map(str, verdict.reasons)]),
        run=run,
        verdict=verdict.verdict,
        force=verdict.verdict == "forced",
        against=None if run_spec.force else run_result.champion,
    )
