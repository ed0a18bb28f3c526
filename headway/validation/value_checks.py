"""Checks columns against the schema: presence, type, domain, range, finite numbers.

found = list(check_columns("train", statistics, schema, stored, config))
"""

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from headway.schema.columns import LABEL, Schema, column_yaml
from headway.statistics.column_statistics import LONG_BYTES, ColumnStatistics
from headway.statistics.split_statistics import SplitStatistics
from headway.validation.anomaly import LISTED, Anomaly, Kind, Severity, finding, listed, value_text
from headway.validation.config import ValidateConfig


def check_columns(
    split: str,
    statistics: SplitStatistics,
    schema: Schema,
    stored: Sequence[str],
    config: ValidateConfig,
    later: Collection[str] = (),
) -> Iterator[Anomaly]:
    """Yields findings on the columns of a split, except the label.

    Args:
        later: the columns that first appear after the window's first span; rows of earlier spans may lack their values.
    """
    for name in stored:
        if name not in statistics.columns:
            message = f"column {name!r} is not in the {split} rows at all"
            fix = "mend the source, or leave the column out of the pipeline"
            yield finding("error", "missing column", split, message, fix, column=name)
    for name, column in statistics.columns.items():
        if name != LABEL and name in schema:
            yield from _column(split, column, schema, config, name in later)


def _column(
    split: str, column: ColumnStatistics, schema: Schema, config: ValidateConfig, later: bool
) -> Iterator[Anomaly]:
    name = column.name
    if not column.present or (column.type != "bytes" and not column.finite):
        what = "value" if not column.present else "finite number"
        # a small split may miss a sparse column by chance; without any in train there is nothing to learn
        message = f"column {name!r} has no {what} in any of the {column.rows:,} {split} rows"
        fix = f"mend the source, or leave it out: {column_yaml(name, 'ignore')}"
        if later:
            fix = f"nothing to do if train has no span from {schema.column(name).since} on yet; else {fix}"
        severity: Severity = "error" if split == "train" and not later else "warning"
        yield finding(severity, "all missing", split, message, fix, column=name)
        return
    kind = schema.column(name).type
    if kind != column.type:
        message = f"column {name!r} is stored as {column.type}, and the schema says {kind}; its domain and range were "
        message += "not checked"
        fix = "change the type in the schema file, or the column's type in the pipeline"
        yield finding("warning", "type", split, message, fix, column=name)
    share = column.missing / column.rows
    if name in schema.required and column.missing:
        message = f"column {name!r} is missing in {column.missing:,} of {column.rows:,} {split} rows ({share:.2%}); "
        message += "the schema says it is always there"
        fix = f"mend the source, lower presence.min_fraction of {name!r} in the schema file, or raise validation.max_missing"
        limit = config.max_missing
        severity = _beyond(share, limit)
        yield finding(severity, "presence", split, message, fix, column=name, value=share, expected=limit)
    if name in schema.domains and kind == column.type == "bytes":
        yield from _domain(split, column, schema, config)
    if name in schema.ranges and kind == column.type:
        yield from _range(split, column, schema)
    unusual: tuple[tuple[str, Kind, int], ...] = (("NaN", "nan", column.nan), ("infinite", "infinite", column.infinite))
    for what, kind_, rows in unusual:
        if rows:
            message = f"column {name!r} is {what} in {rows:,} of {column.rows:,} {split} rows "
            message += f"({rows / column.rows:.2%})"
            fix = "mend the source, or filter the rows (source.where)"
            yield finding("warning", kind_, split, message, fix, column=name)


def _domain(split: str, column: ColumnStatistics, schema: Schema, config: ValidateConfig) -> Iterator[Anomaly]:
    if column.text is None:
        message = f"column {column.name!r} has a value of {column.longest or 0:,} bytes in the {split} rows; "
        message += f"values are counted up to {LONG_BYTES:,} bytes, so the column was not checked against the "
        message += "schema's string_domain"
        fix = "filter those rows (source.where), shorten the values in the source, or take the string_domain of "
        fix += f"{column.name!r} out of the schema file"
        yield finding("warning", "unseen values", split, message, fix, column=column.name)
        return
    words = pa.array([value.encode() for value in schema.domains[column.name]], pa.large_binary())
    unseen, rows = column.text.count_others(words)
    if not unseen:
        return
    values, counts = column.text.top(LISTED, exclude=words)
    examples = list(zip(values.to_pylist(), counts.tolist(), strict=True))
    share = rows / column.values
    message = f"column {column.name!r} has values the schema does not know in {rows:,} of {column.values:,} {split} "
    message += f"rows ({share:.2%}): {listed(examples, unseen)}"
    fix = f"if they are right, add them to the string_domain of {column.name!r} in the schema file, or raise "
    fix += "validation.max_unseen"
    limit = config.max_unseen
    severity = _beyond(share, limit)
    yield finding(severity, "unseen values", split, message, fix, column=column.name, value=share, expected=limit)


def _beyond(share: float, limit: float) -> Severity:
    return "error" if share > limit else "warning"


def _range(split: str, column: ColumnStatistics, schema: Schema) -> Iterator[Anomaly]:
    low, high = schema.ranges[column.name]
    for bound, value, beyond in ((low, column.minimum, "below"), (high, column.maximum, "above")):
        if bound is None or value is None:
            continue
        if value < bound if beyond == "below" else value > bound:
            reached, limit = (value_text(each, column.temporal) for each in (value, bound))
            message = f"column {column.name!r} reaches {reached} in the {split} rows, {beyond} the schema's "
            message += f"bound of {limit}"
            fix = "mend the source, filter the rows (source.where), or widen the domain of "
            fix += f"{column.name!r} in the schema file"
            yield finding("error", "range", split, message, fix, column=column.name, value=value, expected=bound)
