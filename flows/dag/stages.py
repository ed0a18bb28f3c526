"""The stages of the DAG, in their order."""

from __future__ import annotations

from typing import Any

from beam_jobs.ingest.request import IngestRequest
from beam_jobs.leakage_check import SplitsRequest
from flows.config.pipeline import Pipeline
from headway.evaluation.gate.gate_request import GateRequest
from headway.evaluation.results.request import MeasureRequest
from headway.stages.stage_class import Stage
from headway.statistics.stage import StatisticsRequest
from headway.validation.stage import ValidateRequest
from tfcore.evaluation.request import EvaluateRequest, ImportanceRequest
from tfcore.export.replay.replay_stage import ReplayRequest
from tfcore.export.request import ExportRequest
from tfcore.preprocess.request import AnalyseRequest
from tfcore.train.request import TrainRequest
from tfcore.transform.parameters import TransformRequest

_PHASES: dict[str, tuple[type[Stage[Any]], ...]] = {
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
STAGES = {stage.name: stage for stages in _PHASES.values() for stage in stages}


def stages_of(pipeline: Pipeline, last: str | None) -> list[str]:
    """The names of the stages that a run goes through, to the gate at most."""
    phases = [*_PHASES][: [*_PHASES].index("gate") + 1]
    phases = phases[: phases.index(last) + 1] if last in phases else phases
    left_out = {
        AnalyseRequest: pipeline.preprocess is None,
        ImportanceRequest: pipeline.evaluation.importance is None,
    }
    return [stage.name for phase in phases for stage in _PHASES[phase] if not left_out.get(stage, False)]
