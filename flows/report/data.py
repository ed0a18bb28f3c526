"""The section on the data: rows from files to splits, what validation found, the columns with their figures and their drift."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from flows.report.charts import distance, shares
from flows.report.model import Chart, Finding, Panels, Row, Section, Table, cell
from flows.report.plot import FIRST, MUTED, SECOND, Plot, figure, one_line
from flows.report.results import RunResults
from headway.errors import HeadwayError
from headway.messages import counted, duration, number, sentence, some, window_text
from headway.schema.calendar_days import PER_DAY, Temporal, moment
from headway.schema.columns import LABEL
from headway.sources.spans import ONE_SPAN
from headway.stages.step import find_output
from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.split_statistics import SplitStatistics
from headway.statistics.summary import ColumnSummary, WindowStatistics
from headway.validation.anomaly import SplitProof, Validated

_MOST_SPANS = 40
_COUNTS = ("read", "written", "filtered", "quarantined")


def data(results: RunResults) -> Section | None:
    """Returns the section on the data; None if the run ingested nothing."""
    counts = _counts(results)
    if not counts:
        return None
    validated = results.validated or Validated()
    proven = results.read("splits", SplitProof)
    proof = validated.proof or (proven.says if proven is not None else ())
    sentences = [_flow(counts)]
    if proof and not validated.splits:
        sentences.append(sentence("; ".join(proof)))
    if results.validated is not None and not validated.anomalies:
        sentences.append("Validation found nothing wrong.")
    columns = Columns(results)
    sentences += columns.sentences()
    spans = [{"span": span, **of} for span, of in counts.items()]
    tables = [Table("Spans", spans[-_MOST_SPANS:], folded=len(spans) > 6)] if len(spans) > 1 else []
    tables += [*splits_table(validated), *columns.tables()]
    found = findings_of(validated)
    return Section("Data", sentences, [], tables, found, panels=list(columns.panels()), fold="Splits and columns")


def findings_of(validated: Validated) -> list[Finding]:
    """Returns what validation found, errors first."""
    return [Finding(a.severity, a.message, a.fix or "") for a in validated.anomalies]


def splits_table(validated: Validated) -> list[Table]:
    """Returns the table of the splits and their labels, noting what is proven against leakage; [] without splits."""
    note = sentence("; ".join(validated.proof))
    return [Table("Splits", validated.splits, note)] if validated.splits else []


def _counts(results: RunResults) -> dict[str, dict[str, int]]:
    """Returns {span: {"read", "written", "filtered" or "quarantined": number of rows}}."""
    found = {span: (output.result or {}).get("counts") or {} for span, output in results.ingested().items()}
    return {span: {name: counts[name] for name in _COUNTS if name in counts} for span, counts in found.items()}


def _flow(counts: dict[str, dict[str, int]]) -> str:
    totals = {name: sum(of.get(name, 0) for of in counts.values()) for name in _COUNTS}
    spans = "" if list(counts) == [ONE_SPAN] else f" from {counted(len(counts), 'span')} ({window_text(list(counts))})"
    text = f"{counted(totals['read'], 'row')} read{spans}: {totals['written']:,} kept"
    text += f", {totals['filtered']:,} filtered out" if totals["filtered"] else ""
    text += f", {totals['quarantined']:,} rejected"
    return text + (" (headway quarantine shows them)." if totals["quarantined"] else ".")


MOST_DRAWN = 36
_LABELLED, _ROOM = 4, 30
"""Up to so many bars have a label each, if the labels together have no more characters than the second number."""
Statistics = Mapping[str, ColumnStatistics]


class Columns:
    """The sentences, figures and table of a report about the columns.

    Args:
        results: the results of a run; the run's statistics may be gone from the store.
    """

    def __init__(self, results: RunResults):
        self._results = results
        self._summaries = results.statistics.of("train")
        self._order, self._by = by_weight(results, list(self._summaries))
        self._drawn = self._order[:MOST_DRAWN]
        folders = (results.file("statistics", split) for split in ("train", "eval"))
        self._train, self._eval = (load_statistics(folder, self._drawn) for folder in folders)
        self._before, self._theirs, self._had = _champion(results, self._drawn)

    def sentences(self) -> Iterator[str]:
        """Yields a sentence on the columns that are new, gone or of another type since the champion, if any."""
        ours, theirs = self._summaries, self._had
        both = [name for name in ours if name in theirs]
        known = {
            "new": [name for name in ours if name not in theirs],
            "gone": [name for name in theirs if name not in ours],
            "of another type": [name for name in both if ours[name].type != theirs[name].type],
        }
        told = [f"{what}: {some(list(map(column_name, names)), 5)}" for what, names in known.items() if names]
        if theirs and told:
            yield f"Since {self._before}, columns are {'; '.join(told)}."

    def panels(self) -> Iterator[Panels]:
        """Yields the figures of the columns; nothing if the store has no statistics."""
        sides = {"train rows": (self._train, FIRST), "eval rows": (self._eval, MUTED)}
        if self._theirs:
            sides[f"train rows of {self._before}"] = (self._theirs, SECOND)
        yield from column_panels([self._summaries[name] for name in self._drawn], sides)

    def tables(self) -> Iterator[Table]:
        """Yields the table of the columns that are drawn; nothing without columns."""
        if not self._order:
            return
        note = f"In the order of {self._by}."
        if self._theirs:
            note += f" Drift: the distance to the train rows of {self._before} in bits, of text the greatest change of a share."
        rest = len(self._order) - MOST_DRAWN
        note += f" {counted(rest, 'further column')}: headway run --to statistics." if rest > 0 else ""
        yield Table("Columns of the train rows", [self._row(name) for name in self._drawn], note)

    def _row(self, name: str) -> Row:
        summary = self._summaries[name]
        (told,) = column_rows([summary])
        strengths = self._results.validated.strengths if self._results.validated is not None else {}
        return {
            "column": column_name(name),
            **{key: told[key] for key in ("type", "missing", "distinct")},
            "usual values": usual_values(summary),
            "tied to the label": strengths.get(name),
            "drift": distance(self._train.get(name), self._theirs.get(name)),
        }


def column_panels(columns: Iterable[ColumnSummary], sides: Mapping[str, tuple[Statistics, str]]) -> Iterator[Panels]:
    """Yields one group of small figures, one for each column whose values were counted; nothing without such a column.

    Args:
        sides: {name of a set of rows in the legend: (statistics of its columns, its colour)}.
    """
    drawn = [(column_name(each.column), _panel(each, sides)) for each in columns]
    charts = [Chart(name, svg) for name, svg in drawn if svg is not None]
    keys = [(colour, said) for said, (of, colour) in sides.items() if of]
    note = (
        "Share of the values, by value; the outermost bars of numbers hold all beyond the first and the last hundredth."
    )
    if charts:
        yield Panels("Columns", charts, keys, note)


def _panel(summary: ColumnSummary, sides: Mapping[str, tuple[Statistics, str]]) -> Markup | None:
    name, known = summary.column, [(of.get(summary.column), colour) for of, colour in sides.values()]
    found = shares([of for of, _ in known])
    if found is None:
        return None
    bars = max(map(len, found.heights))
    labels = _labels(found.bars, bars, summary.temporal, {value for value, _ in frequent(summary)})

    def draw(axes: Plot) -> None:
        edges = range(bars + 1)
        for heights, (_, colour) in zip(found.heights, known, strict=True):
            if heights:
                axes.stairs(heights, edges, color=colour)
        axes.ticks(labels, {0: "0", 1: f"{100 * found.highest:.2g}%"})
        axes.frame(x_ends=(0, edges[-1]), y_ends=(0, 1))

    return figure(draw, label=f"{column_name(name)}: {usual_values(summary)}", small=True)


def _labels(
    bars: Sequence[str | int | float], drawn: int, temporal: Temporal | None, told: Collection[object]
) -> dict[float, str]:
    """Returns the labels of a histogram, {position: label}: at the middle of a value's bar, or at an edge between bars.

    Args:
        drawn: the number of bars; `bars` has as many values, or one more if they are edges.
        told: the text values that a page may show; others get no label. Of many texts, only the first and their number are shown.
    """
    middle = 0.5 if len(bars) == drawn else 0.0
    if isinstance(bars[0], str):
        said = [one_line(bar, _LONGEST) if bar in told else "" for bar in bars]
        if len(bars) <= _LABELLED and sum(map(len, said)) <= _ROOM:
            return {place + middle: label for place, label in enumerate(said)}
        return {0.0: said[0], float(drawn): f"{len(bars)} values"}
    if temporal is not None:  # texts so long have room at the ends alone
        return {place + middle: moment(float(bars[place]), temporal)[:_MOMENT] for place in (0, len(bars) - 1)}
    chosen = range(len(bars)) if len(bars) <= _LABELLED else (0, len(bars) // 2, len(bars) - 1)
    texts = ticks([float(bars[place]) for place in chosen])
    return dict(zip((place + middle for place in chosen), texts, strict=True))


def by_weight(results: RunResults, names: list[str]) -> tuple[list[str], str]:
    """Returns the columns `names`, the label first and then by importance; and a phrase that says what importance is here."""
    importance = results.importance
    weights = {each.column: each.permuted or 0.0 for each in importance.columns} if importance is not None else {}
    by = "how much they matter to the model"
    if not weights:
        weights = results.validated.strengths if results.validated is not None else {}
        by = "how much each alone tells of the label"
    return sorted(names, key=lambda name: (name != LABEL, -weights.get(name, 0.0))), by


def load_statistics(folder: Path | None, names: Sequence[str]) -> Statistics:
    """Returns {column: statistics} of the named columns from a folder; {} if the folder is None or damaged."""
    try:
        return {} if folder is None else SplitStatistics.load(folder, only=set(names)).columns
    except HeadwayError:
        return {}


def _champion(results: RunResults, names: Sequence[str]) -> tuple[str, Statistics, Mapping[str, ColumnSummary]]:
    """Returns the name of the champion that validation compared with, {column: statistics} of the columns `names` in
    its train rows, and {column: summary} of all columns in its train rows. All are empty if the store lacks them."""
    champion = results.key("validate").get("champion") or {}
    fingerprint = champion.get("statistics")
    if (
        not fingerprint
        or (kept := find_output(results.store, "statistics", fingerprint, "statistics", WindowStatistics)) is None
    ):
        return "", {}, {}
    statistics = load_statistics(results.localized(kept.path / "train"), names)
    return str(champion["name"]), statistics, kept.value.of("train")


FEW_ROWS = 3
"""A text value that fewer rows have is not shown: a report may go to people who may not see the data."""
_LONGEST, _MOMENT = 12, 19
"""Characters of a word and of a time at an axis."""
_NEAR, _DIGITS, _DIGITS_OF_LARGE = 0.01, 9, 3
"""How far a tick's text may be from the tick's value, as a share of the axis; the most digits of a tick's text; and the
digits that `number` writes of a large number."""
_FIGURES = ("mean", "std", "min", "p25", "median", "p75", "max", "shortest", "longest")


def column_rows(columns: Iterable[ColumnSummary]) -> list[Row]:
    """Returns a table row per column; figures that its type does not have stay empty."""
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
            **{name: figure_text(column, name) for name in _FIGURES},
            "quantiles": f"rank ±{column.rank_error:.1%}" if column.rank_error else "",
            "most frequent": ", ".join(f"{_value(value, column)} ({count:,})" for value, count in column.top[:3]),
        }
        for column in columns
    ]


def column_name(name: str) -> str:
    """Returns the name of a column in tables."""
    return "the label" if name == LABEL else one_line(name, 60)


def figure_text(column: ColumnSummary, name: str) -> str:
    """Returns the text of a figure of a column's summary, such as "median". A figure of dates or times is a date or a
    time, but their standard deviation is a duration."""
    value, unit = getattr(column, name), column.temporal
    if value is None or unit is None:
        return cell(value)
    if name == "std":
        return duration(value * PER_DAY["epoch_seconds"] / PER_DAY[unit])
    # a mean and the quantiles lie between the values: a fraction of a second says nothing
    second = max(1, PER_DAY[unit] // PER_DAY["epoch_seconds"])
    return moment(value if name in ("min", "max") else value // second * second, unit)


def usual_values(column: ColumnSummary) -> str:
    """Returns the values that a column usually has, in a few words."""
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
    p25, median, p75 = (figure_text(column, name) for name in ("p25", "median", "p75"))
    return f"{median}, half of them {p25} to {p75}" if p25 != p75 else median


def ticks(values: Sequence[float]) -> list[str]:
    """Returns the texts of an axis's numbers, with four digits, or more where rounding would move a tick visibly."""
    digits = 4
    far = _NEAR * (max(values) - min(values))
    while digits < _DIGITS and any(abs(float(f"{value:.{digits}g}") - value) > far for value in values):
        digits += 1
    exact = digits > _DIGITS_OF_LARGE and 1e9 <= max(map(abs, values)) < 1e12
    rounded = [float(f"{value:.{digits}g}") for value in values]
    return [f"{value:,.0f}" if exact else number(value) for value in rounded]


def frequent(column: ColumnSummary) -> list[tuple[int | float | str, int]]:
    """Returns the most frequent values with their counts, without texts that fewer than FEW_ROWS rows have."""
    return [(value, count) for value, count in column.top if column.type != "bytes" or count >= FEW_ROWS]


def _value(value: int | float | str, column: ColumnSummary) -> str:
    """Returns a value as text: a date or time if the column has such values; a float with the seven digits of a float32."""
    if column.temporal is not None and not isinstance(value, str):
        return moment(value, column.temporal)
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _share(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else "under 1%"
