"""Expressions: what they mean, row by row with SQL's nulls; what they refuse, and in which words."""

import datetime
import math
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import ConfigError, DataError
from headway.tabular.expressions import FUNCTIONS, Overflow, parse
from tests.properties import examples

BATCH = pa.RecordBatch.from_pydict(
    {
        "i": pa.array([1, 2, None, -5]),
        "f": pa.array([0.1, None, 2.5, float("nan")], pa.float32()),
        "s": pa.array(["a", None, "b ", "A"]),
        "raw": pa.array([b"a", b"\xff", None, b"b"]),
        "code": pa.array([b"a", b"b", None, b"a"]).dictionary_encode(),
        "flag": pa.array([True, False, None, True]),
        "tiny": pa.array([100, -100, 1, None], pa.int8()),
        "big": pa.array([2**53 + 1, 2**53, 0, None]),
        "none": pa.nulls(4),
        "two words": pa.array([1, 2, 3, 4]),
        "day": pa.array([datetime.date(2013, 1, d) for d in (1, 2, 3)] + [None]),
    }
)


def of(text, batch=BATCH):
    return parse(text).evaluate(batch).to_pylist()


# --- against an oracle: a value and its text are built together

NUMBERS = ["i", "j", "x", "y"]


def lift(function):
    """A function of values as one of rows; null when any of them is."""
    return lambda *of: lambda row: None if any(o(row) is None for o in of) else function(*(o(row) for o in of))


def known(a, b, odd):
    """Kleene's and (odd: False) or or (odd: True)."""

    def both(row):
        values = (a(row), b(row))
        return odd if odd in values else None if None in values else not odd

    return both


def divide(a, b):
    if b == 0:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)
    return a / b


def numbers():
    leaves = st.sampled_from(NUMBERS).map(lambda name: (name, lambda row: row[name]))
    constants = st.integers(-4, 9).map(lambda n: (f"({n})", lambda row: n))
    arithmetic = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: divide(float(a), float(b)),
    }

    def grow(inner):
        binary = st.tuples(inner, st.sampled_from(list(arithmetic)), inner).map(
            lambda t: (f"({t[0][0]} {t[1]} {t[2][0]})", lift(arithmetic[t[1]])(t[0][1], t[2][1]))
        )
        return binary | inner.map(lambda a: (f"-{a[0]}", lift(lambda v: -v)(a[1])))

    return st.recursive(leaves | constants, grow, max_leaves=4)


def conditions():
    comparisons = {
        "==": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
    }
    compared = st.tuples(numbers(), st.sampled_from(list(comparisons)), numbers()).map(
        lambda t: (f"{t[0][0]} {t[1]} {t[2][0]}", lift(comparisons[t[1]])(t[0][1], t[2][1]))
    )
    chained = st.tuples(numbers(), numbers(), numbers()).map(
        lambda t: (
            f"{t[0][0]} < {t[1][0]} <= {t[2][0]}",
            known(lift(lambda a, b: a < b)(t[0][1], t[1][1]), lift(lambda a, b: a <= b)(t[1][1], t[2][1]), False),
        )
    )
    missing = numbers().map(lambda a: (f"{a[0]} is None", lambda row: a[1](row) is None))
    there = numbers().map(lambda a: (f"{a[0]} is not None", lambda row: a[1](row) is not None))
    items = st.lists(st.integers(-3, 3), max_size=3)
    listed = st.tuples(st.sampled_from(NUMBERS), items, st.booleans()).map(
        lambda t: (f"{t[0]} {'not ' * t[2]}in {t[1]}", lift(lambda v: (v in t[1]) != t[2])(lambda row: row[t[0]]))
    )
    texts = st.tuples(st.sampled_from(["==", "!=", "<", ">="]), st.sampled_from(["", "a", "b", "é"])).map(
        lambda t: (f"s {t[0]} {t[1]!r}", lift(lambda v: comparisons[t[0]](v, t[1]))(lambda row: row["s"]))
    )

    def grow(inner):
        def together(t):
            (a, left), word, (b, right) = t
            return f"({a} {word} {b})", known(left, right, word == "or")

        return st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(together) | inner.map(
            lambda a: (f"not ({a[0]})", lift(lambda v: not v)(a[1]))
        )

    return st.recursive(compared | chained | missing | there | listed | texts, grow, max_leaves=4)


WHOLE = st.integers(-5, 5) | st.none()
REAL = st.sampled_from([-2.0, -0.5, -0.0, 0.0, 1.0, 1.5, math.inf, math.nan]) | st.none()
TABLE = st.fixed_dictionaries(
    {"i": WHOLE, "j": WHOLE, "x": REAL, "y": REAL, "s": st.sampled_from(["", "a", "b", "é", None])}
)


def batch_of(rows):
    types = {"i": pa.int64(), "j": pa.int64(), "x": pa.float64(), "y": pa.float64(), "s": pa.string()}
    return pa.RecordBatch.from_pydict({name: pa.array([row[name] for row in rows], t) for name, t in types.items()})


@examples(250)
@given(conditions(), st.lists(TABLE, min_size=1, max_size=8))
def test_a_condition_means_what_it_means_row_by_row(condition, rows):
    text, oracle = condition
    assert of(text, batch_of(rows)) == [oracle(row) for row in rows]
    assert parse(text).row_mask(batch_of(rows)).to_pylist() == [oracle(row) is True for row in rows]


@given(numbers(), st.lists(TABLE, min_size=1, max_size=8))
def test_arithmetic_is_that_of_python_and_ieee(number, rows):
    text, oracle = number
    wanted = [oracle(row) for row in rows]
    for found, value in zip(of(text, batch_of(rows)), wanted, strict=True):
        assert (found is None) == (value is None)
        if value is not None:
            assert found == value or (math.isnan(found) and math.isnan(value))


@given(st.lists(st.tuples(st.floats(-100, 100), st.sampled_from([-2.5, -1.0, 0.5, 3.0])), min_size=1))
def test_floor_division_and_remainder_of_floats_have_pythons_signs(pairs):
    batch = pa.RecordBatch.from_pydict({"a": [a for a, _ in pairs], "b": [b for _, b in pairs]})
    assert of("a // b", batch) == [math.floor(a / b) for a, b in pairs]
    assert np.allclose(of("a % b", batch), [a - math.floor(a / b) * b for a, b in pairs])


# --- types


def test_a_constant_is_compared_in_the_type_of_its_column():
    assert of("f == 0.1") == [True, None, False, False]
    assert of("f > 0.1") == [False, None, True, False]
    assert of("f in [0.1, 7]") == [True, None, False, False]
    tips = pa.RecordBatch.from_pydict({"tips": pa.array([0.2], pa.float32()), "fare": pa.array([1], pa.float32())})
    assert of("tips > 0.2 * fare", tips) == [False]


def test_large_integers_are_not_taken_for_doubles():
    assert of("big % 2") == [1, 0, 0, None]
    assert of("big == 9007199254740993") == [True, False, False, None]
    assert of("big in [9007199254740993]") == [True, False, False, None]
    assert of("big > 0.5") == [True, True, False, None]
    assert of("big / 2 > 1 and big * 0.5 > 1 and log(big + 1) > 1") == [True, True, False, None]


def test_small_integers_do_not_wrap():
    assert of("tiny * tiny") == [10000, 10000, 1, None]
    assert of("tiny in [300, -100, 2.5]") == [False, True, False, None]


def test_a_flag_compares_with_numbers_and_truth():
    assert of("flag == 1") == of("flag == True") == of("flag") == [True, False, None, True]
    assert of("flag in [True]") == of("flag in [1]") == [True, False, None, True]
    assert of("i == True") == [True, False, None, False]


def test_text_compares_however_it_is_stored():
    assert of("code == 'a'") == of("code in ['a']") == [True, False, None, True]
    assert of("raw == 'a'") == [True, False, None, False]  # one value is no UTF-8
    assert of("raw not in ['a', 'b']") == [False, True, None, False]


def test_a_column_of_nulls_only_is_never_known():
    for text in ("none > 3", "none in [1]", "none not in ['a']", "none == 'a'", "none + 0.5 > 1"):
        assert of(text) == [None] * 4
    assert of("none is None") == [True] * 4


def test_lists_of_constants():
    assert of("i in [-1, -5]") == [False, False, None, True]
    assert of("i in (1.5, 2.0)") == [False, True, None, False]
    assert of("i in []") == [False, False, None, False]
    assert of("s in []") == [False, None, False, False]
    assert of("s in ['a', None]") == [True, None, False, False]
    assert of("day in ['2013-01-02']") == [False, True, False, None]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("abs(i)", [1, 2, None, 5]),
        ("log(i)", [0.0, math.log(2), None, math.nan]),
        ("sqrt(i)", [1.0, math.sqrt(2), None, math.nan]),
        ("floor(f)", [0.0, None, 2.0, math.nan]),
        ("ceil(f)", [1.0, None, 3.0, math.nan]),
        ("round(f)", [0.0, None, 2.0, math.nan]),
        ("is_nan(f)", [False, None, False, True]),
        ("is_nan(i)", [False, False, None, False]),
        ("lower(s)", ["a", None, "b ", "a"]),
        ("upper(code)", ["A", "B", None, "A"]),
        ("strip(s)", ["a", None, "b", "A"]),
        ("length(s)", [1, None, 2, 1]),
    ],
)
def test_functions(text, values):
    for found, wanted in zip(of(text), values, strict=True):
        assert found == wanted or (isinstance(wanted, float) and math.isnan(wanted) and math.isnan(found))
    assert text.partition("(")[0] in FUNCTIONS


def test_columns_are_those_that_are_read():
    parsed = parse("tips > 0.2 * fare and payment in ['card'] or col('two words') is None or abs(-x) < 1")
    assert parsed.columns == {"tips", "fare", "payment", "two words", "x"}
    assert of("col('two words') > 2") == [False, False, True, True]


def test_an_expression_may_span_lines_and_be_a_constant():
    assert of("i > 1\n  and i < 9\n") == [False, True, None, False]
    assert of("True") == [True] * 4 and of("3") == [3] * 4


def test_empty_batches():
    empty = BATCH.slice(0, 0)
    for text in ("i % 2 == 1", "f > 0.1", "s in ['a']", "code == 'a' and flag", "True"):
        assert parse(text).row_mask(empty).to_pylist() == []


# --- refusals


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not an expression"),
        ("i >", "not an expression"),
        ("arr delay > 15", "at character 5"),
        ("class > 3", "not an expression"),
        ("i > \0 3", "not an expression"),
        ("__import__('os').system('true')", "Call is not allowed"),
        ("__import__('os')", "__import__() is not known"),
        ("open('x')", "open() is not known"),
        ("i.real", "Attribute is not allowed"),
        ("i[0]", "Subscript is not allowed"),
        ("lambda: 3", "Lambda is not allowed"),
        ("[x for x in i]", "ListComp is not allowed"),
        ("i if i else 2", "IfExp is not allowed"),
        ("f'{i}'", "JoinedStr is not allowed"),
        ("(i := 3)", "NamedExpr is not allowed"),
        ("i ** 2", "BinOp is not allowed"),
        ("i & 1", "BinOp is not allowed"),
        ("~i", "UnaryOp is not allowed"),
        ("b'a' == s", "Constant is not allowed"),
        ("1j > i", "Constant is not allowed"),
        ("i > 9223372036854775808", "does not fit int64"),
        ("i in s", "'in' needs a list"),
        ("i in [j]", "'in' needs a list"),
        ("i in [9223372036854775808]", "'in' needs a list"),
        ("i in ['a', 1]", "of texts or of numbers"),
        ("i is 3", "'is' only goes with None"),
        ("i == None", "write 'is None'"),
        ("abs(i, i)", "abs() is not known with these arguments"),
        ("col(i) > 1", "col() is not known"),
    ],
)
def test_what_is_not_allowed_is_named(text, said):
    with pytest.raises(ConfigError) as error:
        parse(text)
    assert said in str(error.value) and repr(text) in str(error.value) and error.value.fix


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("target = 1", "write '==' in place of '='"),
        ("i > 1 && j > 2", "write 'and' in place of '&&'"),
        ("i > 1 || j > 2", "write 'or' in place of '||'"),
        ("!i", "write 'not' in place of '!'"),
        ("i <> 2", "write '!=' in place of '<>'"),
        ("i => 2", "write '>=' in place of '=>'"),
        ("s = 'a=b'", "write '==' in place of '='"),
        ("(i > 1) & (j > 2)", "write 'and' in place of '&'"),
        ("i ! 2", "write 'not' in place of '!'"),
        ("i > 1 AND s = 'a AND b'", "write 'and' in place of 'AND'"),
        ("s IS NOT NULL", "write 'is' in place of 'IS'"),
        ("i NOT IN [1, 2]", "write 'not' in place of 'NOT'"),
    ],
)
def test_an_operator_of_another_language_is_refused_and_the_right_one_named(text, fix):
    with pytest.raises(ConfigError) as error:
        parse(text)
    assert error.value.fix == fix


@pytest.mark.parametrize("text", ["(" * 300 + "i" + ")" * 300, "+".join(["i"] * 20_000), "not " * 50_000 + "i"])
def test_deep_nesting_is_an_error_and_not_a_crash(text):
    with pytest.raises(ConfigError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "problem", "fix"),
    [
        ("not i", "'not' needs true or false, but column 'i' holds numbers", "write i == 0 in place of not i"),
        ("flag and i", "'and' needs true or false, but column 'i' holds numbers", "write i == 1 in place of i"),
        ("i > 1 or s", "'or' needs true or false, but column 's' holds text", "write s == 'a' in place of s"),
    ],
)
def test_an_operand_that_is_not_a_condition_is_named_with_what_to_write(text, problem, fix):
    with pytest.raises(DataError) as error:
        of(text)
    assert (error.value.problem, error.value.fix) == (problem, fix)


def test_an_unknown_column_is_named_with_a_close_one():
    with pytest.raises(ConfigError, match=r"no column 'flagg'(.|\n)*did you mean 'flag'"):
        of("flagg == 1")


@pytest.mark.parametrize(
    "text",
    ["s > 3", "'a' < i", "-s", "not i", "i and flag", "i in ['a']", "s + 1 > 2", "lower(raw) == 'a'", "s / 2 > 1"],
)
def test_types_that_do_not_go_together_are_named_with_their_columns(text):
    with pytest.raises(DataError) as error:
        of(text)
    assert repr(text) in str(error.value) and re.search("column '(s|i|flag|raw)' holds", error.value.problem)
    assert error.value.fix


@pytest.mark.parametrize(
    ("text", "problem", "fix"),
    [
        (
            "s > 1",
            "column 's' holds text and 1 is a number",
            'read it as a number: columns: {s: {type: float}}, or {"*": auto, s: {type: float}} if columns is auto',
        ),
        (
            "i > 1 and s + 1 > 2",
            "in 's + 1': column 's' holds text",
            "read it as a number: columns: {s: {type: float}}",
        ),
        (
            "col('a b') < 3",
            "column 'a b' holds text",
            "col('a b') == 'a', or read it as a number: columns: {\"a b\": {ty",
        ),
        (
            "i == 'x'",
            "column 'i' holds numbers and 'x' is text",
            "i > 0, or read it as text: columns: {i: {type: string}}",
        ),
        ("d > 3", "column 'd' holds dates and 3 is a number", "d >= '2013-01-31'"),
        ("l > 3", "column 'l' holds lists", "one value per row"),
        ("log(s) > 3", "in 'log(s)': column 's' holds text", "read it as a number"),
    ],
)
def test_a_misfit_names_the_part_the_column_what_it_holds_and_the_fix(text, problem, fix):
    columns = {"s": ["x"], "i": [1], "a b": ["x"], "d": [datetime.date(2013, 1, 31)], "l": [[1]]}
    with pytest.raises(DataError) as error:
        parse(text).row_mask(pa.record_batch(columns))
    assert problem in error.value.problem and fix in error.value.fix


@pytest.mark.parametrize(
    "kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("ms", "UTC"), pa.timestamp("us", "Asia/Tokyo")]
)
def test_dates_and_times_are_compared_with_text_in_utc(kind):
    times = pa.array(["2013-01-30", "2013-01-31", None]).cast(pa.timestamp("us")).cast(kind, safe=False)
    batch = pa.record_batch({"d": times})
    assert parse("d >= '2013-01-31'").row_mask(batch).to_pylist() == [False, True, False]
    if getattr(kind, "tz", None):
        assert parse("d == '2013-01-31T09:00:00+09:00'").row_mask(batch).to_pylist() == [False, True, False]
    assert parse("'2013-01-01' < d and d < '2013-01-31'").row_mask(batch).to_pylist() == [True, False, False]


def test_a_filter_must_be_a_condition():
    with pytest.raises(ConfigError, match="gives numbers, but a condition is needed"):
        parse("i + 1").row_mask(BATCH)


LEAST = -(2**63)
INTS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([LEAST, 2**63 - 1, 2**62, -1, 0, 1, 3])
EXACT = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b if b else None,
    "%": lambda a, b: a % b if b else None,
}


@examples(200)
@given(st.sampled_from(sorted(EXACT)), st.lists(st.tuples(INTS, INTS), min_size=1, max_size=6))
def test_integers_are_exact_or_an_error_that_names_the_first_row_that_does_not_fit(op, pairs):
    batch = pa.RecordBatch.from_pydict({"i": [None, *(a for a, _ in pairs)], "j": [3, *(b for _, b in pairs)]})
    wanted = [None, *(EXACT[op](a, b) for a, b in pairs)]
    odd = [row for row, value in enumerate(wanted) if value is not None and not LEAST <= value < 2**63]
    if not odd:
        assert of(f"i {op} j", batch) == wanted
        return
    with pytest.raises(Overflow) as error:
        of(f"i {op} j > 0 and i == i", batch)
    a, b = pairs[odd[0] - 1]
    assert (error.value.row, f"(i = {a}, j = {b})" in error.value.problem) == (odd[0], True)


@pytest.mark.parametrize(
    ("text", "part", "row"),
    [
        ("i * 4 > 0", "i * 4 does not fit int64 (i = 4611686018427387904)", 1),
        ("abs(i) > 0", f"abs(i) does not fit int64 (i = {LEAST})", 2),
        ("-i > 0", f"-i does not fit int64 (i = {LEAST})", 2),
        ("i > 0 or i // -1 == 1", f"i // -1 does not fit int64 (i = {LEAST})", 2),
        ("tiny > 4611686018427387904 * 4", "4611686018427387904 * 4 does not fit int64", None),
    ],
)
def test_an_integer_overflow_names_its_part_and_values(text, part, row):
    batch = pa.RecordBatch.from_pydict({"i": [1, 2**62, LEAST], "tiny": pa.array([127] * 3, pa.int8())})
    with pytest.raises(DataError) as error:
        of(text, batch)
    assert (error.value.problem, error.value.row, error.value.where) == (part, row, f"expression {text!r}")
    assert "1.0 *" in error.value.fix


def test_what_the_fix_says_computes():
    batch = pa.RecordBatch.from_pydict({"i": [2**62], "u": pa.array([2**64 - 1], pa.uint64())})
    assert of("1.0 * i * 4", batch) == [2.0**64] and of("abs(1.0 * i)", batch) == [2.0**62]
    for text in ("u + 1", "-u"):
        with pytest.raises(Overflow, match="does not fit"):
            of(text, batch)
