"""A comparison as an object that shows itself; `flows.api` hands it out."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from flows.tell.comparison.compared import Compared
from flows.tell.comparison.comparison_text import lines
from flows.tell.comparison.outcome import UNCLEAR, outcome_of, primary_of
from flows.tell.result_table import Table, html_table
from headway.messages import number, signed


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
        """A row per metric: both values with the ends of their 95% intervals; `difference` (second - first) with its own, on
        the rows that both scored."""
        a, b, found = self.record["a"], self.record["b"], self.record["difference"]
        rows = []
        for name in a["metrics"] | b["metrics"]:
            row: dict[str, Any] = {"metric": name}
            for side in (a, b):
                figure = side["metrics"].get(name) or {}
                low, high = figure.get("interval") or (None, None)
                row |= {side["is"]: figure.get("value"), f"{side['is']} low": low, f"{side['is']} high": high}
            rows.append(row | (_apart(found["metrics"].get(name)) if found else {}))
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
        return "\n".join(lines(self.record))

    def _repr_html_(self) -> str:
        a, b = self._compared.a, self._compared.b
        found = self.record["difference"]
        rows = []
        for name in a.facts["metrics"] | b.facts["metrics"]:
            values = [(side.facts["metrics"].get(name) or {}).get("value") for side in (a, b)]
            row = {"metric": name} | {
                side.title: "" if value is None else number(value) for side, value in zip((a, b), values, strict=True)
            }
            spread = found["metrics"].get(name) if found else None
            apart = signed(spread["difference"]) if spread else ""
            clear = bool(spread) and outcome_of(name, spread) not in ("", UNCLEAR)
            rows.append(row | {"difference": apart + (" *" if clear else "")})
        told = "<p>* beyond chance, at 95%</p>" if found else ""
        return f"<b>{escape(self.summary)}</b>{html_table(rows) if rows else ''}{told}"


def _apart(spread: dict[str, Any] | None) -> dict[str, Any]:
    if spread is None:
        return {"difference": None, "low": None, "high": None}
    low, high = spread["interval"] or (None, None)
    return {"difference": spread["difference"], "low": low, "high": high}
