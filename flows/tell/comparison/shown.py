"""A comparison as an object that shows itself; `flows.api` hands it out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.tell.comparison.beside import parts_of
from flows.tell.comparison.compared import Compared
from flows.tell.comparison.outcome import outcome_of, primary_of
from flows.tell.html import fragment
from flows.tell.result_table import Table
from flows.tell.text import text
from headway.messages import window_text


class Comparison:
    """Two versions of a model, or two runs: `Pipeline.compare` returns it."""

    def __init__(self, compared: Compared):
        self._compared = compared
        self.record = compared.value
        """What `headway compare --json` prints, without the place of the page."""

    @property
    def summary(self) -> str:
        """Which of the two is better, in a sentence, or why that cannot be told."""
        return str(self.record["summary"])

    @property
    def outcome(self) -> str:
        """ "better", "worse" or "no clear difference" of the second one, by the metric that decides; empty: not to be told."""
        a, b, found = self._compared.a, self._compared.b, self.record["difference"]
        metric, better = primary_of(a, b)
        return "" if found is None or metric is None else outcome_of(metric, found["metrics"].get(metric), better)

    @property
    def metrics(self) -> Table:
        """A row per metric: `difference` (second - first) with the ends of its 95% interval, and both values, on the rows that
        both scored; without such rows each value of its own evaluation, with the spans of its rows."""
        sides, found = (self._compared.a, self._compared.b), self._compared.same
        if found is not None:
            rows: list[dict[str, Any]] = [
                {"metric": name} | {side.title: each[key] for side, key in zip(sides, "ab", strict=True)} | _apart(each)
                for name, each in found.facts["metrics"].items()
            ]
            return Table(rows, self.summary)
        rows = []
        for side in sides:
            of = {"of": side.title, "eval spans": window_text(side.facts["spans"]["eval"])}
            for name, figure in side.facts["metrics"].items():
                low, high = figure["interval"] or (None, None)
                rows.append({"metric": name, **of, "value": figure["value"], "low": low, "high": high})
        return Table(rows, self.summary)

    @property
    def slices(self) -> Table:
        """A row per slice and metric on the rows that both scored; empty without such rows."""
        a, b, found = self.record["a"], self.record["b"], self.record["difference"]
        rows = [
            {name: each[name] for name in ("slice", "value", "rows", "metric")}
            | {a["is"]: each["a"]["value"], b["is"]: each["b"]["value"]}
            | _apart(each)
            for each in (found["slices"] if found else ())
        ]
        return Table(rows, "slices")

    @property
    def settings(self) -> Table:
        """A row per key of the config that differs, with both values."""
        a, b = self.record["a"]["is"], self.record["b"]["is"]
        rows = [{"key": each["key"], a: each["a"], b: each["b"]} for each in self.record["config"]]
        return Table(rows, "settings that differ")

    @property
    def report(self) -> Path:
        """The page with figures, drawn now, on this machine's disk.

        Raises:
            OSError, StoreError: the store cannot be written.
        """
        from flows.tell.comparison.comparison_page import write
        from flows.tell.report_page import on_this_disk

        return on_this_disk(self._compared.store, write(self._compared))

    def __repr__(self) -> str:
        return (
            f"<Comparison of {self._compared.a.title} and {self._compared.b.title}: {self.outcome or 'not to be told'}>"
        )

    def __str__(self) -> str:
        found = self._compared
        problems = [f"{side.title}: {side.facts['problem']}" for side in (found.a, found.b) if side.facts["problem"]]
        return "\n\n".join([self.summary, *problems, *map(text, parts_of(found, drawn=False))])

    def _repr_html_(self) -> str:
        found = self._compared
        return fragment(found.ending, [part for part in parts_of(found, drawn=False) if part.title == "Metrics"])


def _apart(spread: dict[str, Any] | None) -> dict[str, Any]:
    if spread is None:
        return {"difference": None, "low": None, "high": None}
    low, high = spread["interval"] or (None, None)
    return {"difference": spread["difference"], "low": low, "high": high}
