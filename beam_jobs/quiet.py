"""Beam without its noise.

beam = load_beam()               # the module; importing it writes no line and installs no log handler
with silenced():
    pipeline.run()               # what goes wrong is raised, not logged as well
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import sys
from collections.abc import Iterator
from typing import Any

_LOGGERS = ("apache_beam", "grpc")


def load_beam() -> Any:
    """The module apache_beam."""
    if "apache_beam" not in sys.modules:
        # Beam warns through logging.warning while it is imported, and that installs a handler on the root logger
        # for good unless there is one already.
        root, silent = logging.getLogger(), logging.NullHandler()
        root.addHandler(silent)
        before = logging.root.manager.disable
        logging.disable(logging.ERROR)
        try:
            importlib.import_module("apache_beam")
        finally:
            logging.disable(before)
            root.removeHandler(silent)
    return sys.modules["apache_beam"]


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Keeps Beam from logging anything short of a crash; whatever fails is raised to the caller anyway."""
    before = {name: logging.getLogger(name).level for name in _LOGGERS}
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
