"""Proposes an update of the schema file from a window's statistics; never writes the file itself.

    text = proposed(path.read_text(), [train, eval], where=str(path))
    print(difference(path.read_text(), text, "schema.pbtxt", "schema.proposed.pbtxt"))

A domain takes in the values that were seen, a range the numbers, and presence is no longer demanded of a column that has
nulls; a domain whose column holds long texts is dropped, and a column that is new in the source is added. Nothing else is
narrowed, and whatever else the file says of a feature stays; its comments do not.
"""

import difflib
from collections.abc import Sequence
from typing import Any

from headway.schema.columns import Column, Schema
from headway.schema.pbtxt import HEADER, from_text, to_text
from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.split_statistics import SplitStatistics

MOST_NEW = 1000
"""A text column with more values than this outside its domain has none: the domain is dropped."""


def proposed(text: str, splits: Sequence[SplitStatistics], *, where: str, new: Sequence[Column] = ()) -> str:
    """Returns the schema file's text, widened to hold `splits`, with the source's `new` columns at the end.

    Raises:
        ConfigError: `text` is not a schema.
    """
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    from_text(text, where=where)  # raises with the place and the fix
    message = text_format.Parse(text, schema_pb2.Schema())
    shared = {domain.name: domain for domain in message.string_domain}
    for feature in message.feature:
        for split in splits:
            column = split.columns.get(feature.name)
            if column is not None and column.rows:
                _widen(feature, column, shared)
    message.feature.extend(text_format.Parse(to_text(Schema(columns=tuple(new))), schema_pb2.Schema()).feature)
    return HEADER + text_format.MessageToString(message, as_utf8=True)


def _widen(feature: Any, column: ColumnStatistics, shared: dict[str, Any]) -> None:
    if column.missing and feature.presence.min_fraction > 0:
        feature.presence.min_fraction = min(feature.presence.min_fraction, column.present / column.rows)
    for field in ("int_domain", "float_domain"):
        if feature.HasField(field) and column.minimum is not None and column.maximum is not None:
            domain = getattr(feature, field)
            kind = int if field == "int_domain" else float
            if domain.HasField("min") and column.minimum < domain.min:
                domain.min = kind(column.minimum)
            if domain.HasField("max") and column.maximum > domain.max:
                domain.max = kind(column.maximum)
    if column.type != "bytes":
        return
    domain = feature.string_domain if feature.HasField("string_domain") else shared.get(feature.domain)
    if domain is None:
        return
    if not column.complete:  # long texts, which are not kept: no domain can name them
        feature.ClearField("string_domain" if feature.HasField("string_domain") else "domain")
        return
    words = set(domain.value)
    values = [_text(value) for value, _ in column.top(MOST_NEW + len(words) + 1)]
    new = sorted(value for value in values if value is not None and value not in words)
    if len(new) > MOST_NEW:
        feature.ClearField("string_domain" if feature.HasField("string_domain") else "domain")
    else:
        domain.value.extend(new)


def _text(value: bytes) -> str | None:
    """Returns the text of bytes; None if they are not UTF-8, which a domain cannot hold."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def difference(before: str, after: str, old: str, new: str) -> str:
    """Returns a unified diff; empty when nothing changes."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), old, new, lineterm="")
    return "\n".join(lines)
