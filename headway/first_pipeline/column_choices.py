"""Chooses what each column is to the model: a feature, a list of words, an image, or left out; and why.

for choice in choose_columns(seen, statistics, label.columns(), facts):
    choice.column, choice.use, choice.why, choice.config
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from headway.first_pipeline.image_size import image_size
from headway.first_pipeline.label_choice import LabelFacts
from headway.first_pipeline.look import TypedRows
from headway.first_pipeline.text_lists import list_config
from headway.messages import counted
from headway.schema.columns import LABEL, Column, StoredType, type_text
from headway.schema.parse_rules import Parse
from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.split_statistics import SplitStatistics
from headway.validation.leaks import check_constant, leaks, repeated, strengths

_RECURRING = 0.3
"""The least share of rows whose text occurs in three rows or more, for a text column to be a category: a rarer text is
learned by heart from a few rows."""
_FEW_ROWS = 20
Use = Literal["feature", "label", "left out", "kept", "key", "time"]


@dataclass(frozen=True)
class Choice:
    column: str
    type: str
    """The type in plain words."""
    use: Use
    why: str = ""
    config: Any = None
    """The entry of the column in `columns:`; None: none is needed, as auto does the same."""
    warning: bool = False
    """Whether `why` is a doubt that a person should look at."""
    by_auto: bool = False
    """Whether a run leaves the column out by itself."""

    @property
    def is_learned(self) -> bool:
        """Returns whether the model learns from the column, or from parts of it such as the month of a date."""
        return self.use == "feature" or (
            isinstance(self.config, dict) and "date_parts" in self.config.get("transform", ())
        )


def statistics_of(seen: TypedRows) -> SplitStatistics:
    """Returns the statistics of the rows, by column. The column of the label's values is called `label`."""
    columns = [column for column in seen.schema.columns if column.name in seen.rows.schema.names[:-1]]
    names, arrays = seen.rows.schema.names, seen.rows.columns
    kept = [place for place, name in enumerate(names) if name != LABEL or place == len(names) - 1]
    kinds: dict[str, StoredType] = {"int64": "int64", "float": "float32"}
    label = Column(name=LABEL, type=kinds.get(str(seen.label.type), "bytes"), nullable=False)
    statistics = SplitStatistics.create([*(column for column in columns if column.name != LABEL), label])
    statistics.update(pa.RecordBatch.from_arrays([arrays[i] for i in kept], names=[names[i] for i in kept]))
    return statistics


def choose_columns(
    seen: TypedRows, statistics: SplitStatistics, label: Collection[str], facts: LabelFacts
) -> list[Choice]:
    """Returns a choice for each column of the schema, in its order. `label` names the columns that the label is made of."""
    names = [name for name in statistics.columns if name not in label and name != LABEL]
    useless = {
        column.name: why
        for column in seen.schema.columns
        if column.name in names and (why := _useless(column, seen, statistics.columns[column.name]))
    }
    others = [name for name in names if name not in useless]
    copies = {name: f"repeats column {first!r}" for name, first in repeated(statistics, others).items()}
    others = [name for name in others if name not in copies]
    telling = {  # with certainty, as nothing does that is known before the label
        leak.column: f"alone {leak.how}: is it known when a prediction is needed? If it is: auto"
        for leak in leaks(statistics, strengths(statistics, others, facts.kind), facts.kind)
    }
    left_out = len(telling) < len(others)  # else nothing is left to learn from
    choices = []
    for column in seen.schema.columns:
        name, kind = column.name, type_text(column)
        if name in label:
            choices.append(Choice(name, kind, "label", "the label is made of it"))
        elif name in useless:
            choices.append(Choice(name, kind, "left out", useless[name], "ignore", by_auto=True))
        elif name in copies:
            choices.append(Choice(name, kind, "left out", copies[name], "ignore"))
        elif name in telling:
            use: Use = "left out" if left_out else "feature"
            choices.append(Choice(name, kind, use, telling[name], "ignore" if left_out else None, warning=True))
        else:
            choices.append(_feature(column, seen, statistics))
    return choices


def _useless(column: Column, seen: TypedRows, own: ColumnStatistics) -> str | None:
    """Returns why a column can teach nothing, so that any run leaves it out; None if it may teach something."""
    if not own.present:
        return "holds nothing"
    if any(check_constant(own)):
        return "constant"
    names_rows = column.meaning == "identifier" and 2 * own.distinct > own.present  # in all rows, not in the first only
    is_text = column.type != "bytes" or _is_text(seen.values(column.name))
    if names_rows and is_text and _words(column, seen) is None:
        return f"identifier: {own.distinct:,} different values in {counted(own.present, 'row')}"
    return None


def _words(column: Column, seen: TypedRows) -> dict[str, Any] | None:
    """Returns the config by which a text column is read as a list of values or words; None if each text is one value."""
    if column.type != "bytes" or column.shape or column.name not in seen.rows.schema.names[:-1]:
        return None
    return list_config(seen.values(column.name))


def _feature(column: Column, seen: TypedRows, statistics: SplitStatistics) -> Choice:
    name, kind = column.name, type_text(column)
    if column.type != "bytes" or column.shape or name not in seen.rows.schema.names[:-1]:
        return Choice(name, kind, "feature", _reading(column.parse) if column.parse else "")
    if (size := image_size(seen.values(name))) is not None:
        height, width, channels = size
        config = {"image": {"height": height, "width": width, "channels": channels}}
        return Choice(name, "image", "feature", f"{height} x {width} pixels", config)
    if (listed := _words(column, seen)) is not None:
        what = "words" if listed["separator"] == " " else f"values between {listed['separator']!r}"
        return Choice(name, kind, "feature", f"a list of {what}", listed)
    own = statistics.columns[name]
    if not _is_text(seen.values(name)):
        why = "bytes that are neither text nor image files; if they are pixels: {image: {height: H, width: W, channels: C}}"
        return Choice(name, "bytes", "left out", why, "ignore", warning=True)
    if column.meaning is None and own.present >= _FEW_ROWS and own.distinct > own.present / 2:
        counts = pc.struct_field(pc.value_counts(seen.values(name).drop_null()), 1).to_numpy(zero_copy_only=False)
        if counts[counts > 2].sum() < _RECURRING * own.present:
            why = f"text that hardly recurs: {own.distinct:,} different values in {counted(own.present, 'row')}"
            return Choice(name, kind, "left out", why, "ignore")
    return Choice(name, kind, "feature")


def _is_text(values: pa.Array) -> bool:
    """Returns whether the values are UTF-8 text, unlike images and other bytes."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _reading(rule: Parse) -> str:
    """Returns the words for how a parse rule reads values, such as "seconds since 1970"; "" for others without a format."""
    if rule.is_epoch:
        return f"{rule.as_.removeprefix('epoch_')} since 1970"
    return f"of the form {rule.format}" if rule.format else ""
