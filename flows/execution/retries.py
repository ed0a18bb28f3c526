"""Retries of errors that pass, such as those of the network.

tried(lambda: run(steps), pipeline.retries, lambda: monitor)
"""

import errno
import random
import re
from collections.abc import Callable
from typing import TypeVar

from headway.errors import HeadwayError
from headway.monitor import Monitor

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 60.0
Result = TypeVar("Result")

_PASSING = {
    *(errno.EIO, errno.ETIMEDOUT, errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED, errno.EPIPE),
    *(errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ESTALE, errno.EAGAIN, errno.EBUSY),
}
_PASSING_WORDS = re.compile(
    r"NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|REQUEST_TIMEOUT|HTTP (status )?(500|502|503|504|429)|"
    r"curlCode: (6|7|28|35|52|55|56)\b|timed out|connection (reset|refused|aborted)|input/output error|stale file handle|"
    r"network is unreachable|temporary failure in name resolution",
    re.IGNORECASE,
)
_BUCKETS_WORDS = re.compile(
    r"failed to lookup address|no answer for|body error|SlowDown|ServiceUnavailable|InternalError|connection broke|"
    r"\b(UNAVAILABLE|DEADLINE_EXCEEDED)\b|status code: (5\d\d|408|429)",
    re.IGNORECASE,
)
"""Of errors of data and the store alone: TensorFlow and code of the user's say them of other things."""


def passing(error: BaseException | None) -> bool:
    """Whether an error is one of the network or a disk that may be over at the next attempt; never a user's mistake."""
    while error is not None:
        words = error.problem if isinstance(error, HeadwayError) and error.exit_code in (1, 3, 5) else ""
        if isinstance(error, OSError):
            if isinstance(error, ConnectionError | TimeoutError) or error.errno in _PASSING:
                return True
            words = "" if error.errno is not None else str(error)  # Arrow's have no number
        if _PASSING_WORDS.search(words):
            return True
        if getattr(error, "exit_code", None) != 1 and _BUCKETS_WORDS.search(words):
            return True
        # `raise ... from None` says that what came before is not the reason
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def tried(
    work: Callable[[], Result],
    retries: int,
    monitor: Callable[[], Monitor],
    *,
    pause: Callable[[float], bool] | None = None,
    draw: Callable[[], float] = random.random,
) -> Result:
    """Do some work, and again when it fails of an error that may pass: after 2, 4, 8, ... seconds, each by a random factor of 0.5
    to 1.5, so that those who failed together do not come back together.

    Args:
        monitor: the work's, asked for when there is something to say.
        pause: waits so many seconds; True when the run is to stop.
    """
    for attempt in range(retries + 1):
        try:
            return work()
        except Exception as error:
            if attempt == retries or not passing(error):
                raise
            seconds = min(FIRST_PAUSE_SECONDS * 2**attempt, LONGEST_PAUSE_SECONDS) * (0.5 + draw())
            of_step = monitor()
            of_step.log(f"{str(error).splitlines()[0]}; trying again in {seconds:.1f} s ({attempt + 1} of {retries})")
            if (pause or of_step.stop.wait)(seconds):
                raise
    raise AssertionError  # the last attempt returns or raises
