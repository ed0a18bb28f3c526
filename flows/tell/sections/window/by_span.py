"""How columns change from span to span: missing values, and drift from the whole window, by what ingest counted."""

from collections.abc import Iterator, Mapping, Sequence

from flows.tell.figures.column_charts import distance
from flows.tell.material import Material
from flows.tell.rendering.tables import Table
from flows.tell.sections.window.column_figures import Statistics, loaded
from flows.tell.sections.window.column_words import column_names
from headway.messages import some
from headway.stages.ingested import Ingested
from headway.stages.step import Output

MOST_SPANS, MOST_COLUMNS = 12, 12
"""The last spans, and the columns that matter most."""


class BySpan:
    """The columns in each of the last spans.

    Args:
        names: of the columns, those that matter most first.
        window: their statistics of all spans together.
    """

    def __init__(self, material: Material, names: Sequence[str], window: Statistics):
        self._window, self._names = window, [name for name in names[:MOST_COLUMNS] if name in window]
        spans, apart = list(material.ingested().items())[-MOST_SPANS:], _without_train_rows(material)
        spans = [(f"{span} ({apart[of.fingerprint]})" if of.fingerprint in apart else span, of) for span, of in spans]
        self._rows = "the train rows" + ", and of the rows of spans that have none" * any(
            of.fingerprint in apart for _, of in spans
        )
        self._called = column_names(self._names)
        known = {span: _statistics(material, output, self._names) for span, output in spans} if len(spans) > 1 else {}
        self._spans = {span: of for span, of in known.items() if of}

    def sentences(self) -> list[str]:
        """Which columns began or ended within these spans."""
        said = []
        for name in self._names:
            full = [span for span, of in self._spans.items() if name in of and of[name].missing < of[name].rows]
            empty = [span for span in self._spans if span not in full]
            if full and empty:
                said.append(f"{self._called[name]} has no values in {some(empty, 3)}.")
        return said

    def tables(self) -> Iterator[Table]:
        """Missing values of the columns that have some, and drift, by span; none of a single span."""
        if len(self._spans) < 2:
            return
        missing = {
            name: [of[name].missing / max(of[name].rows, 1) if name in of else 1.0 for of in self._spans.values()]
            for name in self._names
        }
        some_missing = {name: shares for name, shares in missing.items() if max(shares) > 0}
        if some_missing:
            yield self._table("Missing values by span", some_missing, f"Shares of {self._rows}.", share=True)
        drift = {
            name: [distance(of.get(name), self._window[name]) for of in self._spans.values()] for name in self._names
        }
        known = {name: values for name, values in drift.items() if any(value is not None for value in values)}
        if known:
            note = f"The distance of {self._rows} to the train rows of all spans together: in bits from 0 to 1, of text the "
            note += "greatest change of a value's share."
            yield self._table("Drift by span", known, note, share=False)

    def _table(self, title: str, values: Mapping[str, Sequence[float | None]], note: str, *, share: bool) -> Table:
        rows, shades = list[dict[str, str]](), list[dict[str, float]]()
        for name, of in values.items():
            cells = dict(zip(self._spans, of, strict=True))
            rows.append({"column": self._called[name]} | {s: _said(value, share) for s, value in cells.items()})
            shades.append({span: min(value or 0.0, 1.0) for span, value in cells.items()})
        return Table(title, rows, note, shades=shades)


def _said(value: float | None, share: bool) -> str:
    if value is None:
        return ""
    if share:
        return "0%" if not value else f"{value:.1%}" if value >= 0.001 else "<0.1%"
    return f"{value:.2f}" if value >= 0.005 or not value else "<0.01"


def _without_train_rows(material: Material) -> dict[str, str]:
    """Return, by fingerprint, the split of the spans that have no train rows, as after a split by time."""
    parts = material.key("statistics").get("inputs") or {}
    splits = {fingerprint: split for split, of in parts.items() for fingerprint, _ in of if split != "train"}
    train = {fingerprint for fingerprint, _ in parts.get("train", ())}
    return {fingerprint: split for fingerprint, split in splits.items() if fingerprint not in train} if train else {}


def _statistics(material: Material, output: Output, names: Sequence[str]) -> Statistics:
    """Return the statistics of the train rows of a span, or of its only split; {} where the store no longer has them."""
    found = material.read(output.title, Ingested)
    splits = found.splits if found is not None else {}
    split = splits.get("train") or max(splits.values(), key=lambda of: of.rows, default=None)
    if split is None or not split.rows:
        return {}
    return loaded(material.file(output.title, split.statistics), names)
