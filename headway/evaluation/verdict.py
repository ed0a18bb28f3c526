"""The gate's verdict as values with fields: what was checked, and what was decided.

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
    """One check of the gate: most often the candidate's metric against a bound, or against another model's on the same
    rows."""

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
    """The value of the other model, or of the champion at its promotion."""
    change: float | None = None
    """value - before."""
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
    """Of a bound of the value: at least, at most."""
    share: float | None = None
    """The limit in percent of `share_of`; None: the limit is a plain number."""
    share_of: ShareOf | None = None
    gain: float | None = None
    """The other model's gain over the constant, where the limit is a share of it."""
    p: float | None = None
    """The p value of the hypothesis that the true change is within the limit."""
    p_adjusted: float | None = None
    """The same, corrected for the number of slices."""
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
    """The number of rows or values that the check is about, where these are not `rows`."""
    names: tuple[str, ...] = ()
    """What the check is about: metrics, spans, values of a slice."""
    gains: tuple[float, float] | None = None
    """The gains over the constant, at promotion and now, of a champion that became worse."""
    mended: bool | None = None
    """Whether the candidate makes up for what the champion lost; None: the check is not about the champion's decay."""

    @property
    def key(self) -> str:
        """A text that identifies the check within a verdict: name, metric, slice and side of the limit."""
        where = None if self.slice is None else f"{self.slice}={self.slice_value}"
        return " ".join(str(each) for each in (self.name, self.metric, where, self.limit_side) if each)

    @property
    def perhaps_beyond(self) -> bool:
        """Whether the change is beyond the limit, with too few rows to tell whether chance explains it."""
        if self.outcome != CANNOT_TELL or self.change is None or self.allowed is None:
            return False
        return self.gained < -self.allowed

    @property
    def beside_baseline(self) -> bool:
        """True if the candidate is compared with a baseline."""
        return self.name.endswith(" baseline")

    @property
    def gained(self) -> float:
        """The change, turned so that up is good; 0 where there is none."""
        change = self.change or 0.0
        return change if self.better == "higher" else -change

    @property
    def upward(self) -> tuple[float, float] | None:
        """The interval of the change, turned so that up is good."""
        if self.interval is None or self.better == "higher":
            return self.interval
        return -self.interval[1], -self.interval[0]

    @property
    def worse(self) -> bool:
        """Whether the change is for the worse beyond chance."""
        return self.upward is not None and self.upward[1] < 0

    @property
    def surely_within(self) -> bool:
        """Whether the whole interval of the change is within the limit."""
        return self.upward is not None and self.allowed is not None and self.upward[0] >= -self.allowed

    @property
    def limit_side(self) -> str:
        return self.limit if self.name == THRESHOLD else ""


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
    """Whether the candidate, once promoted, becomes the anchor of later candidates."""
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
    """The candidate's metrics with their errors, with which its later values are compared."""

    def __str__(self) -> str:
        return self.status

    def __repr__(self) -> str:
        return f"<Verdict {self.status}: {len(self.checks)} checks>"

    @property
    def promote(self) -> bool:
        return self.status == PROMOTED

    def of(self, name: str, metric: str | None) -> Check | None:
        """Returns a check over all rows; None: it was not made."""
        return next((c for c in self.checks if (c.name, c.metric, c.slice) == (name, metric, None)), None)

    def compared(self, name: str = CHAMPION, *, slices: bool = False) -> list[Check]:
        """Returns the checks against one model: over all rows, or on slices."""
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
        """A shorter verdict for the record of a run: without slices that passed, except those nearest to a threshold's
        limit, without `worth`, and with the first 50 of `left_out`."""
        passed = [check for check in self.checks if check.slice is not None and check.passed]
        met = [check for check in passed if check.name == THRESHOLD and check.value is not None]
        near = nearest_to_limits(met)
        left = {id(check) for check in passed if check.name != THRESHOLD} | {id(check) for check in met} - set(
            map(id, near)
        )
        checks = tuple(check for check in self.checks if id(check) not in left)
        return self.model_copy(update={"checks": checks, "left_out": self.left_out[:_MOST_LEFT_OUT], "worth": None})


class Decision(Result):
    """The answer of the gate's stage: the status alone. `read_verdict` reads the whole verdict from the output."""

    status: Status


def write_verdict(verdict: Verdict, folder: Path) -> None:
    """Write a verdict into an output of the gate."""
    (folder / _FILE).write_text(verdict.model_dump_json(indent=1) + "\n", encoding="utf-8")


@functools.lru_cache(4)
def read_verdict(folder: Path) -> Verdict:
    """Returns the verdict in an output of the gate; cached, since outputs never change.

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
    """Returns whether a candidate is better than the champion, whatever its data. Its primary metric must be better
    beyond chance, or surely within its limit while another one is better. No metric may be worse beyond chance, unless
    it is surely within its limit.

    Args:
        compared: the checks of all metrics over all rows.
    """
    decisive = next(check for check in compared if check.metric == primary)
    gained = any(check.outcome == BETTER for check in compared)
    lost = any(check.worse and not check.surely_within for check in compared)
    return (decisive.outcome == BETTER or (decisive.surely_within and gained)) and not lost


def nearest_to_limits(thresholds: Sequence[Check]) -> list[Check]:
    """Returns, for each limit, the threshold check on a slice that is nearest to it."""
    nearest: dict[tuple[object, ...], Check] = {}
    for check in thresholds:
        key = check.metric, check.slice, check.limit, check.allowed
        if key not in nearest or _room(check) < _room(nearest[key]):
            nearest[key] = check
    return [*nearest.values()]


def _room(check: Check) -> float:
    return abs((check.value or 0.0) - (check.allowed or 0.0))
