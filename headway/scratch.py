"""Temporary folders that go with the process that made them, even if it was killed.

    with Scratch("replay") as folder:         # <TMPDIR>/headway-scratch-replay-4f2k9d1x
        ...

A folder is locked (flock) as long as its process lives, in whatever container that is. Making one removes those of this user
whose process is dead.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
import weakref
from pathlib import Path

_PREFIX = "headway-scratch-"
_NEW_SECONDS = 60.0
"""A folder that changed since then may be about to be locked."""


class Scratch(tempfile.TemporaryDirectory[str]):
    """A temporary folder, as `tempfile.TemporaryDirectory`.

    Args:
        label: part of its name.
    """

    def __init__(self, label: str):
        remove_abandoned()
        super().__init__(prefix=f"{_PREFIX}{label}-", ignore_cleanup_errors=True)
        lock = os.open(self.name, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_SH)
        self._unlock = weakref.finalize(self, os.close, lock)

    def cleanup(self) -> None:
        super().cleanup()
        self._unlock()


def remove_abandoned() -> None:
    """Remove this user's folders of dead processes."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's; locked: its process lives; removed by another process
            lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
            try:
                status = os.fstat(lock)
                if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _NEW_SECONDS:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
