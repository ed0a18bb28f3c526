"""The gate's verdict as values with fields: what was checked, what was decided, and why.

    verdict.status, verdict.basis                    # "promoted", "newer data"
    [str(reason) for reason in verdict.reasons]      # why; the first is the gravest
    verdict.of(CHAMPION, "auc").change               # a check: -0.0021, on the same rows as the champion

A reason has a summary, which a headline can use, and a detail with the numbers; `Remark.sentence` is made of both. A
check that is new needs a name and an outcome: whoever shows a verdict shows every check of it.
"""

from typing import Any, Literal, Self

from pydantic import Field, computed_field

from headway.config import Result
from headway.messages import number, signed
from headway.metrics.base import Better

Status = Literal["promoted", "kept", "rejected", "needs a person"]
PROMOTED: Status = "promoted"
KEPT: Status = "kept"
"""The champion stays: the candidate is neither blocked nor better, or is the champion itself."""
REJECTED: Status = "rejected"
NEEDS_PERSON: Status = "needs a person"
GRAVEST_FIRST: tuple[Status, ...] = (REJECTED, NEEDS_PERSON, KEPT)
Basis = Literal["first model", "better", "newer data", "forced", "same model"]
"""Why a candidate is promoted; or, of one that is the champion itself, why there is nothing to decide."""
ShareOf = Literal["champion", "gain", "champion, no gain", "champion, the constant not known"]
"""What a limit is a share of; the last two where it should be of a gain that there is not, or that is not known."""
THRESHOLD, CHAMPION, ANCHOR, DECAY = "threshold", "champion", "anchor", "champion decay"
"""Names of checks."""
BEYOND, WITHIN, CANNOT_TELL = "beyond the limit", "within the limit", "cannot tell"
BETTER, NOT_COMPARED = "better", "not compared"
Metrics = dict[str, float | None]
"""By metric; None: it is undefined, as the AUC of a single class."""
Worth = dict[str, dict[str, float | None]]
"""By metric: value, gain over the constant (None: held by its value), error (standard, of the gain or the value), freedom (of the
error; None: infinite)."""


class MetricValue(Result):
    """One metric of one model on some rows."""

    name: str
    value: float | None
    interval: tuple[float, float] | None = None
    """None: no rows to tell it by, or the metric has none."""
    of: str = ""
    """The model: candidate, version 3, constant, ..."""
    rows: int | None = None
    spans: tuple[str, ...] = ()


class SampleSize(Result):
    """What the spread of a metric rests on."""

    count: int
    of: str
    """rows, groups, or groups with a positive label."""
    units: int | None = None
    """Units of the split that the rows are of."""
    rarer: int | None = None
    """Rows of the rarer class, where these are few."""


class Check(Result):
    """Something that the gate looked at: most often a metric of the candidate beside a bound, or beside another model's on
    the same rows."""

    name: str
    """What kind of check: threshold, champion, constant baseline, ..."""
    metric: str | None = None
    slice: str | None = None
    """The column; None: all rows."""
    slice_value: str | None = None
    against: str | None = None
    """The other model: version 3, constant, linear, ..."""
    value: float | None = None
    before: float | None = None
    """Of the other model, or of the same one before."""
    change: float | None = None
    """value - before."""
    interval: tuple[float, float] | None = None
    """Of the change."""
    confidence: float | None = None
    """Of the interval."""
    error: float | None = None
    """The standard error of the change."""
    better: Better | None = None
    """Which values of the metric are better."""
    allowed: float | None = None
    """The limit: how much worse the change may be, or the bound of the value."""
    limit: str = ""
    """Of a bound of the value: at least, at most."""
    share: float | None = None
    """Percent that the limit is of `share_of`; None: it is a number of its own."""
    share_of: ShareOf | None = None
    gain: float | None = None
    """Of the other model over the constant, where the limit is a share of it."""
    p: float | None = None
    """Of a change that is within the limit in truth."""
    p_adjusted: float | None = None
    """The same, corrected for the number of slices."""
    detectable: float | None = None
    """The smallest true loss that would have been found beyond the limit in 80% of all cases."""
    outcome: str
    """In words: better, within the limit, cannot tell, beyond the limit, ..."""
    passed: bool = True
    """False: it speaks against a promotion."""
    concern: bool = False
    """A person should look at it, although the candidate may be promoted."""
    status: Status | None = None
    """What the candidate comes to by this check, where it did not pass."""
    rows: int | None = None
    spans: tuple[str, ...] = ()
    """That the rows come from."""
    why: str = ""
    """The cause in a few words: under 20 rows of one class, on 2026-01-03: too slow, ..."""
    count: int | None = None
    """How many rows or values it is about, where these are not `rows`."""
    names: tuple[str, ...] = ()
    """What it is about: metrics, spans, values of a slice."""
    sample: SampleSize | None = None
    """The rows that were too few to say."""
    gains: tuple[float, float] | None = None
    """Over the constant, then and now, of a champion that became worse."""
    mended: bool | None = None
    """The candidate makes up for it."""

    @property
    def key(self) -> str:
        """What tells it from the other checks of a verdict."""
        where = None if self.slice is None else f"{self.slice}={self.slice_value}"
        return " ".join(str(each) for each in (self.name, self.metric, where, self.limit_side) if each)

    @property
    def perhaps_beyond(self) -> bool:
        """The change itself is beyond the limit, and the rows are too few to tell whether chance explains it."""
        if self.outcome != CANNOT_TELL or self.change is None or self.allowed is None:
            return False
        return (self.change if self.better == "higher" else -self.change) < -self.allowed

    @property
    def upward(self) -> tuple[float, float] | None:
        """The interval of the change, turned so that up is good."""
        if self.interval is None or self.better == "higher":
            return self.interval
        return -self.interval[1], -self.interval[0]

    @property
    def worse(self) -> bool:
        """The change is for the worse beyond chance."""
        return self.upward is not None and self.upward[1] < 0

    @property
    def surely_within(self) -> bool:
        """The whole interval of the change is within the limit."""
        return self.upward is not None and self.allowed is not None and self.upward[0] >= -self.allowed

    @property
    def limit_side(self) -> str:
        return self.limit if self.name == THRESHOLD else ""


class Remark(Result):
    """Something to say about a candidate."""

    summary: str
    """A short clause without an interval."""
    detail: str = ""
    """The numbers behind it."""
    fix: str = ""
    check: str | None = None
    """The key of the check that it is about."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def sentence(self) -> str:
        """The whole of it."""
        return self._sentence()

    @property
    def brief(self) -> str:
        """Without the numbers behind it."""
        return self.summary + (f"; {self.fix}" if self.fix else "")

    def _sentence(self) -> str:
        return self.summary + (f" ({self.detail})" if self.detail else "") + (f"; {self.fix}" if self.fix else "")

    def __str__(self) -> str:
        return self.sentence


class Reason(Remark):
    """Why the verdict is what it is."""

    status: Status
    """What the candidate comes to by it."""
    overruled: bool = False
    """The candidate was promoted by force, against it."""

    def _sentence(self) -> str:
        return ("promoted by force, against: " if self.overruled else "") + super()._sentence()


class Note(Remark):
    """A remark that decided nothing."""

    concern: bool = False
    """A person should look at it, although the candidate may be promoted."""


class Model(Result):
    """A model in the registry."""

    version: int
    model: str | None = None
    """The fingerprint of its training."""

    @property
    def name(self) -> str:
        return f"version {self.version}"


class LeftOut(Result):
    """A slice, or values of one, that were not compared."""

    slice: str
    value: str | None = None
    values: int | None = None
    """How many values."""
    why: str


class ModelMetrics(Result):
    """The metrics of every model on the eval rows."""

    candidate: Metrics = Field(default={})
    champion: Metrics | None = None
    anchor: Metrics | None = None
    baselines: dict[str, Metrics] = Field(default={})

    @property
    def sides(self) -> dict[str, Metrics]:
        """By model, those that are known."""
        named = {"candidate": self.candidate, "champion": self.champion, "anchor": self.anchor}
        return {name: values for name, values in {**named, **self.baselines}.items() if values}


class Verdict(Result):
    """What the gate decided about a candidate."""

    task: str | None = None
    status: Status
    basis: Basis | None = None
    anchors: bool = False
    """Candidates are held against it from its promotion on."""
    reasons: tuple[Reason, ...] = ()
    """The gravest first; of a candidate that is promoted, what speaks for it."""
    notes: tuple[Note, ...] = ()
    alarms: tuple[Note, ...] = ()
    """Why the champion itself needs a look; they change no verdict."""
    checks: tuple[Check, ...] = ()
    primary: str | None = None
    """The metric that a better model is better on."""
    better: Better | None = None
    """Which values of it are better."""
    rows: int | None = None
    spans: tuple[str, ...] = ()
    """That the eval rows come from."""
    candidate: str | None = None
    """The fingerprint of its training."""
    champion: Model | None = None
    anchor: Model | None = None
    """The earlier champion that the candidate was also compared with; None: the champion is the anchor."""
    metrics: ModelMetrics = ModelMetrics()
    left_out: tuple[LeftOut, ...] = ()
    slices_chosen: tuple[str, ...] | None = None
    """The slices that Headway chose; None: the config names them."""
    drawn_by: str | None = None
    """What rows are drawn by together; None: one by one."""
    sample_of: int | None = None
    """The rows of which those judged are a sample."""
    worth: Worth | None = None
    """The candidate's metrics with their errors, by which it is held against itself later."""
    settings: dict[str, Any] = Field(default={})

    def __str__(self) -> str:
        return self.status

    def __repr__(self) -> str:
        return f"<Verdict {self.status}: {'; '.join(self.sentences)}>"

    @property
    def promote(self) -> bool:
        return self.status == PROMOTED

    @property
    def sentences(self) -> list[str]:
        """The reasons and the notes as sentences."""
        return [str(remark) for remark in (*self.reasons, *self.notes)]

    @property
    def concerns(self) -> list[str]:
        """What a person should look at although the candidate is promoted."""
        overruled = [reason for reason in self.reasons if reason.overruled]
        return [str(remark) for remark in overruled] + [note.brief for note in self.notes if note.concern]

    @property
    def outcome(self) -> str | None:
        """How the candidate stands to the champion by the primary metric; None: there is none, or it cannot be compared."""
        found = self.of(CHAMPION, self.primary)
        return None if found is None else found.outcome

    def of(self, name: str, metric: str | None) -> Check | None:
        """A check over all rows; None: it was not made."""
        return next((c for c in self.checks if (c.name, c.metric, c.slice) == (name, metric, None)), None)

    def compared(self, name: str = CHAMPION, *, slices: bool = False) -> list[Check]:
        """The checks against one model: over all rows, or on slices."""
        return [c for c in self.checks if c.name == name and (c.slice is not None) == slices]

    def noting(self, text: str) -> Self:
        """The verdict with one more note."""
        return self.model_copy(update={"notes": (*self.notes, Note(summary=text))})

    @property
    def brief(self) -> Self:
        """What the record of a run keeps: without the slices that passed, and without what only later gates read."""
        checks = tuple(check for check in self.checks if check.slice is None or not check.passed)
        return self.model_copy(
            update={"checks": checks, "left_out": (), "worth": None, "settings": {}},
        )


def allowed(check: Check) -> str:
    """The limit of a check in words; empty: it has none. That of a change has the sign of a change for the worse."""
    if check.allowed is None:
        return ""
    if check.limit in ("at least", "at most"):
        return f"{check.limit} {number(check.allowed)}"
    return (
        number(check.allowed)
        if check.better is None
        else signed(-check.allowed if check.better == "higher" else check.allowed)
    )
