"""The outputs of a preprocessing_fn, learned by calling it in a process of its own.

outputs = read_preprocessing_fn("taxi_transform.py", {"fare": Raw("fare", "float32")})
outputs.values["fare_xf"]                  # Analyzed(of=Raw("fare"), op="standardize"), or Unknown with its remark
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import ConfigError, DataError
from headway.from_tfx.symbols import Raw, from_json, to_json

_SECONDS = 300.0


@dataclass(frozen=True)
class Outputs:
    """What a preprocessing_fn returns."""

    values: dict[str, Any]
    """Symbols (`headway.from_tfx.symbols`) or Unknown."""
    places: dict[str, tuple[str, int]]
    """The file and line in which each was made."""


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
        Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError("there is no such file", where=path, fix="name a file of this machine") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"it cannot be read: {error}", where=path) from None
    line = [sys.executable, "-P", "-m", "headway.from_tfx.recorder", path]
    request = json.dumps({name: to_json(raw) for name, raw in inputs.items()})
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
    where = f"{result.get('file')}:{result.get('line')}" if result.get("line") else path
    if "syntax" in result:
        raise DataError(f"it is not Python: {result['syntax']}", where=where)
    if "none" in result:
        raise ConfigError(result["none"], where=path, fix="name the file of the Transform component")
    if "error" in result:
        raise ConfigError(result["error"], where=where)
    values = {name: from_json(value) for name, value in result["values"].items()}
    return Outputs(values, {name: (place[0], place[1]) for name, place in result["places"].items()})
