"""Finds the best of the last champions, among those with comparable metrics.

    best_champion(history, facts, "auc", most=10)         # 4, or None: the champion itself

A metric of one version and of the next is of other evaluation rows, and cannot be compared. But each promotion held the new
champion against the old one on the same rows, and their difference is kept with the version (`standing_of`). Summed up from
promotion to promotion, these differences put the champions of a chain on one scale. The chain begins anew where it has no
difference to add: with a first model, with another primary metric, and wherever a person decided (a rollback, a promotion
by force or by number), since what a person chose is not to be held against what it replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from headway.registry.registry import Event
from headway.tasks.table import direction


def standing_of(verdict: Mapping[str, Any]) -> dict[str, Any] | None:
    """How the candidate of a verdict stands to the champion: {metric, better, against: its version, difference}; None when they
    were not compared."""
    champion, primary = verdict.get("champion"), verdict.get("primary")
    if not isinstance(champion, Mapping):
        return None
    for compared in verdict["comparisons"]["overall"]:
        if compared["metric"] == primary and compared["interval"] is not None:
            found = {"metric": primary, "against": champion["version"], "difference": compared["difference"]}
            return found | {"better": verdict["better"]}
    return None


def best_champion(
    history: Sequence[Event],
    facts: Mapping[int, Mapping[str, Any]],
    metric: str,
    *,
    most: int,
    barred: Collection[int] = (),
) -> int | None:
    """The version that stood highest among the last `most` champions; None when that is the present one.

    Args:
        history: the registry's, oldest first.
        facts: what versions say of themselves, by number; those that are gone are left out.
        metric: the primary metric.
        barred: versions that cannot be compared now, whatever they were worth.
    """
    chain: list[int] = []
    for event in reversed(history):
        if len(chain) >= most:
            break
        chain.insert(0, event.version)
        if event.kind != "promote" or event.verdict in (None, "forced"):
            break
    heights: dict[int, float] = {}
    height, before = 0.0, None
    for version in chain:
        standing = facts.get(version, {}).get("standing") or {}
        if before is not None and standing.get("metric") == metric and standing.get("against") == before:
            height += direction(metric, standing.get("better")) * standing["difference"]
        elif before is not None:
            heights, height = {}, 0.0
        heights[version], before = height, version
    if before is None:
        return None
    able = {version: at for version, at in heights.items() if version in facts and version not in barred}
    best = max(able, key=lambda version: (able[version], version), default=None)
    return best if best is not None and best != before and able[best] > heights[before] else None
