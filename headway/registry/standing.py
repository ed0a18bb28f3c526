"""How a champion stands to those before it, and the early one that candidates are held against beside the champion.

    standing_of(verdict)                                   # what a version keeps of its promotion
    reference_of(history, facts, most=100)                 # the reference, and how the champions since stood to it

A metric of one version and of the next is of other evaluation rows, and cannot be compared. But each run scores one early
champion, the reference, on its rows too, and the difference is kept with the version. The reference stays the same from
promotion to promotion, so that these differences are on one scale (`headway.evaluation.checks.small_steps`). The chain
begins anew where a candidate was not compared, and wherever a person decided (a rollback, a promotion by force or by
number), since what a person chose is not to be held against what it replaced.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.evaluation.checks.small_steps import differences, of_champion
from headway.evaluation.verdict import CHAMPION, EARLY_CHAMPION, Model, Verdict
from headway.registry.registry import Event


def standing_of(verdict: Verdict) -> dict[str, Any] | None:
    """How the candidate of a verdict stands to the champion: {metric, better, against: its version, difference, interval,
    confidence}, and by every metric to the reference: {version, candidate, champion: {metric: [difference, standard error]}};
    None when they were not compared."""
    compared = verdict.of(CHAMPION, verdict.primary)
    if verdict.champion is None or compared is None or compared.interval is None:
        return None
    return {
        "metric": verdict.primary,
        "against": verdict.champion.version,
        "difference": compared.change,
        "interval": list(compared.interval),
        "confidence": compared.confidence,
        "better": verdict.better,
        "reference": _beside_reference(verdict, verdict.champion),
    }


def _beside_reference(verdict: Verdict, champion: Model) -> dict[str, Any]:
    """The champion is the reference where there is no other."""
    overall, early = verdict.compared(), verdict.compared(EARLY_CHAMPION)
    if not early or verdict.reference is None:
        return {"version": champion.version, "candidate": differences(overall), "champion": {}}
    return {
        "version": verdict.reference.version,
        "candidate": differences(early),
        "champion": of_champion(overall, early),
    }


@dataclass(frozen=True)
class Reference:
    """The champion that candidates are held against beside the present one."""

    version: int
    place: int
    """How many champions came after it; that of the present one on the way from the reference."""
    measured: list[dict[str, Any]]
    """How they stood to it, as `headway.evaluation.checks.small_steps.Measured`."""


def reference_of(
    history: Sequence[Event],
    facts: Mapping[int, Mapping[str, Any]],
    *,
    most: int,
    barred: Collection[int] = (),
) -> Reference | None:
    """The reference, and how the champions since then stood to it; None when there is none but the champion.

    It is the one that the champion was held against, as long as that is one of the last `most` champions; else the first of
    them, or, where there are so many, the one in the middle.

    Args:
        history: the registry's, oldest first.
        facts: what versions say of themselves, by number; those that are gone are left out.
        barred: versions that cannot be compared now.
    """
    chain = _chain(history, facts, most)
    able = [version for version in chain[:-1] if version in facts and version not in barred]
    if not able:
        return None
    reference = _held_against(facts, chain[-1]).get("version")
    if reference not in able:
        reference = able[0] if len(chain) < most else able[len(able) // 2]
    since = chain[chain.index(reference) + 1 :]
    found = []
    for place, version in enumerate(since, 1):
        kept = _held_against(facts, version)
        if kept.get("version") != reference:
            continue
        for at, which in ((place, "candidate"), (place - 1, "champion")):
            if at and kept[which]:
                parts = facts[version].get("eval_parts", [])
                found.append({"place": at, "eval": parts, "differences": kept[which]})
    return Reference(reference, len(since), found)


def _held_against(facts: Mapping[int, Mapping[str, Any]], version: int) -> Mapping[str, Any]:
    """Nothing of a version from before this was kept."""
    return (facts.get(version, {}).get("standing") or {}).get("reference") or {}


def _chain(history: Sequence[Event], facts: Mapping[int, Mapping[str, Any]], most: int) -> list[int]:
    """The last champions, oldest first, of which each was compared with the one before."""
    chain: list[int] = []
    for event in reversed(history):
        if len(chain) >= most:
            break
        chain.insert(0, event.version)
        standing = facts.get(event.version, {}).get("standing") or {}
        if event.kind != "promote" or event.verdict in (None, "forced") or standing.get("against") is None:
            break
    return chain
