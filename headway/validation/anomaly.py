"""The result of validation: its findings, and the proof of the splits. A finding has a severity, message, numbers and a fix.

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
"""The most values that a message names. For further values it says how many there are."""


Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""All severities, the gravest first. Only errors stop a run."""
Kind = Literal[
    "quarantine", "empty span", "too few rows", "missing column", "label", "one label",
    "unseen label", "vanished label", "all missing", "type", "presence", "unseen values", "range", "constant", "nan",
    "infinite", "leakage", "drift", "serving rows", "key overlap", "time overlap",
    "split proof", "missing key", "missing class", "few keys",
    "group overlap", "row overlap", "torn unit", "new column", "weight",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)
"""All kinds of findings. In a config, `too few rows` may be written `too_few_rows`."""


class Anomaly(Result):
    severity: Severity
    kind: str
    """One of `KINDS`."""
    column: str | None = None
    where: str | None = None
    """The split or span that the finding is about."""
    message: str
    fix: str | None = None
    value: float | None = None
    """What was found, if it is one number: a share, a distance, a number of rows."""
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
    """Returns an anomaly. `where` is the split or span that it is about."""
    of = Anomaly(severity=severity, kind=kind, column=column, where=where, message=message, fix=fix)
    return of if value is None else of.model_copy(update={"value": float(value), "expected": expected})


class SplitProof(Result):
    """The result of the leakage proof: whether a key or a time is in two splits."""

    says: tuple[str, ...] = ()
    """Statements that hold of the splits, as sentences."""
    anomalies: tuple[Anomaly, ...] = ()
    splits: dict[str, dict[str, int | str]] = Field(default={})
    """By split: number of rows; distinct keys, if keys were compared; first and last time, if there is a time column."""


class Validated(Result):
    """The result of the validation stage."""

    anomalies: tuple[Anomaly, ...] = ()
    """The findings, the gravest first."""
    errors: int = 0
    warnings: int = 0
    splits: tuple[dict[str, int | str], ...] = ()
    """The table of splits, one row per split: rows, share of all rows, keys and times. All its rows have the same cells."""
    proof: tuple[str, ...] = ()
    """Statements that are proven of the splits, as sentences."""
    strengths: dict[str, float] = Field(default={})
    """By feature: how well it alone predicts the label, as an AUC or R2."""

    @property
    def stopping(self) -> list[Anomaly]:
        """The anomalies that stop a run: those of the severity error."""
        return [anomaly for anomaly in self.anomalies if anomaly.severity == "error"]


def listed(counts: list[tuple[Any, int]], total: int) -> str:
    """Returns a text of the first `LISTED` of `total` values, each with its number of rows, and how many more there are."""
    named = ", ".join(f"{value_text(value)} ({count:,})" for value, count in counts[:LISTED])
    return named + (f" and {total - LISTED:,} more" if total > LISTED else "")


def value_text(value: bytes | float, temporal: Temporal | None = None) -> str:
    """Returns a value as text. Strings are quoted and cut to 60 characters. Whole numbers have no fraction. With `temporal`, the
    unit of a date or time, the text is that date or time."""
    if isinstance(value, bytes):
        text = value.decode("utf-8", "backslashreplace")
        return repr(short(text, 60))
    if temporal is not None:
        return moment(value, temporal)
    whole = isinstance(value, int) or (abs(value) < 1e15 and value == int(value))
    return f"{int(value):,}" if whole else f"{value:.7g}"
