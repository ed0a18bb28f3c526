"""Requests of TensorFlow Serving's REST API as arrays.

    instances = parse_body(body)["instances"]                  # [{"dep_delay": 12.0, "carrier": "UA"}, {"carrier": "AA"}]
    rows = SignatureReader("serving_nullable", signature, columns).of_instances(instances)
    rows.count, rows.arrays["dep_delay"], rows.arrays["dep_delay__present"]

TensorFlow Serving takes no nulls. Here a JSON null or a missing key is a null wherever the signature can express one: in a
nullable float column of `serving_default`, and in every nullable column of a signature with companions such as c__present. The
lists of a column may differ in length if the signature has the companion c__length.
"""

import base64
import json
import math
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import HeadwayError
from headway.messages import counted, short
from headway.schema.calendar_days import UNITS
from headway.schema.columns import Column, suggest
from headway.schema.tensor_name import LENGTH, PRESENT
from headway.sources.config import MAX_CELL_BYTES
from tfcore.export.signatures import NULLABLE, Signature, Tensor

MOST_ROWS = 16_384
MOST_VALUES = 1_000_000
"""The most values in a request's body (a value with a name counts twice), in the arrays made of it, and in an answer. A million
values take some 100 MB while they are read."""
WIDE_BYTES = 8 << 20
"""In a longer body no letter may be outside Unicode's basic plane: Python would hold all letters of the body in four bytes."""
_WORDS = {
    "float32": "a number (float32)",
    "int64": "an integer (int64)",
    "int32": "an integer (int32)",
    "bool": "true or false",
    "string": 'a text, or {"b64": "..."} for bytes',
}
_TYPES: Any = {"float32": {int, float}, "int64": {int}, "int32": {int}, "bool": {bool}, "string": {str, bytes}}
Array = NDArray[Any]
Cells = Mapping[str, list[Any]]  # by input, a value of each row; None is a null


class RequestError(HeadwayError):
    """The error of a request that is refused. `status` is the HTTP status: 400 for a mistake of the client."""

    def __init__(self, problem: str, *, status: int = 400, where: str | None = None, fix: str | None = None):
        super().__init__(problem, where=where, fix=fix)
        self.status = status


def check_size(count: int, what: str, where: str, most: int) -> None:
    """Raises RequestError (413) for a count above `most`, before the values take memory."""
    if count > most:
        problem = f"has {count:,} {what}, more than {most:,}"
        raise RequestError(problem, status=413, where=where, fix="send fewer rows at once")


def most_values(body: bytearray) -> int:
    """Returns an upper bound of the number of values in a body, a named value counted twice. Stops above MOST_VALUES."""
    count = 1
    for at in range(0, len(body), 1 << 20):  # in pieces, since other threads wait for each
        count += sum(map(body[at : at + (1 << 20)].count, (b",", b"[", b"{", b":")))
        if count > MOST_VALUES:
            break
    return count


def parse_body(body: bytearray) -> dict[str, Any]:
    """Returns the JSON object in a body, with {"b64": "..."} as bytes. Empties the body, since it may be large."""
    check_size(most_values(body), "commas, colons and brackets or more, also in texts", "the request", MOST_VALUES)
    if len(body) > WIDE_BYTES and np.frombuffer(body, np.uint8).max() >= 0xF0:
        problem = "the request is too large for a letter outside Unicode's basic plane"
        raise RequestError(problem, status=413, fix=f"send at most {WIDE_BYTES >> 20} MiB at once")
    try:
        text = body.decode(json.detect_encoding(body))
        body.clear()
        value = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:  # also of thousands of digits
        fix = "send it in UTF-8, uncompressed; a JSON parser shows the place"
        raise RequestError(f"the body is not JSON: {short(str(error), 100)}", fix=fix) from None
    return _checked(value, dict, "the body", 'send {"instances": [...]}')


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | bytes:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise RequestError(f"an object has the key {_shown(twice)} twice", fix="send each key once")
    if found.keys() != {"b64"}:
        return found
    try:
        return base64.b64decode(found["b64"], validate=True)
    except (TypeError, ValueError):
        raise RequestError(f"{_shown(found['b64'])} is not base64", where="b64", fix="encode bytes in base64") from None


def _float(text: str) -> float:
    if math.isinf(value := float(text)):
        raise RequestError(f"{short(text, 60)} is larger than any number", fix="send a finite number, or Infinity")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float)


@dataclass(frozen=True)
class Rows:
    """The rows of a request, as arrays that a signature takes."""

    signature: str
    count: int
    arrays: dict[str, Array]
    """The arrays by input: [rows], [rows, n], [rows, longest], or [] for all rows; texts are objects of bytes."""


class SignatureReader:
    """Turns parsed requests to one signature into arrays. A mistake is a RequestError that names place, value and fix."""

    def __init__(self, name: str, signature: Signature, columns: Sequence[Column]):
        self.name = name
        self._arguments = {tensor.name: tensor for tensor in signature.inputs if tensor.shape == ()}
        tensors = {tensor.name: tensor for tensor in signature.inputs if tensor.shape != ()}
        values = [tensor for tensor in tensors.values() if tensor.default is None or len(tensor.shape) == 2]
        self._companions = tensors.keys() - {tensor.name for tensor in values}
        columns_by_name = {column.name: column for column in columns}
        self._inputs = {name: _Input(tensors[name], None) for name in sorted(self._companions)}  # first
        for tensor in values:
            column, has_presence = columns_by_name.get(tensor.column or ""), tensor.name + PRESENT in tensors
            self._inputs[tensor.name] = _Input(tensor, column, has_presence=has_presence)
        self._only = values[0].name if len(tensors) == 1 else None

    def of_instances(self, instances: Any) -> Rows:
        """Reads the row form of a request: a list of objects, or of values where the signature has one input."""
        count = self._count_of(instances, "instances")
        if self._only is not None and not isinstance(instances[0], dict):
            instances = [{self._only: value} for value in instances]
        cells = self._cells(instances)
        return self._rows(cells, count, lambda name, row: f"instances[{row}].{name}", {})

    def of_inputs(self, inputs: Any) -> Rows:
        """Reads the column form of a request: an object of lists, or one list where the signature has one input."""
        if self._only is not None and not isinstance(inputs, dict):
            inputs = {self._only: inputs}
        cells = dict(_checked(inputs, dict, "inputs", "send one list per column"))
        arguments = {name: cells.pop(name) for name in self._arguments if name in cells}
        self._check_names(cells, "inputs")
        for name, values in cells.items():
            _checked(values, list, f"inputs.{name}", "send a list with one value per row")
        longest: list[Any] = max((cells[name] for name in cells.keys() - self._companions), key=len, default=[])
        count = self._count_of(longest, "inputs")
        for name, values in cells.items():
            if len(values) == 1 and name in self._companions:
                cells[name] = values * count
            elif len(values) != count:
                problem = f"has {counted(len(values), 'value')}, and others have {count:,}"
                raise RequestError(problem, where=f"inputs.{name}", fix="send lists of one length, the number of rows")
        return self._rows(cells, count, lambda name, row: f"inputs.{name}[{row}]", arguments)

    def _count_of(self, rows: Any, where: str) -> int:
        """Returns the number of rows. RequestError: no list, no rows, or more rows or values (rows times inputs) than allowed."""
        count = len(_checked(rows, list, where, "send one object per row, or a list of values per column as inputs"))
        if not count:
            raise RequestError("has no rows", where=where, fix="send at least one")
        check_size(count, "rows", where, MOST_ROWS)
        check_size(count * len(self._inputs), "values, with those that are left out", where, MOST_VALUES)
        return count

    def _check_names(self, names: Iterable[str], where: str) -> None:
        for name in sorted({*names} - {*self._inputs}):
            fix = suggest(name, list(self._inputs))
            if name in self._arguments:
                fix = f'send the column form, {{"inputs": {{..., "{name}": value}}}}: it is one value for all rows'
            elif name.endswith((PRESENT, LENGTH)) and self.name != NULLABLE:
                fix = f'ask for "signature_name": "{NULLABLE}"'
            raise RequestError(f"{self.name} has no input {_shown(name)}", where=where, fix=fix)

    def _cells(self, instances: list[Any]) -> Cells:
        """Returns {input: each row's value, or None}. RequestError: a row is no object, or has a key that is no input."""
        for number, row in enumerate(instances):
            _checked(
                row, dict, f"instances[{number}]", 'send one object per row: {"instances": [{"name": value, ...}, ...]}'
            )
        names = set[str]().union(*instances)
        self._check_names(names, "instances")
        return {name: [row.get(name) for row in instances] for name in names}

    def _rows(self, cells: Cells, count: int, place: Callable[[str, int], str], arguments: Mapping[str, Any]) -> Rows:
        """Returns the arrays made of `cells`. An input that `cells` lacks is null in each row. `place` names a cell in errors."""
        arrays: dict[str, Array] = {}
        for name, one in self._inputs.items():
            values, where = cells.get(name, [None] * count), partial(place, name)
            if one.null_words:  # those of a text the model knows itself
                values = [None if isinstance(value, str) and value in one.null_words else value for value in values]
            mask = is_given = np.fromiter((value is not None for value in values), np.bool_, count)
            if not (one.takes_null or is_given.all()):
                fix = f'send {one.words}; nulls of nullable columns go to "signature_name": "{NULLABLE}"'
                problem = f"is null or missing, and {self.name} has no nulls here"
                raise RequestError(problem, where=where(int(is_given.argmin())), fix=fix)
            kept = [value for value in values if value is not None]
            if one.wanted is not None:
                lengths = _lengths(values, one.wanted, where)
                width = one.wanted or int(lengths.max())
                filled = count * width + sum(array.size for array in arrays.values())
                check_size(filled, "values, when lists are filled up to the longest", where(0), MOST_VALUES)
                mask, kept = np.arange(width) < lengths[:, None], [item for value in kept for item in value]
                if (told := arrays.get(name + LENGTH)) is not None:
                    arrays[name + LENGTH] = np.where(told < 0, lengths, np.minimum(told, lengths))
                elif (is_short := is_given & (lengths < width)).any():
                    problem = f"has fewer values than another row, which has {width:,}"
                    fix = f'ask for "signature_name": "{NULLABLE}", whose lists may differ in length'
                    raise RequestError(problem, where=where(int(is_short.argmax())), fix=fix)
            arrays[name] = _filled(kept, mask, one, where)
            if name + PRESENT in arrays:
                arrays[name + PRESENT] &= is_given
        for name, tensor in self._arguments.items():
            value, where = arguments.get(name, tensor.default), partial("inputs.{}".format, name)
            arrays[name] = _filled([value], np.ones(1, np.bool_), _Input(tensor, None), where).reshape(())
        return Rows(self.name, count, arrays)


class _Input:
    """One input of a signature: the values that the input takes, and the value that stands for a null in its array."""

    def __init__(self, tensor: Tensor, column: Column | None, *, has_presence: bool = False):
        self.dtype, self.words = tensor.dtype, _WORDS[tensor.dtype]
        if column is not None and column.temporal:
            self.words = f"an integer, {UNITS[column.temporal]} since 1970-01-01 (UTC)"
        self.null_words = None if column is None or tensor.dtype == "string" else column.null
        self.wanted = (tensor.shape[1] or 0) if len(tensor.shape) == 2 else None
        """The number of values in a row's list; 0: any number; None: a row has one value and no list."""
        can_be_nan = tensor.dtype == "float32" and not has_presence
        is_nullable = column is not None and column.nullable and (has_presence or (can_be_nan and self.wanted != 0))
        self.takes_null = is_nullable or tensor.default is not None
        self.fill: Any = math.nan if can_be_nan else b"" if tensor.dtype == "string" else tensor.default or 0


def _checked(value: Any, kind: type, where: str, fix: str) -> Any:
    if not isinstance(value, kind):
        raise RequestError(f"is {_shown(value)}, not {'an object' if kind is dict else 'a list'}", where=where, fix=fix)
    return value


def _lengths(values: Sequence[Any], wanted: int, where: Callable[[int], str]) -> NDArray[np.int64]:
    """Returns the length of each row's list, 0 for a null. RequestError: no list, or its length is not `wanted` (0: any)."""
    for row, value in enumerate(values):
        if value is not None and not (isinstance(value, list) and (not wanted or len(value) == wanted)):
            fits = f"a list of {counted(wanted, 'value')}" if wanted else "a list"
            raise RequestError(f"is {_shown(value)}, not {fits}", where=where(row), fix=f"send {fits}")
    return np.array([len(value or ()) for value in values], np.int64)


def _filled(values: list[Any], mask: NDArray[np.bool_], one: _Input, where: Callable[[int], str]) -> Array:
    """Returns an input's array: `values`, in order, where `mask` is true, else the fill value. RequestError: a wrong value."""
    array = np.full(mask.shape, one.fill, object if one.dtype == "string" else one.dtype)
    try:
        array[mask] = _converted(values, one.dtype)
    except (ValueError, OverflowError):
        at = next(at for at, value in enumerate(values) if not _converts(value, one.dtype))
        row, *inner = np.argwhere(mask)[at].tolist()
        place, quotes = where(row) + "".join(f"[{number}]" for number in inner), isinstance(values[at], str)
        if quotes and len(values[at]) > MAX_CELL_BYTES:
            fix = "send a shorter text: ingest rejects such a value, too"
            raise RequestError(f"is a text of {len(values[at]):,} letters", status=413, where=place, fix=fix) from None
        fix = f"send {one.words}" + (", without quotes" if quotes and one.dtype != "string" else "")
        raise RequestError(f"is {_shown(values[at])}, not {one.words}", where=place, fix=fix) from None
    return array


def _converted(values: list[Any], dtype: str) -> Array:
    """Returns JSON values as an array. ValueError: one has another type; OverflowError: one is too large."""
    if not {*map(type, values)} <= _TYPES[dtype]:
        raise ValueError
    if dtype == "string":
        if max(map(len, values), default=0) > MAX_CELL_BYTES:  # TensorFlow would copy it several times
            raise OverflowError
        return np.fromiter((v if isinstance(v, bytes) else v.encode() for v in values), object, len(values))
    array = np.array(values, np.float64 if dtype == "float32" else dtype)
    with np.errstate(over="ignore"):
        converted = array.astype(dtype)
    if (np.isfinite(array) & ~np.isfinite(converted)).any():
        raise OverflowError
    return converted


def _converts(value: Any, dtype: str) -> bool:
    try:
        return len(_converted([value], dtype)) == 1
    except (ValueError, OverflowError):
        return False


def _shown(value: Any) -> str:
    """Returns a JSON value for a message, cut short."""
    if isinstance(value, list):
        return f"a list of {counted(len(value), 'value')}"
    if isinstance(value, dict | bytes):
        return "an object" if isinstance(value, dict) else "bytes"
    return json.dumps(value) if value is None or isinstance(value, bool) else reprlib.repr(value)
