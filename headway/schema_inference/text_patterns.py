"""Recognizes numbers and dates in the sampled text of a column.

    found = recognized("price", values, plain=True)
    found.type, found.parse              # "float32", the rule number; None, None: text
    found.note                           # what to tell about it, without the column's name; None: nothing

One rule reads a whole column, and the same rule reads every later file. Of numbers and dates one value in a hundred may be
odd; dates must all be of one form, and a form that the values leave open (03/04/2013) is told rather than guessed.
"""

import functools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from headway.schema.columns import Column, StoredType
from headway.schema.date_forms import ISO_DATE, ISO_TIME, pattern_of
from headway.schema.decimal_signs import DecimalSign, sign_of
from headway.schema.number_texts import SHORT, number_pattern, without_units
from headway.schema.parse_rules import MARKERS, Parse, parsed, without_markers
from headway.sources.sample import ONE_IN
from headway.sources.type_inference import loss_of
from headway.tabular.coerce import converted
from headway.tabular.list_arrays import decoded

LONGEST = 64
"""Text with longer values than this on average is neither a number nor a date."""
_ZEROS, _DIGITS = r"^0[0-9]+$", r"^[0-9]+$"
_PLAIN = r"^[+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]+)?$"
_EXPONENT, _REAL = r"^[0-9]+[eE][0-9]+$", r"[.]|[eE][+-]"
_POINT_AND_THREE = r"^[^0-9%]*[0-9]{1,3}\.[0-9]{3}[^0-9.,%]*$"
_BEGINS_AS_NUMBER = r"^[-+−(]?\s?\p{Sc}?[.]?[0-9]"
_UNITS = r"\p{Sc}|%|[A-Za-z]"
_NO_UNIT = r"[^\p{Sc}%A-Za-zł]"
_NOTHING = r"^[+-]?0*[.]?0*$"
_DATE_DIGITS = (
    (r"^(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])$", "%Y%m%d"),
    (r"^(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])$", "%Y%m"),
)
_EPOCH = "1[0-9]{9}(?:[0-9]{3})?"
"""Seconds or milliseconds since 1970, of the years 2001 to 2033."""
_MOST_FORMS = 5
_LEAST_NAMED = 3
_FIRST = 20
_MOST_MISSING = 0.5
"""The share of rows that one word may take among numbers, for it to mean that the number is missing."""
_LEAST_DIGITS = 3
"""Of a date: 1-Jan-13."""
_KEEP = "say 'type: string' to keep the text"
_TIMES = ("", " %H:%M", " %H:%M:%S", "T%H:%M", "T%H:%M:%S", " %I:%M %p", " %I:%M:%S %p", " %I:%M%p", ", %I:%M %p",
          ", %I:%M:%S %p", ", %H:%M", ", %H:%M:%S", " %H:%M %z", " %H:%M:%S %z", "T%H:%M:%S%z", " %H:%M:%S%z")  # fmt: skip
_DATES = ("%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d-%m-%Y", "%m/%d/%y", "%d/%m/%y",
          "%d.%m.%y", "%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%d %b, %Y", "%d/%b/%Y", "%d%b%Y", "%b %d %Y", "%b %d, %Y", "%b-%d-%Y",
          "%Y %b %d", "%Y-%b-%d", "%a %d %b %Y", "%a, %d %b %Y", "%a %b %d %Y", "%a, %b %d, %Y", "%Y-%m-%d")  # fmt: skip
_PERIODS = ("%Y-%m", "%Y/%m", "%m/%Y", "%m-%Y", "%b %Y", "%b-%Y", "%b, %Y", "%Y-%b", "%b-%y", "%YQ%q", "%Y-Q%q",
            "%Y Q%q", "%Y/Q%q", "Q%q %Y", "Q%q-%Y", "Q%q/%Y", "%G-W%V", "%GW%V", "%G W%V", "%G-W%V-%u")  # fmt: skip
"""Months, quarters and weeks: each counts as its first day."""


_NUMBER_COLUMN = Column(name="value", type="float32", nullable=True)


@dataclass(frozen=True)
class Recognized:
    type: StoredType | None = None
    """None: it stays text."""
    parse: Parse | None = None
    note: str | None = None
    doubt: bool = False
    """Whether a person should look at the note: it may be meant in another way."""


def recognized(
    values: pa.ChunkedArray | pa.Array,
    *,
    plain: bool,
    dates: bool = True,
    digits: bool = True,
    named: bool = False,
    decimal: DecimalSign | None = None,
) -> Recognized:
    """The type and parse rule of a column's text, if it holds numbers or dates, and a note for the user.

    Args:
        plain: whether the format writes numbers as text, so that plain digits are numbers; elsewhere text that is all
            digits was meant to be text, unless a marker of what is missing stands among it.
        dates: whether dates may be read as such; a column that an expression compares with text may not.
        digits: whether digits may be a date (20130131) or a month (201301); what the pipeline says of a column is of the
            number.
        named: whether the column's name says that it holds dates, so that few different digits are enough.
        decimal: the decimal sign of the other numbers of the file, for texts that read both ways, such as 1,234; "either" where
            none shows it and the comma is likelier: it is read as one, and in doubt; None: it is read as thousands, in doubt.
    """
    texts = _texts(values)
    if texts is None:
        return Recognized()
    counts = pc.value_counts(texts)
    distinct, many = pc.struct_field(counts, 0), pc.struct_field(counts, 1)
    lower = pc.utf8_lower(pc.utf8_trim_whitespace(distinct))
    marked = pc.is_in(lower, value_set=pa.array(sorted(MARKERS)))
    if plain and (word := _word_for_missing(distinct.filter(pc.invert(marked)), many.filter(pc.invert(marked)))):
        marked = pc.or_(marked, pc.equal(lower, word))
    markers = distinct.filter(marked)
    distinct, many = distinct.filter(pc.invert(marked)), many.filter(pc.invert(marked))
    if not len(distinct):
        return Recognized()
    rows = pc.sum(many).as_py()
    null = tuple(sorted({text.strip() for text in markers.to_pylist()}))
    trimmed = pc.utf8_trim_whitespace(distinct)
    if (zeros := _leading_zeros(trimmed, many, rows)) is not None:
        return zeros if plain else Recognized()
    if plain and (codes := _codes(trimmed, many, rows)) is not None:
        return codes
    missing = _missing(texts, null)
    least = _LEAST_NAMED if named else _FIRST
    if plain and dates and digits and (digits_form := _digits_form(trimmed, many, rows, least)) is not None:
        rule = _rule("date").model_copy(update={"format": digits_form, "null": null})
        read = _note(distinct, rule, "say 'type: int' to keep the number")
        return Recognized("int64", rule, _joined(read, missing, _odd(trimmed, many, rows, rule)[0]))
    order, open_signs = _styles(trimmed, decimal, plain=plain)
    if (
        (plain or any(null))
        and not (order[0] == "decimal_comma" and pc.any(pc.match_substring(trimmed, ".")).as_py())
        and (numeric := _numbers(distinct, many, rows, _rule("number", null), decorated=False)) is not None
    ):
        kind, unfit = numeric
        if not null:  # nothing to parse
            return Recognized(kind, None, unfit)
        rule = _rule("number", null)
        return Recognized(kind, rule, _joined(f"read as numbers: {missing}", unfit))
    for style in order:
        rule = _rule(style, null)
        numeric = _numbers(distinct, many, rows, rule, decorated=True)
        if numeric is not None:
            kind, unfit = numeric
            if both := _units_differ(distinct, rule):
                note = f"read as text: its numbers have different units, such as {both[0]!r} and {both[1]!r}; "
                return Recognized(None, None, f"{note}say 'parse: {style}' to read them all alike", doubt=True)
            either = _either_way(distinct, rule) if open_signs else None
            note = _joined(_note(distinct, rule), missing, either, unfit) or ""
            return Recognized(kind, rule, note, doubt=either is not None)
    measure = measure_of(distinct, many)
    if measure.rules and measure.rules[0].unit:
        order, open_signs = _styles(without_units(trimmed, measure.rules[0].unit), decimal, plain=plain)
    rules = sorted(measure.rules, key=lambda rule: rule.as_ != order[0])
    for rule in (rule.model_copy(update={"null": null}) for rule in rules):
        if (numeric := _numbers(distinct, many, rows, rule, decorated=True)) is not None:
            either = _either_way(without_units(trimmed, rule.unit), rule) if rule.unit and open_signs else None
            read = _joined(_note(distinct, rule), missing, either, numeric[1]) or ""
            return Recognized("float32", rule, read, doubt=either is not None)
    if measure.differ:
        first, second = measure.differ
        note = f"read as text: its numbers have different units, such as {first!r} and {second!r}"
        return Recognized(None, None, note, doubt=True)
    form, open_ = _form(trimmed, many, rows)
    odd, too_many = (None, False) if form is None else _odd(trimmed, many, rows, form)
    if too_many:
        odd = (_mixed_dates(trimmed, many, rows) if dates else None) or f"read as text: {odd}"
        return Recognized(None, None, odd, doubt=True)
    if form is not None and dates:
        rule = form.model_copy(update={"null": null})
        return Recognized("int64", rule, _joined(_note(distinct, rule), missing, odd))
    if form is not None:
        return Recognized(
            None, None, "it holds dates and stays text, as an expression or a split reads it as it stands"
        )
    if open_:
        first, second = open_
        example = distinct[0].as_py()
        note = f"it may hold dates, and {example!r} leaves open whether the day or the month comes first: "
        return Recognized(None, None, f"{note}say parse: {first!r} or parse: {second!r}", doubt=True)
    if dates and (mixed := _mixed_dates(trimmed, many, rows)) is not None:
        return Recognized(None, None, mixed, doubt=True)
    nearly = _nearly(distinct, many, rows) if plain else None
    return Recognized(None, None, nearly, doubt=nearly is not None)


def _styles(
    trimmed: pa.Array, decimal: DecimalSign | None, *, plain: bool
) -> tuple[Sequence[Literal["number", "decimal_comma"]], bool]:
    """(the rules for numbers in the order of trying, whether neither the values nor the file tell which is meant)."""
    own = sign_of(trimmed)
    sign = decimal if own == "either" else own
    unknown = own == "either" and sign not in (",", ".")
    order: Sequence[Literal["number", "decimal_comma"]] = ("number", "decimal_comma")
    order = order[::-1] if sign in (",", "either") else order
    # values that can be read in both ways are read as the other columns are; plain digits in typed files have no thousands
    return order[:1] if own == "either" and not (plain and unknown) else order, unknown


def _word_for_missing(distinct: pa.Array, many: pa.Array) -> str | None:
    """The one text, in lower case, that stands again and again among many different numbers or dates, such as k.A.; else
    None."""
    lower = pc.utf8_lower(pc.utf8_trim_whitespace(distinct))
    numbers = pc.match_substring_regex(lower, _BEGINS_AS_NUMBER)
    words = pc.unique(lower.filter(pc.invert(numbers)))
    if len(words) != 1 or len(distinct) - len(words) < _FIRST or re.search(r"\d", words[0].as_py()):
        return None  # of few numbers it may be a category: 2, 4, more
    count = pc.sum(pc.if_else(numbers, 0, many)).as_py()
    return words[0].as_py() if 1 < count <= _MOST_MISSING * pc.sum(many).as_py() else None


def _rule(kind: str, null: tuple[str, ...] = ()) -> Parse:
    return Parse.model_validate({"as": kind, "null": null})


def _texts(values: pa.ChunkedArray | pa.Array) -> pa.Array | None:
    """Valid short texts without nulls; None when there are none."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    try:
        texts = decoded(values).drop_null().cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if not len(texts) or (pc.mean(pc.binary_length(texts)).as_py() or 0) > LONGEST:
        return None
    return texts


def _leading_zeros(trimmed: pa.Array, many: pa.Array, rows: int) -> Recognized | None:
    """Keep digits that begin with 0 as text, with a note: they are codes, and a number would lose the zero."""
    zeros = pc.match_substring_regex(trimmed, _ZEROS)
    count = pc.sum(pc.if_else(zeros, many, 0)).as_py() or 0
    if not count or not pc.all(pc.match_substring_regex(trimmed, _DIGITS)).as_py():
        return None
    one_width = pc.count_distinct(pc.utf8_length(trimmed)).as_py() == 1
    if count * ONE_IN <= rows and not one_width:
        return None
    example = trimmed.filter(zeros)[0].as_py()
    return Recognized(note=f"read as text: {count:,} of {rows:,} sampled values begin with 0, such as {example!r}, which a "
                      "number would lose; say 'type: int' to read numbers")  # fmt: skip


def _codes(trimmed: pa.Array, many: pa.Array, rows: int) -> Recognized | None:
    """Keep as text, with a note, what a number would change: article numbers such as 12E3, and digits that int64 does not hold
    and float32 makes equal."""
    if pc.any(pc.match_substring_regex(trimmed, _REAL)).as_py():
        return None  # real numbers
    for of_it, why in ((_EXPONENT, "are written as"), (_DIGITS, "do not fit int64, such as")):
        found = pc.match_substring_regex(trimmed, of_it)
        if of_it == _DIGITS:
            fits = converted(trimmed, Column(name="value", type="int64", nullable=True)).is_valid()
            found = pc.and_(found, pc.invert(fits))
        count = pc.sum(pc.if_else(found, many, 0)).as_py() or 0
        if count * ONE_IN > rows and (of_it == _EXPONENT or loss_of(trimmed, _NUMBER_COLUMN) is not None):
            example = trimmed.filter(found)[0].as_py()
            return Recognized(note=f"read as text: {count:,} of {rows:,} sampled values {why} {example!r}; say 'type: float' to "
                              "read numbers")  # fmt: skip
    return None


def _numbers(
    distinct: pa.Array, many: pa.Array, rows: int, rule: Parse, *, decorated: bool
) -> tuple[StoredType, str | None] | None:
    """The type of nearly all values by a rule, and a note about the others."""
    texts = trimmed = pc.utf8_trim_whitespace(distinct)
    if decorated:
        texts = parsed(distinct, rule)[0]
        written = pc.and_(pc.match_substring_regex(texts, _PLAIN), pc.not_equal(texts, trimmed))
        if not pc.any(written).as_py() or _numbered(distinct, written):
            return None
    most = rows // ONE_IN
    for kind in ("int64", "float32"):
        fits = converted(texts, Column(name="value", type=kind, nullable=True)).is_valid()
        bad = pc.sum(pc.if_else(fits, 0, many)).as_py() or 0
        if kind == "int64" and bad and pc.any(pc.match_substring_regex(texts.filter(pc.invert(fits)), _PLAIN)).as_py():
            continue  # real numbers among them
        if kind == "int64" and decorated and pc.any(pc.match_substring_regex(distinct.filter(fits), _UNITS)).as_py():
            continue  # money and shares are real numbers, whatever the sample shows
        if not bad:
            return kind, None
        if bad <= most:
            example = distinct.filter(pc.invert(fits))
            verb = "is" if bad == 1 else "are"
            words = f"{bad:,} of {rows:,} sampled values {verb} not a number, such as {example[0].as_py()!r}; such rows will be "
            return kind, words + "rejected, say 'type: string' to keep them"
    return None


def _numbered(distinct: pa.Array, written: pa.Array) -> bool:
    """Whether groups of digits are names, such as 732 829 320: all equally long, with blanks between."""
    spaced = distinct.filter(written)
    if not pc.all(pc.match_substring_regex(spaced, r"^\s*[0-9]+(?:\s[0-9]+)+\s*$")).as_py():
        return False
    digits = pc.binary_length(pc.replace_substring_regex(spaced, r"[^0-9]", ""))
    return len(digits) > 1 and pc.count_distinct(digits).as_py() == 1 and digits[0].as_py() >= 9


def _digits_form(trimmed: pa.Array, many: pa.Array, rows: int, least: int) -> str | None:
    """The form of digits that are dates, such as 20130131, or months, such as 201301; None: they are numbers. So many
    distinct ones are days or months of the calendar only if meant so."""
    if len(trimmed) < least:
        return None
    for digits, form in _DATE_DIGITS:
        likely = pc.mean(pc.match_substring_regex(trimmed, digits).cast(pa.int8())).as_py() >= _MOSTLY
        if likely and not _odd(trimmed, many, rows, Parse.model_validate(form))[1]:
            return form
    return None


def _units_differ(distinct: pa.Array, rule: Parse) -> tuple[str, str] | None:
    """Two values of different currencies, or a share beside a number without a sign (44% and 0.53); else None."""
    values = parsed(distinct, rule)[0]
    numbers = pc.match_substring_regex(values, _PLAIN)
    texts, values = pc.utf8_trim_whitespace(distinct.filter(numbers)), values.filter(numbers)
    written = pc.and_(pc.not_equal(values, texts), pc.match_substring_regex(texts, _UNITS))
    units = pc.if_else(written, pc.utf8_lower(pc.replace_substring_regex(texts, _NO_UNIT, "")), "")
    # nothing is nothing in any unit: 0 beside 12%
    nothing = pc.and_(pc.match_substring_regex(values, _NOTHING), pc.invert(written))
    used = pc.unique(units.filter(pc.invert(nothing))).to_pylist()
    signs = [unit for unit in used if unit]
    apart = signs if len(signs) > 1 else ["%", ""] if "%" in signs and "" in used else []
    if not apart:
        return None
    first, second = (texts[pc.index(units, unit).as_py()].as_py() for unit in apart[:2])
    return first, second


def _note(distinct: pa.Array, rule: Parse, keep: str = _KEEP) -> str:
    """A note with one text that the rule changes, and its number."""
    for text in distinct.to_pylist()[:1000]:
        values, wrong = parsed(pa.array([text]), rule)
        value = values[0].as_py()
        if rule.temporal is None and str(value) != text.strip() and re.match(_PLAIN, str(value)):
            unit = " seconds" if rule.as_ == "duration" else ""
            return f"read as numbers: {text!r} is {float(value):.15g}{unit}; requests send the number; {_KEEP}"
        if rule.temporal is not None and (wrong is None or not wrong[0]) and value is not None:
            unit = "days" if rule.temporal == "date" else "microseconds"
            what = "dates" if rule.temporal == "date" else "times (UTC)"
            form = rule.format or "ISO"
            number = f"{text!r} is {value:,} {unit} since 1970-01-01, which requests send"
            return f"read as {what} of the form {form}: {number}; {keep}"
    return "read as numbers"


def _either_way(distinct: pa.Array, rule: Parse) -> str | None:
    """A note on a comma that may separate thousands or decimals, such as 1,234, or a point, such as 1.234 €; else None."""
    style = "decimal_comma" if rule.as_ == "number" else "number"
    other_rule = f"{{as: {style}, unit: {json.dumps(rule.unit, ensure_ascii=False)}}}" if rule.unit else style
    if rule.as_ == "decimal_comma":
        return f"if the comma separates thousands, say parse: {other_rule}"
    if pc.all(pc.match_substring_regex(distinct, _POINT_AND_THREE)).as_py():
        return f"if the point separates thousands, say parse: {other_rule}"
    if not pc.any(pc.match_substring(distinct, ",")).as_py():
        return None
    other = pc.match_substring_regex(distinct, number_pattern("decimal_comma"))
    if pc.all(other).as_py():
        return f"if the comma is the decimal point, say parse: {other_rule}"
    return None


def _missing(texts: pa.Array, null: tuple[str, ...]) -> str | None:
    if not null:
        return None
    gone = len(texts) - without_markers(texts, null).drop_null().__len__()
    markers = ", ".join(repr(text) for text in null[:3])
    verb = "counts" if gone == 1 else "count"
    return f"{gone:,} of {len(texts):,} sampled values ({markers}) {verb} as null"


def _form(texts: pa.Array, many: pa.Array, rows: int) -> tuple[Parse | None, tuple[str, str] | None]:
    """(the date form of most values, None) or (None, two that fit and differ in day and month)."""
    first = texts.slice(0, _FIRST).to_pylist()
    like = [text for text in first if sum(c.isdigit() for c in text) >= _LEAST_DIGITS and not text.isdigit()]
    if 2 * len(like) <= len(first):
        return None, None
    iso = any(re.match(ISO_DATE, text) for text in (like[0], like[-1]))
    rules = [_rule("date"), _rule("timestamp")] if iso else []
    rules += [rule for rule, _ in _candidates(like[0])] + [rule for rule, _ in _candidates(like[-1])]
    best, good = rows // 2, list[Parse]()
    for rule in dict.fromkeys(rules):
        if 2 * sum(bool(re.match(_pattern(rule), text)) for text in first) <= len(first):
            continue
        odd = _unread(texts, many, rule)
        if odd <= best:
            best, good = odd, [*(good if odd == best else []), rule]
    if len(good) > 1 and (both := _day_or_month(good)):
        return None, both
    return (good[0], None) if good else (None, None)


def _pattern(rule: Parse) -> str:
    return pattern_of(rule.format) if rule.format else f"^(?:{ISO_DATE if rule.as_ == 'date' else ISO_TIME})$"


def _unread(texts: pa.Array, many: pa.Array, rule: Parse) -> int:
    """The rows whose text a rule does not read."""
    return int(pc.sum(many.filter(pc.invert(_read(texts, rule)))).as_py() or 0)


def _odd(texts: pa.Array, many: pa.Array, rows: int, rule: Parse) -> tuple[str | None, bool]:
    """(a clause on the values that are no dates of a form, None where all are; whether they are too many)."""
    bad = _unread(texts, many, rule)
    if not bad:
        return None, False
    example = texts.filter(pc.invert(_read(texts, rule)))[0].as_py()[:60]
    fix = f"say 'parse: {rule.format or rule.as_}' to read {rule.as_}s and reject such rows"
    fix, too_many = (fix, True) if bad * ONE_IN > rows else ("such rows will be rejected", False)
    return (
        f"{bad:,} of {rows:,} sampled values {'is' if bad == 1 else 'are'} no {rule.as_}, such as {example!r}; {fix}",
        too_many,
    )


def _candidates(text: str) -> list[tuple[Parse, re.Pattern[str]]]:
    """The forms of the dates that a text begins as: to compile all of them takes longer than to read the file."""
    return [
        each
        for form in (*_DATES, *_PERIODS)
        if re.match(pattern_of(form).removesuffix("$"), text)
        for each in _forms(form)
    ]


@functools.cache
def _forms(date: str) -> list[tuple[Parse, re.Pattern[str]]]:
    """A form of dates, without and with each form of times."""
    forms = [date] if date in _PERIODS else [date + time for time in _TIMES]
    return [(Parse.model_validate(form), re.compile(pattern_of(form))) for form in forms]


def _day_or_month(rules: list[Parse]) -> tuple[str, str] | None:
    forms = [rule.format or "" for rule in rules]
    for form in forms:
        swapped = form.replace("%m", "%_").replace("%d", "%m").replace("%_", "%d")
        if swapped != form and swapped in forms:
            return form, swapped
    return None


def _mixed_dates(texts: pa.Array, many: pa.Array, rows: int) -> str | None:
    """A note on dates in several forms, with an example and the rows of each; None where not all values are dates."""
    found = list[tuple[int, str]]()
    while len(texts):
        first = texts[0].as_py()
        if re.fullmatch(_EPOCH, first):
            fits = pc.match_substring_regex(texts, f"^{_EPOCH}$")
        else:
            rules = [rule for rule, pattern in _candidates(first) if pattern.fullmatch(first)]
            masks = [
                _read(texts, rule) for rule in [*rules, *([_rule("timestamp")] if re.match(ISO_TIME, first) else [])]
            ]
            fits = max(masks, key=lambda mask: pc.sum(mask).as_py() or 0, default=None)
        if fits is None or not fits[0].as_py() or len(found) == _MOST_FORMS:
            return None
        found.append((pc.sum(many.filter(fits)).as_py(), first))
        texts, many = texts.filter(pc.invert(fits)), many.filter(pc.invert(fits))
    if len(found) < 2 or all(re.fullmatch(_EPOCH, example) for _, example in found):
        return None
    said = ", ".join(f"{example!r} ({count:,} of {rows:,} rows)" for count, example in sorted(found, reverse=True))
    return f"read as text: it holds dates in {len(found)} forms: {said}; write them in one form to have them as dates"


def _read(texts: pa.Array, rule: Parse) -> pa.Array:
    """Which texts a rule reads."""
    values, wrong = parsed(texts, rule)
    return values.is_valid() if wrong is None else pc.and_(values.is_valid(), pa.array(~wrong))


def _nearly(distinct: pa.Array, many: pa.Array, rows: int) -> str | None:
    """A note on text that is mostly numbers, with too many others to reject their rows unasked; else None."""
    fits = pc.match_substring_regex(parsed(distinct, _rule("number"))[0], _PLAIN)
    bad = pc.sum(pc.if_else(fits, 0, many)).as_py() or 0
    if bad * 2 > rows or not bad:
        return None
    example = distinct.filter(pc.invert(fits))[0].as_py()
    verb = "is" if bad == 1 else "are"
    kind: Literal["int", "float"] = "float"
    return (
        f"read as text: {bad:,} of {rows:,} sampled values {verb} not a number, such as {example[:60]!r}; say 'type: {kind}' to "
        "read numbers and reject such rows, or name those texts: {parse: {as: number, null: [...]}}"
    )


def _joined(*parts: str | None) -> str | None:
    return "; ".join(part for part in parts if part) or None


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
_LOOKED_AT, _MOSTLY = 50, 0.9
_LEAST_NUMBERS = 3
"""Of fewer different numbers a category says as much, and keeps its words."""
_ALONE = frozenset({"m", "b", "t"})
"""Metres, bytes or tonnes rather than millions, unless other such words or a currency stand in the column."""
_LEADING_ZERO = r"^0[0-9]"


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
    first = distinct.slice(0, _LOOKED_AT).to_pylist()
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
    if not len(texts) or few or pc.any(pc.match_substring_regex(numbers, _LEADING_ZERO)).as_py():
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
