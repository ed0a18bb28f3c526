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

from headway.process import owned
from headway.process_tuning import arrow_without_pandas, for_all_threads, hidden, uncollected

_LOGGERS = ("apache_beam", "grpc")
_IMPORTING = threading.Lock()
_OPTIONAL = ("apache_beam.io.gcp.bigquery", "boto3", "pandas", "pymongo")
"""What Beam takes along, where it is installed, for BigQuery, S3, data frames and MongoDB: a third of its import. Headway's own
pipelines have none of them, and read buckets without Beam."""
_lean = False
_RUNNER = "apache_beam.runners.portability.fn_api_runner.fn_runner"
_SAMPLE_MS = 10
"""How often Beam looks which step a worker is in. The end of a bundle waits for the next look, which is 200 ms by default."""


def leave_out_optional() -> None:
    """Let Beam and Arrow do without data frames, and Beam without BigQuery, S3 and MongoDB, for good. For a process that runs no
    Python file of the user's; without effect in one that is not Headway's own."""
    global _lean
    _lean = owned()
    if _lean:
        arrow_without_pandas()


def begin_import() -> None:
    """Import Beam in a thread of its own, for a job that is certain to come."""

    def load() -> None:
        with contextlib.suppress(Exception):  # the import of whoever needs it fails, too
            load_beam()

    threading.Thread(target=load, name="beam-import").start()


@functools.cache
def load_beam() -> Any:
    """Import and return apache_beam."""
    with _IMPORTING:
        here = threading.get_ident()

        def of_others(record: logging.LogRecord) -> bool:
            return record.thread != here

        logging.getLogger().addFilter(of_others)  # Beam warns through logging.warning while it is imported
        try:
            with silenced(), uncollected(), hidden(*(_OPTIONAL if _lean else ()), importer="apache_beam"):
                beam = importlib.import_module("apache_beam")
                importlib.import_module(_RUNNER)  # the first pipeline would do so
                _suit_notebooks(beam)
                sampler: Any = importlib.import_module("apache_beam.runners.worker.statesampler").StateSampler
                sampler.__init__.__defaults__ = (_SAMPLE_MS,)
                return beam
        finally:
            logging.getLogger().removeFilter(of_others)


def _suit_notebooks(beam: Any) -> None:
    """Keep Beam 2.77 from importing IPython to find out that it is not in a notebook, and let pipelines be made in one without
    the package that it then labels transforms with, where it cannot be imported: with pandas 3."""
    utils: Any = importlib.import_module("apache_beam.utils.interactive_utils")
    asked = utils.is_in_ipython
    utils.is_in_ipython = beam.pipeline.is_in_ipython = lambda: "IPython" in sys.modules and asked()
    if "IPython" not in sys.modules:
        return
    try:
        importlib.import_module("apache_beam.runners.interactive.interactive_environment")
    except Exception:
        beam.pipeline.alter_label_if_ipython = lambda transform, pvalueish: None


@for_all_threads
@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Keep Beam from logging anything short of a crash; failures are raised to the caller anyway."""
    levels = {logger: logger.level for logger in map(logging.getLogger, _LOGGERS)}
    root, silent = logging.getLogger(), logging.NullHandler()
    # a cluster's messages go there; without a handler `logging.warning` would install one for good
    root.addHandler(silent)
    for logger in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        root.removeHandler(silent)
        for logger, level in levels.items():
            logger.setLevel(level)
