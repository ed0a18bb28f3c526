"""Cancels a job at Flink itself. Beam's job server only says that it cancelled the job, which runs on (2.62, Flink 1.19).

name = "headway-0f3c"                                   # given to the job as job_name, to find it by
cancel("flink:8081", name)
"""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

_LOCAL = ("[local]", "[auto]")
_ENDED = ("FINISHED", "CANCELED", "FAILED")
_ANSWER_SECONDS = 10.0
_SECONDS = 30.0
"""The seconds within which Flink must list a new job, and a busy Flink must answer."""


def has_rest(master: object) -> bool:
    """Returns whether `master`, Flink's address, is that of a cluster. A mini cluster inside a job server has none."""
    return bool(master) and str(master).strip() not in _LOCAL


def cancel(master: str, name: str) -> bool:
    """Ask Flink to cancel all jobs of this name, and wait until Flink lists one. Returns whether Flink listed one in time.

    Raises:
        OSError: Flink does not answer.
    """
    until = time.monotonic() + _SECONDS
    while True:
        waits = time.monotonic() < until
        try:
            jobs = [job for job in call_rest(master, "jobs/overview")["jobs"] if job["name"] == name]
            for job in jobs:
                if job["state"] not in _ENDED:
                    call_rest(master, f"jobs/{job['jid']}?mode=cancel", "PATCH")
            if jobs or not waits:
                return bool(jobs)
        except OSError as error:
            busy = isinstance(getattr(error, "reason", error), TimeoutError)  # not: gone, or it refuses
            if not (busy and waits):
                raise
        time.sleep(0.2)


def call_rest(master: str, path: str, method: str = "GET") -> Any:
    """Returns the answer of Flink's REST interface as JSON values; an OSError if Flink does not answer, or refuses."""
    base = master.strip().rstrip("/")
    base = base if "://" in base else f"http://{base}"
    request = urllib.request.Request(f"{base}/{path}", method=method)
    with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
        return json.loads(answer.read() or b"{}")
