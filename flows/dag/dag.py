"""The DAG from raw files to a promoted model.

    result = run_dag(run_spec, engine)        # runs it
    result = run_dag(run_spec, planner)       # only looks up what would run

An `Executor` blocks: locally it runs a step, under Prefect it submits the same step as a task and waits, in a plan it only
looks for the output. Nothing in here knows which. The steps themselves stand in `flows.dag.data_stages`, `train_stages`,
`evaluate_stages`, `export_stages` and `gate_stages`, each on top of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator

from flows.dag.gate_stages import GateSteps
from flows.dag.run_spec import Executor, RunResult, RunSpec


def run_dag(run_spec: RunSpec, executor: Executor, *, freeze: bool = True) -> RunResult:
    """Run the stages up to `run_spec.last`, or all: to the verdict, and the replayed export of a promotion.

    Promotion itself is the caller's, since it changes what the next run is compared with.

    Raises:
        ConfigError, DataError: with the place and the fix; what was done before is kept.
    """
    if run_spec.last in (None, "replay"):
        run_spec.loaded.pipeline.export.check_installed(str(run_spec.loaded.file))
    dag = _Dag(run_spec, executor, freeze)
    for stage in dag.stages():
        if stage == run_spec.last:
            break
    return dag.run_result


class _Dag(GateSteps):
    def stages(self) -> Iterator[str]:
        """Run one stage after the other; yields the name of each that a run may end with."""
        self._ingest()
        yield "ingest"
        self._statistics()
        yield "statistics"
        validated = self._validate()
        self._freeze_schema(validated)
        yield "validate"
        self._refuse_errors(validated)
        self._transform()
        self._check_task()
        self._resolve()
        yield "transform"
        self._train()
        yield "train"
        stand_in = self.run_spec.against
        champion = None if stand_in is not None or self.run_spec.alone else self.run_spec.registry.champion()
        trained = self.trained.fingerprint
        if champion is not None and champion.facts.get("train") == trained:
            lacking = self._lacking(champion)
            if lacking or not self.run_spec.force:
                again = self._already(champion, lacking)
                # there may be nothing to promote, but there is a model to look at
                if not again and self.run_spec.last not in ("evaluate", "replay"):
                    return
                champion = None  # it is the candidate: it is not compared with itself
        self._evaluate_seeds()
        if champion is not None:
            self._note_other_rows(champion)
        if stand_in is None:
            self._importance()
        judges = self._judges(champion) if stand_in is None else [self._stand_in(stand_in)]
        self.measured = self._measure_candidate(judges)
        self.run_result.evaluation = self.measured.result
        yield "evaluate"
        verdict = self.run_result.verdict = self.run_result.verdict or self._gate(judges)
        if verdict is None:
            tested = ["evaluate test", "measure test"] if self.parts["test"] else []
            self.run_result.later = [*tested, "export", "replay", "promote"]
            return
        if verdict.promote and stand_in is None:
            self._test()
        yield "gate"
        if not verdict.promote and self.run_spec.last is None:
            return
        export = self._export_seeds()
        yield "export"
        self._replay(export)
