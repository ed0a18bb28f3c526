"""TFX's schema.pbtxt as a schema of Headway, with what of it belongs into pipeline.yaml.

imported = read_schema("schema.pbtxt")
imported.schema, imported.label, imported.validation, imported.remarks
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.errors import ConfigError, DataError
from headway.from_tfx.remarks import Remark, names_of
from headway.schema.calendar_days import Temporal
from headway.schema.columns import Column, Schema, Shape, StoredType
from headway.schema.parse_rules import Parse

_SERVING = "SERVING"
_GONE = ("DEPRECATED", "DISABLED", "PLANNED", "ALPHA", "DEBUG_ONLY", "VALIDATION_DERIVED")
_READ = names_of(
    "name deprecated type presence value_count shape annotation lifecycle_stage int_domain float_domain string_domain "
    "bool_domain domain time_domain distribution_constraints in_environment not_in_environment skew_comparator "
    "drift_comparator"
)
_TIMES: dict[str, Temporal] = {
    "UNIX_DAYS": "date",
    "UNIX_SECONDS": "epoch_seconds",
    "UNIX_MILLISECONDS": "epoch_milliseconds",
    "UNIX_MICROSECONDS": "timestamp",
    "UNIX_NANOSECONDS": "epoch_nanoseconds",
}
_WHY = {
    "struct_domain": ("a nested structure is not read", "write its fields as columns of their own"),
    "unique_constraints": ("a number of distinct values is not checked", "split.unique names columns that are keys"),
    "group_presence": ("presence within a group is not checked", "min_fraction of presence is"),
    "image_domain": ("an image needs the size that the model sees", "{image: {height: 96, width: 96}} in columns"),
    "natural_language_domain": ("text is a category, or a list of words", "{shape: list, separator: ' '} in columns"),
}


@dataclass
class ImportedSchema:
    schema: Schema
    sparse: frozenset[str] = frozenset()
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
        ConfigError: the file is not there, or holds no feature.
        DataError: it is not such a schema, naming the line.
    """
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError("there is no such file", where=path, fix="name a file of this machine") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"it cannot be read as text: {error}", where=path) from None
    remarks = []
    try:
        message = text_format.Parse(text, schema_pb2.Schema())
    except text_format.ParseError as error:
        try:
            message = text_format.Parse(text, schema_pb2.Schema(), allow_unknown_field=True)
        except text_format.ParseError as broken:
            at = f"{path}:{broken.GetLine()}" if broken.GetLine() else path
            reason = str(broken).split(" : ", 1)[-1]
            raise DataError(f"not a schema of TFX: {reason}", where=at, fix="name its schema.pbtxt") from None
        reason = str(error).split(" : ", 1)[-1]
        remarks.append(Remark(path, error.GetLine() or 0, f"{reason}; such fields are passed over"))
    if not message.feature:
        raise ConfigError("the schema names no feature", where=path, fix="name the schema.pbtxt of SchemaGen")
    return _Import(path, text, message, remarks).done()


class _Import:
    def __init__(self, path: str, text: str, message: Any, remarks: list[Remark]):
        self._path, self._message = path, message
        self._blocks = list(_blocks(text))
        self._of_kind = {kind: [b for b in self._blocks if b[0] == kind] for kind in {b[0] for b in self._blocks}}
        self._columns: list[Column] = []
        self._ranges: dict[str, tuple[float | None, float | None]] = {}
        self._domains: dict[str, tuple[str, ...]] = {}
        self._required: list[str] = []
        self._sparse: set[str] = set()
        self._result = ImportedSchema(Schema(columns=()), remarks=remarks)

    def done(self) -> ImportedSchema:
        result = self._result
        unserved = []
        for place, feature in enumerate(self._message.feature):
            if self._feature(place, feature) and not _served(feature, self._message):
                unserved.append(feature.name)
        for kind in ("sparse_feature", "weighted_feature"):
            for place, feature in enumerate(getattr(self._message, kind)):
                self._joined(kind, place, feature)
        for kind in ("tensor_representation_group", "represent_variable_length_as_dense"):
            if kind in {field_.name for field_, _ in self._message.ListFields()}:
                fix = "a list stays one; max_length and pool say what the model sees of it"
                self._remark(kind, 0, "", f"{kind}: how tensors are made of features is not kept", fix)
        constraints = self._message.dataset_constraints
        if constraints.min_examples_count > 0:
            result.validation["min_train_rows"] = constraints.min_examples_count
        for field_, _ in constraints.ListFields():
            if field_.name != "min_examples_count":
                self._remark("dataset_constraints", 0, field_.name, f"{field_.name} of the data set is not checked")
        if len(unserved) == 1:
            result.label = unserved[0]
        elif unserved:
            for name in unserved:
                result.ignored.setdefault(name, "not in the environment SERVING")
        result.schema = Schema(
            columns=tuple(self._columns), ranges=self._ranges, domains=self._domains, required=tuple(self._required)
        )
        result.sparse = frozenset(self._sparse)
        return result

    def _remark(self, kind: str, place: int, field_name: str, problem: str, fix: str = "") -> None:
        blocks = self._of_kind.get(kind, [])
        line = 0
        if place < len(blocks):
            _, first, lines = blocks[place]
            found = (i for i, text in enumerate(lines) if field_name and re.search(rf"\b{field_name}\b", text))
            line = first + next(found, 0)
        self._result.remarks.append(Remark(self._path, line, problem, fix))

    def _feature(self, place: int, feature: Any) -> bool:
        """Take a feature over; whether it is a column now."""
        from tensorflow_metadata.proto.v0 import schema_pb2

        kinds: dict[int, StoredType] = {schema_pb2.INT: "int64", schema_pb2.FLOAT: "float32", schema_pb2.BYTES: "bytes"}
        name = feature.name

        def remark(field_name: str, problem: str, fix: str = "") -> None:
            self._remark("feature", place, field_name, f"feature {feature.name!r}: {problem}", fix)

        if feature.type not in kinds:
            remark("type", "it has no type that is stored: INT, FLOAT or BYTES", "write its fields as columns")
            return False
        if not name:
            remark("name", "it has no name")
            return False
        if "/" in name:
            new = name.replace("/", "_per_")
            self._result.rename[name] = new
            remark("name", f"'/' cannot stand in a name: it is called {new!r} (source.rename)")
            name = new
        kind = kinds[feature.type]
        shape = self._shape(feature, name, remark)
        if shape is None:
            return False
        temporal = self._time(feature, kind, remark)
        encoding: Any = "dictionary" if kind == "bytes" else "plain"
        column = Column(name=name, type=kind, nullable=True, encoding=encoding, shape=shape)
        self._columns.append(column.model_copy(update=temporal))
        stage = schema_pb2.LifecycleStage.Name(feature.lifecycle_stage)
        if feature.deprecated or stage in _GONE:
            said = "deprecated" if feature.deprecated else f"lifecycle_stage: {stage}"
            self._result.ignored[name] = said
        self._presence(feature, name, remark)
        self._values(feature, name, kind, remark)
        self._limits(feature, name, kind, remark)
        for field_, _ in feature.ListFields():
            if field_.name not in _READ:
                problem, fix = _WHY.get(field_.name, (f"{field_.name} has no counterpart", ""))
                remark(field_.name, problem, fix)
        return True

    def _shape(self, feature: Any, name: str, remark: Any) -> Shape | None:
        if feature.HasField("shape"):
            sizes = [dim.size for dim in feature.shape.dim]
            if (len(sizes) > 1 and sum(size != 1 for size in sizes) > 1) or any(size < 1 for size in sizes):
                remark("shape", f"a shape of {sizes} is not read", "store it as one dimension")
                return None
            length = max(sizes, default=1)
            return () if length == 1 else (length,)
        self._sparse.add(name)
        if not feature.HasField("value_count"):
            return ()
        low, high = feature.value_count.min, feature.value_count.max
        if (low, high) in ((0, 1), (1, 1)):
            return ()
        return (low,) if low == high and low > 1 else (None,)

    def _time(self, feature: Any, kind: StoredType, remark: Any) -> dict[str, Any]:
        if not feature.HasField("time_domain"):
            return {}
        domain = feature.time_domain
        if domain.HasField("string_format") and kind == "bytes":
            try:
                rule = Parse.model_validate(domain.string_format)
            except ValueError as error:
                remark(
                    "time_domain",
                    f"times of the form {domain.string_format!r} are not read: {error}",
                    "parse: in columns",
                )
                return {}
            return {"parse": rule, "type": "int64", "temporal": rule.temporal, "encoding": "plain"}
        form = type(domain).IntegerTimeFormat.Name(domain.integer_format) if domain.HasField("integer_format") else ""
        temporal = _TIMES.get(form)
        if temporal is None or kind != "int64":
            remark(
                "time_domain",
                f"times as {form or 'such text'} stay numbers",
                f"{', '.join(_TIMES)} are times here",
            )
            return {}
        return {"temporal": temporal}

    def _presence(self, feature: Any, name: str, remark: Any) -> None:
        fraction = feature.presence.min_fraction
        if fraction > 0:
            self._required.append(name)
        if 0 < fraction < 1:
            self._column_limits(name)["max_missing"] = round(1 - fraction, 9)
        if feature.presence.min_count > 1:
            remark("min_count", f"that it is in {feature.presence.min_count:,} rows is not checked", "min_fraction is")

    def _values(self, feature: Any, name: str, kind: StoredType, remark: Any) -> None:
        which = feature.WhichOneof("domain_info")
        if which in ("int_domain", "float_domain") and kind != "bytes":
            domain = getattr(feature, which)
            low, high = (float(getattr(domain, end)) if domain.HasField(end) else None for end in ("min", "max"))
            if low is not None or high is not None:
                self._ranges[name] = low, high
            if which == "int_domain" and domain.is_categorical:
                self._result.categories.append(name)
            if which == "float_domain" and (domain.disallow_nan or domain.disallow_inf):
                kinds = {"nan": domain.disallow_nan, "infinite": domain.disallow_inf}
                self._column_limits(name)["severity"] = {key: "error" for key, refused in kinds.items() if refused}
        elif which == "int_domain":
            remark("int_domain", "text of integers is not bounded", "say type: int in columns")
        elif which == "string_domain" and kind == "bytes":
            self._domains[name] = tuple(feature.string_domain.value)
        elif which == "domain" and kind == "bytes":
            found = [domain for domain in self._message.string_domain if domain.name == feature.domain]
            if found:
                self._domains[name] = tuple(found[0].value)
            else:
                remark("domain", f"there is no domain {feature.domain!r}")
        elif which == "bool_domain":
            domain = feature.bool_domain
            if kind == "bytes":
                self._domains[name] = (domain.true_value or "true", domain.false_value or "false")
            elif kind == "int64":
                self._ranges[name] = 0.0, 1.0
        mass = feature.distribution_constraints.min_domain_mass
        if feature.HasField("distribution_constraints"):
            self._column_limits(name)["max_unseen"] = round(1 - mass, 9)

    def _limits(self, feature: Any, name: str, kind: StoredType, remark: Any) -> None:
        """The bounds of skew and drift: there is one pair of them here."""
        for comparator in ("skew_comparator", "drift_comparator"):
            if not feature.HasField(comparator):
                continue
            bounds = getattr(feature, comparator)
            for measure, own, fits in (
                ("infinity_norm", "l_infinity", kind == "bytes"),
                ("jensen_shannon_divergence", "jensen_shannon", kind != "bytes"),
            ):
                if not bounds.HasField(measure):
                    continue
                limit = getattr(bounds, measure).threshold
                if not fits:
                    other = "L-infinity" if kind == "bytes" else "the Jensen-Shannon divergence"
                    remark(comparator, f"{measure} of such values is not measured", f"{other} is (validation.columns)")
                    continue
                drift = self._column_limits(name).setdefault("drift", {})
                if drift.get(own, limit) != limit:
                    remark(comparator, "drift and skew have one bound here: the less of the two is kept")
                drift[own] = min(drift.get(own, limit), limit)
            if bounds.HasField("normalized_abs_difference"):
                remark("normalized_abs_difference", "a change of counts is not compared")

    def _column_limits(self, name: str) -> dict[str, Any]:
        columns: dict[str, Any] = self._result.validation.setdefault("columns", {})
        found: dict[str, Any] = columns.setdefault(name, {})
        return found

    def _joined(self, kind: str, place: int, feature: Any) -> None:
        if kind == "sparse_feature":
            parts = [*(index.name for index in feature.index_feature), feature.value_feature.name]
        else:
            parts = [".".join(getattr(feature, part).step) for part in ("feature", "weight_feature")]
        for part in parts:
            self._result.ignored.setdefault(part, f"a part of the {kind} {feature.name!r}")
        fix = "write the values as one list per row in the data"
        self._remark(kind, place, "name", f"{kind} {feature.name!r} is not put together from {', '.join(parts)}", fix)


def _served(feature: Any, message: Any) -> bool:
    """Whether a feature is in the environment SERVING."""
    if _SERVING in feature.in_environment:
        return True
    if _SERVING in feature.not_in_environment:
        return False
    known = {*message.default_environment}
    if feature.in_environment:
        return not known - {*feature.in_environment} and _SERVING not in known
    return True


def _blocks(text: str) -> Iterator[tuple[str, int, list[str]]]:
    """The messages at the top level of protobuf text: (name, first line from 1, lines)."""
    depth, name, start = 0, "", 0
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        plain = re.sub(r"\"(\\.|[^\"\\])*\"|'(\\.|[^'\\])*'", "", line).partition("#")[0]
        for found in re.finditer(r"(\w+)\s*:?\s*\{|\{|\}", plain):
            if found[0] == "}":
                depth -= 1
                if depth == 0:
                    yield name, start, lines[start - 1 : number]
            else:
                if depth == 0:
                    name, start = found[1] or "", number
                depth += 1
