"""How well single columns tell the label, from a sample of rows.

    strengths(train, names, "binary")            # {"delay": 0.97, "hour": 0.58}

It is judged out of sample: each half of the sampled rows is predicted from the other half, number columns cut into buckets by
their quantiles, so a column of unique values predicts nothing. The rows are sampled by class, so that a rare class has as many
as a common one.
"""

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.messages import number, percent
from headway.metrics.classification import auc
from headway.schema.columns import LABEL
from headway.statistics.row_sample import numbers, ranks
from headway.statistics.split_statistics import SplitStatistics
from headway.tabular.list_arrays import is_number

_BUCKETS = 64
LEAST_ROWS, LEAST_OF_A_CLASS = 200, 30
"""Below these a column may predict the label by chance."""
_NEAR = 0.9
"""What a column explains by its buckets at least, for its order to be looked at."""
Codes = NDArray[np.int64]
Item = TypeVar("Item")


def strengths(train: SplitStatistics, names: Collection[str], task: str) -> dict[str, float]:
    """How well each column alone predicts the label; empty where there is too little of it to say.

    Args:
        task: binary, multiclass or regression.

    Returns:
        The AUC; else the share of the label that is explained: of the mistakes that guessing the commonest class makes, or
        of the variance of the label's rank.
    """
    rows = sampled_rows(train, task)
    target = None if rows is None else target_of(rows.column(LABEL), task)
    if rows is None or target is None:
        return {}
    at = places(rows, names)
    columns = [name for name in train.columns if name != LABEL and name in at]
    found = dict[str, float]()
    for name in columns:
        values = rows.column(at[name])
        if (score := strength(buckets(values), target, task)) is not None:
            found[name] = max(score, _in_order(values, target)) if task == "regression" and score > _NEAR else score
    return found


def _in_order(values: pa.ChunkedArray, target: NDArray[Any]) -> float:
    """What the rank of a number explains of the label's: in a small table, buckets blur a copy such as its logarithm."""
    if values.null_count or not is_number(values.type):
        return 0.0
    return round(float(np.corrcoef(ranks(numbers(values)[0]), target)[0, 1] ** 2), 6)


def tells(score: float, task: str) -> str:
    """A column's strength as a verb and what follows it."""
    better = percent(max(score, 0.0))  # than nothing, which a column of noise may be below
    return {
        "binary": f"ranks the label with an AUC of {number(score)}",
        "multiclass": f"predicts the label with {better} fewer mistakes than guessing the commonest class",
        "regression": f"explains {better} of the variance of the label's rank",
    }[task]


def sampled_rows(train: SplitStatistics, task: str) -> pa.Table | None:
    """The sampled rows, where they are enough."""
    rows = train.by_label.table() if task != "regression" else None
    rows = train.sample.table() if rows is None else rows
    return None if rows is None or LABEL not in rows.column_names or len(rows) < LEAST_ROWS else rows


def places(rows: pa.Table, names: Collection[str]) -> dict[str, int]:
    """The place of each named column. A table searches all of its names for one, and there may be thousands."""
    named = set(names)
    return {name: place for place, name in enumerate(rows.column_names) if name in named}


def target_of(label: pa.ChunkedArray, task: str) -> NDArray[Any] | None:
    """The label as 0/1, as class codes, or as ranks from 0 to 1; None when there is too little of it."""
    if task == "regression":
        if not is_number(label.type):
            return None
        values, good = numbers(label)
        if not good.all() or values.min() == values.max():
            return None
        return ranks(values)
    _, codes, counts = np.unique(label.to_numpy(), return_inverse=True, return_counts=True)
    common = np.sort(counts)[::-1]
    if len(counts) < 2 or common[1:].sum() < LEAST_OF_A_CLASS or (task == "binary" and len(counts) != 2):
        return None
    return codes.astype(np.int64)


def buckets(values: pa.ChunkedArray) -> Codes:
    """The bucket of each row; missing values have their own."""
    missing = values.is_null().to_numpy()
    if is_number(values.type) and values.type != pa.uint64():
        floats, good = numbers(values)
        if not good.any():
            return np.zeros(len(values), np.int64)
        # with both ends: a few least values are told from the rest as well as a few greatest
        edges = np.unique(np.quantile(floats[good], np.linspace(0, 1, _BUCKETS + 1), method="inverted_cdf"))
        edges = _alone(edges, floats[good])
        codes = np.searchsorted(edges, floats, "left")
        codes = np.where(good, codes + 1, 0)
    else:
        codes = np.unique(values.fill_null(0).to_numpy(), return_inverse=True)[1] + 1
    return np.where(missing, codes.max() + 1, codes).astype(np.int64)


def _alone(edges: NDArray[np.float64], floats: NDArray[np.float64]) -> NDArray[np.float64]:
    """The edges, with another below each value that fills a bucket or more, so that the value has a bucket of its own."""
    if len(edges) > _BUCKETS:
        return edges  # none does
    ordered = np.sort(floats)
    places = np.searchsorted(ordered, edges, "left")
    heavy = (np.searchsorted(ordered, edges, "right") - places) * _BUCKETS >= len(ordered)
    return np.unique(np.concatenate([edges, ordered[places[heavy & (places > 0)] - 1]]))


def strength(codes: Codes, target: NDArray[Any], task: str) -> float | None:
    halves = np.arange(len(codes)) % 2
    width = int(codes.max()) + 1
    if task == "multiclass":
        return _explained_classes(codes, target, halves, width)
    predicted = np.zeros(len(codes))
    for half in (0, 1):
        learn, judge = halves != half, halves == half
        prior = float(target[learn].mean())
        count = np.bincount(codes[learn], minlength=width)
        total = np.bincount(codes[learn], weights=target[learn], minlength=width)
        predicted[judge] = ((total + 0.1 * prior) / (count + 0.1))[codes[judge]]
    if task == "binary":
        return auc(target, predicted)
    return 1.0 - float(((target - predicted) ** 2).sum() / ((target - target.mean()) ** 2).sum())


def _explained_classes(codes: Codes, target: NDArray[Any], halves: Codes, width: int) -> float | None:
    classes = int(target.max()) + 1
    right = guessed = 0
    for half in (0, 1):
        learn, judge = halves != half, halves == half
        commonest = int(np.bincount(target[learn], minlength=classes).argmax())
        pairs, counts = np.unique(codes[learn] * classes + target[learn], return_counts=True)
        choice = np.full(width, commonest)
        order = np.argsort(counts, kind="stable")  # the most frequent class of a bucket is written last
        choice[pairs[order] // classes] = pairs[order] % classes
        right += int((choice[codes[judge]] == target[judge]).sum())
        guessed += int((target[judge] == commonest).sum())
    wrong = len(codes) - guessed
    return (right - guessed) / wrong if wrong else None


def exact_codes(values: pa.ChunkedArray) -> NDArray[np.int64]:
    """A code of each value; of one that is missing, 0."""
    codes = np.unique(values.fill_null(0).to_numpy(), return_inverse=True)[1].astype(np.int64) + 1
    return np.where(values.is_null().to_numpy(), 0, codes)


def owned(values: pa.ChunkedArray, classes: Codes, share: float) -> tuple[Codes, Codes]:
    """(the class, how many of its rows have the value) of each value that stands for a class: in that share of the rows at
    least the class's have it, and those that have it are of the class."""
    codes = exact_codes(values)
    of_class, of_value = np.bincount(classes), np.bincount(codes)
    pairs, counts = np.unique(codes * len(of_class) + classes, return_counts=True)
    value, owner = pairs // len(of_class), pairs % len(of_class)
    fits = (counts >= share * of_value[value]) & (counts >= share * of_class[owner])
    return owner[fits], counts[fits]


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many of the items, evenly spread."""
    few = np.linspace(0, len(items) - 1, most).round().astype(int).tolist()
    return [items[i] for i in few] if len(items) > most else list(items)
