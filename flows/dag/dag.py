"""The DAG from raw files to a promoted model.

    result = run_dag(run_spec, engine)        # runs it
    result = run_dag(run_spec, planner)       # only looks up what would run

An `Executor` blocks: locally it runs a step, under Prefect it submits the same step as a task and waits, in a plan it only
looks for the output. Nothing in here knows which. The steps themselves stand in `flows.dag.data_stages`,
`flows.dag.model_stages` and `flows.dag.gate_stages`.
"""

from __future__ import annotations

from collections.abc import Mapping

from flows.dag.gate_stages import GateSteps
from flows.dag.run_spec import Executor, RunResult, RunSpec
from flows.dag.step import Output
from headway.evaluation.tasks import Task
from headway.registry.registry import Version


def run_dag(run_spec: RunSpec, executor: Executor, *, freeze: bool = True) -> RunResult:
    """Run the stages up to `run_spec.last`, or all: to the verdict, and the replayed export of a promotion.

    Promotion itself is the caller's, since it changes what the next run is compared with.

    Raises:
        ConfigError, DataError: with the place and the fix; what was done before is kept.
    """
    return _Dag(run_spec, executor, freeze).run()


class _Dag(GateSteps):
    def run(self) -> RunResult:
        ingested = self._ingest()
        if self._stops("ingest"):
            return self.run_result
        statistics = self._statistics(ingested)
        self.statistics = statistics.fingerprint
        if self._stops("statistics"):
            return self.run_result
        self._complete_schema(statistics)
        validated = self._validate(ingested, statistics, self._splits(ingested))
        self._freeze_schema(validated)
        if self._stops("validate") or not self._passed(validated):
            return self.run_result
        transform = self._transform(statistics, self._analyse(ingested))
        task = self._task(transform)
        if self._stops("transform"):
            return self.run_result
        train = self._train(ingested, statistics, transform)
        if self._stops("train"):
            return self.run_result
        champion = self.run_spec.registry.champion()
        if champion is not None and champion.facts.get("train") == train.fingerprint and not self.run_spec.force:
            self._already(champion)
            return self.run_result
        return self._judge(ingested, statistics, transform, train, champion, task)

    def _judge(
        self,
        ingested: Mapping[str, Output],
        statistics: Output,
        transform: Output,
        train: Output,
        champion: Version | None,
        task: Task | None,
    ) -> RunResult:
        candidate = self._evaluate(
            "evaluate", ingested, transform, self._trained_model(train), {"train": train.fingerprint}
        )
        self.run_result.evaluation = candidate.result
        if champion is not None:
            self._note_other_rows(champion)
        judges = self._judges(ingested, transform, champion, task)
        if self._stops("evaluate"):
            return self.run_result
        verdict = self._gate(statistics, transform, train, candidate, judges)
        if verdict is None:
            self.run_result.later = [
                "gate",
                *(["evaluate test"] if self.parts["test"] else []),
                "export",
                "replay",
                "promote",
            ]
            return self.run_result
        self.run_result.verdict = verdict
        if verdict["promote"]:
            self._test(ingested, transform, train)
        if self._stops("gate") or (not verdict["promote"] and self.run_spec.last is None):
            return self.run_result
        return self._ship(ingested, transform, train, candidate)
