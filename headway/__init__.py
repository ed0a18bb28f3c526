"""The base package: config, sources, schema, statistics, records, store, registry, gate. No TensorFlow, Beam or Prefect.

`headway.open` opens a pipeline from Python, and `headway.fit` trains a model of one table; both are `flows.api`'s, which is
imported when they are asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.api import Comparison, Pipeline, Run, Table, TableModel, Version, fit, open

__all__ = ["Comparison", "Pipeline", "Run", "Table", "TableModel", "Version", "fit", "open"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from flows import api

        return getattr(api, name)
    raise AttributeError(f"module 'headway' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
