"""Further labels of a model of several heads: their part of a predictions table, as a table of their own.

    minutes = FurtherLabel(name="minutes", task="regression")
    part = part_of(table, "minutes")             # label, prediction and weight of that label; None where the model has none
    named({"rmse": 12.0}, "minutes")             # {"minutes/rmse": 12.0}

A predictions table holds `minutes/label`, null where a row has none, and `minutes/prediction`. In the part such a row weighs
nothing.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headway.config import Frozen
from headway.schema.columns import UNIT
from headway.tasks.base import LabelFacts
from headway.tasks.table import TaskName

SEPARATOR = "/"
"""Between a further label and its metric or output."""
_Value = TypeVar("_Value")


class FurtherLabel(Frozen):
    """One further label, as the eval rows' predictions have it."""

    name: str
    task: TaskName
    facts: LabelFacts | None = None
    """Of the train rows: what the constant baseline predicts."""
    classes: tuple[str | int, ...] = ()


def columns_of(labels: Iterable[FurtherLabel]) -> list[str]:
    """The columns of further labels in a predictions table."""
    return [column for label in labels for column in (label_column(label.name), prediction_column(label.name))]


def label_column(name: str) -> str:
    """The column of a further label's values."""
    return f"{name}{SEPARATOR}label"


def prediction_column(name: str) -> str:
    """The column of a further label's predictions."""
    return f"{name}{SEPARATOR}prediction"


def part_of(table: pa.Table, name: str) -> pa.Table | None:
    """A table of one further label's predictions with the columns of the main one's; None without such predictions."""
    if prediction_column(name) not in table.column_names:
        return None
    label = table.column(label_column(name))
    weight = table.column("weight") if "weight" in table.column_names else pa.chunked_array([np.ones(len(table))])
    columns = {
        column: table.column(column) for column in table.column_names if SEPARATOR not in column or column == UNIT
    }
    zero = pa.scalar(0, label.type)
    return pa.table(
        columns
        | {
            "label": pc.fill_null(label, zero),
            "weight": pc.if_else(label.is_valid(), weight, pa.scalar(0.0, weight.type)),
            "prediction": table.column(prediction_column(name)),
        }
    )


def named(values: Mapping[str, _Value], label: str) -> dict[str, _Value]:
    """What is known of a further label's metrics, under their names beside the main label's."""
    return {prefixed(label, name): value for name, value in values.items()}


def prefixed(label: str, metric: str) -> str:
    """What a further label's metric is called."""
    return f"{label}{SEPARATOR}{metric}"


def split_name(metric: str) -> tuple[str | None, str]:
    """(further label, metric of it); (None, metric) of the main label's."""
    label, _, name = metric.rpartition(SEPARATOR)
    return label or None, name
