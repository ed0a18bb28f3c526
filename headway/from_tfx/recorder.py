"""Calls a preprocessing_fn with a recorder in place of TensorFlow and tf.Transform: what each output is computed from.

python -m headway.from_tfx.recorder taxi_transform.py < inputs.json        # the outputs, as the last line of stdout

The code of the user runs here, in a process of its own: `tf` and `tft` are names whose calls give `Recorded` values. A value
without a counterpart is a Remark with the file and line of its call, and so is whatever is computed of it.
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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headway.from_tfx.tf_calls import row_of, translated
from headway.from_tfx.values import Analyzed, Part, Raw, Ref, Remark, Rows, Untranslatable, tidy

FUNCTION = "preprocessing_fn"
_STOOD_FOR = {"tensorflow": "tf", "tensorflow_transform": "tft", "keras": "keras", "tf_keras": "tf_keras"}
_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "and": "&", "or": "|",
    "xor": "^", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "neg": "-", "pos": "+", "invert": "~",
}  # fmt: skip
_KINDS = {"bytes": "tf.string", "int64": "tf.int64", "float32": "tf.float32"}
_OWN = str(Path(__file__).parent)
_INSTALLED = tuple(sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib"))


def _users(file: str) -> bool:
    return not file.startswith((_OWN, *_INSTALLED, "<frozen "))


def _here() -> tuple[str, int]:
    """The file and line of the user's code that called the recorder."""
    frame = sys._getframe(1)
    while frame.f_back is not None and not _users(frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


class _Known(Exception):
    """Raised by the use of a value that has no counterpart: its remark says why."""


class Recorded:
    """A tensor of the recorder: Rows, Analyzed, a Part, or the Remark that says why it has no counterpart."""

    __array_ufunc__ = None
    """NumPy leaves operators to this class, and refuses its own functions."""

    def __init__(self, compute: Callable[[], Any]):
        self.place = _here()
        try:
            self.value = compute()
        except _Known as error:
            self.value = error.args[0]
        except Untranslatable as error:
            self.value = Remark(*self.place, error.problem, error.fix)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if isinstance(self.value, Remark):
            return self
        if name == "dtype" and isinstance(self.value, Rows) and self.value.raw:
            return _name(_KINDS[self.value.raw.type])
        return Recorded(lambda: Part(self.value, name))

    def __getitem__(self, key: Any) -> Recorded:
        return self if isinstance(self.value, Part | Remark) else _refused("a part of a column is not read")

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if isinstance(self.value, Remark):
            return _decorated(args, keywords) or self
        return _refused("a method of a tensor is not read")

    def __enter__(self) -> Recorded:
        return self

    def __exit__(self, *error: object) -> None:
        """End of tf.name_scope and the like."""

    def __bool__(self) -> bool:
        raise TypeError("a branch depends on the rows: use tf.where")

    def __iter__(self) -> Any:
        raise TypeError("a loop, or an assignment to several names, depends on the rows")


def _refused(problem: str) -> Recorded:
    def refuse() -> None:
        raise Untranslatable(problem)

    return Recorded(refuse)


def _operator(sign: str, form: str) -> Callable[..., Recorded]:
    """A method of Recorded whose rows are Python of this form."""

    def operator(*given: Any) -> Recorded:
        return Recorded(lambda: Rows(tidy(form.format(*(row_of(_plain(value), sign) for value in given)))))

    return operator


for _method, _sign in _OPERATORS.items():
    if _method in ("neg", "pos", "invert"):
        setattr(Recorded, f"__{_method}__", _operator(_sign, f"{_sign}({{}})"))
    else:
        setattr(Recorded, f"__{_method}__", _operator(_sign, f"({{0}}) {_sign} ({{1}})"))
        setattr(Recorded, f"__r{_method}__", _operator(_sign, f"({{1}}) {_sign} ({{0}})"))


def _plain(value: Any) -> Any:
    """An argument as a value of the rows or a constant."""
    if isinstance(value, Recorded):
        if isinstance(value.value, Remark):
            raise _Known(value.value)
        return value.value
    if isinstance(value, Name):
        if not value.path.startswith("tf."):
            raise Untranslatable(f"{value.path} is not read", "write the value itself")
        return Ref(value.path)
    if type(value) in (list, tuple):
        return type(value)([_plain(item) for item in value])
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
        def call() -> Any:
            if not self.path.startswith(("tf.", "tft.")):
                raise Untranslatable(f"{self.path} is not read: only tf, tft and Python that is installed are")
            return translated(self.path, _plain([*args]), {key: _plain(value) for key, value in keywords.items()})

        return _decorated(args, keywords) or Recorded(call)

    def __instancecheck__(self, value: Any) -> bool:
        if not isinstance(value, Recorded):
            return False
        rows = value.value
        sparse = isinstance(rows, Rows) and rows.raw and rows.raw.sparse and rows.source.startswith("columns[")
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

    def __init__(self, name: str):
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        whole = f"{self.__name__}.{attribute}"
        if _Modules.beside(whole) is not None:
            return importlib.import_module(whole)
        first, dot, rest = whole.partition(".")
        return _name(f"{_STOOD_FOR.get(first, first)}{dot}{rest}")


class _Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what the user's files import and is not there: files beside them, and stand-ins for all others."""

    folders: tuple[Path, ...] = ()

    @classmethod
    def beside(cls, dotted: str) -> Path | None:
        """The file of a module in a folder of the user's, whatever package it is said to be in."""
        files = (folder / f"{dotted.rpartition('.')[2]}.py" for folder in cls.folders)
        return (
            None if dotted.partition(".")[0] in _STOOD_FOR else next((file for file in files if file.is_file()), None)
        )

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
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
        return _refused(f"there is no {name!r} in the examples")


def record(path: Path, inputs: Mapping[str, Raw]) -> dict[str, Any]:
    """The outputs of a file's preprocessing_fn as JSON, or the error of the user's code with its place."""
    folder = path.resolve().parent
    _Modules.folders = (folder, *folder.parents[:2])
    sys.path += [str(folder) for folder in _Modules.folders]
    sys.meta_path.append(_Modules())
    sys.modules |= {name: _StandIn(name) for name in _STOOD_FOR}
    module = types.ModuleType("transform")
    module.__file__, module.__package__ = str(path), folder.name
    sys.modules["transform"] = module
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
        function = module.__dict__.get(FUNCTION)
        if not callable(function):
            fix = "name the file of the Transform component"
            return {"error": f"it has no function {FUNCTION}(inputs)", "fix": fix}
        outputs = function(_Inputs({name: _column(raw) for name, raw in inputs.items()}))
    except BaseException as error:
        places = [frame for frame in traceback.extract_tb(error.__traceback__) if _users(frame.filename)]
        at = (places[-1].filename, places[-1].lineno) if places else (str(path), 0)
        said = ": ".join([f"{FUNCTION} raises {type(error).__name__}", *str(error).splitlines()[:1]])
        return {"error": said, "file": at[0], "line": at[1]}
    line = getattr(getattr(function, "__code__", None), "co_firstlineno", 1)
    if not isinstance(outputs, dict):
        return {"error": f"{FUNCTION} returns no dict of columns", "file": str(path), "line": line}
    return {"outputs": {str(key): _output(value, (str(path), line)) for key, value in outputs.items()}}


def _column(raw: Raw) -> Recorded:
    return Recorded(lambda: Rows(f"columns[{raw.name!r}]", raw))


def _output(value: Any, function: tuple[str, int]) -> dict[str, Any]:
    """An output as the fields of an Output."""
    made = isinstance(value, Recorded)
    place = value.place if made and _users(value.place[0]) else function
    match value.value if made else None:
        case Rows(source):
            return {"place": place, "source": source}
        case Analyzed(of, op, notes):
            return {"place": place, "source": of.source, "op": op, "notes": notes}
        case Remark(file, line, problem, fix):
            return {"place": (file, line), "problem": problem, "fix": fix}
    return {"place": place}


def _main() -> None:
    with contextlib.redirect_stdout(sys.stderr):
        result = record(Path(sys.argv[1]), {name: Raw(**raw) for name, raw in json.load(sys.stdin).items()})
    print("\n" + json.dumps(result), flush=True)
    os._exit(0)  # threads that the user's code started do not keep the process


if __name__ == "__main__":
    _main()
