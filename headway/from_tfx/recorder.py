"""Calls a preprocessing_fn with a recorder in place of TensorFlow and tf.Transform: what each output is computed from.

python -m headway.from_tfx.recorder taxi_transform.py < inputs.json        # the outputs, as the last line of stdout

The code of the user runs here, in a process of its own: `tf` and `tft` are names whose calls give `Recorded` values. A value
without a counterpart is an Unknown with the file and line of its call, and so is whatever is computed of it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.util
import json
import os
import sys
import sysconfig
import traceback
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from headway.from_tfx.remarks import Remark, Untranslatable
from headway.from_tfx.symbols import Filled, Operation, Part, Raw, Ref, Unknown, from_json, to_json
from headway.from_tfx.tf_calls import fits_a_row, translated

FUNCTION = "preprocessing_fn"
_STOOD_FOR = {"tensorflow": "tf", "tensorflow_transform": "tft", "keras": "keras", "tf_keras": "tf_keras"}
_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "and": "&", "or": "|",
    "xor": "^", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "neg": "-", "pos": "+", "invert": "~",
}  # fmt: skip
_KINDS = {"bytes": "tf.string", "int64": "tf.int64", "float32": "tf.float32"}
_OWN = str(Path(__file__).parent)
_INSTALLED = tuple(sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib"))


def _here() -> tuple[str, int]:
    """The file and line of the user's code that called the recorder."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_OWN, *_INSTALLED, "<frozen ")):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _complaint(problem: str, fix: str = "") -> Untranslatable:
    return Untranslatable(Remark(*_here(), problem, fix))


class Recorded:
    """A tensor of the recorder."""

    __array_ufunc__ = None
    """NumPy leaves operators to this class, and refuses its own functions."""

    def __init__(self, value: Any):
        self.value, self.place = value, _here()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if isinstance(self.value, Unknown):
            return self
        if name == "dtype" and isinstance(self.value, Raw | Filled):
            return _name(_KINDS[(self.value.of if isinstance(self.value, Filled) else self.value).type])
        return Recorded(Part(self.value, name))

    def __getitem__(self, key: Any) -> Recorded:
        if isinstance(self.value, Part | Unknown):
            return self
        return _recorded(lambda: _refuse("a part of a column is not read"))

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if isinstance(self.value, Part) and self.value.name == "to_sparse":
            return Recorded(self.value.of)
        if isinstance(self.value, Unknown):
            return _decorated(args, keywords) or self
        return _recorded(lambda: _refuse("a method of a tensor is not read"))

    def __enter__(self) -> Recorded:
        return self

    def __exit__(self, *error: object) -> None:
        """End of tf.name_scope and the like."""

    def __bool__(self) -> bool:
        raise TypeError("a branch depends on the rows: use tf.where")

    def __iter__(self) -> Any:
        raise TypeError("a loop, or an assignment to several names, depends on the rows")


def _operators() -> None:
    def binary(sign: str, swapped: bool) -> Callable[[Any, Any], Recorded]:
        return lambda self, other: _operation(sign, (other, self) if swapped else (self, other))

    for name, sign in _OPERATORS.items():
        if name in ("neg", "pos", "invert"):
            setattr(
                Recorded, f"__{name}__", functools.partialmethod(lambda self, sign: _operation(sign, (self,)), sign)
            )
        else:
            setattr(Recorded, f"__{name}__", binary(sign, False))
            setattr(Recorded, f"__r{name}__", binary(sign, True))


def _operation(sign: str, given: tuple[Any, ...]) -> Recorded:
    def operation() -> Operation:
        args = tuple(_plain(item) for item in given)
        fits_a_row(args, lambda problem, fix: _complaint(f"{sign}: {problem}", fix))
        return Operation(sign, args)

    return _recorded(operation)


_operators()


def _recorded(compute: Callable[[], Any]) -> Recorded:
    try:
        return Recorded(compute())
    except Untranslatable as error:
        return Recorded(Unknown(error.remark))


def _refuse(problem: str) -> None:
    raise _complaint(problem)


def _plain(value: Any) -> Any:
    """An argument as a symbol or a constant.

    Raises:
        Untranslatable: it is Unknown.
    """
    if isinstance(value, Recorded):
        if isinstance(value.value, Unknown):
            raise Untranslatable(value.value.remark)
        return value.value
    if isinstance(value, Name):
        return Ref(value.path)
    if isinstance(value, list | tuple):
        return type(value)([_plain(item) for item in value]) if type(value) in (list, tuple) else value
    return value.tolist() if type(value).__module__ == "numpy" and hasattr(value, "tolist") else value


def _decorated(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """The function that a decorator such as tf.function is given."""
    return args[0] if len(args) == 1 and not keywords and isinstance(args[0], types.FunctionType) else None


class Name:
    """A name of TensorFlow, tf.Transform or a module that is not there: a function, a type or a constant."""

    def __init__(self, path: str):
        self.path = path

    def __getattr__(self, attribute: str) -> Name:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return _name(f"{self.path}.{attribute}")

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return _decorated(args, keywords) or _recorded(lambda: self._value(args, keywords))

    def _value(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if self.path.partition(".")[0] not in ("tf", "tft"):
            _refuse(f"{self.path} is not read: only TensorFlow, tf.Transform and Python that is installed are")
        plain = {key: _plain(value) for key, value in keywords.items()}
        return translated(Ref(self.path), [_plain(value) for value in args], plain, _complaint)

    def __instancecheck__(self, value: Any) -> bool:
        if not isinstance(value, Recorded):
            return False
        sparse = isinstance(value.value, Raw) and value.value.sparse
        return self.path.rpartition(".")[2] == ("SparseTensor" if sparse else "Tensor")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (object,)

    def __or__(self, other: Any) -> Name:
        """An annotation such as tf.Tensor | None."""
        return self

    __ror__ = __or__


@functools.cache
def _name(path: str) -> Name:
    return Name(path)


class _StandIn(types.ModuleType):
    """A module whose attributes are Names, or files of the user's."""

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        whole = f"{self.__name__}.{attribute}"
        if _Modules.beside(whole) is not None:
            return importlib.import_module(whole)
        first, dot, rest = whole.partition(".")
        return _name(f"{_STOOD_FOR.get(first, first)}{dot}{rest}")


class _Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds TensorFlow's modules, and, for the user's files, what is beside them or not there."""

    folders: tuple[Path, ...] = ()

    def __init__(self, stood_for: bool):
        self._stood_for = stood_for

    @classmethod
    def beside(cls, dotted: str) -> Path | None:
        """The file of a module in a folder of the user's, whatever packages it is said to be in."""
        parts = dotted.split(".")
        files = (folder.joinpath(*parts[start:]) for folder in cls.folders for start in range(len(parts)))
        return next((file for each in files if (file := each.with_suffix(".py")).is_file()), None)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if self._stood_for != (fullname.partition(".")[0] in _STOOD_FOR):
            return None
        if not self._stood_for:
            if not any(Path(_here()[0]).resolve().is_relative_to(folder) for folder in self.folders):
                return None  # an import within a library, which may do without
            if file := self.beside(fullname):
                return importlib.util.spec_from_file_location(fullname, file)
        return importlib.util.spec_from_loader(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is run: attributes come with their use."""


class _Inputs(dict[str, Any]):
    def __missing__(self, name: str) -> Recorded:
        return _recorded(lambda: _refuse(f"there is no {name!r} in the examples"))


def record(path: Path, inputs: Iterable[tuple[str, Raw]]) -> dict[str, Any]:
    """The outputs of a file's preprocessing_fn as JSON, or the error of the user's code with its place."""
    folder = path.resolve().parent
    _Modules.folders = (folder, *folder.parents[:2])
    sys.path += [str(folder) for folder in _Modules.folders]
    sys.meta_path[:] = [_Modules(True), *sys.meta_path, _Modules(False)]
    module = types.ModuleType("transform")
    module.__file__, module.__package__ = str(path), folder.name
    sys.modules["transform"] = module
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
        function = module.__dict__.get(FUNCTION)
        if not callable(function):
            return {"none": f"it has no function {FUNCTION}(inputs)"}
        outputs = function(_Inputs((name, Recorded(raw)) for name, raw in inputs))
    except SyntaxError as error:
        return {"syntax": error.msg, "file": error.filename, "line": error.lineno}
    except BaseException as error:
        return _failure(error, path)
    line = getattr(getattr(function, "__code__", None), "co_firstlineno", 1)
    if not isinstance(outputs, dict):
        return {"error": f"{FUNCTION} returns no dict of columns", "file": str(path), "line": line}
    values = {str(key): to_json(getattr(value, "value", value)) for key, value in outputs.items()}
    places = {str(key): getattr(value, "place", (str(path), line)) for key, value in outputs.items()}
    inner = {key: (str(path), line) if place[0].startswith(_OWN) else place for key, place in places.items()}
    return {"values": values, "places": inner}


def _failure(error: BaseException, path: Path) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if not frame.filename.startswith((_OWN, *_INSTALLED, "<frozen "))]
    file, line = (users[-1].filename, users[-1].lineno) if users else (str(path), 0)
    said = str(error).split("\n")[0]
    return {
        "error": f"{FUNCTION} raises {type(error).__name__}" + (f": {said}" if said else ""),
        "file": file,
        "line": line,
    }


def _main() -> None:
    with contextlib.redirect_stdout(sys.stderr):
        raws = [(name, from_json(raw)) for name, raw in json.load(sys.stdin).items()]
        result = record(Path(sys.argv[1]), raws)
    print("\n" + json.dumps(result), flush=True)
    os._exit(0)  # threads that the user's code started do not keep the process


if __name__ == "__main__":
    _main()
