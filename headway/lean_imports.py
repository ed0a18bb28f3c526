"""Imports of heavy packages without what they take along where it is installed.

with hidden("boto3", "pymongo", importer="apache_beam"):
    import apache_beam
arrow_without_pandas()
"""

import contextlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_IMPORTLIB = ("importlib", "importlib._bootstrap", "importlib._bootstrap_external")


class _Hidden(MetaPathFinder):
    def __init__(self, packages: Sequence[str], importer: str):
        self._packages, self._importer = packages, importer

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name not in self._packages:
            return
        here = inspect.currentframe()
        frame = here and here.f_back
        while frame is not None and frame.f_globals["__name__"] in _IMPORTLIB:
            frame = frame.f_back
        if frame is not None and self._importer in frame.f_globals.get("__name__", "").split("."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@contextlib.contextmanager
def hidden(*packages: str, importer: str) -> Iterator[None]:
    """Let packages look as if they were not installed within the block, to the modules that have `importer` in their dotted
    names. Whoever else imports them in the block gets them."""
    finder = _Hidden(packages, importer)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _After(MetaPathFinder):
    def __init__(self, package: str, then: Callable[[], None]):
        self.package, self.then = package, then

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.package:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self.then()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def after_import(package: str, then: Callable[[], None]) -> None:
    """Call a function once after the next import of a package; the same function for the same package only once."""
    if not any(isinstance(each, _After) and (each.package, each.then) == (package, then) for each in sys.meta_path):
        sys.meta_path.insert(0, _After(package, then))


def arrow_without_pandas() -> None:
    """Let Arrow look for pandas when somebody imports pandas, and not with the first array that it makes. For a process of
    Headway's own, which hardly ever needs pandas: a quarter of a processor second."""
    if "pandas" in sys.modules:
        return
    if "pyarrow" in sys.modules:
        _look_in_vain()
    else:
        after_import("pyarrow", _look_in_vain)


def _look_in_vain() -> None:
    if "pandas" in sys.modules:  # which imports Arrow itself
        return
    import pyarrow as pa

    with hidden("pandas", importer="lean_imports"):
        pa.array([])
    after_import("pandas", _look_again)


def _look_again() -> None:
    import pyarrow as pa

    pa.array([]).to_pandas()
