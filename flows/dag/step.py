"""A step: one stage about to run, under its title; and its output.

step = Step(TrainRequest(...), "train")
step.fingerprint                      # equal fingerprint = same output = nothing to do
output.value.final_loss, output.ref("predictions.parquet")
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from beam_jobs.ingest.request import IngestRequest
from beam_jobs.splits_request import SplitsRequest
from flows.records import RunRecord
from headway.config import Result
from headway.evaluation.gate.gate_request import GateRequest
from headway.evaluation.results.request import MeasureRequest
from headway.stages.refs import Ref, Unknown
from headway.stages.stage_class import Stage
from headway.statistics.stage import StatisticsRequest
from headway.storage.fingerprint import Difference, fingerprint
from headway.storage.store import Store
from headway.validation.stage import ValidateRequest
from tfcore.evaluation.request import EvaluateRequest, ImportanceRequest
from tfcore.export.replay.replay_stage import ReplayRequest
from tfcore.export.request import ExportRequest
from tfcore.preprocess.request import AnalyseRequest
from tfcore.train.request import TrainRequest
from tfcore.transform.parameters import TransformRequest

Answer = TypeVar("Answer", bound=Result)
PHASES: dict[str, tuple[type[Stage[Any]], ...]] = {
    "ingest": (IngestRequest,),
    "statistics": (StatisticsRequest,),
    "validate": (SplitsRequest, ValidateRequest),
    "transform": (AnalyseRequest, TransformRequest),
    "train": (TrainRequest,),
    "evaluate": (EvaluateRequest, ImportanceRequest, MeasureRequest),
    "gate": (GateRequest,),
    "export": (ExportRequest,),
    "replay": (ReplayRequest,),
}
"""By the stage that a run may end with."""
STAGES = {stage.name: stage for stages in PHASES.values() for stage in stages}


@dataclass(frozen=True)
class Step:
    stage: Stage[Any]
    """What it is run on as well."""
    title: str
    runtime: dict[str, object] = field(default_factory=dict)
    """Arguments that change how the stage runs, not what it writes, such as the runner."""

    @cached_property
    def key(self) -> dict[str, Any]:
        return self.stage.key()

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.key)

    def find(self, store: Store) -> "Output[Any] | None":
        return find_output(store, self.stage.name, self.fingerprint, self.title)

    def output(self, path: Path, result: dict[str, Any] | None, **facts: Any) -> "Output[Any]":
        """The output of a step that did not find one."""
        return Output(self.title, self.stage.name, self.fingerprint, path, result, False, **facts)


@dataclass(frozen=True)
class Output(Generic[Answer]):
    """The stored output of a step; `result` is None in a plan, for a step that has not run."""

    title: str
    stage: str
    fingerprint: str
    path: Path
    result: dict[str, Any] | None
    hit: bool
    seconds: float = 0.0
    why: Difference | None = None
    """For a miss: the first thing that differs from the nearest output there is."""
    bytes: int = 0
    """Of its files."""

    @property
    def known(self) -> bool:
        """Says whether the step has run."""
        return self.result is not None

    def get(self) -> dict[str, Any]:
        """The answer as JSON.

        Raises:
            Unknown: a plan asks for it, and the step has not run.
        """
        if self.result is None:
            raise Unknown(f"{self.title} has not run")
        return self.result

    @cached_property
    def value(self) -> Answer:
        """The answer with its fields.

        Raises:
            Unknown: the step has not run.
            ValidationError: it is none of such a stage.
        """
        answer: Answer = STAGES[self.stage].answers().model_validate(self.get())
        return answer

    def ref(self, inside: str | None = "") -> Ref[Any]:
        """A reference to it, or to one file or folder of it; None: to its answer alone."""
        path = None if inside is None else self.path / inside
        return Ref(stage=self.stage, fingerprint=self.fingerprint, path=path)


def title_of(steps: Sequence[Step]) -> str:
    """The title of steps of one stage that run as one."""
    return steps[0].title if len(steps) == 1 else f"{steps[0].stage.name} ({len(steps)})"


def find_output(store: Store, stage: str, fingerprint: str, title: str) -> Output[Any] | None:
    """The whole output of a step that the store has."""
    if (manifest := store.find(stage, fingerprint)) is None:
        return None
    path = store.output(stage, fingerprint)
    return Output(title, stage, fingerprint, path, manifest.result, hit=True, bytes=manifest.size)


def output_of(store: Store, record: RunRecord | None, stage: str) -> Output[Any] | None:
    """The output of a run's last step of a stage, or of the step of a title; None where it has none, or it is gone."""
    ran = record.step(stage) if record is not None else None
    return None if ran is None else find_output(store, ran.stage, ran.fingerprint, ran.title)
