"""What a request is refused for: errors with the HTTP status that they are answered with, and how large it may be, so that
one costs neither the server's memory nor other clients' time.

raise RequestError("'late' is not a number", where="instances[2].dep_delay", fix="send a number")
answered(error)                                # "instances[2].dep_delay: 'late' is not a number; send a number"
limits = RequestLimits(rows=16_384, cells=1_000_000)
limits.check_rows(20_000, "instances")         # TooLarge: instances: has 20,000 rows, more than 16,384; send fewer ...
"""

from dataclasses import dataclass

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


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    """Limits of one request."""

    rows: int = 16_384
    cells: int = 1_000_000
    """Values of the JSON, where one with a name counts twice; and values of the arrays that it becomes, whose lists are
    filled up to the longest."""

    def check_rows(self, rows: int, where: str) -> None:
        """Raise TooLarge for a request of more rows."""
        if rows > self.rows:
            fix = f"send at most {self.rows:,} at once; headway serve --max-rows sets the limit"
            raise TooLarge(f"has {rows:,} rows, more than {self.rows:,}", where=where, fix=fix)

    def check_cells(
        self, cells: int, what: str, where: str | None = None, fix: str = "send fewer rows at once"
    ) -> None:
        """Raise TooLarge for more cells.

        Args:
            what: sentence that says what has how many, without the limit.
        """
        if cells > self.cells:
            fix += "; headway serve --max-cells sets the limit"
            raise TooLarge(f"{what}, more than {self.cells:,}", where=where, fix=fix)


def answered(error: HeadwayError) -> str:
    """The error as one line of text, as it stands under "error" in the answer."""
    return str(error).replace("\n  fix: ", "; ")
