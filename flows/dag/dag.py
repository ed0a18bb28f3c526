"""The DAG from raw files to a promoted model.

    result = run_dag(run_spec, engine)        # runs it
    result = run_dag(run_spec, planner)       # only looks up what would run

An `Executor` blocks: locally it runs a step, under Prefect it submits the same step as a task and waits, in a plan it only
looks for the output. Nothing in here knows which.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from flows.dag.column_table import column_table
from flows.dag.data_requests import (
    analyse_request,
    ingest_requests,
    reference_of,
    splits_request,
    statistics_request,
    transform_request,
    validate_request,
)
from flows.dag.fitted_data import Data
from flows.dag.judging import Judge, fair, gate_request, judges_of, repeats_of
from flows.dag.model_requests import (
    Candidate,
    evaluate_request,
    export_request,
    importance_request,
    measure_request,
    model_of,
    replay_request,
    train_request,
    unmeasured_export,
)
from flows.dag.outcome import already, by_quality, check_task, facts_of, lacking, other_rows, refuse_errors
from flows.dag.resolved_window import Window
from flows.dag.run_spec import Executor, RunResult, RunSpec, stages_of
from flows.dag.step import Output, Step
from flows.dag.warm_start import check_parent
from flows.records import Chosen
from flows.records import Measured as Tested
from headway.config import Result
from headway.evaluation.results.measured import Measured
from headway.evaluation.verdict import Verdict
from headway.messages import counted, metrics_line
from headway.stages.refs import Unknown
from headway.stages.stage_class import Stage
from headway.statistics.split_statistics import SplitStatistics
from tfcore.train.request import TrainRequest
from tfcore.train.settings.auto import described

Answer = TypeVar("Answer", bound=Result)


def run_dag(run_spec: RunSpec, executor: Executor, *, freeze: bool = True, window: Window | None = None) -> RunResult:
    """Run the stages up to `run_spec.last`, or all: to the verdict, and the replayed export of a promotion.

    Promotion itself is the caller's, since it changes what the next run is compared with.

    Args:
        window: of the run, where the caller has it already: to infer a schema reads 15,000 rows.

    Raises:
        ConfigError, DataError: with the place and the fix; what was done before is kept.
    """
    pipeline, last = run_spec.loaded.pipeline, run_spec.last
    if last in (None, "replay"):
        pipeline.export.check_installed(str(run_spec.loaded.file))
    window = window or Window.of(run_spec)
    result = RunResult(spans=list(window.spans), notes=list(window.columns.notes))
    try:
        for phase in _dag(window, Calls(executor, result), result, freeze):
            if phase == last:
                break
    except Unknown:  # a plan
        called = {output.stage for output in result.outputs}
        result.follows = [name for name in stages_of(pipeline, last) if name not in called]
        if TrainRequest.name in result.follows:
            parts = window.parts
            check_parent(run_spec, train=parts["train"], evaluation=parts["eval"], split=window.split_digest)
        tested = ["evaluate test", "measure test"] if window.parts.get("test") else []
        result.later = [*tested, "export", "replay", "promote"] if last is None else []
    return result


class Calls:
    """Calls stages by an executor, and keeps their outputs in the result of the run."""

    def __init__(self, executor: Executor, result: RunResult):
        self._executor, self._result = executor, result

    def __call__(self, stage: Stage[Answer], title: str, **runtime: object) -> Output[Answer]:
        return self.all([Step(stage, title, runtime)])[0]

    def all(self, steps: Sequence[Step]) -> list[Output[Any]]:
        outputs = self._executor.call_many(steps)
        self._result.outputs += outputs
        return outputs

    def spans(self, requests: Mapping[str, Stage[Answer]], runtime: dict[str, object]) -> dict[str, Output[Answer]]:
        """One step for each span."""
        steps = [Step(request, f"{request.name} {span}", runtime) for span, request in requests.items()]
        return dict(zip(requests, self.all(steps), strict=True))


def _dag(window: Window, run: Calls, result: RunResult, freeze: bool) -> Iterator[str]:
    """Run one stage after the other; yields the name of each that a run may end with."""
    spec, pipeline, registry = window.run_spec, window.pipeline, window.run_spec.registry
    requests = ingest_requests(window)
    ingested = run.spans(requests, {"runner": pipeline.runner})
    yield "ingest"

    statistics = run(statistics_request(window, ingested), "statistics")
    yield "statistics"

    inferred, first = window.columns.inferred, window.columns.inferred or window.columns.completes
    if inferred and freeze:
        # the first time the schema is completed with what the window's statistics show
        folder = spec.store.local(statistics.path)
        completed = window.columns.completed([SplitStatistics.load(folder / split) for split in statistics.value.rows])
        window = replace(window, columns=completed)
    proof = run(splits_request(window, requests, ingested), "splits", runner=pipeline.runner)
    champion = registry.champion()
    reference = reference_of(champion, statistics.fingerprint)
    validated = run(validate_request(window, ingested, statistics, proof, reference), "validate")
    if first and freeze and not validated.value.stopping:
        # it is the reference for later windows
        window = replace(window, columns=window.columns.frozen(spec.loaded))
        result.notes = list(window.columns.notes)
    yield "validate"

    if validated.known:  # else a plan goes on, as if no error were found
        result.anomalies = list(validated.value.anomalies)
        refuse_errors(validated)
    analyse = analyse_request(window, ingested)
    analysed = None if analyse is None else run(analyse, "analyse")
    transform = run(transform_request(window, ingested, statistics, analysed), "transform")
    data = Data(window, ingested, statistics, proof, validated, transform)
    if inferred:
        notes = [*window.columns.notes, *transform.value.notes]
        result.columns = column_table(window.columns, pipeline, notes, transform.get()["parameters"])
    result.notes += check_task(data, champion)
    result.size = data.size
    result.training = Chosen(
        rows=data.size.rows,
        says=described(data.training, data.model),
        training=data.training.model_dump(mode="json"),
        model=data.model.model_dump(mode="json"),
    )
    yield "transform"

    seeds = [(spec.chosen_seed + n) % 2**31 for n in range(1 if spec.trial else pipeline.gate.repeats)]
    asked = {seed: train_request(data, seed) for seed in seeds}
    result.notes += dict.fromkeys(note for _, _, notes in asked.values() for note in notes)
    made = champion and champion.facts.get("train")
    same = [] if spec.force else [seed for seed, (request, *_) in asked.items() if request.fingerprint == made]
    trained = {seed: run(asked[seed][0], _titled("train", seed, spec)) for seed in same[:1] or asked}
    yield "train"

    again = None
    if champion is not None and next(iter(trained.values())).fingerprint == made:
        formats = lacking(data, champion)
        if formats or not spec.force:
            again = champion if already(data, champion, formats, result) else None
            # there may be nothing to promote, but there is a model to look at
            if again is None and spec.last not in ("evaluate", "replay"):
                return
            champion = None  # it is the candidate: it is not compared with itself
    candidates = []
    ahead = len(trained) == 1 and spec.last in (None, "replay")
    for seed, out in trained.items():
        # the TensorFlow process has nothing else to do while the predictions are measured
        exported = unmeasured_export(data, out, seed) if ahead else None
        request = evaluate_request(data, model_of(data, out, seed))
        candidates.append(Candidate(seed, out, run(request, _titled("evaluate", seed, spec), then=exported)))
    if len(candidates) > 1:
        # the best would owe its place to the eval rows, and the first may be an outlier that its mean does not show: the
        # median by the primary metric is exported, of two the lower
        candidates = by_quality(
            data, candidates, lambda c: run(measure_request(data, c.scored, {}), _titled("measure", c.seed, spec))
        )
    candidate = candidates.pop((len(candidates) - 1) // 2)
    others, result.scored = sorted(candidates, key=lambda other: other.seed), candidate.scored
    if champion is not None:
        result.notes += other_rows(data, champion)
    importance = importance_request(data, candidate)
    if importance is not None:
        run(importance, "importance")
    if champion is not None:
        result.champion = champion.number
    judges = [_scored(judge, data, run) for judge in judges_of(data, champion)]
    measured = run(measure_request(data, candidate.scored, fair(data, judges)), "measure")
    result.evaluation = measured.value
    yield "evaluate"

    verdict = result.verdict or run(gate_request(data, candidate, others, judges), "gate").value
    if verdict.promote:
        verdict = _tested(verdict, data, candidate, measured, run, result)
    result.verdict = verdict
    yield "gate"

    if not verdict.promote and spec.last is None:
        return
    export = result.export = run(
        export_request(data, candidate, measured, verdict), _titled("export", candidate.seed, spec)
    )
    # with a promotion the others too: later candidates are compared with the mean of all
    exports = [
        (other, run(export_request(data, other, None, verdict), _titled("export", other.seed, spec)))
        for other in (others if verdict.promote else ())
    ]
    yield "export"

    result.replay = run(replay_request(data, candidate, export), "replay").get()
    parent = asked[candidate.seed][1]
    result.facts = (
        {**again.facts, "export": export.fingerprint, "signatures": export.get()["signatures"]}
        if again is not None
        else facts_of(
            data,
            candidate,
            export,
            exports,
            measured=measured,
            parent=parent,
            reference=reference,
            result=result,
        )
    )


def _scored(judge: Judge, data: Data, run: Calls) -> Judge:
    """A judge with its predictions of the eval rows, and those of its other seeds."""
    if judge.reason is not None:
        return judge
    title = f"evaluate {judge.role} {judge.version.number}"
    scored = run(evaluate_request(data, judge.model), title)
    repeats = repeats_of(data, judge)
    others = [(facts, run(evaluate_request(data, model), f"{title} seed {facts['seed']}")) for facts, model in repeats]
    return replace(judge, scored=scored, others=tuple(others))


def _tested(
    verdict: Verdict, data: Data, candidate: Candidate, measured: Output[Measured], run: Calls, result: RunResult
) -> Verdict:
    """Score the test split with a candidate that passed: reported, and never used to decide."""
    if not any(part.result["splits"][part.split]["rows"] for part in data.examples("test")):
        return verdict
    model = model_of(data, candidate.trained, candidate.seed)
    predicted = run(evaluate_request(data, model, "test"), "evaluate test")
    threshold = measured.value.threshold
    request = measure_request(data, predicted, {}, split="test", given=threshold.value if threshold else None)
    found = run(request, "measure test").value
    result.test = Tested(rows=found.rows, metrics=found.metrics)
    sentence = f"on the {counted(found.rows, 'row')} of the test split, which decide nothing: "
    return verdict.noting(sentence + metrics_line(found.metrics))


def _titled(stage: str, seed: int, spec: RunSpec) -> str:
    """The title of a step, which names the seed unless it is the run's own."""
    return stage if seed == spec.chosen_seed else f"{stage} seed {seed}"
