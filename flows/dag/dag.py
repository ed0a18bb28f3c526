"""The DAG from raw files to a promoted model.

    end = road(trip, engine)                  # runs it
    end = road(trip, planner)                 # only looks what would run

A `Executor` blocks: locally it runs a step, under Prefect it submits the same step as a task and waits, in a plan it only
looks for the output. Nothing in here knows which. The steps themselves stand in `flows.dag.data_stages`,
`flows.dag.model_stages` and `flows.dag.gate_stages`.
"""

from __future__ import annotations

from collections.abc import Mapping

from flows.dag.gate_stages import GateSteps
from flows.dag.run_spec import End, Executor, RunSpec
from flows.dag.step import Output
from headway.evaluation.tasks import Task
from headway.registry.registry import Version


def road(run_spec: RunSpec, executor: Executor, *, freeze: bool = True) -> End:
    """Walk the road as far as `trip.last` says, or to the end: the verdict, and the replayed export of a promotion.

    Promotion itself is the caller's, since it changes what the next run is compared with.

    Raises:
        ConfigError, DataError: with the place and the fix; what was done before is kept.
    """
    return _Walk(run_spec, executor, freeze).walk()


class _Walk(GateSteps):
    def walk(self) -> End:
        ingested = self._ingest()
        if self._stops("ingest"):
            return self.end
        statistics = self._statistics(ingested)
        self.statistics = statistics.fingerprint
        if self._stops("statistics"):
            return self.end
        self._complete_schema(statistics)
        validated = self._validate(ingested, statistics, self._splits(ingested))
        self._freeze_schema(validated)
        if self._stops("validate") or not self._passed(validated):
            return self.end
        transform = self._transform(statistics, self._analyse(ingested))
        task = self._task(transform)
        if self._stops("transform"):
            return self.end
        train = self._train(ingested, statistics, transform)
        if self._stops("train"):
            return self.end
        champion = self.run_spec.registry.champion()
        if champion is not None and champion.facts.get("train") == train.fingerprint and not self.run_spec.force:
            self._already(champion)
            return self.end
        return self._judge(ingested, statistics, transform, train, champion, task)

    def _judge(
        self,
        ingested: Mapping[str, Output],
        statistics: Output,
        transform: Output,
        train: Output,
        champion: Version | None,
        task: Task | None,
    ) -> End:
        candidate = self._evaluate(
            "evaluate", ingested, transform, self._trained_model(train), {"train": train.fingerprint}
        )
        self.end.evaluation = candidate.result
        if champion is not None:
            self._note_other_rows(champion)
        judges = self._judges(ingested, transform, champion, task)
        if self._stops("evaluate"):
            return self.end
        verdict = self._gate(statistics, transform, train, candidate, judges)
        if verdict is None:
            self.end.later = ["gate", *(["evaluate test"] if self.parts["test"] else []), "export", "replay", "promote"]
            return self.end
        self.end.verdict = verdict
        if verdict["promote"]:
            self._test(ingested, transform, train)
        if self._stops("gate") or (not verdict["promote"] and self.run_spec.last is None):
            return self.end
        return self._ship(ingested, transform, train, candidate)
