"""The parameters of a transform as plain JSON, and the layout of the model's inputs. Imports no TensorFlow.

    parameters.numeric                # ("dep_delay", "dep_delay__missing", ...)
    parameters.categorical            # (IdInput(name="carrier", size=17), ...)
    apply_numeric(op, values)         # one numeric operation, in NumPy

`tfcore.transform.fit` fits them on train statistics; `tfcore.transform.layer` is the graph.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Generic, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from headway.config import Frozen
from headway.schema.calendar_days import Part
from headway.schema.columns import Column
from headway.schema.tensor_name import tensor_name
from headway.stages.refs import Ref
from headway.stages.stage_class import Answer, Key, Stage
from tfcore.heads.label_parameters import LabelParameters
from tfcore.transform.config import DerivedParameters

VERSION = 5
"""The version of the transform stage and of its parameters."""


class FittedOp(Frozen):
    """One operation with its fitted numbers; which fields are set depends on `op`."""

    op: str
    mean: float | None = None
    std: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    low: float | None = None
    high: float | None = None
    boundaries: tuple[float, ...] | None = None
    words: tuple[str, ...] | None = None
    """The values of a vocabulary as texts, which `word_text` made; `values` has them as columns store them."""
    integers: tuple[int, ...] | None = None
    oov_buckets: int | None = None
    buckets: int | None = None
    pixels: tuple[int, int, int] | None = None
    """The height, width and channels of an image."""
    raw: bool = False
    """Whether an image's value is its pixels, one byte each, rather than a file."""

    @cached_property
    def values(self) -> tuple[Any, ...]:
        """Returns the values of a vocabulary as columns store them."""
        return self.integers or () if self.words is None else tuple(map(word_bytes, self.words))


def word_text(word: bytes) -> str:
    """Returns a stored word as text. A word that is not UTF-8, or begins with NUL, becomes NUL and then one Latin-1 letter for
    each of its bytes."""
    try:
        text = word.decode()
    except UnicodeDecodeError:
        text = "\0"
    return "\0" + word.decode("latin-1") if text.startswith("\0") else text


def word_bytes(text: str) -> bytes:
    """Returns the stored word of a text that `word_text` made."""
    return text[1:].encode("latin-1") if text.startswith("\0") else text.encode()


class Fitted(Frozen):
    """The fitted transform of one raw column: its operations, the number that replaces null, its outputs."""

    column: Column
    ops: tuple[FittedOp, ...]
    fill: float | None = None
    """The number that replaces null, NaN and infinities in numeric outputs."""
    missing_indicator: bool = False
    nan_indicator: bool = False
    size: int | None = None
    """The number of ids of a category, 0 .. size - 1; None for a numeric output."""
    width: int | None = None
    """The number of ids of a row that the model sees, for lists and vectors of categories; None for other columns."""
    pool: tuple[str, ...] = ()
    """The figures of a row's list that the model sees, such as mean, for lists of numbers; empty for other columns."""
    longest: int | None = None
    """The length of the longest list in the train rows, for lists of numbers: the figure `length` is a share of it. None: the
    figure `length` is the number of values."""

    edges: tuple[float, ...] = ()
    """The edges of equally full bins of the train values, for numeric outputs; empty unless a model asks for bins."""
    counts: tuple[int, ...] = ()
    """For each value of a vocabulary its number of train rows, then that of all other values; empty unless asked for."""

    def with_counts(self, rows: Mapping[Any, int], total: int) -> Self:
        """Returns a copy with `counts`, the number of train rows of each value of the vocabulary. `rows` has the number
        for each stored value, `total` is the number of all train rows."""
        known = [rows[value] for value in self.ops[0].values]
        return self.model_copy(update={"counts": (*known, total - sum(known))})

    @property
    def null_id(self) -> int | None:
        """The id of null, the last one; None for numbers and for a column that cannot be null."""
        return self.size - 1 if self.size is not None and self.column.nullable else None

    @property
    def pixels(self) -> tuple[int, int, int] | None:
        """Height, width and channels of an image; None for anything else."""
        return self.ops[-1].pixels

    def numeric_names(self) -> list[str]:
        if self.size is not None:
            return []
        if self.pixels is not None:
            return [f"{self.column.name}__missing"] * self.missing_indicator
        name, length = self.column.name, self.column.length
        values = [name]
        if self.pool:
            values = [f"{name}__{figure}" for figure in self.pool]
        elif length is not None:
            values = [f"{name}__{place}" for place in range(length)]
        return [*values, *self._indicators()]

    def numeric_edges(self) -> list[tuple[float, ...]]:
        """Returns the bin edges of each numeric input; () for indicators, and for the figures sum and length of a list."""
        none: tuple[float, ...] = ()
        if self.size is not None or self.pixels is not None:
            return [none] * len(self.numeric_names())
        figures = self.pool or range(self.column.length or 1)
        values = [none if figure in ("sum", "length") else self.edges for figure in figures]
        return [*values, *[none] * len(self._indicators())]

    def _indicators(self) -> list[str]:
        name = self.column.name
        return [f"{name}__missing"] * self.missing_indicator + [f"{name}__nan"] * self.nan_indicator


def apply_numeric(op: FittedOp, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Apply one numeric operation to finite float64 values of any shape, and return the results."""
    if op.op == "standardize":
        assert op.mean is not None and op.std is not None
        return (values - op.mean) / op.std
    if op.op == "min_max":
        assert op.minimum is not None and op.maximum is not None and op.low is not None and op.high is not None
        return (values - op.minimum) / (op.maximum - op.minimum) * (op.high - op.low) + op.low
    if op.op == "log":
        return np.sign(values) * np.log1p(np.abs(values))
    if op.op == "clip":
        return np.clip(values, op.minimum, op.maximum)
    return values


def size_of(last: FittedOp, column: Column) -> int | None:
    """Returns the number of ids of a column, including that of null, by its last operation; None for a number or an image."""
    if last.op == "vocabulary":
        words = len(last.words if last.words is not None else last.integers or ())
        size = words + (last.oov_buckets or 0)
    elif last.op == "hash":
        size = last.buckets or 0
    elif last.op == "bucketize":
        size = len(last.boundaries or ()) + 1
    else:
        return None
    return size + column.nullable


class IdInput(Frozen):
    name: str
    size: int


class IdListInput(Frozen):
    """A list of categories: `width` ids a row, each below `size`; -1 fills up a shorter list."""

    name: str
    size: int
    width: int


class ColumnPart(Frozen):
    """A part of a date or a time, which the graph computes as a column of its own."""

    name: str
    source: Column
    part: Part


class TransformParameters(Frozen):
    """The layout of the model's inputs and how each is computed."""

    version: int = VERSION
    rows: int = 0
    """The number of train rows."""
    fitted: tuple[Fitted, ...]
    label: LabelParameters
    derived: DerivedParameters | None = None
    """The columns that the user's preprocess function returns; None without one."""
    parts: tuple[ColumnPart, ...] = ()
    """The columns that are parts of a date or a time."""

    @property
    def raw(self) -> tuple[Column, ...]:
        """The raw columns that serving needs: columns with a transform, and columns that the user's function reads."""
        derived = self.derived.columns if self.derived else ()
        sources = {part.name: part.source for part in self.parts}
        columns = [sources.get(fitted.column.name, fitted.column) for fitted in self.fitted]
        raw = {column.name: column for column in columns if column not in derived}
        for column in self.derived.reads if self.derived else ():
            raw.setdefault(column.name, column)
        return tuple(raw.values())

    @property
    def numeric(self) -> tuple[str, ...]:
        """The names of the numeric inputs, in their order."""
        return tuple(name for fitted in self.fitted for name in fitted.numeric_names())

    @property
    def edges(self) -> tuple[tuple[float, ...], ...]:
        """The bin edges of each numeric input, in order: an empty tuple for an input without bins."""
        return tuple(edges for fitted in self.fitted for edges in fitted.numeric_edges())

    @property
    def categorical(self) -> tuple[IdInput, ...]:
        """The name and the number of ids of each categorical input with one id per row, in the inputs' order."""
        return tuple(
            IdInput(name=f.column.name, size=f.size) for f in self.fitted if f.size is not None and f.width is None
        )

    @property
    def lists(self) -> tuple[IdListInput, ...]:
        """The name, the number of ids and the ids per row of each categorical input of lists, in the inputs' order."""
        return tuple(
            IdListInput(name=f.column.name, size=f.size, width=f.width)
            for f in self.fitted
            if f.size is not None and f.width is not None
        )

    def inputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Returns the model's inputs as {name: (shape of a row, dtype)}. `lists` is there only where a column needs it,
        and an image has an input of its own, `image_<column>`: uint8 [height, width, channels]."""
        inputs: dict[str, tuple[tuple[int, ...], str]] = {
            "numeric": ((len(self.numeric),), "float32"),
            "categorical": ((len(self.categorical),), "int32"),
        }
        if width := sum(entry.width for entry in self.lists):
            inputs["lists"] = ((width,), "int32")
        for fitted in self.fitted:
            if fitted.pixels is not None:
                inputs[image_input(fitted.column.name)] = (fitted.pixels, "uint8")
        return inputs


def image_input(column: str) -> str:
    """Returns the name of the model's input for an image column, in letters that Keras accepts."""
    return "image_" + tensor_name(column)


class OfTransform(Stage[Answer], Generic[Answer], populate_by_name=True):
    """The base class of stages that read rows through a fitted transform, and run the user's code."""

    code: Annotated[dict[str, str], Key(spread=True)] = Field(default={}, description="digests of the user's files")
    fitted: Annotated[Ref[TransformParameters], Key("inputs", "transform")] = Field(alias="transform")

    @property
    def transform(self) -> TransformParameters:
        """The fitted transform."""
        return self.fitted.value
