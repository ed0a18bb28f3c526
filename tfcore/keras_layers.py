"""Makes Headway's layers known to Keras as soon as both are imported, in whichever order, without importing Keras.

Keras finds a layer of a saved model by its registered name, and a layer is registered when its module is imported.
"""

import contextlib
import importlib
import sys
from collections.abc import Iterator

from headway.process_tuning import around_import

MODULES = ("layers", "members", "numeric")
"""Of `tfcore.models`: those with registered layers."""


def register_with_keras() -> None:
    """Register the layers now if Keras is imported, else when it is."""
    if hasattr(sys.modules.get("keras"), "saving"):
        _register()
    else:
        around_import("keras", _then_registered)


@contextlib.contextmanager
def _then_registered() -> Iterator[None]:
    yield
    _register()


def _register() -> None:
    names = [f"tfcore.models.{name}" for name in MODULES]
    if any(name in sys.modules for name in names) or sys.modules["keras"].backend.backend() != "tensorflow":
        return  # one of them imports Keras right now: who imports it imports what it needs
    for name in names:
        importlib.import_module(name)
