"""The body of a request as JSON, whose size is known before it becomes Python objects.

    most_values(body)                 # at most so many values, by bytes that are counted in milliseconds
    value = parsed(body, limits)      # the object; the body is emptied, as it may be large

What is refused: more values than the limit, a key that stands twice in an object, and text that Python would hold in several
times its bytes.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfcore.serving.refusals import RequestError, RequestLimits, TooLarge

MIB = 1 << 20
LITERALS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""What stands bare in a body. A number that is too large for Python is another infinity than these."""
_FOUR_BYTES = 0xF0
"""The first byte of a letter outside the basic plane, which makes Python hold every letter of a text in 4 bytes."""


def most_values(body: bytes | bytearray) -> int:
    """An upper bound of the values of a body, in which those with a name count twice."""
    return 1 + body.count(b",") + body.count(b"[") + body.count(b"{") + body.count(b":")


def values_of(body: bytes | bytearray) -> int:
    """The number of values, in which those with a name count twice; commas and brackets inside texts are none."""
    count, inside = 1, 0
    for window in _windows(body):
        data = np.frombuffer(window.replace(b"\\\\", b"__").replace(b'\\"', b"__"), np.uint8)
        # whether each byte stands inside quotes: the parity of the quotes up to it
        quoted = (np.cumsum(data == ord('"'), dtype=np.uint32) + inside) & 1
        marks: NDArray[np.bool_] = np.isin(data, np.frombuffer(b",[{:", np.uint8))
        count += int((marks & (quoted == 0)).sum())
        inside = int(quoted[-1])
    return count


def _windows(body: bytes | bytearray) -> Iterator[bytes]:
    """Pieces of a body, none of which ends within an escape."""
    at = 0
    while at < len(body):
        end = min(at + MIB, len(body))
        while end < len(body) and body[end - 1] == ord("\\"):
            end += 1
        yield bytes(memoryview(body)[at:end])
        at = end


def parsed(body: bytearray, limits: RequestLimits, most_bytes: int) -> dict[str, Any]:
    """The object that a body holds; the body is empty afterwards.

    Args:
        most_bytes: of the text in memory.

    Raises:
        RequestError: it is no JSON object, or not a plain one.
        TooLarge: it has more values or text than it may.
    """
    if most_values(body) > limits.cells and (count := values_of(body)) > limits.cells:
        limits.check_cells(count, f"the request has {count:,} values")
    compressed = body[:2] == b"\x1f\x8b"
    try:
        value = _DECODER.decode(_text(body, most_bytes))
    except RecursionError:
        raise RequestError("the body is nested too deeply", fix="send one list or object per row") from None
    except ValueError as error:
        fix = "send it uncompressed, in UTF-8" if compressed else "check it with a JSON parser"
        reason = "a whole number has thousands of digits" if "limit" in str(error) else str(error)
        raise RequestError(f"the body is not JSON: {reason}", fix=fix) from None
    if not isinstance(value, dict):
        raise RequestError("the body is not a JSON object", fix='send {"instances": [...]}')
    return value


def _text(body: bytearray, most_bytes: int) -> str:
    if len(body) > most_bytes // 4 and np.frombuffer(body, np.uint8).max() >= _FOUR_BYTES:
        letters = int((np.frombuffer(body, np.uint8) & 0xC0 != 0x80).sum())  # other bytes continue a letter
        if 4 * letters > most_bytes:
            problem = f"a letter outside Unicode's basic plane makes the text {4 * letters / MIB:.0f} MiB in memory"
            raise TooLarge(f"{problem}, more than {most_bytes / MIB:g}", fix="send fewer rows at once")
    text = body.decode(json.detect_encoding(body))
    body.clear()
    return text


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise RequestError(f"an object has the key {twice!r} twice", fix="send each key once")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=LITERALS.__getitem__)
