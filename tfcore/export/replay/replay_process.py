"""Runs `tfcore/export/replay/replay_main.py` in a fresh process that has only TensorFlow, to check an exported model.

    answer = ReplayProcess().ask(replay_request(...), monitor)

In the TensorFlow process this is the one that `tfcore.runtime.start` forked from it before it had anything else. Elsewhere, and
for a second replay, the script is run by its path, isolated from the environment. TensorFlow-free.
"""

import contextlib
import importlib.util
import queue
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.errors import HeadwayError
from headway.monitor import Monitor
from headway.process import ChildProcess, Forked, Scratch
from headway.records.encode import feature_spec
from headway.schema.columns import Column
from tfcore.export.metadata import OtherFormats
from tfcore.export.signatures import tensor_names

SECONDS = 300.0
"""A replay that takes longer than this hangs."""


class ReplayProcess:
    """A fresh Python process that runs the replay script: used once."""

    def __init__(self) -> None:
        self._process: ChildProcess | None = None
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def start(self) -> None:
        """Start the process unless it runs; it imports TensorFlow and waits."""
        if self._process is None:
            forked = (Forked.waiting.pop(), Scratch("child")) if Forked.waiting else None
            arguments, folder = ["-I", script()], tempfile.gettempdir()
            self._process = ChildProcess(arguments, self._answers.put, folder=folder, process=forked)

    def ask(self, request: Mapping[str, Any], monitor: Monitor) -> dict[str, Any]:
        """Send a request and return the answer; HeadwayError when the process fails."""
        self.start()
        process, until = self._process, time.monotonic() + SECONDS
        assert process is not None
        try:
            process.send(request)
            while time.monotonic() < until:
                monitor.check()
                with contextlib.suppress(queue.Empty):
                    if (answer := self._answers.get(timeout=0.1)) is not None:
                        return answer
                    problem = f"the replay process {process.fate()} and gave no answer{process.last_lines()}"
                    raise HeadwayError(problem, fix="run 'headway doctor'")
            raise HeadwayError(f"the replay process did not answer within {SECONDS:.0f} s")
        finally:
            self.close()  # it is used up

    def close(self) -> None:
        """End the process, in whatever state it is."""
        process, self._process, self._answers = self._process, None, queue.Queue()
        if process is not None:
            process.close(0.5)


def script() -> str:
    """Return the path of the replay script, found without importing TensorFlow."""
    spec = importlib.util.find_spec("tfcore.export.replay.replay_main")
    if spec is None or spec.origin is None:
        raise HeadwayError("tfcore/export/replay/replay_main.py is not installed", fix="install headway again")
    return spec.origin


def replay_request(
    saved_model: Path,
    columns: Sequence[Column],
    shards: Sequence[Mapping[str, Any]],
    expected: Path,
    *,
    output: str,
    bound: float,
    measured: Sequence[int] = (),
    timed_seconds: float = 0.0,
    formats: OtherFormats | None = None,
) -> dict[str, Any]:
    """Build the request to the replay script, which documents it."""
    names = tensor_names(columns)
    return {
        "saved_model": str(saved_model),
        "spec": feature_spec(columns),
        "columns": [
            {
                "name": column.name,
                "tensor": names[column.name],
                "dtype": column.type,
                "nullable": column.nullable,
                "dictionary": column.encoding == "dictionary",
                "shape": list(column.shape),
            }
            for column in columns
        ],
        "shards": list(shards),
        "expected": str(expected),
        "output": output,
        "bound": bound,
        "measured": list(measured),
        "timed_seconds": timed_seconds,
        "formats": None if formats is None else formats.model_dump(mode="json"),
    }
