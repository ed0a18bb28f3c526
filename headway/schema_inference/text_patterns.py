"""Recognizes numbers and dates in the sampled text of a column.

    found = recognized(values, plain=True)
    found.type, found.parse              # "float32", the rule number; None, None: text
    found.note                           # what to tell about it, without the column's name; None: nothing

One rule reads a whole column, in this and in every later file. One value in a hundred may be odd, that is no number or no date of
the column's form. A column of unclear dates (03/04/2013) stays text, and a note names the config key to set.
"""

import functools
import json
import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headway.schema.columns import Column, StoredType
from headway.schema.date_forms import ISO_DATE, ISO_TIME, pattern_of
from headway.schema.decimal_signs import DecimalSign, sign_of
from headway.schema.number_texts import SHORT
from headway.schema.parse_rules import MARKERS, Kind, Parse, parsed
from headway.sources.sample import ONE_IN
from headway.sources.type_inference import float32_loss
from headway.tabular.coerce import converted
from headway.tabular.list_arrays import decoded

LONGEST = 64
"""Text with longer values than this on average is neither a number nor a date."""
_FIRST = 20
"""The fewest distinct values that decide by themselves: digits that are all days of the calendar are dates."""
_LEAST_NAMED = 3
"""The fewest distinct values where the column's name says that it holds dates."""
_MOSTLY = 0.9
"""The share of rows that must begin as numbers do for number patterns to be tried: compiling takes milliseconds."""
_LEAST_NUMBERS = 3
"""The fewest distinct texts such as 36 months that become numbers; fewer stay text and serve as categories."""
_PARTLY = 5
"""A form of dates that reads one value in so many is worth a note if it does not read all."""
_NUMBER = r"^[+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]+)?$"
_MAY_BE_NUMBER = r"^[-+−(]?\s?\p{L}{0,3}[.]?\p{Sc}?\s?[-+−]?[.]?[0-9]"
_FULL_GROUPS = r"^[0-9]{3}(?:\s[0-9]{3}){2,}$"
"""A pattern for numbers of companies, such as 732 829 320: among quantities some value has a shorter first group."""
_CURRENCY_OR_SHARE, _NO_UNIT = r"\p{Sc}|%|[A-Za-z]", r"[^\p{Sc}%A-Za-zł]"
_NOTHING = r"^[+-]?0*[.]?0*$"
_WITH_UNIT = (
    r"^(?P<number>[-+−]?\s?\p{Sc}?[0-9.][0-9.,'’\x{00a0}\x{202f} ]*?)\s*"
    r"(?P<unit>[^\s0-9.,()%:;/–-][^0-9,;:()]{0,11}[23]?)$"
)
_HAS_PARTS = r"(?i)[0-9]:[0-9]|[0-9]\s*[a-z]+,?\s*[0-9]+\s*[a-z]|^[0-9:]+\s*[ap]\.?m\.?$"
"""A pattern for durations and times of the day: 1:02, 2h 50m, 9 am."""
_DATE_DIGITS = (
    (r"^(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])$", "%Y%m%d"),
    (r"^(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])$", "%Y%m"),
)
_KEEP = "say 'type: string' to keep the text"
_TIMES = ("", " %H:%M", " %H:%M:%S", "T%H:%M", "T%H:%M:%S", " %I:%M %p", " %I:%M:%S %p", " %I:%M%p", ", %I:%M %p",
          ", %I:%M:%S %p", ", %H:%M", ", %H:%M:%S", " %H:%M %z", " %H:%M:%S %z", "T%H:%M:%S%z", " %H:%M:%S%z")  # fmt: skip
_DATES = ("%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d-%m-%Y", "%m/%d/%y", "%d/%m/%y",
          "%d.%m.%y", "%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%d %b, %Y", "%d/%b/%Y", "%d%b%Y", "%b %d %Y", "%b %d, %Y", "%b-%d-%Y",
          "%Y %b %d", "%Y-%b-%d", "%a %d %b %Y", "%a, %d %b %Y", "%a %b %d %Y", "%a, %b %d, %Y", "%Y-%m-%d")  # fmt: skip
_PERIODS = ("%Y-%m", "%Y/%m", "%m/%Y", "%m-%Y", "%b %Y", "%b-%Y", "%b, %Y", "%Y-%b", "%b-%y", "%YQ%q", "%Y-Q%q",
            "%Y Q%q", "%Y/Q%q", "Q%q %Y", "Q%q-%Y", "Q%q/%Y", "%G-W%V", "%GW%V", "%G W%V", "%G-W%V-%u")  # fmt: skip
"""Months, quarters and weeks: each counts as its first day."""


@dataclass(frozen=True)
class Recognized:
    """The result for a text column: the type that its texts become, the rule that parses them, and a note for the user."""

    type: StoredType | None = None
    """None: it stays text."""
    parse: Parse | None = None
    note: str | None = None
    doubt: bool = False
    """Whether a person should look at the note: it may be meant in another way."""


@dataclass(frozen=True)
class _Texts:
    """The distinct texts of a sample, without outer blanks, and their counts. Texts that mean a missing value are left out."""

    texts: pa.Array
    counts: pa.Array
    """The number of rows of each text."""
    rows: int
    null: tuple[str, ...]
    """The texts that mean a missing value."""
    missing: str | None
    """A clause for notes on these texts; None: there are none."""

    def rows_of(self, which: pa.Array) -> int:
        """Returns how many rows have one of the texts that the mask `which` selects."""
        return int(pc.sum(self.counts.filter(which)).as_py() or 0)

    def all(self, pattern: str) -> bool:
        return bool(pc.all(pc.match_substring_regex(self.texts, pattern)).as_py())

    def any(self, pattern: str) -> bool:
        return bool(pc.any(pc.match_substring_regex(self.texts, pattern)).as_py())

    def rule(self, kind: Kind, **fields: object) -> Parse:
        """Returns a parse rule for numbers or dates that also reads the texts that mean a missing value."""
        return Parse.model_validate({"as": kind, "null": self.null, **fields})

    def odd(self, which: pa.Array, what: str) -> str:
        """Returns a clause: how many rows have texts selected by the mask `which`, that they are `what`, and an example."""
        bad = self.rows_of(which)
        example = self.texts.filter(which)[0].as_py()[:60]
        return f"{bad:,} of {self.rows:,} sampled values {'is' if bad == 1 else 'are'} {what}, such as {example!r}"


def recognized(
    values: pa.ChunkedArray | pa.Array,
    *,
    plain: bool,
    dates: bool = True,
    digits: bool = True,
    named: bool = False,
    decimal: DecimalSign | None = None,
) -> Recognized:
    """Returns the type and the parse rule of a text column that holds numbers or dates, and a note for the user.

    Args:
        plain: whether the format writes numbers as text, so that plain digits are numbers. In other formats, digits alone are
            meant as text, unless there are markers of missing values among them.
        dates: whether dates may be read as dates. False for a column that an expression compares with text.
        digits: whether digits may be a date (20130131) or a month (201301). False if the pipeline configures the column, since
            it then means the number.
        named: whether the column's name says that it holds dates, so that fewer distinct digits are enough.
        decimal: the decimal sign that the file's other numbers show, for texts such as 1,234 that can be read in two ways. If
            none is shown, "either" means a decimal comma and None means thousands, and the result is marked as a doubt.
    """
    given = _texts(values)
    if given is None:
        return Recognized()
    if plain and given.all('^".*"$'):
        return Recognized(
            note="its values are in quotes, which are part of them: remove the blanks before them", doubt=True
        )
    if (zeros := _leading_zeros(given)) is not None:
        return zeros if plain else Recognized()
    if plain and (codes := _codes(given)) is not None:
        return codes
    if plain and dates and digits and (days := _digit_dates(given, _LEAST_NAMED if named else _FIRST)) is not None:
        return days
    for found in (_numbers(given, decimal, plain=plain), _dates(given, wanted=dates)):
        if found is not None:
            return found
    return _nearly_numbers(given) if plain else Recognized()


def _texts(values: pa.ChunkedArray | pa.Array) -> _Texts | None:
    """Returns the distinct texts; None if all of them mean a missing value, or if they are long or not UTF-8."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    try:
        texts = decoded(values).drop_null().cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if not len(texts) or (pc.mean(pc.binary_length(texts)).as_py() or 0) > LONGEST:
        return None
    found = pc.value_counts(pc.utf8_trim_whitespace(texts))
    distinct, counts = pc.struct_field(found, 0), pc.struct_field(found, 1)
    marked = pc.is_in(pc.utf8_lower(distinct), value_set=pa.array(sorted(MARKERS)))
    known = pc.invert(marked)
    if not pc.any(known).as_py():
        return None
    null, missing = tuple(sorted(distinct.filter(marked).to_pylist())), None
    if null:
        gone = pc.sum(counts.filter(marked)).as_py()
        missing = f"{gone:,} of {len(texts):,} sampled values ({', '.join(map(repr, null[:3]))}) "
        missing += "counts as null" if gone == 1 else "count as null"
    rows = pc.sum(counts.filter(known)).as_py()
    return _Texts(distinct.filter(known), counts.filter(known), rows, null, missing)


def _leading_zeros(given: _Texts) -> Recognized | None:
    """Returns that digits which begin with 0, such as postal codes, stay text: a number would lose the 0. Else None."""
    zeros = pc.match_substring_regex(given.texts, r"^0[0-9]+$")
    count = given.rows_of(zeros)
    if not count or not given.all(r"^[0-9]+$"):
        return None
    one_width = pc.count_distinct(pc.utf8_length(given.texts)).as_py() == 1
    if count * ONE_IN <= given.rows and not one_width:
        return None
    example = given.texts.filter(zeros)[0].as_py()
    text = f"read as text: {count:,} of {given.rows:,} sampled values begin with 0, such as {example!r}, which a number would "
    return Recognized(note=f"{text}lose; say 'type: int' to read numbers")


def _codes(given: _Texts) -> Recognized | None:
    """Returns that the column stays text, and why, if more than one value in a hundred would change as a number. Such values are
    codes such as 12E3, or integers beyond int64 of which float32 would make some equal. Else None."""
    if given.any(r"[.]|[eE][+-]"):
        return None  # real numbers
    powers = pc.match_substring_regex(given.texts, r"^[0-9]+[eE][0-9]+$")
    fits = converted(given.texts, Column(name="value", type="int64", nullable=True)).is_valid()
    large = pc.and_(pc.match_substring_regex(given.texts, r"^[0-9]+$"), pc.invert(fits))
    for found, why in ((powers, "are written as"), (large, "do not fit int64, such as")):
        count = given.rows_of(found)
        reals = Column(name="value", type="float32", nullable=True)
        if count * ONE_IN > given.rows and (found is powers or float32_loss(given.texts, reals) is not None):
            example = given.texts.filter(found)[0].as_py()
            text = f"read as text: {count:,} of {given.rows:,} sampled values {why} {example!r}"
            return Recognized(note=f"{text}; say 'type: float' to read numbers")
    return None


def _digit_dates(given: _Texts, least: int) -> Recognized | None:
    """Returns the rule for digits that are dates, such as 20130131, or months, such as 201301; None if they are numbers. Fewer
    than `least` distinct texts are always numbers, since they could look like dates by chance."""
    if len(given.texts) < least:
        return None
    for pattern, form in _DATE_DIGITS:
        rule = given.rule("date", format=form)
        if pc.mean(pc.match_substring_regex(given.texts, pattern).cast(pa.int8())).as_py() < _MOSTLY:
            continue
        unread = pc.invert(_read(given.texts, rule))
        if given.rows_of(unread) * ONE_IN <= given.rows:
            return _as_dates(given, rule, unread, "say 'type: int' to keep the number")
    return None


def _numbers(given: _Texts, decimal: DecimalSign | None, *, plain: bool) -> Recognized | None:
    """Returns the rule for numbers, perhaps with thousands, a currency or %; for other units only a note. None: no numbers."""
    order, unknown = _decimal_signs(given.texts, decimal, plain=plain)
    points_are_thousands = order[0] == "decimal_comma" and given.any("[.]")
    if (plain or any(given.null)) and not points_are_thousands:
        rule = given.rule("number")
        if (kind := _type(given, given.texts)) is not None:
            odd = _unfit(given, given.texts, kind)
            if not given.null:  # nothing to parse
                return Recognized(kind, None, odd)
            return Recognized(kind, rule, _joined(f"read as numbers: {given.missing}", odd))
    begun = given.rows_of(pc.match_substring_regex(given.texts, _MAY_BE_NUMBER))
    if begun < _MOSTLY * given.rows or given.all(_FULL_GROUPS):
        return None
    for rule in map(given.rule, order):
        numbers = parsed(given.texts, rule)[0]
        if not pc.any(_changed(given.texts, numbers)).as_py() or (kind := _type(given, numbers)) is None:
            continue
        if both := _other_unit(given, numbers):
            text = f"read as text: its numbers have different units, such as {both[0]!r} and {both[1]!r}"
            return Recognized(None, None, f"{text}; say 'parse: {rule.as_}' to read them all alike", doubt=True)
        other = _other_sign(given.texts, rule) if unknown and given.any("[.,]") else None
        note = _joined(_example(given, numbers), given.missing, other, _unfit(given, numbers, kind))
        return Recognized(kind, rule, note, doubt=other is not None)
    return _measures(given, order)


def _decimal_signs(texts: pa.Array, decimal: DecimalSign | None, *, plain: bool) -> tuple[tuple[Kind, ...], bool]:
    """Returns the rules for numbers in the order of trying, and whether it stays unknown what the comma in 1,234 means."""
    own = sign_of(texts)
    sign = decimal if own == "either" else own
    unknown = own == "either" and sign not in (",", ".")
    order: tuple[Kind, ...] = ("decimal_comma", "number") if sign in (",", "either") else ("number", "decimal_comma")
    # values that can be read in both ways are read as the other columns are; plain digits in typed files have no thousands
    return order[:1] if own == "either" and not (plain and unknown) else order, unknown


def _changed(texts: pa.Array, numbers: pa.Array) -> pa.Array:
    """Returns a mask of the texts that a rule changed and made numbers."""
    return pc.and_(pc.not_equal(texts, numbers), pc.match_substring_regex(numbers, _NUMBER))


def _type(given: _Texts, numbers: pa.Array) -> StoredType | None:
    """Returns the type of nearly all values; None if too many are not numbers. Money and percentages are float32, even if all are
    whole numbers."""
    written = pc.and_(_changed(given.texts, numbers), pc.match_substring_regex(given.texts, _CURRENCY_OR_SHARE))
    kinds: tuple[StoredType, ...] = ("int64", "float32")
    for kind in kinds[bool(pc.any(written).as_py()) :]:
        unfit = converted(numbers, Column(name="value", type=kind, nullable=True)).is_null()
        if kind == "int64" and pc.any(pc.match_substring_regex(numbers.filter(unfit), _NUMBER)).as_py():
            continue  # real numbers among them
        if given.rows_of(unfit) * ONE_IN <= given.rows:
            return kind
    return None


def _unfit(given: _Texts, numbers: pa.Array, kind: StoredType) -> str | None:
    """Returns a clause on the values that are not numbers of the type `kind`; None if all are."""
    unfit = converted(numbers, Column(name="value", type=kind, nullable=True)).is_null()
    if not pc.any(unfit).as_py():
        return None
    return f"{given.odd(unfit, 'not a number')}; such rows will be rejected, say 'type: string' to keep them"


def _example(given: _Texts, numbers: pa.Array) -> str:
    """Returns a clause with one text that the rule changes, and the number that it becomes."""
    place = pc.index(_changed(given.texts, numbers), True).as_py()
    value = float(numbers[place].as_py())
    return f"read as numbers: {given.texts[place].as_py()!r} is {value:.15g}; requests send the number; {_KEEP}"


def _other_sign(texts: pa.Array, rule: Parse) -> str:
    """Returns a clause on the other way to read 1,234 (or 1.234 €), and the rule to set for it."""
    other = "number" if rule.as_ == "decimal_comma" else "decimal_comma"
    meant = "the comma separates thousands"
    if other == "decimal_comma":
        comma = pc.any(pc.match_substring(texts, ",")).as_py()
        meant = "the comma is the decimal point" if comma else "the point separates thousands"
    return f"if {meant}, say parse: {other}"


def _other_unit(given: _Texts, numbers: pa.Array) -> tuple[str, str] | None:
    """Returns two values with different units ($ and €, or $ and %), or one with % and one without (44% and 0.53); else None."""
    read = pc.match_substring_regex(numbers, _NUMBER)
    texts, numbers = given.texts.filter(read), numbers.filter(read)
    written = pc.and_(pc.not_equal(numbers, texts), pc.match_substring_regex(texts, _CURRENCY_OR_SHARE))
    units = pc.if_else(written, pc.utf8_lower(pc.replace_substring_regex(texts, _NO_UNIT, "")), "")
    # nothing is nothing in any unit: 0 beside 12%
    nothing = pc.and_(pc.match_substring_regex(numbers, _NOTHING), pc.invert(written))
    used = pc.unique(units.filter(pc.invert(nothing))).to_pylist()
    signs = [unit for unit in used if unit]
    apart = signs if len(signs) > 1 else ["%", ""] if "%" in signs and "" in used else []
    if not apart:
        return None
    first, second = (texts[pc.index(units, unit).as_py()].as_py() for unit in apart[:2])
    return first, second


def _measures(given: _Texts, order: tuple[Kind, ...]) -> Recognized | None:
    """Returns that the column stays text, with a note on the rule to set, if the texts are numbers with one unit, shortened
    numbers or durations; else None."""
    found = pc.extract_regex(given.texts, _WITH_UNIT).drop_null()
    units = pc.unique(pc.utf8_lower(pc.utf8_trim_whitespace(pc.struct_field(found, "unit")))).to_pylist()
    codes = pc.any(pc.match_substring_regex(pc.struct_field(found, "number"), r"^0[0-9]")).as_py()  # 01A
    currencies = [
        sign for sign in pc.unique(pc.replace_substring_regex(given.texts, r"\P{Sc}", "")).to_pylist() if sign
    ]
    if len(given.texts) < _LEAST_NUMBERS or codes or len(currencies) > 1:
        return None
    rules = [given.rule("duration")] if given.any(_HAS_PARTS) else []
    if len({re.sub(r"(?<=[^s.])s?[.]*$", "", unit) for unit in units}) == 1:  # year, years and years. are one
        rules += [given.rule(style, unit=units) for style in order]
    elif units and {*units} <= SHORT.keys():
        rules.append(given.rule("abbreviated"))
    for rule in rules:
        numbers = parsed(given.texts, rule)[0]
        changed = _changed(given.texts, numbers)
        if pc.any(changed).as_py() and _type(given, numbers) is not None:
            place = pc.index(changed, True).as_py()
            text = f"read as text: to read numbers, {given.texts[place].as_py()!r} as {float(numbers[place].as_py()):.15g}, say "
            said = json.dumps(rule.model_dump(mode="json"), ensure_ascii=False) if rule.unit else rule.as_
            return Recognized(None, None, f"{text}parse: {said}", doubt=True)
    return None


def _dates(given: _Texts, *, wanted: bool) -> Recognized | None:
    """Returns the rule for dates if one form reads nearly all texts; only a note if in doubt or not `wanted`. None: no dates."""
    first = given.texts.slice(0, _FIRST).to_pylist()
    dated = [text for text in first if len(re.findall("[0-9]", text)) >= 3 and not text.isdigit()]
    if 2 * len(dated) < len(first) or not dated:
        return None
    unread = {
        rule: pc.invert(_read(given.texts, rule))
        for rule in dict.fromkeys(rule for text in (dated[0], dated[-1]) for rule in _rules_for(text))
        if any(re.match(_pattern(rule), text) for text in first)
    }
    least = min(map(given.rows_of, unread.values()), default=given.rows)
    good = [rule for rule in unread if given.rows_of(unread[rule]) == least]
    if _PARTLY * (given.rows - least) < given.rows or not good:
        return None
    if least * ONE_IN > given.rows:
        kind, form = good[0].as_, good[0].format or good[0].as_
        text = f"read as text: {given.odd(unread[good[0]], f'no {kind}')}; write all in one form, or say 'parse: {form}' to "
        return Recognized(None, None, f"{text}read {kind}s and reject such rows", doubt=True)
    if (both := _day_or_month(good)) is not None:
        text = f"it may hold dates, and {dated[0]!r} leaves open whether the day or the month comes first: "
        return Recognized(None, None, f"{text}say parse: {both[0]!r} or parse: {both[1]!r}", doubt=True)
    if not wanted:
        return Recognized(note="it holds dates and stays text, as an expression or a split reads it as it stands")
    return _as_dates(given, good[0].model_copy(update={"null": given.null}), unread[good[0]], _KEEP)


def _as_dates(given: _Texts, rule: Parse, unread: pa.Array, keep: str) -> Recognized:
    """Returns the result for a column that `rule` reads as dates or times, with a note that shows one value as an example."""
    text = given.texts.filter(pc.invert(unread))[0].as_py()
    number = f"{parsed(pa.array([text]), rule)[0][0].as_py():,} {'days' if rule.temporal == 'date' else 'microseconds'}"
    what = "dates" if rule.temporal == "date" else "times (UTC)"
    note = (
        f"read as {what} of the form {rule.format or 'ISO'}: {text!r} is {number} since 1970-01-01, which requests send"
    )
    odd = f"{given.odd(unread, f'no {rule.as_}')}; such rows will be rejected" if given.rows_of(unread) else None
    return Recognized("int64", rule, _joined(f"{note}; {keep}", given.missing, odd))


def _rules_for(text: str) -> list[Parse]:
    """Returns the few rules that may read a text as a date. To compile all rules would take longer than to read the file."""
    iso = [Parse.model_validate("date"), Parse.model_validate("timestamp")] if re.match(ISO_DATE, text) else []
    begun = (form for form in (*_DATES, *_PERIODS) if re.match(pattern_of(form).removesuffix("$"), text))
    return [*iso, *(rule for form in begun for rule in _with_times(form))]


@functools.cache
def _with_times(date: str) -> list[Parse]:
    """Returns the rules for a form of dates: without a time, and with each form of times. A month or quarter has no time."""
    return [Parse.model_validate(form) for form in ([date] if date in _PERIODS else [date + time for time in _TIMES])]


@functools.cache
def _pattern(rule: Parse) -> re.Pattern[str]:
    plain = ISO_DATE if rule.as_ == "date" else ISO_TIME
    return re.compile(pattern_of(rule.format) if rule.format else f"^(?:{plain})$")


def _read(texts: pa.Array, rule: Parse) -> pa.Array:
    """Returns a mask of the texts that a rule for dates can read."""
    values, wrong = parsed(texts, rule)
    return values.is_valid() if wrong is None else pc.and_(values.is_valid(), pa.array(~wrong))


def _day_or_month(rules: list[Parse]) -> tuple[str, str] | None:
    """Returns two of the rules' forms that are equal except for the order of day and month; None if no two are."""
    forms = [rule.format or "" for rule in rules]
    for form in forms:
        swapped = form.replace("%m", "%_").replace("%d", "%m").replace("%_", "%d")
        if swapped != form and swapped in forms:
            return form, swapped
    return None


def _nearly_numbers(given: _Texts) -> Recognized:
    """Returns that the column stays text. If at least half of the values are numbers, a note says how to read them."""
    numbers = parsed(given.texts, given.rule("number"))[0]
    unfit = pc.invert(pc.match_substring_regex(numbers, _NUMBER))
    if 2 * given.rows_of(unfit) > given.rows or not given.rows_of(unfit):
        return Recognized()
    word = json.dumps(given.texts.filter(unfit)[0].as_py(), ensure_ascii=False)
    if pc.sum(unfit).as_py() == 1:
        text = f"read as text, as {word} stands among numbers; if it means a missing one, say source.csv.null_values: "
        return Recognized(None, None, f'{text}["", NA, {word}]', doubt=True)
    text = f"read as text: {given.odd(unfit, 'not a number')}; say 'type: float' to read numbers and reject such rows, or name "
    return Recognized(None, None, f"{text}those texts: {{parse: {{as: number, null: [...]}}}}", doubt=True)


def _joined(*parts: str | None) -> str | None:
    return "; ".join(part for part in parts if part) or None
