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
        where: the file, key, column or position it was found at.
        fix: what to do about it.
    """

    exit_code = 1
    ag_pass_through = True
    """Raised where TensorFlow traces Python: AutoGraph would make a StagingError of it, with frames of its own."""
    _keras_call_info_injected = True
    """Raised in a Keras layer: Keras would make another of it, with the layer's arguments as the problem."""

    def __init__(self, problem: str, *, where: str | None = None, fix: str | None = None):
        super().__init__(problem)
        self.problem, self.where, self.fix = problem, where, fix

    def __str__(self) -> str:
        text = f"{self.where}: {self.problem}" if self.where else self.problem
        return redact(f"{text}\n  fix: {self.fix}" if self.fix else text)

    @property
    def facts(self) -> dict[str, str | None]:
        """Its parts as text without secrets, with the name of its kind."""
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
    """What was decided rests on a champion, or on an alias, that somebody changed meanwhile."""


class StoreError(HeadwayError):
    """The store is damaged, full, unreachable or not writable."""

    exit_code = 5


class Locked(StoreError):
    """Another process holds the lock."""

    exit_code = 6


class Cancelled(HeadwayError):
    """The user or the scheduler asked to stop; what was done is kept."""

    exit_code = 130


class Pruned(Cancelled):
    """A trial of a study was ended early, because others were better."""


_ALL = (HeadwayError, ConfigError, DataError, Rejected, Overtaken, StoreError, Locked, Cancelled, Pruned)
KINDS: dict[str, type[HeadwayError]] = {kind.__name__: kind for kind in _ALL}
"""By name, so that an error crosses a process boundary as JSON and is raised as the same kind."""
