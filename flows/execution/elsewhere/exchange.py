"""Messages between a run and the worker that makes stages for it: small JSON files in the store, each written by one side.

    exchange = Exchange(store, "20261122-051500-1a2b-gpu-1")
    exchange.put("order-0", {...})           # the run: steps to make          (flows.execution.elsewhere.order)
    exchange.get("answer-0")                 # the worker: {"made": True} or {"error": {...}}; None: not yet
    exchange.put("end", {"stop": False})     # the run: no more orders

Both sides have the store and nothing else in common, a folder or a bucket. `headway gc` removes what a run that died left.
"""

from __future__ import annotations

import json
import re
from typing import Any

from headway.errors import ConfigError, StoreError
from headway.storage.filesystem import is_remote
from headway.storage.store import Store

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,120}")


class Exchange:
    """The messages of one session.

    Args:
        name: of letters, digits, - and _.

    Raises:
        ConfigError: it is not such a name.
    """

    def __init__(self, store: Store, name: str):
        if not _NAME.fullmatch(name):
            problem = f"{name!r} does not name the exchange of a run"
            raise ConfigError(problem, where="exchange", fix="a flow starts this by itself; nobody has to")
        self.name, self._store = name, store
        self.folder = store.exchanges / name
        self.seconds = 1.0 if is_remote(store.name) else 0.2
        """How long to wait between two looks."""

    def put(self, message: str, value: dict[str, Any]) -> None:
        """Write a message; a reader sees all of it or none."""
        self._store.replace(self.folder / f"{message}.json", json.dumps(value) + "\n")

    def get(self, message: str) -> dict[str, Any] | None:
        """Read a message; None while it is not there, or the store does not answer."""
        try:
            value = json.loads(self._store.read(self.folder / f"{message}.json"))
        except (FileNotFoundError, ValueError, StoreError, OSError):
            return None
        return value if isinstance(value, dict) else None

    def remove(self) -> None:
        """Remove all messages."""
        self._store.discard(self.folder)
