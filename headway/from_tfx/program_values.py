"""Values of the expressions of a program that is read and not run.

reader.value(ast.parse("inputs['fare'] / 2", mode="eval").body, scope)     # Operation("/", (Raw("fare", "float32"), 2))

A call is TensorFlow's, tf.Transform's, a function of the program, or one of a few of Python's own on constants.
"""

from __future__ import annotations

import ast
import contextlib
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from headway.from_tfx.program import Function, Method, Module, Scope, Unknown, known, misread
from headway.from_tfx.remarks import Untranslatable, names_of
from headway.from_tfx.symbols import SYMBOLS, Analyzed, Filled, Operation, Part, Raw, Ref, Vocab, is_symbolic
from headway.from_tfx.tf_calls import fits_a_row, translated

_BUILTINS: dict[str, Callable[..., Any]] = {
    "len": len, "range": range, "list": list, "dict": dict, "set": set, "tuple": tuple, "zip": zip, "sorted": sorted,
    "enumerate": enumerate, "str": str, "int": int, "float": float, "bool": bool, "min": min, "max": max, "sum": sum,
    "abs": abs, "any": any, "all": all, "reversed": reversed, "round": round,
}  # fmt: skip
_METHODS: dict[type, frozenset[str]] = {
    str: names_of("format join lower upper strip replace startswith endswith split title removeprefix removesuffix"),
    dict: names_of("items keys values get copy update pop setdefault"),
    list: names_of("append extend copy index count"),
    set: names_of("add union difference intersection copy"),
    tuple: names_of("index count"),
}
_BINARY: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add), ast.Sub: ("-", operator.sub), ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv), ast.FloorDiv: ("//", operator.floordiv), ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow), ast.BitAnd: ("&", operator.and_), ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor),
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], tuple[str, Callable[[Any], Any]]] = {
    ast.USub: ("-", operator.neg), ast.UAdd: ("+", operator.pos), ast.Invert: ("~", operator.invert),
    ast.Not: ("not", operator.not_),
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Lt: ("<", operator.lt), ast.LtE: ("<=", operator.le), ast.Gt: (">", operator.gt), ast.GtE: (">=", operator.ge),
    ast.Eq: ("==", operator.eq), ast.NotEq: ("!=", operator.ne), ast.Is: ("is", operator.is_),
    ast.IsNot: ("is not", operator.is_not),
    ast.In: ("in", lambda item, of: item in of), ast.NotIn: ("not in", lambda item, of: item not in of),
}  # fmt: skip
_CONVERSIONS: dict[str, Callable[[Any], str]] = {"s": str, "r": repr, "a": ascii}
_MOST_STEPS, _LARGE = 200_000, 100_000


class Expressions(ABC):
    """Reads expressions; what reads statements calls functions of the program."""

    def __init__(self) -> None:
        self.places: dict[int, dict[Any, tuple[str, int]]] = {}
        """Where the keys of a dict were set, by the dict's id."""
        self._made: list[dict[Any, Any]] = []
        """Those dicts: an id is of one as long as it is there."""
        self._steps = 0

    @abstractmethod
    def call_function(self, function: Function, args: list[Any], keywords: dict[str, Any], node: ast.AST) -> Any:
        """What a function of the program returns."""

    def step(self, node: ast.AST, scope: Scope) -> None:
        """Count a statement, or a turn of a loop.

        Raises:
            Untranslatable: there were too many.
        """
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise misread(node, scope, "the function takes too many steps to be read")

    @property
    def tired(self) -> bool:
        """Whether no further step will be read."""
        return self._steps > _MOST_STEPS

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """The value of an expression.

        Raises:
            Untranslatable: it has none here.
        """
        read = getattr(self, f"_{type(node).__name__.lower()}", None)
        if read is None:
            raise misread(node, scope, f"{ast.unparse(node)} is not read")
        return read(node, scope)

    def _constant(self, node: ast.Constant, scope: Scope) -> Any:
        return node.value

    def _name(self, node: ast.Name, scope: Scope) -> Any:
        try:
            value = scope.find(node.id)
        except KeyError:
            return Ref(f"builtins.{node.id}")
        return known(value)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        of = self.value(node.value, scope)
        if isinstance(of, Ref):
            return Ref(f"{of.path}.{node.attr}")
        if isinstance(of, Module):
            if node.attr not in of.scope.names:
                raise misread(node, scope, f"{of.path} has no {node.attr}")
            return known(of.scope.names[node.attr])
        if node.attr == "dtype" and isinstance(of, Raw | Filled):
            kinds = {"bytes": "tf.string", "int64": "tf.int64", "float32": "tf.float32"}
            return Ref(kinds[(of.of if isinstance(of, Filled) else of).type])
        if isinstance(of, (*SYMBOLS, Part)):
            return Part(of, node.attr)
        return Method(of, node.attr)

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        of = self.value(node.value, scope)
        if isinstance(of, Part):
            return Part(of.of, of.name)
        if isinstance(node.slice, ast.Slice):
            bounds = [
                None if part is None else self.value(part, scope) for part in (node.slice.lower, node.slice.upper)
            ]
            if isinstance(of, str | list | tuple) and node.slice.step is None:
                with self._plainly(node, scope):
                    return of[bounds[0] : bounds[1]]
            raise misread(node, scope, f"{ast.unparse(node)}: a part of a column is not read")
        if not isinstance(of, dict | list | tuple | str):
            raise misread(node, scope, f"{ast.unparse(node)}: a part of a column is not read")
        key = self.value(node.slice, scope)
        with self._plainly(node, scope):
            value = of[key]
        return known(value)

    @contextlib.contextmanager
    def _plainly(self, node: ast.AST, scope: Scope) -> Iterator[None]:
        """Errors of an operation on constants are errors of the program."""
        try:
            yield
        except KeyError as error:
            raise misread(node, scope, f"{ast.unparse(node)}: there is no {error}") from None
        except (TypeError, ValueError, IndexError, ArithmeticError, AttributeError) as error:
            raise misread(node, scope, f"{ast.unparse(node)}: {error}") from None

    def _list(self, node: ast.List, scope: Scope) -> Any:
        return self._items(node.elts, scope)

    def _tuple(self, node: ast.Tuple, scope: Scope) -> Any:
        return tuple(self._items(node.elts, scope))

    def _set(self, node: ast.Set, scope: Scope) -> Any:
        with self._plainly(node, scope):
            return set(self._items(node.elts, scope))

    def _items(self, nodes: list[ast.expr], scope: Scope) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                items += self._iterated(node.value, scope)
            else:
                items.append(self.value(node, scope))
        return items

    def _dict(self, node: ast.Dict, scope: Scope) -> Any:
        made: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                made |= self._mapping(value, scope)
            else:
                with self._plainly(node, scope):
                    name = self.value(key, scope)
                    made[name] = self._lenient(value, scope)
                self._note(made, name, key, scope)
        return made

    def _mapping(self, node: ast.expr, scope: Scope) -> dict[Any, Any]:
        value = self.value(node, scope)
        if not isinstance(value, dict):
            raise misread(node, scope, f"**{ast.unparse(node)}: it is no dict that can be read")
        return value

    def _dictcomp(self, node: ast.DictComp, scope: Scope) -> Any:
        with self._plainly(node, scope):
            inner = list(self._loops(node.generators, scope))
            return {self.value(node.key, each): self._lenient(node.value, each) for each in inner}

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: Scope) -> Any:
        return [self.value(node.elt, each) for each in self._loops(node.generators, scope)]

    _generatorexp = _listcomp

    def _setcomp(self, node: ast.SetComp, scope: Scope) -> Any:
        with self._plainly(node, scope):
            return set(self._listcomp(node, scope))

    def _loops(self, generators: list[ast.comprehension], scope: Scope) -> Iterator[Scope]:
        if not generators:
            yield scope
            return
        first, *rest = generators
        for item in self._iterated(first.iter, scope):
            self.step(first.iter, scope)
            inner = Scope(scope.module, {}, scope)
            self._assign(first.target, item, inner)
            if all(self._truth(test, inner) for test in first.ifs):
                yield from self._loops(rest, inner)

    def _joinedstr(self, node: ast.JoinedStr, scope: Scope) -> Any:
        parts = []
        for part in node.values:
            formatted = part if isinstance(part, ast.FormattedValue) else None
            value = self.value(formatted.value if formatted else part, scope)
            if is_symbolic(value):
                raise misread(node, scope, "a text made of a column's values", "use tf.strings.join")
            if formatted and formatted.conversion != -1:
                value = _CONVERSIONS[chr(formatted.conversion)](value)
            form = self.value(formatted.format_spec, scope) if formatted and formatted.format_spec else ""
            with self._plainly(node, scope):
                parts.append(format(value, form))
        return "".join(parts)

    def _lambda(self, node: ast.Lambda, scope: Scope) -> Any:
        return Function(node, scope)

    def _ifexp(self, node: ast.IfExp, scope: Scope) -> Any:
        return self.value(node.body if self._truth(node.test, scope) else node.orelse, scope)

    def _boolop(self, node: ast.BoolOp, scope: Scope) -> Any:
        for part in node.values[:-1]:
            value = self.value(part, scope)
            if self._truth_of(value, part, scope) != isinstance(node.op, ast.And):
                return value
        return self.value(node.values[-1], scope)

    def _unaryop(self, node: ast.UnaryOp, scope: Scope) -> Any:
        sign, compute = _UNARY[type(node.op)]
        value = self.value(node.operand, scope)
        if is_symbolic(value):
            if sign == "not":
                raise misread(node, scope, f"{ast.unparse(node)} asks a column for its truth", "use tf.logical_not")
            return self._operation(node, sign, (value,), scope)
        with self._plainly(node, scope):
            return compute(value)

    def _binop(self, node: ast.BinOp, scope: Scope) -> Any:
        if type(node.op) not in _BINARY:
            raise misread(node, scope, f"{ast.unparse(node)} is not read")
        sign, compute = _BINARY[type(node.op)]
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        if is_symbolic((left, right)) and not (isinstance(left, list | tuple) and isinstance(right, list | tuple)):
            return self._operation(node, sign, (left, right), scope)
        numbers = [abs(side) for side in (left, right) if isinstance(side, int | float)]
        if max(numbers, default=0) > _LARGE and (sign == "**" or (sign == "*" and len(numbers) < 2)):
            raise misread(node, scope, f"{ast.unparse(node)} is too large")
        sizes = [len(side) for side in (left, right) if isinstance(side, str | bytes | list | tuple)]
        if sign == "*" and sizes and max(sizes) * max(numbers, default=0) > _LARGE:
            raise misread(node, scope, f"{ast.unparse(node)} is too large")
        with self._plainly(node, scope):
            return compute(left, right)

    def _compare(self, node: ast.Compare, scope: Scope) -> Any:
        left, result = self.value(node.left, scope), True
        for kind, part in zip(node.ops, node.comparators, strict=True):
            sign, compute = _COMPARISONS[type(kind)]
            right = self.value(part, scope)
            if is_symbolic((left, right)) and not (isinstance(right, dict | list | tuple) and sign in ("in", "not in")):
                if sign in ("is", "is not"):
                    return sign == "is not"  # a tensor is never None
                if len(node.ops) > 1 or sign in ("in", "not in"):
                    raise misread(node, scope, f"{ast.unparse(node)} is not read")
                return self._operation(node, sign, (left, right), scope)
            if sign in ("is", "is not") and isinstance(left, Ref) and isinstance(right, Ref):
                compute = operator.eq if sign == "is" else operator.ne  # a name is one thing, however often it is read
            with self._plainly(node, scope):
                result = bool(compute(left, right))
            if not result:
                return False
            left = right
        return result

    def _operation(self, node: ast.AST, sign: str, args: tuple[Any, ...], scope: Scope) -> Operation:
        if any(isinstance(item, Analyzed | Vocab | Part) for item in args):
            fix = "compute it of the raw column before it is analysed"
            raise misread(node, scope, f"{ast.unparse(node)} computes with what tft gives", fix)
        fits_a_row(args, lambda problem, fix: misread(node, scope, f"{ast.unparse(node)}: {problem}", fix))
        return Operation(sign, args)

    def _call(self, node: ast.Call, scope: Scope) -> Any:
        function = self.value(node.func, scope)
        args, keywords = self._items(node.args, scope), dict[str, Any]()
        for keyword in node.keywords:
            if keyword.arg is None:
                keywords |= self._mapping(keyword.value, scope)
            else:
                keywords[keyword.arg] = self.value(keyword.value, scope)
        if isinstance(function, Function):
            return self.call_function(function, args, keywords, node)
        if isinstance(function, Method):
            return self._call_method(function, args, keywords, node, scope)
        if isinstance(function, Part):
            if function.name == "to_sparse":
                return function.of
            raise misread(node, scope, f"{ast.unparse(node.func)}() of a tensor is not read")
        if not isinstance(function, Ref):
            raise misread(node, scope, f"{ast.unparse(node.func)} is not a function that is read")
        if function.path.startswith("builtins."):
            return self._call_builtin(function.path.removeprefix("builtins."), args, keywords, node, scope)
        if function.path.partition(".")[0] in ("tf", "tft"):
            return translated(function, args, keywords, lambda problem, fix: misread(node, scope, problem, fix))
        raise misread(
            node, scope, f"{function.path} is not read: only TensorFlow, tf.Transform and files beside this one are"
        )

    def _call_builtin(self, name: str, args: list[Any], keywords: dict[str, Any], node: ast.Call, scope: Scope) -> Any:
        if name == "isinstance" and len(args) == 2 and isinstance(args[0], (*SYMBOLS, Analyzed)):
            kinds = args[1] if isinstance(args[1], tuple) else (args[1],)
            sparse = isinstance(args[0], Raw) and args[0].sparse
            wanted = {kind.path.rpartition(".")[2] for kind in kinds if isinstance(kind, Ref)}
            return ("SparseTensor" if sparse else "Tensor") in wanted
        if name in ("print", "super"):
            return None
        if name not in _BUILTINS:
            raise misread(node, scope, f"{name} is not read")
        if any(isinstance(item, (*SYMBOLS, Analyzed, Vocab, Part, Ref)) for item in args):
            raise misread(node, scope, f"{name} of a column is not read", "use TensorFlow's own function")
        with self._plainly(node, scope):
            if name == "range" and len(range(*args)) > _LARGE:
                raise misread(node, scope, f"{ast.unparse(node)} is too long")
            return _BUILTINS[name](*args, **keywords)

    def _call_method(
        self, method: Method, args: list[Any], keywords: dict[str, Any], node: ast.Call, scope: Scope
    ) -> Any:
        if method.name not in _METHODS.get(type(method.of), ()):
            raise misread(node, scope, f"{ast.unparse(node.func)}() is not read")
        with self._plainly(node, scope):
            value = getattr(method.of, method.name)(*args, **keywords)
        return known(value)

    def _lenient(self, node: ast.expr, scope: Scope) -> Any:
        try:
            return self.value(node, scope)
        except Untranslatable as error:
            return Unknown(error)

    def _assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            with self._plainly(target, scope):
                values = [value] * len(target.elts) if isinstance(value, Unknown) else list(value)
            if len(values) != len(target.elts):
                raise misread(target, scope, f"{len(values)} values for {len(target.elts)} names")
            for part, item in zip(target.elts, values, strict=True):
                self._assign(part, item, scope)
        elif isinstance(target, ast.Subscript):
            of = self.value(target.value, scope)
            if not isinstance(of, dict | list):
                raise misread(target, scope, f"{ast.unparse(target)} is set, and is neither a dict nor a list")
            with self._plainly(target, scope):
                key = self.value(target.slice, scope)
                of[key] = value
            self._note(of, key, target, scope)
        else:
            raise misread(target, scope, f"{ast.unparse(target)} cannot be set")

    def _note(self, of: Any, key: Any, node: ast.AST, scope: Scope) -> None:
        if isinstance(of, dict):
            if id(of) not in self.places:
                self._made.append(of)
            self.places.setdefault(id(of), {})[key] = str(scope.module.path), getattr(node, "lineno", 0)

    def _iterated(self, node: ast.expr, scope: Scope) -> Iterator[Any]:
        values = self.value(node, scope)
        if is_symbolic(values) and not isinstance(values, list | tuple):
            raise misread(node, scope, f"a loop over {ast.unparse(node)}, which depends on the rows")
        try:
            return iter(list(values))
        except TypeError:
            raise misread(node, scope, f"a loop over {ast.unparse(node)}, which cannot be read") from None

    def _truth(self, node: ast.expr, scope: Scope) -> bool:
        return self._truth_of(self.value(node, scope), node, scope)

    def _truth_of(self, value: Any, node: ast.expr, scope: Scope) -> bool:
        if is_symbolic(value) or isinstance(value, Ref):
            raise misread(
                node,
                scope,
                f"what follows 'if {ast.unparse(node)}' is left out: it depends on the rows",
                "use tf.where",
            )
        return bool(value)
