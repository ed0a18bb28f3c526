"""The data of a run: rows from files to splits, what validation found, the columns, the rejected rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from flows.tell.figures.column_charts import distance, histograms
from flows.tell.figures.drawing import short
from flows.tell.material import Material
from flows.tell.parts import Finding, Part, Table
from flows.tell.sections.column_rows import column_rows, figure
from headway.errors import HeadwayError
from headway.messages import counted, number, sentence, some, window_text
from headway.schema.calendar_days import moment
from headway.schema.columns import LABEL
from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.split_statistics import SplitStatistics
from headway.tabular import quarantine

MOST_DRAWN, _MOST_LISTED, _MOST_SPANS, _MOST_REJECTED = 50, 2000, 40, 12


def data(material: Material) -> Part | None:
    """The part on the data; None of a run that ingested nothing."""
    spans = material.ingested()
    if not spans:
        return None
    validated = material.result("validate")
    sentences = [_flow(material, spans)]
    proof = list(validated.get("proof") or material.result("splits").get("says") or [])
    tables = [Table("Spans", _spans(material), folded=len(spans) > 6)] if len(spans) > 1 else []
    if validated.get("splits"):
        tables.append(Table("Splits", validated["splits"], note=sentence("; ".join(proof))))
    elif proof:
        sentences.append(sentence("; ".join(proof)))
    if validated and not validated["anomalies"]:
        sentences.append("Validation found nothing wrong.")
    tables += [*_columns(material), *_rejected(material)]
    return Part("Data", sentences, tables=tables, findings=findings_of(validated))


def findings_of(validated: Mapping[str, Any]) -> list[Finding]:
    """What validation found, errors first."""
    return [Finding(a["severity"], a["message"], a["fix"] or "") for a in validated.get("anomalies", [])]


def _flow(material: Material, spans: Mapping[str, Any]) -> str:
    totals = dict.fromkeys(("read", "written", "filtered", "quarantined"), 0)
    for output in spans.values():
        counts = (output.result or {}).get("counts") or {}
        totals = {name: total + counts.get(name, 0) for name, total in totals.items()}
    window = window_text(list(spans))
    text = f"{counted(totals['read'], 'row')} read from {counted(len(spans), 'span')} ({window}): {totals['written']:,} kept"
    text += f", {totals['filtered']:,} filtered out" if totals["filtered"] else ""
    return text + f", {totals['quarantined']:,} rejected."


def _spans(material: Material) -> list[dict[str, Any]]:
    rows = []
    for span, output in list(material.ingested().items())[-_MOST_SPANS:]:
        counts = (output.result or {}).get("counts") or {}
        named = ("read", "written", "filtered", "quarantined")
        rows.append({"span": span, **{name: f"{counts[name]:,}" for name in named if name in counts}})
    return rows


# --- columns


def _columns(material: Material) -> Iterator[Table]:
    """The columns that matter most with their histograms, then the rest as figures."""
    statistics = material.result("statistics")
    summaries = {row["column"]: row for row in (statistics.get("columns") or {}).get("train", [])}
    if not summaries:
        return
    order, by = by_weight(material, list(summaries))
    drawn, rest = order[:MOST_DRAWN], order[MOST_DRAWN:]
    ours = train_statistics(material, "statistics", drawn)
    champion, theirs = _champion(material, drawn)
    pairs = [(ours[name], theirs.get(name)) for name in drawn if name in ours]
    pictures = dict(zip([pair[0].name for pair in pairs], histograms(pairs, name="columns"), strict=True))
    strengths = material.result("validate").get("strengths") or {}
    texts = {row["column"]: row for row in column_rows(statistics)}
    rows = [
        {
            "column": "the label" if name == LABEL else short(name, 60),
            "type": texts[name]["type"],
            "distribution": pictures.get(name, ""),
            "missing": texts[name]["missing"],
            "distinct": texts[name]["distinct"],
            "usual values": usual_values(summaries[name]),
            "tells the label": number(strengths[name]) if name in strengths else "",
            "drift": distance(ours[name], theirs.get(name)) if name in ours else "",
        }
        for name in drawn
    ]
    note = "Bars: the train rows of this run"
    note += (
        f"; line: those of {champion}. Drift: Jensen-Shannon divergence in bits, of text the greatest change of a "
        if theirs
        else ""
    )
    note += "value's share. " if theirs else ". "
    note += "The outermost bars of numbers hold all values beyond the first and the last hundredth."
    if rest:
        note += f" Drawn are the {len(drawn)} columns {by}; the other {len(rest):,} are in the table below."
    yield Table("Columns of the train rows", rows, note)
    if rest:
        listed = [
            {
                "column": short(name, 60),
                **{key: texts[name][key] for key in ("type", "missing", "distinct")},
                "usual values": usual_values(summaries[name]),
            }
            for name in rest[:_MOST_LISTED]
        ]
        more = f"{len(rest) - _MOST_LISTED:,} more: headway stats" if len(rest) > _MOST_LISTED else ""
        yield Table(f"The other {len(rest):,} columns", listed, more, folded=True)


def by_weight(material: Material, names: list[str]) -> tuple[list[str], str]:
    """The columns, those that matter most first, and by what they are ordered."""
    weights = {each["column"]: each["permuted"] for each in material.result("importance").get("columns", [])}
    by = "that matter most to the model"
    if not weights:
        weights, by = material.result("validate").get("strengths") or {}, "that alone tell most of the label"
    order = sorted(names, key=lambda name: (name != LABEL, -(weights.get(name) or 0.0)))
    return order, by


def usual_values(summary: Mapping[str, Any]) -> str:
    """The values that a column usually has, in a few words."""
    if summary["type"] == "bytes" or (summary.get("top") and summary["distinct"] <= 5):
        top = summary.get("top") or []
        if any(isinstance(value, str) and not value.isprintable() for value, _ in top[:3]):  # images and the like
            return f"{summary.get('shortest'):,} to {summary.get('longest'):,} bytes"
        rows = max(summary["rows"] - summary["missing"], 1)
        unit = summary.get("temporal")
        texts = [(moment(value, unit) if unit else value, _share(count / rows)) for value, count in top[:3]]
        return ", ".join(f"{short(value, 24)} {share}" for value, share in texts)
    if summary.get("median") is None:
        return ""
    p25, median, p75 = (figure(summary, name) for name in ("p25", "median", "p75"))
    return f"{median}, half of them {p25} to {p75}" if p25 != p75 else f"{median}"


def _share(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else "under 1%"


def train_statistics(material: Material, title: str, names: Sequence[str]) -> dict[str, ColumnStatistics]:
    """The statistics of columns of the train rows, as far as the store has them."""
    folder = material.file(title, "train")
    return {} if folder is None else _loaded(folder, names)


def _loaded(folder: Any, names: Sequence[str]) -> dict[str, ColumnStatistics]:
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
    for span, output in material.ingested().items():
        count = ((output.result or {}).get("counts") or {}).get("quarantined", 0)
        total += count
        path = material.file(output.title, quarantine.FILE_NAME) if count and len(tables) < _MOST_REJECTED else None
        if path is not None:
            table = quarantine.read(path.parent).slice(0, _MOST_REJECTED)
            tables.append(table.add_column(0, "span", pa.array([span] * len(table), pa.string())))
    if not tables:
        return
    rows = pa.concat_tables(tables).slice(0, _MOST_REJECTED).to_pylist()
    shown = [{name: short(value, 80) if value is not None else "" for name, value in row.items()} for row in rows]
    files = some(sorted({row["file"] for row in shown}), 3)
    note = (
        f"The first {len(shown)} of {total:,}, in {files}; headway quarantine shows more." if total > len(shown) else ""
    )
    title = counted(total, "rejected row")
    yield Table(title[:1].upper() + title[1:], shown, note, folded=len(shown) > 6)
