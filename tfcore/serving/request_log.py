"""Logs a share of the rows that were asked, with what was predicted, as files of JSON lines that appear whole.

    log = RequestLog(store, "flights", rate=0.01)
    log.add(model, rows, outputs)         # never blocks and never fails
    log.close()                           # what is left is written

Files lie in <store>/requests/<model>/<day>/. A line is a request, in the form that `validation.serving` reads: its
"instances" have the columns by their names, and nulls are left out. Beside them stand "predictions", "version",
"signature_name" and "time", and the client's "keys", by which rows can be found again.
"""

import json
import math
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.messages import counted
from headway.schema.columns import Column
from headway.schema.tensor_name import LENGTH, PRESENT
from headway.storage.process_identity import place
from headway.storage.store import Store
from headway.validation.request_rows import FOLDER
from tfcore.export.signatures import tensor_names
from tfcore.serving.request_json import Rows
from tfcore.serving.response_json import of_rows, plain, text
from tfcore.serving.served_model import ServedModel

FILE_BYTES = 8 << 20
FILE_SECONDS = 60.0
"""A file is written when it has so many bytes, or its first line is so old."""
MOST_WAITING = 32 << 20
"""Bytes of the rows that wait to be written; more are dropped, so that a slow disk costs neither memory nor answers."""
_EMPTY_ROW = 1 << 10
"""What a request takes besides its values."""

Arrays = Mapping[str, NDArray[Any]]


class RequestLog:
    """The log of requests and predictions; safe to call from any thread.

    Args:
        rate: the share of rows that is logged, drawn at random; 0: none.
        say: takes a line for a person.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        rate: float,
        say: Callable[[str], None] = lambda line: None,
        seconds: float = FILE_SECONDS,
    ):
        self.folder = store.root / FOLDER / name
        self.rows = 0
        """Written so far."""
        self.dropped = 0
        """Rows that were drawn and not written."""
        self._store, self._rate, self._say, self._seconds = store, rate, say, seconds
        self._random = np.random.default_rng()
        self._waiting: queue.SimpleQueue[tuple[int, ServedModel, Rows, Arrays, float] | None] = queue.SimpleQueue()
        self.waiting_bytes, self._counting = 0, threading.Lock()
        self._files = 0
        self._said = ""
        self._thread = threading.Thread(target=self._run, name="request-log", daemon=True)
        if rate:
            self._thread.start()

    def add(self, model: ServedModel, rows: Rows, outputs: Arrays) -> None:
        """Log these rows, or a sample of them. Rows of `serve_examples` have no columns and are left out."""
        if not self._rate or not any(t.column for t in model.signatures[rows.signature].inputs):
            return
        drawn = (
            np.flatnonzero(self._random.random(rows.count) < self._rate) if self._rate < 1 else np.arange(rows.count)
        )
        if not len(drawn):
            return
        if len(drawn) < rows.count:
            rows, outputs = rows.take(drawn), {name: array[drawn] for name, array in outputs.items()}
        size = _EMPTY_ROW + sum(_bytes(array) for array in (*rows.arrays.values(), *outputs.values()))
        size += len(repr(rows.keys))
        with self._counting:
            fits = not self.waiting_bytes or self.waiting_bytes + size <= MOST_WAITING
            if fits:
                self.waiting_bytes += size
            else:
                self.dropped += len(drawn)
        if fits:
            self._waiting.put((size, model, rows, outputs, time.time()))

    def close(self) -> None:
        """Write the remaining rows; no rows may be added afterwards."""
        if self._rate:
            self._waiting.put(None)
            self._thread.join()
        if self.dropped:
            self._say(
                f"{counted(self.dropped, 'row was', 'rows were')} not logged: the store was too slow or refused them"
            )

    def _run(self) -> None:
        lines: list[str] = []
        rows, size, until = 0, 0, math.inf
        ended = False
        while not ended:
            try:
                item = self._waiting.get(timeout=None if until == math.inf else max(0.0, until - time.monotonic()))
                ended = item is None
                if item is not None:
                    line = _line(*item[1:])
                    if not lines:
                        until = time.monotonic() + self._seconds
                    lines.append(line)
                    rows, size = rows + item[2].count, size + len(line)
                    with self._counting:
                        self.waiting_bytes -= item[0]
            except queue.Empty:
                pass
            if lines and (ended or size >= FILE_BYTES or time.monotonic() >= until):
                self._write(lines, rows)
                lines, rows, size, until = [], 0, 0, math.inf

    def _write(self, lines: list[str], rows: int) -> None:
        now = datetime.now(UTC)
        self._files += 1
        name = f"{now:%H%M%S}-{place()}-{os.getpid()}-{self._files:05d}.jsonl"
        try:
            self._store.replace(self.folder / f"{now:%Y-%m-%d}" / name, "".join(lines))
            self.rows += rows
        except Exception as error:  # a full disk: answers go on
            with self._counting:
                self.dropped += rows
            if str(error) != self._said:
                self._said = str(error)
                self._say(f"requests cannot be logged: {error}")


def _line(model: ServedModel, rows: Rows, outputs: Arrays, at: float) -> str:
    entry = {
        "time": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "version": model.version,
        "signature_name": rows.signature,
        "instances": _logged(model.metadata.columns, rows),
        "predictions": of_rows({name: plain(name, array) for name, array in sorted(outputs.items())}),
    }
    if rows.keys is not None:
        entry["keys"] = rows.keys
    entry |= {name: value.item() for name, value in rows.arguments.items()}
    return json.dumps(entry) + "\n"


def _bytes(array: NDArray[Any]) -> int:
    """The memory of an array with its texts."""
    return array.nbytes + (sum(map(sys.getsizeof, array.flat)) if array.dtype == np.object_ else 0)


def _logged(columns: tuple[Column, ...], rows: Rows) -> list[dict[str, Any]]:
    """Rows by the names of their columns, without nulls."""
    found: list[dict[str, Any]] = [{} for _ in range(rows.count)]
    for column, name in zip(columns, tensor_names(columns).values(), strict=True):
        values = rows.arrays[name]
        present: NDArray[np.bool_] = np.ones(rows.count, np.bool_)
        if name + PRESENT in rows.arrays:
            present = rows.arrays[name + PRESENT]
        elif column.nullable and column.type == "float32" and not column.is_list:
            present = np.asarray(~np.isnan(values).reshape(len(values), -1).all(axis=1))
        lengths = rows.arrays[name + LENGTH].tolist() if name + LENGTH in rows.arrays else None
        for at, (value, is_known) in enumerate(zip(values.tolist(), present.tolist(), strict=True)):
            if is_known:
                value = value[: lengths[at]] if lengths is not None else value
                found[at][column.name] = _value(value)
    return found


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(item) for item in value]
    return text(value) if isinstance(value, bytes) else value
