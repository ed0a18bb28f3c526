"""The config of validation: limits for all columns, limits per column, and the severity of each kind of finding.

validation:
  max_missing: 0.05
  drift: {l_infinity: 0.1, jensen_shannon: 0.1, quantile: 0.25, missing: 0.1}
  severity: {drift: error, constant: ignore}
  columns:
    carrier: {drift: {l_infinity: 0.3}, max_unseen: 0.2, severity: {drift: warning}}
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, field_validator

from headway.config import Frozen
from headway.errors import ConfigError
from headway.schema.columns import LABEL, Column, Schema, no_column, suggest, type_text
from headway.validation.anomaly import KINDS, Anomaly

Severity = Literal["error", "warning", "info", "ignore"]
LEAKAGE = 0.999
"""The AUC or R2 that no feature is expected to reach alone (`headway.validation.leaks`)."""
_OF_NUMBERS = "numbers is bounded by jensen_shannon and quantile"


class DriftConfig(Frozen):
    """The distances beyond which a column has drifted from the champion's train rows, or logged requests from this
    run's."""

    l_infinity: float = Field(default=0.1, ge=0, description="text: the most that one value's share may change")
    jensen_shannon: float = Field(default=0.1, ge=0, description="numbers: divergence in bits, from 0 to 1")
    quantile: float = Field(
        default=0.25, ge=0, description="numbers: mean shift of the quantiles, in units of the 5% to 95% range"
    )
    missing: float = Field(default=0.1, ge=0, description="the most that the share of missing values may change")
    min_rows: int = Field(default=1000, ge=1, description="with fewer rows on either side nothing is compared")


class ColumnDrift(Frozen):
    """The limits of one column; omitted keys are as for all columns."""

    l_infinity: float | None = Field(
        default=None, ge=0, description="text: the most that one value's share may change; none: as for all columns"
    )
    jensen_shannon: float | None = Field(
        default=None, ge=0, description="numbers: divergence in bits, from 0 to 1; none: as for all columns"
    )
    quantile: float | None = Field(
        default=None,
        ge=0,
        description="numbers: mean shift of the quantiles, in units of the 5% to 95% range; none: as for all columns",
    )
    missing: float | None = Field(
        default=None, ge=0, description="the most that the share of missing values may change; none: as for all columns"
    )


def _kinds(value: dict[str, Severity]) -> dict[str, Severity]:
    named = {name.replace("_", " "): severity for name, severity in value.items()}
    for name in named:
        if name not in KINDS:
            raise ValueError(f"there is no check {name!r}; {suggest(name, [*KINDS])}")
    return named


class ColumnValidation(Frozen):
    """The overrides for one column."""

    max_unseen: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="share of rows with values outside the column's string domain; none: as for all columns",
    )
    max_missing: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="share of nulls accepted although the schema says that it is always present; none: as for all columns",
    )
    drift: ColumnDrift = Field(default=ColumnDrift(), description="the distances beyond which this column has drifted")
    severity: dict[str, Severity] = Field(default={}, description="by kind: error, warning, info or ignore")

    _check_kinds = field_validator("severity")(_kinds)


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
    min_class_share: float = Field(
        default=0.001, ge=0, le=0.5, description="a class with a smaller share gives a warning"
    )
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
        description="logged requests (JSON lines, or a TFRecord of tf.Examples) to compare train rows with",
    )
    severity: dict[str, Severity] = Field(default={}, description="by kind: error, warning, info or ignore")
    columns: dict[str, ColumnValidation] = Field(default={}, description="settings of single columns")

    _check_kinds = field_validator("severity")(_kinds)

    def check(self, schema: Schema, stored: Sequence[Column], *, where: str, complete: bool) -> None:
        """Check that the limits of single columns bound something.

        Args:
            stored: the columns whose values are counted, the label among them where its type is known.
            complete: whether the schema has the domains and the presence of its columns, which the first window shows.

        Raises:
            ConfigError: a column does not exist, or a limit does not go with its values.
        """
        counted = {column.name: column for column in stored}
        for name, own in self.columns.items():
            if name != LABEL and name not in schema:
                raise no_column(name, schema.names(), where=f"{where}: validation.columns")
            given = own.model_dump(include={"max_unseen", "max_missing"}) | own.drift.model_dump()
            for limit, value in given.items():
                if value is None or (name == LABEL and name not in counted):
                    continue
                why = _bounds_nothing(limit, counted.get(name), schema, complete=complete)
                if why is not None:
                    key = limit if limit.startswith("max_") else f"drift.{limit}"
                    problem, place = f"it bounds nothing: {why}", f"{where}: validation.columns.{name}.{key}"
                    raise ConfigError(problem, where=place, fix="leave it out")

    def unseen(self, column: str) -> float:
        own = self.columns.get(column)
        return self.max_unseen if own is None or own.max_unseen is None else own.max_unseen

    def missing(self, column: str) -> float:
        own = self.columns.get(column)
        return self.max_missing if own is None or own.max_missing is None else own.max_missing

    def drift_of(self, column: str) -> DriftConfig:
        """Returns the limits of a column: its own where it has any."""
        own = self.columns.get(column)
        return self.drift.model_copy(update=own.drift.model_dump(exclude_none=True)) if own else self.drift

    def settled(self, anomaly: Anomaly) -> Anomaly | None:
        """Returns the anomaly with its configured severity; None when it is to be ignored."""
        own, kind = self.columns.get(anomaly.column or ""), anomaly.kind
        severity = (own.severity.get(kind) if own else None) or self.severity.get(kind) or anomaly.severity
        return None if severity == "ignore" else anomaly.model_copy(update={"severity": severity})


def _bounds_nothing(limit: str, column: Column | None, schema: Schema, *, complete: bool) -> str | None:
    """Returns the reason why a limit of a column is never reached; None: it can be."""
    if column is None:
        return "the column is not stored, and nothing is counted of it"
    what = f"column {column.name!r} holds {type_text(column)}"
    if limit in ("max_unseen", "max_missing"):
        if column.name == LABEL:
            return "it is for the columns beside the label"
        if limit == "max_missing":
            required = not complete or column.name in schema.required
            return None if required else "the schema file does not say that the column is always there (presence)"
        if column.type != "bytes":
            return f"{what}, and only texts are compared with a string_domain"
        known = not complete or column.name in schema.domains
        return None if known else "the schema file has no string_domain of the column"
    if column.shape:
        return f"{what}, and drift is measured of columns with one value per row"
    if limit != "missing" and (limit == "l_infinity") != (column.type == "bytes"):
        return f"{what}; drift of {'texts is bounded by l_infinity' if column.type == 'bytes' else _OF_NUMBERS}"
    return None
