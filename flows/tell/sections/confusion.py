"""How often each class is taken for another, by the candidate and the champion, and by which threshold."""

from collections.abc import Iterator, Mapping
from typing import Any

from flows.tell.figures.drawing import apart
from flows.tell.rendering.cells import Row
from flows.tell.rendering.tables import Table
from headway.evaluation.results.measured import Measured
from headway.messages import number

_MOST_CLASSES, _MOST_BESIDE, _MOST_PAIRS = 12, 3, 20
Columns = Mapping[str, list[Any]]
"""label, predicted, rows, weight: a row for each pair of classes that occurs"""


def confusion_tables(measured: Measured, whose: str) -> Iterator[Table]:
    """The candidate's table, and the champion's beside it, or below where there are many classes.

    Args:
        whose: what the champion is called.
    """
    ours, theirs = measured.tables["confusion"], measured.champion.confusion if measured.champion is not None else {}
    found = {label for columns in (ours, theirs) for side in ("label", "predicted") for label in columns.get(side, ())}
    labels = sorted(found, key=lambda label: (isinstance(label, str), label))
    how = decided_by(measured)
    if len(labels) > _MOST_CLASSES:
        yield Table("The classes that are confused most", _pairs(ours, theirs, whose), f"Decided by {how}.")
        return
    what = "Weights of rows" if weighted(ours) else "Rows"
    note = f"{what} by label and predicted class, decided by {how}; shaded by the share of the label's."
    beside = [(f"{whose}: ", theirs)] if theirs and len(labels) <= _MOST_BESIDE else []
    yield _table("Confusion matrix", [("", ours), *beside], labels, note)
    if theirs and not beside:
        yield _table(f"Confusion matrix of {whose}", [("", theirs)], labels, "")


def decided_by(measured: Measured) -> str:
    """What makes a class of a prediction."""
    if measured.task != "binary":
        return "the most likely class"
    found = measured.threshold
    if found is None or found.value is None:
        return "the threshold 0.5 (evaluation.threshold chooses another)"
    return f"the threshold {number(found.value)}"


def _table(title: str, sides: list[tuple[str, Columns]], labels: list[Any], note: str) -> Table:
    rows, shades, names = list[Row](), list[dict[str, float]](), apart(labels)
    weights = [(side, _weights(columns)) for side, columns in sides]
    for label in labels:
        row, shade = {"label": names[label]}, dict[str, float]()
        for side, weight in weights:
            counts = {f"{side}predicted {names[other]}": weight.get((label, other), 0) for other in labels}
            total = sum(counts.values()) or 1
            row |= counts
            shade |= {column: count / total for column, count in counts.items()}
        rows.append(row)
        shades.append(shade)
    return Table(title, rows, note, shades=shades)


def _pairs(ours: Columns, theirs: Columns, whose: str) -> list[Row]:
    weight, other = _weights(ours), _weights(theirs) if theirs else {}
    wrong = sorted(((n, pair) for pair, n in weight.items() if pair[0] != pair[1]), key=lambda each: -each[0])
    wrong = wrong[:_MOST_PAIRS]
    names = apart((label for _, pair in wrong for label in pair), 40)
    return [
        {"label": names[a], "predicted": names[b], "weight" if weighted(ours) else "rows": n}
        | ({whose: other.get((a, b), 0)} if theirs else {})
        for n, (a, b) in wrong
    ]


def weighted(columns: Columns) -> bool:
    """Whether rows have weights, so that tables count these."""
    return any(weight != rows for weight, rows in zip(columns.get("weight", ()), columns["rows"], strict=False))


def _weights(columns: Columns) -> dict[tuple[Any, Any], Any]:
    pairs = zip(columns["label"], columns["predicted"], strict=True)
    return dict(zip(pairs, columns["weight" if weighted(columns) else "rows"], strict=True))
