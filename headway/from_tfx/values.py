"""Values of a preprocessing_fn: Python of each row's columns, and what tft makes of it.

value = Rows("tf.math.log1p(columns['fare'])")
Analyzed(value, "standardize")
"""

import ast
from dataclasses import dataclass
from typing import Any

from headway.schema.columns import StoredType

FILLED = "filled"
"""filled(columns['x'], 0) in Python of rows: the column with a value in place of missing ones."""


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
    """Raised where a value of the program has no counterpart in Headway."""

    def __init__(self, problem: str, fix: str = ""):
        super().__init__(problem)
        self.problem, self.fix = problem, fix


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
    """A value that each row has by itself."""

    source: str
    """Python of `columns`."""
    raw: Raw | None = None
    """The column that it is, filled or not; None: it is computed."""


@dataclass(frozen=True)
class Analyzed:
    """A value after an operation that is fitted on the train rows, or makes a category."""

    of: Rows
    op: Any
    """As `columns:` of pipeline.yaml has it."""
    notes: tuple[str, ...] = ()


class Ref(str):
    """A name of TensorFlow: tf.float32."""


@dataclass(frozen=True)
class Part:
    """An attribute of a tensor, such as x.indices."""

    of: Rows | Analyzed
    name: str


def parsed(source: str) -> ast.expr:
    """Python of rows as a tree."""
    return ast.parse(source, mode="eval").body


def tidy(source: str) -> str:
    """Python of rows with the parentheses that it needs."""
    return ast.unparse(parsed(source))


def called(tree: ast.expr) -> tuple[str, list[ast.expr]]:
    """The name and arguments of a call; "" and none of whatever else."""
    return (ast.unparse(tree.func), tree.args) if isinstance(tree, ast.Call) else ("", [])


def column_of(tree: ast.expr) -> tuple[str, ast.expr | None]:
    """The column that a value is, and what it is filled with; "" where it is computed."""
    name, args = called(tree)
    if name == FILLED:
        return column_of(args[0])[0], args[1]
    if isinstance(tree, ast.Subscript) and isinstance(tree.slice, ast.Constant):
        return str(tree.slice.value), None
    return "", None


def literal(tree: ast.expr) -> Any:
    """A number, text or truth that is written out; None where it is none."""
    try:
        return ast.literal_eval(tree)
    except ValueError:
        return None
