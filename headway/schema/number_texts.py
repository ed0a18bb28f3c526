"""Converts numbers as people write them: with currencies, units or thousands separators, shortened, or as durations.

    plain_numbers(pa.array(["$1,234.50", "(12)"]), "number")  # "1234.50", "-12": plain numbers, still text
    without_units(pa.array(["12 kg", "3.5kg"]), ("kg",))      # "12", "3.5"
    abbreviated(pa.array(["1.2M", "300k"]))                   # "1.2e6", "300e3"
    durations(pa.array(["1:02:03", "2:35 PM", "2h 50m"]))     # "3723", "52500", "10200": seconds

A text that does not fit stays as it is.
"""

import functools
import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_CURRENCY = (
    r"(?:[A-Za-z]{0,3}\p{Sc}|(?i:USD|EUR|GBP|JPY|CNY|RMB|CHF|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR|KRW|"
    r"SGD|HKD|TRY|ILS|kr|zł|Kč|Ft|Rs)\.?)"
)
_GAP = "[ \\x{00a0}\\x{202f}\\x{2009}]"
_GROUPS = {
    "number": rf"[0-9]{{1,3}}(?:,[0-9]{{2}})*,[0-9]{{3}}|[0-9]{{1,3}}(?:,[0-9]{{3}})+|[0-9]{{1,3}}(?:{_GAP}[0-9]{{3}})+"
    r"|[0-9]{1,3}(?:['’_][0-9]{3})+",
    "decimal_comma": rf"[0-9]{{1,3}}(?:\.[0-9]{{3}})+|[0-9]{{1,3}}(?:{_GAP}[0-9]{{3}})+|[0-9]{{1,3}}(?:['’][0-9]{{3}})+",
}
_FRACTION = {"number": r"\.", "decimal_comma": ","}
_PARTS_OF_NUMBER = ("open", "sign", "before", "inner", "whole", "rest", "after", "close")
_TRUE, _FALSE = ("1", "y", "yes", "t", "true", "on", "1.0"), ("0", "n", "no", "f", "false", "off", "0.0")
SHORT = {"k": 3, "m": 6, "mn": 6, "mio": 6, "mln": 6, "million": 6, "millions": 6, "b": 9, "bn": 9, "billion": 9,
         "billions": 9, "thousand": 3, "t": 12, "tn": 12, "trillion": 12}  # fmt: skip
"""The words that may follow a shortened number, in lower case, with the power of ten that each means."""
_SHORTENED = (
    rf"(?i)^(?P<number>.*[0-9][.,]?)\s*(?P<word>{'|'.join(sorted(SHORT, key=len, reverse=True))})(?P<rest>[.)]?)$"
)
_CLOCK = (
    r"(?i)^(?P<minus>-?)(?:(?P<days>[0-9]{1,5})(?:\.|(?P<word>\s*d(?:ays?)?,?\s+)(?P<clock>[+-]?)))?"
    r"(?P<hours>[0-9]{1,5})(?::(?P<minutes>[0-5][0-9])(?::(?P<seconds>[0-5][0-9](?:[.,][0-9]{1,9})?))?)?\s*(?P<half>(?:[ap]\.?m\.?)?)$"
)
_SPELLED = (
    r"(?i)^(?P<minus>-?)(?:(?P<days>[0-9]{1,5})\s*d(?:ays?)?)?,?\s*(?:(?P<hours>[0-9]{1,5})\s*h(?:(?:ou)?rs?)?)?,?\s*"
    r"(?:(?P<minutes>[0-9]{1,6})\s*m(?:in(?:ute)?s?)?)?,?\s*"
    r"(?:(?P<seconds>[0-9]{1,7}(?:[.,][0-9]{1,9})?)\s*s(?:ec(?:ond)?s?)?)?(?P<half>)$"
)
"""A pattern for durations with letters: 2h 50m, 1 hr 5 min, 45 min."""


def number_pattern(kind: str) -> str:
    """Returns a regular expression for numbers of a kind, "number" or "decimal_comma", with a named group for each part."""
    return (
        rf"^(?P<open>\(?)\s*(?P<sign>[-+−]?)\s*(?P<before>{_CURRENCY}?)\s*(?P<inner>[-+−]?)\s*"
        rf"(?P<whole>(?:{_GROUPS[kind]}|[0-9]+)?)(?P<rest>(?:{_FRACTION[kind]}[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*"
        rf"(?P<after>(?:{_CURRENCY}|%)?)\s*(?P<close>\)?)$"
    )


def plain_numbers(texts: pa.Array, kind: str) -> pa.Array:
    if not pc.any(may_be_number(texts)).as_py():  # the whole pattern takes milliseconds to compile, for each column
        return texts
    match = pc.extract_regex(texts, number_pattern(kind))
    if match.null_count == len(match):
        return texts
    open_, sign, before, inner, whole, rest, after, close = (pc.struct_field(match, name) for name in _PARTS_OF_NUMBER)
    digits = pc.match_substring_regex(pc.binary_join_element_wise(whole, rest, ""), "[0-9]")
    once = pc.or_(pc.equal(sign, ""), pc.equal(inner, ""))
    once = pc.and_(once, pc.or_(pc.equal(before, ""), pc.equal(after, "")))
    closed = pc.equal(pc.not_equal(open_, ""), pc.not_equal(close, ""))
    signed = pc.equal(pc.binary_join_element_wise(sign, inner, ""), "")
    closed = pc.and_(closed, pc.or_(signed, pc.equal(open_, "")))
    fits = pc.fill_null(pc.and_(pc.and_(digits, once), closed), False)
    minus = pc.or_(pc.is_in(sign, value_set=pa.array(["-", "−"])), pc.is_in(inner, value_set=pa.array(["-", "−"])))
    minus = pc.or_(minus, pc.equal(open_, "("))
    whole = pc.replace_substring_regex(whole, "[^0-9]", "")
    rest = pc.replace_substring(rest, ",", ".")
    numbers = pc.binary_join_element_wise(pc.if_else(minus, "-", ""), whole, rest, "")
    return pc.if_else(fits, numbers, texts)


def may_be_number(texts: pa.Array) -> pa.Array:
    """Returns a mask of the texts that have a digit and no word of four letters: a currency has at most three letters."""
    return pc.and_(pc.match_substring_regex(texts, "[0-9]"), pc.invert(pc.match_substring_regex(texts, "[A-Za-z]{4}")))


def plain_booleans(texts: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(texts)
    trues = pc.if_else(pc.is_in(lower, value_set=pa.array(_TRUE)), "1", texts)
    return pc.if_else(pc.is_in(lower, value_set=pa.array(_FALSE)), "0", trues)


def without_units(texts: pa.Array, units: Sequence[str]) -> pa.Array:
    """Returns the texts without the unit that follows the number. The unit may be in upper or lower case."""
    either = "|".join(re.escape(unit) for unit in sorted(units, key=len, reverse=True))
    return pc.replace_substring_regex(texts, rf"(?i)([0-9.,)])\s*(?:{either})$", r"\1")


def abbreviated(texts: pa.Array) -> pa.Array:
    """Returns shortened numbers with an exponent, 1.2M as 1.2e6, and other numbers as plain ones. All stay text."""
    match = pc.extract_regex(texts, _SHORTENED)
    if match.null_count == len(match):
        return plain_numbers(texts, "number")
    number, word, rest = (pc.struct_field(match, name) for name in ("number", "word", "rest"))
    powers = pa.array([f"e{power}" for power in SHORT.values()])
    power = powers.take(pc.index_in(pc.utf8_lower(word), value_set=pa.array(list(SHORT))))
    rest = pc.replace_substring(rest, ".", "")
    written = pc.binary_join_element_wise(number, power, rest, "")
    made = plain_numbers(pc.coalesce(written, texts), "number")
    # a number with a power of ten of its own, or none at all, is none with another
    return pc.if_else(
        pc.fill_null(pc.match_substring_regex(made, r"^[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?$"), False), made, texts
    )


def durations(texts: pa.Array) -> pa.Array:
    """Convert durations and times of day to seconds, as text. In 1:30 the first number is hours."""
    seconds, fits = _seconds(texts, _CLOCK)
    fits &= pc.fill_null(pc.match_substring_regex(texts, "(?i):|m"), False).to_numpy(zero_copy_only=False)
    spelled, also = _seconds(texts, _SPELLED)
    seconds = np.where(fits, seconds, spelled)
    numbers = pa.array([format(value, ".15g") for value in seconds.tolist()], pa.string())
    return pc.if_else(pa.array(fits | also), numbers, texts)


def _seconds(texts: pa.Array, pattern: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Returns the seconds of each text, and a mask of the texts that fit: they match, and hours with am or pm are 1 to 12."""
    match = pc.extract_regex(texts, pattern)
    parts = {
        match.type.field(i).name: pc.fill_null(pc.struct_field(match, i), "") for i in range(match.type.num_fields)
    }

    def number(name: str) -> NDArray[np.float64]:
        digits = pc.replace_substring(parts[name], ",", ".")
        return np.asarray(pc.if_else(pc.equal(digits, ""), "0", digits).cast(pa.float64()).to_numpy())

    filled = functools.reduce(
        pc.or_, (pc.not_equal(parts[name], "") for name in ("days", "hours", "minutes", "seconds"))
    )
    fits = pc.and_(match.is_valid(), filled).to_numpy(zero_copy_only=False)
    hours, half = number("hours"), pc.utf8_slice_codeunits(pc.utf8_lower(parts["half"]), 0, 1)
    is_half = pc.not_equal(half, "").to_numpy(zero_copy_only=False)
    fits &= ~is_half | ((hours >= 1) & (hours <= 12))
    hours = np.where(is_half, hours % 12 + 12 * pc.equal(half, "p").to_numpy(zero_copy_only=False), hours)
    days, clock = number("days") * 86_400, (hours * 60 + number("minutes")) * 60 + number("seconds")

    def sign(name: str) -> NDArray[np.int64]:
        return np.where(pc.equal(parts[name], "-").to_numpy(zero_copy_only=False), -1, 1)

    if "word" not in parts:
        return sign("minus") * (days + clock), fits
    # as Python, pandas and databases write it: -1 day, 23:00:00 is an hour less than none
    apart = pc.not_equal(parts["word"], "").to_numpy(zero_copy_only=False)
    return sign("minus") * days + np.where(apart, sign("clock"), sign("minus")) * clock, fits
