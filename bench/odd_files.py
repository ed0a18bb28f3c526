"""Files that are written in odd ways, from `headway init` to the verdict, with no edit, beside scikit-learn's boosted trees.

    python bench/odd_files.py                     # about four minutes; needs the packages of the group `bench`
    python bench/odd_files.py --data titled       # this one only

The data are those of packages, as in bench/init.py, and so are the commands, the scores, the margins and what is required.
`processor` is the processor time of both commands, user and system, in seconds.
"""

from __future__ import annotations

import bz2
import csv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from common import raw_flights
from init import compare
from odd_tables import Written


def main() -> None:
    heads = "data, what is odd, rows, metric, Headway, trees, constant, difference, seconds, processor"
    compare(__doc__, "odd_files", DATA, heads)


def _unicode_text(folder: Path) -> Written:
    from palmerpenguins import load_penguins

    load_penguins().to_csv(folder / "penguins.txt", sep="\t", index=False, encoding="utf-16", lineterminator="\r\n")
    return "Excel's Unicode text: UTF-16, tabs", folder / "penguins.txt", "species"


def _titled(folder: Path) -> Written:
    from sklearn import datasets

    text = datasets.load_breast_cancer(as_frame=True).frame.to_csv(index=False, sep=";", decimal=",")
    data = f"sep=;\nKlinik Süd; Station 3\nStand: 1.2.2020\n\n{text}".replace("\n", "\r\n")
    (folder / "cancer.csv").write_bytes(data.encode("cp1252"))
    return "cp1252, `sep=;`, a title of two lines, decimal commas", folder / "cancer.csv", "target"


def _zipped(folder: Path) -> Written:
    from sklearn import datasets

    frame = datasets.load_diabetes(as_frame=True).frame.rename(columns={"s1": "bmi", "s2": " "})
    with zipfile.ZipFile(folder / "diabetes.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("diabetes.csv", frame.to_csv(index=False).replace("\n", ",\n"))
    return "zip; a column twice, one without a name, a comma behind each row", folder / "diabetes.zip", "target"


def _aligned(folder: Path) -> Written:
    from vega_datasets import local_data

    frame = local_data.cars()
    frame["Year"] = frame["Year"].dt.year
    lines = [
        " ".join(f"{'?' if pd.isna(value) else value:>9}" for value in row[1:]) + f'   "{row[0]}"\n'
        for row in frame.dropna(subset="Miles_per_Gallon").itertuples(index=False)
    ]
    (folder / "cars.data").write_text("".join(lines), encoding="utf-8")
    return "no header, columns aligned with blanks, `?` where a value is missing", folder / "cars.data", "column_1"


def _headless(folder: Path) -> Written:
    from statsmodels import datasets

    text = datasets.fair.load_pandas().data.to_csv(index=False, header=False, lineterminator="\r")
    (folder / "fair.data").write_bytes(text.replace(",", ", ").encode())
    return r"no header, a blank behind each comma, line ends `\r`", folder / "fair.data", "column_9 > 0"


def _r_table(folder: Path) -> Written:
    from statsmodels import datasets

    frame = datasets.anes96.load_pandas().data.sample(frac=1.0, random_state=0)
    top, _, rows = frame.to_csv(sep="^", quoting=csv.QUOTE_NONNUMERIC, quotechar="'").partition("\n")
    (folder / "anes.txt.bz2").write_bytes(bz2.compress(f"# exported\n{top.partition('^')[2]}\n{rows}".encode()))
    return "bzip2, separator `^`, a comment, row names that the header lacks", folder / "anes.txt.bz2", "vote"


def _measures(folder: Path) -> Written:
    from vega_datasets import local_data

    frame = local_data.cars().dropna(subset="Miles_per_Gallon")
    frame["Miles_per_Gallon"] = [f"{value:g} mpg" for value in frame["Miles_per_Gallon"]]
    frame["Weight_in_lbs"] = [f"{value:,} lbs" for value in frame["Weight_in_lbs"]]
    frame["Displacement"] = [f"{value * 16.387:.0f} cm³" for value in frame["Displacement"]]
    frame["Horsepower"] = ["unknown" if pd.isna(value) else f"{value:.0f}hp" for value in frame["Horsepower"]]
    frame["Acceleration"] = [f"0:00:{value:04.1f}" for value in frame["Acceleration"]]
    frame["Year"] = frame["Year"].dt.strftime("%Y%m")
    frame.to_json(folder / "cars.json", orient="records", indent=2)
    return (
        "a JSON array; numbers with units, times as 0:00:12.5, months as 197001",
        folder / "cars.json",
        "Miles_per_Gallon",
    )


def _epochs(folder: Path) -> Written:
    frame = raw_flights().to_pandas().dropna(subset="arr_delay").sample(15_000, random_state=0).sort_values("time_hour")
    left = frame[["origin", "dest", "carrier", "distance"]].assign(
        scheduled_at=pd.to_datetime(frame["time_hour"], utc=True).map(lambda hour: int(hour.timestamp() * 1000)),
        departure=[f"{time // 100 % 24}:{time % 100:02d}" for time in frame["sched_dep_time"]],
        late=["Yes " if late and i % 9 == 0 else "YES" if late and i % 7 == 0 else "Yes" if late else "no" if i % 5 else "No"
              for i, late in enumerate(frame["arr_delay"] > 15)],
    )  # fmt: skip
    left.to_csv(folder / "flights.csv", index=False)
    return "times in milliseconds since 1970 and as 5:15; five spellings of two classes", folder / "flights.csv", "late"


DATA: dict[str, Callable[[Path], Written]] = {
    "unicode-text": _unicode_text,
    "titled": _titled,
    "zipped": _zipped,
    "aligned": _aligned,
    "headless": _headless,
    "r-table": _r_table,
    "measures": _measures,
    "epochs": _epochs,
}


if __name__ == "__main__":
    main()
