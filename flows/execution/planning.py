"""What a run would do, and why: for `headway plan` and `Pipeline.plan`.

planned(run_spec).steps[0].reason      # "training.steps in the config: 100 -> 200", or "" of a step whose output is there
"""

from pydantic import computed_field

from flows.dag.dag import run_dag
from flows.dag.run_spec import RunSpec
from flows.execution.engine import Planner
from flows.records import Chosen
from flows.tell.rerun_reasons import in_words
from headway.config import Frozen
from headway.storage.fingerprint import FOLLOWS, Difference


class PlannedStep(Frozen):
    """A step that is known already."""

    step: str
    stage: str
    fingerprint: str | None = None
    """None: it depends on what the steps before write."""
    cached: bool = False
    differs: Difference | None
    """From the nearest output there is."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def why(self) -> str | None:
        """The same as a sentence."""
        return str(self.differs) if self.differs else None

    @property
    def reason(self) -> str:
        """Why it would run, in words."""
        return in_words(self.differs, self.stage)


class Plan(Frozen):
    """What a run would do."""

    pipeline: str
    window: int | str | None
    """Its size; None: all spans."""
    window_says: str
    spans: tuple[str, ...]
    steps: tuple[PlannedStep, ...]
    later: tuple[str, ...]
    """Stages that depend on the verdict."""
    notes: tuple[str, ...]
    training: Chosen | None
    """None: it is not known before others have run."""
    verdict: str | None


def planned(run_spec: RunSpec) -> Plan:
    """Go through the DAG without running or writing anything."""
    result = run_dag(run_spec, Planner(run_spec.store), freeze=False)
    return Plan(
        pipeline=run_spec.loaded.pipeline.name,
        window=run_spec.chosen_window.size,
        window_says=str(run_spec.chosen_window),
        spans=tuple(result.spans),
        steps=tuple(
            PlannedStep(step=o.title, stage=o.stage, fingerprint=o.fingerprint, cached=o.hit, differs=o.why)
            for o in result.outputs
        )
        + tuple(PlannedStep(step=name, stage=name, differs=FOLLOWS) for name in result.follows),
        later=tuple(result.later),
        notes=tuple(map(str, result.notes)),
        training=result.training,
        verdict=result.verdict.verdict if result.verdict else None,
    )
