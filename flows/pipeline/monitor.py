"""Monitoring of the champion: drift in new spans, and the champion's metrics on new labels.

    result = check_champion(context, report)
    result.alarms                  # ["2013-05: column 'dep_delay' ...", "2013-05: the champion has become worse: ..."]

Each complete span after the champion's window is checked once for each champion. First the span's raw columns are compared with
the champion's train rows, which needs no label (`headway.validation.drift`). Once the source has the span's labels, the champion
predicts the span. The metrics there are compared with the metrics at the promotion (`headway.evaluation.tolerance`).
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic import Field, computed_field

from flows.pipeline import steps
from flows.pipeline.champion import predictions_of, saved_model
from flows.pipeline.context import Context, examples_of, label_facts
from flows.pipeline.dag import Executor
from flows.pipeline.engine import Engine
from flows.pipeline.listeners import Reporter
from flows.pipeline.spans import prediction_spans, read_spans
from flows.records import MonitorFindings, RunRecord, SpanCheck, record_or_none
from flows.report.verdict import explain
from headway.config import Frozen
from headway.errors import StoreError
from headway.evaluation.config import GateConfig
from headway.evaluation.gate import decide
from headway.evaluation.requests import Candidate, Champion, GateRequest
from headway.evaluation.verdict import THRESHOLD
from headway.messages import counted, listed, metrics_line
from headway.messages import now as now_text
from headway.metrics.retrieval import RETRIEVAL
from headway.registry.gc import run_lease
from headway.registry.registry import Version
from headway.sources.config import SourceConfig
from headway.stages.refs import Ref
from headway.stages.step import Output, Step
from headway.statistics.split_statistics import SplitStatistics
from headway.statistics.stage import StatisticsRequest
from headway.statistics.summary import WindowStatistics
from headway.validation.drift import check_drift
from headway.validation.serving import span_statistics
from tfcore.evaluation.request import Evaluated, EvaluateRequest
from tfcore.export.metadata import describe_model
from tfcore.runtime.tensorflow_process import Child
from tfcore.transform.fit import Transformed, TransformRequest
from tfcore.transform.parameters import TransformParameters

Wrap = Callable[[Executor], Executor]


class Monitoring(Frozen):
    """The result of one call of `headway monitor`; findings that an earlier call reported are left out."""

    pipeline: str
    champion: int
    spans: tuple[SpanCheck, ...] = ()
    waiting: dict[str, str] = Field(default={})
    """{span that is not checked yet: what it waits for}"""
    notes: tuple[str, ...] = ()
    run: RunRecord | None = None
    """The retraining that was started because of an alarm; None: none was."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def alarms(self) -> list[str]:
        """The alarms of the checked spans as sentences, each with its span."""
        return [f"{each.span}: {text}" for each in self.spans for text in each.alarms]

    @property
    def lines(self) -> list[str]:
        """The text lines of the report: a heading, a line per checked span, then alarms, notes and waiting spans."""
        lines = [f"{self.pipeline}: version {self.champion}, {counted(len(self.spans), 'span')} checked now"]
        for each in self.spans:
            scored = f", {metrics_line(each.metrics)} on {counted(each.scored, 'row')}" if each.scored else ""
            rows = "" if each.rows is None else counted(each.rows, "row")
            lines.append(f"  {each.span}: {rows}{scored}".rstrip())
        lines += [f"  alarm: {alarm}" for alarm in self.alarms]
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  {span} waits: {why}" for span, why in self.waiting.items()]
        return lines if self.alarms or self.spans else [*lines, "  nothing new to check"]


def check_champion(context: Context, report: Reporter, *, wrap: Wrap = lambda engine: engine) -> Monitoring:
    """Checks the champion on each new span (see the module) and renews the store's site; `wrap` may replace the engine.

    Raises:
        StoreError: there is no champion.
    """
    name, store = context.loaded.pipeline.name, context.store
    champion = context.registry.champion()
    if champion is None:
        problem = f"{name} has no champion to watch over"
        raise StoreError(problem, where=str(context.registry.folder), fix="headway run promotes the first")
    with (
        store.lock(f"monitor-{name}", {"command": "monitor"}).held(),
        run_lease(store, name, "monitor", on_wait=report.note),
        Child(on_line=report.relay) as child,
    ):
        found = _Check(context, champion, report, wrap(Engine(store, child=child, report=report))).result()
    from flows.report.site import renew_site

    renew_site(store, name, report.note)
    return found


class _Check:
    def __init__(self, context: Context, champion: Version, report: Reporter, executor: Executor):
        self._context, self._champion, self._report, self._executor = context, champion, report, executor
        self._pipeline, self._store = context.loaded.pipeline, context.store
        self._notes: list[str] = []

    def result(self) -> Monitoring:
        """Checks the spans that are not checked yet, and stores each result in monitor/<pipeline>.json at once."""
        loaded, now, last = self._context.loaded, self._store.clock(), max(self._champion.facts.get("spans") or [""])
        labelled = unlabelled = read_spans(self._pipeline.source, self._pipeline.arrival, now=now, after=last)
        if self._pipeline.predictions.path is not None:
            unlabelled = prediction_spans(loaded, now=now, after=last)
        state, news = MonitorFindings.of(self._store, self._pipeline.name), list[SpanCheck]()
        known = state.versions.get(self._champion.number, {})
        for span in sorted({*labelled.complete, *unlabelled.complete}):
            self._report.check()
            before = known.get(span)
            check = before or self._drift((unlabelled if span in unlabelled.complete else labelled).source, span)
            if span in labelled.complete and check.scored is None:
                check = self._decay(check)
            if check is not before:
                check = check.model_copy(update={"checked": now_text()})
                state.add(self._store, self._pipeline.name, check)
                # drift that was found before was told then
                news.append(check if before is None else check.model_copy(update={"drift": ()}))
        return Monitoring(
            pipeline=self._pipeline.name,
            champion=self._champion.number,
            spans=tuple(news),
            waiting={**unlabelled.waiting, **labelled.waiting},
            notes=tuple(dict.fromkeys(self._notes)),
        )

    def _drift(self, source: SourceConfig, span: str) -> SpanCheck:
        """Returns the check of a span's columns against the champion's train rows. Also reports a line, and keeps notes."""
        champion, config = self._champion, self._pipeline.validation
        if self._statistics() is None:
            self._notes.append("drift was not checked: the statistics of the champion's window are not in the store")
            return SpanCheck(span=span, champion=champion.number)
        folder = self._store.output(StatisticsRequest.name, champion.facts["statistics"])
        theirs = SplitStatistics.load(self._store.local(folder) / "train")
        self._store.localize([champion.saved_model])
        columns = [c for c in describe_model(champion.saved_model).columns if c.name in theirs.columns]
        with self._report.step(f"drift {span}") as monitor:
            ours = span_statistics(source, span, columns, monitor)
        spans, found = champion.facts.get("spans") or ["?"], []
        whose = f"version {champion.number} ({spans[0]} to {spans[-1]})"
        for anomaly in filter(None, map(config.with_severity, check_drift(ours, theirs, whose, config, rows="rows"))):
            if anomaly.severity == "info":
                self._notes.append(f"{span}: {anomaly.message}")
            else:
                found.append(anomaly.message)
        self._report.note(f"  drift {span:<16} {counted(ours.rows, 'row')}, {counted(len(found), 'finding')}")
        return SpanCheck(span=span, champion=champion.number, rows=ours.rows, drift=tuple(found))

    def _statistics(self) -> WindowStatistics | None:
        """Returns the statistics of the champion's window; None if the store does not have them."""
        fingerprint = self._champion.facts.get("statistics")
        found = None if fingerprint is None else self._store.find(StatisticsRequest.name, fingerprint)
        return None if found is None else WindowStatistics.model_validate(found.result)

    def _decay(self, check: SpanCheck) -> SpanCheck:
        """Returns the check with the champion's metrics on the span, and alarms if worse; unchanged without labels or its run."""
        run = record_or_none(self._store, self._champion.facts.get("run"))
        transform = None if run is None else run.output(self._store, TransformRequest.name)
        if transform is None:
            self._notes.append("the champion is not scored again: the run that made it is not in the store any more")
            return check
        window = replace(self._context, window=1, until=check.span, last="ingest")
        scored = self._score(window, transform)
        if scored is None:
            self._notes.append(f"{check.span}: no row has a label yet")
            return check
        if scored.value.incompatible:
            problem = f"the champion cannot score these rows: {scored.value.incompatible}"
            return check.model_copy(update={"scored": 0, "decay": (problem,)})
        verdict = decide(self._gate_request(scored, transform, window.group))
        missed = {check.key for check in verdict.checks if check.name == THRESHOLD and not check.passed}
        found = explain(verdict)
        broken = [reason for reason in found.reasons if reason.check is not None and reason.check.key in missed]
        metrics = {
            name: value
            for name, value in verdict.metrics.candidate.items()
            if value is not None and math.isfinite(value)
        }
        self._report.note(f"  champion on {check.span:<10} {metrics_line(metrics)}")
        decay = tuple(map(str, [*found.alarms, *broken]))
        return check.model_copy(update={"scored": scored.value.rows, "metrics": metrics, "decay": decay})

    def _score(self, window: Context, transform: Output[Any]) -> Output[Evaluated] | None:
        """Ingests a span and predicts its rows in all splits with the champion, which was trained on none of them.

        Args:
            transform: the output of the champion's own run, which says what the label is.

        Returns:
            The output of the predictions; None if no row has a label.
        """
        evaluation, champion = self._pipeline.evaluation, self._champion
        (ingested,) = self._executor.call_many([*steps.ingest(window)])
        parts = [part for part, facts in ingested.value.splits.items() if facts.rows]
        if not parts:
            return None
        # those that metrics, slices of thresholds and groups are made of
        columns = {window.group or "", evaluation.item or "", *self._pipeline.judged_columns}
        evaluate = EvaluateRequest(
            batch_size=evaluation.batch_size,
            columns=tuple(sorted(columns & set(window.columns.stored))),
            model=saved_model(champion),
            transform=Ref[TransformParameters](
                stage=transform.stage, fingerprint=transform.fingerprint, answer=transform.read(Transformed).parameters
            ),
            examples=tuple(examples_of(ingested, part) for part in parts),
        )
        return self._executor.call_many([Step(evaluate, f"evaluate champion {champion.number} on {window.until}")])[0]

    def _gate_request(self, scored: Output[Evaluated], transform: Output[Any], group: str | None) -> GateRequest:
        """Returns the gate's request: the champion on this span is the candidate; it is compared with itself at its promotion."""
        label, known = transform.read(Transformed).parameters.label, self._statistics()
        self._store.local(scored.path)
        predictions, worth = predictions_of(scored), self._champion.facts.get("worth")
        return GateRequest(
            task=label.task,
            config=self._gate_config(),
            candidate=Candidate(model="today", predictions=predictions),
            champion=Champion(version=self._champion.number, model="then", predictions=predictions, worth=worth),
            label=None if known is None else label_facts(label, known),
            metrics=self._context.loaded.own_metrics,
            group=group,
            ndcg_at=self._pipeline.ndcg_at,
            item=self._pipeline.evaluation.item if self._pipeline.ndcg_at is not None else None,
            seed=self._context.chosen_seed,
        )

    def _gate_config(self) -> GateConfig:
        """Returns the pipeline's gate without baselines, and without retrieval thresholds: a version has no item index."""
        thresholds = {name: b for name, b in self._pipeline.gate.thresholds.items() if name not in RETRIEVAL}
        if left_out := sorted(set(self._pipeline.gate.thresholds) - set(thresholds)):
            self._notes.append(f"not measured again, since a published model has no index of items: {listed(left_out)}")
        return self._pipeline.gate.model_copy(update={"baseline": False, "thresholds": thresholds})
