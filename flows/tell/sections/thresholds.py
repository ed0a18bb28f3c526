"""Thresholds and what they cost: a table of points, which the page's script puts under a slider."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from flows.tell.material import Material
from flows.tell.rendering.tables import Table
from flows.tell.sections.confusion import weighted
from headway.evaluation.results.measured import Measured
from headway.messages import number

_POINTS = 41
Point = tuple[float, float, float]
"""(threshold, false positives, false negatives)"""


def thresholds(material: Material) -> Iterator[Table]:
    """The table of a binary model; none where its curve is not kept, or no row is positive."""
    measured = material.measured
    curve = measured.tables.get("precision_recall") if measured is not None and measured.task == "binary" else None
    counts = {} if measured is None else _labels(measured.tables.get("per_class") or {})
    if measured is None or not curve or not counts.get(1) or not counts.get(0):
        return
    positives, rows = counts[1], sum(counts.values())
    known = [
        (t, *_wrong(p, r, positives))
        for t, p, r in zip(curve["threshold"], curve["precision"], curve["recall"], strict=True)
        if p and r is not None and 0 <= t <= 1
    ]
    if len(known) < 2:
        return
    whole = not weighted(measured.tables["per_class"])
    if whole:  # they count rows
        known = [(t, round(wrong), round(missed)) for t, wrong, missed in known]
    costs, values = _costs(material), np.array([t for t, _, _ in known])
    cost = np.array([each[1:] for each in known]) @ costs
    # evenly spread over the thresholds and over the points, which lie close together where the curve bends
    places = {int(np.abs(values - at).argmin()) for at in np.linspace(0, 1, _POINTS // 2 + 1)}
    places |= {*np.linspace(0, len(known) - 1, _POINTS // 2).astype(int).tolist(), int(cost.argmin())}
    used, none_flagged = _used(measured), (math.inf, 0, round(positives) if whole else positives)
    points = sorted({*(known[at] for at in places), *used, none_flagged})
    shown = list[dict[str, Any]]()
    for threshold, wrong, missed in points:
        right = positives - missed
        shown.append(
            {
                "threshold": _threshold(threshold, values.max()),
                "flagged": f"{(right + wrong) / rows:.1%}",
                "precision": number(right / (right + wrong)) if right + wrong > 0 else "",
                "recall": number(right / positives),
                "false positives": wrong,
                "false negatives": missed,
                "cost": number(wrong * costs[0] + missed * costs[1]),
            }
        )
    start = points.index(used[0]) if used else 0
    note = "" if whole else "False positives and negatives are sums of the rows' weights. "
    note += f"Cost: {number(costs[0])} for a false positive, {number(costs[1])} for a false negative; evaluation.threshold: "
    note += "{cost: {...}} chooses by costs. The rows that judge a threshold here also chose among them."
    wrongs = " ".join(f"{wrong:.12g} {missed:.12g}" for _, wrong, missed in points)
    data = {"thresholds": f"{costs[0]:g} {costs[1]:g} {start}", "wrong": wrongs}
    yield Table("Thresholds, and what they cost", shown, note, folded=True, data=data)


def _wrong(precision: float, recall: float, positives: float) -> tuple[float, float]:
    """The weight of false positives and of false negatives."""
    right = recall * positives
    return max(right / precision - right, 0.0), max(positives - right, 0.0)


def _used(measured: Measured) -> list[Point]:
    """The threshold that the confusion matrix is decided by; none where the matrix is not kept."""
    columns = measured.tables.get("confusion")
    if not columns:
        return []
    used = measured.threshold.value if measured.threshold is not None and measured.threshold.value is not None else 0.5
    of = columns["weight" if weighted(columns) else "rows"]  # by label and decision: 00, 01, 10, 11
    return [(used, of[1], of[2])]


def _threshold(value: float, highest: float) -> str:
    if value > 1:
        return f">{number(highest)}"
    return number(value) if value >= 0.0001 else "<0.0001"


def _labels(columns: dict[str, list[Any]]) -> dict[int, float]:
    """Weight by label, 0 and 1, of the table of classes."""
    return dict(enumerate(columns.get("weight") or columns.get("rows") or ()))


def _costs(material: Material) -> tuple[float, float]:
    """Return the costs of a false positive and a false negative: the pipeline's, or 1 each."""
    rule = (material.key("measure").get("config") or {}).get("threshold") or {}
    costs = rule.get("cost") if isinstance(rule, dict) else None
    return (costs["false_positive"], costs["false_negative"]) if costs else (1.0, 1.0)
