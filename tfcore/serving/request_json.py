"""Requests of TensorFlow Serving's REST API as arrays.

    reader = SignatureReader("serving_nullable", signature, columns)
    rows = reader.of_instances([{"dep_delay": 12.0, "carrier": "UA"}, {"dep_delay": None, "carrier": "AA"}])
    rows.count, rows.arrays["dep_delay"], rows.arrays["dep_delay__present"]

Beyond what TensorFlow Serving takes, a JSON null or a missing key is a null wherever the signature can say so: in a nullable
float column of `serving_default`, in every nullable column of a signature with companions. A list column may have rows of
different lengths where it has a companion. A date or time may be a text, ISO 8601: "2013-01-31T10:00:00+01:00".
"""

import base64
import binascii
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.messages import agree, counted, short
from headway.schema.calendar_days import ISO, UNITS, Temporal
from headway.schema.columns import Column, suggest
from headway.schema.date_forms import iso_times
from headway.schema.tensor_name import LENGTH, PRESENT
from tfcore.export.signatures import NULLABLE, Signature, Tensor
from tfcore.serving.refusals import RequestError, RequestLimits
from tfcore.serving.request_body import LITERALS

Array = NDArray[Any]
Place = Callable[[int], str]
"""What a message calls the value of a row."""
ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "nothing"})()
_NUMPY: dict[str, Any] = {"float32": np.float32, "int64": np.int64, "int32": np.int32, "bool": np.bool_}
_EMPTY: dict[str, Any] = {"float32": 0.0, "int64": 0, "int32": 0, "bool": False, "string": b""}
_WORDS = {
    "float32": "a number",
    "int64": "a whole number of 64 bits",
    "int32": "a whole number of 32 bits",
    "bool": "true or false",
    "string": 'a text, or {"b64": "..."} for bytes',
}
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Rows:
    """The rows of a request, as arrays that a signature takes."""

    signature: str
    count: int
    arrays: dict[str, Array]
    """By input, [rows], [rows, n] or [rows, longest]; texts are objects of bytes."""
    arguments: dict[str, Array] = field(default_factory=dict)
    """Inputs that are one value for the whole request."""

    @property
    def cells(self) -> int:
        return sum(array.size for array in self.arrays.values())


class SignatureReader:
    """Reads requests to one signature.

    Args:
        columns: the model's raw columns.
        limits: of each request.
    """

    def __init__(
        self, name: str, signature: Signature, columns: Sequence[Column], limits: RequestLimits = RequestLimits()
    ):
        self.name, self._limits = name, limits
        by_name = {column.name: column for column in columns}
        self._arguments = {t.name: t for t in signature.inputs if t.shape == ()}
        rows = [t for t in signature.inputs if t.shape != ()]
        companions = {t.name for t in rows if t.default is not None and len(t.shape) == 1}
        self._values = [(t, by_name.get(t.column or "")) for t in rows if t.name not in companions]
        self._companions = {t.name: t for t in rows if t.name in companions}
        self._known = {t.name for t in rows}
        self._renamed = {t.column: t.name for t, _ in self._values if t.column and t.column != t.name}

    def of_instances(self, instances: Any) -> Rows:
        """Read the row form: a list of objects, or of values where the signature has one input.

        Raises:
            RequestError: naming the instance, the column, the value and what would be right.
        """
        if not isinstance(instances, list) or not instances:
            fix = 'send one object per row: {"instances": [{"column": value, ...}, ...]}'
            raise RequestError(f"is {_said(instances)}, not a list of rows", where="instances", fix=fix)
        self._check_size(len(instances), "instances")
        single = self._single()
        if single is not None and not (isinstance(instances[0], dict) and set(instances[0]) != {"b64"}):
            instances = [{single: value} for value in instances]
        for number, row in enumerate(instances):
            if not isinstance(row, dict):
                fix = 'send one object per row: {"column": value, ...}'
                raise RequestError(f"is {_said(row)}, not an object", where=f"instances[{number}]", fix=fix)
            if not row.keys() <= self._known:
                self._unknown(row, f"instances[{number}]")
        cells = {name: [row.get(name, ABSENT) for row in instances] for name in self._known}
        return self._rows(cells, len(instances), lambda name: lambda row: f"instances[{row}].{name}", {})

    def of_inputs(self, inputs: Any) -> Rows:
        """Read the column form: an object of lists, or one list where the signature has one input.

        Raises:
            RequestError: as `of_instances`.
        """
        if (single := self._single()) is not None and not (isinstance(inputs, dict) and set(inputs) != {"b64"}):
            inputs = {single: inputs}
        if not isinstance(inputs, dict) or not inputs:
            fix = 'send one list per column: {"inputs": {"column": [value, ...], ...}}'
            raise RequestError(f"is {_said(inputs)}, not an object of lists", where="inputs", fix=fix)
        given = {name: value for name, value in inputs.items() if name not in self._arguments}
        self._unknown(given, "inputs")
        for name, value in given.items():
            if not isinstance(value, list):
                fix = "send a list with one value per row"
                raise RequestError(f"is {_said(value)}, not a list", where=f"inputs.{name}", fix=fix)
        lengths = {name: len(value) for name, value in given.items()}
        rows = max((n for name, n in lengths.items() if name not in self._companions), default=0)
        for name, length in lengths.items():
            if length != rows and not (length == 1 and name in self._companions):
                raise RequestError(
                    f"has {counted(length, 'value')}, and others have {rows:,}",
                    where=f"inputs.{name}",
                    fix="send lists of one length, the number of rows",
                )
        if not rows:
            raise RequestError("has no rows", where="inputs", fix="send at least one value per column")
        self._check_size(rows, "inputs")
        cells = {name: value * rows if len(value) == 1 else value for name, value in given.items()}
        arguments = {name: value for name, value in inputs.items() if name in self._arguments}
        return self._rows(cells, rows, lambda name: lambda row: f"inputs.{name}[{row}]", arguments)

    def of_examples(self, examples: Any, context: Any) -> Rows:
        """Read the form of classify and regress: features by the names of the columns, single values or lists of one.

        Raises:
            RequestError: as `of_instances`.
        """
        if not isinstance(examples, list) or not examples or not all(isinstance(row, dict) for row in examples):
            fix = 'send one object of features per row: {"examples": [{"column": value, ...}, ...]}'
            raise RequestError(f"is {_said(examples)}, not a list of objects", where="examples", fix=fix)
        self._check_size(len(examples), "examples")
        if context is not None and not isinstance(context, dict):
            raise RequestError(f"is {_said(context)}, not an object of features", where="context")
        names = {t.column: t for t, _ in self._values if t.column}
        rows = []
        for number, example in enumerate(examples):
            row: dict[str, Any] = {}
            for where, features in (("context", context or {}), (f"examples[{number}]", example)):
                for name, value in features.items():
                    if name not in names:
                        raise RequestError(f"there is no column {name!r}", where=where, fix=suggest(name, list(names)))
                    tensor = names[name]
                    if tensor.name in row:
                        raise RequestError(
                            f"column {name!r} stands in the context too", where=where, fix="send it once"
                        )
                    single = tensor.shape == (None,) and isinstance(value, list) and len(value) == 1
                    row[tensor.name] = value[0] if single else value
            rows.append(row)
        cells = {name: [row.get(name, ABSENT) for row in rows] for name in self._known}
        return self._rows(cells, len(rows), lambda name: lambda row: f"examples[{row}].{name}", {})

    def _check_size(self, rows: int, where: str) -> None:
        """Raise TooLarge before any row becomes cells, of which each has one for every input."""
        self._limits.check_rows(rows, where)
        inputs = len(self._known)
        self._limits.check_cells(rows * inputs, f"has {rows:,} rows of {counted(inputs, 'input')}", where)

    def _single(self) -> str | None:
        """Return the only input's name, if there is exactly one."""
        return self._values[0][0].name if len(self._values) == 1 and len(self._known) == 1 else None

    def _unknown(self, given: Mapping[str, Any], where: str) -> None:
        for name in given:
            if name in self._known:
                continue
            if name in self._arguments:
                fix = f'it is one value for all rows: send the column form, {{"inputs": {{..., "{name}": value}}}}'
                raise RequestError(f"{name!r} is not a column", where=where, fix=fix)
            if name in self._renamed:
                fix = f"its input is called {self._renamed[name]!r}"
                raise RequestError(f"{self.name} has no input {name!r}", where=where, fix=fix)
            base = name.removesuffix(PRESENT).removesuffix(LENGTH)
            if base != name and base in self._known:
                fix = f'ask for "signature_name": "{NULLABLE}"' if self.name != NULLABLE else "leave it out"
                raise RequestError(f"{self.name} has no input {name!r}", where=where, fix=fix)
            raise RequestError(f"{self.name} has no input {name!r}", where=where, fix=suggest(name, list(self._known)))

    def _rows(
        self, cells: Mapping[str, list[Any]], rows: int, place: Callable[[str], Place], given: Mapping[str, Any]
    ) -> Rows:
        arrays: dict[str, Array] = {}
        filled = 0
        for tensor, column in self._values:
            values, where = cells.get(tensor.name), place(tensor.name)
            if values is None:
                values = [ABSENT] * rows
            if column is not None and column.null and tensor.dtype != "string":  # of a text the model knows it
                values = [None if isinstance(value, str) and value in column.null else value for value in values]
            missing = np.fromiter((value is None or value is ABSENT for value in values), np.bool_, rows)
            told = self._companion(tensor.name + PRESENT, cells, rows, place)
            if column is not None and column.temporal and not column.shape:
                values = _times(values, missing, column.temporal, where)
            if missing.any():
                self._allow_nulls(tensor, column, values, missing, told, where)
            fill: Any = math.nan if tensor.name + PRESENT not in self._companions else None
            if len(tensor.shape) == 2:
                filled += self._filled(values, missing, tensor, where)
                self._limits.check_cells(filled, f"the lists have {filled:,} values when they are filled up")
            array, lengths = _converted(values, missing, tensor, fill, where)
            if tensor.name + PRESENT in self._companions:
                arrays[tensor.name + PRESENT] = ~missing if told is None else np.where(told[1], ~missing, told[0])
            if tensor.name + LENGTH in self._companions:
                told = self._companion(tensor.name + LENGTH, cells, rows, place)
                assert lengths is not None
                if told is not None:
                    lengths = np.where(told[0] < 0, lengths, np.minimum(told[0], lengths))
                arrays[tensor.name + LENGTH] = lengths
            elif lengths is not None and (lengths != array.shape[1]).any():
                row = int((lengths != array.shape[1]).argmax())
                raise RequestError(
                    f"has {counted(int(lengths[row]), 'value')}, and another row has {array.shape[1]:,}",
                    where=where(row),
                    fix=f'ask for "signature_name": "{NULLABLE}", whose lists may differ in length',
                )
            arrays[tensor.name] = array
        arguments = {name: _argument(given.get(name, t.default), t) for name, t in self._arguments.items()}
        return Rows(self.name, rows, arrays, arguments)

    def _filled(self, values: Sequence[Any], missing: NDArray[np.bool_], tensor: Tensor, where: Place) -> int:
        """The number of values of a list column, all of whose rows are as long as the longest.

        Raises:
            RequestError: a value is no list, or one of another length than the signature has.
            TooLarge: there are too many.
        """
        wanted, longest, at = tensor.shape[1], 0, 0
        for row, value in enumerate(values):
            if missing[row]:
                continue
            if not isinstance(value, list) or (wanted is not None and len(value) != wanted):
                said = counted(len(value), "value") if isinstance(value, list) else _said(value)
                raise RequestError(f"is {said}, not {_fits(tensor)}", where=where(row), fix=f"send {_fits(tensor)}")
            if len(value) > longest:
                longest, at = len(value), row
        width = longest if wanted is None else wanted
        what = f"has {counted(width, 'value')}, and all {len(values):,} rows are filled up to that"
        fix = "send rows with long lists in requests of their own"
        self._limits.check_cells(len(values) * width, what, where(at), fix)
        return len(values) * width

    def _companion(
        self, name: str, cells: Mapping[str, list[Any]], rows: int, place: Callable[[str], Place]
    ) -> tuple[Array, NDArray[np.bool_]] | None:
        """Return a companion's values and a mask of the rows that do not give it; None if no row does."""
        tensor, values = self._companions.get(name), cells.get(name)
        if tensor is None or values is None:
            return None
        missing = np.fromiter((value is None or value is ABSENT for value in values), np.bool_, rows)
        if missing.all():
            return None
        return _scalars(values, missing, tensor, tensor.default, place(name)), missing

    def _allow_nulls(
        self,
        tensor: Tensor,
        column: Column | None,
        values: Sequence[Any],
        missing: NDArray[np.bool_],
        told: tuple[Array, NDArray[np.bool_]] | None,
        where: Place,
    ) -> None:
        """Raise RequestError for a null that the signature cannot represent; a list with a default is empty then."""
        row = int(missing.argmax())
        said = "is null" if values[row] is None else "is missing"
        if tensor.default == ():
            return
        if column is None or not column.nullable:
            raise RequestError(said, where=where(row), fix=f"send {_fits(tensor, column)}")
        if tensor.name + PRESENT in self._companions:
            wrong = np.zeros(len(values), np.bool_) if told is None else told[0] & ~told[1] & missing
            if wrong.any():
                row = int(wrong.argmax())
                said = "is null" if values[row] is None else "is missing"
                fix = f"send its value, or {PRESENT} false"
                raise RequestError(f"{said}, but its {PRESENT} is true", where=where(row), fix=fix)
        elif tensor.dtype != "float32" or column.is_list:
            fix = f'send {_fits(tensor, column)}, or ask for "signature_name": "{NULLABLE}", which takes nulls'
            raise RequestError(f"{said}, and {self.name} has no nulls in this column", where=where(row), fix=fix)


def _argument(value: Any, tensor: Tensor) -> Array:
    """One value for the whole request."""
    where = f"inputs.{tensor.name}"
    if value is None:
        raise RequestError("is null", where=where, fix=f"send {_fits(tensor)}")
    return np.asarray(_scalars([value], np.zeros(1, np.bool_), tensor, None, lambda _: where)[0])


def _converted(
    values: Sequence[Any], missing: NDArray[np.bool_], tensor: Tensor, fill: Any, where: Place
) -> tuple[Array, NDArray[np.int64] | None]:
    """Return ([rows], None), ([rows, n], None) of a vector, or ([rows, longest], lengths) of a list."""
    if len(tensor.shape) == 1:
        return _scalars(values, missing, tensor, fill, where), None
    wanted = tensor.shape[1]
    lengths = np.array([0 if gone else len(value) for value, gone in zip(values, missing, strict=True)], np.int64)
    width = wanted if wanted is not None else int(lengths.max(initial=0))
    flat = [item for value, gone in zip(values, missing, strict=True) if not gone for item in value]
    ends = lengths.cumsum()

    def place(at: int) -> str:
        row = int(np.searchsorted(ends, at, side="right"))
        return f"{where(row)}[{at - ends[row] + lengths[row]}]"

    inner = _scalars(flat, np.zeros(len(flat), np.bool_), tensor, None, place)
    empty = math.nan if fill is not None and tensor.dtype == "float32" else _EMPTY[tensor.dtype]
    array = np.full((len(values), width), empty, inner.dtype)
    array[np.arange(width) < lengths[:, None]] = inner
    return array, None if wanted is not None else lengths


def _times(values: list[Any], missing: NDArray[np.bool_], unit: Temporal, where: Place) -> list[Any]:
    """The values of a date or time with ISO texts as what the column counts."""
    if {*map(type, values)} <= {int, type(None), type(ABSENT)}:
        return values
    other = [row for row, value in enumerate(values) if not missing[row] and not _is_whole(value)]
    texts = [value if isinstance(value := values[row], str) and value.isascii() else None for row in other]
    values = values.copy()
    for row, made in zip(other, iso_times(pa.array(texts, pa.string()), unit).to_pylist(), strict=True):
        if made is None:
            kind = "date" if unit == "date" else "time"
            fix = f"send {time_text(unit)}"
            raise RequestError(f"is {_said(values[row])}, not a {kind}", where=where(row), fix=fix)
        values[row] = made
    return values


def _is_whole(value: Any) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


def time_text(unit: Temporal) -> str:
    """What a date or time is in a request."""
    return f"a whole number of {UNITS[unit]} since 1970-01-01 (UTC), or an ISO text such as {ISO[unit]!r}"


def _plain(values: Sequence[Any], dtype: str) -> Array:
    """Values of JSON's own type for this dtype, all at once; ValueError where each must be checked on its own."""
    types = set(map(type, values))
    if dtype == "float32" and types <= {float, int}:
        doubles = np.array(values, np.float64)
        if (np.abs(doubles) > _LARGEST).any():  # an infinity may be a number that was too large
            raise ValueError
        return doubles.astype(np.float32)
    if (dtype in ("int64", "int32") and types <= {int}) or (dtype == "bool" and types <= {bool}):
        return _array(values, dtype)
    if dtype == "string" and types <= {str}:
        return _array([value.encode() for value in values], dtype)
    raise ValueError


def _scalars(values: Sequence[Any], missing: NDArray[np.bool_], tensor: Tensor, fill: Any, where: Place) -> Array:
    """One value per row; those that are missing are `fill`, or the dtype's empty value."""
    empty = _EMPTY[tensor.dtype] if fill is None or (tensor.dtype != "float32" and fill is math.nan) else fill
    if missing.any():
        kept = np.flatnonzero(~missing).tolist()
        inner = _scalars([values[i] for i in kept], missing[kept], tensor, None, lambda at: where(kept[at]))
        array = np.full(len(values), empty, inner.dtype)
        array[kept] = inner
        return array
    try:
        return _plain(values, tensor.dtype)
    except (ValueError, OverflowError):
        return _array([_one(value, tensor, where, row) for row, value in enumerate(values)], tensor.dtype)


def _array(values: Sequence[Any], dtype: str) -> Array:
    if dtype != "string":
        return np.array(values, _NUMPY[dtype])
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _one(value: Any, tensor: Tensor, where: Place, row: int) -> Any:
    """Convert a single value, or raise the error for it."""
    if tensor.dtype == "string":
        if isinstance(value, str):
            try:
                return value.encode()
            except UnicodeEncodeError:
                raise RequestError("is not valid Unicode", where=where(row), fix='send {"b64": "..."}') from None
        if isinstance(value, dict) and set(value) == {"b64"} and isinstance(value["b64"], str):
            try:
                return base64.b64decode(value["b64"], validate=True)
            except (binascii.Error, ValueError):
                raise RequestError("its b64 is not base64", where=where(row), fix="encode it in base64") from None
    elif tensor.dtype == "bool":
        if isinstance(value, bool):
            return value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if tensor.dtype == "float32":
            if value != value or any(value is literal for literal in LITERALS.values()):
                return value
            if abs(value) <= _LARGEST:
                return float(value)
            raise RequestError(f"is {_said(value)}, beyond float32", where=where(row), fix="send at most 3.4e38")
        whole = value if isinstance(value, int) else int(value) if value.is_integer() else None
        least = np.iinfo(_NUMPY[tensor.dtype])
        if whole is not None and least.min <= whole <= least.max:
            return whole
    fix = f"send {tensor.dtype}" + (", without quotes" if isinstance(value, str) and tensor.dtype != "string" else "")
    raise RequestError(f"is {_said(value)}, not {_WORDS[tensor.dtype]}", where=where(row), fix=fix)


def _fits(tensor: Tensor, column: Column | None = None) -> str:
    """Describe the values that this input accepts."""
    if column is not None and column.temporal and not column.shape:
        return time_text(column.temporal)
    if len(tensor.shape) == 1 or not tensor.shape:
        return _WORDS[tensor.dtype]
    n = tensor.shape[1]
    return f"a list of {tensor.dtype}" if n is None else f"a list of {n} {tensor.dtype} {agree(n, 'value', 'values')}"


def _said(value: Any) -> str:
    """Format a JSON value for a message, shortened."""
    if isinstance(value, list):
        return f"a list of {counted(len(value), 'value')}"
    if isinstance(value, dict):
        return "an object" if value else "an empty object"
    if value is ABSENT or value is None:
        return "null" if value is None else "missing"
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        text = repr(value[:60] if isinstance(value, str) else value)
    except ValueError:  # an integer of thousands of digits
        return "a huge number"
    return short(text, 60)
