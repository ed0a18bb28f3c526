"""TFX's schema.pbtxt as a schema of Headway, with what of it belongs into pipeline.yaml.

imported = read_schema("schema.pbtxt")
imported.schema, imported.label, imported.validation, imported.remarks
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.errors import ConfigError, DataError
from headway.from_tfx.values import Remark
from headway.schema.columns import Schema
from headway.schema.pbtxt import from_text
from headway.storage import filesystem as storage

_SERVING = "SERVING"
_GONE = ("DEPRECATED", "DISABLED", "PLANNED", "ALPHA", "DEBUG_ONLY", "VALIDATION_DERIVED")
_READ = frozenset(
    {"name", "deprecated", "type", "presence", "value_count", "shape", "annotation", "lifecycle_stage", "int_domain",
     "float_domain", "string_domain", "bool_domain", "domain", "distribution_constraints", "in_environment",
     "not_in_environment", "skew_comparator", "drift_comparator"}
)  # fmt: skip
_READ_OF_ALL = frozenset(
    {"feature", "sparse_feature", "string_domain", "default_environment", "dataset_constraints", "annotation"}
)
_FIXES = {
    "time_domain": "say parse: or temporal: in columns",
    "tensor_representation_group": "max_length and pool say what the model sees of a list",
    "struct_domain": "write its fields as columns of their own",
    "unique_constraints": "split.unique names columns that are keys",
    "image_domain": "say {image: {height: 96, width: 96}} in columns",
    "natural_language_domain": "say {shape: list, separator: ' '} in columns",
}


@dataclass
class ImportedSchema:
    schema: Schema = field(default_factory=lambda: Schema(columns=()))
    sparse: set[str] = field(default_factory=set)
    """The columns that TFX gives as SparseTensors."""
    label: str | None = None
    """The one column that is not in the environment SERVING."""
    ignored: dict[str, str] = field(default_factory=dict)
    """Columns that are not to be learned from, and why."""
    categories: list[str] = field(default_factory=list)
    """Integers whose domain says that they name things."""
    rename: dict[str, str] = field(default_factory=dict)
    validation: dict[str, Any] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)


def read_schema(path: str) -> ImportedSchema:
    """Read a schema in tensorflow_metadata's text format.

    Raises:
        ConfigError: the file holds no feature.
        DataError: it is not there, or is not such a schema, naming the line.
    """
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    with storage.reading(path):
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    done = ImportedSchema()
    for lenient in (False, True):
        try:
            message = text_format.Parse(text, schema_pb2.Schema(), allow_unknown_field=lenient)
            break
        except text_format.ParseError as error:
            reason, line = str(error).split(" : ", 1)[-1], error.GetLine() or 1
            if lenient:
                fix = "name its schema.pbtxt"
                raise DataError(f"not a schema of TFX: {reason}", where=f"{path}:{line}", fix=fix) from None
            done.remarks.append(Remark(path, line, f"{reason}; such fields are passed over"))
    if not message.feature:
        raise ConfigError("the schema names no feature", where=path, fix="name the schema.pbtxt of SchemaGen")
    lines = text.splitlines()

    def remark(name: str, said: str, problem: str, fix: str = "") -> None:
        """A remark at the first line that says something, from the one that has the name on."""
        named = re.compile(rf"\bname\s*:\s*[\"']{re.escape(name)}[\"']")
        first = next((at for at, line in enumerate(lines) if named.search(line)), 0)
        found = (at for at, line in enumerate(lines[first:], first + 1) if re.search(rf"\b{said}\b", line))
        done.remarks.append(Remark(path, next(found, first + 1), problem, fix))

    kept = schema_pb2.Schema(string_domain=message.string_domain)
    for feature in message.feature:
        given = feature.name
        for said, problem, fix in _take(feature, done, kept):
            remark(given, said, f"feature {given!r}: {problem}", fix)
    unserved = []
    for feature in kept.feature:
        if _SERVING in feature.not_in_environment or _SERVING not in (feature.in_environment or [_SERVING]):
            unserved.append(feature.name)
    done.schema = from_text(text_format.MessageToString(kept, as_utf8=True), where=path)
    if len(unserved) == 1:
        done.label = unserved[0]
    else:
        done.ignored = dict.fromkeys(unserved, f"not in the environment {_SERVING}") | done.ignored
    for feature in message.sparse_feature:
        parts = [*(index.name for index in feature.index_feature), feature.value_feature.name]
        for part in parts:
            done.ignored.setdefault(part, f"a part of the sparse_feature {feature.name!r}")
        problem = f"sparse_feature {feature.name!r} is not put together from {', '.join(parts)}"
        remark(feature.name, "name", problem, "write the values as one list per row in the data")
    if message.dataset_constraints.min_examples_count:
        done.validation["min_train_rows"] = message.dataset_constraints.min_examples_count
    for said in sorted({field_.name for field_, _ in message.ListFields()} - _READ_OF_ALL):
        remark("", said, f"{said} has no counterpart", _FIXES.get(said, ""))
    return done


def _take(feature: Any, done: ImportedSchema, kept: Any) -> Iterator[tuple[str, str, str]]:
    """Make a feature one of Headway's schema, and keep it if it can be a column; what is not the same: field, problem, fix."""
    from tensorflow_metadata.proto.v0 import schema_pb2

    kind = schema_pb2.FeatureType.Name(feature.type)
    if kind not in ("INT", "FLOAT", "BYTES") or not feature.name:
        problem = "it has no name, or no type that is stored: INT, FLOAT or BYTES"
        yield "type", problem, "write its fields as columns"
        return
    for said, _ in feature.ListFields():
        if said.name not in _READ:
            yield said.name, f"{said.name} has no counterpart", _FIXES.get(said.name, "")
    sizes = [dim.size for dim in feature.shape.dim if dim.size != 1]
    if len(sizes) > 1 or any(size < 1 for size in sizes):
        yield "shape", f"a shape of {sizes} is not read", "store it as one dimension"
        return
    given, feature.name = feature.name, feature.name.replace("/", "_per_")
    if given != feature.name:
        done.rename[given] = feature.name
        yield "name", f"'/' cannot stand in a name: it is called {feature.name!r} (source.rename)", ""
    is_sparse, low, high = not feature.HasField("shape"), feature.value_count.min, feature.value_count.max
    if is_sparse:
        done.sparse.add(feature.name)
        sizes = [low] if low == high > 1 else []
    if not (is_sparse and feature.HasField("value_count")) or high == 1 or sizes:  # else it is a list
        feature.shape.Clear()
        for size in sizes:
            feature.shape.dim.add(size=size)
    stage = schema_pb2.LifecycleStage.Name(feature.lifecycle_stage)
    if feature.deprecated or stage in _GONE:
        done.ignored[feature.name] = "deprecated" if feature.deprecated else f"lifecycle_stage: {stage}"
    limits: dict[str, Any] = {}
    if 0 < feature.presence.min_fraction < 1:
        limits["max_missing"] = round(1 - feature.presence.min_fraction, 9)
    if feature.presence.min_count > 1:
        yield "min_count", f"that it is in {feature.presence.min_count:,} rows is not checked", "min_fraction is"
    feature.presence.min_fraction = float(feature.presence.min_fraction > 0)
    refused = {"nan": feature.float_domain.disallow_nan, "infinite": feature.float_domain.disallow_inf}
    if severity := {key: "error" for key, is_refused in refused.items() if is_refused}:
        limits["severity"] = severity
    if feature.HasField("distribution_constraints"):
        limits["max_unseen"] = round(1 - feature.distribution_constraints.min_domain_mass, 9)
    measured = "infinity_norm" if kind == "BYTES" else "jensen_shannon_divergence"
    bounds = set[float]()
    for comparator in ("skew_comparator", "drift_comparator"):
        for said, bound in getattr(feature, comparator).ListFields():
            if said.name == measured:
                bounds.add(bound.threshold)
            else:
                yield comparator, f"{said.name} of such values is not measured", f"{measured} is (validation.columns)"
    if len(bounds) > 1:
        yield "drift_comparator", "drift and skew have one bound here: the less of the two is kept", ""
    if bounds:
        limits["drift"] = {"l_infinity" if kind == "BYTES" else "jensen_shannon": min(bounds)}
    if limits:
        done.validation.setdefault("columns", {})[feature.name] = limits
    if feature.int_domain.is_categorical and kind != "BYTES":
        done.categories.append(feature.name)
    yield from _domain(feature, kind, {domain.name for domain in kept.string_domain})
    del feature.annotation.tag[:]
    kept.feature.append(feature)


def _domain(feature: Any, kind: str, shared: set[str]) -> Iterator[tuple[str, str, str]]:
    """Make a domain one of Headway's: a range of numbers, or texts."""
    which = feature.WhichOneof("domain_info")
    flags = (feature.bool_domain.true_value or "true", feature.bool_domain.false_value or "false")
    if which == "bool_domain" and kind == "BYTES":
        feature.string_domain.value.extend(flags)
    elif which == "bool_domain" and kind == "INT":
        feature.int_domain.min, feature.int_domain.max = 0, 1
    elif which == "domain" and feature.domain not in shared:
        yield "domain", f"there is no domain {feature.domain!r}", ""
        feature.ClearField(which)
    elif which and which not in (("string_domain", "domain") if kind == "BYTES" else ("int_domain", "float_domain")):
        if which == "int_domain":
            yield "int_domain", "text of integers is not bounded", "say type: int in columns"
        feature.ClearField(which)
