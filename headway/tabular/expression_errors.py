"""Errors of expressions that combine types wrongly: the part, the column, its type, and what to write instead.

raise misfit("s > 1 and t", failing_node, batch.schema, error)   # in 's > 1': column 's' holds text, and 1 is a number
"""

import ast
import re

import pyarrow as pa

from headway.errors import ConfigError, DataError
from headway.schema.columns import column_yaml
from headway.tabular.list_arrays import is_list, is_number, value_type

_OF_TYPES = re.compile(r"no kernel|match type of value|Unsupported cast|Failed to (parse|cast)|rror parsing")


class Overflow(DataError):
    """An integer result does not fit int64."""

    row: int | None = None
    """Of the batch, from 0; None: it is a result of constants."""


def is_overflow(error: Exception) -> bool:
    """Whether an Arrow error is the refusal of a result by its checked arithmetic."""
    messages = ("overflow", "not in range")  # the second of uint64 values that meet int64
    return isinstance(error, pa.ArrowInvalid) and any(words in str(error) for words in messages)


def overflow(text: str, node: ast.expr, batch: pa.RecordBatch, row: int | None) -> Overflow:
    """The error for the part `node` of an expression whose result in row `row` does not fit int64."""
    names = [name for name in _names(node) if name in batch.schema.names]
    assigned = [f"{name} = {batch.column(name)[row].as_py()}" for name in names] if row is not None else []
    values = f" ({', '.join(assigned)})" if assigned else ""
    operand = (names[0] if names[0].isidentifier() else f"col({names[0]!r})") if names else "2"
    error = Overflow(
        f"{ast.unparse(node)} does not fit int64{values}",
        where=f"expression {text!r}",
        fix=f"compute with decimal numbers (1.0 * {operand} in place of {operand}), or mend the value",
    )
    error.row = row
    return error


def misfit(text: str, node: ast.expr, schema: pa.Schema, error: Exception) -> DataError:
    """The error for the part `node` of an expression, which Arrow refused with `error`."""
    names = [name for name in _names(node) if name in schema.names]
    kinds = {name: kind_of(schema.field(name).type) for name in names}
    if (condition := _not_a_condition(node, kinds)) is not None:
        return DataError(condition[0], where=f"expression {text!r}", fix=condition[1])
    types = [f"column {name!r} holds {kind}" for name, kind in kinds.items()]
    types += [f"{value!r} is {'text' if isinstance(value, str) else 'a number'}" for value in _constants(node)]
    reason = str(error).splitlines()[0]
    # what Arrow says of types it has no function for is in its own words, and says no more than we do
    why = f" ({reason})" if isinstance(node, ast.Call) or not _OF_TYPES.search(reason) else ""
    part = "" if ast.unparse(node) == text.strip() else f"in {ast.unparse(node)!r}: "
    problem = f"{part}{', and '.join([*types[:-2], ' and '.join(types[-2:])])}: these types cannot be combined{why}"
    return DataError(problem, where=f"expression {text!r}", fix=_fix(node, kinds))


def no_condition(text: str, node: ast.expr, kind: pa.DataType) -> ConfigError:
    """The error for an expression that gives values where a condition is wanted."""
    expression = ast.unparse(node)
    name = expression if isinstance(node, ast.Name | ast.Call) else f"({expression})"
    like = {"text": f"{name} == 'a'", "true or false": expression}.get(kind_of(kind), f"{name} > 0")
    return ConfigError(
        f"gives {kind_of(kind)}, but a condition is needed", where=f"expression {text!r}", fix=f"write {like}, say"
    )


_OPERATORS = {
    "&&": "and",
    "||": "or",
    "<>": "!=",
    "=>": ">=",
    "=<": "<=",
    "===": "==",
    "=": "==",
    "!": "not",
    "&": "and",
    "|": "or",
    "~": "not",
    **{word.upper(): word for word in ("and", "or", "not", "in", "is")},
    **dict.fromkeys(("NULL", "null"), "None"),
}
"""Operators and words of other languages, and the ones of these expressions."""
_OPERATOR = re.compile(r"'[^']*'|\"[^\"]*\"|(===|&&|\|\||<>|=>|=<|[=!<>]=|[=!&|~]|\b(?:AND|OR|NOT|IN|IS|NULL|null)\b)")


def foreign_operator(text: str) -> str | None:
    """The replacement of another language's first operator; None when there is none."""
    operator = next((match[1] for match in _OPERATOR.finditer(text) if match[1] in _OPERATORS), None)
    return operator and f"write {_OPERATORS[operator]!r} in place of {operator!r}"


def kind_of(kind: pa.DataType) -> str:
    """The plain words for the content of a column of this type."""
    kind = value_type(kind)
    if is_list(kind):
        return "lists"
    if pa.types.is_boolean(kind):
        return "true or false"
    if is_number(kind) or pa.types.is_decimal(kind):
        return "numbers"
    if pa.types.is_temporal(kind):
        return "dates" if pa.types.is_date(kind) else "times"
    return "nothing but nulls" if pa.types.is_null(kind) else "text"


def _fix(node: ast.expr, kinds: dict[str, str]) -> str:
    for name, kind in kinds.items():
        numbers = any(not isinstance(value, str) for value in _constants(node)) or "numbers" in kinds.values()
        called = name if name.isidentifier() else f"col({name!r})"
        is_minus = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
        if kind == "text" and (numbers or isinstance(node, ast.BinOp | ast.Call) or is_minus):
            as_number = f"read it as a number: {column_yaml(name, '{type: float}')}"
            if isinstance(node, ast.Compare):
                return f"compare it with text, as in {called} == 'a', or {as_number}"
            return as_number
        if kind == "lists":
            return "conditions need columns with one value per row"
        if kind in ("dates", "times"):
            return f"compare it with a date, as in {called} >= '2013-01-31'"
        if kind == "numbers" and isinstance(node, ast.Compare):
            return f"compare it with a number, as in {called} > 0, or read it as text: {column_yaml(name, '{type: string}')}"
    if isinstance(node, ast.BoolOp | ast.UnaryOp):
        return "combine comparisons, such as flag == 1"
    return "compare numbers with numbers and text with text; for a flag of 0 and 1 write flag == 1"


def _not_a_condition(node: ast.expr, kinds: dict[str, str]) -> tuple[str, str] | None:
    """(problem, fix) for an operand of `not`, `and`, `or` that is a column without true and false; None if there is
    none."""
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            operator, operands = "not", [operand]
        case ast.BoolOp(op=op, values=operands):
            operator = "and" if isinstance(op, ast.And) else "or"
        case _:
            return None
    for part in operands:
        if not (isinstance(part, ast.Name) or (isinstance(part, ast.Call) and _is_col(part))):
            continue
        name = _names(part)[0]
        if (kind := kinds.get(name)) in (None, "true or false"):
            continue
        problem = f"{operator!r} needs true or false, but column {name!r} holds {kind}"
        called = ast.unparse(part)
        if kind == "lists":
            return problem, "conditions need columns with one value per row"
        flag = 0 if operator == "not" else 1
        like = {"numbers": f"{called} == {flag}", "text": f"{called} == 'a'"}.get(str(kind), f"{called} is not None")
        return problem, f"write {like} in place of {ast.unparse(node) if operator == 'not' else called}"
    return None


def _names(node: ast.expr) -> list[str]:
    names = []
    for part in ast.walk(node):
        match part:
            case ast.Call(func=ast.Name(id="col"), args=[ast.Constant(value=str() as name)]):
                names.append(name)
            case ast.Name(id=name):
                names.append(name)
    return list(dict.fromkeys(names))


def _constants(node: ast.expr) -> list[object]:
    """The numbers and texts in a part of an expression, except names of columns."""
    named = {id(call.args[0]) for call in ast.walk(node) if isinstance(call, ast.Call) and call.args and _is_col(call)}
    return [
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and id(part) not in named and isinstance(part.value, int | float | str)
    ]


def _is_col(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "col"
