"""Process-wide settings: whether this process is Headway's own, and which warnings it shows.

    own()              # where a process begins that does nothing else: worker, command line, Beam's worker
    if owned(): ...    # in a library: make ops deterministic, set threads, hide GPUs, silence what an import prints
    quiet_libraries()  # warnings that libraries give to their own developers are kept from people who type commands

A process that merely imports Headway, such as a notebook, keeps its own settings.
"""

from __future__ import annotations

import sys
import warnings

_OWN: list[bool] = []
_LIBRARIES = (
    "absl|apache_beam|dateutil|fsspec|google|grpc|h5py|jax|keras|ml_dtypes|numpy|pandas|prefect|pyarrow|pydantic|"
    "pydantic_settings|sqlalchemy|tensorboard|tensorflow|tensorflow_metadata"
)
_OURS = "headway|beam_jobs|flows|tfcore"


def own() -> None:
    """Say that this process is Headway's; called before TensorFlow is imported."""
    _OWN[:] = [True]


def owned() -> bool:
    """Whether `own` was called in this process."""
    return bool(_OWN)


def quiet_libraries() -> None:
    """Ignore warnings that arise within libraries; those of the user's own module, and what -W asks for, are shown."""
    if not sys.warnoptions:
        warnings.filterwarnings("ignore", module=rf"({_LIBRARIES})(\.|$)")
        for category in (DeprecationWarning, FutureWarning, PendingDeprecationWarning):  # told of a library by our call
            warnings.filterwarnings("ignore", category=category, module=rf"({_OURS})(\.|$)")
