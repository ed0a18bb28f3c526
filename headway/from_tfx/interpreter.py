"""Reads a preprocessing_fn from its source, without running it: what each output is computed from.

outputs, remarks = read_preprocessing_fn("taxi_transform.py", {"fare": Raw("fare", "float32")})
outputs["fare_xf"]                         # Analyzed(of=Raw("fare"), op="standardize"), or Unknown with the reason

Constants, loops over constants, functions of the file and of Python files beside it are followed. A call is TensorFlow's,
tf.Transform's, or one of a few of Python's own on constants; what is neither makes a value Unknown, and an output of it a
remark.
"""

from __future__ import annotations

import ast
import contextlib
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.errors import ConfigError, DataError
from headway.from_tfx.remarks import Remark, Untranslatable, names_of
from headway.from_tfx.symbols import SYMBOLS, Analyzed, Filled, Operation, Part, Raw, Ref, Vocab, is_symbolic
from headway.from_tfx.tf_calls import translated

FUNCTION = "preprocessing_fn"
_MODULES = {"tensorflow": "tf", "tensorflow_transform": "tft"}
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
_MOST_STEPS, _MOST_DEPTH, _LARGE = 1_000_000, 50, 100_000


@dataclass(frozen=True)
class Unknown:
    """A value that cannot be said in Headway, and why."""

    reason: Untranslatable


@dataclass
class _Scope:
    module: _Module
    names: dict[str, Any] = field(default_factory=dict)
    parent: _Scope | None = None

    def find(self, name: str) -> Any:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        raise KeyError(name)


@dataclass(frozen=True)
class _Function:
    node: ast.FunctionDef | ast.Lambda
    scope: _Scope


@dataclass(frozen=True)
class _Method:
    of: Any
    name: str


class _Return(Exception):
    def __init__(self, value: Any):
        super().__init__()
        self.value = value


@dataclass
class _Module:
    path: Path
    scope: _Scope = field(init=False)

    def __post_init__(self) -> None:
        self.scope = _Scope(self)


@dataclass(frozen=True)
class Outputs:
    """What a preprocessing_fn returns."""

    values: dict[str, Any]
    """Symbols (`headway.from_tfx.symbols`) or Unknown."""
    places: dict[str, tuple[str, int]]
    """The file and line in which each was set."""
    remarks: list[Remark]
    """What was passed over."""


def read_preprocessing_fn(path: str, inputs: Mapping[str, Raw]) -> Outputs:
    """The outputs of a file's preprocessing_fn by name.

    Args:
        inputs: the columns of the examples.

    Raises:
        ConfigError, DataError: the file is not there, is not Python, or has no such function.
    """
    reader = _Reader()
    module = reader.module(Path(path))
    function = module.scope.names.get(FUNCTION)
    if not isinstance(function, _Function):
        raise ConfigError(
            f"it has no function {FUNCTION}(inputs)", where=path, fix="name the file of the Transform component"
        )
    try:
        outputs = reader.call_function(function, [dict(inputs)], {}, function.node)
    except Untranslatable as error:
        raise ConfigError(f"{FUNCTION} cannot be read: {error.remark.problem}", where=_place(error.remark)) from None
    if not isinstance(outputs, dict):
        raise ConfigError(
            f"{FUNCTION} returns no dict of columns that can be read", where=f"{path}:{function.node.lineno}"
        )
    places = reader.places.get(id(outputs), {})
    here = str(module.path), function.node.lineno
    values = {str(key): value for key, value in outputs.items()}
    return Outputs(values, {name: places.get(name, here) for name in values}, reader.remarks)


def _place(remark: Remark) -> str:
    return f"{remark.file}:{remark.line}"


class _Reader:
    def __init__(self) -> None:
        self.remarks: list[Remark] = []
        self.places: dict[int, dict[Any, tuple[str, int]]] = {}
        """Where the keys of a dict were set, by the dict's id."""
        self._made: list[dict[Any, Any]] = []
        """Those dicts: an id is of one as long as it is there."""
        self._modules: dict[Path, _Module] = {}
        self._steps = self._depth = 0

    def module(self, path: Path) -> _Module:
        """The names that a file defines."""
        if path in self._modules:
            return self._modules[path]
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError("there is no such file", where=str(path), fix="check the path") from None
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"it cannot be read: {error}", where=str(path)) from None
        except SyntaxError as error:
            raise DataError(f"it is not Python: {error.msg}", where=f"{path}:{error.lineno}") from None
        module = self._modules[path] = _Module(path)
        kept, self.remarks = self.remarks, []  # what a file does besides defining names does not matter here
        self._run(tree.body, module.scope)
        self.remarks = kept
        return module

    def _error(self, node: ast.AST, scope: _Scope, problem: str, fix: str = "") -> Untranslatable:
        return Untranslatable(Remark(str(scope.module.path), getattr(node, "lineno", 0), problem, fix))

    # --- statements

    def _run(self, body: list[ast.stmt], scope: _Scope) -> None:
        for statement in body:
            self._steps += 1
            if self._steps > _MOST_STEPS:
                raise self._error(statement, scope, "the function takes too many steps to be read")
            try:
                self._statement(statement, scope)
            except Untranslatable as error:
                if isinstance(statement, ast.Return) or self._steps > _MOST_STEPS:
                    raise
                self.remarks.append(error.remark)

    def _statement(self, node: ast.stmt, scope: _Scope) -> None:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            if node.value is not None:
                value = self._lenient(node.value, scope)
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self._assign(target, value, scope)
        elif isinstance(node, ast.AugAssign):
            load = ast.copy_location(ast.parse(ast.unparse(node.target), mode="eval").body, node)
            value = self._lenient(ast.copy_location(ast.BinOp(load, node.op, node.value), node), scope)
            self._assign(node.target, value, scope)
        elif isinstance(node, ast.FunctionDef):
            scope.names[node.name] = _Function(node, scope)
        elif isinstance(node, ast.Return):
            raise _Return(None if node.value is None else self.value(node.value, scope))
        elif isinstance(node, ast.For):
            for item in self._iterated(node.iter, scope):
                self._assign(node.target, item, scope)
                self._run(node.body, scope)
        elif isinstance(node, ast.If):
            self._run(node.body if self._truth(node.test, scope) else node.orelse, scope)
        elif isinstance(node, ast.With):
            self._run(node.body, scope)  # tf.name_scope and the like
        elif isinstance(node, ast.Expr):
            if not isinstance(node.value, ast.Constant):
                self.value(node.value, scope)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node, scope)
        elif isinstance(node, ast.ClassDef):
            scope.names[node.name] = Unknown(self._error(node, scope, f"the class {node.name} is not read"))
        elif not isinstance(node, ast.Pass | ast.Assert | ast.Global):
            raise self._error(node, scope, f"a statement such as {type(node).__name__.lower()} is not read")

    def _lenient(self, node: ast.expr, scope: _Scope) -> Any:
        try:
            return self.value(node, scope)
        except Untranslatable as error:
            return Unknown(error)

    def _assign(self, target: ast.expr, value: Any, scope: _Scope) -> None:
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            values = [value] * len(target.elts) if isinstance(value, Unknown) else list(value)
            if len(values) != len(target.elts):
                raise self._error(target, scope, f"{len(values)} values for {len(target.elts)} names")
            for part, item in zip(target.elts, values, strict=True):
                self._assign(part, item, scope)
        elif isinstance(target, ast.Subscript):
            of = self.value(target.value, scope)
            if not isinstance(of, dict | list):
                raise self._error(target, scope, f"{ast.unparse(target)} is set, and is neither a dict nor a list")
            with self._plainly(target, scope):
                key = self.value(target.slice, scope)
                of[key] = value
            self._note(of, key, target, scope)
        else:
            raise self._error(target, scope, f"{ast.unparse(target)} cannot be set")

    def _note(self, of: Any, key: Any, node: ast.AST, scope: _Scope) -> None:
        if isinstance(of, dict):
            if id(of) not in self.places:
                self._made.append(of)
            self.places.setdefault(id(of), {})[key] = str(scope.module.path), getattr(node, "lineno", 0)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: _Scope) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                scope.names[alias.asname or name] = self._imported(alias.name if alias.asname else name, scope)
                continue
            module = node.module or ""
            whole = self._imported(f"{module}.{alias.name}" if module else alias.name, scope)
            if isinstance(whole, Ref) and module and isinstance(of := self._imported(module, scope), _Module):
                whole = of.scope.names.get(alias.name, whole)
            scope.names[alias.asname or alias.name] = whole

    def _imported(self, dotted: str, scope: _Scope) -> Any:
        """A Python file beside the one that imports it, or in a folder above; else the name as it is."""
        first, _, rest = dotted.partition(".")
        if first in _MODULES:
            return Ref(".".join([_MODULES[first], *([rest] if rest else [])]))
        folder, parts = scope.module.path.parent, dotted.split(".")
        for above in [folder, *folder.parents][:3]:
            for start in range(len(parts)):
                file = above.joinpath(*parts[start:]).with_suffix(".py")
                if file.is_file() and file != scope.module.path:
                    return self.module(file)
        return Ref(dotted)

    def _iterated(self, node: ast.expr, scope: _Scope) -> Iterator[Any]:
        values = self.value(node, scope)
        if is_symbolic(values) and not isinstance(values, list | tuple):
            raise self._error(node, scope, f"a loop over {ast.unparse(node)}, which depends on the rows")
        try:
            return iter(list(values))
        except TypeError:
            raise self._error(node, scope, f"a loop over {ast.unparse(node)}, which cannot be read") from None

    def _truth(self, node: ast.expr, scope: _Scope) -> bool:
        value = self.value(node, scope)
        if is_symbolic(value) or isinstance(value, Ref):
            raise self._error(
                node,
                scope,
                f"what follows 'if {ast.unparse(node)}' is left out: it depends on the rows",
                "use tf.where",
            )
        return bool(value)

    # --- expressions

    def value(self, node: ast.expr, scope: _Scope) -> Any:
        """The value of an expression.

        Raises:
            Untranslatable: it has none here.
        """
        read = getattr(self, f"_{type(node).__name__.lower()}", None)
        if read is None:
            raise self._error(node, scope, f"{ast.unparse(node)} is not read")
        return read(node, scope)

    def _constant(self, node: ast.Constant, scope: _Scope) -> Any:
        return node.value

    def _name(self, node: ast.Name, scope: _Scope) -> Any:
        try:
            value = scope.find(node.id)
        except KeyError:
            return Ref(f"builtins.{node.id}")
        if isinstance(value, Unknown):
            raise value.reason
        return value

    def _attribute(self, node: ast.Attribute, scope: _Scope) -> Any:
        of = self.value(node.value, scope)
        if isinstance(of, Ref):
            return Ref(f"{of.path}.{node.attr}")
        if isinstance(of, _Module):
            if node.attr not in of.scope.names:
                raise self._error(node, scope, f"{of.path} has no {node.attr}")
            value = of.scope.names[node.attr]
            if isinstance(value, Unknown):
                raise value.reason
            return value
        if node.attr == "dtype" and isinstance(of, Raw | Filled):
            kinds = {"bytes": "tf.string", "int64": "tf.int64", "float32": "tf.float32"}
            return Ref(kinds[(of.of if isinstance(of, Filled) else of).type])
        if isinstance(of, (*SYMBOLS, Part)):
            return Part(of, node.attr)
        return _Method(of, node.attr)

    def _subscript(self, node: ast.Subscript, scope: _Scope) -> Any:
        of = self.value(node.value, scope)
        if isinstance(of, Part):
            return Part(of.of, of.name)
        if isinstance(node.slice, ast.Slice):
            bounds = [
                None if part is None else self.value(part, scope) for part in (node.slice.lower, node.slice.upper)
            ]
            if isinstance(of, str | list | tuple) and node.slice.step is None:
                return of[bounds[0] : bounds[1]]
            raise self._error(node, scope, f"{ast.unparse(node)}: a part of a column is not read")
        if not isinstance(of, dict | list | tuple | str):
            raise self._error(node, scope, f"{ast.unparse(node)}: a part of a column is not read")
        key = self.value(node.slice, scope)
        with self._plainly(node, scope):
            value = of[key]
        if isinstance(value, Unknown):
            raise value.reason
        return value

    @contextlib.contextmanager
    def _plainly(self, node: ast.AST, scope: _Scope) -> Iterator[None]:
        """Errors of an operation on constants are errors of the program."""
        try:
            yield
        except KeyError as error:
            raise self._error(node, scope, f"{ast.unparse(node)}: there is no {error}") from None
        except (TypeError, ValueError, IndexError, ArithmeticError, AttributeError) as error:
            raise self._error(node, scope, f"{ast.unparse(node)}: {error}") from None

    def _list(self, node: ast.List, scope: _Scope) -> Any:
        return self._items(node.elts, scope)

    def _tuple(self, node: ast.Tuple, scope: _Scope) -> Any:
        return tuple(self._items(node.elts, scope))

    def _set(self, node: ast.Set, scope: _Scope) -> Any:
        with self._plainly(node, scope):
            return set(self._items(node.elts, scope))

    def _items(self, nodes: list[ast.expr], scope: _Scope) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                items += self._iterated(node.value, scope)
            else:
                items.append(self.value(node, scope))
        return items

    def _dict(self, node: ast.Dict, scope: _Scope) -> Any:
        made: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                made |= self.value(value, scope)
            else:
                with self._plainly(node, scope):
                    name = self.value(key, scope)
                    made[name] = self._lenient(value, scope)
                self._note(made, name, key, scope)
        return made

    def _dictcomp(self, node: ast.DictComp, scope: _Scope) -> Any:
        inner = list(self._loops(node.generators, scope))
        return {self.value(node.key, each): self._lenient(node.value, each) for each in inner}

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: _Scope) -> Any:
        return [self.value(node.elt, each) for each in self._loops(node.generators, scope)]

    _generatorexp = _listcomp

    def _setcomp(self, node: ast.SetComp, scope: _Scope) -> Any:
        return set(self._listcomp(node, scope))

    def _loops(self, generators: list[ast.comprehension], scope: _Scope) -> Iterator[_Scope]:
        if not generators:
            yield scope
            return
        first, *rest = generators
        for item in self._iterated(first.iter, scope):
            inner = _Scope(scope.module, {}, scope)
            self._assign(first.target, item, inner)
            if all(self._truth(test, inner) for test in first.ifs):
                yield from self._loops(rest, inner)

    def _joinedstr(self, node: ast.JoinedStr, scope: _Scope) -> Any:
        parts = []
        for part in node.values:
            value = self.value(part.value if isinstance(part, ast.FormattedValue) else part, scope)
            if is_symbolic(value):
                raise self._error(node, scope, "a text made of a column's values", "use tf.strings.join")
            parts.append(str(value))
        return "".join(parts)

    def _lambda(self, node: ast.Lambda, scope: _Scope) -> Any:
        return _Function(node, scope)

    def _ifexp(self, node: ast.IfExp, scope: _Scope) -> Any:
        return self.value(node.body if self._truth(node.test, scope) else node.orelse, scope)

    def _boolop(self, node: ast.BoolOp, scope: _Scope) -> Any:
        value = None
        for part in node.values:
            value = self.value(part, scope)
            if self._truth(part, scope) != isinstance(node.op, ast.And):
                return value
        return value

    def _unaryop(self, node: ast.UnaryOp, scope: _Scope) -> Any:
        sign, compute = _UNARY[type(node.op)]
        value = self.value(node.operand, scope)
        if is_symbolic(value):
            if sign == "not":
                raise self._error(node, scope, f"{ast.unparse(node)} asks a column for its truth", "use tf.logical_not")
            return self._operation(node, sign, (value,), scope)
        with self._plainly(node, scope):
            return compute(value)

    def _binop(self, node: ast.BinOp, scope: _Scope) -> Any:
        if type(node.op) not in _BINARY:
            raise self._error(node, scope, f"{ast.unparse(node)} is not read")
        sign, compute = _BINARY[type(node.op)]
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        if is_symbolic((left, right)) and not (isinstance(left, list | tuple) and isinstance(right, list | tuple)):
            return self._operation(node, sign, (left, right), scope)
        numbers = [abs(side) for side in (left, right) if isinstance(side, int | float)]
        if max(numbers, default=0) > _LARGE and (sign == "**" or (sign == "*" and len(numbers) < 2)):
            raise self._error(node, scope, f"{ast.unparse(node)} is too large")
        with self._plainly(node, scope):
            return compute(left, right)

    def _compare(self, node: ast.Compare, scope: _Scope) -> Any:
        left, result = self.value(node.left, scope), True
        for kind, part in zip(node.ops, node.comparators, strict=True):
            sign, compute = _COMPARISONS[type(kind)]
            right = self.value(part, scope)
            if is_symbolic((left, right)) and not (isinstance(right, dict | list | tuple) and sign in ("in", "not in")):
                if sign in ("is", "is not"):
                    return sign == "is not"  # a tensor is never None
                if len(node.ops) > 1 or sign in ("in", "not in"):
                    raise self._error(node, scope, f"{ast.unparse(node)} is not read")
                return self._operation(node, sign, (left, right), scope)
            with self._plainly(node, scope):
                result = bool(compute(left, right))
            if not result:
                return False
            left = right
        return result

    def _operation(self, node: ast.AST, sign: str, args: tuple[Any, ...], scope: _Scope) -> Operation:
        if any(isinstance(item, Analyzed | Vocab | Part) for item in args):
            fix = "compute it of the raw column before it is analysed"
            raise self._error(node, scope, f"{ast.unparse(node)} computes with what tft gives", fix)
        return Operation(sign, args)

    # --- calls

    def _call(self, node: ast.Call, scope: _Scope) -> Any:
        function = self.value(node.func, scope)
        args, keywords = self._items(node.args, scope), dict[str, Any]()
        for keyword in node.keywords:
            value = self.value(keyword.value, scope)
            keywords |= value if keyword.arg is None else {keyword.arg: value}
        if isinstance(function, _Function):
            return self.call_function(function, args, keywords, node)
        if isinstance(function, _Method):
            return self._call_method(function, args, keywords, node, scope)
        if isinstance(function, Part):
            if function.name == "to_sparse":
                return function.of
            raise self._error(node, scope, f"{ast.unparse(node.func)}() of a tensor is not read")
        if not isinstance(function, Ref):
            raise self._error(node, scope, f"{ast.unparse(node.func)} is not a function that is read")
        if function.path.startswith("builtins."):
            return self._call_builtin(function.path.removeprefix("builtins."), args, keywords, node, scope)
        if function.path.partition(".")[0] in ("tf", "tft"):
            return translated(function, args, keywords, lambda problem, fix: self._error(node, scope, problem, fix))
        raise self._error(
            node, scope, f"{function.path} is not read: only TensorFlow, tf.Transform and files beside this one are"
        )

    def _call_builtin(self, name: str, args: list[Any], keywords: dict[str, Any], node: ast.Call, scope: _Scope) -> Any:
        if name == "isinstance" and len(args) == 2 and isinstance(args[0], (*SYMBOLS, Analyzed)):
            kinds = args[1] if isinstance(args[1], tuple) else (args[1],)
            sparse = isinstance(args[0], Raw) and args[0].sparse
            wanted = {kind.path.rpartition(".")[2] for kind in kinds if isinstance(kind, Ref)}
            return ("SparseTensor" if sparse else "Tensor") in wanted
        if name in ("print", "super"):
            return None
        if name not in _BUILTINS:
            raise self._error(node, scope, f"{name} is not read")
        if any(isinstance(item, (*SYMBOLS, Analyzed, Vocab, Part, Ref)) for item in args):
            raise self._error(node, scope, f"{name} of a column is not read", "use TensorFlow's own function")
        if name == "range" and len(range(*args)) > _LARGE:
            raise self._error(node, scope, f"{ast.unparse(node)} is too long")
        with self._plainly(node, scope):
            return _BUILTINS[name](*args, **keywords)

    def _call_method(
        self, method: _Method, args: list[Any], keywords: dict[str, Any], node: ast.Call, scope: _Scope
    ) -> Any:
        if method.name not in _METHODS.get(type(method.of), ()):
            raise self._error(node, scope, f"{ast.unparse(node.func)}() is not read")
        with self._plainly(node, scope):
            value = getattr(method.of, method.name)(*args, **keywords)
        if isinstance(value, Unknown):
            raise value.reason
        return value

    def call_function(self, function: _Function, args: list[Any], keywords: dict[str, Any], node: ast.AST) -> Any:
        """What a function of the program returns."""
        spec, inner = function.node.args, _Scope(function.scope.module, {}, function.scope)
        names = [argument.arg for argument in [*spec.posonlyargs, *spec.args]]
        if len(args) > len(names) and spec.vararg is None:
            raise self._error(node, function.scope, f"{len(args)} arguments for {len(names)}")
        inner.names |= dict(zip(names, args, strict=False))
        if spec.vararg is not None:
            inner.names[spec.vararg.arg] = tuple(args[len(names) :])
        defaults = dict(zip(names[len(names) - len(spec.defaults) :], spec.defaults, strict=True))
        only = [argument.arg for argument in spec.kwonlyargs]
        defaults |= {name: value for name, value in zip(only, spec.kw_defaults, strict=True) if value is not None}
        further = {name: value for name, value in keywords.items() if name not in [*names, *only]}
        inner.names |= {name: value for name, value in keywords.items() if name not in further}
        if spec.kwarg is not None:
            inner.names[spec.kwarg.arg] = further
        elif further:
            raise self._error(node, function.scope, f"there is no argument {next(iter(further))!r}")
        for name in [*names, *only]:
            if name not in inner.names:
                if name not in defaults:
                    raise self._error(node, function.scope, f"the argument {name!r} is missing")
                inner.names[name] = self.value(defaults[name], function.scope)
        if isinstance(function.node, ast.Lambda):
            return self.value(function.node.body, inner)
        self._depth += 1
        try:
            if self._depth > _MOST_DEPTH:
                raise self._error(node, function.scope, "functions call each other without end")
            self._run(function.node.body, inner)
        except _Return as result:
            return result.value
        finally:
            self._depth -= 1
        return None
