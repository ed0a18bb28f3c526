"""The base package: config, sources, schema, statistics, records, store, registry, gate. No TensorFlow, Beam or Prefect.

`headway.run`, `plan`, `predict` and `command` call the command line from Python; see `headway.api`.
"""

from typing import Any

__all__ = ["command", "plan", "predict", "run"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from headway import api

        return getattr(api, name)
    raise AttributeError(f"module 'headway' has no attribute '{name}'")
