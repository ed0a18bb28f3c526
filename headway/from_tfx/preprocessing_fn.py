"""The outputs of a preprocessing_fn, learned by calling it in a process of its own.

outputs = read_preprocessing_fn("taxi_transform.py", {"fare": Raw("fare", "float32")})
outputs.values["fare_xf"]                  # Output(("taxi_transform.py", 7), source="columns['fare']", op="standardize")
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headway.errors import ConfigError, DataError
from headway.from_tfx.values import Raw

_SECONDS = 300.0


@dataclass(frozen=True)
class Output:
    """One column that a preprocessing_fn returns."""

    place: tuple[str, int]
    """The file and line in which it was made."""
    source: str = ""
    """Python of `columns`; "": it has no counterpart, for the reason that `problem` gives."""
    op: Any = None
    """As `columns:` of pipeline.yaml has it; None: nothing is fitted."""
    notes: Sequence[str] = ()
    problem: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Outputs:
    """What a preprocessing_fn returns."""

    values: dict[str, Output]
    raws: dict[str, Raw]
    """The columns of the examples by name."""


def read_preprocessing_fn(path: str, inputs: Mapping[str, Raw], *, seconds: float = _SECONDS) -> Outputs:
    """The outputs of a file's preprocessing_fn by name. It runs the code of the file.

    Args:
        inputs: the columns of the examples.
        seconds: how long the code may take.

    Raises:
        ConfigError: the file is not there, has no such function, raises an error or does not end.
        DataError: it is not Python.
    """
    try:
        compile(Path(path).read_text(encoding="utf-8"), path, "exec")
    except FileNotFoundError:
        raise ConfigError("there is no such file", where=path, fix="name a file of this machine") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"it cannot be read: {error}", where=path) from None
    except SyntaxError as error:
        raise DataError(f"it is not Python: {error.msg}", where=f"{path}:{error.lineno}") from None
    line = [sys.executable, "-P", "-m", "headway.from_tfx.recorder", path]
    request = json.dumps({name: asdict(raw) for name, raw in inputs.items()})
    try:
        child = subprocess.run(line, input=request, capture_output=True, text=True, errors="replace", timeout=seconds)
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"preprocessing_fn does not end within {seconds:g} seconds", where=path, fix="look for a loop without end"
        ) from None
    last = child.stdout.rstrip("\n").rpartition("\n")[2]
    if child.returncode or not last:
        said = child.stderr.strip().rpartition("\n")[2]
        raise ConfigError(f"the process that ran it ended with exit status {child.returncode}: {said}", where=path)
    result = json.loads(last)
    if "error" in result:
        where = f"{result['file']}:{result['line']}" if result.get("line") else path
        raise ConfigError(result["error"], where=where, fix=result.get("fix"))
    values = {name: Output(**output | {"place": tuple(output["place"])}) for name, output in result["outputs"].items()}
    return Outputs(values, {raw.name: raw for raw in inputs.values()})
