"""The config of validation: limits, and the severity of each kind of finding, for all columns or for single ones.

validation:
  max_missing: 0.05
  drift: {l_infinity: 0.1, jensen_shannon: 0.1, quantile: 0.25, missing: 0.1}
  severity: {drift: error, constant: ignore}
  columns:
    carrier: {severity: {drift: warning}}
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from headway.config import Frozen
from headway.schema.columns import LABEL, Schema, no_column, suggest
from headway.validation.anomaly import KINDS, Anomaly

Severity = Literal["error", "warning", "info", "ignore"]
LEAKAGE = 0.999
"""The AUC or R2 from which on a single feature is reported as a possible leak (`headway.validation.leaks`)."""


class DriftConfig(Frozen):
    """The distances beyond which rows have drifted: train rows from the champion's, or serving rows from train rows."""

    l_infinity: float = Field(default=0.1, ge=0, description="text: the most that one value's share may change")
    jensen_shannon: float = Field(default=0.1, ge=0, description="numbers: divergence in bits, from 0 to 1")
    quantile: float = Field(
        default=0.25, ge=0, description="numbers: mean shift of the quantiles, in units of the 5% to 95% range"
    )
    missing: float = Field(default=0.1, ge=0, description="the most that the share of missing values may change")
    min_rows: int = Field(default=1000, ge=1, description="fewer rows or values on either side are not compared")


def _kinds(value: dict[str, Severity]) -> dict[str, Severity]:
    named = {name.replace("_", " "): severity for name, severity in value.items()}
    for name in named:
        if name not in KINDS:
            raise ValueError(f"there is no check {name!r}; {suggest(name, [*KINDS])}")
    return named


Severities = Annotated[dict[str, Severity], AfterValidator(_kinds)]


class ColumnValidation(Frozen):
    """The validation settings of one column."""

    severity: Severities = Field(default={}, description="by kind: error, warning, info or ignore")


class ValidateConfig(Frozen):
    """The limits beyond which a run stops or warns, and the severity of each kind of finding."""

    max_quarantined: float = Field(default=0.01, ge=0, le=1, description="share of a span's rows that may be rejected")
    max_unseen: float = Field(default=0.05, ge=0, le=1, description="share of rows with values outside a string domain")
    max_missing: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="share of nulls accepted in a column that the schema says is always present",
    )
    min_train_rows: int = Field(default=1, ge=1, description="a window with fewer train rows is an error")
    min_eval_rows: int = Field(default=1, ge=1, description="a window with fewer eval rows is an error")
    leakage: float = Field(
        default=LEAKAGE,
        gt=0.5,
        le=1,
        description="the AUC or R2 from which on a column that reaches it alone gives a warning",
    )
    drift: DriftConfig = Field(
        default=DriftConfig(),
        description="the distances beyond which a column has drifted from the champion's train rows",
    )
    serving: str | None = Field(
        default=None,
        description="a file of serving rows (JSON lines, or a TFRecord of tf.Examples) to compare train rows with",
    )
    severity: Severities = Field(default={}, description="by kind: error, warning, info or ignore")
    columns: dict[str, ColumnValidation] = Field(default={}, description="settings of single columns")

    def check(self, schema: Schema, *, where: str) -> None:
        """Check that the schema has every column that `columns` has settings for, except the label.

        Raises:
            ConfigError: the schema lacks one of these columns.
        """
        for name in self.columns:
            if name != LABEL and name not in schema:
                raise no_column(name, schema.names(), where=f"{where}: validation.columns")

    def with_severity(self, anomaly: Anomaly) -> Anomaly | None:
        """Returns the anomaly with the severity set for its kind in its column, else its kind, else its own; None: ignored."""
        own, kind = self.columns.get(anomaly.column or ""), anomaly.kind
        severity = (own.severity.get(kind) if own else None) or self.severity.get(kind) or anomaly.severity
        return None if severity == "ignore" else anomaly.model_copy(update={"severity": severity})
