"""Further labels: what a model learns beside its label, each with a head of its own over the same body.

labels: [arr_delay]                                       # columns
labels:
  minutes: arr_delay                                      # a column, or an expression, under another name
  arr_delay: {task: quantiles, weight: 0.5}               # the column of that name
  late: {expression: arr_delay > 60, task: binary}
"""

import re
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from headway.config import Frozen
from headway.tabular.label import LabelConfig
from headway.tasks.table import TaskOrAuto


class FurtherLabelConfig(Frozen):
    """One further label. A row without one counts nothing in this label's loss, and stays."""

    column: str | None = Field(default=None, description="default: the column that the label is named after")
    expression: str | None = Field(
        default=None, description="an expression over columns that gives the label, in place of column"
    )
    task: TaskOrAuto = Field(
        default="auto",
        description="what kind of number is predicted, as the pipeline's task; auto: what the values show",
    )
    weight: float = Field(
        default=1.0,
        gt=0,
        le=1e6,
        description="weight of its loss; losses are in units of the labels' standard deviations",
    )

    @model_validator(mode="after")
    def _is_a_label(self) -> Self:
        _ = self.label
        return self

    @field_validator("task")
    @classmethod
    def _built_in(cls, value: str) -> str:
        if ":" in value:
            raise ValueError("a task of your own can be the main label's alone")
        return value

    @property
    def label(self) -> LabelConfig:
        """What it is computed from."""
        return LabelConfig(column=self.column, expression=self.expression)


def named(value: Any) -> Any:
    """Expand the short forms; a label without a column or an expression is the column of its name.

    Raises:
        ValueError: a name that metrics and outputs could not begin with.
    """
    value = [value] if isinstance(value, str) else value
    value = dict.fromkeys(value) if isinstance(value, list) else value
    if not isinstance(value, dict):
        return value
    labels: dict[Any, Any] = {}
    for name, entry in value.items():
        if not re.fullmatch(r"[A-Za-z_]\w*", str(name), re.ASCII) or name == "label":
            raise ValueError(
                f"{name!r} cannot be the name of a label: outputs and metrics are called by it. Give it one of letters, digits "
                f"and _, and say the column: {{arrival: {{column: {str(name)!r}}}}}"
            )
        entry = {"column" if entry.isidentifier() else "expression": entry} if isinstance(entry, str) else entry or {}
        plain = isinstance(entry, dict) and not {"column", "expression"} & entry.keys()
        labels[name] = {"column": name, **entry} if plain else entry
    return labels
