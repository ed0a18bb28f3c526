"""Errors a user can act on: the place, the problem, the fix.

    raise ConfigError("unknown key 'soruce'", where="pipeline.yaml", fix="did you mean 'source'?")

The command line prints `str(error)` and exits with `error.exit_code`; a traceback means a bug in Headway.
"""

import functools
from typing import Any

from headway.redaction import redact


class HeadwayError(Exception):
    """A user's mistake or a broken input, not a bug.

    Args:
        problem: one sentence that names the bad value.
        where: the file, key, column or position at which the value was found.
        fix: what the user can do about it.
    """

    exit_code = 1
    ag_pass_through = True
    """Tells AutoGraph to raise the error unchanged from code that TensorFlow traces, not as a StagingError."""
    _keras_call_info_injected = True
    """Tells Keras to raise the error unchanged from a layer, without the layer's arguments in the problem."""

    def __init__(self, problem: str, *, where: str | None = None, fix: str | None = None):
        super().__init__(problem)
        self.problem, self.where, self.fix = problem, where, fix

    def __str__(self) -> str:
        text = f"{self.where}: {self.problem}" if self.where else self.problem
        return redact(f"{text}\n  fix: {self.fix}" if self.fix else text)

    @property
    def facts(self) -> dict[str, str | None]:
        """The error as a dict: its class as `kind`, and problem, where and fix, with secrets redacted."""
        parts = {"problem": self.problem, "where": self.where, "fix": self.fix}
        return {"kind": type(self).__name__} | {name: text and redact(text) for name, text in parts.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        # Beam and Prefect pickle exceptions; keyword-only arguments need this.
        return functools.partial(type(self), self.problem, where=self.where, fix=self.fix), ()


class ConfigError(HeadwayError):
    """A pipeline file, an option or an expression is wrong."""

    exit_code = 2


class DataError(HeadwayError):
    """Data is missing, corrupt, or breaks the schema."""

    exit_code = 3


class Rejected(HeadwayError):
    """The gate turned the candidate down."""

    exit_code = 4


class Overtaken(Rejected):
    """A decision came too late: somebody has since changed the champion, or the alias, that the decision was based on."""


class StoreError(HeadwayError):
    """The store is damaged, full, unreachable or not writable."""

    exit_code = 5


class Locked(StoreError):
    """Another process holds the lock that this one needs."""

    exit_code = 6


class Cancelled(HeadwayError):
    """The user or the scheduler asked for a stop; finished work is kept."""

    exit_code = 130


class Pruned(Cancelled):
    """A trial of a study was stopped early, because other trials were better."""


_ALL = (HeadwayError, ConfigError, DataError, Rejected, Overtaken, StoreError, Locked, Cancelled, Pruned)
KINDS: dict[str, type[HeadwayError]] = {kind.__name__: kind for kind in _ALL}
"""The classes by name: an error that crosses a process boundary as JSON is raised as the same class."""
