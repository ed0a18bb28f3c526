"""What each column is to the model: a feature, a list of words, an image, or left out, and why.

for choice in choose_columns(seen, statistics, label.columns(), facts):
    choice.column, choice.use, choice.why, choice.config
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headway.first_pipeline.image_size import image_size
from headway.first_pipeline.label_choice import LabelFacts
from headway.first_pipeline.look import Seen
from headway.first_pipeline.text_lists import list_config
from headway.messages import counted, number
from headway.schema.columns import LABEL, Column, StoredType, type_text
from headway.schema.parse_rules import Parse
from headway.schema_inference.identifiers import TIMES, words_of
from headway.schema_inference.split_columns import names_rows
from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.split_statistics import SplitStatistics
from headway.validation.leaks.leakage_hints import constant, leaks, own_values, repeated

SUSPICIOUS = 0.99
"""What a column alone may reach on the label; `validation.leakage` has the same default."""
_RECURRING = 0.3
"""The least share of rows whose text stands in several rows, for the text to be a category."""
_FEW_ROWS = 20
_LEAST_OF_A_CLASS = 5
_FREQUENT, _SPIKES_FROM, _SPIKES_BELOW = 0.05, 200, 5_000
"""The share of the rows that makes a number's value a category; the rows below which so many are chance; and those from which
on hidden layers learn such steps by themselves."""
_LEVELS, _STANDS_OUT = 10, 3.0
"""The most values of a scale, whose order says more than each of them; and how many times its equal share a value has."""
Use = Literal["feature", "label", "left out", "key", "time"]


@dataclass(frozen=True)
class Choice:
    column: str
    type: str
    """In a person's words."""
    use: Use
    why: str = ""
    config: Any = None
    """What `columns:` has to say of it; None: nothing, auto does the same."""
    warning: bool = False
    """Whether `why` is a doubt that a person should look at."""
    by_auto: bool = False
    """Whether a run leaves the column out by itself."""

    @property
    def is_learned(self) -> bool:
        """Whether the model sees it, or parts of it."""
        return self.use == "feature" or (
            isinstance(self.config, dict) and "date_parts" in self.config.get("transform", ())
        )


def statistics_of(seen: Seen) -> SplitStatistics:
    """Statistics of the rows, with those of the label as `label`."""
    columns = [column for column in seen.schema.columns if column.name in seen.rows.schema.names[:-1]]
    names, arrays = seen.rows.schema.names, seen.rows.columns
    kept = [place for place, name in enumerate(names) if name != LABEL or place == len(names) - 1]
    kinds: dict[str, StoredType] = {"int64": "int64", "float": "float32"}
    label = Column(name=LABEL, type=kinds.get(str(seen.label.type), "bytes"), nullable=False)
    statistics = SplitStatistics.create([*(column for column in columns if column.name != LABEL), label])
    statistics.update(pa.RecordBatch.from_arrays([arrays[i] for i in kept], names=[names[i] for i in kept]))
    return statistics


def choose_columns(
    seen: Seen, statistics: SplitStatistics, label: Collection[str], facts: LabelFacts, alone: Mapping[str, float]
) -> list[Choice]:
    """A choice for each column of the schema, in its order.

    Args:
        label: the columns that the label is made of.
        alone: how well each column alone tells the label.
    """
    columns = [column for column in seen.schema.columns if column.name not in label and column.name != LABEL]
    by_auto, numbered = _left_out(seen, statistics, columns)
    out = by_auto | numbered
    names = [column.name for column in columns if column.name not in out]
    for name, first in repeated(statistics, names).items():
        out.setdefault(name, f"repeats column {first!r}")
    names = [name for name in names if name not in out]
    doubts, after = dict[str, str](), set[str]()
    strong = {name: alone[name] for name in names if name in alone}
    for leak in leaks(statistics, strong, facts.kind, SUSPICIOUS):
        if leak.copy:
            out[leak.column] = f"almost a copy of the label: it alone {leak.how}"
        elif leak.own_values:
            why = f"alone {leak.how}, by a value that one class has and no other: written down after it?"
            out[leak.column] = f"{why} If it is known before a prediction: auto"
            after.add(leak.column)
        else:
            doubts[leak.column] = f"alone {leak.how}: is it known when a prediction is needed? If not: ignore"
    if seen.rows.num_rows < 200 and facts.kind != "regression":  # too few for strengths to say
        for name in names:
            if name not in out and _renames(seen.values(name), seen.label):
                out[name] = "the label in other words: one value stands for each class"
    choices = []
    for column in seen.schema.columns:
        name = column.name
        if name in label:
            choices.append(Choice(name, type_text(column), "label", "the label is made of it"))
        elif name in out:
            choices.append(
                Choice(name, type_text(column), "left out", out[name], "ignore", name in after, name in by_auto)
            )
        elif name in doubts:
            choices.append(Choice(name, type_text(column), "feature", doubts[name], warning=True))
        else:
            choices.append(_feature(column, seen, statistics))
    return choices


def _left_out(seen: Seen, statistics: SplitStatistics, columns: list[Column]) -> tuple[dict[str, str], dict[str, str]]:
    """Why a column can teach nothing, by its name: (those that a run leaves out by itself, row numbers)."""
    out, numbered = dict[str, str](), dict[str, str]()
    for column in columns:
        name = column.name
        if name not in statistics.columns:
            continue
        own = statistics.columns[name]
        if any(constant(own)) or not own.present:
            out[name] = "constant" if own.present else "holds nothing"
        elif _names_rows(column, own) and not _words(column, seen) and not _size(column, seen):
            out[name] = f"identifier: {own.distinct:,} different values in {counted(own.present, 'row')}"
        elif _counts_up(column, seen):
            numbered[name] = "row number: it only rises or falls"
    return out, numbered


def _names_rows(column: Column, own: ColumnStatistics) -> bool:
    """Whether it is an identifier in all rows, and not in the first ones only."""
    return column.meaning == "identifier" and 2 * own.distinct > own.present


def _counts_up(column: Column, seen: Seen) -> bool:
    """Whether integers are in the order of the rows and have no name of a time."""
    if column.type != "int64" or column.shape or column.temporal or {*words_of(column.name)} & TIMES:
        return False
    values = pa.chunked_array([seen.values(column.name)])
    return seen.whole and len(values) >= _FEW_ROWS and names_rows(column.name, values)


def _words(column: Column, seen: Seen) -> dict[str, Any] | None:
    """How a text is read as a list of words; None where its words hardly recur."""
    if column.type != "bytes" or column.shape or column.name not in seen.rows.schema.names[:-1]:
        return None
    return list_config(seen.values(column.name))


def _size(column: Column, seen: Seen) -> tuple[int, int, int] | None:
    """The size of the images that a column holds; None where it holds none."""
    return image_size(seen.values(column.name)) if column.type == "bytes" and not column.shape else None


def _feature(column: Column, seen: Seen, statistics: SplitStatistics) -> Choice:
    name, kind = column.name, type_text(column)
    if (spiked := _spikes(column, seen, statistics)) is not None:
        return Choice(name, kind, "feature", spiked, {"frequent": _FREQUENT})
    if column.type != "bytes" or column.shape or name not in seen.rows.schema.names[:-1]:
        return Choice(name, kind, "feature", _reading(column.parse) if column.parse else "")
    values = seen.values(name)
    if (size := _size(column, seen)) is not None:
        height, width, channels = size
        config = {"image": {"height": height, "width": width, "channels": channels}}
        return Choice(name, "image", "feature", f"{height} x {width} pixels", config)
    if (listed := _words(column, seen)) is not None:
        what = "words" if listed["separator"] == " " else f"values between {listed['separator']!r}"
        return Choice(name, kind, "feature", f"a list of {what}", listed)
    own = statistics.columns[name]
    if column.meaning == "identifier":
        return Choice(name, kind, "feature", "its values come again, though not in the first rows", "vocabulary")
    if column.meaning is None and own.present >= _FEW_ROWS and own.distinct > own.present / 2:
        counts = pc.struct_field(pc.value_counts(values.drop_null()), 1).to_numpy(zero_copy_only=False)
        if counts[counts > 2].sum() < _RECURRING * own.present:
            why = f"text that hardly recurs: {own.distinct:,} different values in {counted(own.present, 'row')}"
            return Choice(name, kind, "left out", why, "ignore")
    return Choice(name, kind, "feature")


def _spikes(column: Column, seen: Seen, statistics: SplitStatistics) -> str | None:
    """What to say of a number of which single values recur, such as 0 or 99, in so few rows that a model would learn them as
    steps of a smooth function; None for any other column."""
    own = statistics.columns.get(column.name)
    if own is None or column.type == "bytes" or column.shape or column.temporal or column.meaning or not own.complete:
        return None
    if f"{column.name}__value" in seen.schema:  # two inputs would have one name
        return None
    if column.type == "int64" and own.is_few_values:  # categories already
        return None
    if not seen.whole or not _SPIKES_FROM <= seen.rows.num_rows < _SPIKES_BELOW or own.distinct <= _LEVELS:
        return None
    value, times = own.top(1)[0]
    least = max(_FREQUENT * seen.rows.num_rows, _STANDS_OUT * own.present / own.distinct)
    if times < least or not math.isfinite(value):
        return None
    return f"{number(value)} is in {times / seen.rows.num_rows:.0%} of the rows: its frequent values are a category too"


def _reading(rule: Parse) -> str:
    """How text, or a number that counts time, is read; nothing of plain numbers and ISO dates."""
    if rule.unit:
        return f"numbers of {rule.unit[0]}"
    if rule.is_epoch:
        return f"{rule.as_.removeprefix('epoch_')} since 1970"
    of_kind = {"abbreviated": "shortened numbers, such as 1.2M", "duration": "in seconds"}
    return f"of the form {rule.format}" if rule.format else of_kind.get(rule.as_, "")


def _renames(values: pa.Array, label: pa.Array) -> bool:
    """Whether one value, or that there is none, stands for a class, for all classes but one at most."""
    if len(values) < _FEW_ROWS or pa.types.is_nested(values.type):
        return False
    codes = pa.chunked_array([label.dictionary_encode().indices])
    if np.bincount(codes.to_numpy()).min() < _LEAST_OF_A_CLASS:
        return False  # chance
    return own_values(pa.chunked_array([values.dictionary_encode().indices]), codes, 1.0)
