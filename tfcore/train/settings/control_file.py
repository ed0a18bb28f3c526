"""The control file: knobs of a running training, changed by hand."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway.errors import ConfigError
from headway.storage.atomic_io import replace_text


class ControlFile:
    """A small JSON file, {"learning_rate": 0.0001}, that a running training polls between its calls.

    Written whole by `write`, or by hand. What it says of a training that is over says nothing of the next one.
    """

    def __init__(self, path: Path):
        self.path = path
        self._last_mark: tuple[int, int] | None = None

    def begin(self) -> None:
        """Delete settings that were meant for an earlier training."""
        self.path.unlink(missing_ok=True)
        self._last_mark = None

    def news(self) -> dict[str, Any] | None:
        """Return the file's values if it changed since the last call, else None.

        Raises:
            ConfigError: it is not a JSON object.
        """
        try:
            info = self.path.stat()
        except OSError:
            return None
        mark = info.st_mtime_ns, info.st_size
        if mark == self._last_mark:
            return None
        self._last_mark = mark
        return self.read()

    def read(self) -> dict[str, Any]:
        """Return the file's values; {} if there is no file."""
        try:
            value = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"is not JSON: {error}", where=str(self.path), fix='{"learning_rate": 0.0001}') from None
        if not isinstance(value, dict):
            raise ConfigError("is not a JSON object", where=str(self.path), fix='{"learning_rate": 0.0001}')
        return value

    def write(self, values: Mapping[str, float | None]) -> None:
        """Merge values into the file, in one rename."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(self.path, json.dumps(self.read() | dict(values), indent=1) + "\n")
