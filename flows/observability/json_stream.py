"""Makes stderr a stream of JSON lines: what Headway says as records, whatever else prints there as records of its lines.

    take_over()                        # in the entry point of a process, when HEADWAY_LOG_FORMAT is json
    stream().write("run.started", pipeline="flights", run="...", message="...", fields={...})

A record has time (UTC), level, event, message, pipeline, run, stage, step, pid and fields; what is not known is null.
Descriptor 2 becomes a pipe that a thread reads, so that libraries, native code and processes that inherit it cannot break the
format.
"""

import atexit
import contextlib
import json
import logging
import math
import os
import sys
import threading
import traceback
import uuid
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from headway.messages import now
from headway.redaction import redact, redacted

VARIABLE = "HEADWAY_LOG_FORMAT"
_FLUSH_SECONDS = 2.0


class JsonStream:
    """Writes records as lines, whole even from several threads.

    Args:
        put: takes each line, with its newline.
    """

    def __init__(self, put: Callable[[bytes], object]):
        self._put, self._lock = put, threading.Lock()
        self._error = ""
        self.pipeline: str | None = None
        """What the process is about, once it has read a pipeline.yaml: of the records that name none themselves."""

    def write(
        self,
        event: str,
        message: str,
        *,
        level: str = "info",
        fields: Mapping[str, Any] | None = None,
        pipeline: str | None = None,
        run: str | None = None,
        stage: str | None = None,
        step: str | None = None,
    ) -> None:
        """Write a record, without secrets; a reader that left costs nothing."""
        record = {
            "time": now(),
            "level": level,
            "event": event,
            "message": redact(message),
            "pipeline": pipeline or self.pipeline,
            "run": run,
            "stage": stage,
            "step": step,
            "pid": os.getpid(),
            "fields": _finite(redacted(dict(fields or {}))),
        }
        line = json.dumps(record, default=str, ensure_ascii=False, allow_nan=False) + "\n"
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._put(line.encode("utf-8", "replace"))

    def once(self, error: str, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a record has of an error: nothing where the record before that told of one has the same."""
        before, self._error = self._error, redact(error)
        return {} if before == self._error else facts


def _finite(value: Any) -> Any:
    """The value with null for what JSON has no number for."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple | set) else value


class _Stderr:
    """This process's stderr as such a stream."""

    def __init__(self) -> None:
        sys.stderr.flush()
        self._out = os.dup(2)
        self._end = uuid.uuid4().hex.encode()
        self._ended = threading.Event()
        reading, writing = os.pipe()
        os.dup2(writing, 2)  # inheritable, as a process's stderr is
        os.close(writing)
        self.stream = JsonStream(self._whole)
        self._reader = threading.Thread(target=self._relay, args=(reading,), name="stderr-lines", daemon=True)
        self._reader.start()

    def _whole(self, line: bytes) -> None:
        while line:
            line = line[os.write(self._out, line) :]

    def _relay(self, reading: int) -> None:
        with os.fdopen(reading, "rb") as lines:
            for raw in lines:
                if self._end in raw:
                    raw = raw.replace(self._end, b"")
                    self._ended.set()
                if line := raw.decode("utf-8", "replace").strip("\r\n"):
                    self.stream.write("line", line, fields={"source": "stderr"})
                if self._ended.is_set():
                    break
            self._ended.set()
            for _ in lines:  # of processes that outlive this one
                pass

    def close(self) -> None:
        """Write what has been printed so far; what is printed later is dropped."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
            os.write(2, self._end + b"\n")
            self._ended.wait(_FLUSH_SECONDS)


_TAKEN: list[_Stderr] = []


def take_over() -> None:
    """Make this process's stderr a JSON stream; once is enough. One that was closed (`2>&-`) stays closed."""
    if _TAKEN or sys.stderr is None:
        return
    _TAKEN.append(_Stderr())
    atexit.register(_TAKEN[0].close)
    sys.excepthook = _crashed
    threading.excepthook = lambda args: _crashed(args.exc_type, args.exc_value, args.exc_traceback)


def stream() -> JsonStream | None:
    """The process's JSON stream; None: its stderr is for people."""
    return _TAKEN[0].stream if _TAKEN else None


def about(pipeline: str) -> None:
    """From now on the process's records are about this pipeline, where they name none themselves."""
    if (told := stream()) is not None:
        told.pipeline = pipeline


def asked_for() -> bool:
    """Whether the environment asks for it."""
    return os.environ.get(VARIABLE) == "json"


def _crashed(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> None:  # one record, however long its traceback is
    text = "".join(traceback.format_exception(kind, error, trace))
    told = stream()
    if told is not None and not issubclass(kind, SystemExit):
        told.write("crashed", f"{kind.__name__}: {error}", level="error", fields={"traceback": text})


class LogHandler(logging.Handler):
    """Records of Python's logging on the JSON stream; takes the place of Prefect's handler for the console.

    Headway's own lines, which its listeners write as events, are left out: they carry `headway`.
    """

    def __init__(self, stream: object = None, styles: object = None, level: int = logging.NOTSET):
        super().__init__(level)

    def emit(self, record: logging.LogRecord) -> None:
        told = stream()
        if told is None or getattr(record, "headway", False):
            return
        fields: dict[str, Any] = {"logger": record.name}
        if record.exc_info:
            fields["traceback"] = record.exc_text or "".join(traceback.format_exception(*record.exc_info))
        for name in ("flow_run_name", "task_run_name"):
            if getattr(record, name, None):
                fields[name] = getattr(record, name)
        level = "debug" if record.levelno < logging.INFO else record.levelname.lower()
        told.write("log", record.getMessage(), level={"critical": "error"}.get(level, level), fields=fields)
