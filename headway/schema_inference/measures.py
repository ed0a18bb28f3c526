"""Recognizes numbers with a unit, shortened numbers, and durations in the text of a column.

measure_of(pa.array(["12 kg", "3.5 kg", "7kg"]), counts)       # Measure(rules=(number with unit kg, ...))
measure_of(pa.array(["1.2M", "300k", "950"]), counts)          # abbreviated
measure_of(pa.array(["1:02:03", "0:45:10"]), counts)           # duration
measure_of(pa.array(["12 kg", "30 lb"]), counts).differ        # ("12 kg", "30 lb"): it stays text
"""

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headway.schema.number_texts import SHORT
from headway.schema.parse_rules import Parse
from headway.sources.sample import ONE_IN

_WITH_UNIT = (
    r"^(?P<number>[-+−]?\s?\p{Sc}?[0-9.][0-9.,'’\x{00a0}\x{202f} ]*?)\s*"
    r"(?P<unit>[^\s0-9.,()%:;/–-][^0-9,;:()]{0,11}[23]?)$"
)
_LIKE_ONE = re.compile(
    r"\s*[-+−]?\s?[^\w\s]?[0-9.][0-9.,'’\u00a0\u202f ]*(?:[^\s0-9.,()%:;/–-][^0-9,;:()]{0,11}[23]?)?\s*"
)
_LIKE_DURATION = re.compile(
    r"(?i)\s*-?(?:[0-9]{1,5}\s*d(?:ays?)?,?\s+[+-]?|[0-9]{1,5}[.])?(?:[0-9]{1,5}:[0-5][0-9](?::[0-5][0-9](?:[.,][0-9]+)?)?"
    r"(?:\s*[ap]\.?m\.?)?|[0-9]{1,2}\s*[ap]\.?m\.?|(?:[0-9]{1,5}\s*h(?:(?:ou)?rs?)?)?,?\s*"
    r"(?:[0-9]{1,6}\s*m(?:in(?:ute)?s?)?)?,?\s*(?:[0-9.,]+\s*s(?:ec(?:ond)?s?)?)?)\s*"
)
_FIRST, _MOSTLY = 50, 0.9
_LEAST_NUMBERS = 3
"""Of fewer different numbers a category says as much, and keeps its words."""
_ALONE = frozenset({"m", "b", "t"})
"""Metres, bytes or tonnes rather than millions, unless other such words or a currency stand in the column."""
_ZEROS = r"^0[0-9]"


@dataclass(frozen=True)
class Measure:
    """What the text may be: rules to try, the likeliest first, or two texts whose units differ."""

    rules: tuple[Parse, ...] = ()
    differ: tuple[str, str] | None = None


def measure_of(distinct: pa.Array, counts: pa.Array) -> Measure:
    """The rules that may read a column's distinct texts.

    Args:
        counts: how many rows hold each text.
    """
    first = distinct.slice(0, _FIRST).to_pylist()
    enough = _MOSTLY * len(first)
    if sum(bool(_LIKE_DURATION.fullmatch(text)) and any(map(str.isdigit, text)) for text in first) >= enough:
        parted = sum(":" in text or len(re.findall(r"[0-9]\s*[a-zA-Z]", text)) > 1 for text in first)
        if parted or any(re.search(r"(?i)[ap]\.?m\.?$", text.strip()) for text in first):
            return Measure((Parse.model_validate("duration"),))
    if sum(bool(_LIKE_ONE.fullmatch(text)) for text in first) < enough:
        return Measure()
    return _with_units(pc.utf8_trim_whitespace(distinct), counts)


def _with_units(texts: pa.Array, counts: pa.Array) -> Measure:
    few = (pc.sum(pc.match_substring_regex(texts, r"^[^A-Za-z]?[0-9]")).as_py() or 0) < _LEAST_NUMBERS
    match = pc.extract_regex(texts, _WITH_UNIT)
    has_unit = match.is_valid()
    texts, counts, match = texts.filter(has_unit), counts.filter(has_unit), match.filter(has_unit)
    signs = pc.replace_substring_regex(texts, r"\P{Sc}", "")
    currencies = [sign for sign in pc.unique(signs).to_pylist() if sign]
    if len(currencies) > 1:
        one, other = (texts[pc.index(signs, sign).as_py()].as_py() for sign in currencies[:2])
        return Measure(differ=(one, other))
    numbers, written = pc.struct_field(match, "number"), pc.struct_field(match, "unit")
    if not len(texts) or few or pc.any(pc.match_substring_regex(numbers, _ZEROS)).as_py():
        return Measure()
    units = pc.utf8_lower(pc.utf8_trim_whitespace(written))
    rows = pc.sum(counts).as_py()
    used = pa.table({"unit": units, "rows": counts}).group_by("unit").aggregate([("rows", "sum")])
    of_unit = dict(zip(used["unit"].to_pylist(), used["rows_sum"].to_pylist(), strict=True))
    short = {unit for unit in of_unit if unit in SHORT}
    is_short = sum(of_unit[unit] for unit in short) >= rows - rows // ONE_IN
    if is_short and (len(short) > 1 or not short <= _ALONE or _is_large(texts, written)):
        return Measure((Parse.model_validate("abbreviated"),))
    stems: dict[str, int] = {}
    for unit, count in of_unit.items():
        stems[_stem(unit)] = stems.get(_stem(unit), 0) + count
    ranked = sorted(stems, key=lambda stem: (-stems[stem], stem))
    if stems[ranked[0]] < rows - rows // ONE_IN:
        if len(ranked) <= 3 and sum(stems.values()) == rows:
            stem = pa.array([_stem(unit) for unit in units.to_pylist()])
            one, other = (texts[pc.index(stem, unit).as_py()].as_py() for unit in ranked[:2])
            return Measure(differ=(one, other))
        return Measure()
    unit = sorted(unit for unit in of_unit if _stem(unit) == ranked[0])
    spelled = [pc.utf8_trim_whitespace(written)[pc.index(units, one).as_py()].as_py() for one in unit]
    return Measure(tuple(Parse.model_validate({"as": style, "unit": spelled}) for style in ("number", "decimal_comma")))


def _stem(unit: str) -> str:
    """A unit without point and plural: year, years and Years. are one."""
    return unit.rstrip(".").removesuffix("s") or unit


def _is_large(texts: pa.Array, units: pa.Array) -> bool:
    """Whether a currency stands before a number, or its word is a capital."""
    currency = pc.any(pc.match_substring_regex(texts, r"^[-+−]?\s?\p{Sc}")).as_py()
    return bool(currency or pc.all(pc.match_substring_regex(units, "^[KMBT]$")).as_py())
