"""The base package: config, sources, schema, statistics, records, store, registry, gate. No TensorFlow, Beam or Prefect.

`headway.open` opens a pipeline from Python (`flows.api`, imported when it is asked for). `headway.run` and `command` call
the command line in a process of its own; see `headway.api`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.api import Comparison, Pipeline, Run, Table, Version, open
    from headway.api import command, run

__all__ = ["Comparison", "Pipeline", "Run", "Table", "Version", "command", "open", "run"]
_COMMANDS = ("command", "run")


def __getattr__(name: str) -> Any:
    if name in _COMMANDS:
        from headway import api

        return getattr(api, name)
    if name in __all__:
        from flows import api as pipelines

        return getattr(pipelines, name)
    raise AttributeError(f"module 'headway' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
