"""Warnings that libraries give to their own developers, kept from the people who type commands."""

from __future__ import annotations

import sys
import warnings

_LIBRARIES = (
    "absl|apache_beam|dateutil|fsspec|google|grpc|h5py|jax|keras|ml_dtypes|numpy|pandas|prefect|pyarrow|pydantic|"
    "pydantic_settings|sqlalchemy|tensorboard|tensorflow|tensorflow_metadata"
)
_OURS = "headway|beam_jobs|flows|tfcore"


def quiet_libraries() -> None:
    """Ignore warnings that arise within libraries; those of the user's own module, and what -W asks for, are shown."""
    if not sys.warnoptions:
        warnings.filterwarnings("ignore", module=rf"({_LIBRARIES})(\.|$)")
        for category in (DeprecationWarning, FutureWarning, PendingDeprecationWarning):  # told of a library by our call
            warnings.filterwarnings("ignore", category=category, module=rf"({_OURS})(\.|$)")
