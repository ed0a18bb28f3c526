"""Two models on rows that both scored: the difference of each metric with its interval, overall and by slice.

found = on_the_same_rows(registry.store, a, b)      # None: no rows that both scored
found.rows                                          # both sides' `Rows`, in one order
"""

from dataclasses import dataclass

import pyarrow as pa

from flows.tell.comparison.sides import CONFIDENCE, Figure, Interval, Judged, Side, predictions
from headway.config import Frozen
from headway.evaluation.bootstrap import paired
from headway.evaluation.gate_checks import check_same_rows
from headway.evaluation.results.intervals import intervals
from headway.evaluation.slices import slice_rows
from headway.evaluation.verdict import Check
from headway.metrics.base import Better, Rows
from headway.storage.manifest import Manifest
from headway.storage.store import Store
from headway.tasks.table import task_of


class Spread(Frozen):
    """A metric of both on the same rows."""

    difference: float | None
    """B - A"""
    interval: Interval | None
    a: float | None
    b: float | None

    def check(self, metric: str, better: Better | None, **where: object) -> Check:
        """The same as a check, whose change is B - A."""
        known = {"before": self.a, "value": self.b, "change": self.difference, "interval": self.interval}
        return Check.model_validate(
            {"name": "same rows", "metric": metric, "better": better, "outcome": "", **known, **where}
        )


class OnSlice(Frozen):
    """A metric of both on the rows of a slice."""

    slice: str
    value: str
    rows: int
    metric: str
    a: Figure
    b: Figure
    difference: float | None
    interval: Interval | None

    def check(self, better: Better | None) -> Check:
        """The same as a check, whose change is B - A."""
        both = Spread(difference=self.difference, interval=self.interval, a=self.a.value, b=self.b.value)
        return both.check(self.metric, better, slice=self.slice, slice_value=self.value, rows=self.rows)


class SameRows(Frozen):
    """Both on rows that both scored."""

    rows: int
    spans: tuple[str, ...]
    """That the rows come from."""
    run: str | None
    """That scored them with both; None: each one's own run did."""
    metrics: dict[str, Spread]
    slices: tuple[OnSlice, ...]


@dataclass(frozen=True)
class Scored:
    """What `on_the_same_rows` found."""

    same: SameRows
    rows: tuple[Rows, Rows]


def on_the_same_rows(store: Store, a: Side, b: Side) -> Scored | None:
    """Return B - A on rows that both scored: from B's run if A was its champion, or the reverse, or each from its own run on
    the same eval rows; None without such rows."""
    task = a.task
    if task != b.task or task is None or ":" in task:
        return None
    for host, guest in ((b, a), (a, b)):
        other = host.evaluated.get(f"evaluate champion {guest.version}")
        own, guests = host.evaluated.get("evaluate"), guest.evaluated.get("evaluate")
        run = host.run if other is not None else None
        if other is None and _examples(store, own) is not None:
            other = guests if _examples(store, own) == _examples(store, guests) else None
        measured = store.find("measure", host.measured) if host.measured else None
        judged = Judged.model_validate({**(measured.key if measured else {}), "task": task})
        mine, theirs = (predictions(store, each, judged.group) for each in (own, other))
        if mine is None or theirs is None:
            continue
        check_same_rows(mine, theirs, f"{guest.title}'s", other or "")
        tables = {host.name: mine, guest.name: theirs}
        first, second = (judged.rows(tables[side.name]) for side in (a, b))
        directed = [metric for metric in judged.metrics if metric.higher_is_better is not None]
        metrics = {
            name: Spread(
                difference=each.difference, interval=each.interval(CONFIDENCE), a=each.champion, b=each.candidate
            )
            for name, each in paired(second, first.prediction, metrics=directed).items()
        }
        slices = () if measured is None else _on_slices(measured, judged, mine, first, second)
        return Scored(
            SameRows(rows=len(mine), spans=host.spans.eval, run=run, metrics=metrics, slices=slices), (first, second)
        )
    return None


def _examples(store: Store, fingerprint: str | None) -> object:
    """What an evaluation scored: fingerprints of spans, and the split of each; None when that is not known."""
    manifest = store.find("evaluate", fingerprint) if fingerprint else None
    return None if manifest is None else (manifest.key.get("inputs") or {}).get("examples")


def _on_slices(measured: Manifest, judged: Judged, table: pa.Table, a: Rows, b: Rows) -> tuple[OnSlice, ...]:
    """Both sides on each slice that the run measured, by the metrics that the gate compares."""
    known = {metric.name: metric for metric in judged.metrics}
    metrics = [known[name] for name in ("ndcg", *task_of(judged.task).tolerances) if name in known]
    found = []
    for name in measured.key["slices"]:
        for value, at in slice_rows(table, name, measured.key["config"]["slice_min_rows"]):
            sides = [rows.at(at) for rows in (a, b)]
            ranges = [intervals(rows, metrics, confidence=CONFIDENCE) for rows in sides]
            spreads = paired(sides[1], sides[0].prediction, metrics=metrics)
            for metric in metrics:
                one, other = (
                    Figure(value=metric.on(rows), interval=each[metric.name])
                    for rows, each in zip(sides, ranges, strict=True)
                )
                spread = spreads[metric.name]
                found.append(
                    OnSlice(
                        slice=name,
                        value=value,
                        rows=len(at),
                        metric=metric.name,
                        a=one,
                        b=other,
                        difference=spread.difference,
                        interval=spread.interval(CONFIDENCE),
                    )
                )
    return tuple(found)
