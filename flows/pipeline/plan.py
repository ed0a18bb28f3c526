"""The steps that a run would do, and why: for `headway plan` and `Pipeline.plan`.

plan_run(context).steps[0].reason  # "training.steps is 200, before 100"; "" for a step whose output the store has
"""

from pydantic import computed_field

from flows.pipeline.context import Context
from flows.pipeline.engine import look_ahead
from flows.pipeline.reasons import reason_text
from flows.records import ResolvedSettings
from headway.config import Frozen
from headway.storage.fingerprint import FOLLOWS, Difference


class PlannedStep(Frozen):
    """A step of a plan: whether its output is stored, and if not, why the step would run."""

    step: str
    stage: str
    fingerprint: str | None = None
    """None: the key depends on outputs of earlier steps that do not exist yet."""
    cached: bool = False
    differs: Difference | None
    """The first difference from the most similar stored output; None: the store has the step's output."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def why(self) -> str | None:
        """The first difference from the most similar stored output, with digests; None: the step's output is stored."""
        return str(self.differs) if self.differs else None

    @property
    def reason(self) -> str:
        """The reason why the step would run, in words; empty if its output is stored."""
        return reason_text(self.differs, self.stage)


class Plan(Frozen):
    """The plan of a run: its steps, as far as they are known before the run."""

    pipeline: str
    window: int | str | None
    """The size of the window; None: all spans."""
    window_says: str
    spans: tuple[str, ...]
    steps: tuple[PlannedStep, ...]
    later: tuple[str, ...]
    """The steps that depend on a verdict that is not known yet."""
    notes: tuple[str, ...]
    training: ResolvedSettings | None
    """None: not known before other steps have run."""
    verdict: str | None


def plan_run(context: Context) -> Plan:
    """Returns the plan of a run, without running or writing anything."""
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
