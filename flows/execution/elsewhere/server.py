"""The worker's side: makes the steps that a run asks for, one order after the other, in one TensorFlow process.

    made = serve(store, folder, exchange, report, ready=lambda: None)        # ["train", "evaluate", "export"]

It ends when the run says so. Nothing here knows Prefect: `flows.stage_flow` is the flow around it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from flows.config.production import StageLimit
from flows.execution.elsewhere.exchange import Exchange
from flows.execution.elsewhere.order import steps_of
from flows.execution.engine import Engine
from flows.execution.tensorflow_process import Child
from flows.progress.terminal import Reporter
from headway.errors import Cancelled, ConfigError
from headway.messages import duration
from headway.monitor import Monitor
from headway.redaction import redact, redacted
from headway.storage.store import Store
from tfcore.runtime.worker import describe

NEWS_SECONDS = 1.0
_LINES = 200
"""So many last lines are kept for the run to read."""
FIRST_ORDER_SECONDS = 60.0
END_SECONDS = 2.0


def serve(
    store: Store,
    folder: Path,
    exchange: Exchange,
    report: Reporter,
    *,
    ready: Callable[[Callable[[str], None]], None] = lambda say: None,
) -> list[str]:
    """Make what is asked for; returns the titles of the steps that were made.

    Args:
        folder: the pipeline's, on this machine.
        ready: called before the first step that needs TensorFlow, with what tells the run a line: waits for a GPU.

    Raises:
        Cancelled: the run was stopped, or `report.stop` was set.
        ConfigError: nothing is asked for, in this store.
        HeadwayError: the last order failed; the run knows.
    """
    store.create()
    made: list[str] = []
    failed: Exception | None = None
    with Child(on_line=report.relay) as child, _stopped_by(exchange, report.stop):
        work = _Work(store, folder, exchange, report, child, ready)
        deadline = time.monotonic() + FIRST_ORDER_SECONDS
        number = 0
        while True:
            if (order := exchange.get(f"order-{number}")) is not None:
                failed = work.make(number, order)
                made += [] if failed else [step["title"] for step in order["steps"]]
                number += 1
                continue
            if (end := exchange.get("end")) is not None:
                break
            report.check()
            if number == 0 and time.monotonic() > deadline:
                raise ConfigError(
                    f"the flow asks for nothing under exchange/{exchange.name} of {store.name}",
                    where="store",
                    fix="the store of both workers must be the same: a bucket, or a folder that both see",
                )
            report.stop.wait(exchange.seconds)
    exchange.remove()
    if end.get("stop"):
        raise Cancelled("the flow that asked for this was stopped; what was done is kept")
    if failed is not None:
        raise failed
    return made


@contextlib.contextmanager
def _stopped_by(exchange: Exchange, stop: threading.Event) -> Iterator[None]:
    """Set `stop` once the run asks for it, also while the server of its state is away."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(END_SECONDS):
            if (exchange.get("end") or {}).get("stop"):
                stop.set()

    thread = threading.Thread(target=watch, name="exchange", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _Work:
    def __init__(
        self,
        store: Store,
        folder: Path,
        exchange: Exchange,
        report: Reporter,
        child: Child,
        ready: Callable[[Callable[[str], None]], None],
    ):
        self._store, self._folder, self._exchange, self._report = store, folder, exchange, report
        self._child, self._ready, self._is_ready = child, ready, False

    def make(self, number: int, order: dict[str, Any]) -> Exception | None:
        """Make the steps of an order and answer; returns the error that was answered, if any.

        Raises:
            Cancelled: this run is to stop; it is answered too.
        """
        monitor = _Relay(self._exchange, number, self._report, order["steps"][0]["title"])
        try:
            self._make(order, monitor)
        except Exception as error:
            monitor.flush()
            self._exchange.put(f"answer-{number}", {"error": redacted(describe(error))})
            if isinstance(error, Cancelled):
                raise
            return error
        monitor.flush()
        self._exchange.put(f"answer-{number}", {"made": True})
        return None

    def _make(self, order: dict[str, Any], monitor: _Relay) -> None:
        monitor.flush()  # the run hears at once that somebody is at it
        steps = steps_of(order, self._folder, self._store)
        stage = steps[0].stage
        self._store.refresh()
        missing = [step for step in steps if step.find(self._store) is None]
        if not missing:
            return
        if stage.tensorflow and not self._is_ready:
            self._ready(monitor.say)
            self._is_ready = True
        limit = order.get("limit")
        engine = Engine(
            self._store,
            child=self._child,
            monitor_for=lambda title: monitor,
            limits={stage.name: StageLimit.model_validate(limit)} if limit else {},  # type: ignore[dict-item]
        )
        for step in missing:
            (manifest,) = engine.make([step], monitor)
            self._report.note(f"{step.title}: {duration(manifest.seconds)}")


class _Relay(Monitor):
    """Reports to this run's log, and writes the same for the run that asked."""

    def __init__(self, exchange: Exchange, number: int, report: Reporter, title: str):
        super().__init__(report.stop)
        self._exchange, self._number, self._report = exchange, number, report
        self._inner = report.monitor(title)
        self._lines: list[str] = []
        self._first = 0
        self._progress: dict[str, Any] | None = None
        self._written = 0.0
        self._lock = threading.Lock()

    def progress(self, done: float, total: float | None, unit: str, **facts: Any) -> None:
        self._inner.progress(done, total, unit, **facts)
        self._progress = {"done": done, "total": total, "unit": unit, "facts": facts}
        self._write()

    def log(self, line: str) -> None:
        self._inner.log(line)
        self._keep(line)
        self._write()

    def say(self, line: str) -> None:
        """Tell both logs a line at once."""
        self.log(line)
        self.flush()

    def alive(self) -> None:
        self._inner.alive()

    def check(self) -> None:
        if self.cancelled():
            self._report.check()

    def flush(self) -> None:
        """Write now."""
        with self._lock:
            value = {"first": self._first, "lines": self._lines, "progress": self._progress}
            with contextlib.suppress(Exception):  # the run matters more than what it says
                self._exchange.put(f"news-{self._number}", value)
            self._written = time.monotonic()

    def _write(self) -> None:
        if time.monotonic() - self._written > max(NEWS_SECONDS, 5 * self._exchange.seconds):
            self.flush()

    def _keep(self, line: str) -> None:
        with self._lock:
            self._lines.append(redact(line))
            if len(self._lines) > _LINES:
                self._first += len(self._lines) - _LINES
                del self._lines[:-_LINES]
