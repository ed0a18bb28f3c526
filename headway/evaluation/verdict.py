"""The gate's verdict as an object with fields: what was checked, and what was decided.

    verdict.status, verdict.basis                    # "promoted", "newer data"
    verdict.of(CHAMPION, "auc").change               # a check: -0.0021, on the same rows as the champion

A new kind of check needs a name, an outcome, and words in `flows.report.verdict`: reports show every check of a
verdict.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field

from headway.config import Result
from headway.errors import StoreError
from headway.metrics.base import Better

Status = Literal["promoted", "kept", "rejected", "needs a person"]
PROMOTED: Status = "promoted"
KEPT: Status = "kept"
"""The champion stays: the candidate is neither blocked nor better, or is the champion itself."""
REJECTED: Status = "rejected"
NEEDS_PERSON: Status = "needs a person"
GRAVEST_FIRST: tuple[Status, ...] = (REJECTED, NEEDS_PERSON, KEPT)
Basis = Literal["first model", "better", "newer data", "forced", "same model"]
"""Why a candidate is promoted; if it is the champion already, why there is nothing to decide."""
ShareOf = Literal["champion", "gain", "champion, no gain", "champion, the constant not known"]
"""What a limit is a share of. The last two are used when the gain is not positive, or is not known."""
THRESHOLD, CHAMPION, ANCHOR, DECAY = "threshold", "champion", "anchor", "champion decay"
"""Names of checks."""
BEYOND, WITHIN, CANNOT_TELL = "beyond the limit", "within the limit", "cannot tell"
BETTER, NOT_COMPARED = "better", "not compared"
_MOST_LEFT_OUT = 50
_FILE = "verdict.json"
Metrics = dict[str, float | None]
"""By metric; None: it is undefined, as the AUC of a single class."""
MetricsWithErrors = dict[str, dict[str, float | None]]
"""By metric: value, gain over the constant (None: it is compared by its value), error (the standard error of the gain
or the value), freedom (of the error; None: infinite)."""


class MetricValue(Result):
    """One metric of one model on some rows."""

    name: str
    value: float | None
    interval: tuple[float, float] | None = None
    """None: there are too few rows, or the metric has none."""


class Check(Result):
    """One check of the gate. Most checks compare the candidate's metric with a bound, or with another model's metric
    on the same rows."""

    name: str
    """What kind of check: threshold, champion, constant baseline, ..."""
    metric: str | None = None
    slice: str | None = None
    """The name of the slice, such as a column; None: all rows."""
    slice_value: str | None = None
    against: str | None = None
    """The other model: version 3, constant, linear, ..."""
    value: float | None = None
    before: float | None = None
    """The value of the other model, or of the champion at its promotion."""
    change: float | None = None
    """value - before; where `gains` is set, the change of the gain, with the metric's sign."""
    interval: tuple[float, float] | None = None
    """The interval of the change."""
    confidence: float | None = None
    """The confidence level of the interval."""
    error: float | None = None
    """The standard error of the change."""
    better: Better | None = None
    """Which values of the metric are better."""
    allowed: float | None = None
    """The limit: how much worse the change may be, or the bound of the value."""
    limit: str = ""
    """The side of a bound of the value: "at least" or "at most"; else empty."""
    share: float | None = None
    """The limit in percent of `share_of`; None: the limit is a plain number."""
    share_of: ShareOf | None = None
    gain: float | None = None
    """The other model's gain over the constant, where the limit is a share of it."""
    p: float | None = None
    """The p value of the hypothesis that the true change is within the limit."""
    p_adjusted: float | None = None
    """The p value `p`, corrected for the number of slices."""
    detectable: float | None = None
    """The smallest true worsening that would have been found beyond the limit in 80% of all cases."""
    outcome: str
    """In words: better, within the limit, cannot tell, beyond the limit, ..."""
    passed: bool = True
    """False: it speaks against a promotion."""
    concern: bool = False
    """A person should look at it, although the candidate may be promoted."""
    status: Status | None = None
    """The status that this check leads to, where it did not pass."""
    rows: int | None = None
    spans: tuple[str, ...] = ()
    """The spans that the rows come from."""
    why: str = ""
    """The cause in a few words: under 20 rows of one class, on 2026-01-03: too slow, ..."""
    count: int | None = None
    """The number of rows or values that the check is about, where that number is not `rows`."""
    names: tuple[str, ...] = ()
    """What the check is about: metrics, spans, values of a slice."""
    gains: tuple[float, float] | None = None
    """For a champion that became worse: its gains over the constant at promotion and now."""
    mended: bool | None = None
    """Whether the candidate makes up for what the champion lost; None: the check is not about the champion's decay."""

    @property
    def key(self) -> str:
        """A text that identifies the check within a verdict: name, metric, slice and side of the limit."""
        where = None if self.slice is None else f"{self.slice}={self.slice_value}"
        return " ".join(str(each) for each in (self.name, self.metric, where, self.limit) if each)

    @property
    def perhaps_beyond(self) -> bool:
        """Whether the change is beyond the limit, but by no more than chance may explain."""
        if self.outcome != CANNOT_TELL or self.change is None or self.allowed is None:
            return False
        return self.gained < -self.allowed

    @property
    def beside_baseline(self) -> bool:
        """True if the candidate is compared with a baseline."""
        return self.name.endswith(" baseline")

    @property
    def gained(self) -> float:
        """The change, with the sign turned so that positive is better; 0 where there is no change."""
        change = self.change or 0.0
        return change if self.better == "higher" else -change

    @property
    def improvement(self) -> tuple[float, float] | None:
        """The interval of the change, with the signs turned so that positive is better; None: there is no interval."""
        if self.interval is None or self.better == "higher":
            return self.interval
        return -self.interval[1], -self.interval[0]

    @property
    def worse(self) -> bool:
        """True if the change is for the worse beyond chance."""
        return self.improvement is not None and self.improvement[1] < 0

    @property
    def surely_within(self) -> bool:
        """True if the whole interval of the change is within the limit."""
        return self.improvement is not None and self.allowed is not None and self.improvement[0] >= -self.allowed


class Model(Result):
    """A model in the registry."""

    version: int
    model: str | None = None
    """The fingerprint of its training."""

    @property
    def name(self) -> str:
        return f"version {self.version}"


class LeftOut(Result):
    """A slice that was not compared: one value, or a number of values."""

    slice: str
    value: str | None = None
    values: int | None = None
    """The number of values that were left out."""
    why: str


class MetricsByModel(Result):
    """The metrics of every model on the eval rows."""

    candidate: Metrics = Field(default={})
    champion: Metrics | None = None
    anchor: Metrics | None = None
    baselines: dict[str, Metrics] = Field(default={})


class Verdict(Result):
    """The gate's verdict on a candidate: its status, and the checks that led to it."""

    task: str | None = None
    status: Status
    basis: Basis | None = None
    anchors: bool = False
    """Whether the candidate becomes the anchor: the older version that later candidates are also compared with."""
    checks: tuple[Check, ...] = ()
    primary: str | None = None
    """The metric that a better model is better on."""
    better: Better | None = None
    """Which values of the primary metric are better."""
    rows: int | None = None
    spans: tuple[str, ...] = ()
    """The spans that the eval rows come from."""
    candidate: str | None = None
    """The fingerprint of its training."""
    champion: Model | None = None
    anchor: Model | None = None
    """The earlier champion that the candidate was also compared with; None: the champion is the anchor."""
    metrics: MetricsByModel = MetricsByModel()
    slices_compared: int = 0
    """The number of slices that had enough rows to be compared with the champion."""
    left_out: tuple[LeftOut, ...] = ()
    slices_chosen: tuple[str, ...] | None = None
    """The slices that Headway chose; None: the config names them."""
    drawn_by: str | None = None
    """A sentence that says which rows are resampled together; None: each by itself."""
    sample_of: int | None = None
    """The number of all rows if only a random sample was judged; else None."""
    worth: MetricsWithErrors | None = None
    """The candidate's metrics with their errors. Once it is the champion, metrics on later rows are compared with these."""

    def __str__(self) -> str:
        return self.status

    def __repr__(self) -> str:
        return f"<Verdict {self.status}: {len(self.checks)} checks>"

    @property
    def promote(self) -> bool:
        return self.status == PROMOTED

    def of(self, name: str, metric: str | None) -> Check | None:
        """Returns the check of that name and metric over all rows; None: the check was not made."""
        return next((c for c in self.checks if (c.name, c.metric, c.slice) == (name, metric, None)), None)

    def compared(self, name: str = CHAMPION, *, slices: bool = False) -> list[Check]:
        """Returns the checks of that name: those over all rows, or with `slices` those on slices."""
        return [c for c in self.checks if c.name == name and (c.slice is not None) == slices]

    @property
    def beside_champion(self) -> dict[str, Any] | None:
        """The check of the primary metric against the champion, as JSON; None where the two were not compared."""
        check = self.of(CHAMPION, self.primary)
        if self.champion is None or check is None or check.interval is None:
            return None
        return {"version": self.champion.version, "check": check.model_dump(mode="json")}

    @property
    def brief(self) -> Self:
        """A shorter verdict for the record of a run. It has no `worth`, only the first 50 of `left_out`, and of the checks
        that passed on slices only those nearest to a threshold's limit and the notes on slices that were not checked."""
        passed = [check for check in self.checks if check.slice is not None and check.passed]
        met = [check for check in passed if check.name == THRESHOLD and check.value is not None]
        unchecked = [check for check in passed if check.name == THRESHOLD and check.value is None]
        left = {*map(id, passed)} - {*map(id, [*nearest_to_limits(met), *unchecked])}
        checks = tuple(check for check in self.checks if id(check) not in left)
        return self.model_copy(update={"checks": checks, "left_out": self.left_out[:_MOST_LEFT_OUT], "worth": None})


class Decision(Result):
    """The result of the gate's stage: the status alone. `read_verdict` reads the whole verdict from the stage's output."""

    status: Status


def write_verdict(verdict: Verdict, folder: Path) -> None:
    """Write a verdict as JSON into the gate's output folder."""
    (folder / _FILE).write_text(verdict.model_dump_json(indent=1) + "\n", encoding="utf-8")


@functools.lru_cache(4)
def read_verdict(folder: Path) -> Verdict:
    """Returns the verdict in the gate's output folder; cached, since outputs never change.

    Raises:
        StoreError: the file is missing or damaged.
    """
    path = folder / _FILE
    try:
        return Verdict.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        fix = "headway verify --repair removes it, and the next run makes it anew"
        raise StoreError("is damaged", where=str(path), fix=fix) from None


def is_better(compared: Sequence[Check], primary: str) -> bool:
    """Returns whether a candidate is better than the champion, whether its data are newer or not. The primary metric
    must be better beyond chance, or surely within its limit while another metric is better. No metric may be worse
    beyond chance, unless that metric is surely within its limit.

    Args:
        compared: the checks of all metrics over all rows.
    """
    decisive = next(check for check in compared if check.metric == primary)
    gained = any(check.outcome == BETTER for check in compared)
    lost = any(check.worse and not check.surely_within for check in compared)
    return (decisive.outcome == BETTER or (decisive.surely_within and gained)) and not lost


def nearest_to_limits(thresholds: Sequence[Check]) -> list[Check]:
    """Returns the check whose value is nearest to the limit, for each limit on all rows or on the slices by a column."""
    nearest: dict[tuple[object, ...], Check] = {}
    for check in thresholds:
        key = check.metric, check.slice, check.limit, check.allowed
        if key not in nearest or _room(check) < _room(nearest[key]):
            nearest[key] = check
    return [*nearest.values()]


def _room(check: Check) -> float:
    return abs((check.value or 0.0) - (check.allowed or 0.0))
