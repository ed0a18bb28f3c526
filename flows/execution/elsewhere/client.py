"""The run's side of stages on other workers: a session for each queue, which takes one order after the other.

    with Elsewhere(run_spec, report) as elsewhere:
        engine = Engine(store, child=child, monitor_for=..., elsewhere=elsewhere)

The first step of a queue starts a run on a worker of it; the steps of that queue that follow go to the same one, so that it
imports TensorFlow once. What the worker makes is found in the store, as whatever was there already.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

from flows.dag.run_spec import RunSpec, StageRun
from flows.dag.step import Stage, Step
from flows.execution.elsewhere.exchange import Exchange
from flows.execution.elsewhere.order import order_of
from flows.execution.tensorflow_process import error_of
from flows.progress.terminal import Reporter
from headway.errors import Cancelled, HeadwayError, StoreError
from headway.messages import listed
from headway.monitor import Monitor
from headway.storage.manifest import Manifest

LOOK_SECONDS = 3.0
"""How often the other run's state is asked for."""
PATIENCE_SECONDS = 15.0
"""A worker that has not begun after so long is worth a line; again after twice the time."""
IDLE_SECONDS = 30.0
"""A worker that has nothing to do for so long is let go: its GPU is for others while this run evaluates, gates, replays."""
SAVE_SECONDS = 75.0
"""How long a run that is to stop gets to save."""


class Elsewhere(contextlib.AbstractContextManager["Elsewhere"]):
    """Gives the worker of a stage, and ends the sessions with the run."""

    def __init__(self, run_spec: RunSpec, report: Reporter):
        self._run_spec, self._report = run_spec, report
        self._sessions: dict[str, Session] = {}

    def __call__(self, stage: Stage) -> Session | None:
        """The session that makes the steps of a stage; None: they are made here."""
        queue = self._run_spec.loaded.pipeline.queue_of(stage.name, tensorflow=stage.tensorflow)
        if queue is None or self._run_spec.start is None:
            return None
        if queue not in self._sessions:
            self._sessions[queue] = Session(self._run_spec, queue, self._report)
        return self._sessions[queue]

    def __exit__(self, *exc: object) -> None:
        for session in self._sessions.values():
            session.close()


class Session:
    """A run on a worker of one queue; started by the first step."""

    def __init__(self, run_spec: RunSpec, queue: str, report: Reporter):
        self._run_spec, self._queue, self._report = run_spec, queue, report
        self._run: StageRun | None = None
        self._exchange: Exchange
        self._orders = 0
        self._asked = False
        """Whether an order is not answered yet."""
        self._lock = threading.Lock()
        self._idle: threading.Timer | None = None

    def make(self, steps: Sequence[Step], monitor: Monitor) -> list[Manifest]:
        """Have steps, all of one stage, made by the worker; returns the manifests of what it committed.

        Raises:
            Cancelled: this run or the other was cancelled.
            HeadwayError: as the stage raises there; or the other run died, or its store is another.
        """
        store = self._run_spec.store
        order = order_of(steps, self._run_spec.loaded, store)
        with self._lock:
            exchange = self._begin(steps[0].title)
            number, self._orders = self._orders, self._orders + 1
            self._asked = True
        try:
            exchange.put(f"order-{number}", order)
            answer = self._answer(exchange, number, steps, monitor)
            self._rest()
            self._take(answer, steps[0])
        except Cancelled:
            self._stop()
            raise
        store.refresh()
        manifests = [store.find(step.stage.name, step.fingerprint) for step in steps]
        for step, manifest in zip(steps, manifests, strict=True):
            if manifest is None:
                problem = f"{step.title} was made on {self._queue}, and is not here"
                fix = "the store of both workers must be the same: a bucket, or a folder that both see"
                raise StoreError(problem, where=str(store.output(step.stage.name, step.fingerprint)), fix=fix)
        return [manifest for manifest in manifests if manifest is not None]

    def _rest(self) -> None:
        """The order is answered; the next one may be long in coming."""
        self._asked = False
        if self._idle is not None:
            self._idle.cancel()
        self._idle = threading.Timer(IDLE_SECONDS, self._let_go)
        self._idle.daemon = True
        self._idle.start()

    def _let_go(self) -> None:
        with self._lock:
            if not self._asked:
                self._end()

    def close(self) -> None:
        """Let the worker go; it ends when it has read so."""
        if self._idle is not None:
            self._idle.cancel()
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._run is not None:
            with contextlib.suppress(HeadwayError, OSError):  # it sees the end of this run by itself
                self._exchange.put("end", {"stop": self._asked})
            self._run = None

    def _begin(self, title: str) -> Exchange:
        if self._run is None:
            assert self._run_spec.start is not None
            name = f"{self._run_spec.loaded.pipeline.name}-{self._queue}-{uuid.uuid4().hex[:12]}"
            self._exchange, self._orders = Exchange(self._run_spec.store, name), 0
            self._run = self._run_spec.start(self._queue, name, title)
            self._report.note(f"{title} and what follows on {self._queue}: {self._run.name}")
        return self._exchange

    def _answer(self, exchange: Exchange, number: int, steps: Sequence[Step], monitor: Monitor) -> dict[str, Any]:
        """Wait for the answer, and pass on what the worker reports meanwhile."""
        assert self._run is not None
        news, began, heard = _News(exchange, number, monitor), time.monotonic(), False
        look, patience = began, PATIENCE_SECONDS
        while True:
            ended, now = None, time.monotonic()
            if now >= look:
                ended, look = self._run.ended(), now + LOOK_SECONDS
            heard |= news.relay()
            if (answer := exchange.get(f"answer-{number}")) is not None:
                news.relay()
                return answer
            if ended is not None:
                raise self._died(*ended, steps)
            monitor.check()
            if not heard and now - began > patience:
                patience *= 2
                if why := self._run.waits():
                    monitor.log(why)
            monitor.stop.wait(exchange.seconds)

    def _died(self, state: str, why: str, steps: Sequence[Step]) -> HeadwayError:
        assert self._run is not None
        name, self._run = self._run.name, None
        self._exchange.remove()
        what = listed([step.title for step in steps])
        if state == "CANCELLED":
            return Cancelled(f"{name}, which made {what} on {self._queue}, was cancelled: {why}")
        problem = f"{name} ended ({state.lower()}) before {what} was made: {why}"
        return HeadwayError(problem, where=f"queue {self._queue}", fix="look into its log; what was done is kept")

    def _take(self, answer: dict[str, Any], step: Step) -> None:
        """Raise the error that an answer holds."""
        if error := answer.get("error"):
            raise error_of(error, step.stage.function, f"the worker of queue {self._queue}")

    def _stop(self) -> None:
        """Stop the other run, and wait until it has saved."""
        if self._run is None:
            return
        run, self._run = self._run, None
        with contextlib.suppress(HeadwayError, OSError):  # a store that is away makes no failure of a stop
            self._exchange.put("end", {"stop": True})
        run.stop()
        deadline = time.monotonic() + SAVE_SECONDS
        while run.ended() is None and time.monotonic() < deadline:
            time.sleep(self._exchange.seconds)
        with contextlib.suppress(HeadwayError, OSError):
            self._exchange.remove()


class _News:
    """What the worker reported, in order, each line once."""

    def __init__(self, exchange: Exchange, number: int, monitor: Monitor):
        self._exchange, self._number, self._monitor = exchange, number, monitor
        self._lines, self._progress = 0, None

    def relay(self) -> bool:
        """Pass on what is new; whether the worker has ever said anything."""
        value = self._exchange.get(f"news-{self._number}")
        if value is None:
            return False
        lines, first = value["lines"], value["first"]
        for line in lines[max(0, self._lines - first) :]:
            self._monitor.log(line)
        self._lines = max(self._lines, first + len(lines))
        progress = value["progress"]
        if progress is not None and progress != self._progress:
            self._progress = progress
            self._monitor.progress(progress["done"], progress["total"], progress["unit"], **progress["facts"])
        return True
