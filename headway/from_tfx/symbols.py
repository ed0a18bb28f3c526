"""Values of a preprocessing_fn: columns, what is computed of them row by row, what tft makes of them.

value = Call("tf.math.log1p", (Raw("fare", "float32"),))
source_of(value)                           # tf.math.log1p(columns['fare'])
raws_of(value)                             # {Raw("fare", "float32")}
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from headway.from_tfx.remarks import Remark
from headway.schema.columns import StoredType


@dataclass(frozen=True)
class Ref:
    """A name of TensorFlow, tf.Transform or another module: tf.float32, tft.bucketize."""

    path: str


@dataclass(frozen=True)
class Raw:
    """A column of the examples."""

    name: str
    type: StoredType
    required: bool = False
    """Whether the schema demands it in every row."""
    sparse: bool = False
    """Whether TFX gives it as a SparseTensor: its schema has no shape for it."""
    least: float | None = None
    """The least value that its domain allows."""
    listed: bool = False
    category: bool = False
    """Whether the schema says that its integers name things."""


@dataclass(frozen=True)
class Filled:
    """A column with a value in place of missing ones."""

    of: Raw
    default: Any


@dataclass(frozen=True)
class Part:
    """An attribute of a tensor, such as x.indices."""

    of: Any
    name: str


@dataclass(frozen=True)
class Call:
    """A function of TensorFlow that computes each row by itself."""

    function: str
    args: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Operation:
    """An operator between values: +, <, ~."""

    operator: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Vocab:
    """tft.vocabulary of a column, to be applied to it."""

    of: Any
    op: Any
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Analyzed:
    """A value after an operation that is fitted on the train rows, or makes a category."""

    of: Any
    op: Any
    """As `columns:` of pipeline.yaml has it."""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unknown:
    """A value without a counterpart, and why."""

    remark: Remark


Symbol = Raw | Filled | Call | Operation
SYMBOLS = (Raw, Filled, Call, Operation)


_KINDS = {kind.__name__: kind for kind in (Ref, Raw, Filled, Part, Call, Operation, Vocab, Analyzed, Unknown, Remark)}


def to_json(value: Any) -> Any:
    """A value for another process; None for what is neither a symbol nor a constant."""
    if is_dataclass(value) and type(value).__name__ in _KINDS:
        return {
            "kind": type(value).__name__,
            **{each.name: to_json(getattr(value, each.name)) for each in fields(value)},
        }
    if isinstance(value, tuple):
        return {"kind": "tuple", "items": [to_json(item) for item in value]}
    if isinstance(value, bytes):
        return {"kind": "bytes", "text": value.decode("latin-1")}
    if isinstance(value, list):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    return value if isinstance(value, str | int | float) else None


def from_json(value: Any) -> Any:
    """The value that `to_json` wrote."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    given = {key: from_json(item) for key, item in value.items()}
    kind = given.pop("kind", None)
    if kind == "tuple":
        return tuple(given["items"])
    if kind == "bytes":
        return given["text"].encode("latin-1")
    return given if kind is None else _KINDS[kind](**given)


def is_symbolic(value: Any) -> bool:
    """Whether a value depends on the rows."""
    if isinstance(value, list | tuple):
        return any(is_symbolic(item) for item in value)
    return isinstance(value, (*SYMBOLS, Part, Analyzed, Vocab))


def raws_of(value: Any) -> set[Raw]:
    """The columns that a value is computed from."""
    return {leaf.of if isinstance(leaf, Filled) else leaf for leaf in leaves(value)}


def leaves(value: Any) -> Iterator[Raw | Filled]:
    """The columns that a value is computed from, each with what its missing values become."""
    if isinstance(value, Raw | Filled):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, Call):
        yield from leaves([*value.args, *(item for _, item in value.keywords)])
    elif isinstance(value, Operation):
        yield from leaves(value.args)
    elif isinstance(value, Analyzed | Vocab):
        yield from leaves(value.of)


def source_of(value: Any) -> str:
    """A value that each row has by itself as Python for `preprocess(columns)`."""
    return ast.unparse(ast.fix_missing_locations(_tree(value)))


def _tree(value: Any) -> ast.expr:
    if isinstance(value, Raw):
        return _parsed(f"columns[{value.name!r}]")
    if isinstance(value, Filled):
        natural = b"" if value.of.type == "bytes" else 0
        default = value.default.encode() if isinstance(value.default, str) else value.default
        column = _tree(value.of)
        if default == natural:  # what a missing value is anyway
            return column
        present = _parsed(f"columns[{value.of.name + '__present'!r}]")
        cast = value.default if value.of.type != "float32" else float(value.default)
        return ast.Call(_parsed("tf.where"), [present, column, _constant(cast)], [])
    if isinstance(value, Call):
        keywords = [ast.keyword(name, _tree(item)) for name, item in value.keywords]
        return ast.Call(_parsed(value.function), [_tree(item) for item in value.args], keywords)
    if isinstance(value, Operation):
        operands = [_tree(item) for item in value.args]
        if len(operands) == 1:
            return ast.UnaryOp(_UNARY[value.operator](), operands[0])
        if value.operator in _BINARY:
            return ast.BinOp(operands[0], _BINARY[value.operator](), operands[1])
        return ast.Compare(operands[0], [_COMPARISONS[value.operator]()], [operands[1]])
    if isinstance(value, Ref):
        return _parsed(value.path)
    if isinstance(value, list | tuple):
        kind = ast.List if isinstance(value, list) else ast.Tuple
        return kind([_tree(item) for item in value], ast.Load())
    return _constant(value)


def _constant(value: Any) -> ast.expr:
    if isinstance(value, float) and not math.isfinite(value):
        return _parsed(f"float({str(value)!r})")
    return _parsed(repr(value))


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


_UNARY: dict[str, Any] = {"-": ast.USub, "~": ast.Invert, "+": ast.UAdd}
_BINARY: dict[str, Any] = {
    "+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.Div, "//": ast.FloorDiv, "%": ast.Mod, "**": ast.Pow,
    "&": ast.BitAnd, "|": ast.BitOr, "^": ast.BitXor,
}  # fmt: skip
_COMPARISONS: dict[str, Any] = {
    "<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, ">=": ast.GtE, "==": ast.Eq, "!=": ast.NotEq,
}  # fmt: skip
