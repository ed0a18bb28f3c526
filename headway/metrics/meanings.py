"""What each metric is, in a clause for people who do not know the metric's name.

meaning("auc")                        # "how often a positive row gets a higher prediction than a negative one: ..."
meaning("bias", "regression")         # a name that tasks share means another thing in each
"""

_ERROR = "how far predictions are off: 0 is perfect"
_MEANINGS = {
    "accuracy": "the share of rows whose class is decided rightly: higher is better",
    "auc": "how often a positive row gets a higher prediction than a negative one: 0.5 is chance, 1 is perfect",
    "bias": "how far the mean prediction is from the mean label, as a factor: 0 is perfect, 0.1 is 10%",
    "bias multiclass": "the share of rows that the predicted shares of the classes are off by: 0 is perfect",
    "bias regression": "how far the mean prediction is from the mean label, in standard deviations of the label: 0 is perfect",
    "brier": "the mean squared distance of the probabilities from what came true: 0 is perfect",
    "calibration": "the mean prediction divided by the mean label: 1 is right",
    "coverage": "the share of labels between the outermost predicted quantiles",
    "deviance": f"{_ERROR} (Poisson deviance)",
    "ece": "how far probabilities are from observed shares, by tenths of the rows: 0 is perfect",
    "f1": "the harmonic mean of precision and recall: 1 is perfect",
    "f1_macro": "the mean over the classes of F1, which joins precision and recall: 1 is perfect",
    "item_coverage": "the share of all items that some group is shown among its first: higher is better",
    "label_mean": "the mean label",
    "loss": "how far the probabilities are from what came true (log loss): lower is better, 0 is perfect",
    "loss count": "what the training makes small (Poisson loss): lower is better",
    "loss quantiles": f"{_ERROR} (quantile loss)",
    "loss regression": f"{_ERROR} (squared error)",
    "mae": "the mean distance of predictions from labels, in the label's unit: 0 is perfect",
    "miscoverage": "how far the shares of labels below the predicted quantiles are from what these promise: 0 is perfect",
    "mrr": "how far up the first row stands that a group wants: 1 is always the first",
    "ndcg": "how well the first rows of a group are ordered: 1 is perfect",
    "pr_auc": "precision, on average over all recalls: the share of positive rows is chance, 1 perfect",
    "precision": "of the rows decided positive, the share that is positive: higher is better",
    "prediction_mean": "the mean prediction",
    "r2": "the share of the labels' variance that predictions explain: 0 is a constant, 1 perfect",
    "recall": "of the positive rows, the share that is decided positive: higher is better",
    "recall_at_k": "of the rows that a group wants, the share among its first: higher is better",
    "retrieval_coverage": "the share of all items that somebody is shown among the first",
    "retrieval_mrr": "how far up the wanted item stands among all items: 1 is always the first",
    "retrieval_ndcg": "how far up among the first of all items the wanted one stands: 1 is always the first",
    "retrieval_recall": "how often the wanted item is among the first of all items",
    "rmse": "the error in the label's unit, in which large ones count more: 0 is perfect",
    "width": "how far the outermost predicted quantiles are apart",
}


def meaning(metric: str, task: str | None = None) -> str:
    """Returns what a metric measures, as a clause; empty for a user's metric, or if the clause depends on a task not given.

    Args:
        task: the task that reports the metric; None: not known.
    """
    if task is None and metric in ("loss", "bias"):
        return ""
    kind = "" if task is None else task.partition("(")[0]
    return _MEANINGS.get(f"{metric} {kind}") or _MEANINGS.get(metric, "")
