"""Freed memory back to the system.

    give_back()

Arrow's pool and the C library keep what was freed for the next allocation, each thread in a heap of its own: after a wide
Parquet footer, or a range of a wide table, that is a hundred megabytes which no other thread will ever use.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import pyarrow as pa


def give_back() -> None:
    """Costs milliseconds, and page faults later: for the end of long work only."""
    pa.default_memory_pool().release_unused()
    if (trim := _trim()) is not None:
        trim(0)


@cache
def _trim() -> Any:
    """glibc's malloc_trim; None where there is no such thing."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
