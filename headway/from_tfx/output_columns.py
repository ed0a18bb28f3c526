"""What the outputs of a preprocessing_fn are as `columns:` of pipeline.yaml, and as columns of a preprocess function.

translation = translate(outputs, label=frozenset({"tips"}), sole=True, taken={"tips", "fare"})
translation.columns            # {"fare": "standardize"}
translation.derived            # {"log_miles_xf": Rows("tf.math.log1p(columns['miles'])", ..., op="standardize")}
"""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.from_tfx.values import Raw, Remark, Rows, column
from headway.schema.columns import LABEL
from headway.schema.tensor_name import PRESENT

_CATEGORIES = frozenset({"vocabulary", "hash"})


@dataclass
class Translation:
    columns: dict[str, Any] = field(default_factory=dict)
    """By raw column."""
    why: dict[str, str] = field(default_factory=dict)
    """The output that a column was made from, by raw column."""
    derived: dict[str, Rows] = field(default_factory=dict)
    """What a preprocess function computes, each with its operation."""
    remarks: list[Remark] = field(default_factory=list)


def translate(
    outputs: Mapping[str, Rows | Remark], *, label: frozenset[str], sole: bool, taken: Collection[str]
) -> Translation:
    """The outputs as columns of Headway.

    Args:
        taken: the names of the raw columns, which no computed one may have.
        label: the raw columns that the label is made of.
        sole: whether the label is one raw column, so that whatever is made of it is the label again.
    """
    done = Translation()
    for key, rows in outputs.items():
        if isinstance(rows, Remark):
            done.remarks.append(dataclasses.replace(rows, problem=f"output {key!r}: {rows.problem}"))
        elif not rows.reads:
            done.remarks += [Remark(*rows.place, f"output {key!r}: it is the same in every row", "it teaches nothing")]
        elif not label or not (rows.reads & label if sole else label <= rows.reads):  # else the label itself
            notes = _take(key, rows, done, taken)
            done.remarks += [Remark(*rows.place, f"output {key!r}: {note}") for note in notes]
    return done


def _take(key: str, rows: Rows, done: Translation, taken: Collection[str]) -> list[str]:
    """Take an output over; what is not the same."""
    op, notes = rows.op, [*rows.notes]
    kind = op if isinstance(op, str) else next(iter(op or ()), None)
    is_column = rows.raw is not None and (kind == "vocabulary" or rows.text == (rows.raw.type == "bytes"))
    raw = rows.raw if is_column else None
    if raw and rows.constant is not None and (kind in _CATEGORIES or raw.required):
        if not raw.required:
            notes.append(f"a missing value has an id of its own here, where TFX takes it for {rows.constant!r}")
        rows = column(raw)
    if raw and op is None:
        op = _passed(raw, notes)
    if raw and rows.constant is None and raw.name not in done.columns:
        done.columns[raw.name], done.why[raw.name] = op, key
        return notes
    name = key.replace("/", "_per_")
    while name in {*taken, *done.derived, "", LABEL} or name.endswith(PRESENT):
        name = f"{name}_computed".lstrip("_")
    source = f"tf.identity({rows.source})" if raw else rows.source
    done.derived[name] = dataclasses.replace(
        rows, source=source, op=op if op is not None else "vocabulary" if rows.text else "identity"
    )
    return notes


def _passed(raw: Raw, notes: list[str]) -> Any:
    """What becomes of a column that is passed on as it is."""
    if raw.type == "bytes":
        notes.append("the text goes on to the model there; here it gets a vocabulary")
        return "vocabulary"
    if raw.listed:
        return {}
    if raw.category:
        return "vocabulary"
    if raw.type == "int64":
        notes.append("integers are taken as numbers; if they name things, write vocabulary")
    return "identity"
