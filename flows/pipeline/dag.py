"""The DAG from raw files to a promoted model: its stages in order, and the walk over them.

    walk(context, engine)             # runs them
    walk(context, planner)            # only looks up what would run

A new stage needs a class, a function in `flows.pipeline.steps` that makes its steps, and a line in `DAG`. The caller
does the promotion, since a promotion changes what the next run is compared with.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from beam_jobs.ingest.request import IngestRequest
from beam_jobs.splits_request import SplitsRequest
from flows.pipeline import steps, warm_start
from flows.pipeline.champion import recognise_same_model
from flows.pipeline.context import Context
from headway.errors import ConfigError
from headway.evaluation.requests import GateRequest, MeasureRequest
from headway.stages.stage_class import Stage
from headway.stages.step import NotRunYet, Output, Step
from headway.statistics.stage import StatisticsRequest
from headway.validation.stage import ValidateRequest
from tfcore.evaluation.request import EvaluateRequest
from tfcore.export.replay import ReplayRequest
from tfcore.export.request import ExportRequest
from tfcore.preprocess.request import AnalyseRequest
from tfcore.train.request import TrainRequest
from tfcore.transform.fit import TransformRequest


@dataclass(frozen=True)
class Line:
    """One stage of the DAG, with the functions that make the stage's steps and use their results."""

    stage: type[Stage[Any]]
    steps: Callable[[Context], Iterator[Step]]
    """Yields the steps of the stage; none if there is nothing to do."""
    then: Callable[[Context], None] = lambda context: None
    """Called after the steps: changes the context by their results."""
    when: Callable[[Context], bool] = lambda context: True
    """Whether the run of this context has the stage."""


DAG: dict[str, tuple[Line, ...]] = {
    "ingest": (Line(IngestRequest, steps.ingest),),
    "statistics": (Line(StatisticsRequest, steps.statistics, steps.complete_schema),),
    "validate": (
        Line(SplitsRequest, steps.splits),
        Line(ValidateRequest, steps.validate, steps.freeze_schema),
    ),
    "transform": (
        Line(AnalyseRequest, steps.analyse, when=lambda context: context.pipeline.preprocess is not None),
        Line(TransformRequest, steps.transform, steps.resolve_settings),
    ),
    "train": (Line(TrainRequest, steps.train, recognise_same_model),),
    "evaluate": (
        Line(EvaluateRequest, steps.evaluate, steps.set_candidate),
        Line(EvaluateRequest, steps.evaluate_champions),
        Line(MeasureRequest, steps.measure),
    ),
    "gate": (
        Line(GateRequest, steps.gate, steps.apply_verdict),
        Line(EvaluateRequest, steps.evaluate_test),
        Line(MeasureRequest, steps.measure_test, steps.set_test_metrics),
    ),
    "export": (
        Line(ExportRequest, steps.export),
        Line(ReplayRequest, steps.replay, steps.set_facts),
    ),
}
"""{phase that a run may end with: its stages in order}"""
STAGES: dict[str, type[Stage[Any]]] = {line.stage.name: line.stage for lines in DAG.values() for line in lines}


class Executor(Protocol):
    """Something that returns the outputs of steps: it runs the steps, or only looks up what is stored. Each call blocks."""

    def call_many(self, steps: Sequence[Step]) -> list[Output[Any]]:
        """Returns the outputs of `steps`, in the same order; all steps are of one stage."""


def walk(context: Context, executor: Executor) -> Context:
    """Go through the stages up to `context.last` (None: all stages), and return the context. A verdict may end the walk.

    Raises:
        ConfigError, DataError: as the stages raise them; outputs made before are kept.
    """
    context.begin()
    try:
        for phase, lines in DAG.items():
            for line in lines:
                if line.when(context):
                    made = [*line.steps(context)]
                    for together in [made] if line.stage.runs_many else [[step] for step in made]:
                        context.add(executor.call_many(together))
                    line.then(context)
                if context.over:
                    return context
            if phase == context.last:
                break
    except NotRunYet:  # a plan
        called = {output.stage for output in context.outputs}
        context.follows = [name for name in stages_of(context) if name not in called]
        if TrainRequest.name in context.follows:
            warm_start.start_version(context)  # or a refusal
        if context.last is None:
            tested = ["evaluate test", "measure test"] if context.parts.get("test") else []
            context.later = [*tested, ExportRequest.name, ReplayRequest.name, "promote"]
    return context


def check_last(stage: str | None) -> None:
    """Raise ConfigError if a run cannot end after this stage; None stands for the whole run."""
    if stage not in (None, *DAG):
        raise ConfigError(f"{stage!r} is no stage that a run can end after", fix=f"take one of {', '.join(DAG)}")


def stages_of(context: Context) -> list[str]:
    """Returns the names of the stages that a run goes through, in order; stages after the gate are left out."""
    phases = [*DAG]
    last = context.last if context.last in phases[: phases.index("gate")] else "gate"
    lines = [line for phase in phases[: phases.index(last) + 1] for line in DAG[phase] if line.when(context)]
    return [*dict.fromkeys(line.stage.name for line in lines)]


def needs_tensorflow(stages: Sequence[str]) -> bool:
    return any(STAGES[name].tensorflow for name in stages)


def plan_needs_tensorflow(plan: Context) -> bool:
    """Returns whether a step that the planned run would do needs TensorFlow."""
    return needs_tensorflow([output.stage for output in plan.outputs if not output.hit] + plan.follows)
