"""Values of a preprocessing_fn: Python of each row's columns, and what tft makes of it.

fare = column(Raw("fare", "float32"))
value = computed("tf.math.log1p(columns['fare'])", [fare])
value.reads                              # {"fare"}
dataclasses.replace(value, op="standardize")
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headway.schema.columns import StoredType


@dataclass(frozen=True)
class Remark:
    """One thing that was not translated, or means something else."""

    file: str
    line: int
    """From 1; 0: of the file as a whole."""
    problem: str
    fix: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}  {self.problem}" + (f"; {self.fix}" if self.fix else "")


class Untranslatable(Exception):
    """A value of the program has no counterpart in Headway: its problem and fix, or the Remark of what it is computed from."""


@dataclass(frozen=True)
class Raw:
    """A column of the examples."""

    name: str
    type: StoredType
    required: bool = False
    """Whether the schema demands it in every row."""
    sparse: bool = False
    """Whether TFX gives it as a SparseTensor: its schema has no shape for it."""
    listed: bool = False
    category: bool = False
    """Whether the schema says that its integers name things."""


@dataclass(frozen=True)
class Rows:
    """A value that each row has by itself, or what is fitted on the train rows to it."""

    source: str
    """Python of `columns`, where a missing value is 0 or ""."""
    reads: frozenset[str] = frozenset()
    """The columns that it is computed from."""
    needs: frozenset[str] = frozenset()
    """The columns that have to be there for it to be."""
    text: bool = False
    raw: Raw | None = None
    """The column that it is, filled, cast without a change or written as text; None: it is computed."""
    constant: Any = None
    """What fills the column's missing values; without a column, the constant that it is."""
    op: Any = None
    """What is fitted, or makes a category, as `columns:` of pipeline.yaml has it; None: nothing."""
    notes: tuple[str, ...] = ()
    place: tuple[str, int] = ("", 0)
    """The file and line in which an output was made."""


class Ref(str):
    """A name of TensorFlow: tf.float32."""


class Part:
    """An attribute of a tensor, such as x.indices."""


def column(raw: Raw) -> Rows:
    """A column as it is."""
    name = frozenset({raw.name})
    needs = frozenset() if raw.required else name
    return Rows(f"columns[{raw.name!r}]", name, needs, raw.type == "bytes", raw)


def computed(source: str, values: Sequence[Any], *, text: bool = False) -> Rows:
    """What Python computes from values."""
    rows = [*rows_in(values)]
    reads = frozenset[str]().union(*(value.reads for value in rows))
    needs = frozenset[str]().union(*(value.needs for value in rows))
    tidy = ast.unparse(ast.parse(source, mode="eval"))  # with the parentheses that it needs
    return Rows(tidy, reads, needs, text)


def rows_in(values: Iterable[Any]) -> Iterator[Rows]:
    """Values that rows have, also those in lists."""
    for value in values:
        yield from [value] if isinstance(value, Rows) else rows_in(value) if isinstance(value, list | tuple) else []
