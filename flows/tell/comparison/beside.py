"""Two models beside each other as parts: what each is, their metrics on the rows that both scored, and what differs.

for part in parts_of(comparison, drawn=False):
    print(text(part))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flows.tell.comparison.compared import Compared
from flows.tell.comparison.data_beside import data
from flows.tell.comparison.metrics_beside import metrics, slices
from flows.tell.comparison.sides import Side
from flows.tell.comparison.training_beside import training
from flows.tell.ending import ending_of
from flows.tell.figures.drawing import short
from flows.tell.parts import Part, Table
from headway.messages import counted, duration, number, size, window_text

_MOST_DIFFERENCES = 200


def parts_of(comparison: Compared, *, drawn: bool) -> list[Part]:
    """The parts of a comparison.

    Args:
        drawn: with the figures, and with what is only shown beside them.
    """
    a, b = comparison.a, comparison.b
    both = Part("Both sides", tables=[Table("Both sides", list(_facts(a, b))), *_reasons(a, b)])
    found = [
        both,
        metrics(comparison, drawn=drawn),
        slices(comparison),
        _differing(comparison),
        data(comparison, drawn=drawn),
    ]
    return [part for part in (*found, training(a, b) if drawn else None) if part is not None]


# --- what each is


def _facts(a: Side, b: Side) -> Iterator[dict[str, Any]]:
    for what, told in _TOLD.items():
        cells = [told(side) for side in (a, b)]
        if any(cells):
            yield {"what": what, a.label: cells[0], b.label: cells[1]}


def _reasons(a: Side, b: Side) -> Iterator[Table]:
    rows = [
        {"of": side.label, "reason": text} for side in (a, b) for text in side.facts["verdict"].get("reasons") or []
    ]
    if rows:
        yield Table("What the gate said", rows, whole=("reason",))


def _ended(side: Side) -> str:
    record = side.material.record
    if not record.started:  # of a version whose run is no longer recorded
        return ""
    return ending_of(record).headline


def _judged(side: Side) -> str:
    verdict = side.facts["verdict"]
    against = f" against version {verdict['champion']}" if verdict.get("champion") else ""
    return f"{verdict['verdict']}{against}" if verdict.get("verdict") else ""


def _window(spans: list[str]) -> str:
    return f"{window_text(spans)}, {counted(len(spans), 'span')}" if spans else ""


def _rows(side: Side, split: str) -> str:
    rows = side.facts["rows"].get(split)
    return "" if rows is None else f"{rows:,}"


def _read(side: Side) -> str:
    counts = side.facts["counts"]
    return ", ".join(f"{name} {count:,}" for name, count in counts.items() if count or name in ("read", "written"))


def _took(side: Side) -> str:
    seconds = [output.get().get("seconds") for output in side.material.outputs.values() if output.stage == "train"]
    known = [each for each in seconds if isinstance(each, int | float)]
    return duration(sum(known)) if known else ""


_TOLD: Mapping[str, Any] = {
    "stands as": lambda side: ", ".join(side.facts["names"]),
    "how its run ended": _ended,
    "the gate": _judged,
    "made": lambda side: str(side.facts["created"])[:16].replace("T", " ") + " UTC",
    "run": lambda side: side.facts["run"] or "",
    "task": lambda side: side.facts["task"] or "",
    "train spans": lambda side: _window(side.facts["spans"]["train"]),
    "eval spans": lambda side: _window(side.facts["spans"]["eval"]),
    "train rows": lambda side: _rows(side, "train"),
    "eval rows": lambda side: _rows(side, "eval"),
    "rows from the files": _read,
    "training took": _took,
    "size": lambda side: size(side.facts["bytes"]) if side.facts["bytes"] else "",
}


# --- what differs


def _differing(comparison: Compared) -> Part:
    a, b, value = comparison.a, comparison.b, comparison.value
    sentences, tables = [], []
    config, code = value["config"], value["code"]
    if config:
        tables.append(_table("Settings", "key", config, a, b))
    else:
        sentences.append("The settings are the same, as far as they were kept.")
    if code:
        tables.append(_table("Code and tools", "what", code, a, b))
    else:
        same = "are the same" if code is not None else "were not kept of both sides"
        sentences.append(f"The code and the tools {same}.")
    if (columns := value["columns"]) is not None:
        rows = [
            {"column": name, "change": told}
            for key, told in (("only_a", f"only in {a.label}"), ("only_b", f"only in {b.label}"))
            for name in columns[key]
        ]
        rows += [{"column": name, "change": change} for name, change in comparison.changed_columns.items()]
        if rows:
            shown = [row | {"column": short(row["column"], 60)} for row in rows[:_MOST_DIFFERENCES]]
            tables.append(Table("Columns", shown, _more(len(rows) - len(shown))))
        else:
            sentences.append("The columns and their types are the same.")
    return Part("What differs", sentences, tables=tables)


def _table(title: str, head: str, differences: list[dict[str, Any]], a: Side, b: Side) -> Table:
    rows = [
        {head: short(each["key"], 80), a.label: _cell(each["a"]), b.label: _cell(each["b"])}
        for each in differences[:_MOST_DIFFERENCES]
    ]
    return Table(title, rows, _more(len(differences) - len(rows)))


def _more(count: int) -> str:
    return f"{count:,} more: --json has all" if count else ""


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return number(value) if isinstance(value, float) else short(value, 120)
