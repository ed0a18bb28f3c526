"""The data of a run: rows from files to splits, what validation found, the columns, the rejected rows."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from flows.tell.figures.column_charts import distance, histograms
from flows.tell.figures.drawing import short
from flows.tell.material import Material
from flows.tell.rendering.cells import Row, cell
from flows.tell.rendering.parts import Finding, Part
from flows.tell.rendering.tables import Table
from headway.errors import HeadwayError
from headway.messages import capital, counted, duration, sentence, some, window_text
from headway.schema.calendar_days import PER_DAY, moment
from headway.schema.columns import LABEL
from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.split_statistics import SplitStatistics
from headway.statistics.summary import ColumnSummary
from headway.tabular import quarantine
from headway.validation.anomaly import Validated

MOST_DRAWN, _MOST_SPANS, _MOST_REJECTED = 50, 40, 12
_FIGURES = ("mean", "std", "min", "p25", "median", "p75", "max", "shortest", "longest")
_COUNTS = ("read", "written", "filtered", "quarantined")


def data(material: Material) -> Part | None:
    """The part on the data; None of a run that ingested nothing."""
    counts = _counts(material)
    if not counts:
        return None
    validated = material.validated or Validated()
    proven = material.read("splits")
    proof = validated.proof or (proven.says if proven is not None else ())
    sentences = [_flow(counts)]
    if proof and not validated.splits:
        sentences.append(sentence("; ".join(proof)))
    if material.validated is not None and not validated.anomalies:
        sentences.append("Validation found nothing wrong.")
    spans = [{"span": span, **of} for span, of in counts.items()]
    tables = [Table("Spans", spans[-_MOST_SPANS:], folded=len(spans) > 6)] if len(spans) > 1 else []
    tables += [*splits_table(validated), *_columns(material), *_rejected(material)]
    return Part("Data", sentences, tables=tables, findings=findings_of(validated))


def findings_of(validated: Validated) -> list[Finding]:
    """What validation found, errors first."""
    return [Finding(a.severity, a.message, a.fix or "") for a in validated.anomalies]


def splits_table(validated: Validated) -> list[Table]:
    """The splits and their labels, and what is proven of them; none where there is nothing to say."""
    note = sentence("; ".join(validated.proof))
    return [Table("Splits and their labels", validated.splits, note)] if validated.splits else []


def _counts(material: Material) -> dict[str, dict[str, int]]:
    """Rows by span: read, written, filtered, quarantined."""
    found = {span: (output.result or {}).get("counts") or {} for span, output in material.ingested().items()}
    return {span: {name: counts[name] for name in _COUNTS if name in counts} for span, counts in found.items()}


def _flow(counts: dict[str, dict[str, int]]) -> str:
    totals = {name: sum(of.get(name, 0) for of in counts.values()) for name in _COUNTS}
    window = window_text(list(counts))
    text = f"{counted(totals['read'], 'row')} read from {counted(len(counts), 'span')} ({window}): {totals['written']:,} kept"
    text += f", {totals['filtered']:,} filtered out" if totals["filtered"] else ""
    return text + f", {totals['quarantined']:,} rejected."


# --- columns


def _columns(material: Material) -> Iterator[Table]:
    """The columns that matter most, with their histograms."""
    summaries = material.statistics.of("train")
    if not summaries:
        return
    order, by = by_weight(material, list(summaries))
    drawn = order[:MOST_DRAWN]
    ours = train_statistics(material, "statistics", drawn)
    champion, theirs = _champion(material, drawn)
    known = [name for name in drawn if name in ours]
    pictures = dict(zip(known, histograms([(ours[n], theirs.get(n)) for n in known], name="columns"), strict=True))
    strengths = material.validated.strengths if material.validated is not None else {}

    def row(name: str) -> Row:
        (told,) = column_rows([summaries[name]])
        return {
            "column": column_name(name),
            "type": told["type"],
            "distribution": pictures.get(name),
            **{key: told[key] for key in ("missing", "distinct")},
            "usual values": usual_values(summaries[name]),
            "tied to the label": strengths.get(name),
            "drift": distance(ours.get(name), theirs.get(name)),
        }

    note = "Bars: the train rows of this run"
    if theirs:
        note += f"; line: those of {champion}. Drift: their distance in bits, of text the greatest change of a value's share"
    note += ". The outermost bars of numbers hold all values beyond the first and the last hundredth."
    if rest := len(order) - len(drawn):
        note += f" These are the {len(drawn)} columns {by}; headway stats lists the other {rest:,} too."
    yield Table("Columns of the train rows", [row(name) for name in drawn], note)


def by_weight(material: Material, names: list[str]) -> tuple[list[str], str]:
    """The columns, those that matter most first, and by what they are ordered."""
    importance = material.importance
    weights = {each.column: each.permuted or 0.0 for each in importance.columns} if importance is not None else {}
    by = "that matter most to the model"
    if not weights:
        weights = material.validated.strengths if material.validated is not None else {}
        by = "that alone tell most of the label"
    return sorted(names, key=lambda name: (name != LABEL, -weights.get(name, 0.0))), by


def train_statistics(material: Material, title: str, names: Sequence[str]) -> dict[str, ColumnStatistics]:
    """The statistics of columns of the train rows, as far as the store has them."""
    folder = material.file(title, "train")
    return {} if folder is None else _loaded(folder, names)


def _loaded(folder: Path, names: Sequence[str]) -> dict[str, ColumnStatistics]:
    try:
        return SplitStatistics.load(folder, only=set(names)).columns
    except HeadwayError:
        return {}


def _champion(material: Material, names: Sequence[str]) -> tuple[str, dict[str, ColumnStatistics]]:
    """The champion that validation compared with, and its columns as far as the store has them."""
    champion = material.key("validate").get("champion") or {}
    if not champion.get("statistics"):
        return "", {}
    folder = material.store.output("statistics", champion["statistics"])
    if material.store.find("statistics", champion["statistics"]) is None:
        return "", {}
    place = material.localized(folder / "train")
    return str(champion["name"]), {} if place is None else _loaded(place, names)


# --- a column in a few words


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


def column_name(name: str) -> str:
    """A column as a table names it."""
    return "the label" if name == LABEL else short(name, 60)


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
        top = column.top[:3]
        if any(isinstance(value, str) and not value.isprintable() for value, _ in top):  # images and the like
            return f"{column.shortest or 0:,} to {column.longest or 0:,} bytes"
        rows = max(column.rows - column.missing, 1)
        return ", ".join(f"{short(_value(value, column), 24)} {_share(count / rows)}" for value, count in top)
    if column.median is None:
        return ""
    p25, median, p75 = (figure(column, name) for name in ("p25", "median", "p75"))
    return f"{median}, half of them {p25} to {p75}" if p25 != p75 else median


def _value(value: int | float | str, column: ColumnSummary) -> str:
    """The text of a value; of a float32 no more digits than it has."""
    if column.temporal is not None and not isinstance(value, str):
        return moment(value, column.temporal)
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _share(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else "under 1%"


# --- rejected rows


def _rejected(material: Material) -> Iterator[Table]:
    tables: list[pa.Table] = []
    total = 0
    for span, counts in _counts(material).items():
        count = counts.get("quarantined", 0)
        total += count
        title = material.ingested()[span].title
        path = material.file(title, quarantine.FILE_NAME) if count and len(tables) < _MOST_REJECTED else None
        if path is not None:
            table = quarantine.read(path.parent).slice(0, _MOST_REJECTED)
            tables.append(table.add_column(0, "span", pa.array([span] * len(table), pa.string())))
    if not tables:
        return
    rows = pa.concat_tables(tables).slice(0, _MOST_REJECTED).to_pylist()
    shown = [{name: short(value, 80) if value is not None else "" for name, value in row.items()} for row in rows]
    files = some(sorted({row["file"] for row in shown}), 3)
    more = f"The first {len(shown)} of {total:,}, in {files}; headway quarantine shows more."
    yield Table(
        capital(counted(total, "rejected row")), shown, more if total > len(shown) else "", folded=len(shown) > 6
    )
