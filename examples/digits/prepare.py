"""Writes scikit-learn's 1,797 handwritten digits as PNG files of 8 x 8 grey pixels, and a table of file names and labels.

python examples/digits/prepare.py
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

IMAGES = 1797


def main() -> None:
    folder = Path(__file__).parent / "data"
    if (folder / "labels.csv").exists():
        print(f"{folder} is there already")
        return
    try:
        from PIL import Image
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise SystemExit(f"{error.name} is not installed: pip install scikit-learn pillow") from None
    digits = load_digits()
    assert digits.images.shape == (IMAGES, 8, 8), digits.images.shape
    aside = folder.with_name(".data")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    names = [f"{number:04d}.png" for number in range(IMAGES)]
    for name, pixels in zip(names, np.round(digits.images * (255 / 16)).astype(np.uint8), strict=True):
        Image.fromarray(pixels).save(aside / name)
    csv.write_csv(pa.table({"file": names, "label": digits.target}), aside / "labels.csv")
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)
    print(f"wrote {IMAGES:,} images and labels.csv to {folder}")


if __name__ == "__main__":
    main()
