"""How requests are joined, over a model that is a NumPy function: what counts here is who waits for whom."""

import asyncio
import threading

import numpy as np
import pytest

from tfcore.serving.micro_batcher import MicroBatcher, joined
from tfcore.serving.refusals import Busy, RequestError
from tfcore.serving.request_json import Rows


class Doubles:
    """Gives each value twice over; a negative one is refused. `gate` holds its first call back."""

    version = 1

    def __init__(self, gate=None):
        self.sizes, self._gate = [], gate

    def call(self, signature, arrays):
        if self._gate is not None and not self.sizes:
            self._gate.wait(10)
        values = arrays["x"]
        self.sizes.append(len(values))
        if (values < 0).any():
            raise RequestError("is negative")
        return {"y": values * arrays.get("factor", 2)}


def rows(*values, **arguments):
    return Rows("serving_default", len(values), {"x": np.array(values)}, {k: np.array(v) for k, v in arguments.items()})


def batcher(**changes):
    return MicroBatcher(**{"max_batch": 8, "max_queue": 100, "max_cells": 1000} | changes)


async def all_at_once(model, requests, **changes):
    """Ask while the model is busy with a first request of one row."""
    one = batcher(**changes)
    gate = model._gate
    first = asyncio.create_task(one.predict(model, rows(0)))
    await asyncio.sleep(0)
    others = [asyncio.create_task(one.predict(model, request)) for request in requests]
    await asyncio.sleep(0.05)
    gate.set()
    await first
    answers = await asyncio.gather(*others, return_exceptions=True)
    one.close()
    return [a if isinstance(a, Exception) else a["y"].tolist() for a in answers]


def test_requests_that_come_while_the_model_is_busy_go_together_and_each_gets_its_own():
    model = Doubles(threading.Event())
    answers = asyncio.run(all_at_once(model, [rows(1), rows(2, 3), rows(4)]))
    assert answers == [[2], [4, 6], [8]] and model.sizes == [1, 4]


def test_a_batch_holds_no_more_than_its_rows_and_a_larger_request_takes_several():
    model = Doubles(threading.Event())
    answers = asyncio.run(all_at_once(model, [rows(*range(6)), rows(7, 8, 9), rows(*range(20))]))
    assert answers[2] == [2 * i for i in range(20)] and sorted(model.sizes) == [1, 3, 4, 6, 8, 8]


def test_requests_with_other_arguments_are_not_joined():
    model = Doubles(threading.Event())
    answers = asyncio.run(all_at_once(model, [rows(1, factor=3), rows(1, factor=5), rows(2, factor=3)]))
    assert answers == [[3], [5], [6]] and sorted(model.sizes) == [1, 1, 2]


def test_one_that_fails_does_not_fail_its_neighbours():
    model = Doubles(threading.Event())
    answers = asyncio.run(all_at_once(model, [rows(1), rows(-1), rows(3)]))
    assert (answers[0], answers[2]) == ([2], [6]) and isinstance(answers[1], RequestError)


def test_what_is_beyond_the_queue_is_refused_at_once_and_the_rest_is_answered():
    model = Doubles(threading.Event())
    answers = asyncio.run(all_at_once(model, [rows(1, 2), rows(3, 4), rows(5)], max_queue=4))
    assert answers[:2] == [[2, 4], [6, 8]] and isinstance(answers[2], Busy) and answers[2].status == 503


def test_a_client_that_leaves_costs_nobody_else():
    async def ask():
        one, model = batcher(), Doubles(threading.Event())
        first = asyncio.create_task(one.predict(model, rows(0)))
        await asyncio.sleep(0)
        left, stays = (asyncio.create_task(one.predict(model, rows(i))) for i in (1, 2))
        await asyncio.sleep(0)
        left.cancel()
        model._gate.set()
        await first
        answer = await stays
        one.close()
        return answer["y"].tolist()

    assert asyncio.run(ask()) == [4]


def test_lists_of_several_requests_are_filled_up_to_the_longest():
    def lists(values, lengths):
        arrays = {"tags": np.array(values, object), "tags__length": np.array(lengths)}
        return Rows("serving_nullable", len(values), arrays)

    together = joined([lists([[b"a", b"b"]], [2]), lists([[b"c"]], [1])])
    assert together["tags"].tolist() == [[b"a", b"b"], [b"c", b""]] and together["tags__length"].tolist() == [2, 1]


@pytest.mark.parametrize("failure", [ValueError("x"), RequestError("y")])
def test_the_error_of_a_lone_request_is_its_own(failure):
    class Fails(Doubles):
        def call(self, signature, arrays):
            raise failure

    async def ask():
        one = batcher()
        try:
            await one.predict(Fails(), rows(1))
        finally:
            one.close()

    with pytest.raises(type(failure)):
        asyncio.run(ask())
