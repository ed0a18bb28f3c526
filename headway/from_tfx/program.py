"""What stands for the parts of a program that is read and not run: its names, functions and modules, and what cannot be said.

scope = Module(Path("taxi_transform.py")).scope
scope.names["KEYS"] = ["fare"]
scope.find("KEYS")                         # ["fare"], also from a scope within
raise misread(node, scope, "a while loop is not read")
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.from_tfx.remarks import Remark, Untranslatable


@dataclass(frozen=True)
class Unknown:
    """A value that cannot be said in Headway, and why."""

    reason: Untranslatable


@dataclass
class Scope:
    module: Module
    names: dict[str, Any] = field(default_factory=dict)
    parent: Scope | None = None

    def find(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        raise KeyError(name)


@dataclass(frozen=True)
class Function:
    node: ast.FunctionDef | ast.Lambda
    scope: Scope


@dataclass(frozen=True)
class Method:
    of: Any
    name: str


@dataclass
class Module:
    path: Path
    scope: Scope = field(init=False)

    def __post_init__(self) -> None:
        self.scope = Scope(self)


def misread(node: ast.AST, scope: Scope, problem: str, fix: str = "") -> Untranslatable:
    """The error to raise of a part of the program, with its place."""
    return Untranslatable(Remark(str(scope.module.path), getattr(node, "lineno", 0), problem, fix))


def known(value: Any) -> Any:
    """The value, unless it is Unknown.

    Raises:
        Untranslatable: why it is unknown.
    """
    if isinstance(value, Unknown):
        raise value.reason
    return value
