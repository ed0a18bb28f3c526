"""The table of tasks and the metrics of each: which names config and gate accept. Imports nothing.

METRICS["binary"]         # what is reported
COMPARED["binary"]        # what a candidate and a champion are compared by
"""

from __future__ import annotations

from typing import Literal

Task = Literal["binary", "multiclass", "regression"]

METRICS: dict[str, tuple[str, ...]] = {
    "binary": ("loss", "auc", "accuracy", "prediction_mean", "label_mean", "calibration", "ece"),
    "multiclass": ("loss", "accuracy"),
    "regression": ("loss", "rmse", "mae", "prediction_mean", "label_mean", "calibration"),
}
"""`loss` is natural log loss, for regression the mean squared error; `calibration` is prediction_mean / label_mean;
`ece` is the expected calibration error over ten bins of equal weight."""

COMPARED: dict[str, tuple[str, ...]] = {
    "binary": ("auc", "loss", "accuracy"),
    "multiclass": ("loss", "accuracy"),
    "regression": ("loss", "rmse", "mae"),
}
"""The metrics whose differences between two models are resampled."""

RANKED: tuple[str, ...] = ("ndcg", "mrr")
"""Beside them, where the order within groups is judged: `headway.evaluation.ranking_metrics`. Reported, and compared."""

HIGHER_IS_BETTER = frozenset({"auc", "accuracy", *RANKED})
"""Of every other compared metric less is better."""

ALL_METRICS: tuple[str, ...] = (
    *dict.fromkeys(name for names in METRICS.values() for name in names),
    *RANKED,
)
ALL_COMPARED: tuple[str, ...] = (
    *dict.fromkeys(name for names in COMPARED.values() for name in names),
    *RANKED,
)
