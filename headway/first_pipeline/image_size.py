"""The size at which images are given to the model, from a few of them.

image_size(pa.array([png, png]))              # (8, 8, 1)
"""

import io
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from PIL import Image, UnidentifiedImageError

from headway.tabular.list_arrays import decoded

_LOOKED_AT = 64
_MAGIC = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"BM")
LARGEST = 96
"""Pixels of the longer side; the built-in models need no more, and larger ones take longer."""
_LEAST_PIXELS = 64


def image_size(values: pa.Array) -> tuple[int, int, int] | None:
    """(height, width, channels) of a column of image files, or of the pixels themselves; None where it holds neither."""
    plain = decoded(values).drop_null()
    if not len(plain) or not pa.types.is_binary(plain.type):
        return None
    places = np.unique(np.linspace(0, len(plain) - 1, _LOOKED_AT).astype(np.int64))
    cells: list[bytes] = plain.take(pa.array(places)).to_pylist()
    if all(cell.startswith(_MAGIC) for cell in cells):
        return _of_files(cells)
    lengths = {len(cell) for cell in cells}
    if len(cells) > 1 and len(lengths) == 1 and not all(_is_text(cell) for cell in cells):
        return _of_pixels(lengths.pop())
    return None


def _of_files(cells: list[bytes]) -> tuple[int, int, int] | None:
    sizes, colour = list[tuple[int, int]](), False
    for cell in cells:
        try:
            with Image.open(io.BytesIO(cell)) as image:
                sizes.append(image.size)
                colour |= image.mode not in ("1", "L", "LA", "I", "I;16", "F")
        except (UnidentifiedImageError, OSError):
            continue
    if not sizes:
        return None
    (width, height), many = Counter(sizes).most_common(1)[0]
    if many < len(sizes):
        width, height = (int(np.median([size[i] for size in sizes])) for i in (0, 1))
    shrink = min(1.0, LARGEST / max(width, height))
    return max(1, round(height * shrink)), max(1, round(width * shrink)), 3 if colour else 1


def _of_pixels(length: int) -> tuple[int, int, int] | None:
    for channels in (1, 3):
        side = math.isqrt(length // channels)
        if length >= _LEAST_PIXELS and side * side * channels == length:
            return side, side, channels
    return None


def pixels_note(rows: pa.RecordBatch, vectors: Mapping[str, int], numbers: Sequence[str]) -> str | None:
    """What to say of numbers that may be the pixels of square images: as many, and none beyond 0 to 255.

    Args:
        vectors: the length of each column of vectors.
        numbers: columns of single numbers in their order; those whose names differ in digits alone belong together.
    """
    groups = dict[str, list[str]]()
    for name in numbers:
        groups.setdefault(re.sub(r"[0-9]+", "0", name), []).append(name)
    sets = [([name], length, f"each list of {length} numbers in {name!r}") for name, length in vectors.items()]
    sets += [
        (names, len(names), f"the {len(names)} columns {names[0]!r} to {names[-1]!r}") for names in groups.values()
    ]
    for names, length, what in sets:
        size = _of_pixels(length)
        if size is not None and all(_like_pixels(rows.column(rows.schema.names.index(name))) for name in names):
            height, width, channels = size
            return (
                f"{what} may be an image of {height} x {width} pixels{'' if channels == 1 else ' in colour'}; they are learned "
                f"as numbers without places. A column with the pixels of a row as {length} bytes, or as a PNG file, is "
                f"learned as an image, by {{image: {{height: {height}, width: {width}, channels: {channels}}}}}"
            )
    return None


def _like_pixels(values: pa.Array) -> bool:
    """Whether all are from 0 to 1, or whole and from 0 to 255."""
    values = decoded(values)
    flat = (values.flatten() if pa.types.is_nested(values.type) else values).drop_null()
    if not len(flat) or not (pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type)):
        return False
    plain = flat.to_numpy()
    low, high = plain.min(), plain.max()
    return bool(low >= 0 and (high <= 1 or (high <= 255 and (plain == np.floor(plain)).all())))


def _is_text(cell: bytes) -> bool:
    try:
        return cell.decode("utf-8").isprintable()
    except UnicodeDecodeError:
        return False
