"""What a run would do, and why: for `headway plan` and `Pipeline.plan`.

plan(context).steps[0].reason      # "training.steps in the config: 100 -> 200", or "" of a step whose output is there
"""

from pydantic import computed_field

from flows.pipeline.context import Context
from flows.pipeline.engine import look_ahead
from flows.pipeline.reasons import in_words
from flows.records import ResolvedSettings
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
    """The steps that a run would do, as far as they are known before it."""

    pipeline: str
    window: int | str | None
    """Its size; None: all spans."""
    window_says: str
    spans: tuple[str, ...]
    steps: tuple[PlannedStep, ...]
    later: tuple[str, ...]
    """Stages that depend on the verdict."""
    notes: tuple[str, ...]
    training: ResolvedSettings | None
    """None: it is not known before others have run."""
    verdict: str | None


def plan_run(context: Context) -> Plan:
    """Go through the DAG without running or writing anything."""
    found = look_ahead(context)
    return Plan(
        pipeline=found.pipeline.name,
        window=found.chosen_window.size,
        window_says=str(found.chosen_window),
        spans=found.spans,
        steps=tuple(
            PlannedStep(step=o.title, stage=o.stage, fingerprint=o.fingerprint, cached=o.hit, differs=o.why)
            for o in found.outputs
        )
        + tuple(PlannedStep(step=name, stage=name, differs=FOLLOWS) for name in found.follows),
        later=tuple(found.later),
        notes=tuple(map(str, found.notes)),
        training=found.settings,
        verdict=found.verdict.status if found.verdict else None,
    )
