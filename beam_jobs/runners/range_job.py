"""The work on one range, free of Beam: every runner calls it for each range that it deals.

job = RangeJob(request, work_dir, "beam_jobs.ingest.range_worker:ingest_range")
job.run(piece)                  # True: whole; False: stopped, or a user's mistake, which then lies in the work folder
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from beam_jobs.runners.work_dir import FACTS, ROWS, WORKER, WorkDir, writable
from headway.errors import HeadwayError
from headway.sources.base import Range

Tick = Callable[[int], None]
"""Called after each batch with how many rows of the range have been read; may raise to stop."""
Element = tuple[int, Range]
"""(which span, a range of it)"""
_REPORT_SECONDS = 0.2


class Stopped(Exception):
    """Raised inside a range that no longer needs to go on."""


@dataclass(frozen=True)
class RangeJob:
    """The work on the ranges of one span; picklable."""

    request: Any
    work_dir: WorkDir
    work: str
    """What is done with a range: "module:function" of a function (request, range, folder, tick) -> the range's facts, JSON
    values with at least `rows`, which writes into the folder."""

    def run(self, piece: Range) -> bool:
        """Write the range's outputs aside; return whether they are whole.

        A user's mistake is kept in the work folder rather than raised: no runner can mend it by trying again, and raised
        through Beam it would reach the caller as the text of a traceback.
        """
        if self.work_dir.stopped():
            return False
        began = time.time()
        try:
            with writable(self.work_dir.folder.parent), self.work_dir.attempt(piece.index) as folder:
                reported = time.monotonic()

                def tick(rows: int) -> None:
                    nonlocal reported
                    if self.work_dir.stopped():
                        raise Stopped
                    if time.monotonic() > reported + _REPORT_SECONDS:
                        reported = time.monotonic()
                        (folder / ROWS).write_text(str(rows))

                facts = resolve_name(self.work)(self.request, piece, folder, tick)
                ran = {"process": f"{socket.gethostname()}:{os.getpid()}", "began": began, "ended": time.time()}
                (folder / FACTS).write_text(json.dumps(facts | {WORKER: ran}))
        except Stopped:
            return False
        except HeadwayError as error:
            try:
                self.work_dir.fail(piece.index, error)
            except OSError:  # a full disk takes no error either
                raise error from None
            return False
        return True
