"""A label that a preprocessing_fn computes, as an expression of Headway.

expression_of(Output(place, "tf.cast(columns['tips'] > 2, tf.int64)"), raws)       # "tips > 2"
"""

import ast
from collections.abc import Mapping

from headway.from_tfx.preprocessing_fn import Output
from headway.from_tfx.values import Raw, called, column_of, literal, parsed
from headway.tabular.expressions import as_written

_SIGNS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "truediv": "/", "floordiv": "//", "mod": "%",
    "greater": ">", "greater_equal": ">=", "less": "<", "less_equal": "<=", "equal": "==", "not_equal": "!=",
    "logical_and": "and", "logical_or": "or", "Add": "+", "Sub": "-", "Mult": "*", "Div": "/", "FloorDiv": "//",
    "Mod": "%", "Gt": ">", "GtE": ">=", "Lt": "<", "LtE": "<=", "Eq": "==", "NotEq": "!=", "BitAnd": "and", "BitOr": "or",
    "logical_not": "not", "Invert": "not", "USub": "-",
}  # fmt: skip
"""By functions of TensorFlow, and by Python's operators."""


def expression_of(output: Output, raws: Mapping[str, Raw]) -> str | None:
    """The expression; None where none says the same. A row that lacks the column has no label, whatever fills it."""
    try:
        return ast.unparse(_said(parsed(output.source), raws))
    except LookupError:
        return None


def _said(tree: ast.expr, raws: Mapping[str, Raw]) -> ast.expr:
    name, args = called(tree)
    name = name.removeprefix("tf.").removeprefix("math.")
    if column := column_of(tree)[0]:
        return parsed(as_written(column))
    if isinstance(literal(tree), int | float | str):
        return tree
    if name == "constant" or (name == "cast" and _keeps(args, raws)):
        return _said(args[0], raws)
    match tree:
        case ast.BinOp(left, op, right) | ast.Compare(left, [op], [right]):
            name, args = type(op).__name__, [left, right]
        case ast.UnaryOp(op, operand):
            name, args = type(op).__name__, [operand]
    if name == "where" and len(args) == 3:
        return _condition(*args, raws=raws)
    if name not in _SIGNS:
        raise LookupError(name)
    *before, last = [f"({ast.unparse(_said(value, raws))})" for value in args]
    return parsed(f"{' '.join(before)} {_SIGNS[name]} {last}".strip())


def _condition(test: ast.expr, yes: ast.expr, no: ast.expr, *, raws: Mapping[str, Raw]) -> ast.expr:
    """tf.where(condition, 1, 0), and tf.where(tf.math.is_nan(x), 0, condition): missing values have no label."""
    name, args = called(test)
    missing = name.endswith("is_nan") and _is(0, yes)
    condition = _said(no if missing else test, raws)
    if not _is_condition(condition) or not (missing or (_is(1, yes) and _is(0, no)) or (_is(0, yes) and _is(1, no))):
        raise LookupError
    before = f"{ast.unparse(_said(args[0], raws))} is not None and " if missing else "" if _is(1, yes) else "not "
    return parsed(f"{before}({ast.unparse(condition)})")


def _is_condition(tree: ast.expr) -> bool:
    return isinstance(tree, ast.Compare | ast.BoolOp) or (
        isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not)
    )


def _is(number: int, tree: ast.expr) -> bool:
    """Whether a value is 0, or 1, in each row."""
    name, args = called(tree)
    if name in ("tf.cast", "tf.constant"):
        return _is(number, args[0])
    return name == ("tf.zeros_like", "tf.ones_like")[number] or literal(tree) == number


def _keeps(args: list[ast.expr], raws: Mapping[str, Raw]) -> bool:
    """Whether a cast leaves the values as they are: not one of fractions to integers, or of numbers to truth."""
    kind = ast.unparse(args[1]) if len(args) > 1 else ""
    if kind in ("tf.float16", "tf.bfloat16", "tf.float32", "tf.float64"):
        return True
    raw = raws.get(column_of(args[0])[0])
    integers = isinstance(literal(args[0]), int) or (raw is not None and raw.type == "int64")
    return (kind in ("tf.int32", "tf.int64") and integers) or _is_condition(_said(args[0], raws))
