"""A comparison as an object that shows itself; `flows.api` hands it out."""

from pathlib import Path

from pydantic import JsonValue

from flows.tell.comparison.compared import Compared
from flows.tell.comparison.comparison_page import parts_of, write
from flows.tell.html import fragment
from flows.tell.rendering.tables import Table
from flows.tell.rendering.text import fitted, text
from headway.messages import window_text


class Comparison:
    """Two versions of a model, or two runs: `Pipeline.compare` returns it."""

    def __init__(self, compared: Compared):
        self._compared = compared
        self._sides = (compared.a, compared.b)
        self.summary = compared.ending.headline
        """Which of the two is better, in a sentence, or why that cannot be told."""

    @property
    def record(self) -> dict[str, JsonValue]:
        """What `headway compare --json` prints, without the place of the page."""
        return self._compared.value

    @property
    def outcome(self) -> str:
        """ "better", "worse" or "no clear difference" of the second one, by the metric that decides; empty: not to be told."""
        return self._compared.outcome

    @property
    def metrics(self) -> Table:
        """A row per metric: `difference` (second - first) with the ends of its 95% interval, and both values, on the rows that
        both scored; without such rows each value of its own evaluation, with the spans of its rows."""
        a, b = self._sides
        if (same := self._compared.same) is not None:
            rows = [
                {"metric": name, a.title: each.a, b.title: each.b, "difference": each.difference} | _ends(each.interval)
                for name, each in same.metrics.items()
            ]
            return Table(self.summary, rows)
        own = [
            {"metric": name, "of": side.title, "eval spans": window_text(side.spans.eval), "value": figure.value}
            | _ends(figure.interval)
            for side in self._sides
            for name, figure in side.metrics.items()
        ]
        return Table(self.summary, own)

    @property
    def slices(self) -> Table:
        """A row per slice and metric on the rows that both scored; empty without such rows."""
        a, b = (side.title for side in self._sides)
        found = self._compared.same.slices if self._compared.same else ()
        rows = [
            each.model_dump(include={"slice", "value", "rows", "metric", "difference"})
            | {a: each.a.value, b: each.b.value, **_ends(each.interval)}
            for each in found
        ]
        return Table("slices", rows)

    @property
    def settings(self) -> Table:
        """A row per key of the config that differs, with both values."""
        a, b = (side.title for side in self._sides)
        rows = [{"key": each.key, a: each.a, b: each.b} for each in self._compared.config]
        return Table("settings that differ", rows)

    @property
    def report(self) -> Path:
        """The page with figures, drawn now, on this machine's disk.

        Raises:
            OSError, StoreError: the store cannot be written.
        """
        from flows.tell.report_page import on_this_disk

        return on_this_disk(self._compared.store, write(self._compared))

    def __repr__(self) -> str:
        a, b = self._sides
        return f"<Comparison of {a.title} and {b.title}: {self.outcome or 'not to be told'}>"

    def __str__(self) -> str:
        concerns = self._compared.ending.concerns
        said = [fitted("", each) for each in (self.summary, *concerns)]
        return "\n\n".join([*said, *map(text, parts_of(self._compared, drawn=False))])

    def _repr_html_(self) -> str:
        parts = parts_of(self._compared, drawn=False)
        return fragment(self._compared.ending, [part for part in parts if part.title == "Metrics"])


def _ends(interval: tuple[float, float] | None) -> dict[str, str | float | None]:
    low, high = interval or (None, None)
    return {"low": low, "high": high}
