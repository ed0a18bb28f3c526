"""The rows on which a model is most wrong, and links to them from the slices that they are in."""

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from flows.tell.figures.drawing import apart, one_line
from flows.tell.rendering.cells import Row
from flows.tell.rendering.tables import Table
from headway.evaluation.results.measured import Measured
from headway.evaluation.results.worst_rows import MOST
from headway.evaluation.slices import named
from headway.messages import number

_MOST_SLICES = 3


def worst_rows(measured: Measured, split: str) -> Iterator[Table]:
    """The table of them; none where no row has a loss."""
    if not measured.worst_rows:
        return
    loss = measured.worst_slices.metric if measured.worst_slices is not None else "loss"
    slices, probable = _slices(measured), measured.task == "binary"
    said = [value for each in measured.worst_rows for value in (each.label, each.prediction) if isinstance(value, str)]
    classes, rows = apart(said, 60), list[Row]()
    for each in measured.worst_rows:
        of_label = None if each.of_label is None else _said(each.of_label, classes, probability=True)
        own = {
            "label": _said(each.label, classes),
            "predicted": _said(each.prediction, classes, probability=probable),
            "probability of the label": of_label,
            loss: number(each.loss),
            "in the slices": one_line("; ".join(slices.get(each.row, [])[:_MOST_SLICES]), 120),
        }
        values = {f"column {name}" if name in {"row", *own} else name: _value(v) for name, v in each.values.items()}
        rows.append({"row": str(each.row), **values, **own})
    sliced = f", of all {split} rows and of the slices above" if slices else f" of all {split} rows"
    note = f"The rows of the greatest {loss}{sliced}. Row: its number in the split, as "
    note += "headway export-rows writes it with all columns; evaluation.row_values names columns to show here."
    ids = [_anchor(split, each.row) for each in measured.worst_rows]
    yield Table("Rows where the model is most wrong", rows[:MOST], note, ids=ids[:MOST])
    if len(rows) > MOST:
        yield Table("The worst rows of slices", rows[MOST:], folded=True, ids=ids[MOST:])


def links(measured: Measured, numbers: Sequence[int], split: str) -> Markup | None:
    """Links to the rows of a slice, as far as the table has them."""
    known = {each.row for each in measured.worst_rows}
    found = [Markup('<a href="#{}">{}</a>').format(_anchor(split, n), n) for n in numbers if n in known]
    return Markup(", ").join(found) if found else None


def _anchor(split: str, row: int) -> str:
    return f"{split}-row-{row}"


def _slices(measured: Measured) -> dict[int, list[str]]:
    """Return, by row, the slices that name it."""
    found: dict[int, list[str]] = {}
    slices = measured.worst_slices.slices if measured.worst_slices is not None else ()
    known = [(named(each.slice, each.value), each.worst_rows) for each in slices]
    known += [
        (named(name, value), of.worst_rows)
        for name, values in measured.by_slice.items()
        for value, of in values.items()
    ]
    for slice_, rows in known:
        for row in rows:
            if slice_ not in found.setdefault(row, []):
                found[row].append(slice_)
    return found


def _said(value: float | str | Sequence[float], classes: Mapping[str, str], *, probability: bool = False) -> str:
    if isinstance(value, str):
        return classes[value]
    if not isinstance(value, int | float):
        return ", ".join(map(number, value[:5]))
    return "<0.0001" if probability and value < 0.0001 else number(value)


def _value(value: float | str | None) -> str:
    """Return a value, of a float32 with no more digits than it has."""
    return "" if value is None else f"{value:.7g}" if isinstance(value, float) else one_line(value, 60)
