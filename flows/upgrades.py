"""Reads what earlier versions wrote: each function takes the JSON of any version and returns it as this one writes it."""

from __future__ import annotations

from collections.abc import Mapping

FORMAT = 2
"""Of a run's record."""


def upgraded(value: object) -> object:
    """The JSON of a run's record; what is none is returned as it is, for the model to refuse.

    Before format 2 metrics could hold tables, and what a run had not come to yet was null.
    """
    if not isinstance(value, Mapping) or value.get("format", 1) >= FORMAT:
        return value
    record = {name: each for name, each in value.items() if each is not None}
    if isinstance(metrics := record.get("metrics"), Mapping):
        record["metrics"] = _numbers(metrics)
    if isinstance(baselines := record.get("baselines"), Mapping):
        record["baselines"] = {who: _numbers(of) for who, of in baselines.items() if isinstance(of, Mapping)}
    return record


def _numbers(metrics: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in metrics.items() if value is None or isinstance(value, int | float)}
