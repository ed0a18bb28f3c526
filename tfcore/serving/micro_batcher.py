"""Joins requests that come at the same time in one call of the model.

    batcher = MicroBatcher(max_batch=1024, max_queue=16_384, max_cells=1_000_000)
    outputs = await batcher.predict(model, rows)          # the outputs of these rows alone

A model's signature has one call under way at a time. What comes meanwhile waits and goes together in the next, so that batches
grow with the load and a lone request waits for nobody. A call that fails is made again for each of its requests alone: one bad
row costs its own request.
"""

import asyncio
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headway.messages import counted
from headway.schema.tensor_name import LENGTH
from tfcore.serving.refusals import Busy
from tfcore.serving.request_json import Rows

Arrays = dict[str, NDArray[Any]]
THREADS = 4
"""Calls of different signatures or versions that may run at once."""


class Model(Protocol):
    version: int

    def call(self, signature: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays: ...


@dataclass
class _Waiting:
    rows: Rows
    answer: asyncio.Future[Arrays]


@dataclass
class _Lane:
    """Waiting requests that can share a call."""

    model: Model
    waiting: deque[_Waiting] = field(default_factory=deque)


class MicroBatcher:
    """Batches the requests of one event loop into calls of the model.

    Args:
        max_batch: rows of one call; a request of more rows goes alone.
        max_queue: rows that may wait.
        max_cells: values of the joined arrays of one call; twice as many may wait.
    """

    def __init__(self, *, max_batch: int, max_queue: int, max_cells: int):
        self.max_batch, self.max_queue, self.max_cells = max_batch, max_queue, max_cells
        self.batches = 0
        self._queued = {True: 0, False: 0}
        """Rows that wait, in requests of more than a batch and in others: neither takes the other's place."""
        self._cells = dict(self._queued)
        self._lanes: dict[Hashable, _Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="model")

    async def predict(self, model: Model, rows: Rows) -> Arrays:
        """The model's outputs for these rows.

        Raises:
            Busy: too many rows wait.
            RequestError: the model refuses the rows.
        """
        alone = self._is_large(rows)
        queued, cells = self._queued[alone], self._cells[alone]
        if queued and queued + rows.count > self.max_queue:
            limit = counted(self.max_queue, "row")
            raise Busy(f"{queued:,} rows wait already, and the limit is {limit}", fix="send the request again later")
        if cells and cells + rows.cells > 2 * self.max_cells:
            problem = f"{cells:,} values wait already, and the limit is {2 * self.max_cells:,}"
            raise Busy(problem, fix="send the request again later")
        loop = asyncio.get_running_loop()
        waiting = _Waiting(rows, loop.create_future())
        key = (id(model), alone, *_key(rows))
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(model)  # which keeps the model, so that its id stays its own
            task = loop.create_task(self._serve(key, lane))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        lane.waiting.append(waiting)
        self._queued[alone] += rows.count
        self._cells[alone] += rows.cells
        return await waiting.answer

    def close(self) -> None:
        """Stop the threads; no request may be waiting."""
        self._pool.shutdown(wait=True)

    async def _serve(self, key: Hashable, lane: _Lane) -> None:
        """Call the model until no request waits in the lane."""
        while lane.waiting:
            batch = self._take(lane)
            self.batches += 1
            try:
                outputs: Sequence[Arrays | Exception] = await self._call(lane.model, batch)
            except Exception as error:
                alone = [error] if len(batch) == 1 else [await self._alone(lane.model, one) for one in batch]
                outputs = alone
            for waiting, output in zip(batch, outputs, strict=True):
                if waiting.answer.done():  # its client is gone
                    continue
                if isinstance(output, Exception):
                    waiting.answer.set_exception(output)
                else:
                    waiting.answer.set_result(output)
        del self._lanes[key]

    def _take(self, lane: _Lane) -> list[_Waiting]:
        batch = [lane.waiting.popleft()]
        rows, cells = batch[0].rows.count, batch[0].rows.cells
        while lane.waiting:
            more = lane.waiting[0].rows
            if rows + more.count > self.max_batch or cells + more.cells > self.max_cells:
                break
            batch.append(lane.waiting.popleft())
            rows, cells = rows + more.count, cells + more.cells
        alone = self._is_large(batch[0].rows)
        self._queued[alone] -= rows
        self._cells[alone] -= cells
        return batch

    def _is_large(self, rows: Rows) -> bool:
        """Whether a request takes several calls, for which no small one should wait."""
        return rows.count > self.max_batch

    async def _call(self, model: Model, batch: Sequence[_Waiting]) -> list[Arrays]:
        run = asyncio.get_running_loop().run_in_executor
        return await run(self._pool, _called, model, [waiting.rows for waiting in batch], self.max_batch)

    async def _alone(self, model: Model, waiting: _Waiting) -> Arrays | Exception:
        try:
            return (await self._call(model, [waiting]))[0]
        except Exception as error:
            return error


def _called(model: Model, requests: Sequence[Rows], most: int) -> list[Arrays]:
    """Call the model once, or for every `most` rows of a single request, and return the outputs of each request."""
    first, arrays = requests[0], joined(requests)
    if first.count > most:
        parts = [
            model.call(first.signature, {name: a[at : at + most] for name, a in arrays.items()} | first.arguments)
            for at in range(0, first.count, most)
        ]
        return [{name: np.concatenate([part[name] for part in parts]) for name in parts[0]}]
    outputs = model.call(first.signature, arrays | first.arguments)
    if len(requests) == 1:
        return [outputs]
    ends = np.cumsum([request.count for request in requests])
    return [
        {name: array[end - request.count : end] for name, array in outputs.items()}
        for request, end in zip(requests, ends, strict=True)
    ]


def _key(rows: Rows) -> tuple[Hashable, ...]:
    """Return the key of requests that can share a call: the signature, its arguments, and the widths of lists where
    they cannot differ; where they can, they differ by less than twice, which bounds what filling them up costs."""
    widths = tuple(
        a.shape[1].bit_length() if name + LENGTH in rows.arrays else a.shape[1]
        for name, a in rows.arrays.items()
        if a.ndim == 2
    )
    return rows.signature, tuple(value.tobytes() for value in rows.arguments.values()), widths


def joined(requests: Sequence[Rows]) -> Arrays:
    """The arrays of several requests, one below the other; lists are filled up to the longest."""
    if len(requests) == 1:
        return requests[0].arrays
    arrays: Arrays = {}
    for name in requests[0].arrays:
        parts = [request.arrays[name] for request in requests]
        if parts[0].ndim == 2 and len({part.shape[1] for part in parts}) > 1:
            width = max(part.shape[1] for part in parts)
            parts = [_widened(part, width) for part in parts]
        arrays[name] = np.concatenate(parts)
    return arrays


def _widened(array: NDArray[Any], width: int) -> NDArray[Any]:
    whole = np.full((len(array), width), b"" if array.dtype == np.object_ else 0, array.dtype)
    whole[:, : array.shape[1]] = array
    return whole
