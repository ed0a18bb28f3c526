"""The unit that no split may tear apart: by its name, such as patient_id, else by what the data show of it.

key = choose_key(seen, facts, choices)
key.column, key.text                         # "mrn", "by mrn: 1,500 of them ..."; None: there is no unit
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headway.first_pipeline.column_choices import Choice
from headway.first_pipeline.label_choice import LabelFacts
from headway.first_pipeline.look import Seen
from headway.messages import counted
from headway.schema.columns import LABEL
from headway.schema_inference.identifiers import words_of
from headway.validation.units import Unit, find_unit

_LEAST_ENTITIES, _ROWS_OF_AN_ENTITY = 50, 2.0
_ENTITIES = frozenset(
    {"user", "customer", "client", "member", "patient", "subject", "person", "passenger", "household", "account", "driver",
     "student", "employee", "visitor", "device", "session", "participant", "respondent", "individual", "cust", "player", "donor"}
)  # fmt: skip


@dataclass(frozen=True)
class Key:
    """What `split.key` says, and why."""

    column: str | None
    """None: there is only a column that a person should look at."""
    text: str
    choices: dict[str, Choice]
    """Choices of columns that it changes."""


def choose_key(seen: Seen, facts: LabelFacts, choices: Sequence[Choice]) -> Key | None:
    """The unit by name, else the one that the data show beyond doubt. One that may be a category too becomes a doubt."""
    free = {choice.column: choice for choice in choices if choice.use in ("feature", "left out")}
    if (entity := _entity(seen, {*free})) is not None:
        values = seen.values(entity)
        why = f"{len(pc.unique(values)):,} of them, in {counted(len(values), 'row')}: none is in two splits"
        return Key(entity, f"by {entity}: {why}", {entity: Choice(entity, free[entity].type, "key", why)})
    unit = _unit(seen, facts, free)
    if unit is None:
        return None
    if not unit.sure:
        name = unit.column
        if free[name].warning:
            return None
        why = f"may name what several rows belong to: {unit.why}. If new rows will be of others: split: {{key: {name}}}"
        return Key(None, "", {name: replace(free[name], why=why, warning=True)})
    why = f"{unit.units:,} of them, in {counted(unit.rows, 'row')}: {unit.why}, so none is in two splits"
    return Key(unit.column, f"by {unit.column}: {why}", {unit.column: _keyed(free[unit.column], seen)})


def _unit(seen: Seen, facts: LabelFacts, free: dict[str, Choice]) -> Unit | None:
    columns = {column.name: column for column in seen.schema.columns}
    names = [name for name in seen.rows.schema.names[:-1] if name in free and not columns[name].temporal]
    batch = pa.RecordBatch.from_arrays([*map(seen.values, names), seen.label], names=[*names, LABEL])
    return find_unit(batch, names, facts.kind)


def _keyed(choice: Choice, seen: Seen) -> Choice:
    """A code is the key and nothing else; a measure is learned from besides."""
    values = seen.values(choice.column)
    whole = not pa.types.is_floating(values.type) or pc.all(pc.equal(values, pc.floor(values))).as_py()
    if choice.use == "left out" or whole:
        return Choice(choice.column, choice.type, "key", "names what several rows belong to, which stay together")
    config: dict[str, Any] = {"role": ["key", "feature"]}
    if isinstance(choice.config, dict):
        config |= choice.config
    elif choice.config is not None:
        config["transform"] = choice.config
    return replace(choice, why="the split's key too", config=config)


def _entity(seen: Seen, names: set[str]) -> str | None:
    """The column that names whose row it is, where most of them have several rows."""
    best: tuple[int, str] | None = None
    for column in seen.schema.columns:
        words = words_of(column.name)
        if column.name not in names or column.shape or column.name not in seen.rows.schema.names[:-1]:
            continue
        if not any(word in _ENTITIES or word.removesuffix("id") in _ENTITIES for word in words):
            continue
        if len(words) > 1 and not {*words} & {"id", "no", "number", "code", "key", "name"} and words[-1][-2:] != "id":
            continue
        values = seen.values(column.name)
        different = len(pc.unique(values))
        if different < _LEAST_ENTITIES or len(values) < _ROWS_OF_AN_ENTITY * different or values.null_count:
            continue
        if column.type == "float32" and not pc.all(pc.equal(values, pc.floor(values))).as_py():
            continue  # no number of a person, as data frames write it beside missing ones
        if best is None or different > best[0]:
            best = different, column.name
    return best[1] if best else None
