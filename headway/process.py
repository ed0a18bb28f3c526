"""Tells whether this process is Headway's own, in which process-wide settings may be made.

    own()              # where a process begins that does nothing else: worker, command line, Beam's worker
    if owned(): ...    # in a library: make ops deterministic, set threads, hide GPUs, silence what an import prints

A process that merely imports Headway, such as a notebook, keeps its own settings.
"""

from __future__ import annotations

_OWN: list[bool] = []


def own() -> None:
    """Say that this process is Headway's; called before TensorFlow is imported."""
    _OWN[:] = [True]


def owned() -> bool:
    """Whether `own` was called in this process."""
    return bool(_OWN)
