"""How columns drift from span to span: the distance of each span from the whole window, by what ingest counted."""

from collections.abc import Iterator, Sequence

from flows.tell.figures.column_charts import distance
from flows.tell.material import Material
from flows.tell.rendering.tables import Table
from flows.tell.sections.window.column_figures import Statistics, loaded
from flows.tell.sections.window.column_words import column_names
from headway.stages.ingested import Ingested
from headway.stages.step import Output

MOST_SPANS, MOST_COLUMNS = 12, 12
"""The last spans, and the columns that matter most."""


def drift_by_span(material: Material, names: Sequence[str], window: Statistics) -> Iterator[Table]:
    """The table of the last spans; none of a single one.

    Args:
        names: of the columns, those that matter most first.
        window: their statistics of all spans together.
    """
    names = [name for name in names[:MOST_COLUMNS] if name in window]
    outputs, apart = list(material.ingested().items())[-MOST_SPANS:], _without_train_rows(material)
    if len(outputs) < 2:
        return
    spans = dict[str, Statistics]()
    for span, output in outputs:
        title = f"{span} ({apart[output.fingerprint]})" if output.fingerprint in apart else span
        if found := _statistics(material, output, names):
            spans[title] = found
    drift = {name: {span: distance(of.get(name), window[name]) for span, of in spans.items()} for name in names}
    known = {name: of for name, of in drift.items() if any(value is not None for value in of.values())}
    if len(spans) < 2 or not known:
        return
    called = column_names(known)
    rows = [{"column": called[name]} | {span: _text(value) for span, value in of.items()} for name, of in known.items()]
    shades = [{span: min(value or 0.0, 1.0) for span, value in of.items()} for of in known.values()]
    rows_are = "the train rows" + ", and of the rows of spans that have none" * any(
        output.fingerprint in apart for _, output in outputs
    )
    note = f"The distance of {rows_are} to the train rows of all spans together: in bits from 0 to 1, of text the "
    yield Table("Drift by span", rows, note + "greatest change of a value's share.", shades=shades)


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value >= 0.005 or not value else "<0.01"


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
