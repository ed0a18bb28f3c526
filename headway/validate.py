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

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from headway.anomaly import LISTED, Anomaly, errors, listed, summary_table, value_text
from headway.config import Frozen
from headway.monitor import Monitor
from headway.schema import LABEL, Schema
from headway.statistics.column import ColumnStatistics
from headway.statistics.split import SplitStatistics
from headway.tasks import Task

__all__ = ["Anomaly", "SpanFacts", "ValidateConfig", "ValidateRequest", "errors", "summary_table", "validate"]
VERSION = 1
FILE = "validation.json"
FEW_EVAL_ROWS = 1000
"""Below this many, metrics of the eval split are called uncertain."""
RARE_CLASS = 0.001
AUTO_MOST_CLASSES = 20
"""Integer labels with more values than this are a regression, unless the pipeline says otherwise."""


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
    stored: tuple[str, ...] = ()
    """Columns that the statistics must be of."""
    task: Task | Literal["auto"] = "auto"
    config: ValidateConfig = ValidateConfig()


def validate(request: ValidateRequest, out: Path, monitor: Monitor) -> dict[str, Any]:
    """The stage: write out/validation.json; returns {"anomalies": [...], "errors": n, "warnings": n}.

    An anomaly never fails the stage: what it found is kept, and the caller decides by `errors`.
    """
    splits = {name: SplitStatistics.load(request.statistics / name) for name in request.splits}
    found = [*_spans(request), *_splits(request, splits)]
    train = splits["train"].columns.get(LABEL) if "train" in splits else None
    for name, statistics in splits.items():
        if statistics.rows:
            found += _columns(request, name, statistics)
            if LABEL in statistics.columns:
                found += _label(request, name, statistics.columns[LABEL], train)
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
        elif name == "eval" and rows < FEW_EVAL_ROWS:
            yield Anomaly(
                severity="warning",
                kind="few rows",
                where=name,
                message=f"the eval split has only {rows:,} rows, so its metrics are uncertain",
                fix="widen the window, or give eval a larger share",
            )
    for name in sorted(set(splits) - set(wanted)):
        if not splits[name].rows:
            yield Anomaly(
                severity="warning",
                kind="too few rows",
                where=name,
                message=f"the {name} split has no rows",
                fix="widen the window, or change the split",
            )


def _columns(request: ValidateRequest, split: str, statistics: SplitStatistics) -> Iterator[Anomaly]:
    for name in request.stored:
        if name not in statistics.columns:
            yield Anomaly(
                severity="error",
                kind="missing column",
                column=name,
                where=split,
                message=f"column {name!r} is not in the {split} rows at all",
                fix="mend the source, or leave the column out of the pipeline",
            )
    for name, column in statistics.columns.items():
        if name != LABEL and name in request.schema_:
            yield from _column(request, split, column)


def _label(
    request: ValidateRequest, split: str, label: ColumnStatistics, train: ColumnStatistics | None
) -> Iterator[Anomaly]:
    if label.infinite:
        yield Anomaly(
            severity="warning",
            kind="label",
            column=LABEL,
            where=split,
            message=f"the label is infinite in {label.infinite:,} of {label.rows:,} {split} rows, which count for nothing",
            fix="filter them (source.where), or mend the label expression",
        )
    if label.present and label.distinct < 2:
        value = value_text(label.top(1)[0][0]) if label.distinct else "no finite number"
        yield Anomaly(
            severity="error" if split == "train" else "warning",
            kind="one label",
            column=LABEL,
            where=split,
            message=f"every one of the {label.present:,} {split} rows has the label {value}",
            fix="check the label expression, and the spans of the window",
        )
    elif request.task in ("auto", "binary") and label.complete and label.distinct == 2:
        rarest = min(count for _, count in label.top())
        if rarest / label.present < RARE_CLASS:
            yield Anomaly(
                severity="warning",
                kind="class balance",
                column=LABEL,
                where=split,
                message=f"the rarer label has {rarest:,} of {label.present:,} {split} rows ({rarest / label.present:.3%})",
                fix="consider training.class_weights: balanced",
            )
    if split != "train" and train is not None and _is_class(request.task, train) and label.complete:
        known = {value for value, _ in train.top()}
        unseen = [(value, count) for value, count in label.top() if value not in known]
        if unseen:
            rows = sum(count for _, count in unseen)
            yield Anomaly(
                severity="warning",
                kind="unseen label",
                column=LABEL,
                where=split,
                message=f"{rows:,} of {label.present:,} {split} rows have a label that no train row has, and count for "
                f"nothing: {listed(unseen, len(unseen))}",
                fix="widen the window, or change the split",
            )


def _is_class(task: str, label: ColumnStatistics) -> bool:
    """Whether the label's values are classes, as the pipeline says or as they look."""
    if not label.complete or not label.distinct:
        return False
    if task != "auto":
        return task != "regression"
    few = label.type == "int64" and label.distinct <= AUTO_MOST_CLASSES
    return label.type == "bytes" or label.distinct == 2 or few


def _column(request: ValidateRequest, split: str, column: ColumnStatistics) -> Iterator[Anomaly]:
    schema, name = request.schema_, column.name
    if not column.present or (column.type != "bytes" and not column.finite):
        what = "value" if not column.present else "finite number"
        yield Anomaly(
            # a small split may miss a sparse column by chance; without any in train there is nothing to learn
            severity="error" if split == "train" else "warning",
            kind="all missing",
            column=name,
            where=split,
            message=f"column {name!r} has no {what} in any of the {column.rows:,} {split} rows",
            fix=f"mend the source, or leave it out: columns: {{{name}: ignore}}",
        )
        return
    kind = schema.column(name).type
    if kind != column.type:
        yield Anomaly(
            severity="warning",
            kind="type",
            column=name,
            where=split,
            message=f"column {name!r} is stored as {column.type}, and the schema says {kind}; its domain and range were "
            "not checked",
            fix="change the type in the schema file, or the column's type in the pipeline",
        )
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
    if name in schema.domains and kind == column.type == "bytes":
        yield from _domain(request, split, column)
    if name in schema.ranges and kind == column.type:
        yield from _range(request, split, column)
    if split == "train" and column.distinct == 1 and not (column.missing or column.nan or column.infinite):
        yield Anomaly(
            severity="warning",
            kind="constant",
            column=name,
            where=split,
            message=f"column {name!r} has the same value in all {column.rows:,} train rows",
            fix=f"leave it out: columns: {{{name}: ignore}}",
        )
    for what, kind_, rows in (("NaN", "nan", column.nan), ("infinite", "infinite", column.infinite)):
        if rows:
            yield Anomaly(
                severity="warning",
                kind=kind_,
                column=name,
                where=split,
                message=f"column {name!r} is {what} in {rows:,} of {column.rows:,} {split} rows ({rows / column.rows:.2%})",
                fix="mend the source, or filter the rows (source.where)",
            )


def _domain(request: ValidateRequest, split: str, column: ColumnStatistics) -> Iterator[Anomaly]:
    assert column.text is not None
    known = pa.array([value.encode() for value in request.schema_.domains[column.name]], pa.large_binary())
    unseen, rows = column.text.others(known)
    if not unseen:
        return
    values, counts = column.text.top(LISTED, unless=known)
    examples = list(zip(values.to_pylist(), counts.tolist(), strict=True))
    share = rows / column.values
    yield Anomaly(
        severity="error" if share > request.config.max_unseen else "warning",
        kind="unseen values",
        column=column.name,
        where=split,
        message=f"column {column.name!r} has values the schema does not know in {rows:,} of {column.values:,} {split} rows "
        f"({share:.2%}): {listed(examples, unseen)}",
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
                message=f"column {column.name!r} reaches {value_text(value)} in the {split} rows, {beyond} the schema's bound of "
                f"{value_text(bound)}",
                fix="mend the source, filter the rows (source.where), or widen the domain in the schema file",
            )
