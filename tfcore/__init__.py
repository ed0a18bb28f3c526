"""Everything that imports TensorFlow: transforms in the graph, input pipeline, training, evaluation, export.

    tfcore.deterministic_process()                              # for who wants the same bits in each run

Importing the package itself imports none of it, and the configs need no TensorFlow at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfcore.runtime.devices import deterministic_process

__all__ = ["deterministic_process"]


def __getattr__(name: str) -> Any:
    if name == "deterministic_process":
        from tfcore.runtime.devices import deterministic_process

        return deterministic_process
    raise AttributeError(f"module 'tfcore' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
