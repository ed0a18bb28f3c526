"""Waits of tests for what another process does."""

import time
import urllib.error
from collections.abc import Callable
from typing import Any

import httpx


def until(true: Callable[[], Any], seconds: float = 120, about: Callable[[], Any] = lambda: None) -> Any:
    """Wait until `true()` is, and return its value; fails with `about()` after `seconds`.

    While a server does not answer, as a busy machine's may not within a request's own timeout, it is asked again: only a
    refusal (a status below 500) is an error at once.
    """
    deadline, value, away = time.monotonic() + seconds, None, ""
    while not value:
        try:
            value, away = true(), ""
        except (OSError, httpx.TransportError, httpx.HTTPStatusError) as error:
            if _status(error) < 500:
                raise
            away = f"no answer: {error!r}"
        if not value:
            assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {away or about()}"
            time.sleep(0.1)
    return value


def _status(error: Exception) -> int:
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code
    return error.code if isinstance(error, urllib.error.HTTPError) else 500
