"""Imports Beam without its warnings.

beam = load_beam()               # the module; importing it writes no line and installs no log handler
with silenced():
    pipeline.run()               # what goes wrong is raised, not logged as well
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

_LOGGERS = ("apache_beam", "grpc")
_IMPORTING = threading.Lock()
_RUNNER = "apache_beam.runners.portability.fn_api_runner.fn_runner"
_SILENCING = threading.Lock()


def begin_import() -> None:
    """Start importing Beam in a thread, before a job needs it. A failure is ignored here: the job's own import fails, too."""

    def load() -> None:
        with contextlib.suppress(Exception):  # the import of whoever needs it fails, too
            load_beam()

    threading.Thread(target=load, name="beam-import").start()


@functools.cache
def load_beam() -> Any:
    """Import apache_beam without its warnings, and return it."""
    with _IMPORTING:
        here = threading.get_ident()

        def of_others(record: logging.LogRecord) -> bool:
            return record.thread != here

        logging.getLogger().addFilter(of_others)  # Beam warns through logging.warning while it is imported
        try:
            with silenced():
                beam = importlib.import_module("apache_beam")
                importlib.import_module(_RUNNER)  # the first pipeline would do so
                _suit_notebooks(beam)
                return beam
        finally:
            logging.getLogger().removeFilter(of_others)


def _suit_notebooks(beam: Any) -> None:
    """In a notebook, switch off the labels that Beam 2.77 gives transforms, if the module that makes them cannot be imported, as
    with pandas 3. Otherwise no pipeline could be built."""
    if "IPython" not in sys.modules:
        return
    try:
        importlib.import_module("apache_beam.runners.interactive.interactive_environment")
    except Exception:
        beam.pipeline.alter_label_if_ipython = lambda transform, pvalueish: None


_jobs = 0
"""The number of `silenced` blocks that are running now."""
_levels: dict[str, int] = {}
_silent = logging.NullHandler()


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Let Beam log only critical errors while the block runs; the caller gets failures as exceptions. If several threads run such
    blocks, Beam logs again once the last block has ended."""
    global _jobs
    root = logging.getLogger()
    with _SILENCING:
        _jobs += 1
        if _jobs == 1:
            # a cluster's messages go there; without a handler `logging.warning` would install one for good
            root.addHandler(_silent)
            _levels.update({name: logging.getLogger(name).level for name in _LOGGERS})
            for name in _LOGGERS:
                logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        with _SILENCING:
            _jobs -= 1
            if not _jobs:
                root.removeHandler(_silent)
                for name, level in _levels.items():
                    logging.getLogger(name).setLevel(level)
