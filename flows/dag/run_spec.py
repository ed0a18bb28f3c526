"""The input and the result of one execution: the stages, a pipeline over a window, the executor of its steps.

run_spec = RunSpec(loaded, store, window=12, last="validate")
result = run_dag(run_spec, executor)          # flows.dag.dag; an Executor runs steps, or only looks for what they left
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from flows.config.pipeline import LoadedPipeline, Pipeline
from flows.config.window import ChosenWindow, choose_window
from flows.dag.step import PHASES, STAGES, Output, Step
from flows.records import Chosen
from flows.records import Measured as Tested
from headway.config import Frozen
from headway.evaluation.results.measured import Measured
from headway.evaluation.verdict import Verdict
from headway.registry.registry import NOBODY, Registry
from headway.schema.notes import Note
from headway.sources.base import InputFile
from headway.sources.discovery.spans import files
from headway.storage.store import Store
from headway.validation.anomaly import Anomaly
from tfcore.evaluation.request import ImportanceRequest
from tfcore.evaluation.results import Evaluated
from tfcore.export.request import Exported
from tfcore.preprocess.request import AnalyseRequest
from tfcore.train.request import TrialConfig
from tfcore.train.settings.auto import Facts

ALREADY = "already champion"


class Executor(Protocol):
    def call_many(self, steps: Sequence[Step]) -> list[Output[Any]]:
        """The outputs of `steps`, all of one stage, in their order."""


class Prepared(Frozen):
    """The window that another run prepared, up to its transform; this one trains on it, and may see no raw files.

    What the data stages' keys take from raw files and from files beside the pipeline stands here, so that their outputs are
    found in the store.
    """

    spans: tuple[str, ...]
    files: dict[str, tuple[InputFile, ...]]
    """Of each span."""
    schema_text: str
    """The frozen schema file."""
    unread: tuple[str, ...]
    """Columns of the newest files that the schema lacks."""
    serving: dict[str, int | str] | None
    """The checksum of `validation.serving`."""


@dataclass(frozen=True)
class RunSpec:
    """One execution: a pipeline over a window."""

    loaded: LoadedPipeline
    store: Store
    window: int | str | None = None
    """Named for this execution; None: as pipeline.yaml says (`chosen_window`)."""
    until: str = "latest"
    seed: int | None = None
    force: bool = False
    last: str | None = None
    """The stage to stop after; None: all the way."""
    alias: str | None = None
    """What to point at a candidate that passes, instead of the champion."""
    trial: TrialConfig | None = None
    """Trains as a trial of a study, on the train rows without a holdout of them."""
    prepared: Prepared | None = None
    reason: str | None = None
    """Why somebody promotes it; the registry's history has it before the gate's reasons."""
    memo: dict[str, tuple[InputFile, ...]] = field(default_factory=dict)
    """Checksums of the spans' files, read once a process."""

    @property
    def registry(self) -> Registry:
        return Registry(self.store, self.loaded.pipeline.name)

    @property
    def chosen_window(self) -> ChosenWindow:
        return choose_window(self.loaded, self.window)

    @property
    def chosen_seed(self) -> int:
        return self.loaded.pipeline.seed if self.seed is None else self.seed

    @property
    def spans(self) -> list[str]:
        """Those of the window, in their order.

        Raises:
            ConfigError: there are none, or too few.
        """
        if self.prepared is not None:
            return list(self.prepared.spans)
        return self.chosen_window.spans(self.until)

    def files(self, span: str) -> tuple[InputFile, ...]:
        if span not in self.memo:
            self.memo[span] = files(self.loaded.pipeline.source, span)
        return self.memo[span]


@dataclass
class RunResult:
    """The result of one execution of the DAG."""

    spans: list[str]
    notes: list[Note] = field(default_factory=list)
    columns: list[dict[str, str]] = field(default_factory=list)
    """What became of each column, of a run that infers the schema."""
    outputs: list[Output[Any]] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    size: Facts | None = None
    """By which the settings of the training and the model were chosen; None: not known yet."""
    training: Chosen | None = None
    """The settings of the training and the model, those left out chosen by the train rows; None: not known yet."""
    champion: int = NOBODY
    """The version that the verdict compared with."""
    verdict: Verdict | None = None
    scored: Output[Evaluated] | None = None
    """The candidate's predictions."""
    evaluation: Measured | None = None
    test: Tested | None = None
    """The test split; only of a candidate that passed."""
    export: Output[Exported] | None = None
    replay: dict[str, Any] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """What a version published from this run says of itself."""
    follows: list[str] = field(default_factory=list)
    """In a plan: the stages up to the verdict that run on what others have not made yet."""
    later: list[str] = field(default_factory=list)
    """In a plan: the stages after a verdict that is not known yet."""

    @property
    def trains(self) -> bool:
        """Says, in a plan, whether a step needs TensorFlow."""
        return need_tensorflow([output.stage for output in self.outputs if not output.hit] + self.follows)


def need_tensorflow(stages: Sequence[str]) -> bool:
    return any(STAGES[name].tensorflow for name in stages)


def stages_of(pipeline: Pipeline, last: str | None) -> list[str]:
    """The names of the stages that a run goes through, to the gate at most."""
    phases = [*PHASES][: [*PHASES].index("gate") + 1]
    phases = phases[: phases.index(last) + 1] if last in phases else phases
    left_out = {
        AnalyseRequest: pipeline.preprocess is None,
        ImportanceRequest: pipeline.evaluation.importance is None,
    }
    return [stage.name for phase in phases for stage in PHASES[phase] if not left_out.get(stage, False)]
