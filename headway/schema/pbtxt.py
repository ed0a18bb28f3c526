"""The schema file of a pipeline: tensorflow_metadata's Schema as protobuf text, for TFDV and for people to edit.

path.write_text(to_text(schema))
schema = from_text(path.read_text(), where=str(path))

The columns by whose hash rows are split are tags of the file: `headway.split=FLOAT age`, `headway.split=BYTES[] genres`. The tag
`headway.split_by_place` says that a row's position in its span is hashed too.
"""

import json
import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

from pydantic import ValidationError

from headway.errors import ConfigError
from headway.schema.calendar_days import Temporal
from headway.schema.columns import Column, Meaning, Schema, Shape, StoredType
from headway.schema.parse_rules import Parse

_SPLIT_TAG, _PLACE_TAG = "headway.split=", "headway.split_by_place"
_KINDS: dict[StoredType, str] = {"int64": "INT", "float32": "FLOAT", "bytes": "BYTES"}
_STORED: dict[str, StoredType] = {word: kind for kind, word in _KINDS.items()}
_SPLIT_COMMENT = (
    "The split of a row is a hash of these columns (split.mode: hash without a key). Another list draws eval rows anew."
)

_PLACE_COMMENT = (
    "Few of the rows are distinct, so equal ones may be apart: a row's file and its number in it are hashed too."
)


def split_column(name: str, kind: StoredType, *, listed: bool) -> Column:
    """Returns a nullable column with this name and type, as the split hashes it. `listed` makes it a column of lists."""
    encoding: Literal["plain", "dictionary"] = "dictionary" if kind == "bytes" else "plain"
    return Column(name=name, type=kind, nullable=True, encoding=encoding, shape=(None,) if listed else ())


def to_tags(columns: Sequence[Column]) -> list[str]:
    """Returns the tags of a schema file for split columns: `headway.split=FLOAT age`, `headway.split=BYTES[] genres`."""
    return [f"{_SPLIT_TAG}{_KINDS[column.type]}{'[]' if column.shape else ''} {column.name}" for column in columns]


def from_tags(tags: Sequence[str], *, where: str) -> tuple[Column, ...]:
    """Returns the columns that the split tags among `tags` name; an empty tuple if there are no split tags.

    Raises:
        ConfigError: a split tag lacks a type or a name, or names a column a second time.
    """
    columns: dict[str, Column] = {}
    for tag in tags:
        if not tag.startswith(_SPLIT_TAG):
            continue
        kind, _, name = tag.removeprefix(_SPLIT_TAG).partition(" ")
        listed = kind.endswith("[]")
        if kind.removesuffix("[]") not in _STORED or not name or name in columns:
            raise ConfigError(
                f"the tag {tag!r} does not name a column with its type, once",
                where=where,
                fix=f"write it as {_SPLIT_TAG}FLOAT age, or delete all such tags to draw eval rows anew",
            )
        columns[name] = split_column(name, _STORED[kind.removesuffix("[]")], listed=listed)
    return tuple(columns.values())


HEADER = """# The frozen schema of this pipeline, in the text form of tensorflow_metadata.proto.v0.Schema.
# Edit it to widen a domain, bound a range, or demand presence (min_fraction: 1.0). Delete it to infer it anew.
"""
_TAG = "headway."


def to_text(schema: Schema) -> str:
    """Returns a schema as protobuf text, the content of a schema file."""
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    message = schema_pb2.Schema()
    required = set(schema.required)
    for column in schema.columns:
        feature = message.feature.add(name=column.name, type=schema_pb2.FeatureType.Value(_KINDS[column.type]))
        if column.is_list:
            feature.value_count.SetInParent()
        else:
            feature.shape.SetInParent()
            if column.length is not None:
                feature.shape.dim.add(size=column.length)
        feature.presence.min_fraction = 1.0 if column.name in required else 0.0
        feature.annotation.tag.extend(f"{_TAG}{key}={value}" for key, value in _tags(column).items())
        low, high = schema.ranges.get(column.name, (None, None))
        if low is not None or high is not None:
            domain = feature.int_domain if column.type == "int64" else feature.float_domain
            cast = int if column.type == "int64" else float
            # an infinite end of a range of integers bounds nothing, and int_domain has no way to say it
            if low is not None and (math.isfinite(low) or cast is float):
                domain.min = cast(low)
            if high is not None and (math.isfinite(high) or cast is float):
                domain.max = cast(high)
        if column.name in schema.domains:
            feature.string_domain.value.extend(schema.domains[column.name])
    _tag_split(message, schema.split, by_place=schema.split_by_place)
    return HEADER + text_format.MessageToString(message, as_utf8=True)


def _tag_split(message: Any, columns: Sequence[Column], *, by_place: bool) -> None:
    if columns:
        message.annotation.comment.append(_SPLIT_COMMENT)
        message.annotation.tag.extend(to_tags(columns))
        if by_place:
            message.annotation.comment.append(_PLACE_COMMENT)
            message.annotation.tag.append(_PLACE_TAG)


def with_split(text: str, columns: Sequence[Column], *, by_place: bool = False) -> str:
    """Add the columns that the split hashes to a schema file's text. Only a text that has an annotation is reformatted."""
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    message = text_format.Parse(text, schema_pb2.Schema())
    if message.HasField("annotation"):
        _tag_split(message, columns, by_place=by_place)
        return HEADER + text_format.MessageToString(message, as_utf8=True)
    added = schema_pb2.Schema()
    _tag_split(added, columns, by_place=by_place)
    return text.rstrip("\n") + "\n" + text_format.MessageToString(added, as_utf8=True)


def from_text(text: str, *, where: str) -> Schema:
    """Read the schema in `text`.

    Every column may be null in storage. `min_fraction: 1.0` makes a null an anomaly that validation reports. To keep rows with a
    null out of storage, write `nullable: false` for the column in the pipeline.

    Raises:
        ConfigError: the text is not a schema (the error names the line), or has a feature that Headway cannot store.
    """
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    try:
        message = text_format.Parse(text, schema_pb2.Schema())
    except text_format.ParseError as error:
        line = error.GetLine()
        at = f"{where}:{line}" if line else where
        reason = str(error).split(" : ", 1)[-1]
        raise ConfigError(
            f"not a schema: {reason}", where=at, fix="mend the line, or delete the file to infer it anew"
        ) from None
    columns: list[Column] = []
    names: set[str] = set()
    ranges: dict[str, tuple[float | None, float | None]] = {}
    domains: dict[str, tuple[str, ...]] = {}
    required: list[str] = []
    for feature in message.feature:
        name = feature.name
        if not name or "/" in name:
            raise _refused(where, name, ": a name may not be empty or hold '/'", "remove the feature")
        kind = _STORED.get(schema_pb2.FeatureType.Name(feature.type))
        if kind is None:
            raise _refused(where, name, " has no type that can be stored", "say type: INT, FLOAT or BYTES")
        if name in names:
            raise _refused(where, name, " stands twice", "remove one")
        names.add(name)
        columns.append(
            Column(
                name=name,
                type=kind,
                nullable=True,
                encoding="dictionary" if kind == "bytes" else "plain",
                shape=_shape(feature, where),
                **_tagged(feature, kind, where),
            )
        )
        if feature.presence.min_fraction >= 1.0:
            required.append(name)
        if bounds := _range(feature):
            if kind == "bytes":
                raise _refused(where, name, " is text and has a range of numbers", "remove it")
            _check_range(name, kind, bounds, where)
            ranges[name] = bounds
        if kind != "bytes" and (feature.HasField("string_domain") or feature.HasField("domain")):
            raise _refused(where, name, " is a number and has a domain of texts", "remove it")
        if feature.HasField("string_domain"):
            domains[name] = tuple(feature.string_domain.value)
        elif feature.HasField("domain"):
            listed = [d for d in message.string_domain if d.name == feature.domain]
            if not listed:
                raise _refused(where, name, f" names the domain {feature.domain!r}, which does not exist")
            domains[name] = tuple(listed[0].value)
    split = from_tags(message.annotation.tag, where=where)
    return Schema(
        columns=tuple(columns),
        ranges=ranges,
        domains=domains,
        required=tuple(required),
        split=split,
        split_by_place=_PLACE_TAG in message.annotation.tag,
    )


def _refused(where: str, feature: str, problem: str, fix: str | None = None) -> ConfigError:
    return ConfigError(f"feature {feature!r}{problem}", where=where, fix=fix)


def _tags(column: Column) -> dict[str, str]:
    """Returns tags for those settings of a column that the proto has no field for."""
    parse = json.dumps(column.parse.model_dump(mode="json"), ensure_ascii=False) if column.parse else None
    null = None if column.null is None else json.dumps(column.null, ensure_ascii=False)
    tags = {"parse": parse, "null": null, "temporal": column.temporal, "meaning": column.meaning, "since": column.since}
    return {key: value for key, value in tags.items() if value is not None}


def _tagged(feature: Any, kind: StoredType, where: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for tag in feature.annotation.tag:
        if not tag.startswith(_TAG):
            continue
        key, _, value = tag.removeprefix(_TAG).partition("=")
        try:
            settings[key] = Parse.model_validate(json.loads(value)) if key == "parse" else value
            if key == "null":
                settings[key] = tuple(json.loads(value))
                if not all(isinstance(word, str) for word in settings[key]):
                    raise ValueError("it is a list of texts")
            allowed = {"temporal": get_args(Temporal), "meaning": get_args(Meaning)}
            if key not in ("parse", "null", "since") and value not in allowed.get(key, ()):
                listed = ", ".join(allowed.get(key, ()))
                raise ValueError(f"{key} is one of {listed}" if listed else f"{key!r} is not a tag")
            if key == "parse" and kind == "bytes":
                raise ValueError("parse does not go with the type of text")
            if key == "temporal" and kind != "int64":
                raise ValueError("its type is not INT")
        except ValueError as error:
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            problem = f": the tag {tag!r} cannot be read: {reason}"
            raise _refused(where, feature.name, problem, "mend or remove the tag") from None
    return settings


def _shape(feature: Any, where: str) -> Shape:
    """Returns the shape of a feature: a list if it has value_count, a vector if `shape` has a dimension, else a scalar."""
    if feature.HasField("value_count"):
        return (None,)
    sizes = [dim.size for dim in feature.shape.dim]
    if len(sizes) > 1 or any(size < 1 for size in sizes):
        raise _refused(where, feature.name, f" has the shape {sizes}", "give it one dimension of at least 1, or none")
    return (sizes[0],) if sizes else ()


def _check_range(name: str, kind: StoredType, bounds: tuple[float | None, float | None], where: str) -> None:
    """Raise ConfigError if a column's range is empty, has an end that bounds nothing, or does not suit the column's type."""
    for end, value in zip(("min", "max"), bounds, strict=True):
        if value is None:
            continue
        if math.isnan(value) or value == (math.inf if end == "min" else -math.inf):
            problem = f": {end} of its domain is {value}, which bounds nothing"
            raise _refused(where, name, problem, f"give {end} a number, or remove it")
        if kind == "int64" and math.isfinite(value) and not (value == int(value) and -(2**63) <= value < 2**63):
            problem = f" is INT, and {end} of its float_domain is {value!r}, which is not a 64-bit integer"
            fix = f"use an int_domain with a whole number for {end}, or say type: FLOAT"
            raise _refused(where, name, problem, fix)
    low, high = bounds
    if low is not None and high is not None and low > high:
        raise _refused(where, name, f": its domain begins at {low} and ends at {high}", "swap min and max")


def _range(feature: Any) -> tuple[float | None, float | None] | None:
    for field in ("int_domain", "float_domain"):
        if feature.HasField(field):
            domain = getattr(feature, field)
            low, high = (getattr(domain, end) if domain.HasField(end) else None for end in ("min", "max"))
            return low, high
    return None
