"""Thresholds and what they cost: a table of points, which the page's script puts under a slider."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from flows.tell.material import Material
from flows.tell.rendering.tables import Table
from headway.messages import number

_POINTS = 41


def thresholds(material: Material) -> Iterator[Table]:
    """The table of a binary model; none where its curve is not kept, or no row is positive."""
    measured = material.measured
    curve = measured.tables.get("precision_recall") if measured is not None and measured.task == "binary" else None
    counts = {} if measured is None else _labels(measured.tables.get("per_class") or {})
    if measured is None or not curve or not counts.get(1) or not counts.get(0):
        return
    positives, rows = counts[1], sum(counts.values())
    known = [
        (t, p, r)
        for t, p, r in zip(curve["threshold"], curve["precision"], curve["recall"], strict=True)
        if p and r is not None and 0 <= t <= 1
    ]
    if len(known) < 2:
        return
    values = np.array([t for t, _, _ in known])
    # evenly spread over the thresholds and over the points, which lie close together where the curve bends
    even = [int(np.abs(values - at).argmin()) for at in np.linspace(0, 1, _POINTS // 2 + 1)]
    places = sorted(
        {*even, *np.linspace(0, len(known) - 1, _POINTS // 2).astype(int).tolist()}, key=lambda at: values[at]
    )
    costs, shown = _costs(material), list[dict[str, Any]]()
    for threshold, precision, recall in (known[at] for at in places):
        right = recall * positives
        wrong = right / precision - right
        shown.append(
            {
                "threshold": number(threshold) if threshold >= 0.0001 else "<0.0001",
                "flagged": f"{(right + wrong) / rows:.1%}",
                "precision": number(precision),
                "recall": number(recall),
                "false positives": round(wrong),
                "false negatives": round(positives - right),
                "cost": number(round(wrong) * costs[0] + round(positives - right) * costs[1]),
            }
        )
    used = measured.threshold.value if measured.threshold is not None and measured.threshold.value is not None else 0.5
    start = int(np.abs(values[places] - used).argmin())
    note = f"Cost: {number(costs[0])} for a false positive, {number(costs[1])} for a false negative; evaluation.threshold: "
    note += "{cost: {...}} chooses by costs. The rows that judge a threshold here also chose among them."
    data = {"thresholds": f"{costs[0]:g} {costs[1]:g} {start}"}
    yield Table("Thresholds, and what they cost", shown, note, folded=True, data=data)


def _labels(columns: dict[str, list[Any]]) -> dict[int, float]:
    """Weight by label, 0 and 1, of the table of classes."""
    return dict(enumerate(columns.get("weight") or columns.get("rows") or ()))


def _costs(material: Material) -> tuple[float, float]:
    """Of a false positive and a false negative: the pipeline's, or 1 each."""
    rule = (material.key("measure").get("config") or {}).get("threshold") or {}
    costs = rule.get("cost") if isinstance(rule, dict) else None
    return (costs["false_positive"], costs["false_negative"]) if costs else (1.0, 1.0)
