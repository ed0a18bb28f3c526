"""Expressions over columns, parsed safely and evaluated on whole Arrow batches.

    expression = parse("tips > 0.2 * fare and payment in ['card', 'app']")
    expression.columns                       # {"tips", "fare", "payment"}
    expression.evaluate(batch)               # a boolean array; null where it cannot be known

The grammar is a small part of Python's own: names, numbers, strings, True, False, None; + - * / // % and unary -; comparisons
(chained too), `in` and `not in` over a list, `is None` and `is not None`; and, or, not; the functions of `FUNCTIONS`; and
col("any name") for columns whose names are not identifiers. Nulls follow SQL: a comparison with null is null, and `and` and `or`
use Kleene's logic. Python's eval is never used. Arithmetic of integers is checked: a result that does not fit int64 is an error
that names the row.
"""

import ast
import contextlib
import functools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator

from headway.errors import ConfigError, DataError
from headway.schema.columns import column_yaml, no_column
from headway.tabular.list_arrays import decoded, is_list, is_number, value_type

Value = Any
"""An Arrow array or scalar: the value of an expression or of a part of one."""


def as_written(column: str) -> str:
    """Returns a column's name as it is written in an expression: col("the name") if the name is not an identifier."""
    return column if column.isidentifier() else f"col({json.dumps(column, ensure_ascii=False)})"


def _double(value: Value) -> Value:
    # unsafe only in that integers beyond 2**53 are rounded; text that is not a number is still refused
    return pc.cast(value, pa.float64(), safe=False)


def _together(left: Value, right: Value) -> tuple[Value, Value]:
    """Convert the two operands to a common type by NumPy's rule. A constant takes its column's type, so that a float32 column
    equals 0.2 as it was stored. An integer and a float column become doubles; a boolean beside a number becomes 0 or 1."""
    if pa.types.is_boolean(left.type) != pa.types.is_boolean(right.type):
        left, right = (pc.cast(v, pa.int64()) if pa.types.is_boolean(v.type) else v for v in (left, right))
    left, right = _dated(left, right.type), _dated(right, left.type)
    kinds = [left.type, right.type]
    floats = [pa.types.is_floating(kind) for kind in kinds]
    if not any(floats) or not all(f or pa.types.is_integer(kind) for f, kind in zip(floats, kinds, strict=True)):
        return left, right
    for constant, other in ((left, right.type), (right, left.type)):
        if isinstance(constant, pa.Scalar) and pa.types.is_floating(other):
            cast = pc.cast(constant, other, safe=False)
            return (cast, right) if constant is left else (left, cast)
    return (left, right) if all(floats) else (_double(left), _double(right))


def _dated(value: Value, other: pa.DataType) -> Value:
    """Convert a constant text to the type `other`, if this is a type of dates or times. A text without a zone is in UTC."""
    if not (isinstance(value, pa.Scalar) and pa.types.is_string(value.type) and pa.types.is_temporal(other)):
        return value
    if pa.types.is_timestamp(other) and other.tz is not None:
        with contextlib.suppress(pa.ArrowInvalid):  # it says its zone
            return value.cast(pa.timestamp(other.unit)).cast(other)
    return value.cast(other)


def _integers(left: Value, right: Value) -> bool:
    return pa.types.is_integer(left.type) and pa.types.is_integer(right.type)


def _divide(left: Value, right: Value) -> Value:
    """Divide two numbers. Integers become doubles, and x / 0 is infinite or NaN as in IEEE 754."""
    if not (pa.types.is_floating(left.type) and pa.types.is_floating(right.type)):
        left, right = _double(left), _double(right)
    return pc.divide(left, right)


def _floor_divide(left: Value, right: Value) -> Value:
    """Floor division as in Python. Two integers give an integer, or null if the divisor is zero."""
    if not _integers(left, right):
        return pc.floor(_divide(left, right))
    right = pc.if_else(pc.equal(right, 0), pa.scalar(None, right.type), right)
    quotient = pc.divide_checked(left, right)  # towards zero
    remainder = pc.subtract(left, pc.multiply(quotient, right))
    down = pc.and_(pc.not_equal(remainder, 0), pc.not_equal(pc.less(remainder, 0), pc.less(right, 0)))
    return pc.subtract(quotient, pc.cast(down, quotient.type))


def _modulo(left: Value, right: Value) -> Value:
    """Returns the remainder of a division. It has the sign of the divisor, as in Python."""
    if not _integers(left, right):
        if not (pa.types.is_floating(left.type) and pa.types.is_floating(right.type)):
            left, right = _double(left), _double(right)
        return pc.subtract(left, pc.multiply(_floor_divide(left, right), right))
    right = pc.if_else(pc.equal(right, 0), pa.scalar(None, right.type), right)
    if pa.types.is_signed_integer(right.type):
        right = pc.if_else(pc.equal(right, -1), pa.scalar(1, right.type), right)  # both leave 0, and -1 may overflow
    # the products may wrap, but the result lies between 0 and the divisor, so that it is right all the same
    return pc.subtract(left, pc.multiply(_floor_divide(left, right), right))


def _negate(value: Value) -> Value:
    if pa.types.is_unsigned_integer(value.type):
        return pc.subtract_checked(pa.scalar(0, value.type), value)
    return pc.negate_checked(value)


def _text(function: Callable[[Value], Value]) -> Callable[[Value], Value]:
    return lambda value: function(pc.cast(value, pa.string()))


FUNCTIONS: dict[str, Callable[[Value], Value]] = {
    "abs": pc.abs_checked,
    "log": lambda x: pc.ln(_double(x)),
    "sqrt": lambda x: pc.sqrt(_double(x)),
    "floor": pc.floor,
    "ceil": pc.ceil,
    "round": pc.round,
    "is_nan": lambda x: pc.is_nan(_double(x)),
    "lower": _text(pc.utf8_lower),
    "upper": _text(pc.utf8_upper),
    "strip": _text(pc.utf8_trim_whitespace),
    "length": _text(pc.utf8_length),
}
_BINARY: dict[type, Callable[[Value, Value], Value]] = {
    ast.Add: pc.add_checked,
    ast.Sub: pc.subtract_checked,
    ast.Mult: pc.multiply_checked,
    ast.Div: _divide,
    ast.FloorDiv: _floor_divide,
    ast.Mod: _modulo,
}
_COMPARE: dict[type, Callable[[Value, Value], Value]] = {
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}
_EXAMPLE = "write something like arr_delay > 15, or tips > 0.2 * fare and payment in ['card', 'app']"


@dataclass(frozen=True)
class Expression:
    """A parsed expression. `columns` are the names of the columns that it reads."""

    text: str
    columns: frozenset[str]
    _tree: ast.expr

    @property
    def plain(self) -> str:
        """The text of the expression in a normal form, whatever blanks and quotes the user wrote."""
        return ast.unparse(self._tree)

    @property
    def decides(self) -> bool:
        """Whether the expression is a condition by its form alone: its values are true or false, whatever the columns hold."""
        match self._tree:
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.Call(func=ast.Name(id="is_nan")):
                return True
        return False

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """Returns the value of the expression for each row of `batch`.

        Raises:
            ConfigError: a column that the batch does not have.
            DataError: types that do not go together, such as a number compared with text.
            Overflow: a result that does not fit int64.
        """
        if missing := sorted(self.columns - {*batch.schema.names}):
            raise no_column(missing[0], batch.schema.names, where=f"expression {self.text!r}")
        try:
            value = _evaluate(self._tree, batch)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            part = _failing(self._tree, batch)
            if _is_overflow(error):
                raise overflow(self.text, part, batch, _failing_row(part, batch)) from None
            raise misfit(self.text, part, batch.schema, error) from None
        if isinstance(value, pa.Scalar):
            value = pa.repeat(value, batch.num_rows)
        return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value

    def row_mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Returns a mask of the rows for which the expression is true; null counts as false.

        Raises:
            ConfigError: the values of the expression are not true or false.
        """
        value = self.evaluate(batch)
        if not pa.types.is_boolean(value.type):
            raise no_condition(self.text, self._tree, value.type)
        return pc.fill_null(value, False)


@functools.lru_cache(maxsize=256)
def parse(text: str) -> Expression:
    """Parse the expression in `text`. If a part is not allowed, raises ConfigError with the position of the part."""
    try:
        tree = ast.parse(" ".join(text.strip().splitlines()), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        column = getattr(error, "offset", None)
        raise ConfigError(
            f"not an expression{f' (at character {column})' if column else ''}",
            where=f"expression {text!r}",
            fix=operator_advice(text) or _EXAMPLE,
        ) from None
    names: set[str] = set()
    try:
        _check(tree, text, names)
    except RecursionError:
        raise ConfigError("an expression nested too deeply", where=f"expression {text[:80]!r}...") from None
    return Expression(text, frozenset(names), tree)


def _parses(text: str) -> str:
    try:
        parse(text)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return text


ExpressionText = Annotated[str, AfterValidator(_parses)]
"""The pydantic type of an expression in a config. A text that does not parse is refused."""


def _refuse(node: ast.AST, text: str, what: str) -> ConfigError:
    at = getattr(node, "col_offset", 0) + 1
    return ConfigError(
        f"{what} (at character {at})", where=f"expression {text!r}", fix=operator_advice(text) or _EXAMPLE
    )


def _check(node: ast.expr, text: str, names: set[str]) -> None:
    match node:
        case ast.Name(id=name):
            names.add(name)
        case ast.Constant(value=int() as number) if number >= 1 << 63:
            raise _refuse(node, text, f"{number} does not fit int64")
        case ast.Constant(value=None | bool() | int() | float() | str()):
            pass
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd(), operand=operand):
            _check(operand, text, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            _check(left, text, names)
            _check(right, text, names)
        case ast.BoolOp(values=values):
            for value in values:
                _check(value, text, names)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            _check(left, text, names)
            for comparison, right in zip(ops, comparators, strict=True):
                _check_comparison(comparison, right, text, names)
        case ast.Call(func=ast.Name(id="col"), args=[ast.Constant(value=str() as name)], keywords=[]):
            names.add(name)
        case ast.Call(func=ast.Name(id=function), args=[argument], keywords=[]) if function in FUNCTIONS:
            _check(argument, text, names)
        case ast.Call(func=ast.Name(id=function)):
            raise _refuse(
                node, text, f"{function}() is not known with these arguments; there is {', '.join(FUNCTIONS)}"
            )
        case _:
            raise _refuse(node, text, f"{type(node).__name__} is not allowed here")


def _check_comparison(op: ast.cmpop, right: ast.expr, text: str, names: set[str]) -> None:
    if isinstance(op, ast.In | ast.NotIn):
        items = _items(right)
        if items is None:
            raise _refuse(right, text, "'in' needs a list of constants, such as ['a', 'b']")
        if len({isinstance(item, str) for item in items if item is not None}) > 1:
            raise _refuse(right, text, "'in' needs a list of texts or of numbers, not of both")
    elif isinstance(op, ast.Is | ast.IsNot):
        if not (isinstance(right, ast.Constant) and right.value is None):
            raise _refuse(right, text, "'is' only goes with None; use == for values")
    else:
        if isinstance(right, ast.Constant) and right.value is None:
            raise _refuse(right, text, "a comparison with None is never true; write 'is None' or 'is not None'")
        _check(right, text, names)


def _items(node: ast.expr) -> list[Any] | None:
    """Returns the constants of a list in an expression; None if `node` is not a list of constants."""
    if not isinstance(node, ast.List | ast.Tuple):
        return None
    try:
        items = ast.literal_eval(node)  # knows -1
    except (ValueError, TypeError, RecursionError):
        return None
    plain = all(item is None or isinstance(item, bool | int | float | str) for item in items)
    fit = all(-(2**63) <= item < 2**63 for item in items if isinstance(item, int))
    return list(items) if plain and fit else None


def _evaluate(node: ast.expr, batch: pa.RecordBatch) -> Value:
    match node:
        case ast.Name(id=name) | ast.Call(func=ast.Name(id="col"), args=[ast.Constant(value=name)]):
            return _column(batch, str(name))
        case ast.Constant(value=value):
            return pa.scalar(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return pc.invert(_evaluate(operand, batch))
        case ast.UnaryOp(op=op, operand=operand):
            value = _evaluate(operand, batch)
            return _negate(value) if isinstance(op, ast.USub) else value
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](*_together(_evaluate(left, batch), _evaluate(right, batch)))
        case ast.BoolOp(op=op, values=values):
            together = pc.and_kleene if isinstance(op, ast.And) else pc.or_kleene
            return functools.reduce(together, (_evaluate(value, batch) for value in values))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            at, parts = left, []
            for comparison, right in zip(ops, comparators, strict=True):
                parts.append(_compare(comparison, at, right, batch))
                at = right
            return functools.reduce(pc.and_kleene, parts)
        case ast.Call(func=ast.Name(id=function), args=[argument]):
            return FUNCTIONS[function](_evaluate(argument, batch))
    raise AssertionError(f"{ast.dump(node)} passed the check")


def _failing(node: ast.expr, batch: pa.RecordBatch) -> ast.expr:
    """Returns the smallest part of an expression whose evaluation fails."""
    for child in node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) and not isinstance(child, ast.List | ast.Tuple):
            try:
                _evaluate(child, batch)
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
                return _failing(child, batch)
    return node


def _failing_row(node: ast.expr, batch: pa.RecordBatch) -> int | None:
    """Returns the first row for which a part of an expression cannot be evaluated. None: it fails even without rows."""

    def fails(start: int, rows: int) -> bool:
        try:
            _evaluate(node, batch.slice(start, rows))
        except pa.ArrowInvalid:
            return True
        return False

    if fails(0, 0):
        return None
    start, rows = 0, batch.num_rows
    while rows > 1:
        half = rows // 2
        if fails(start, half):
            rows = half
        else:
            start, rows = start + half, rows - half
    return start


def _compare(op: ast.cmpop, left: ast.expr, right: ast.expr, batch: pa.RecordBatch) -> Value:
    value = _evaluate(left, batch)
    if isinstance(op, ast.Is):
        return pc.is_null(value)
    if isinstance(op, ast.IsNot):
        return pc.is_valid(value)
    if isinstance(op, ast.In | ast.NotIn):
        among = _among(value, [item for item in _items(right) or () if item is not None])
        # SQL: null in (...) is null, not false
        among = pc.if_else(pc.is_valid(value), among, pa.scalar(None, pa.bool_()))
        return pc.invert(among) if isinstance(op, ast.NotIn) else among
    return _COMPARE[type(op)](*_together(value, _evaluate(right, batch)))


def _among(value: Value, items: list[Any]) -> Value:
    """Returns a mask of the values that are among `items`, constants of one kind."""
    kind = value.type
    if not items or pa.types.is_null(kind):
        return pc.and_(pc.is_valid(value), False)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        if not isinstance(items[0], str):
            # a fraction is not an integer; as doubles large integers would lose digits
            value, items = pc.cast(value, pa.int64()), [int(item) for item in items if item == item // 1]
            return pc.is_in(value, value_set=pa.array(items, pa.int64()))
    elif pa.types.is_floating(kind) and not isinstance(items[0], str):
        return pc.is_in(value, value_set=pa.array(map(float, items), pa.float64()).cast(kind, safe=False))
    options = pa.array(items)
    return pc.is_in(value, value_set=options if pa.types.is_string(kind) else options.cast(kind))


def _column(batch: pa.RecordBatch, name: str) -> Value:
    """Returns a column in a type that expressions compute with: bytes, dictionaries and large strings become text."""
    value = decoded(batch.column(name))
    kind = value.type
    if pa.types.is_integer(kind) and kind.bit_width < 64:
        value = value.cast(pa.int64())  # int8 * int8 would wrap
    if pa.types.is_float16(kind):
        value = value.cast(pa.float32())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        # bytes that are no UTF-8 still compare, byte by byte
        value = pc.cast(value, options=pc.CastOptions(target_type=pa.string(), allow_invalid_utf8=True))
    return value


_OF_TYPES = re.compile(r"no kernel|match type of value|Unsupported cast|Failed to (parse|cast)|rror parsing")


class Overflow(DataError):
    """Raised when an integer result does not fit int64."""

    row: int | None = None
    """The row in the batch, from 0. None: the result is computed from constants alone."""


def _is_overflow(error: Exception) -> bool:
    """Returns whether an Arrow error says that a result does not fit its integer type."""
    messages = ("overflow", "not in range")  # the second of uint64 values that meet int64
    return isinstance(error, pa.ArrowInvalid) and any(words in str(error) for words in messages)


def overflow(text: str, node: ast.expr, batch: pa.RecordBatch, row: int | None) -> Overflow:
    """Returns the error for the part `node` of an expression, whose result in the row `row` does not fit int64."""
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
    """Returns the error for the part `node` of an expression, whose types Arrow cannot combine; `error` is Arrow's."""
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
    """Returns the error for an expression that gives values, such as numbers, although a condition is needed."""
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
"""Operators and words of other languages, each with what an expression has instead."""
_OPERATOR = re.compile(r"'[^']*'|\"[^\"]*\"|(===|&&|\|\||<>|=>|=<|[=!<>]=|[=!&|~]|\b(?:AND|OR|NOT|IN|IS|NULL|null)\b)")


def operator_advice(text: str) -> str | None:
    """Returns the advice to replace the first operator of another language in `text`. None: there is none."""
    operator = next((match[1] for match in _OPERATOR.finditer(text) if match[1] in _OPERATORS), None)
    return operator and f"write {_OPERATORS[operator]!r} in place of {operator!r}"


def kind_of(kind: pa.DataType) -> str:
    """Returns what a column of this type holds, in words: "numbers", "text", "dates", ..."""
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
    """Returns the problem and the fix if an operand of `not`, `and` or `or` is a column that is not true or false. None: there is
    no such operand."""
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
    """Returns the numbers, texts, True and False in a part of an expression, without the names in col("name")."""
    named = {id(call.args[0]) for call in ast.walk(node) if isinstance(call, ast.Call) and call.args and _is_col(call)}
    return [
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and id(part) not in named and isinstance(part.value, int | float | str)
    ]


def _is_col(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "col"
