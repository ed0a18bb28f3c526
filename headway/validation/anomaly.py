"""A finding of validation: severity, message with the numbers, and the fix.

errors(result)                            # what stops the run
summary_table(result)                     # rows of text for a terminal or an artifact
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from headway.config import Frozen
from headway.schema.calendar_days import Temporal, moment

LISTED = 5
"""Values that a sentence names before it says how many more there are."""


Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""The gravest first; only errors stop a run."""
Kind = Literal[
    "quarantine", "empty span", "too few rows", "few rows", "missing column", "label", "one label", "class balance",
    "unseen label", "vanished label", "all missing", "type", "presence", "unseen values", "range", "constant", "nan",
    "infinite", "duplicate", "leakage", "drift", "skew", "serving rows", "key overlap", "time overlap", "duplicate key",
    "split proof", "missing key", "split share", "stratification", "missing class", "few keys", "duplicate rows",
    "group overlap", "row overlap", "torn unit", "new column", "weight",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Every kind of finding; in a config `too few rows` may be written `too_few_rows`."""


class Anomaly(Frozen):
    severity: Severity
    kind: Kind
    column: str | None = None
    where: str | None = None
    """The split or span."""
    message: str
    fix: str | None = None


def finding(
    severity: Severity, kind: Kind, where: str | None, message: str, fix: str | None, *, column: str | None = None
) -> Anomaly:
    """Make an anomaly; `where` is the split or span."""
    return Anomaly(severity=severity, kind=kind, column=column, where=where, message=message, fix=fix)


def errors(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The anomalies that stop a run."""
    return [anomaly for anomaly in result["anomalies"] if anomaly["severity"] == "error"]


def summary_table(result: dict[str, Any]) -> list[dict[str, str]]:
    """A row of text for each anomaly, errors first, for a terminal or an artifact."""
    fields = ("severity", "kind", "where", "column", "message", "fix")
    return [{name: anomaly.get(name) or "" for name in fields} for anomaly in result["anomalies"]]


def listed(counts: list[tuple[Any, int]], total: int) -> str:
    """The text of the first few of `total` values, each with its rows."""
    named = ", ".join(f"{value_text(value)} ({count:,})" for value, count in counts[:LISTED])
    return named + (f" and {total - LISTED:,} more" if total > LISTED else "")


def value_text(value: bytes | float, temporal: Temporal | None = None) -> str:
    """The text of a value: strings quoted and cut to 60 characters, whole numbers without a fraction, dates and times as
    such."""
    if isinstance(value, bytes):
        text = value.decode("utf-8", "backslashreplace")
        return repr(text if len(text) <= 60 else text[:57] + "...")
    if temporal is not None:
        return moment(value, temporal)
    whole = isinstance(value, int) or (abs(value) < 1e15 and value == int(value))
    return f"{int(value):,}" if whole else f"{value:.7g}"
