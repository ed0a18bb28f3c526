"""Chooses the split that fits: by time, by a unit (such as a customer) that has several rows, or by the hash of a row.

choice = choose_split(look, seen, label, facts, choices)
choice.config, choice.text                   # {"eval": 0.3}, "30% of the rows, by a hash of each row"
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headway.first_pipeline.column_choices import Choice
from headway.first_pipeline.found_files import SPLIT_WORDS
from headway.first_pipeline.label_choice import LabelFacts
from headway.first_pipeline.look import SourceSample, TypedRows
from headway.leakage.time_range import time_text
from headway.messages import agree, counted
from headway.schema.calendar_days import PER_DAY, parts_of
from headway.schema.columns import LABEL, Column
from headway.schema_inference.identifiers import words_of
from headway.schema_inference.split_columns import few_distinct, row_columns
from headway.sources.spans import split_name
from headway.tabular.label import LabelConfig
from headway.validation.units import find_unit

FEW_ROWS, EVAL_OF_FEW = 1000, 0.3
"""With fewer rows than this a larger share of them is eval, so that the gate has something to see."""
LEAST_SPANS = 3
LEAST_EVAL = 20
"""Rows below which the gate compares nothing."""
_LEAST_TIMES = 20
_BIRTHS = frozenset({"birth", "born", "dob", "birthday", "birthdate"})
_TIME_WORDS = ("timestamp", "datetime", "date", "time", "day", "created", "event", "ds")
_MONTH = 28


@dataclass(frozen=True)
class SplitChoice:
    text: str
    config: dict[str, Any] = field(default_factory=dict)
    """The keys of `split:`; empty: the default."""
    columns: dict[str, Choice] = field(default_factory=dict)
    """Choices of columns that the split changes."""


def choose_split(
    look: SourceSample, seen: TypedRows, label: LabelConfig, facts: LabelFacts, choices: Sequence[Choice]
) -> SplitChoice:
    """Returns the first split that fits the data: by ready-made folders, whole spans, a time, a unit, or else a row hash."""
    if look.config.has_splits:
        return _ready(look)
    if len(look.spans) >= LEAST_SPANS:
        last = max(1, round(len(look.spans) * 0.15))
        config = {"mode": "time"} | ({"eval_spans": last} if last > 1 else {})
        return SplitChoice(
            f"the last {'span is' if last == 1 else f'{last} spans are'} eval, of {len(look.spans)}", config
        )
    free = {choice.column: choice for choice in choices if choice.use == "feature"}
    columns = {column.name: column for column in seen.schema.columns if column.name in free}
    times = _times(columns.values(), seen)
    tried = [_by_time(columns[name], free, seen, facts) for name in times]
    if (chosen := next((split for split in tried if isinstance(split, SplitChoice)), None)) is not None:
        return chosen
    why = f"; not by {times[0]}: {tried[0]}" if times else ""
    by_unit, by_row = _by_unit(seen, facts, choices), _by_row(look, seen, label)
    if by_unit.config:
        return replace(by_unit, text=by_unit.text + why)
    return replace(by_row, text=by_row.text + why, columns=by_unit.columns)


def _ready(look: SourceSample) -> SplitChoice:
    """Returns the split that the files' folders make. If no folder is called eval, the folder test is eval."""
    names = sorted({split_name(look.config, file.path) for file in look.files})
    values = {name: SPLIT_WORDS.get(name.lower(), name) for name in names}
    if "eval" not in values.values():
        values = {name: "eval" if split == "test" else split for name, split in values.items()}
    config: dict[str, Any] = {"mode": "path"}
    if "test" not in values.values() or any(name != split for name, split in values.items()):
        config["values"] = values
    judging = [name for name, split in values.items() if split == "eval"]
    return SplitChoice(
        f"as the files lie in folders: {' and '.join(judging)} {agree(len(judging), 'is', 'are')} eval", config
    )


def _share(rows: int) -> dict[str, Any]:
    return {"eval": EVAL_OF_FEW} if rows < FEW_ROWS else {}


def _times(columns: Any, seen: TypedRows) -> list[str]:
    """Returns the names of the columns that may say when a row came into being, the likeliest first."""
    names = seen.rows.schema.names[:-1]
    found = []
    for column in columns:
        words = words_of(column.name)
        if column.temporal is None or column.shape or column.name not in names or {*words} & _BIRTHS:
            continue
        values = seen.values(column.name).drop_null()
        if len(pc.unique(values)) < _LEAST_TIMES:
            continue
        rises = bool((np.diff(values.to_numpy()) >= 0).all())
        named = next((place for place, word in enumerate(_TIME_WORDS) if word in words), len(_TIME_WORDS))
        found.append((not rises, named, column.name))
    return [name for _, _, name in sorted(found, key=lambda item: item[:2])]


def _by_time(column: Column, free: Mapping[str, Choice], seen: TypedRows, facts: LabelFacts) -> SplitChoice | str:
    """Returns the split in which the later rows are eval; if that cannot be, a sentence on why."""
    if missing := seen.values(column.name).null_count:
        return f"{counted(missing, 'row')} {agree(missing, 'has', 'have')} no value"
    values = seen.values(column.name).to_numpy()
    assert column.temporal is not None
    unit = PER_DAY[column.temporal]
    share = EVAL_OF_FEW if len(values) < FEW_ROWS else 0.2
    bound = int(np.quantile(values, 1 - share, method="higher"))
    if (int(values.max()) - int(values.min())) > 20 * unit:
        bound -= bound % unit  # a day begins
    later = values >= bound
    part = later.mean()
    if not 0.5 * share <= part <= 1.75 * share or later.sum() < LEAST_EVAL:
        return f"the rows from {time_text(bound, column.temporal)} on would be {part:.0%} of all"
    if facts.kind != "regression":
        classes, codes = np.unique(seen.label.to_numpy(zero_copy_only=False), return_inverse=True)
        before, after = (np.bincount(codes[rows], minlength=len(classes)) for rows in (~later, later))
        least = LEAST_EVAL if len(classes) == 2 and len(values) >= FEW_ROWS else 1
        if not before.all() or after.min() < least:
            return "its earlier or its later rows lack a class"
    parts = _parts(values, column)
    if not parts and len(free) == 1:
        return "nothing else would be left to learn from"
    text = time_text(bound, column.temporal)
    config = {"mode": "column", "column": column.name, "eval_from": text}
    changed: Any = {"role": ["time", "feature"], "transform": {"date_parts": parts}} if parts else "time"
    if column.parse is not None:
        rule = column.parse.format or column.parse.as_
        changed = ({"role": "time"} if changed == "time" else changed) | {"parse": rule}
    learned = f"; learned from: its {', '.join(parts)}" if parts else ""
    time = Choice(column.name, free[column.name].type, "time", f"tells earlier rows from later ones{learned}", changed)
    return SplitChoice(f"by time: the rows from {text} on are eval, {part:.0%} of all", config, {column.name: time})


def _parts(values: Any, column: Column) -> list[str]:
    """Returns which of month, weekday and hour recur in these times, so that a model can use them at later times."""
    assert column.temporal is not None
    unit = PER_DAY[column.temporal]
    days = np.floor_divide(values, unit)
    spread = int(days.max() - days.min())
    parts = ["month"] if spread > 730 else []
    monthly = np.diff(np.unique(days)).min(initial=_MONTH) >= _MONTH
    if spread >= 14 and len(np.unique(days % 7)) > 1 and not monthly:
        parts.append("weekday")
    if column.temporal != "date" and len(np.unique(parts_of(values, column.temporal, "hour"))) > 1:
        parts.append("hour")
    return parts


def _by_unit(seen: TypedRows, facts: LabelFacts, choices: Sequence[Choice]) -> SplitChoice:
    """Returns the split by a unit if one is sure. Else the config is empty, and a column that may be a unit has a warning."""
    free = {choice.column: choice for choice in choices if choice.use in ("feature", "left out")}
    timeless = {column.name for column in seen.schema.columns if column.name in free and not column.temporal}
    names = [name for name in seen.rows.schema.names[:-1] if name in timeless]
    batch = pa.RecordBatch.from_arrays([*map(seen.values, names), seen.label], names=[*names, LABEL])
    unit = find_unit(batch, names, facts.kind)
    if unit is None or (not unit.sure and free[unit.column].warning):
        return SplitChoice("")
    name, choice = unit.column, free[unit.column]
    if not unit.sure:
        why = f"may name what several rows belong to: {unit.why}. If new rows will be of others: split: {{key: {name}}}"
        return SplitChoice("", columns={name: replace(choice, why=why, warning=True)})
    text = f"by {name}: {unit.units:,} of them, in {counted(unit.rows, 'row')}: {unit.why}, so none is in two splits"
    key = Choice(name, choice.type, "key", "names what several rows belong to, which stay together")
    return SplitChoice(text, {"key": name} | _share(len(seen.label)), {name: key})


def _by_row(look: SourceSample, seen: TypedRows, label: LabelConfig) -> SplitChoice:
    """Returns the split by a hash of each row."""
    config = _share(len(seen.label))
    text = f"{config.get('eval', 0.2):.0%} of the rows are eval, drawn by a hash of each row"
    hashed, _ = row_columns(look.sample, label.columns())
    if seen.whole and look.config.format != "images" and few_distinct(look.sample, hashed, label.columns()):
        text += " and of its place in its file, since few rows are distinct"
    return SplitChoice(text, config)
