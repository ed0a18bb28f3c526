"""Calls a preprocessing_fn with a recorder in place of TensorFlow and tf.Transform: what each output is computed from.

outputs = read_preprocessing_fn("taxi_transform.py", {"fare": Raw("fare", "float32")})
outputs["fare_xf"]                  # Rows("columns['fare']", ..., op="standardize")

The code of the user runs in a process of its own: `tf` and `tft` are names there, whose calls give `Recorded` values. A value
without a counterpart is a Remark with the file and line of its call, and so is whatever is computed of it.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.abc
import importlib.util
import multiprocessing
import os
import sys
import sysconfig
import traceback
import types
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from headway.errors import ConfigError, DataError, HeadwayError
from headway.from_tfx.tf_calls import row_of, translated
from headway.from_tfx.values import Part, Raw, Ref, Remark, Rows, Untranslatable, column, computed
from headway.storage import filesystem as storage

FUNCTION = "preprocessing_fn"
_STOOD_FOR = {"tensorflow": "tf", "tensorflow_transform": "tft", "keras": "keras", "tf_keras": "tf_keras"}
_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "and": "&", "or": "|",
    "xor": "^", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "neg": "-", "invert": "~",
}  # fmt: skip
_KINDS = {"bytes": "tf.string", "int64": "tf.int64", "float32": "tf.float32"}
_OWN = str(Path(__file__).parent)
_LIBRARIES = (_OWN, "<frozen ", *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))


def _users(file: str) -> bool:
    return not file.startswith(_LIBRARIES)


def _here(passed: tuple[str, ...] = _LIBRARIES) -> tuple[str, int]:
    """The file and line of the user's code that called the recorder: the first that is of none of these folders."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(passed):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


class Recorded:
    """A tensor of the recorder: Rows, a Part, or the Remark that says why it has no counterpart."""

    __array_ufunc__ = None
    """NumPy leaves operators to this class, and refuses its own functions."""

    def __init__(self, compute: Callable[[], Any]):
        self.place = _here()
        try:
            self.value = compute()
        except Untranslatable as error:
            known = error.args[0]
            self.value = known if isinstance(known, Remark) else Remark(*self.place, *error.args)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if isinstance(self.value, Remark):
            return self
        if name == "dtype" and isinstance(self.value, Rows) and self.value.raw and "tf.cast" not in self.value.source:
            return _name(_KINDS[self.value.raw.type])
        return self if name == "values" else Recorded(Part)

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
    return Recorded(lambda: Remark(*_here(), problem))


def _operator(sign: str, form: str) -> Callable[..., Recorded]:
    """A method of Recorded whose rows are Python of this form."""

    def compute(given: tuple[Any, ...]) -> Rows:
        values = [_plain(value) for value in given]
        return computed(form.format(*(row_of(value, sign) for value in values)), values)

    return lambda *given: Recorded(lambda: compute(given))


for _method, _sign in _OPERATORS.items():
    if _method in ("neg", "invert"):
        setattr(Recorded, f"__{_method}__", _operator(_sign, f"{_sign}({{}})"))
    else:
        setattr(Recorded, f"__{_method}__", _operator(_sign, f"({{0}}) {_sign} ({{1}})"))
        setattr(Recorded, f"__r{_method}__", _operator(_sign, f"({{1}}) {_sign} ({{0}})"))


def _plain(value: Any) -> Any:
    """An argument as a value of the rows or a constant."""
    if isinstance(value, Recorded):
        if isinstance(value.value, Remark):
            raise Untranslatable(value.value)
        return value.value
    if isinstance(value, Name):
        if not value._path.startswith("tf."):
            raise Untranslatable(f"{value._path} is not read", "write the value itself")
        return Ref(value._path)
    if type(value) in (list, tuple):
        return type(value)([_plain(item) for item in value])
    return value.tolist() if type(value).__module__ == "numpy" and hasattr(value, "tolist") else value


def _decorated(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """The function that a decorator such as tf.function is given."""
    return args[0] if len(args) == 1 and not keywords and isinstance(args[0], types.FunctionType) else None


class Name:
    """A name of TensorFlow, tf.Transform or a module that is not there: a module, a function, a type or a constant."""

    def __init__(self, path: str):
        self._path, self.__path__ = path, list[str]()

    def __getattr__(self, attribute: str) -> Name:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return _name(f"{self._path}.{attribute}")

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        def call() -> Any:
            if not self._path.startswith(("tf.", "tft.")):
                raise Untranslatable(f"{self._path} is not read: only tf, tft and Python that is installed are")
            return translated(self._path, _plain([*args]), {key: _plain(value) for key, value in keywords.items()})

        return _decorated(args, keywords) or Recorded(call)

    def __instancecheck__(self, value: Any) -> bool:
        if not isinstance(value, Recorded):
            return False
        rows = value.value
        sparse = isinstance(rows, Rows) and rows.raw and rows.raw.sparse and rows.constant is None
        return self._path.rpartition(".")[2] == ("SparseTensor" if sparse else "Tensor")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (object,)

    def __or__(self, other: Any) -> Name:
        """An annotation such as tf.Tensor | None."""
        return self

    __ror__ = __or__


@functools.cache
def _name(path: str) -> Name:
    first, dot, rest = path.partition(".")
    return Name(f"{_STOOD_FOR.get(first, first)}{dot}{rest}")


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what the user's files import and is not there: its names are recorded."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if not _users(_here((_OWN, "<frozen "))[0]):
            return None  # an import within a library, which may do without
        return importlib.util.spec_from_loader(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        return _name(spec.name)

    def exec_module(self, module: Any) -> None:
        """Nothing is run: attributes come with their use."""


class _Inputs(dict[str, Any]):
    def __missing__(self, name: str) -> Recorded:
        return _refused(f"there is no {name!r} in the examples")


def read_preprocessing_fn(path: str, inputs: Mapping[str, Raw], *, seconds: float = 300.0) -> dict[str, Rows | Remark]:
    """The outputs of a file's preprocessing_fn by name. It runs the code of the file.

    Args:
        inputs: the columns of the examples.
        seconds: how long the code may take.

    Raises:
        ConfigError: the file has no such function, raises an error or does not end.
        DataError: it is not there, or is not Python.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(sender, Path(path), dict(inputs)))
    child.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            problem = f"preprocessing_fn does not end within {seconds:g} seconds"
            raise ConfigError(problem, where=path, fix="look for a loop without end")
        outputs: dict[str, Rows | Remark] | HeadwayError = receiver.recv()
    except EOFError:
        child.join()
        problem = f"the process that ran it ended with exit status {child.exitcode}"
        raise ConfigError(problem, where=path, fix="see what it printed") from None
    finally:
        child.kill()
    if isinstance(outputs, HeadwayError):
        raise outputs
    return outputs


def _answer(sender: Connection, path: Path, inputs: Mapping[str, Raw]) -> NoReturn:
    """Send what `record` gives, or its error; the process ends then, whatever threads the user's code has started."""
    os.dup2(2, 1)  # its prints are not output of the command
    try:
        sender.send(record(path, inputs))
    except HeadwayError as error:
        sender.send(error)
    os._exit(0)


def record(path: Path, inputs: Mapping[str, Raw]) -> dict[str, Rows | Remark]:
    """The outputs of a file's preprocessing_fn by name; its errors as `read_preprocessing_fn` raises them."""
    folder = path.resolve().parent
    sys.path += map(str, (folder, *folder.parents[:2]))
    sys.meta_path.append(_Absent())
    stand_ins: dict[str, Any] = {name: _name(name) for name in _STOOD_FOR}
    sys.modules |= stand_ins
    module = types.ModuleType("transform")
    module.__file__, module.__package__ = str(path), folder.name
    sys.modules["transform"] = module
    with storage.reading(str(path)):
        source = path.read_bytes()
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
        function = module.__dict__.get(FUNCTION)
        columns = {name: column(raw) for name, raw in inputs.items()}
        outputs = callable(function) and function(
            _Inputs({name: Recorded(functools.partial(columns.get, name)) for name in columns})
        )
    except SyntaxError as error:
        raise DataError(f"it is not Python: {error.msg}", where=f"{error.filename}:{error.lineno}") from None
    except BaseException as error:
        places = [frame for frame in traceback.extract_tb(error.__traceback__) if _users(frame.filename)]
        where = f"{places[-1].filename}:{places[-1].lineno}" if places else str(path)
        said = ": ".join([f"{FUNCTION} raises {type(error).__name__}", *str(error).splitlines()[:1]])
        raise ConfigError(said, where=where) from None
    if not callable(function):
        fix = "name the file of the Transform component"
        raise ConfigError(f"it has no function {FUNCTION}(inputs)", where=str(path), fix=fix)
    line = getattr(getattr(function, "__code__", None), "co_firstlineno", 1)
    if not isinstance(outputs, dict):
        raise ConfigError(f"{FUNCTION} returns no dict of columns", where=f"{path}:{line}")
    return {str(key): _output(value, (str(path), line)) for key, value in outputs.items()}


def _output(value: Any, function: tuple[str, int]) -> Rows | Remark:
    """An output with its place: that of the function where it is a column as it came."""
    place = value.place if isinstance(value, Recorded) and _users(value.place[0]) else function
    said = value.value if isinstance(value, Recorded) else None
    if isinstance(said, Rows):
        return dataclasses.replace(said, place=place)
    return said if isinstance(said, Remark) else Remark(*place, "it is not a column that could be read")
