"""The data of a run: rows from files to splits, what validation found, the columns, the rejected rows."""

from collections.abc import Iterator

import pyarrow as pa

from flows.tell.figures.drawing import one_line
from flows.tell.material import Material
from flows.tell.rendering.parts import Finding, Part
from flows.tell.rendering.tables import Table
from flows.tell.sections.window.by_span import drift_by_span
from flows.tell.sections.window.column_figures import Columns
from headway.messages import capital, counted, sentence, some, window_text
from headway.sources.discovery.spans import ONE_SPAN
from headway.tabular import quarantine
from headway.validation.anomaly import SplitProof, Validated

_MOST_SPANS, _MOST_REJECTED = 40, 12
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
    columns = Columns(material)
    sentences += columns.sentences()
    spans = [{"span": span, **of} for span, of in counts.items()]
    tables = [Table("Spans", spans[-_MOST_SPANS:], folded=len(spans) > 6)] if len(spans) > 1 else []
    drift = drift_by_span(material, columns.drawn, columns.train)
    tables += [*splits_table(validated), *columns.tables(), *drift, *_rejected(material)]
    return Part("Data", sentences, tables=tables, findings=findings_of(validated), panels=list(columns.panels()))


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
    spans = "" if list(counts) == [ONE_SPAN] else f" from {counted(len(counts), 'span')} ({window_text(list(counts))})"
    text = f"{counted(totals['read'], 'row')} read{spans}: {totals['written']:,} kept"
    text += f", {totals['filtered']:,} filtered out" if totals["filtered"] else ""
    return text + f", {totals['quarantined']:,} rejected."


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
    shown = [{name: one_line(value, 80) if value is not None else "" for name, value in row.items()} for row in rows]
    files = some(sorted({row["file"] for row in shown}), 3)
    more = f"The first {len(shown)} of {total:,}, in {files}; headway quarantine shows more."
    yield Table(
        capital(counted(total, "rejected row")), shown, more if total > len(shown) else "", folded=len(shown) > 6
    )
