"""Errors of a request, with the HTTP status that they are answered with.

raise RequestError("'late' is not a number", where="instances[2].dep_delay", fix="send a number")
answered(error)            # "instances[2].dep_delay: 'late' is not a number; send a number"
"""

from __future__ import annotations

from headway.errors import HeadwayError


class RequestError(HeadwayError):
    """The client's mistake: 400."""

    status = 400


class NotServed(RequestError):
    """No such model, version or address: 404."""

    status = 404


class TooLarge(RequestError):
    """The body is larger than the server takes: 413."""

    status = 413


class Busy(RequestError):
    """The queue is full, or the server ends: 503; the same request may be sent again."""

    status = 503


def answered(error: HeadwayError) -> str:
    """The error as one line of text, as it stands under "error" in the answer."""
    return str(error).replace("\n  fix: ", "; ")
