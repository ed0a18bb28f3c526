"""The result of validation: its findings, each with severity, message, numbers and fix, and the proof of the splits.

found = Validated.model_validate(result)
found.stopping                            # the anomalies that stop a run
found.anomalies[0].column, found.anomalies[0].value, found.anomalies[0].expected
"""

from typing import Any, Literal, get_args

from pydantic import Field

from headway.config import Result
from headway.messages import short
from headway.schema.calendar_days import Temporal, moment

LISTED = 5
"""Values that a sentence names before it says how many more there are."""


Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""The gravest first; only errors stop a run."""
Kind = Literal[
    "quarantine", "empty span", "too few rows", "missing column", "label", "one label",
    "unseen label", "vanished label", "all missing", "type", "presence", "unseen values", "range", "constant", "nan",
    "infinite", "leakage", "drift", "serving rows", "key overlap", "time overlap",
    "split proof", "missing key", "missing class", "few keys",
    "group overlap", "row overlap", "torn unit", "new column", "weight",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Every kind of finding; in a config `too few rows` may be written `too_few_rows`."""


class Anomaly(Result):
    severity: Severity
    kind: str
    """One of `KINDS`."""
    column: str | None = None
    where: str | None = None
    """The split or span that it is about."""
    message: str
    fix: str | None = None
    value: float | None = None
    """What was seen, where it is one number: a share, a distance, a number of rows."""
    expected: float | None = None
    """The limit that `value` is beyond."""


def finding(
    severity: Severity,
    kind: Kind,
    where: str | None,
    message: str,
    fix: str | None,
    *,
    column: str | None = None,
    value: float | None = None,
    expected: float | None = None,
) -> Anomaly:
    """Make an anomaly; `where` is the split or span."""
    of = Anomaly(severity=severity, kind=kind, column=column, where=where, message=message, fix=fix)
    return of if value is None else of.model_copy(update={"value": float(value), "expected": expected})


class SplitProof(Result):
    """The result of the leakage proof: whether a key or a time is in two splits."""

    says: tuple[str, ...] = ()
    """Sentences of what holds."""
    anomalies: tuple[Anomaly, ...] = ()
    splits: dict[str, dict[str, int | str]] = Field(default={})
    """By split: its rows, its distinct keys where compared, and its first and last time where there is a time."""


class Validated(Result):
    """The result of the validation stage."""

    anomalies: tuple[Anomaly, ...] = ()
    """The gravest first."""
    errors: int = 0
    warnings: int = 0
    splits: tuple[dict[str, int | str], ...] = ()
    """The table of splits, a row each: its rows, its share of all rows, its keys and times; all have the same cells."""
    proof: tuple[str, ...] = ()
    """Sentences of what is proven of the splits."""
    strengths: dict[str, float] = Field(default={})
    """How well each feature alone predicts the label: an AUC, or an R2."""

    @property
    def stopping(self) -> list[Anomaly]:
        """The anomalies that stop a run."""
        return [anomaly for anomaly in self.anomalies if anomaly.severity == "error"]


def listed(counts: list[tuple[Any, int]], total: int) -> str:
    """Returns the text of the first `LISTED` of `total` values, each with its rows, and how many more there are."""
    named = ", ".join(f"{value_text(value)} ({count:,})" for value, count in counts[:LISTED])
    return named + (f" and {total - LISTED:,} more" if total > LISTED else "")


def value_text(value: bytes | float, temporal: Temporal | None = None) -> str:
    """Returns the text of a value: strings quoted and cut to 60 characters, whole numbers without a fraction, and with
    `temporal` a date or time."""
    if isinstance(value, bytes):
        text = value.decode("utf-8", "backslashreplace")
        return repr(short(text, 60))
    if temporal is not None:
        return moment(value, temporal)
    whole = isinstance(value, int) or (abs(value) < 1e15 and value == int(value))
    return f"{int(value):,}" if whole else f"{value:.7g}"
