"""Watches over the champion: drift of new spans, and its metrics on labels that came since.

    result = check_champion(run_spec, report)
    result.alarms                  # ["2013-05: column 'dep_delay' ...", "2013-05: the champion has become worse: ..."]

Each complete span after the champion's own window is checked once for each champion. Its columns, as raw files have them, are
held against the champion's train rows (`headway.validation.drift`), for which no label is needed. Once the span is in the source
with labels, the champion predicts it and is held against what it was worth at its promotion
(`headway.evaluation.checks.champion_decay`).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic import Field, computed_field

from flows.dag.model_requests import predictions_of
from flows.dag.references import label_facts
from flows.dag.resolved_window import Window
from flows.dag.run_spec import Executor, RunSpec
from flows.dag.step import Output, output_of
from flows.execution.engine import Engine
from flows.pipeline.champion_stages import score
from flows.pipeline.span_predictions import arrival_of, source_of
from flows.pipeline.spans import landed
from flows.pipeline.state_files import CheckedSpan, MonitorState
from flows.progress.reporter import Reporter
from flows.records import RunRecord, record_of
from headway.config import Frozen
from headway.errors import StoreError
from headway.evaluation.gate import Candidate, Champion, GateRequest
from headway.evaluation.gate.stage import decide
from headway.evaluation.gate_config import GateConfig
from headway.evaluation.verdict import THRESHOLD
from headway.messages import counted, listed, metrics_line
from headway.messages import now as now_text
from headway.metrics.retrieval import RETRIEVAL
from headway.registry.gc import running
from headway.registry.registry import Version
from headway.sources.config import SourceConfig
from headway.statistics.split_statistics import SplitStatistics
from headway.statistics.stage import StatisticsRequest
from headway.statistics.summary import WindowStatistics
from headway.validation.drift import distances, drift
from headway.validation.serving import span_statistics
from tfcore.evaluation.results import Evaluated
from tfcore.export.metadata import describe_model
from tfcore.runtime.tensorflow_process import Child
from tfcore.transform.parameters import Transformed, TransformRequest

Wrap = Callable[[Executor], Executor]
_MOST_KEPT, _MOST_DISTANCES = 20, 12
"""Champions whose findings are kept after they went; columns of a span whose distances are."""


class Monitored(Frozen):
    """What was found of the champion now; what was told before is left out."""

    pipeline: str
    champion: int
    spans: tuple[CheckedSpan, ...] = ()
    waiting: dict[str, str] = Field(default={})
    """By span: what it waits for."""
    notes: tuple[str, ...] = ()
    run: RunRecord | None = None
    """The retrain that an alarm has started here."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def alarms(self) -> list[str]:
        """Sentences."""
        return [f"{each.span}: {text}" for each in self.spans for text in each.alarms]

    @property
    def lines(self) -> list[str]:
        """A line for each finding, for a terminal or a log."""
        lines = [f"{self.pipeline}: version {self.champion}, {counted(len(self.spans), 'span')} checked now"]
        for each in self.spans:
            scored = f", {metrics_line(each.metrics)} on {counted(each.scored, 'row')}" if each.scored else ""
            rows = "" if each.rows is None else counted(each.rows, "row")
            lines.append(f"  {each.span}: {rows}{scored}".rstrip())
        lines += [f"  alarm: {alarm}" for alarm in self.alarms]
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  {span} waits: {why}" for span, why in self.waiting.items()]
        return lines if self.alarms or self.spans else [*lines, "  nothing new to check"]


def check_champion(run_spec: RunSpec, report: Reporter, *, wrap: Wrap = lambda engine: engine) -> Monitored:
    """Check what has landed since the champion was trained; see the module.

    Raises:
        StoreError: there is no champion.
    """
    name = run_spec.loaded.pipeline.name
    champion = run_spec.registry.champion()
    if champion is None:
        problem = f"{name} has no champion to watch over"
        raise StoreError(problem, where=str(run_spec.registry.folder), fix="headway run promotes the first")
    with (
        run_spec.store.lock(f"monitor-{name}", {"command": "monitor"}).held(),
        running(run_spec.store, name, "monitor", on_wait=report.note),
        Child(on_line=report.relay) as child,
    ):
        engine = Engine(
            run_spec.store,
            child=child,
            report=report,
        )
        return _Check(run_spec, champion, report, wrap(engine)).result(run_spec.store.clock())


class _Check:
    def __init__(self, run_spec: RunSpec, champion: Version, report: Reporter, executor: Executor):
        self._spec, self._champion, self._report, self._executor = run_spec, champion, report, executor
        self._pipeline = run_spec.loaded.pipeline
        kept = MonitorState.of(run_spec.store, self._pipeline.name)
        self._kept = kept.watching(champion.number, keep=_MOST_KEPT)
        self._notes: list[str] = []

    def result(self, now: float) -> Monitored:
        """Check the spans that have not been; remember each when it is done."""
        last = max(self._champion.facts.get("spans") or [""])
        labelled = landed(self._pipeline.source, self._pipeline.arrival, now=now, after=last)
        scored_source, unlabelled = source_of(self._spec.loaded), labelled
        if scored_source.path != self._pipeline.source.path:
            unlabelled = landed(scored_source, arrival_of(self._spec.loaded), now=now, after=last)
        told: list[CheckedSpan] = []
        for span in sorted({*labelled.complete, *unlabelled.complete}):
            self._report.check()
            before = self._kept.spans.get(span)
            source = scored_source if span in unlabelled.complete else self._pipeline.source
            found = before or self._drift(source, span)
            if span in labelled.complete and found.scored is None:
                found = self._score(found)
            if found is not before:
                found = found.model_copy(update={"span": span, "checked": now_text()})
                self._keep(found)
                # drift that was found before was told then
                told.append(found if before is None else found.model_copy(update={"drift": ()}))
        return Monitored(
            pipeline=self._pipeline.name,
            champion=self._champion.number,
            spans=tuple(told),
            waiting={**unlabelled.waiting, **labelled.waiting},
            notes=tuple(dict.fromkeys(self._notes)),
        )

    def _keep(self, found: CheckedSpan) -> None:
        self._kept = self._kept.model_copy(update={"spans": {**self._kept.spans, found.span: found}})
        self._kept.save(self._spec.store, self._pipeline.name)

    def _drift(self, source: SourceConfig, span: str) -> CheckedSpan:
        """Hold the columns of a span against the champion's train rows."""
        facts, store = self._champion.facts, self._spec.store
        folder = store.output(StatisticsRequest.name, str(facts.get("statistics")))
        if facts.get("statistics") is None or store.find(StatisticsRequest.name, facts["statistics"]) is None:
            self._notes.append("drift was not checked: the statistics of the champion's window are not in the store")
            return CheckedSpan(span=span, champion=self._champion.number)
        theirs = SplitStatistics.load(store.local(folder) / "train")
        store.localize([self._champion.saved_model])
        columns = [c for c in describe_model(self._champion.saved_model).columns if c.name in theirs.columns]
        monitor = self._report.monitor(f"drift {span}")
        ours = span_statistics(source, span, columns, monitor)
        spans = facts.get("spans") or ["?"]
        whose = f"version {self._champion.number} ({spans[0]} to {spans[-1]})"
        found = []
        for anomaly in drift(ours, theirs, whose, self._pipeline.validation, trained=False):
            settled = self._pipeline.validation.settled(anomaly)
            if settled is not None and settled.severity == "info":
                self._notes.append(f"{span}: {settled.message}")
            elif settled is not None:
                found.append(settled.message)
        self._report.note(f"  drift {span:<16} {counted(ours.rows, 'row')}, {counted(len(found), 'finding')}")
        return CheckedSpan(
            span=span,
            champion=self._champion.number,
            rows=ours.rows,
            drift=tuple(found),
            distances=distances(ours, theirs, most=_MOST_DISTANCES),
        )

    def _score(self, found: CheckedSpan) -> CheckedSpan:
        """Hold the champion's metrics on a span against those of its promotion, once rows have labels."""
        transform = self._transform()
        if transform is None:
            self._notes.append("the champion is not scored again: the run that made it is not in the store any more")
            return found
        spec = replace(self._spec, window=1, until=found.span, last="ingest")
        window = Window.of(spec)
        scored = score(window, self._executor, self._champion, transform)
        if scored is None:
            self._notes.append(f"{found.span}: no row has a label yet")
            return found
        if scored.value.incompatible:
            problem = f"the champion cannot score these rows: {scored.value.incompatible}"
            return found.model_copy(update={"scored": 0, "decay": (problem,)})
        metrics, decay = self._decay(scored, transform, window.group)
        self._report.note(f"  champion on {found.span:<10} {metrics_line(metrics)}")
        # validated anew: metrics that are no numbers are left out
        return CheckedSpan(**found.model_dump() | {"scored": scored.value.rows, "metrics": metrics, "decay": decay})

    def _transform(self) -> Output[Transformed] | None:
        run = record_of(self._spec.store, self._champion.facts.get("run"))
        return output_of(self._spec.store, run, TransformRequest.name)

    def _decay(
        self, scored: Output[Evaluated], transform: Output[Transformed], group: str | None
    ) -> tuple[dict[str, Any], list[str]]:
        """(metrics, what the gate says of a champion that became worse): it is compared with itself at its promotion."""
        facts = self._champion.facts
        statistics = self._spec.store.find(StatisticsRequest.name, facts["statistics"])
        label = transform.value.parameters.label
        known = None if statistics is None else WindowStatistics.model_validate(statistics.result)
        self._spec.store.local(scored.path)
        predictions = predictions_of(scored)
        request = GateRequest(
            task=label.task,
            config=self._judge(),
            candidate=Candidate(model="today", predictions=predictions),
            champion=Champion(
                version=self._champion.number, model="then", predictions=predictions, worth=facts.get("worth")
            ),
            label=None if known is None else label_facts(label, known),
            metrics=self._spec.loaded.own_metrics,
            group=group,
            ndcg_at=self._pipeline.ndcg_at,
            item=self._pipeline.evaluation.item if self._pipeline.ndcg_at is not None else None,
            seed=self._spec.chosen_seed,
        )
        verdict = decide(request)
        missed = {check.key for check in verdict.checks if check.name == THRESHOLD and not check.passed}
        broken = [reason for reason in verdict.reasons if reason.check in missed]
        return verdict.metrics.candidate, [*map(str, verdict.alarms), *map(str, broken)]

    def _judge(self) -> GateConfig:
        """The pipeline's gate, without what only a candidate can be held to."""
        thresholds = {name: b for name, b in self._pipeline.gate.thresholds.items() if name not in RETRIEVAL}
        if left_out := sorted(set(self._pipeline.gate.thresholds) - set(thresholds)):
            self._notes.append(f"not measured again, since a published model has no index of items: {listed(left_out)}")
        return self._pipeline.gate.model_copy(update={"baseline": False, "repeats": 1, "thresholds": thresholds})
