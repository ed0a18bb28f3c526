"""A function of the user's own Python file, loaded by path: no package, no import path, no name it could clash with.

function = load_function(Path("my_models.py"), "two_towers")
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headway.errors import ConfigError


def load_function(file: Path, name: str) -> Callable[..., Any]:
    """The function `name` of the Python file; ConfigError when either is missing or the file does not run."""
    if not file.is_file():
        raise ConfigError("no such file", where=str(file), fix="put the module beside the pipeline")
    private = f"_headway_user_{hashlib.sha256(bytes(file.resolve()) + file.read_bytes()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(private, file)
    if spec is None or spec.loader is None:
        raise ConfigError("is not a Python file", where=str(file), fix="its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[private] = module  # dataclasses and pickles of the module look it up here
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[private]
        raise ConfigError(f"cannot be loaded: {type(error).__name__}: {error}", where=line_of(error, file)) from error
    function = getattr(module, name, None)
    if not callable(function):
        known = [
            key for key, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == private
        ]
        close = difflib.get_close_matches(name, known, 1)
        fix = f"did you mean {close[0]!r}?" if close else f"it has: {', '.join(known) or 'no functions'}"
        raise ConfigError(f"has no function {name!r}", where=str(file), fix=fix)
    return function


def line_of(error: BaseException, file: Path) -> str:
    """ "file.py, line 12": the last line of the user's file that the error passed through."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{file.name}, line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    return f"{file.name}, line {lines[-1]}" if lines else file.name
