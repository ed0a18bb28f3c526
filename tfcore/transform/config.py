"""The column transforms of pipeline.yaml, as config classes. Imports no TensorFlow.

    columns:
      dep_delay: [{clip: {min: -30, max: 300}}, log, standardize]
      distance: {bucketize: {buckets: 20}}
      carrier: {vocabulary: {top_k: 1000, min_count: 5}}
      dest: {transform: {hash: {buckets: 256}}}
      photo: {image: {height: 96, width: 96}}
      air_time: {transform: standardize, impute: {strategy: median}}

Numeric operations can follow one another; one that makes a category (bucketize, vocabulary, hash) comes last.

A function of the user's may compute columns from the raw ones:

    preprocess:
      function: features:preprocess            # in features.py beside the pipeline
      columns: {route: {hash: {buckets: 512}}, log_distance: standardize}
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from headway.config import Frozen
from headway.errors import ConfigError
from headway.messages import did_you_mean, listed
from headway.schema.calendar_days import CLOCK, Part
from headway.schema.columns import Column


class Standardize(Frozen):
    """Standardizes a number: (x - mean) / standard deviation, of the finite train values."""

    op: Literal["standardize"] = Field(
        default="standardize", description="(x - mean) / standard deviation, of the finite train values"
    )


class MinMax(Frozen):
    """Scales the train minimum to `low` and the train maximum to `high`; later values may lie outside."""

    op: Literal["min_max"] = Field(
        default="min_max", description="a linear scale on which the train values go from low to high"
    )
    low: float = Field(default=0.0, description="what the least train value becomes")
    high: float = Field(default=1.0, description="what the greatest train value becomes")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low {self.low} must be below high {self.high}")
        return self


class Log(Frozen):
    """Takes the logarithm sign(x) * ln(1 + |x|), which is defined everywhere; 0 stays 0."""

    op: Literal["log"] = Field(default="log", description="sign(x) * ln(1 + |x|)")


class Clip(Frozen):
    """Clips a number to [min, max], or to the train values at two quantiles."""

    op: Literal["clip"] = Field(default="clip", description="values beyond the bounds become the bounds")
    min: float | None = Field(default=None, description="the lower bound; none: values may be as low as they are")
    max: float | None = Field(default=None, description="the upper bound; none: values may be as high as they are")
    quantiles: tuple[Annotated[float, Field(ge=0, le=1)], Annotated[float, Field(ge=0, le=1)]] | None = Field(
        default=None,
        description="the bounds as quantiles of the train values, such as [0.01, 0.99], in place of min and max",
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if (self.quantiles is None) == (self.min is None and self.max is None):
            raise ValueError("give min and max (or one of them), or quantiles such as [0.01, 0.99]")
        low, high = self.quantiles or (self.min, self.max)
        if low is not None and high is not None and low >= high:
            raise ValueError(f"the lower bound {low} must be below the upper {high}")
        return self


class Bucketize(Frozen):
    """Replaces a number by the index of its bucket. Buckets are given by their boundaries, or by their number, `buckets`: each
    bucket then has about equally many train rows."""

    op: Literal["bucketize"] = Field(
        default="bucketize", description="the number of the bucket that a value falls into, as a category"
    )
    buckets: int | None = Field(
        default=None,
        ge=2,
        le=10_000,
        description="how many buckets, each with about as many train rows, or one for each value where there are fewer; none, "
        "without boundaries: 10",
    )
    boundaries: tuple[float, ...] | None = Field(
        default=None, description="the values at which a new bucket begins, rising, in place of buckets"
    )

    @model_validator(mode="after")
    def _not_both(self) -> Self:
        if self.buckets is not None and self.boundaries is not None:
            raise ValueError("give buckets or boundaries, not both")
        if self.boundaries is not None and (
            not self.boundaries or list(self.boundaries) != sorted(set(self.boundaries))
        ):
            raise ValueError("boundaries must rise")
        return self


class Vocabulary(Frozen):
    """Replaces a value by its rank among the most frequent train values. All other values share the out-of-vocabulary buckets, by
    hash."""

    op: Literal["vocabulary"] = Field(
        default="vocabulary", description="a value's rank among the most frequent train values, as a category"
    )
    top_k: int | None = Field(
        default=None, ge=1, description="how many of the most frequent values are kept; none: every one with min_count"
    )
    min_count: int | None = Field(
        default=None,
        ge=1,
        description="train rows that a value needs to be kept; none: 2, and 1 of the first column of model.item",
    )
    oov_buckets: int = Field(default=1, ge=1, description="categories that all other values share, by hash")


class Hash(Frozen):
    """Replaces a value by its hash modulo `buckets`; needs no train values."""

    op: Literal["hash"] = Field(default="hash", description="a hash of the value modulo buckets, as a category")
    buckets: int = Field(ge=2, description="how many categories; values whose hashes agree share one")


class Image(Frozen):
    """Decodes a JPEG, PNG, GIF or BMP file, and resizes it to uint8 pixels of one size (antialiased bilinear). Or takes the
    pixels themselves, as raw bytes, row by row."""

    op: Literal["image"] = Field(
        default="image", description="the pixels of a JPEG, PNG, GIF or BMP file, or of raw bytes"
    )
    height: int = Field(ge=1, le=4096, description="pixels of the resized image, from top to bottom")
    width: int = Field(ge=1, le=4096, description="pixels of the resized image, from left to right")
    channels: Literal[1, 3] = Field(default=3, description="3: red, green and blue; 1: grey")
    encoding: Literal["auto", "file", "raw"] = Field(
        default="auto",
        description="raw: height x width x channels bytes of pixels; auto: raw where every train value has that size",
    )


class DateParts(Frozen):
    """Takes parts of a date or time. Weekday, month, hour, ... become categories; year, day_of_year and elapsed become
    standardized numbers."""

    op: Literal["date_parts"] = Field(
        default="date_parts", description="parts of a date or time, each an input of its own"
    )
    parts: tuple[Part, ...] = Field(
        min_length=1,
        description="which parts, such as [month, weekday, hour]; year, day_of_year and elapsed are numbers, the others "
        "categories",
    )

    @model_validator(mode="after")
    def _once(self) -> Self:
        if len(set(self.parts)) != len(self.parts):
            raise ValueError("names a part twice")
        return self


class Identity(Frozen):
    """Leaves a number unchanged."""

    op: Literal["identity"] = Field(default="identity", description="the number as it is")


_KINDS = (Standardize, MinMax, Log, Clip, Bucketize, Vocabulary, Hash, Image, DateParts, Identity)
Op = Annotated[
    Standardize | MinMax | Log | Clip | Bucketize | Vocabulary | Hash | Image | DateParts | Identity,
    Field(discriminator="op"),
]
OPS: dict[str, type[Frozen]] = {kind.model_fields["op"].default: kind for kind in _KINDS}
CATEGORICAL = frozenset({"bucketize", "vocabulary", "hash"})
LAST = CATEGORICAL | {"image"}


def _operation(value: Any) -> Any:
    if isinstance(value, Frozen):
        return value
    settings: Any
    if isinstance(value, str):
        name, settings = value, {}
    elif isinstance(value, dict) and "op" in value:
        return value
    elif isinstance(value, dict) and len(value) == 1:
        name, settings = next(iter(value.items()))
        settings = {} if settings is None else settings
    else:
        raise ValueError(f"{value!r} is not an operation; write its name, or {{name: {{setting: value}}}}")
    if name not in OPS:
        hint = did_you_mean(name, OPS, f"there is: auto, {', '.join(OPS)}")
        raise ValueError(f"there is no operation {name!r}; {hint}")
    if name == "date_parts" and isinstance(settings, str | list | tuple):
        settings = {"parts": [settings] if isinstance(settings, str) else list(settings)}
    if not isinstance(settings, dict):
        raise ValueError(f"{name}: {settings!r} holds no settings; write {{{name}: {{setting: value}}}}")
    return {"op": name, **settings}


def _chain(value: Any) -> Any:
    if value is None or value == "auto":
        return "auto"
    chain = [_operation(item) for item in (value if isinstance(value, list | tuple) else [value])]
    if not chain:
        raise ValueError("names no operation; say 'auto', or give the column the role ignore")
    names = [item["op"] if isinstance(item, dict) else item.op for item in chain]
    if "date_parts" in names and len(names) > 1:
        raise ValueError(
            "date_parts takes no other operations; a preprocess function can make parts that need another transform"
        )
    for item in chain[:-1]:
        name = item["op"] if isinstance(item, dict) else item.op
        if name in LAST:
            output = "a category" if name in CATEGORICAL else "pixels"
            raise ValueError(f"{name} makes {output}, so nothing can follow it")
    return chain


TransformConfig = Annotated[Literal["auto"] | tuple[Op, ...], BeforeValidator(_chain)]
"""The transform of a column: "auto", or operations in order."""


class ImputeConfig(Frozen):
    """The replacement of a missing number; a category needs none, since null has its own id."""

    strategy: Literal["mean", "median", "zero", "value"] = Field(
        default="mean",
        description="what stands in for a missing number: the mean or median of the train values, zero, or value",
    )
    value: float | None = Field(default=None, description="with strategy value: the number that stands in")
    indicator: bool = Field(default=True, description="add <column>__missing where the train rows have nulls")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"strategy": value}
        if isinstance(value, bool):
            raise ValueError(
                f"{str(value).lower()} is not a way to fill gaps; a model needs a number where a value is missing: say mean, "
                "median, zero or a number; {strategy: mean, indicator: false} adds no <column>__missing input, "
                "and categories (bucketize, vocabulary) have an id of their own for null"
            )
        if isinstance(value, int | float):
            return {"strategy": "value", "value": value}
        return value

    @model_validator(mode="after")
    def _valued(self) -> Self:
        if (self.strategy == "value") != (self.value is not None):
            raise ValueError("strategy: value and a value go together")
        return self


PoolConfig = tuple[Literal["mean", "min", "max", "sum", "length"], ...]
"""The figures that the model sees of a list of numbers, each computed from one row's list."""


class ColumnTransform(Frozen):
    """The settings of one column by which its transform is fitted."""

    transform: TransformConfig = Field(
        default="auto", description="auto (by the column's type and values), an operation, or several in order"
    )
    impute: ImputeConfig = Field(
        default=ImputeConfig(), description="what stands in for a missing number: mean, median, zero or a number"
    )
    max_length: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="lists of categories: how many of a row's values the model sees (default: the longest list, at most 64)",
    )
    pool: PoolConfig = Field(
        default=("mean", "min", "max", "length"),
        description="lists of numbers: which figures of a row's values the model sees",
    )


class DerivedParameters(Frozen):
    """The columns that the user's preprocess function reads and returns, as its analysis found them."""

    function: str
    """The user's function, as module:function."""
    reads: tuple[Column, ...]
    columns: tuple[Column, ...]


_HOLDS = {"bytes": "text", "int64": "integers", "float32": "real numbers"}
_WORDS = ("vocabulary", "hash")


def check_chains(columns: Sequence[Column], transforms: Mapping[str, ColumnTransform], *, where: str) -> None:
    """Raise ConfigError for the first feature whose operations or settings do not go with its type."""
    for column in columns:
        config = transforms.get(column.name)
        if column.is_feature and config is not None:
            if config.transform != "auto":
                check_chain(column, config.transform, where=f"{where}: columns.{column.name}")
            check_settings(column, config, where=f"{where}: columns.{column.name}")


def check_settings(column: Column, config: ColumnTransform, *, where: str) -> None:
    """Raise ConfigError for a setting that is not its default but has no effect on a column of this type.

    Integers without an operation become numbers or categories only once they are counted: settings for either are accepted.
    """
    last = None if config.transform == "auto" else config.transform[-1]
    categories = column.type == "bytes" or (last is not None and last.op in CATEGORICAL)
    numbers = not categories and (column.type == "float32" or last is not None)
    needs = {
        "impute": "numbers or an image; categories have an id of their own for null"
        if categories and not isinstance(last, Image)
        else None,
        "pool": "a list of numbers" if not column.is_list or categories else None,
        "max_length": "a list of categories" if not column.shape or numbers else None,
    }
    for name, needed in needs.items():
        if needed is not None and getattr(config, name) != ColumnTransform.model_fields[name].default:
            holds = f"{'lists of ' * bool(column.shape)}{_HOLDS[column.type]}"
            becomes = (
                f", and {last.op} makes categories"
                if last is not None and column.type != "bytes" and categories
                else ""
            )
            problem = f"{name} needs {needed}, and column {column.name!r} holds {holds}{becomes}"
            raise ConfigError(problem, where=f"{where}.{name}", fix="leave it out")


def check_chain(column: Column, chain: Sequence[Op], *, where: str) -> None:
    """Raise ConfigError for an operation that does not go with the column's type, or with the operations beside it."""
    if isinstance(chain[-1], DateParts):
        _check_parts(column, chain[-1], where)
        return
    holds = f"column {column.name!r} holds {'lists of ' * bool(column.shape)}{_HOLDS[column.type]}"
    fix = f"use {listed(allowed_operations(column), 'or')}"
    if isinstance(chain[-1], Image):
        if column.type != "bytes" or column.shape or len(chain) > 1:
            raise ConfigError(
                f"image needs the bytes of one file per row and no other operation; {holds}", where=where, fix=fix
            )
        return
    if column.type == "bytes":
        wrong = next((op.op for op in chain if op.op not in _WORDS), None)
        if wrong is not None:
            as_number = f"; or read the column as a number: {column.name}: {{type: float, transform: {wrong}}}"
            raise ConfigError(f"{wrong} needs numbers, and {holds}", where=where, fix=fix + as_number)
    if isinstance(chain[-1], Vocabulary | Hash):
        if column.type == "float32":
            raise ConfigError(f"{chain[-1].op} needs text or integers, and {holds}", where=where, fix=fix)
        if len(chain) > 1:
            raise ConfigError(
                f"{chain[-1].op} takes the raw value, so no operation comes before it",
                where=where,
                fix="leave the others out",
            )


def _check_parts(column: Column, op: DateParts, where: str) -> None:
    if column.temporal is None or column.shape:
        raise ConfigError(
            f"date_parts needs a date or a time, and column {column.name!r} holds "
            f"{'lists of ' * bool(column.shape)}{_HOLDS[column.type]}",
            where=where,
            fix="set how it is parsed: parse: date, parse: timestamp, a form such as parse: '%d/%m/%Y', or of numbers that "
            "count the time since 1970 parse: epoch_seconds (and delete the schema file if it was inferred before)",
        )
    clock = [part for part in op.parts if part in CLOCK]
    if column.temporal == "date" and clock:
        raise ConfigError(
            f"column {column.name!r} holds dates, which have no {clock[0]}", where=where, fix="leave it out"
        )


def allowed_operations(column: Column) -> list[str]:
    """Returns the names of the operations that a column of this type and shape may have, without date_parts."""
    if column.type == "bytes":
        return [*_WORDS] if column.shape else [*_WORDS, "image"]
    numeric = [name for name in OPS if name not in (*CATEGORICAL, "image", "date_parts")] + ["bucketize"]
    return numeric if column.type == "float32" else [*numeric, *_WORDS]
