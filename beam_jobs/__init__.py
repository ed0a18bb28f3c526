"""Everything that runs on Apache Beam: ingest, and the choice of a runner.

Importing the package, its configs and its requests imports no Beam; only running a pipeline does.

    from beam_jobs import IngestRequest, RunnerConfig
    from beam_jobs.ingest.stage import ingest
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beam_jobs.ingest.request import IngestRequest
    from beam_jobs.runners.config import RunnerConfig

_HOME = {"IngestRequest": "ingest.request", "RunnerConfig": "runners.config"}

__all__ = ["IngestRequest", "RunnerConfig"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
