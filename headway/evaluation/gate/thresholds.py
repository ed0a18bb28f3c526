"""Absolute thresholds of the candidate: over all evaluation rows, and on slices.

list(threshold_checks(config, models, values))
# checks such as: auc on carrier=UA (812 rows) is 0.61, at least 0.7 is required
"""

from collections.abc import Iterator

from headway.evaluation.gate.scored_models import ScoredModels
from headway.evaluation.gate_config import Bounds, GateConfig, slice_and_value
from headway.evaluation.slices import slice_rows
from headway.evaluation.verdict import REJECTED, THRESHOLD, Check

NOT_CHECKED = "not checked"


def threshold_checks(config: GateConfig, models: ScoredModels, values: dict[str, float | None]) -> Iterator[Check]:
    """The candidate against every threshold.

    Args:
        values: its metrics over all rows.
    """
    for name, threshold in config.thresholds.items():
        measured = Check(name=THRESHOLD, metric=name, value=values[name], rows=len(models.candidate), outcome="")
        yield from _sides(measured, threshold)
        for key, bounds in threshold.slices.items():
            yield from _on_slice(config, models, name, key, bounds)


def _sides(measured: Check, bounds: Bounds) -> Iterator[Check]:
    value = measured.value
    for side, limit in (("at least", bounds.min), ("at most", bounds.max)):
        if limit is None:
            continue
        passed = value is not None and (value >= limit if side == "at least" else value <= limit)
        yield measured.model_copy(
            update={
                "allowed": limit,
                "limit": side,
                "passed": passed,
                "status": None if passed else REJECTED,
                "outcome": "met" if passed else "missed" if value is not None else "no value",
            }
        )


def _on_slice(config: GateConfig, models: ScoredModels, name: str, key: str, bounds: Bounds) -> Iterator[Check]:
    """A value that is named has to have rows and a value of the metric; of all values, those that have are looked at."""
    column, only = slice_and_value(key)
    rows, metric = models.judged(name)
    few, enough = set[str](), set[str]()
    unknown, found = 0, False
    for value, at in slice_rows(models.candidate, column):
        if only not in (None, value):
            continue
        if len(at) < config.slice_min_rows:
            few.add(value)
            continue
        enough.add(value)
        measured = metric.on(rows.at(at))
        if measured is None and only is None:
            unknown += 1
            continue
        found = True
        check = Check(name=THRESHOLD, metric=name, slice=column, slice_value=value, outcome="")
        yield from _sides(check.model_copy(update={"value": measured, "rows": len(at)}), bounds)
    every = models.rows_by_value(column)
    lost = sorted(
        value
        for value, count in every.items()
        if only in (None, value) and count >= config.slice_min_rows and value not in enough
    )
    unchecked = Check(
        name=THRESHOLD, metric=name, slice=column, slice_value=only, allowed=config.slice_min_rows, outcome=NOT_CHECKED
    )
    if found:
        for why, count, values in (
            ("few rows", len(few.difference(lost)), ()),
            ("no value", unknown, ()),
            ("few rows in the sample", len(lost), tuple(lost)),
        ):
            if count:
                yield unchecked.model_copy(update={"why": why, "count": count, "names": values, "concern": bool(lost)})
        return
    if only is None:
        why = "no value has enough rows in the sample" if lost else "no value has enough rows"
    elif only in lost:
        why = "few rows in the sample"
    else:
        why = "few rows" if few or only in every else "no rows"
    count = every[only] if only in lost else unknown
    yield unchecked.model_copy(update={"why": why, "count": count, "passed": False, "status": REJECTED})
