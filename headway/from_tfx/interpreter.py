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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import ConfigError, DataError
from headway.from_tfx.program import Function, Module, Scope, Unknown, misread
from headway.from_tfx.program_values import Expressions
from headway.from_tfx.remarks import Remark, Untranslatable
from headway.from_tfx.symbols import Raw, Ref

FUNCTION = "preprocessing_fn"
_MODULES = {"tensorflow": "tf", "tensorflow_transform": "tft"}
_MOST_DEPTH = 50


class _Return(Exception):
    def __init__(self, value: Any):
        super().__init__()
        self.value = value


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


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
    try:
        module = reader.module(Path(path))
        function = module.scope.names.get(FUNCTION)
        if not isinstance(function, Function):
            raise ConfigError(
                f"it has no function {FUNCTION}(inputs)", where=path, fix="name the file of the Transform component"
            )
        outputs = reader.call_function(function, [dict(inputs)], {}, function.node)
    except Untranslatable as error:
        raise ConfigError(f"{FUNCTION} cannot be read: {error.remark.problem}", where=_place(error.remark)) from None
    except (RecursionError, MemoryError):
        raise ConfigError(
            f"{FUNCTION} cannot be read: its expressions, or its calls, are too deep", where=path, fix="shorten them"
        ) from None
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


class _Reader(Expressions):
    """Reads statements: files, functions, what they assign."""

    def __init__(self) -> None:
        super().__init__()
        self.remarks: list[Remark] = []
        self._modules: dict[Path, Module] = {}
        self._depth = 0

    def module(self, path: Path) -> Module:
        """The names that a file defines."""
        if path in self._modules:
            return self._modules[path]
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError("there is no such file", where=str(path), fix="name a file of this machine") from None
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"it cannot be read: {error}", where=str(path)) from None
        except SyntaxError as error:
            raise DataError(f"it is not Python: {error.msg}", where=f"{path}:{error.lineno}") from None
        except ValueError as error:
            raise DataError(f"it is not Python: {error}", where=str(path)) from None
        module = self._modules[path] = Module(path)
        kept, self.remarks = self.remarks, []  # what a file does besides defining names does not matter here
        try:
            self._run(tree.body, module.scope)
        except (_Return, _Break, _Continue):
            raise DataError("it is not Python: return, break or continue stands alone", where=str(path)) from None
        self.remarks = kept
        return module

    def _run(self, body: list[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self.step(statement, scope)
            try:
                self._statement(statement, scope)
            except Untranslatable as error:
                if isinstance(statement, ast.Return) or self.tired:
                    raise
                self.remarks.append(error.remark)

    def _statement(self, node: ast.stmt, scope: Scope) -> None:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            if node.value is not None:
                value = self._lenient(node.value, scope)
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self._assign(target, value, scope)
        elif isinstance(node, ast.AugAssign):
            value = self._lenient(ast.copy_location(ast.BinOp(node.target, node.op, node.value), node), scope)
            self._assign(node.target, value, scope)
        elif isinstance(node, ast.FunctionDef):
            scope.names[node.name] = Function(node, scope)
        elif isinstance(node, ast.Return):
            raise _Return(None if node.value is None else self.value(node.value, scope))
        elif isinstance(node, ast.For):
            self._for(node, scope)
        elif isinstance(node, ast.Break | ast.Continue):
            raise _Break if isinstance(node, ast.Break) else _Continue
        elif isinstance(node, ast.Try):
            self._run([*node.body, *node.orelse, *node.finalbody], scope)  # as where nothing is raised
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
            scope.names[node.name] = Unknown(misread(node, scope, f"the class {node.name} is not read"))
        elif not isinstance(node, ast.Pass | ast.Assert | ast.Global):
            raise misread(node, scope, f"a statement such as {type(node).__name__.lower()} is not read")

    def _for(self, node: ast.For, scope: Scope) -> None:
        try:
            for item in self._iterated(node.iter, scope):
                self._assign(node.target, item, scope)
                with contextlib.suppress(_Continue):
                    self._run(node.body, scope)
        except _Break:
            return
        self._run(node.orelse, scope)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                scope.names[alias.asname or name] = self._imported(alias.name if alias.asname else name, scope)
                continue
            module = node.module or ""
            if alias.name == "*":
                if isinstance(of := self._imported(module, scope), Module):
                    scope.names |= {name: item for name, item in of.scope.names.items() if not name.startswith("_")}
                continue
            whole = self._imported(f"{module}.{alias.name}" if module else alias.name, scope)
            if isinstance(whole, Ref) and module and isinstance(of := self._imported(module, scope), Module):
                whole = of.scope.names.get(alias.name, whole)
            scope.names[alias.asname or alias.name] = whole

    def _imported(self, dotted: str, scope: Scope) -> Any:
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

    def call_function(self, function: Function, args: list[Any], keywords: dict[str, Any], node: ast.AST) -> Any:
        """What a function of the program returns."""
        spec, inner = function.node.args, Scope(function.scope.module, {}, function.scope)
        names = [argument.arg for argument in [*spec.posonlyargs, *spec.args]]
        if len(args) > len(names) and spec.vararg is None:
            raise misread(node, function.scope, f"{len(args)} arguments for {len(names)}")
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
            raise misread(node, function.scope, f"there is no argument {next(iter(further))!r}")
        for name in [*names, *only]:
            if name not in inner.names:
                if name not in defaults:
                    raise misread(node, function.scope, f"the argument {name!r} is missing")
                inner.names[name] = self.value(defaults[name], function.scope)
        self._depth += 1
        try:
            if self._depth > _MOST_DEPTH:
                raise misread(node, function.scope, "functions call each other without end")
            if isinstance(function.node, ast.Lambda):
                return self.value(function.node.body, inner)
            self._run(function.node.body, inner)
        except _Return as result:
            return result.value
        finally:
            self._depth -= 1
        return None
