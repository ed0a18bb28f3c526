"""Tables that are hard for what is in them, made from seeds: a function writes a file and tells what is odd, path and label.

odd, path, label = binary(300)(folder)
odd, path, label = leak(folder)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv

Written = tuple[str, Path, str | None]
LONG_ROWS = 5_000_000
CITIES = ["Oslo", "Bergen", "Lund", "Malmö", "Aarhus", "Kiel", "Gdańsk", "Turku", "Riga", "Tartu", "Visby", "Kaunas"]


def _people(rows: int, seed: int) -> tuple[pd.DataFrame, Any]:
    """Numbers, categories and a flag as in a table of customers, and a score that depends on them."""
    random = np.random.default_rng(seed)
    age, visits = random.integers(18, 90, rows), random.poisson(4, rows)
    income = np.round(np.exp(random.normal(10.2, 0.6, rows)), 2)
    plan = random.choice(["basic", "plus", "premium"], rows, p=[0.6, 0.3, 0.1])
    city = random.choice(CITIES, rows)
    frame = pd.DataFrame(
        {
            "age": age,
            "visits": visits,
            "income": income,
            "plan": plan,
            "city": city,
            "newsletter": random.random(rows) < 0.4,
        }
    )
    frame.loc[random.random(rows) < 0.08, "income"] = np.nan
    score = (
        0.04 * (age - 50)
        - 0.25 * (visits - 4)
        + 0.8 * np.log(income / 27_000)
        + 0.9 * (plan == "premium")
        - 0.7 * (plan == "basic")
        + 0.5 * np.isin(city, CITIES[:4])
        - 0.4 * ((age > 65) & (visits > 4))
    )
    return frame, score + random.logistic(0, 0.5, rows)


def write_csv(folder: Path, name: str, frame: pd.DataFrame) -> Path:
    path = folder / name
    if frame.size > 1_000_000:
        pacsv.write_csv(pa.Table.from_pandas(frame, preserve_index=False), path)
    else:
        frame.to_csv(path, index=False)
    return path


def binary(rows: int, share: float = 0.5) -> Callable[[Path], Written]:
    def write(folder: Path) -> Written:
        frame, score = _people(rows, rows)
        frame["churned"] = np.where(score > np.quantile(score, 1 - share), "yes", "no")
        return f"{rows:,} rows", write_csv(folder, "customers.csv", frame), "churned"

    return write


def rare(folder: Path) -> Written:
    frame, score = _people(100_000, 3)
    frame["fraud"] = (score > np.quantile(score, 0.998)).astype(int)
    return "0.2% positive", write_csv(folder, "payments.csv", frame), "fraud"


def classes(rows: int, shares: list[float]) -> Callable[[Path], Written]:
    def write(folder: Path) -> Written:
        frame, score = _people(rows, rows + len(shares))
        edges = np.quantile(score, np.cumsum(shares)[:-1])
        frame["tier"] = np.array([f"tier {c}" for c in "ABCDEFGHIJKL"])[np.searchsorted(edges, score)]
        return f"{rows:,} rows, {len(shares)} classes", write_csv(folder, "tiers.csv", frame), "tier"

    return write


def numbers(kind: str, rows: int) -> Callable[[Path], Written]:
    def write(folder: Path) -> Written:
        frame, score = _people(rows, 11)
        random = np.random.default_rng(12)
        name = {"plain": "spent", "outliers": "spent", "log": "price", "zeros": "claims"}[kind]
        if kind == "plain":
            frame[name] = (100 + 20 * score).round(2)
        elif kind == "outliers":
            frame[name] = (100 + 20 * score).round(2)
            at = random.random(rows) < 0.005
            frame.loc[at, name] = (frame.loc[at, name] * random.choice([-1, 1], int(at.sum())) * 100).round(2)
        elif kind == "log":
            frame[name] = np.exp(11 + 0.8 * score).round(0)
        else:
            frame[name] = np.where(random.random(rows) < 0.7, 0, random.poisson(np.exp(0.5 + 0.5 * score)))
        return (
            {"plain": f"{rows} rows", "outliers": "outliers", "log": "log-normal", "zeros": "70% zeros"}[kind],
            write_csv(folder, "table.csv", frame),
            name,
        )

    return write


def expression(folder: Path) -> Written:
    rows = 4000
    random = np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "Flight Date": pd.to_datetime("2023-01-01")
            + pd.to_timedelta(np.sort(random.integers(0, 365, rows)), unit="D"),
            "Carrier Code": random.choice(["AA", "DL", "UA", "WN", "B6"], rows, p=[0.3, 0.2, 0.2, 0.2, 0.1]),
            "Dep Hour": random.integers(5, 23, rows),
            "Distance (mi)": random.integers(100, 2500, rows),
        }
    )
    dep = (random.gamma(1.2, 12, rows) + frame["Dep Hour"] * 0.9 - 16).round()
    frame["Dep Delay (min)"] = dep
    frame["Arr Delay"] = (dep + random.normal(0, 9, rows) - 0.002 * frame["Distance (mi)"]).round()
    return "an expression over names with blanks", write_csv(folder, "delays 2023.csv", frame), "Arr Delay > 15"


def wide(rows: int, kind: str) -> Callable[[Path], Written]:
    def write(folder: Path) -> Written:
        random = np.random.default_rng(rows)
        columns, score = {}, np.zeros(rows)
        for i in range(2000):
            if kind == "text":
                codes = random.integers(0, 20, rows)
                columns[f"q{i}"] = np.array([f"answer {c}" for c in range(20)])[codes]
                score += (codes < 10) * (i < 5)
            else:
                values = random.normal(size=rows).astype(np.float32).round(3)
                if kind == "sparse":
                    values = np.where(random.random(rows) < 0.97, 0, np.abs(values))
                columns[f"x{i}"] = values
                score += values * (i < 20)
        columns["y"] = (score + random.normal(size=rows) * score.std() > np.median(score)).astype(int)
        return f"2,000 columns ({kind}), {rows:,} rows", write_csv(folder, "wide.csv", pd.DataFrame(columns)), "y"

    return write


def names(folder: Path) -> Written:
    rows = 60_000
    random = np.random.default_rng(8)
    first = ["Anna", "Ola", "Kari", "Per", "Ida", "Jon", "Eva", "Lars", "Mia", "Nils"]
    last = ["Hansen", "Berg", "Lund", "Dahl", "Moe", "Lie", "Vik", "Haug"]
    host = random.choice(["shop.example", "news.example", "blog.example", "mail.example"], rows)
    frame = pd.DataFrame(
        {
            "customer name": [
                f"{random.choice(first)} {random.choice(last)} {n}" for n in random.integers(0, 50_000, rows)
            ],
            "url": [f"https://{h}/p/{n}" for h, n in zip(host, random.integers(0, 10**7, rows), strict=True)],
            "merchant": [f"M{n:05d}" for n in random.zipf(1.3, rows) % 20_000],
            "amount": random.gamma(2, 30, rows).round(2),
        }
    )
    effect = dict(zip(sorted(set(frame["merchant"])), random.normal(size=frame["merchant"].nunique()), strict=True))
    score = frame["merchant"].map(effect) + 0.02 * (frame["amount"] - 60) + random.logistic(0, 1, rows)
    frame["returned"] = (score > 0.5).astype(int)
    return "50,000 names, a URL per row, 20,000 merchants", write_csv(folder, "orders.csv", frame), "returned"


def missing(folder: Path) -> Written:
    frame, score = _people(5000, 21)
    random = np.random.default_rng(22)
    for i in range(10):
        frame[f"lab_{i}"] = np.where(random.random(5000) < 0.95, np.nan, random.normal(size=5000).round(2))
    frame["remark"] = np.where(random.random(5000) < 0.99, None, "see file")
    frame["never"] = None
    score = score + np.where(frame["lab_0"].isna(), 0, 2)
    frame["sick"] = score > np.quantile(score, 0.7)
    return "95% missing in 10 columns", write_csv(folder, "patients.csv", frame), "sick"


def leak(folder: Path) -> Written:
    frame, score = _people(5000, 31)
    random = np.random.default_rng(32)
    churned = score > np.quantile(score, 0.8)
    frame.insert(0, "CustomerNo", random.permutation(np.arange(100_000, 105_000)))
    frame["status_text"] = np.where(churned, "gone", "here")
    frame["flag"] = np.where(random.random(5000) < 0.002, ~churned, churned).astype(int)
    frame["cancel_reason"] = np.where(churned, random.choice(["price", "moved", "service"], 5000), None)
    frame["cancelled_on"] = np.where(
        churned,
        [
            f"2024-{m:02d}-{d:02d}"
            for m, d in zip(random.integers(1, 13, 5000), random.integers(1, 29, 5000), strict=True)
        ],
        None,
    )
    frame["days_to_exit"] = np.where(churned, random.integers(1, 60, 5000), 999)
    frame["churn"] = churned.astype(int)
    return "copies of the label, columns known after it, an identifier", write_csv(folder, "leaky.csv", frame), "churn"


def leak_number(folder: Path) -> Written:
    frame, score = _people(4000, 33)
    frame["net"] = (100 + 20 * score).round(2)
    frame["gross"] = (frame["net"] * 1.25).round(2)
    frame["vat"] = (frame["gross"] - frame["net"]).round(2)
    return "the price with tax beside the price", write_csv(folder, "invoices.csv", frame), "net"


def duplicates(folder: Path) -> Written:
    frame, score = _people(1500, 41)
    frame["left"] = score > np.median(score)
    again = pd.concat([frame, frame, frame]).sample(frac=1, random_state=0)
    again.insert(0, "row id", np.arange(len(again)) + 1)
    return "each row three times, under other ids", write_csv(folder, "copied.csv", again), "left"


def series(folder: Path) -> Written:
    random = np.random.default_rng(51)
    days = pd.date_range("2021-01-01", "2023-12-31", freq="D")
    rows = []
    for store in range(8):
        base = random.uniform(50, 200)
        season = 1 + 0.3 * np.sin(2 * np.pi * days.dayofyear / 365.25) + 0.25 * (days.dayofweek >= 5)
        promo = random.random(len(days)) < 0.15
        sold = random.poisson(base * season * (1 + 0.4 * promo))
        rows.append(pd.DataFrame({"date": days, "store": f"S{store}", "promo": promo.astype(int), "sold": sold}))
    frame = pd.concat(rows).sort_values(["date", "store"])
    return "8 series of 3 years: later days judge", write_csv(folder, "sales.csv", frame), "sold"


def groups(folder: Path) -> Written:
    random = np.random.default_rng(61)
    people = 600
    own = random.normal(size=people)
    who = random.integers(0, people, 6000)
    frame = pd.DataFrame(
        {
            "patient_id": who + 10_000,
            "height": (170 + 8 * random.normal(size=people)[who]).round(1),
            "pulse": (70 + 6 * random.normal(size=6000) + 2 * own[who]).round(),
            "dose": random.choice([5, 10, 20], 6000),
        }
    )
    frame["relapse"] = (
        1.5 * own[who] + 0.05 * (frame["pulse"] - 70) + 0.05 * frame["dose"] + random.logistic(0, 0.7, 6000) > 0.8
    ).astype(int)
    return "10 rows per patient, who is known by the height", write_csv(folder, "visits.csv", frame), "relapse"


def long(folder: Path) -> Written:
    random = np.random.default_rng(71)
    rows = LONG_ROWS
    frame = pd.DataFrame({f"s{i}": random.normal(size=rows).astype(np.float32).round(3) for i in range(4)})
    frame["alarm"] = (frame["s0"] * frame["s1"] + frame["s2"] + random.normal(size=rows) > 1).astype(int)
    return "5 million rows", write_csv(folder, "sensors.csv", frame), "alarm"


def shapes(folder: Path) -> Written:
    from PIL import Image, ImageDraw

    random = np.random.default_rng(81)
    for i in range(900):
        kind = ["circle", "square", "cross"][i % 3]
        size = int(random.integers(40, 90))
        image = Image.fromarray(random.integers(0, 90, (size, size, 3)).astype("uint8"))
        draw = ImageDraw.Draw(image)
        r, x, y = random.uniform(0.15, 0.3) * size, *(random.uniform(0.35, 0.65, 2) * size)
        colour = tuple(int(v) for v in random.integers(100, 255, 3))
        if kind == "circle":
            draw.ellipse([x - r, y - r, x + r, y + r], fill=colour)
        elif kind == "square":
            draw.rectangle([x - r, y - r, x + r, y + r], fill=colour)
        else:
            draw.line([x - r, y, x + r, y], fill=colour, width=max(2, int(r / 3)))
            draw.line([x, y - r, x, y + r], fill=colour, width=max(2, int(r / 3)))
        of = folder / "shapes" / kind
        of.mkdir(parents=True, exist_ok=True)
        image.save(of / f"{i}.jpg", quality=90)
    return "JPEG files of many sizes in folders", folder / "shapes", None


def reviews(folder: Path) -> Written:
    random = np.random.default_rng(91)
    good = ["great", "lovely", "tasty", "friendly", "warm", "fresh", "quick", "perfect", "charming", "excellent"]
    bad = ["slow", "cold", "rude", "stale", "bland", "dirty", "noisy", "awful", "greasy", "overpriced"]
    plain = [
        "the",
        "food",
        "was",
        "and",
        "service",
        "place",
        "we",
        "had",
        "a",
        "dinner",
        "with",
        "table",
        "wine",
        "staff",
        "very",
        "it",
        "our",
        "there",
        "for",
        "evening",
        "room",
    ]
    rows, labels = [], []
    for i in range(3000):
        mood = i % 2
        words = [str(random.choice(plain)) for _ in range(int(random.integers(8, 30)))]
        for _ in range(int(random.integers(1, 4))):
            words.insert(
                int(random.integers(0, len(words))),
                str(random.choice((bad, good)[mood] if random.random() < 0.75 else (bad, good)[1 - mood])),
            )
        rows.append(" ".join(words).capitalize() + random.choice([".", "!", "", ", really."]))
        labels.append("positive" if mood else "negative")
    return (
        "one column of sentences",
        write_csv(folder, "reviews.csv", pd.DataFrame({"review": rows, "sentiment": labels})),
        "sentiment",
    )
