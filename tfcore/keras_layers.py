"""Makes Headway's layers known to Keras as soon as both are imported, in whichever order, without importing Keras.

Keras finds a layer of a saved model by its registered name, and a layer is registered when its module is imported.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

MODULES = ("layers", "members", "cross_network", "numeric")
"""Of `tfcore.models`: those with registered layers."""


def register_with_keras() -> None:
    """Register the layers now if Keras is imported, else when it is."""
    if hasattr(sys.modules.get("keras"), "saving"):
        _register()
    elif not any(isinstance(finder, _KerasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _KerasFinder())


def _register() -> None:
    names = [f"tfcore.models.{name}" for name in MODULES]
    if any(name in sys.modules for name in names) or sys.modules["keras"].backend.backend() != "tensorflow":
        return  # one of them imports Keras right now: who imports it imports what it needs
    for name in names:
        importlib.import_module(name)


class _KerasFinder(importlib.abc.MetaPathFinder):
    """Lets the other finders find Keras, once, and registers the layers after it was imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _register()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
