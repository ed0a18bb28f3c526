"""Writes MovieLens-100k as one Parquet file a month: data/1997-09.parquet to data/1998-04.parquet.

    python examples/movielens/prepare.py ~/ml-100k        # your copy, unzipped
    python examples/movielens/prepare.py                  # without one: generated ratings of the same form

The data may not be handed on, so you fetch it yourself: https://grouplens.org/datasets/movielens/100k/ (ml-100k.zip, 5 MB). Each
rating becomes a row with what is known of the movie and the user, and with what the user liked (4 and 5) and disliked
before: the last 50 movies each, rated strictly earlier than the row. Rows are sorted by user, then time.
"""

from __future__ import annotations

import sys
from pathlib import Path

import generate
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headway.tabular.histories import histories

FOLDER = Path(__file__).resolve().parent
LAST = 50
LIKED = 4
"""From this rating on a movie was liked."""
WHERE = "fetch ml-100k.zip from https://grouplens.org/datasets/movielens/100k/, unzip it, and name the folder"


def lines(folder: Path, name: str, separator: str, columns: int) -> list[list[str]]:
    """The fields of a file's lines; SystemExit where it is missing or has another form."""
    path = folder / name
    if not path.is_file():
        raise SystemExit(f"{path} is missing: {WHERE}")
    rows = [line.split(separator) for line in path.read_text(encoding="latin-1").splitlines() if line]
    for number, row in enumerate(rows, start=1):
        if len(row) != columns:
            raise SystemExit(f"{path}:{number}: {columns} fields are expected, and it has {len(row)}: {WHERE}")
    return rows


def table(folder: Path) -> pa.Table:
    """Every rating with its movie, its user and the user's history, sorted by month, user and time."""
    data = np.asarray(lines(folder, "u.data", "\t", 4), np.int64)
    data = data[np.lexsort((data[:, 1], data[:, 3], data[:, 0]))]
    user, movie, rating, seconds = data.T
    items = {int(row[0]): row for row in lines(folder, "u.item", "|", 5 + len(generate.GENRES))}
    people = {int(row[0]): row for row in lines(folder, "u.user", "|", 5)}
    flags = {
        number: [g for g, flag in zip(generate.GENRES, row[5:], strict=True) if flag == "1"]
        for number, row in items.items()
    }
    past = {
        "liked": histories(user, seconds, movie, last=LAST, counted=rating >= LIKED),
        "disliked": histories(user, seconds, movie, last=LAST, counted=rating < LIKED),
    }
    return pa.table(
        {
            "user_id": user,
            "movie_id": movie,
            "rating": rating,
            "time": pa.array(seconds * 1_000_000, pa.timestamp("us")),
            "age": pa.array([int(people[number][1]) for number in user.tolist()]),
            "gender": [people[number][2] for number in user.tolist()],
            "occupation": [people[number][3] for number in user.tolist()],
            "year": [int(items[number][2][-4:]) if items[number][2] else None for number in movie.tolist()],
            "genres": pa.array([flags[number] for number in movie.tolist()], pa.list_(pa.string())),
            **past,
        }
    )


def main(folder: Path | None = None) -> None:
    if folder is None:
        folder = FOLDER / "generated"
        generate.write(folder)
        print("no copy of MovieLens-100k was named: the ratings are generated (see generate.py)")
    rows = table(folder)
    months = rows.column("time").to_numpy().astype("datetime64[M]")
    out = FOLDER / "data"
    out.mkdir(exist_ok=True)
    for old in out.glob("*.parquet"):
        old.unlink()
    for month in np.unique(months):
        pq.write_table(rows.filter(pa.array(months == month)), out / f"{month}.parquet")
    print(f"wrote {rows.num_rows:,} ratings, {len(np.unique(months))} months, to {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).expanduser() if len(sys.argv) > 1 else None)
