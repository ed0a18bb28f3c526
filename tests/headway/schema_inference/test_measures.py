"""Numbers with units, shortened numbers and durations are numbers; mixed units and few values stay text."""

import pyarrow as pa
import pytest

from headway.schema_inference.text_patterns import recognized


def _found(values):
    found = recognized(pa.array(values), plain=True)
    return found.type, found.parse.model_dump(mode="json") if found.parse else None, found.note or ""


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        (["12 kg", "3.5kg", "7 KG"], {"as": "number", "unit": ["kg"]}),
        (["1,200 sq ft", "900 sq ft", "85 sq ft"], {"as": "number", "unit": ["sq ft"]}),
        (["1 year", "3 years", "2 years"], {"as": "number", "unit": ["year", "years"]}),
        (["10,000+", "500+", "1,000+"], {"as": "number", "unit": ["+"]}),
        (["21.5 °C", "-3 °C", "4°C"], {"as": "number", "unit": ["°C"]}),
        (["85 m²", "1.200,5 m²", "7,5 m²"], {"as": "decimal_comma", "unit": ["m²"]}),
        (["1.2M", "300k", "950"], {"as": "abbreviated"}),
        (["19M", "8.7M", "2.2M"], {"as": "abbreviated"}),
        (["$1.2b", "$3b", "$0.5b"], {"as": "abbreviated"}),
        (["12 m", "3 m", "4.5 m"], {"as": "number", "unit": ["m"]}),
        (["1:02:03", "0:45:10"], {"as": "duration"}),
        (["14:35", "2:05"], {"as": "duration"}),
        (["2:35 PM", "12:05 am"], {"as": "duration"}),
        (["9am", "10 PM"], {"as": "duration"}),
        (["2h 50m", "19h", "5m"], {"as": "duration"}),
        (["0 days 01:02:03", "1 days 00:00:10"], {"as": "duration"}),
        (["-1 days +23:59:59", "1 days 00:00:10"], {"as": "duration"}),
        (["12 kg", "3 kg", "4 kg", "?"], {"as": "number", "unit": ["kg"], "null": ["?"]}),
    ],
)
def test_measures_are_numbers(values, rule):
    assert _found(values)[:2] == ("float32", rule)


@pytest.mark.parametrize(
    "values",
    [
        ["36 months", "60 months"], ["12 kg", "30 lb", "7 kg"], ["01A", "02A", "03A"], ["1st", "2nd", "3rd"], ["A1", "B2", "C3"],
        ["10:75", "11:80"], ["3-4", "5-6"], ["12 Main St", "7 Oak Av", "9 Elm Rd"], ["100", "abc", "d e"], ["4x4", "6x6", "8x8"],
        ["$1.2M", "€300k", "$4M", "€2M"], ["$5 a day", "€6 a day", "$7 a day"],
    ],
)  # fmt: skip
def test_text_stays_text(values):
    assert _found(values)[:2] == (None, None)


def test_notes_show_a_value_and_its_number():
    assert "'12 kg' is 12; requests send the number" in _found(["12 kg", "3 kg", "4 kg"])[2]
    assert "'1:02:03' is 3723 seconds" in _found(["1:02:03", "0:45:10"])[2]
    assert "different units, such as '12 kg' and '30 lb'" in _found(["12 kg", "30 lb", "7 kg", "1 lb", "9 kg"])[2]


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (["1.200 kg", "2.500 kg", "3.750 kg"], "the point separates thousands"),
        (["1,200 kg", "2,500 kg", "3,750kg"], "the comma is"),
    ],
)
def test_a_point_or_comma_before_three_digits_leaves_a_doubt(values, what):
    found = recognized(pa.array(values), plain=True)
    assert found.doubt and what in found.note and 'parse: {as: decimal_comma, unit: ["kg"]}' in found.note
    assert not recognized(pa.array([*values, "1.5 kg"]), plain=True).doubt


def test_one_value_in_a_hundred_may_be_something_else():
    kind, rule, note = _found([f"{i} kg" for i in range(200)] + ["heavy"])
    assert (kind, rule) == ("float32", {"as": "number", "unit": ["kg"]})
    assert "1 of 201 sampled values is not a number, such as 'heavy'" in note
