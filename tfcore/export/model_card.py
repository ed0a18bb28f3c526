"""The model card in Markdown: what a model predicts, its inputs, its quality, and how to send requests.

text = model_card(described, signatures, CardFacts(model="flights", spans=("2013-01",), metrics={"auc": 0.91}))
(saved_model / FILE).write_text(text)
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from headway.config import Frozen
from headway.evaluation.threshold import AS_CONFIGURED
from headway.evaluation.verdict import Check, Metrics, Status
from headway.messages import counted, number, signed, some, window_text
from headway.schema.calendar_days import UNITS
from headway.schema.columns import Column
from tfcore.export.metadata import ModelMetadata
from tfcore.export.signatures import DEFAULT, Signature

FILE = Path("assets.extra") / "model_card.md"
_MOST_COLUMNS = 200


class CardFacts(Frozen):
    """The facts of a run that the model card shows and that the export itself does not know."""

    model: str
    label: str = ""
    """The label as pipeline.yaml has it."""
    spans: tuple[str, ...] = ()
    """The spans of the window."""
    train_rows: int | None = None
    eval_rows: int | None = None
    seed: int | None = None
    metrics: dict[str, Any] = Field(default_factory=dict)
    """The metrics on the eval rows."""
    intervals: dict[str, Any] = Field(default_factory=dict)
    """The confidence intervals of metrics, [low, high] each, where evaluation gives them."""
    threshold: dict[str, Any] | None = None
    """The decision threshold that the config's rule chose, as evaluation returns it; None: there is no rule."""
    baselines: dict[str, Metrics] = Field(default_factory=dict)
    """{baseline: its values of the same metrics}"""
    compared: tuple[Check, ...] = ()
    """The comparisons with the champion of that time on the same rows, one for each metric."""
    status: Status | None = None
    """What the gate decided; None: not known."""
    reasons: tuple[str, ...] = ()
    """The reasons for the gate's decision, as sentences."""


def model_card(
    described: ModelMetadata,
    signatures: Mapping[str, Signature],
    facts: CardFacts,
) -> str:
    """Returns the Markdown text of the model card."""
    parts = [
        f"# {facts.model}",
        _predicts(described, facts, signatures),
        _data(facts),
        _quality(facts),
        _inputs(described, signatures),
        _calls(signatures, facts),
        _limits(described, facts),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _predicts(described: ModelMetadata, facts: CardFacts, signatures: Mapping[str, Signature]) -> str:
    outputs = ", ".join(f"`{tensor.name}`" for tensor in signatures[DEFAULT].outputs)
    label = f" of `{facts.label}`" if facts.label else ""
    classes = f" The classes are {some(described.classes, 20, repr)}." if described.classes else ""
    return f"A {described.task} model{label}. It gives {outputs} for each row.{classes}"


def _data(facts: CardFacts) -> str:
    lines = []
    if facts.spans:
        lines.append(f"- window: {window_text(facts.spans)}, {counted(len(facts.spans), 'span')}")
    rows = {"trained on": facts.train_rows, "evaluated on": facts.eval_rows}
    lines += [f"- {what}: {counted(n, 'row')}" for what, n in rows.items() if n is not None]
    lines += [f"- seed: {facts.seed}"] if facts.seed is not None else []
    return "## Data\n" + "\n".join(lines) if lines else ""


def _quality(facts: CardFacts) -> str:
    baselines = facts.baselines
    if not facts.metrics and facts.status is None and facts.threshold is None:
        return ""
    text = "## Quality, on eval rows\n"
    if facts.metrics:
        names = [*(["interval"] if facts.intervals else []), *baselines]
        rows = [["metric", "model", *names], ["---"] * (2 + len(names))]
        for metric, value in facts.metrics.items():
            if not isinstance(value, int | float) and value is not None:
                continue
            row = [metric, number(value)] + ([_interval(facts.intervals.get(metric))] if facts.intervals else [])
            rows.append([*row, *(number(of.get(metric)) for of in baselines.values())])
        text += "\n" + _table(rows) + "\n"
    if (threshold := facts.threshold) is not None and threshold.get("value") is not None:
        rule = threshold["rule"] if threshold["rule"] == AS_CONFIGURED else f"for {threshold['rule']}"
        text += f"\nThreshold {rule}: **{number(threshold['value'])}**, chosen on {threshold['chosen_on']}. "
        text += "`classify` decides at it where a request names no other.\n"
        rows = [["at the threshold", "value", "interval"], ["---"] * 3]
        bounds = threshold.get("intervals") or {}
        rows += [[n, number(value), _interval(bounds.get(n))] for n, value in (threshold.get("metrics") or {}).items()]
        text += f"\n{_table(rows)}\n"
    if facts.compared:
        rows = [["metric", "difference", "interval"], ["---"] * 3]
        rows += [[str(c.metric), signed(c.change), _interval(c.interval)] for c in facts.compared]
        text += f"\nAgainst {facts.compared[0].against}, the champion then, on the same rows:\n\n{_table(rows)}\n"
    if facts.status is not None:
        text += f"\nVerdict of the gate: **{facts.status}**\n\n"
        text += "\n".join(f"- {sentence}" for sentence in facts.reasons)
    return text.rstrip()


def _interval(values: Sequence[float] | None) -> str:
    return "" if values is None else f"{number(values[0])} to {number(values[1])}"


def _inputs(described: ModelMetadata, signatures: Mapping[str, Signature]) -> str:
    columns = described.columns[:_MOST_COLUMNS]
    named = {tensor.column: tensor.name for tensor in signatures[DEFAULT].inputs}
    rows = [["column", "input", "type", "may be null"], ["---"] * 4]
    rows += [
        [f"`{c.name}`", f"`{named.get(c.name, c.name)}`", _type(c), "yes" if c.nullable else "no"] for c in columns
    ]
    rest = len(described.columns) - len(columns)
    return f"## Inputs\n{_table(rows)}" + (f"\n\nand {counted(rest, 'column')} more: see columns.json" if rest else "")


def _type(column: Column) -> str:
    kind: str = "text" if column.type == "bytes" else column.type
    kind += f", {UNITS[column.temporal]} since 1970-01-01" if column.temporal else ""
    return kind if not column.shape else f"list of {kind}" if column.is_list else f"{column.length} of {kind}"


def _calls(signatures: Mapping[str, Signature], facts: CardFacts) -> str:
    row = {}
    for tensor in signatures[DEFAULT].inputs[:8]:
        value: Any = "..." if tensor.dtype == "string" else 0.0 if tensor.dtype == "float32" else 0
        width = tensor.shape[1] if len(tensor.shape) > 1 else None
        row[tensor.name] = value if len(tensor.shape) == 1 else [value] * (width or 1)
    more = " (all inputs are needed; these are the first)" if len(signatures[DEFAULT].inputs) > 8 else ""
    body = json.dumps({"instances": [row]})
    names = ", ".join(f"`{name}`" for name in signatures)
    return (
        f"## How to call it\nWith `headway serve` or TensorFlow Serving{more}:\n\n"
        f"    curl -d '{body}' localhost:8501/v1/models/{facts.model}:predict\n\n"
        f"Its signatures are {names}; `signatures.json` beside this file has their inputs and outputs. Nulls go to "
        "`serving_nullable`."
    )


def _limits(described: ModelMetadata, facts: CardFacts) -> str:
    lines = ["- It knows the rows of its window; rows that are distributed otherwise may be predicted worse."]
    if any(column.nullable for column in described.columns):
        lines.append("- `serving_default` takes a null in float columns alone, as NaN.")
    if (share := (facts.metrics or {}).get("calibration")) is not None and abs(share - 1) > 0.1:
        lines.append(f"- On the eval rows it predicts {number(share)} times the mean of the label.")
    if any(column.is_list for column in described.columns):
        lines.append("- Lists of one request of `serving_default` have one length.")
    return "## Limits\n" + "\n".join(lines)


def _table(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
