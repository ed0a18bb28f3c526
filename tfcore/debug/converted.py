"""Records which functions AutoGraph converts during a trace, and the code it makes of them.

    with conversions([Path("features.py")]) as functions:
        dataset.map(preprocess)
    [Converted.of(function) for function in functions]

Watched where it happens, since whether AutoGraph converts a function is decided by who traces it: Headway's training
step is traced without it, so Python's `if` and `for` in a layer of the user's run while it is traced.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import tensorflow as tf

from tfcore.private_api import converting


@dataclass(frozen=True)
class Converted:
    """A function that AutoGraph converted, and the code that it made."""

    name: str
    place: str
    """ "features.py:12"."""
    code: str

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Self:
        code = getattr(inspect.unwrap(function), "__code__", None)
        place = f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else "?"
        try:
            text = tf.autograph.to_code(function)
        except Exception as error:  # its source is not to be had, or AutoGraph does not understand it
            text = f"# AutoGraph cannot show it: {(str(error).strip().splitlines() or [type(error).__name__])[0]}"
        return cls(getattr(function, "__qualname__", repr(function)), place, text)


@contextmanager
def conversions(files: Sequence[Path]) -> Iterator[list[Callable[..., Any]]]:
    """List the functions of `files` (or folders) that AutoGraph converts within the block; each once, in order."""
    paths = [file.resolve() for file in files]
    converted: dict[Any, Callable[..., Any]] = {}

    def noting(convert: Callable[..., Any]) -> Callable[..., Any]:
        def note(entity: Any, context: Any) -> Any:
            code = getattr(inspect.unwrap(entity), "__code__", None)
            if code is not None:
                path = Path(code.co_filename).resolve()
                if any(path == file or file in path.parents for file in paths):
                    converted.setdefault(code, entity)
            return convert(entity, context)

        return note

    functions: list[Callable[..., Any]] = []
    try:
        with converting(noting):
            yield functions
    finally:
        functions += converted.values()
