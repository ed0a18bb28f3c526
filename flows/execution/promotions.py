"""Moves the champion and the aliases by hand, and tells an MLflow server, where there is one.

promote_version(loaded, registry, "3", reason="asked for", note=print)      # the Event that the registry keeps
roll_back(loaded, registry, reason="asked for", note=print)                 # to the champion before
"""

from __future__ import annotations

from collections.abc import Callable

from flows.config.pipeline import LoadedPipeline
from flows.progress.mlflow_tracking import follow
from headway.registry.pointers import NOBODY, Event
from headway.registry.registry import Registry

Note = Callable[[str], None]


def promote_version(
    loaded: LoadedPipeline | None,
    registry: Registry,
    version: str,
    *,
    alias: str | None = None,
    reason: str,
    force: bool = False,
    seen: int | None = None,
    note: Note,
) -> Event:
    """Make a version the champion, or point an alias at it.

    Args:
        loaded: names the MLflow server that is told; None: none is.
        version: its number, previous or an alias.
        force: even if it was rolled back, or somebody promoted meanwhile.
        seen: the champion that was decided against, `NOBODY` for none; None: the one of now.
        note: takes what could not be told to an MLflow server.

    Raises:
        StoreError: there is no such version, it was rolled back, or the champion changed meanwhile.
    """
    if alias is None:
        against = _against(registry, force, seen)
        event = registry.promote(registry.number(version), reason=reason, force=force, against=against)
    else:
        stood = None if force else registry.alias(alias) or NOBODY
        event = registry.set_alias(alias, registry.number(version), reason=reason, against=stood)
    if loaded is not None:
        follow(loaded, registry, note=note)
    return event


def roll_back(
    loaded: LoadedPipeline | None,
    registry: Registry,
    version: str | None = None,
    *,
    reason: str,
    force: bool = False,
    seen: int | None = None,
    note: Note,
) -> Event:
    """Make the champion before the champion again, or a version.

    Args:
        loaded, seen: as of `promote_version`.

    Raises:
        StoreError: there is none, or the champion changed meanwhile.
    """
    number = None if version is None else registry.number(version)
    event = registry.rollback(number, reason=reason, force=force, against=_against(registry, force, seen))
    if loaded is not None:
        follow(loaded, registry, note=note)
    return event


def _against(registry: Registry, force: bool, seen: int | None) -> int | None:
    if seen is not None:
        return seen
    return None if force else registry.decided_against()


def remove_alias(loaded: LoadedPipeline, registry: Registry, alias: str, *, reason: str, note: Note) -> Event:
    """Let an alias point nowhere."""
    event = registry.remove_alias(alias, reason=reason)
    follow(loaded, registry, note=note)
    return event
