"""The served model, which is replaced by the new champion after a promotion or a rollback.

    watch = ChampionWatch(registry, say=print)
    watch.start(seconds=2.0)              # a thread that looks at the registry
    model = watch.model                   # to be asked once per request: the request ends on the model that it began with
    watch.stop()

The new champion is loaded and warmed up beside the old one, then takes its place. One that cannot be loaded leaves the old
one serving, and is tried again while it is the champion.
"""

import contextlib
import gc
import threading
import time
from collections.abc import Callable

from headway.errors import HeadwayError
from headway.registry.leases import reading
from headway.registry.pointers import CHAMPION
from headway.registry.registry import Registry
from tfcore.serving.served_model import ServedModel

MOST_SECONDS = 60.0
"""Between two tries of a champion that cannot be loaded."""


class ChampionWatch:
    """Loads the champion, or the version that is named, when it is made.

    Args:
        version: to serve this one (a number, previous or an alias), whatever becomes the champion; None: the champion.
        say: takes a line for a person.

    Raises:
        StoreError: there is none, or it cannot be loaded.
    """

    def __init__(
        self, registry: Registry, *, version: str | None = None, say: Callable[[str], None] = lambda line: None
    ):
        self._registry, self._pinned, self._say = registry, version, say
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._said = ""
        self.model, self._held = self._load(version or CHAMPION)

    def start(self, seconds: float) -> None:
        """Check for a new champion every so many seconds, until `stop`; not if the version was named."""
        if self._pinned is None and self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(seconds,), name="champion-watch", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(10.0)
        self._held.close()

    def look(self) -> bool:
        """Serve the champion if it has changed; returns whether it was replaced.

        Raises:
            HeadwayError: the registry cannot be read, or the champion cannot be loaded; the old one is served still.
        """
        events = self._registry.history()
        if not events or events[-1].version == self.model.version:
            return False
        began = time.perf_counter()
        old, event = self.model.version, events[-1]
        new, held = self._load(str(event.version))
        old_version, self.model, self._held = self._held, new, held
        old_version.close()
        seconds = time.perf_counter() - began
        self._say(f"version {new.version} is served in place of {old} ({event.kind}; loaded in {seconds:.1f} s)")
        return True

    def _load(self, name: str) -> tuple[ServedModel, contextlib.ExitStack]:
        """Load the model, and return it with the lease that keeps its version from being removed."""
        with contextlib.ExitStack() as stack:
            version = stack.enter_context(reading(self._registry, name, "serve", note=self._say))
            self._registry.store.localize([version.saved_model])
            model = ServedModel(version.saved_model, self._registry.name, version.number)
            model.warm_up()
            return model, stack.pop_all()

    def _run(self, seconds: float) -> None:
        wait, replaced = seconds, False
        while not self._stop.wait(wait):
            if replaced:
                gc.collect()  # a loaded model refers to itself: the old one would stay for long
            try:
                replaced = self.look()
                wait, self._said = seconds, ""
            except Exception as error:  # whatever it is, the model that is loaded can be served
                replaced, wait = False, min(max(2 * wait, seconds), max(MOST_SECONDS, seconds))
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        text = str(error) if isinstance(error, HeadwayError) else f"{type(error).__name__}: {error}"
        if text != self._said:  # once, not every few seconds
            self._said = text
            self._say(f"the new champion cannot be served, version {self.model.version} is served still: {text}")
