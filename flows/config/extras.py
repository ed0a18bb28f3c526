"""The extras: optional packages that `pip install headway` leaves out, and the error if one is missing.

require("serve", where="headway serve")         # ConfigError: ...  fix: pip install 'headway[serve]'
"""

from importlib.util import find_spec
from typing import NamedTuple

from headway.errors import ConfigError


class Extra(NamedTuple):
    modules: tuple[str, ...]
    use: str


EXTRAS = {
    "prefect": Extra(("prefect",), "schedules, workers and a Prefect server"),
    "serve": Extra(("starlette", "uvicorn"), "headway serve"),
    "tune": Extra(("optuna",), "headway tune"),
    "mlflow": Extra(("mlflow",), "runs and versions in MLflow (tracking.uri)"),
    "tensorboard": Extra(("tensorboard",), "looking at training summaries and profiles"),
}


def missing(name: str) -> list[str]:
    """Returns the modules of an extra that are not installed."""
    return [module for module in EXTRAS[name].modules if not _is_there(module)]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor is what it lies in
        return False


def install_command(name: str) -> str:
    """Returns the command that installs an extra."""
    return f"pip install 'headway[{name}]'"


def require(name: str, *, where: str) -> None:
    """Raise ConfigError if an extra is not installed."""
    if modules := missing(name):
        raise ConfigError(f"needs {' and '.join(modules)}, not installed here", where=where, fix=install_command(name))
