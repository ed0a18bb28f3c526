"""Infers the kinds of values in JSON lines, and the Arrow type to read each column as.

seen_in(b'{"a": {"b": 1}}\\n', path)          # {"a.b": [["a", "b"], "int", "int"]}
read_type(pa.int64(), "bool")                # bool: coercion makes it 0 and 1
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa

from headway.errors import DataError
from headway.sources.sample import ONE_IN
from headway.sources.type_conflicts import EMPTY_LIST, Seen
from headway.tabular.list_arrays import value_type

Kinds = dict[str, list[Any]]
"""By column: [the way to it, the kind of all its values but a few odd ones, the kind of most]; a kind is
int, float, bool, text, mixed, null, list:<kind>, or object in a list. Plain JSON."""
_LISTS, _LARGE = "list:", "large"
"""Large: digits beyond int64."""
_FEW = 64
"""So many large integers of some lines are odd ones that the whole sample judges, however few the lines are."""
_PLAIN = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "null": pa.null()}


class Number(str):
    """A number in the spelling of the file."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        seen = set[str]()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} stands twice")
    return entries


DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=Number, object_pairs_hook=_once)


def decode(line: bytes) -> Any:
    """Decode a line; numbers keep their spelling.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return DECODER.decode(line.decode("utf-8", "surrogateescape"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def as_json(value: Any) -> str:
    """Encode what `decode` returned as JSON, numbers in their spelling; a single text without quotes."""
    return str(value) if isinstance(value, str) else _as_json(value)


def _as_json(value: Any) -> str:
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_as_json, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key, ensure_ascii=False)}: {_as_json(inner)}' for key, inner in value.items())}}}"
    return json.dumps(value, ensure_ascii=False)


def seen_in(data: bytes, path: str) -> Kinds:
    """The columns of some lines; broken lines show none. Like `counted_in`."""
    return counted_in(data, path)[0]


def counted_in(data: bytes, path: str) -> tuple[Kinds, dict[tuple[str, ...], Seen]]:
    """The columns of some lines, and the number of values of each form.

    Raises:
        DataError: its rows are lists, or two columns have the same name.
    """
    if data.lstrip()[:1] == b"[":
        raise DataError(
            "its rows are lists, and objects with keys are wanted",
            where=path,
            fix="write them as CSV with a header: jq -r '.[] | @csv' old.json",
        )
    counts: dict[tuple[str, ...], Counter[str]] = {}
    for line in data.splitlines():
        try:
            value = decode(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            _count(value, (), counts)
    overruled = {way for way in counts if _overruled(way, counts)}
    kinds_of: Kinds = {}
    columns = {}
    for way, kinds in counts.items():
        name = ".".join(way)
        if way in overruled:  # it counts as another form of what overrules it
            columns[way] = Seen(_form(_together(_usual(_settled(kinds)))), kinds.total() - kinds["null"], kinds.total())
            continue
        if name in kinds_of:
            raise DataError(f"the file has two columns {name!r}", where=path, fix="rename one of them")
        kind = _together(_usual(_settled(kinds)))
        kinds_of[name] = [list(way), kind, _most(_settled(kinds, few=0))]
        columns[way] = Seen(_form(kind), kinds.total() - kinds["null"], kinds.total())
    return kinds_of, columns


def _count(value: dict[str, Any], way: tuple[str, ...], counts: dict[tuple[str, ...], Counter[str]]) -> None:
    for key, inner in value.items():
        here = (*way, key)
        if isinstance(inner, dict):
            _count(inner, here, counts)
        else:
            counts.setdefault(here, Counter())[_kind(inner)] += 1


def _overruled(way: tuple[str, ...], counts: dict[tuple[str, ...], Counter[str]]) -> bool:
    """Whether this path holds objects more often than values, or lies within one that holds values more often."""
    values = counts[way].total() - counts[way]["null"]
    below = [other for other in counts if len(other) > len(way) and other[: len(way)] == way]
    above = [other for other in counts if len(other) < len(way) and way[: len(other)] == other]
    if below and values <= max(counts[other].total() for other in below):
        return True
    return any(counts[other].total() - counts[other]["null"] > counts[way].total() for other in above)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, Number):
        if not value.lstrip("-").isdigit():
            return "float"
        return "int" if -(1 << 63) <= int(value[:30]) < 1 << 63 else _LARGE
    if isinstance(value, list):
        kinds = Counter(_kind(item) for item in value)
        return _LISTS + _together(kinds)
    return "text" if isinstance(value, str) else "object"


def _settled(kinds: Counter[str], few: int = _FEW) -> Counter[str]:
    """Settle the kind of large integers: exceptional integers where they are few, else read as they are spelled."""
    values = kinds.total() - kinds["null"]
    settled: Counter[str] = Counter()
    for kind, count in kinds.items():
        if kind.endswith(_LARGE):
            rare = count <= few or (few and count * ONE_IN <= values)
            kind = kind.removesuffix(_LARGE) + ("int" if rare else _LARGE)
        settled[kind] += count
    return settled


def _usual(kinds: Counter[str]) -> Counter[str]:
    """The kinds without rare ones: one exceptional line decides nothing."""
    values = kinds.total() - kinds["null"]
    return Counter({kind: count for kind, count in kinds.items() if kind == "null" or count * ONE_IN > values})


def is_number(kind: str) -> bool:
    """Whether the values are numbers, true or false, or lists of them."""
    return kind.removeprefix(_LISTS) in ("int", "float", "bool", _LARGE)


def storable(kind: str) -> bool:
    """Whether a column can be of that kind: values and lists of them, no lists of lists or of objects."""
    inner = kind.removeprefix(_LISTS)
    return inner != "object" and not inner.startswith(_LISTS)


def _together(kinds: Counter[str]) -> str:
    """The one kind that covers all of these."""
    typed = {kind for kind in kinds if kind not in ("null", "list:null")}
    if not typed:
        return "list:null" if "list:null" in kinds else "null"
    if len(typed) == 1 and ("list:null" not in kinds or next(iter(typed)).startswith(_LISTS)):
        return typed.pop()
    if all(kind.startswith(_LISTS) for kind in typed):
        return _LISTS + _together(Counter({kind.removeprefix(_LISTS): 1 for kind in typed}))
    if not typed <= {"int", _LARGE, "float"} or "list:null" in kinds:
        return "mixed"
    return "float" if "float" in typed else _LARGE


def _most(kinds: Counter[str]) -> str:
    """The kind of most values, so that a few exceptions do not make the others slow to read."""
    typed = Counter({kind: count for kind, count in kinds.items() if kind not in ("null", "list:null")})
    if not typed:
        return _together(kinds)
    kind = typed.most_common(1)[0][0]
    return "float" if kind == "int" and typed["float"] else kind


def _form(kind: str) -> str | None:
    """The user's word for values of that kind; None for nulls only."""
    if kind == "null":
        return None
    if not kind.startswith(_LISTS):
        return "one value"
    inner = kind.removeprefix(_LISTS)
    if inner == "null":
        return EMPTY_LIST
    return "a list of objects" if inner == "object" else "a list of lists" if inner.startswith(_LISTS) else "a list"


def natural(kind: str) -> pa.DataType:
    """The type of a column without a wanted type; text is bytes."""
    if not storable(kind):  # one type for all, whatever lies in them
        return pa.list_(pa.struct([]) if kind == _LISTS + "object" else pa.list_(pa.null()))
    if kind.startswith(_LISTS):
        return pa.list_(natural(kind.removeprefix(_LISTS)))
    return _PLAIN.get(kind, pa.string())


def read_type(chosen: pa.DataType | None, kind: str | None) -> pa.DataType:
    """The type to ask Arrow for: the wanted one, or the file's where coercion converts it."""
    if chosen is None:
        inferred = natural(kind or "text")
        return pa.binary() if pa.types.is_string(inferred) or pa.types.is_null(inferred) else inferred
    chosen = value_type(chosen)
    if pa.types.is_list(chosen):
        inner = kind.removeprefix(_LISTS) if kind and kind.startswith(_LISTS) else None
        return pa.list_(read_type(chosen.value_type, inner))
    if kind == "bool" or (kind == "int" and pa.types.is_binary(chosen)):
        return _PLAIN[kind]
    return pa.binary() if kind in ("text", "mixed") else chosen
