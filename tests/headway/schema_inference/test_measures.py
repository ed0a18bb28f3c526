"""Numbers with units, shortened numbers and durations stay text, and the rule that reads them is said."""

import pyarrow as pa
import pytest
import yaml

from headway.schema.parse_rules import Parse, parsed
from headway.schema_inference.text_patterns import recognized


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        (["12 kg", "3.5kg", "7 KG"], "12, 3.5, 7"),
        (["1,200 sq ft", "900 sq ft", "85 sq ft"], "1200, 900, 85"),
        (["1 year", "3 years", "2 years"], "1, 3, 2"),
        (["10,000+", "500+", "1,000+"], "10000, 500, 1000"),
        (["21.5 °C", "-3 °C", "4°C"], "21.5, -3, 4"),
        (["85 m²", "1.200,5 m²", "7,5 m²"], "85, 1200.5, 7.5"),
        (["1.2M", "300k", "950"], "1.2e6, 300e3, 950"),
        (["$1.2b", "$3bn", "$0.5b"], "1.2e9, 3e9, 0.5e9"),
        (["12 m", "3 m", "4.5 m"], "12, 3, 4.5"),
        (["1:02:03", "0:45:10", "0:00:07"], "3723, 2710, 7"),
        (["2:35 PM", "12:05 am", "1 am"], "52500, 300, 3600"),
        (["2h 50m", "19h", "5m"], "10200, 68400, 300"),
        (["1 days 01:02:03", "1 days 00:00:10", "0 days 00:00:10"], "90123, 86410, 10"),
        (["12 kg", "3 kg", "4 kg", "?"], "12, 3, 4, "),
    ],
)
def test_the_rule_that_is_said_reads_the_numbers(values, numbers):
    found = recognized(pa.array(values), plain=True)
    assert found.type is found.parse is None and found.doubt and f"to read numbers, {values[0]!r} as " in found.note
    rule = Parse.model_validate(yaml.safe_load(found.note.rpartition("say ")[2])["parse"])
    assert ", ".join(text or "" for text in parsed(pa.array(values), rule)[0].to_pylist()) == numbers


@pytest.mark.parametrize(
    "values",
    [
        ["36 months", "60 months"], ["12 kg", "30 lb", "7 kg"], ["01A", "02A", "03A"], ["1st", "2nd", "3rd"], ["A1", "B2", "C3"],
        ["10:75", "11:80"], ["3-4", "5-6"], ["12 Main St", "7 Oak Av", "9 Elm Rd"], ["100", "abc", "d e"], ["4x4", "6x6", "8x8"],
        ["$1.2M", "€300k", "$4M", "€2M"], ["$5 a day", "€6 a day", "$7 a day"],
    ],
)  # fmt: skip
def test_what_may_be_no_measure_is_text_without_a_word(values):
    found = recognized(pa.array(values), plain=True)
    assert found.type is found.parse is found.note is None


def test_one_value_in_a_hundred_may_be_something_else():
    found = recognized(pa.array([f"{i} kg" for i in range(200)] + ["heavy"]), plain=True)
    assert found.note == """read as text: to read numbers, '0 kg' as 0, say parse: {"as": "number", "unit": ["kg"]}"""
