"""Loads a function of the user's own Python file by path, with the files beside it that it imports.

    function = load_function(Path("my_models.py"), "two_towers")

The file's folder becomes a private package. `import towers` in the file imports `towers.py` beside it, even if this process has
another module of this name. Nothing is added to sys.path. Two pipelines in one process have each their own `towers`. Each call
loads the files anew from their source.
"""

import builtins
import contextlib
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import re
import sys
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.errors import ConfigError
from headway.messages import did_you_mean
from headway.process import is_own_process
from headway.user_code import files as user_files
from headway.user_code.quiet_stderr import filtered_stderr

PREFIX = "_headway_user_"


def load_function(file: Path, name: str) -> Callable[..., Any]:
    """Loads the function `name` of the Python file. ConfigError when either is missing or the file does not run."""
    module = _load(file)
    function = getattr(module, name, None)
    if not callable(function):
        raise _missing("function", name, module, file, inspect.isfunction)
    return function


def load_instance(file: Path, name: str) -> Any:
    """Loads the object `name` of the Python file. For a class, returns an instance made without arguments. ConfigError when the
    object is missing, or when the file or the class does not run."""
    module = _load(file)
    if (found := getattr(module, name, None)) is None:
        raise _missing("class", name, module, file, inspect.isclass)
    if not inspect.isclass(found):
        return found
    try:
        return found()
    except (Exception, SystemExit) as error:
        problem = f"{name}() failed: {type(error).__name__}: {error}"
        raise ConfigError(problem, where=line_of(error, file)) from error


def _load(file: Path) -> types.ModuleType:
    if not file.is_file():
        raise ConfigError("no such file", where=str(file), fix="put the module beside the pipeline")
    if file.suffix != ".py":
        raise ConfigError("is not a Python file", where=str(file), fix="its name must end in .py")
    folder = file.absolute().parent
    package = PREFIX + hashlib.sha256(f"{folder}\0{file.name}\0{user_files.digest(file)}".encode()).hexdigest()[:16]
    _begin(package, folder)
    try:
        imports_tensorflow = re.search(rb"tensorflow|keras", file.read_bytes()) and "tensorflow" not in sys.modules
        # what it is called within the package, so that dataclasses and pickles of it find it in sys.modules
        with filtered_stderr() if imports_tensorflow and is_own_process() else contextlib.nullcontext():
            return importlib.import_module(f"{package}.{file.stem}")
    except (Exception, SystemExit) as error:
        _forget(package)
        raise ConfigError(f"cannot be loaded: {type(error).__name__}: {error}", where=line_of(error, file)) from error


def _missing(kind: str, name: str, module: types.ModuleType, file: Path, is_kind: Callable[[Any], bool]) -> ConfigError:
    names = [key for key, value in vars(module).items() if is_kind(value) and value.__module__ == module.__name__]
    plural = {"function": "functions", "class": "classes"}[kind]
    fix = did_you_mean(name, names, f"it has: {', '.join(names) or f'no {plural}'}")
    return ConfigError(f"has no {kind} {name!r}", where=str(file), fix=fix)


def _begin(package: str, folder: Path) -> None:
    """Makes a private package whose modules are the files in `folder`. None of the modules is loaded yet."""
    _forget(package)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    module = types.ModuleType(package)
    module.__path__ = [str(folder)]
    sys.modules[package] = module


def _forget(package: str) -> None:
    for name in [name for name in list(sys.modules) if name == package or name.startswith(package + ".")]:
        del sys.modules[name]


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules of the private packages only; all other imports go on as usual."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith(PREFIX) or path is None:
            return None
        importlib.invalidate_caches()  # a file may be newer than the last look at its folder
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a user's file so that `import` in the file searches the file's folder first. Ignores bytecode, which would miss a
    change of the file within a second."""

    def get_code(self, fullname: str) -> types.CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)

    def exec_module(self, module: types.ModuleType) -> None:
        package = module.__name__.partition(".")[0]
        (folder,) = sys.modules[package].__path__
        module.__dict__["__builtins__"] = vars(builtins) | {"__import__": _importing(package, Path(folder))}
        super().exec_module(module)


def _importing(package: str, folder: Path) -> Callable[..., Any]:
    """Returns the `import` function for modules of a private package: it searches `folder` first."""

    def local(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if level or not user_files.is_local(folder, top := name.partition(".")[0]):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        if not fromlist:
            importlib.import_module(f"{package}.{name}")
            return sys.modules[f"{package}.{top}"]
        # relative to the private package, so that Python's own import does the rest
        return builtins.__import__(name, {"__package__": package, "__name__": package}, None, fromlist, 1)

    return local


def line_of(error: BaseException, file: Path) -> str:
    """Returns where in the user's file an error arose, "file.py, line 12"; "file.py" if the traceback has no such line."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{file.name}, line {error.lineno}"
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file.absolute()
    ]
    return f"{file.name}, line {lines[-1]}" if lines else file.name


def line_of_definition(function: Callable[..., Any], file: Path) -> str:
    """Returns where in the user's file a function begins, "file.py, line 12"; "file.py" if the line is unknown."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return file.name if code is None else f"{file.name}, line {code.co_firstlineno}"
