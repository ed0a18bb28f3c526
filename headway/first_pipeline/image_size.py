"""Chooses the size at which images are given to the model, from a sample of them.

image_size(pa.array([png, png]))              # (8, 8, 1)
"""

import io
from collections import Counter

import numpy as np
import pyarrow as pa
from PIL import Image

from headway.tabular.list_arrays import decoded

_LOOKED_AT = 64
_ORIENTATION = 0x0112
"""The EXIF tag of an image's orientation; from 5 on, width and height change places."""
_MAGIC = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"BM")
LARGEST = 96
"""The most pixels of the longer side; the built-in models need no more, and larger images take longer."""


def image_size(values: pa.Array) -> tuple[int, int, int] | None:
    """Returns the (height, width, channels) at which to give a column of image files to the model; None if it holds no images."""
    plain = decoded(values).drop_null()
    if not len(plain) or not pa.types.is_binary(plain.type):
        return None
    places = np.unique(np.linspace(0, len(plain) - 1, _LOOKED_AT).astype(np.int64))
    cells: list[bytes] = plain.take(pa.array(places)).to_pylist()
    if not all(cell.startswith(_MAGIC) for cell in cells):
        return None
    sizes, colour = list[tuple[int, int]](), False
    for cell in cells:
        try:
            with Image.open(io.BytesIO(cell)) as image:
                turned = image.getexif().get(_ORIENTATION, 1) >= 5
                sizes.append(image.size[::-1] if turned else image.size)
                colour |= image.mode not in ("1", "L", "LA", "I", "I;16", "F")
        except Exception:  # whatever Pillow throws at a broken one
            continue
    if not sizes:
        return None
    (width, height), many = Counter(sizes).most_common(1)[0]
    if many < len(sizes):
        width, height = (int(np.median([size[i] for size in sizes])) for i in (0, 1))
    shrink = min(1.0, LARGEST / max(width, height))
    return max(1, round(height * shrink)), max(1, round(width * shrink)), 3 if colour else 1
