"""What strangers' columns of text hold: numbers as people write them, dates of one form, codes, and text after all."""

import pyarrow as pa
import pytest

from headway.schema_inference.column_types import infer
from headway.schema_inference.identifiers import meaning_of, named_as_identifier, words_of
from headway.schema_inference.text_patterns import recognized
from headway.sources.sample import Sample


def _found(values, plain=True, **more):
    found = recognized(pa.array(values), plain=plain, **more)
    rule = found.parse.model_dump(mode="json") if found.parse else None
    return found.type, rule, found.note or ""


@pytest.mark.parametrize(
    ("values", "kind", "rule"),
    [
        (["12.3%", "4%"], "float32", {"as": "number"}),
        (["1,234", "567"], "int64", {"as": "number"}),
        (["$1,234.50", "(3.00)"], "float32", {"as": "number"}),
        (["€5", "€7"], "float32", {"as": "number"}),
        (["1 234", "12"], "int64", {"as": "number"}),
        (["12,5", "1.234,0"], "float32", {"as": "decimal_comma"}),
        (["1", "?", "2"], "int64", {"as": "number", "null": ["?"]}),
        (["1", "", "3"], "int64", {"as": "number", "null": [""]}),
        (["1.5", "N/A", "-"], "float32", {"as": "number", "null": ["-", "N/A"]}),
        (["1,000", "n/a"], "int64", {"as": "number", "null": ["n/a"]}),
        (["1"] * 150 + ["?", "odd"], "int64", {"as": "number", "null": ["?"]}),
        (["2013-01-31", "2013-02-01"], "int64", {"as": "date"}),
        (["2013-01-31 10:00", "2013-02-01T10:00:00Z"], "int64", {"as": "timestamp"}),
        (["31/01/2013", "01/02/2013"], "int64", {"as": "date", "format": "%d/%m/%Y"}),
        (["1/31/2013", "2/1/2013", "NA"], "int64", {"as": "date", "format": "%m/%d/%Y", "null": ["NA"]}),
        (["Jun 12 1998", "Aug 7 1998"], "int64", {"as": "date", "format": "%b %d %Y"}),
        (["31.01.2013", "1.2.2013"], "int64", {"as": "date", "format": "%d.%m.%Y"}),
        (["1/31/90 0:00", "2/1/90 13:00"], "int64", {"as": "timestamp", "format": "%m/%d/%y %H:%M"}),
        (["2013-01", "2013-12"], "int64", {"as": "date", "format": "%Y-%m"}),
    ],
)
def test_numbers_and_dates_are_recognized(values, kind, rule):
    assert _found(values)[:2] == (kind, rule)


@pytest.mark.parametrize(
    "values",
    [
        ["a", "b"], ["Y", "N"], ["?", "-"], ["2013-01-31", "soon"], ["12:30", "25:61"], ["1,2", "1,2,3"], ["10-12", "12-14"],
        ["192.168.0.1", "10.0.0.1"], ["732 829 320", "362 521 879"], ["USD", "EUR"], ["1st", "2nd"], [""], ["5'10", "6'1"],
        ["A1", "B2"], ["x" * 100, "1"],
    ],
)  # fmt: skip
def test_text_stays_text(values):
    assert _found(values)[:2] == (None, None)


def test_undecided_patterns_are_reported():
    assert "'03/04/2013' leaves open" in _found(["03/04/2013", "05/06/2013"])[2]
    assert "3 of 4 sampled values begin with 0, such as '02139'" in _found(["02139", "01002", "94110", "00501"])[2]
    assert "2 of 6 sampled values are not a number, such as 'high'" in _found(["1", "2", "3", "4", "high", "low"])[2]
    assert 'say source.csv.null_values: ["", NA, "high"]' in _found(["1", "2", "3", "4", "high"])[2]
    assert "decimal_comma" in _found(["1,234", "5,678"])[2]
    assert "'12.3%' is 12.3; requests send the number" in _found(["12.3%"])[2]
    assert "stays text" in _found(["2013-01-31"], dates=False)[2]
    assert _found(["1", "2"], plain=False)[:2] == (None, None)


def test_eight_digits_that_are_all_days_of_the_calendar_are_dates():
    days = [f"2013{month:02d}{day:02d}" for month in (1, 12) for day in range(1, 29)]
    kind, rule, note = _found(days)
    assert (kind, rule) == ("int64", {"as": "date", "format": "%Y%m%d"})
    assert "'20130101' is 15,706 days since 1970-01-01" in note and "say 'type: int' to keep the number" in note
    for others in ([*days, "20130231"], [*days, "20131301"], days[:5]):
        assert _found(others)[:2] == ("int64", None)
    assert _found(days, dates=False)[:2] == _found(days, digits=False)[:2] == ("int64", None)
    assert _found(days, plain=False)[:2] == (None, None)


def test_numbers_of_different_units_are_not_made_one():
    kind, rule, note = _found(["$1.50", "€2.50", "$3"])
    assert (kind, rule) == (None, None)
    assert note == (
        "read as text: its numbers have different units, such as '$1.50' and '€2.50'; say 'parse: number' to read them all alike"
    )
    assert "'44%' and '0.53'" in _found(["44%", "0.53"])[2]
    assert "'1,50 €' and '2,50 $'" in _found(["1,50 €", "2,50 $"])[2]
    for alike in (
        ["44%", "0", "0.0", "5 %"],
        ["$1.50", "1.50", "(3)"],
        ["12 EUR", "13 eur."],
        ["$1", "oops", *["$2"] * 200],
    ):
        assert _found(alike)[0] == "float32"


def test_a_point_before_three_digits_of_money_may_separate_thousands():
    found = recognized(pa.array(["1.234 €", "300.000 €"]), plain=True)
    assert found.doubt and "if the point separates thousands, say parse: decimal_comma" in found.note
    assert not recognized(pa.array(["1.234 €", "30.50 €"]), plain=True).doubt
    assert recognized(pa.array(["1.234.000 €", "30.000 €"]), plain=True).parse.as_ == "decimal_comma"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("UserID", ["user", "id"]),
        ("user_id2", ["user", "id", "2"]),
        ("ид_клиента", ["ид", "клиента"]),
        ("客户编号2", ["客户编号", "2"]),
        ("ID клиента", ["id", "клиента"]),
        ("idéal", ["idéal"]),
        ("ÄnderungsDatum", ["änderungs", "datum"]),
        ("%", []),
    ],
)
def test_words_of_a_name_in_any_script(name, words):
    assert words_of(name) == words


def test_names_that_say_identifier():
    said = [
        "id", "Id", "user_id", "MovieID", "userId", "customerid", "zip_code", "PassengerId", "uuid", "product code", "rownames",
        "order_no", "AccountNumber", "invoice nr", "cust_ref", "row index", "index",
    ]  # fmt: skip
    assert [name for name in said if not named_as_identifier(name)] == []
    other = [
        "humid", "paid", "grid", "width", "Sepal.Width", "idle", "zipper", "price", "recode", "year", "keyboard", "episode",
        "price_index", "body mass index", "number_of_orders", "num_items", "order_notes", "state",
    ]  # fmt: skip
    assert [name for name in other if named_as_identifier(name)] == []


@pytest.mark.parametrize(
    ("name", "values", "meaning"),
    [
        ("id", range(100, 0, -1), "identifier"),
        ("user_id", [i % 7 for i in range(100)], "category"),
        ("zip", [i % 40 for i in range(100)], "category"),
        ("x", range(1, 101), "identifier"),
        ("year", range(1, 101), None),
        ("x", range(1959, 2059), None),
        ("x", [i * i for i in range(100)], None),
        ("distance", [i % 50 for i in range(100)], None),
        ("id", range(5), None),
        ("name", [f"n{i}" for i in range(100)], "identifier"),
        ("word", [f"n{i % 90}" for i in range(100)], None),
        ("customer_id", [f"n{i % 90}" for i in range(100)], "identifier"),
        ("x", [1.5 * i for i in range(100)], None),
    ],
)
def test_what_names_things(name, values, meaning):
    assert meaning_of(name, pa.array(list(values))) == meaning


def test_the_index_of_a_data_frame_is_an_identifier():
    rows = pa.array([(7 * i) % 101 for i in range(101)])
    assert meaning_of("Unnamed: 0", rows) == meaning_of("__index_level_0__", rows) == "identifier"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            ["2024-01-03"] * 3 + ["03/04/2024"] * 2 + ["1704067200"],
            "3 of 6 sampled values are no date, such as '03/04/2024'",
        ),
        (["2024-01-03", "2024-01-04", "14.08.2024"], "1 of 3 sampled values is no date, such as '14.08.2024'"),
        (["Jan 3 2024", "03/04/2024 10:30"], "1 of 2 sampled values is no date, such as '03/04/2024 10:30'"),
        (["2024-01-03", "2024-01-04", "soon", "later"], "2 of 4 sampled values are no date, such as 'soon'"),
    ],
)
def test_dates_of_several_forms_stay_text_and_the_values_that_the_likeliest_form_does_not_read_are_said(values, said):
    for plain in (True, False):
        found = recognized(pa.array(values), plain=plain)
        assert found.type is None and found.doubt and said in found.note and "write all in one form" in found.note


@pytest.mark.parametrize("odd", ["2013-02-30", "0", "TBD", "0000-00-00"])
@pytest.mark.parametrize("place", [0, 999])
def test_one_odd_cell_among_dates_costs_its_row_and_more_are_told(odd, place):
    days = [f"{2000 + i % 24}-{i % 12 + 1:02d}-{i % 28 + 1:02d}" for i in range(1000)]
    kind, rule, note = _found([*days[:place], odd, *days[place:]])
    assert (kind, rule) == ("int64", {"as": "date"})
    assert f"1 of 1,001 sampled values is no date, such as '{odd}'; such rows will be rejected" in note
    kind, rule, note = _found([odd, "later", "soon"] * 10 + days)
    assert (kind, rule) == (None, None) and "30 of 1,030 sampled values are no date" in note and "parse: date" in note
    clock = _found([odd, *(f"{day} 10:00:00" for day in days)])
    assert clock[1] == {"as": "timestamp"} and "is no timestamp" in clock[2]
    german = [f"{i % 28 + 1}.{i % 12 + 1}.2013" for i in range(1000)]
    assert _found([*german, "31.2.2013"])[1] == {"as": "date", "format": "%d.%m.%Y"}
    digits = [f"2013{i % 12 + 1:02d}{i % 28 + 1:02d}" for i in range(1000)]
    assert _found([*digits, "20130231"])[1] == {"as": "date", "format": "%Y%m%d"}


def test_the_decimal_sign_of_text_in_typed_files_is_that_of_its_table():
    def types(**columns):
        schema, _ = infer(Sample(pa.table(columns)), {}, only=False, needed=frozenset(), where="w")
        return [(column.type, column.parse.as_ if column.parse else None) for column in schema.columns]

    either, text = ["7.776", "1.234"] * 10, ("bytes", None)
    assert types(a=either) == [text]
    assert types(a=either, b=["$12.50", "$3.25"] * 10) == [text, ("float32", "number")]
    assert types(a=either, b=["12,50 €", "3,25 €"] * 10) == [("int64", "decimal_comma"), ("float32", "decimal_comma")]
    assert types(a=["1234567890123456", ""] * 10) == [text]
