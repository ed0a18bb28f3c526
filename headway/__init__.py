"""The base package: config, sources, schema, statistics, records, store, registry, gate. No TensorFlow, Beam or Prefect.

`headway.open` opens a pipeline from Python, and `headway.fit` trains a model of one table. Both are defined in `flows.api`, which
is imported when one of them is first used.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.api import Pipeline, Run, TableModel, Version, fit, open

__all__ = ["open", "Pipeline", "Run", "Version", "fit", "TableModel"]

_BESIDE = Path(__file__).parents[1]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for package in ("tfcore", "beam_jobs", "flows"):
            _import_beside(package)
        from flows import api

        return getattr(api, name)
    raise AttributeError(f"module 'headway' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _import_beside(package: str) -> None:
    """Imports one of Headway's packages from the folder beside this one. A script's folder may have a package of the same name.

    Raises:
        ImportError: another package of this name is imported already.
    """
    if (found := sys.modules.get(package)) is not None:
        if (file := getattr(found, "__file__", None)) != str(_BESIDE / package / "__init__.py"):
            raise ImportError(f"{package} is imported from {file}, and Headway needs its own: rename that package")
        return
    spec = PathFinder.find_spec(package, [str(_BESIDE)])
    if spec is not None and spec.loader is not None:
        sys.modules[package] = module = module_from_spec(spec)
        spec.loader.exec_module(module)
