"""A column in a few words: its name, its figures, the values that it usually has."""

from collections.abc import Iterable, Sequence

from flows.tell.figures.drawing import apart, one_line
from flows.tell.rendering.cells import Row, cell
from headway.messages import duration, number
from headway.schema.calendar_days import PER_DAY, Temporal, moment
from headway.schema.columns import LABEL
from headway.statistics.summary import ColumnSummary

FEW_ROWS = 3
"""A text of fewer rows is not told: reports are mailed further than the data."""
_LONGEST = 12
"""Characters of a word at an axis."""
_NEAR, _DIGITS, _DIGITS_OF_LARGE = 0.01, 9, 3
"""How far the text of a tick may be from its place, as a share of the axis; the most digits of a tick, and those that `number`
tells of a large one."""
_FIGURES = ("mean", "std", "min", "p25", "median", "p75", "max", "shortest", "longest")


def column_rows(columns: Iterable[ColumnSummary]) -> list[Row]:
    """A row per column; what a type does not have stays empty."""
    return [
        {
            "column": column.column,
            "type": column.temporal or column.type,
            "rows": column.rows,
            "missing": f"{column.missing_share:.2%}",
            # of the columns that have some: missing they are not, and no figure behind counts them
            "nan": column.nan or None,
            "infinite": column.infinite or None,
            "distinct": f"{column.distinct:,} ±{column.distinct_error:.0%}"
            if column.distinct_error
            else column.distinct,
            **{name: figure(column, name) for name in _FIGURES},
            "quantiles": f"rank ±{column.rank_error:.1%}" if column.rank_error else "",
            "most frequent": ", ".join(f"{_value(value, column)} ({count:,})" for value, count in column.top[:3]),
        }
        for column in columns
    ]


def column_names(names: Iterable[str]) -> dict[str, str]:
    """Columns as one table names them, each by a name of its own."""
    return {name: column_name(name) if name == LABEL else said for name, said in apart(names, 60).items()}


def column_name(name: str) -> str:
    """A column as a table names it."""
    return "the label" if name == LABEL else one_line(name, 60)


def figure(column: ColumnSummary, name: str) -> str:
    """The text of a figure of a column's summary, such as its median; of dates and times a date or a time, and their
    standard deviation is a duration."""
    value, unit = getattr(column, name), column.temporal
    if value is None or unit is None:
        return cell(value)
    if name == "std":
        return duration(value * PER_DAY["epoch_seconds"] / PER_DAY[unit])
    # a mean and the quantiles lie between the values: a fraction of a second says nothing
    second = max(1, PER_DAY[unit] // PER_DAY["epoch_seconds"])
    return moment(value if name in ("min", "max") else value // second * second, unit)


def usual_values(column: ColumnSummary) -> str:
    """The values that a column usually has, in a few words."""
    if column.type == "bytes" or (column.top and column.distinct <= 5):
        top = frequent(column)[:3]
        if any(
            isinstance(value, str) and not value.isprintable() for value, _ in column.top[:3]
        ):  # images and the like
            return f"{column.shortest or 0:,} to {column.longest or 0:,} bytes"
        rows = max(column.rows - column.missing, 1)
        if column.top and not top:
            return f"each in fewer than {FEW_ROWS} rows"
        return ", ".join(f"{one_line(_value(value, column), 24)} {_share(count / rows)}" for value, count in top)
    if column.median is None:
        return ""
    p25, median, p75 = (figure(column, name) for name in ("p25", "median", "p75"))
    return f"{median}, half of them {p25} to {p75}" if p25 != p75 else median


def tick(value: float, digits: int = 3) -> str:
    """A number of an axis."""
    return number(float(f"{value:.{digits}g}"))


def ticks(values: Sequence[float], digits: int = 3) -> list[str]:
    """The numbers of one axis, of so many digits, or of as many more as it takes to tell them apart."""
    far = _NEAR * (max(values) - min(values))
    while digits < _DIGITS and any(abs(float(f"{value:.{digits}g}") - value) > far for value in values):
        digits += 1
    if digits > _DIGITS_OF_LARGE and 1e9 <= max(map(abs, values)) < 1e12:
        return [f"{float(f'{value:.{digits}g}'):,.0f}" for value in values]
    return [tick(value, digits) for value in values]


def axis_value(value: float | str, kind: Temporal | None) -> str:
    """A value of a column at an axis; of dates and times a date or a time."""
    if isinstance(value, str):
        return one_line(value, _LONGEST)
    return tick(value, 4) if kind is None else moment(value, kind)


def axis_values(values: Sequence[float], kind: Temporal | None) -> list[str]:
    """Numbers of a column at one axis; of times no more than tells them apart: their days, their hours, or both."""
    if kind is None:
        return ticks(values, 4)
    told = [moment(value, kind) for value in values]
    days, clocks = [each[:10] for each in told], [each[11:] for each in told]
    if len(set(days)) == len(set(told)) or not any(clocks):
        return days
    clocks = [clock or "00:00:00" for clock in clocks]
    if len(set(days)) == 1:
        return clocks
    return [f"{day[5:]} {clock[:5]}" for day, clock in zip(days, clocks, strict=True)]


def frequent(column: ColumnSummary) -> list[tuple[int | float | str, int]]:
    """The values that a page may tell, with their counts: a text that few rows have may tell of one of them."""
    return [(value, count) for value, count in column.top if column.type != "bytes" or count >= FEW_ROWS]


def _value(value: int | float | str, column: ColumnSummary) -> str:
    """The text of a value; of a float32 no more digits than it has."""
    if column.temporal is not None and not isinstance(value, str):
        return moment(value, column.temporal)
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _share(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else "under 1%"
