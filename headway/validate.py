"""Does the window fit the schema, and is there enough in it to train on?

    result = validate(ValidateRequest(...), out, monitor)
    errors(result)                            # what stops the run

Each anomaly is a severity, a sentence a person understands, with its numbers, and what to do about it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from headway.config import Frozen
from headway.monitor import Monitor
from headway.schema import LABEL, Schema
from headway.statistics.column import ColumnStatistics
from headway.statistics.split import SplitStatistics
from headway.tasks import Task

VERSION = 1
FILE = "validation.json"


class ValidateConfig(Frozen):
    """Bounds beyond which a run stops."""

    max_quarantined: float = Field(default=0.01, ge=0, le=1, description="share of a span's rows that may be rejected")
    max_unseen: float = Field(default=0.05, ge=0, le=1, description="share of rows with values outside a string domain")
    max_missing: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="share of nulls accepted in a column that the schema says is always present",
    )
    min_train_rows: int = Field(default=1, ge=1)
    min_eval_rows: int = Field(default=1, ge=1)


class SpanFacts(Frozen):
    """What ingest counted of one span."""

    span: str
    read: int
    written: int
    quarantined: int
    filtered: int


class ValidateRequest(Frozen):
    schema_: Schema = Field(alias="schema")
    statistics: Path
    """Output of the statistics stage: a folder for each split."""
    splits: tuple[str, ...]
    spans: tuple[SpanFacts, ...]
    task: Task | Literal["auto"] = "auto"
    config: ValidateConfig = ValidateConfig()


class Anomaly(Frozen):
    severity: Literal["error", "warning"]
    kind: str
    column: str | None = None
    where: str | None = None
    """The split or span."""
    message: str
    fix: str | None = None


def validate(request: ValidateRequest, out: Path, monitor: Monitor) -> dict[str, Any]:
    """The stage: write out/validation.json; returns {"anomalies": [...], "errors": n, "warnings": n}.

    An anomaly never fails the stage: what it found is kept, and the caller decides by `errors`.
    """
    splits = {name: SplitStatistics.load(request.statistics / name) for name in request.splits}
    found = [*_spans(request), *_splits(request, splits)]
    for name, statistics in splits.items():
        if statistics.rows:
            found += _columns(request, name, statistics)
    found.sort(key=lambda anomaly: anomaly.severity)
    result = {
        "anomalies": [anomaly.model_dump(mode="json") for anomaly in found],
        "errors": sum(anomaly.severity == "error" for anomaly in found),
        "warnings": sum(anomaly.severity == "warning" for anomaly in found),
    }
    (out / FILE).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for anomaly in found:
        monitor.log(f"{anomaly.severity}: {anomaly.message}")
    return result


def errors(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The anomalies that stop a run."""
    return [anomaly for anomaly in result["anomalies"] if anomaly["severity"] == "error"]


def _spans(request: ValidateRequest) -> Iterator[Anomaly]:
    for span in request.spans:
        share = span.quarantined / span.read if span.read else 0.0
        if share > request.config.max_quarantined:
            yield Anomaly(
                severity="error",
                kind="quarantine",
                where=span.span,
                message=f"{span.quarantined:,} of {span.read:,} rows of span {span.span} ({share:.2%}) were rejected; "
                f"at most {request.config.max_quarantined:.2%} may be",
                fix="look at the span's quarantine.parquet (headway show), mend the files or raise validation.max_quarantined",
            )
        if not span.written:
            yield Anomaly(
                severity="error" if len(request.spans) == 1 else "warning",
                kind="empty span",
                where=span.span,
                message=f"span {span.span} has no rows left: {span.read:,} read, {span.filtered:,} filtered, "
                f"{span.quarantined:,} rejected",
                fix="check source.where and the label",
            )


def _splits(request: ValidateRequest, splits: dict[str, SplitStatistics]) -> Iterator[Anomaly]:
    wanted = {"train": request.config.min_train_rows, "eval": request.config.min_eval_rows}
    for name, least in wanted.items():
        rows = splits[name].rows if name in splits else 0
        if rows < least:
            yield Anomaly(
                severity="error",
                kind="too few rows",
                where=name,
                message=f"the {name} split has {rows:,} rows; at least {least:,} are needed",
                fix="widen the window, or change the split",
            )
        elif name == "eval" and rows < 1000:
            yield Anomaly(
                severity="warning",
                kind="few rows",
                where=name,
                message=f"the eval split has only {rows:,} rows, so its metrics are uncertain",
            )


def _columns(request: ValidateRequest, split: str, statistics: SplitStatistics) -> Iterator[Anomaly]:
    for name, column in statistics.columns.items():
        if name == LABEL:
            yield from _label(request, split, column)
        elif name in request.schema_:
            yield from _column(request, split, column)


def _label(request: ValidateRequest, split: str, label: ColumnStatistics) -> Iterator[Anomaly]:
    if label.present and label.distinct < 2:
        value = label.top(1)[0][0] if label.complete else label.minimum
        yield Anomaly(
            severity="error" if split == "train" else "warning",
            kind="one label",
            column=LABEL,
            where=split,
            message=f"every row of the {split} split has the label {value!r}",
            fix="check the label expression, and the spans of the window",
        )
    elif request.task in ("auto", "binary") and label.complete and label.distinct == 2:
        rarest = min(count for _, count in label.top())
        if rarest / label.present < 0.001:
            yield Anomaly(
                severity="warning",
                kind="class balance",
                column=LABEL,
                where=split,
                message=f"the rarer label has {rarest:,} of {label.present:,} {split} rows ({rarest / label.present:.3%})",
                fix="consider training.class_weights: balanced",
            )


def _column(request: ValidateRequest, split: str, column: ColumnStatistics) -> Iterator[Anomaly]:
    schema, name = request.schema_, column.name
    if not column.present:
        yield Anomaly(
            severity="error",
            kind="all missing",
            column=name,
            where=split,
            message=f"column {name!r} has no value in any of the {column.rows:,} {split} rows",
            fix=f"mend the source, or leave it out: columns: {{{name}: ignore}}",
        )
        return
    share = column.missing / column.rows
    if name in schema.required and column.missing:
        yield Anomaly(
            severity="error" if share > request.config.max_missing else "warning",
            kind="presence",
            column=name,
            where=split,
            message=f"column {name!r} is missing in {column.missing:,} of {column.rows:,} {split} rows ({share:.2%}); the "
            "schema says it is always there",
            fix="mend the source, or lower presence.min_fraction in the schema file",
        )
    if name in schema.domains:
        yield from _domain(request, split, column)
    if name in schema.ranges:
        yield from _range(request, split, column)
    if split == "train" and column.distinct == 1 and not column.missing and not column.nan:
        yield Anomaly(
            severity="warning",
            kind="constant",
            column=name,
            where=split,
            message=f"column {name!r} has the same value in every train row",
            fix=f"leave it out: columns: {{{name}: ignore}}",
        )
    if column.nan:
        yield Anomaly(
            severity="warning",
            kind="nan",
            column=name,
            where=split,
            message=f"column {name!r} is NaN in {column.nan:,} of {column.rows:,} {split} rows",
        )


def _domain(request: ValidateRequest, split: str, column: ColumnStatistics) -> Iterator[Anomaly]:
    known = {value.encode() for value in request.schema_.domains[column.name]}
    unseen = [(value, count) for value, count in column.top() if value not in known]
    if not unseen:
        return
    rows = sum(count for _, count in unseen)
    shown = ", ".join(f"{value.decode('utf-8', 'backslashreplace')!r} ({count:,})" for value, count in unseen[:5])
    more = f" and {len(unseen) - 5} more" if len(unseen) > 5 else ""
    share = rows / column.present
    yield Anomaly(
        severity="error" if share > request.config.max_unseen else "warning",
        kind="unseen values",
        column=column.name,
        where=split,
        message=f"column {column.name!r} has values the schema does not know in {rows:,} of {column.present:,} {split} rows "
        f"({share:.2%}): {shown}{more}",
        fix="add them to the column's string_domain in the schema file, if they are right",
    )


def _range(request: ValidateRequest, split: str, column: ColumnStatistics) -> Iterator[Anomaly]:
    low, high = request.schema_.ranges[column.name]
    for bound, value, beyond in ((low, column.minimum, "below"), (high, column.maximum, "above")):
        if bound is None or value is None:
            continue
        if value < bound if beyond == "below" else value > bound:
            yield Anomaly(
                severity="error",
                kind="range",
                column=column.name,
                where=split,
                message=f"column {column.name!r} reaches {value:g} in the {split} rows, {beyond} the schema's bound of {bound:g}",
                fix="mend the source, filter the rows (source.where), or widen the domain in the schema file",
            )
