"""A label that a preprocessing_fn computes, as an expression of Headway.

expression_of(Call("tf.cast", (Operation(">", (Raw("tips"), 2)), Ref("tf.int64"))))       # "tips > 2"
"""

from __future__ import annotations

from typing import Any

from headway.from_tfx.symbols import Call, Filled, Operation, Raw, Ref
from headway.tabular.expressions import as_written

_OPERATORS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "truediv": "/", "floordiv": "//", "mod": "%",
    "greater": ">", "greater_equal": ">=", "less": "<", "less_equal": "<=", "equal": "==", "not_equal": "!=",
}  # fmt: skip
_LOGIC = {"logical_and": "and", "logical_or": "or"}
_CONDITIONS = frozenset({">", ">=", "<", "<=", "==", "!=", "and", "or", "not"})


def expression_of(value: Any) -> str | None:
    """The expression; None where none says the same."""
    written = _written(value)
    return None if written is None else written[0]


def _written(value: Any) -> tuple[str, bool] | None:
    """(the expression, whether it is a condition)."""
    if isinstance(value, Raw):
        return as_written(value.name), False
    if isinstance(value, Filled):  # a row without the value has no label there, and the filled one here
        return as_written(value.of.name), False
    if isinstance(value, bool | int | float | str):
        return repr(value), False
    if isinstance(value, Operation):
        signs = {"&": "and", "|": "or", "~": "not"}
        return _operation(signs.get(value.operator, value.operator), value.args)
    if not isinstance(value, Call):
        return None
    name = value.function.removeprefix("tf.").removeprefix("math.")
    if name == "constant" or (name == "cast" and _keeps(value)):
        return _written(value.args[0])
    if name == "logical_not":
        return _operation("not", value.args[:1])
    if (name in _LOGIC or name in _OPERATORS) and len(value.args) > 1:
        return _operation(_LOGIC.get(name) or _OPERATORS[name], value.args[:2])
    if name == "where" and len(value.args) == 3:
        return _where(*value.args)
    return None


def _where(test: Any, yes: Any, no: Any) -> tuple[str, bool] | None:
    """tf.where(condition, 1, 0), and tf.where(tf.math.is_nan(x), 0, condition): missing values have no label."""
    if isinstance(test, Call) and test.function.endswith("is_nan") and _zero(yes):
        column, rest = _written(test.args[0]), _written(no)
        return (f"{column[0]} is not None and ({rest[0]})", True) if column and rest and rest[1] else None
    condition = _written(test)
    if condition is None or not condition[1]:
        return None
    if _one(yes) and _zero(no):
        return condition
    return _operation("not", (test,)) if _zero(yes) and _one(no) else None


def _zero(value: Any) -> bool:
    if isinstance(value, Call) and value.function in ("tf.zeros_like", "tf.cast", "tf.constant"):
        return value.function == "tf.zeros_like" or _zero(value.args[0])
    return isinstance(value, int | float) and value == 0


def _one(value: Any) -> bool:
    if isinstance(value, Call) and value.function in ("tf.ones_like", "tf.cast", "tf.constant"):
        return value.function == "tf.ones_like" or _one(value.args[0])
    return isinstance(value, int | float) and value == 1


def _bare(value: Any) -> Any:
    """A value without the casts around it."""
    while isinstance(value, Call) and (value.function == "tf.constant" or _keeps(value)):
        value = value.args[0]
    return value


def _keeps(cast: Call) -> bool:
    """Whether it is a cast that leaves the values as they are: not one of fractions to integers, or of numbers to truth."""
    kind = cast.args[1] if cast.function == "tf.cast" and len(cast.args) > 1 else None
    if not isinstance(kind, Ref):
        return False
    of = _bare(cast.args[0])
    if kind.path in ("tf.float16", "tf.bfloat16", "tf.float32", "tf.float64"):
        return True
    condition = _written(of)
    if condition is not None and condition[1]:
        return True
    of = of.of if isinstance(of, Filled) else of
    return kind.path in ("tf.int32", "tf.int64") and (
        isinstance(of, int) or (isinstance(of, Raw) and of.type == "int64")
    )


def _operation(sign: str, args: tuple[Any, ...]) -> tuple[str, bool] | None:
    args = tuple(_bare(value) for value in args)
    parts = [_written(value) for value in args]
    if any(part is None for part in parts) or sign not in {*_OPERATORS.values(), "and", "or", "not"}:
        return None
    texts = [
        text if isinstance(value, Raw | Filled | bool | int | float | str) else f"({text})"
        for (text, _), value in zip((part for part in parts if part is not None), args, strict=True)
    ]
    text = f"{sign} {texts[0]}" if sign == "not" else f"-{texts[0]}" if len(texts) == 1 else f" {sign} ".join(texts)
    return text, sign in _CONDITIONS
