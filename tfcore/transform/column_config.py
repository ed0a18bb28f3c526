"""The settings of one column, as `columns:` of pipeline.yaml gives them, and their effect on it. Imports no TensorFlow.

load(ColumnConfig, spelled_out({"carrier": "vocabulary"})["carrier"], where="columns")
apply_config(column, config, role="feature")
"""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, Self

from pydantic import model_validator

from headway.errors import ConfigError
from headway.schema import columns
from headway.schema.columns import LABEL, STORED, Column, Role, column_yaml
from headway.schema.notes import Note
from tfcore.transform.config import OPS, ColumnTransform

STORED_ROLES = frozenset({"feature", "weight", "group", "passthrough"})
_WITH_FEATURE = frozenset({"weight", "group", "key", "time"})
"""The roles that do not keep a column from being a feature: with a transform, such a column is also a feature."""


class ColumnConfig(ColumnTransform, columns.ColumnConfig):
    """One column: its type, role and nullability, and its transform and other settings of the model's inputs."""

    def column_transform(self) -> ColumnTransform:
        """Returns only the settings that configure the model's inputs."""
        return ColumnTransform(**{key: getattr(self, key) for key in ColumnTransform.model_fields})

    @model_validator(mode="after")
    def _transforms_features(self) -> Self:
        settings = [
            name for name, field in ColumnTransform.model_fields.items() if getattr(self, name) != field.default
        ]
        learned = self.role == "feature" or self.feature or (self.role in _WITH_FEATURE and self.transform != "auto")
        if settings and (not learned or self.feature is False):
            role = (
                f"a column with the role {self.role} is" if self.feature is None else "with feature: false a column is"
            )
            raise ValueError(f"{role} not a feature, and its {settings[0]} would do nothing: leave out one of them")
        return self


def spelled_out(value: Any) -> Any:
    """Expand the short forms of `columns:` to full settings: `carrier: vocabulary`, `delay: [clip, standardize]`, `fare: ignore`.
    A bare name means auto. A value of another form is returned as it is."""
    if isinstance(value, list):
        value = dict.fromkeys(value)
    return {name: _column(entry) for name, entry in value.items()} if isinstance(value, dict) else value


def apply_config(column: Column, config: ColumnConfig | None, role: Role) -> Column:
    """Returns the inferred `column` with `role` and the settings of `config`; with `role` alone if `config` is None."""
    config = config or ColumnConfig()
    changes: dict[str, object] = {"role": role}
    if config.feature or (role in _WITH_FEATURE and config.transform != "auto"):
        changes["feature"] = role != "feature"
    own = {"nullable": config.nullable, "shape": config.stored_shape(), "separator": config.separator}
    changes |= {name: value for name, value in own.items() if value is not None}
    if config.type is not None and STORED[config.type] != column.type:
        kind = STORED[config.type]
        changes |= {"type": kind, "encoding": "dictionary" if kind == "bytes" else "plain"}
        changes |= {"parse": None, "temporal": None} if kind == "bytes" else {}
    if config.parse is not None and config.parse.as_ == "text":
        encoding = column.encoding if column.type == "bytes" else "dictionary"
        changes |= {"type": "bytes", "encoding": encoding, "parse": None, "temporal": None, "null": config.parse.null}
    elif config.parse is not None:
        temporal = config.parse.temporal
        kind = "int64" if temporal else STORED[config.type] if config.type else column.type
        kind = "float32" if kind == "bytes" else kind
        changes |= {"parse": config.parse, "temporal": temporal, "type": kind, "encoding": "plain"}
    return Column.model_validate(column.model_dump() | changes)


def is_stored(column: Column) -> bool:
    """Returns whether the records of the shards hold the column."""
    return column.role in STORED_ROLES or column.feature


def check_columns(read: Sequence[Column], *, where: str, notes: Sequence[Note], only_named: bool) -> None:
    """Raise ConfigError if two columns share a role for one, one has the label's name or a wrong role, or none is a feature.

    Args:
        notes: why columns were left out; quoted in the error that no feature is left.
        only_named: whether the config takes only the columns that it names.
    """
    for role in ("weight", "group", "time"):
        named = [column.name for column in read if column.role == role]
        if len(named) > 1:
            raise ConfigError(
                f"{' and '.join(named)} both have the role {role}", where=where, fix="only one column can"
            )
    for column in read:
        if column.shape and column.role not in ("feature", "passthrough", "ignore"):
            raise ConfigError(
                f"column {column.name!r} holds {'lists' if column.is_list else 'vectors'}, and a {column.role} is one value",
                where=where,
            )
        if column.role == "weight" and column.type == "bytes":
            raise ConfigError(f"the weight column {column.name!r} holds text", where=where)
        if column.name == LABEL and column.role in STORED_ROLES:
            ignored = column_yaml(column.name, "ignore", auto=not only_named)
            raise ConfigError(
                f"a column is called {column.name!r}, the name that the label is stored under",
                where=where,
                fix=f"leave it out: {ignored}; or rename it in the source",
            )
    if not any(column.is_feature for column in read):
        raise ConfigError(
            "; ".join(["there is no feature column", *map(str, notes)]),
            where=where,
            fix="list the columns to learn from; '\"*\": auto' among them takes all others too"
            if only_named
            else "bring columns of numbers, texts, or lists of them, beside the label and the keys",
        )


_ROLES = ("key", "time", "group", "weight", "passthrough", "ignore")


def _column(entry: Any) -> Any:
    if entry is None:
        return {}
    if isinstance(entry, str) and (entry in _ROLES or _nearly(entry, _ROLES)):
        return {"role": entry}
    if isinstance(entry, dict) and (
        not entry
        or set(entry) & set(ColumnConfig.model_fields)
        or any(_nearly(k, ColumnConfig.model_fields) for k in entry)
    ):
        return entry
    return {"transform": entry} if isinstance(entry, str | list | dict) else entry


def _nearly(word: Any, words: Iterable[str]) -> bool:
    """Returns whether a misspelled word is closer to one of `words` than to the name of an operation, so that an error names what
    was likely meant."""
    if not isinstance(word, str) or word in ("auto", *OPS):
        return False
    close = difflib.get_close_matches(word, [*words, *OPS], 1, 0.7)
    return bool(close) and close[0] not in OPS
