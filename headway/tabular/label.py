"""The label: a column, or an expression over columns.

label: species                      # a column
label: arr_delay > 15               # an expression; true is stored as 1
label: {expression: tips > 0.2 * fare, missing: quarantine}
"""

from typing import Any, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from headway.config import Frozen
from headway.errors import ConfigError
from headway.schema.columns import LABEL, Column, StoredType, column_yaml
from headway.tabular.expressions import Expression, ExpressionText, parse
from headway.tabular.list_arrays import decoded, is_list


class LabelConfig(Frozen):
    """The config of the label: its column or expression, and what happens to rows without one (`missing`)."""

    column: str | None = Field(default=None, description="the column that holds the label")
    expression: ExpressionText | None = Field(
        default=None,
        description="an expression over columns that gives the label, such as arr_delay > 15, in place of column",
    )
    missing: Literal["filter", "quarantine"] = Field(
        default="filter",
        description="what becomes of a row without a label: filter leaves it out and counts it, quarantine keeps it with "
        "the rejected rows",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"column": value} if value.isidentifier() else {"expression": value}
        several = isinstance(value, list) or (
            isinstance(value, dict) and len(value) > 1 and not {"column", "expression", "missing"} & value.keys()
        )
        if several:
            raise ValueError(f"names several labels: {', '.join(map(str, value))}; name the one that is predicted")
        return value

    @model_validator(mode="after")
    def _column_or_expression(self) -> Self:
        if (self.column is None) == (self.expression is None):
            raise ValueError("give a column, or an expression such as 'arr_delay > 15'; one of the two")
        return self

    def columns(self) -> frozenset[str]:
        """Returns the raw columns that the label is computed from. Being one of them does not make a column a feature."""
        return frozenset({self.column}) if self.column is not None else self._parsed().columns

    @property
    def meaning(self) -> str:
        """The text of what a model of this label predicts: the column's name, or the expression in a normal form."""
        return self.column if self.column is not None else self._parsed().plain

    def _parsed(self) -> Expression:
        assert self.expression is not None
        return parse(self.expression)

    def compute(self, batch: pa.RecordBatch) -> pa.Array:
        """Compute the label of each row of a coerced batch: int64, float32 or binary; null where it is missing."""
        value = batch.column(self.column) if self.column is not None else self._parsed().evaluate(batch)
        if is_list(value.type):
            name = self.column or self.expression
            raise ConfigError(
                f"{name!r} has several values per row, but a label has one",
                where="label",
                fix=f"if each row has one, say so: {column_yaml(str(name), '{shape: scalar}')}; or label by an expression",
            )
        if pa.types.is_boolean(value.type) or pa.types.is_integer(value.type):
            return value.cast(pa.int64())
        if pa.types.is_floating(value.type):
            value = value.cast(pa.float32())
            # NaN is not an answer to learn from
            return pc.if_else(pc.is_nan(value), pa.scalar(None, pa.float32()), value)
        return decoded(value).cast(pa.binary())

    def stored(self, columns: tuple[Column, ...]) -> Column:
        """Returns the label as a stored column. `columns` are the coerced columns that it is computed from."""
        names = self.columns()
        read = [column for column in columns if column.name in names]
        empty = pa.RecordBatch.from_arrays([pa.nulls(0, c.arrow) for c in read], names=[c.name for c in read])
        missing = sorted(names - set(empty.schema.names))
        if missing:
            raise ConfigError(f"the label needs column {missing[0]!r}, which the source does not have", where=LABEL)
        kind = self.compute(empty).type
        stored: StoredType = "int64" if kind == pa.int64() else "float32" if kind == pa.float32() else "bytes"
        encoding: Literal["dictionary", "plain"] = "dictionary" if stored == "bytes" else "plain"
        return Column(name=LABEL, type=stored, nullable=False, role="label", encoding=encoding)
