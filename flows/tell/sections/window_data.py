"""The data of a run: rows from files to splits, what validation found, the columns, the rejected rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from flows.tell.figures.column_charts import distance, histograms
from flows.tell.figures.drawing import short
from flows.tell.material import Material
from flows.tell.rendering.cells import Row
from flows.tell.rendering.parts import Finding, Part
from flows.tell.rendering.tables import Table
from flows.tell.sections.column_rows import column_name, column_rows, usual_values
from headway.errors import HeadwayError
from headway.messages import capital, counted, sentence, some, window_text
from headway.schema.columns import LABEL
from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.split_statistics import SplitStatistics
from headway.tabular import quarantine
from headway.validation.anomaly import SplitProof, Validated

MOST_DRAWN, _MOST_LISTED, _MOST_SPANS, _MOST_REJECTED = 50, 2000, 40, 12
_COUNTS = ("read", "written", "filtered", "quarantined")


def data(material: Material) -> Part | None:
    """The part on the data; None of a run that ingested nothing."""
    counts = _counts(material)
    if not counts:
        return None
    validated = material.validated or Validated()
    proven = material.read("splits", SplitProof)
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
    """The columns that matter most with their histograms, then the rest as figures."""
    summaries = material.statistics.of("train")
    if not summaries:
        return
    order, by = by_weight(material, list(summaries))
    drawn, rest = order[:MOST_DRAWN], order[MOST_DRAWN:]
    ours = train_statistics(material, "statistics", drawn)
    champion, theirs = _champion(material, drawn)
    pairs = [(ours[name], theirs.get(name)) for name in drawn if name in ours]
    pictures = dict(zip([pair[0].name for pair in pairs], histograms(pairs, name="columns"), strict=True))
    strengths = material.validated.strengths if material.validated is not None else {}

    def row(name: str) -> Row:
        (told,) = column_rows([summaries[name]])
        return {
            "column": column_name(name),
            "type": told["type"],
            "distribution": pictures.get(name),
            **{key: told[key] for key in ("missing", "distinct")},
            "usual values": usual_values(summaries[name]),
            "tells the label": strengths.get(name) if name in drawn else None,
            "drift": distance(ours.get(name), theirs.get(name)),
        }

    note = "Bars: the train rows of this run"
    if theirs:
        note += (
            f"; line: those of {champion}. Drift: Jensen-Shannon divergence in bits, of text the greatest change of a "
        )
        note += "value's share"
    note += ". The outermost bars of numbers hold all values beyond the first and the last hundredth."
    if rest:
        note += f" Drawn are the {len(drawn)} columns {by}; the other {len(rest):,} are in the table below."
    yield Table("Columns of the train rows", [row(name) for name in drawn], note)
    if rest:
        more = f"{len(rest) - _MOST_LISTED:,} more: headway stats" if len(rest) > _MOST_LISTED else ""
        yield Table(f"The other {len(rest):,} columns", [row(name) for name in rest[:_MOST_LISTED]], more, folded=True)


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
