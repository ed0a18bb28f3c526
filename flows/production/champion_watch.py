"""Watches over the champion: drift of new spans, skew of served requests, and its metrics on labels that came since.

    result = check_champion(run_spec, report)
    result["alarms"]               # ["2013-05: column 'dep_delay' ...", "2013-05: the champion has become worse: ..."]

Each complete span after the champion's own window is checked once for each champion. Its columns, as raw files have them, are
held against the champion's train rows (`headway.validation.drift`), for which no label is needed. Once the span is in the source
with labels, the champion predicts it and is held against what it was worth at its promotion
(`headway.evaluation.checks.champion_decay`). Requests that `headway serve` logged are held against the rows of the data.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from flows.dag.references import further_labels, label_facts
from flows.dag.run_spec import STATISTICS, TRANSFORM, Executor, RunSpec
from flows.dag.step import Output, find_output
from flows.execution.elsewhere.client import Elsewhere
from flows.execution.engine import Engine
from flows.execution.tensorflow_process import Child
from flows.observability.events import events_of_champion
from flows.production.champion_stages import ChampionSteps
from flows.production.new_spans import landed, read_state
from flows.production.span_predictions import glob_of, source_of, watch_of
from flows.progress.reporter import Reporter
from flows.records import record_of
from flows.scoring.request_skew import request_skew
from headway.errors import ConfigError, DataError, StoreError
from headway.evaluation.gate import Candidate, Champion, GateRequest, decide
from headway.evaluation.gate_config import GateConfig
from headway.evaluation.verdict import THRESHOLD
from headway.messages import counted, listed, metrics_line
from headway.messages import now as now_text
from headway.metrics.retrieval import RETRIEVAL
from headway.monitor import Monitor
from headway.registry.gc import running
from headway.registry.registry import Version
from headway.schema.columns import Column
from headway.sources.config import SourceConfig
from headway.sources.discovery.formats_table import open_source
from headway.sources.discovery.spans import files
from headway.statistics.split_statistics import SplitStatistics
from headway.tabular.coerce import coerce, raw_types
from headway.tabular.expressions import parse
from headway.validation.drift import drift, drift_distance
from headway.validation.request_rows import FOLDER
from tfcore.export.metadata import describe_model

Wrap = Callable[[Executor], Executor]
_MOST_KEPT, _MOST_DISTANCES = 20, 12
"""Champions whose findings are kept after they went; columns of a span whose distances are."""


def check_champion(
    run_spec: RunSpec,
    report: Reporter,
    *,
    wrap: Wrap = lambda engine: engine,
) -> dict[str, Any]:
    """Check what has landed since the champion was trained; see the module.

    Returns:
        champion (its version), spans (of those checked now: span, rows, drift, distances (by column), checked, scored (rows with
        a label, None: none yet), metrics, decay), skew (what requests differ in; None: not compared), waiting, notes, alarms
        (sentences).

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
        Elsewhere(run_spec, report) as elsewhere,
    ):
        engine = Engine(
            run_spec.store,
            child=child,
            monitor_for=report.monitor,
            on_output=report.output,
            stage=report.stage,
            limits=run_spec.loaded.pipeline.limits,
            retries=run_spec.loaded.pipeline.retries,
            elsewhere=elsewhere,
        )
        result = _Check(run_spec, champion, report, wrap(engine)).result(run_spec.store.clock())
        for event in events_of_champion(result):
            report.happened(event)
        return result


class _Check:
    def __init__(self, run_spec: RunSpec, champion: Version, report: Reporter, executor: Executor):
        self._spec, self._champion, self._report, self._executor = run_spec, champion, report, executor
        self._pipeline = run_spec.loaded.pipeline
        self._file = run_spec.store.root / "monitor" / f"{self._pipeline.name}.json"
        kept = read_state(run_spec.store, self._file)
        found = [*kept.get("earlier", []), {"champion": kept.get("champion"), "spans": kept.get("spans", {})}]
        self._known: dict[str, dict[str, Any]] = {}
        for past in found:  # of a champion that came back too
            self._known |= past["spans"] if past["champion"] == champion.number else {}
        self._earlier = [past for past in found if past["spans"] and past["champion"] != champion.number][-_MOST_KEPT:]
        self._notes: list[str] = []

    def result(self, now: float) -> dict[str, Any]:
        """Check the spans that have not been; remember each when it is done."""
        last = max(self._champion.facts.get("spans") or [""])
        labelled = landed(self._pipeline.source, self._pipeline.watch, seen={}, now=now, after=last)
        scored_source, unlabelled = source_of(self._spec.loaded), labelled
        if scored_source.path != self._pipeline.source.path:
            unlabelled = landed(scored_source, watch_of(self._spec.loaded), seen={}, now=now, after=last)
        rows: list[dict[str, Any]] = []
        """What was found now; what was told before is in `_known` alone."""
        for span in sorted({*labelled.complete, *unlabelled.complete}):
            self._report.check()
            before = self._known.get(span, {})
            row = before | ({"drift": []} if "drift" in before else {})
            if "drift" not in before:
                row |= self._drift(scored_source if span in unlabelled.complete else self._pipeline.source, span)
            if span in labelled.complete and before.get("scored") is None:
                row |= self._score(span)
            if row.keys() != before.keys():
                row["checked"] = now_text()
                rows.append({"span": span} | row)
                self._known[span] = row | {"drift": before.get("drift", row["drift"])}
                self._save()
        skew = self._skew(rows[-1]["span"]) if rows and rows[-1]["span"] in labelled.complete else None
        alarms = [f"{row['span']}: {text}" for row in rows for text in (*row["drift"], *row.get("decay", []))]
        alarms += [] if skew is None else [f"requests: {text}" for text in skew]
        found = {"pipeline": self._pipeline.name, "champion": self._champion.number, "spans": rows, "skew": skew}
        waiting = {**unlabelled.waiting, **labelled.waiting}
        return found | {"waiting": waiting, "notes": list(dict.fromkeys(self._notes)), "alarms": alarms}

    def _save(self) -> None:
        value = {"champion": self._champion.number, "spans": self._known, "earlier": self._earlier}
        self._spec.store.replace(self._file, json.dumps(value, indent=1) + "\n")

    def _drift(self, source: SourceConfig, span: str) -> dict[str, Any]:
        """Hold the columns of a span against the champion's train rows."""
        facts, store = self._champion.facts, self._spec.store
        folder = store.output(STATISTICS.name, str(facts.get("statistics")))
        if facts.get("statistics") is None or store.find(STATISTICS.name, facts["statistics"]) is None:
            self._notes.append("drift was not checked: the statistics of the champion's window are not in the store")
            return {"rows": None, "drift": []}
        theirs = SplitStatistics.load(store.local(folder) / "train")
        store.localize(str(self._champion.saved_model))
        columns = [c for c in describe_model(self._champion.saved_model).columns if c.name in theirs.columns]
        monitor = self._report.monitor(f"drift {span}")
        ours = span_statistics(source, span, columns, monitor)
        spans = facts.get("spans") or ["?"]
        whose = f"version {self._champion.number} ({spans[0]} to {spans[-1]})"
        found = []
        for anomaly in drift(ours, theirs, whose, self._pipeline.validation):
            settled = self._pipeline.validation.settled(anomaly)
            message = anomaly.message.replace("the train rows", "its rows")
            message = message.replace("train rows", "rows").replace("train values", "values")
            if settled is not None and settled.severity == "info":
                self._notes.append(f"{span}: {message}")
            elif settled is not None:
                found.append(message)
        self._report.note(f"  drift {span:<16} {counted(ours.rows, 'row')}, {counted(len(found), 'finding')}")
        return {"rows": ours.rows, "drift": found, "distances": _distances(ours, theirs)}

    def _score(self, span: str) -> dict[str, Any]:
        """Hold the champion's metrics on a span against those of its promotion; nothing where no row has a label yet."""
        transform = self._transform()
        if transform is None:
            self._notes.append("the champion is not scored again: the run that made it is not in the store any more")
            return {}
        spec = replace(self._spec, window=1, until=span, last="ingest")
        steps = ChampionSteps(spec, self._executor, freeze=False)
        scored = steps.score(self._champion, transform)
        if scored is None:
            self._notes.append(f"{span}: no row has a label yet")
            return {}
        result = scored.get()
        if result.get("incompatible"):
            problem = f"the champion cannot score these rows: {result['incompatible']}"
            return {"scored": 0, "metrics": {}, "decay": [problem]}
        metrics, decay = self._decay(scored, transform, steps.group)
        self._report.note(f"  champion on {span:<10} {metrics_line(metrics)}")
        return {"scored": result["rows"], "metrics": metrics, "decay": decay}

    def _transform(self) -> Output | None:
        run = record_of(self._spec.store, self._champion.facts.get("run"))
        step = run.step(TRANSFORM.name) if run else None
        if step is None:
            return None
        return find_output(self._spec.store, step.stage, step.fingerprint, step.title)

    def _decay(self, scored: Output, transform: Output, group: str | None) -> tuple[dict[str, Any], list[str]]:
        """(metrics, what the gate says of a champion that became worse): it is compared with itself at its promotion."""
        facts = self._champion.facts
        statistics = self._spec.store.find(STATISTICS.name, facts["statistics"])
        parameters = transform.get()["parameters"]
        predictions = self._spec.store.local(scored.path) / scored.get()["predictions"]
        request = GateRequest(
            task=parameters["label"]["task"],
            config=self._judge(),
            candidate=Candidate(model="today", predictions=predictions),
            champion=Champion(
                version=self._champion.number, model="then", predictions=predictions, worth=facts.get("worth")
            ),
            label=None if statistics is None else label_facts(parameters, statistics.result),
            labels=() if statistics is None else tuple(further_labels(parameters, statistics.result)),
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

    def _skew(self, span: str) -> list[str] | None:
        """What logged requests differ in from the rows of a span; None where there are none, or none of them is in it."""
        folder = self._spec.store.root / FOLDER / self._pipeline.name
        if not any(folder.rglob("*.jsonl")):
            return None
        glob = glob_of(self._pipeline.source, span)
        monitor = self._report.monitor("skew")
        try:
            found = request_skew(
                self._spec.loaded, requests=[], input=glob, keys=(), model=str(self._champion.number), monitor=monitor
            )
        except (ConfigError, DataError) as error:
            self._notes.append(f"requests were not compared: {error.problem}")
            return None
        return [finding["message"] for finding in found["findings"]]


def _distances(ours: SplitStatistics, theirs: SplitStatistics) -> dict[str, float]:
    """The columns that have moved furthest from the champion's train rows, furthest first."""
    both = {name: (column, theirs.columns[name]) for name, column in ours.columns.items() if name in theirs.columns}
    apart = {name: drift_distance(*pair) for name, pair in both.items()}
    known = sorted(((value, name) for name, value in apart.items() if value is not None), reverse=True)
    return {name: round(value, 4) for value, name in known[:_MOST_DISTANCES]}


def span_statistics(source: SourceConfig, span: str, columns: list[Column], monitor: Monitor) -> SplitStatistics:
    """Statistics of a span's raw columns, whether or not its rows have a label.

    Args:
        columns: in the types to be counted in; a value that does not fit leaves out its row.
    """
    reader, of_span = open_source(source), files(source, span)
    read = [column.model_copy(update={"nullable": True}) for column in columns]
    statistics = SplitStatistics.create(read)
    where = None if source.where is None else parse(source.where)
    ranges = reader.ranges(of_span)
    for done, piece in enumerate(ranges):
        monitor.check()
        monitor.progress(done, len(ranges), "ranges")
        extra = [] if where is None else [n for n in where.columns if n in reader.names(of_span[piece.file])]
        names = list(dict.fromkeys([*(column.name for column in read), *extra]))
        for chunk in reader.read(piece, names, raw_types(read)):
            batch: pa.RecordBatch = chunk.batch
            if where is not None and set(where.columns) <= set(batch.schema.names):
                batch = batch.filter(where.keep(batch))
            statistics.update(coerce(batch, read).batch)
    return statistics


def alarm_lines(result: dict[str, Any]) -> list[str]:
    """What was found, a line each, for a terminal or a message."""
    lines = [f"{result['pipeline']}: version {result['champion']}, {counted(len(result['spans']), 'span')} checked now"]
    for row in result["spans"]:
        scored = f", {metrics_line(row['metrics'])} on {counted(row['scored'], 'row')}" if row.get("scored") else ""
        rows = "" if row.get("rows") is None else f"{counted(row['rows'], 'row')}"
        lines.append(f"  {row['span']}: {rows}{scored}".rstrip())
    lines += [f"  alarm: {alarm}" for alarm in result["alarms"]]
    lines += [f"  note: {note}" for note in result["notes"]]
    lines += [f"  {span} waits: {why}" for span, why in result["waiting"].items()]
    return lines if result["alarms"] or result["spans"] else [*lines, "  nothing new to check"]
