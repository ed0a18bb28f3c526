"""Text as people write numbers and dates: one rule reads a column, and what does not fit it is told."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from headway.schema.calendar_days import DAY, PARTS, days_of, parts_of
from headway.schema.columns import Column, ColumnConfig, Schema
from headway.schema.parse_rules import Parse, parsed
from headway.schema.pbtxt import from_text, to_text
from headway.tabular.coerce import coerce, raw_types
from tests.properties import examples


def _made(rule, *texts):
    return parsed(pa.array(list(texts), pa.string()), Parse.model_validate(rule))[0].to_pylist()


@pytest.mark.parametrize(
    ("rule", "text", "made"),
    [
        ("number", "$1,234.50", "1234.50"),
        ("number", "€ 12", "12"),
        ("number", "12 EUR", "12"),
        ("number", "(12)", "-12"),
        ("number", "($1,200)", "-1200"),
        ("number", "-$5", "-5"),
        ("number", "$-5", "-5"),
        ("number", "12.3%", "12.3"),
        ("number", "1\u00a0234\u00a0567", "1234567"),
        ("number", "1'234.5", "1234.5"),
        ("number", "1,23,456", "123456"),
        ("number", "1e3", "1e3"),
        ("number", "(5", "(5"),
        ("number", "(-5)", "(-5)"),
        ("number", "12,34", "12,34"),
        ("number", "$", "$"),
        ("number", "", ""),
        ("decimal_comma", "1.234,50 €", "1234.50"),
        ("decimal_comma", "12,3 %", "12.3"),
        ({"unit": "kg"}, "1,200 KG", "1200"),
        ({"unit": "kg"}, "12 lb", "12 lb"),
        ({"as": "decimal_comma", "unit": "m²"}, "1.200,5 m²", "1200.5"),
        ("abbreviated", "$1.2M", "1.2e6"),
        ("abbreviated", "(300k)", "-300e3"),
        ("abbreviated", "950", "950"),
        ("abbreviated", "5e3k", "5e3k"),
        ("abbreviated", "k", "k"),
        ("duration", "1:02:03", "3723"),
        ("duration", "12:05 am", "300"),
        ("duration", "2:35 PM", "52500"),
        ("duration", "2h 50m", "10200"),
        ("duration", "1 day, 2:03:04.5", "93784.5"),
        ("duration", "-1:00", "-3600"),
        ("duration", "-1 day, 23:00:00", "-3600"),  # as Python writes an hour less than none
        ("duration", "-1 days +23:00:00", "-3600"),  # pandas
        ("duration", "-1 days -01:00:00", "-90000"),  # PostgreSQL
        ("duration", "-1.01:00:00", "-90000"),  # .NET
        ("duration", "25:61", "25:61"),
        ("duration", "13:00 pm", "13:00 pm"),
        ("duration", "5", "5"),
        ("duration", "", ""),
        ("epoch_seconds", "1700000000.75", 1_700_000_000),
        ("epoch_seconds", "now", None),
        ("%YQ%q", "1970Q2", 90),
        ("%YQ%q", "1970Q5", None),
        ("%G-W%V", "1970-W01", -3),
        ("%G-W%V", "2020-W53", 18_624),
        ("%G-W%V", "2024-W53", None),
        ("boolean", "Yes", "1"),
        ("boolean", "n", "0"),
        ("boolean", "maybe", "maybe"),
        ({"as": "number", "null": ["?"]}, " ? ", None),
        ("date", "2013-02-28", 15764),
        ("date", "2013-02-29", None),
        ("timestamp", "1970-01-01 00:00:01.5", 1_500_000),
        ("timestamp", "1970-01-01T02:00:00+02:00", 0),
        ("timestamp", "1970-01-01 00:00:00.5-01", 3_600_500_000),
        ("timestamp", "1970-01-02", DAY),
        ("%d/%m/%Y", "02/01/1970", 1),
        ("%d/%m/%Y", "1/13/1970", None),
        ("%b %d, %Y", "Jan 02, 1970", 1),
        ("%m/%d/%y %I:%M %p", "1/1/70 12:30 AM", 1_800_000_000),
    ],
)
def test_a_text_by_a_rule(rule, text, made):
    assert _made(rule, text) == [made]


@examples(200)
@given(st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)))
def test_dates_and_their_parts_are_those_of_the_calendar(moment):
    clock = moment.strftime("%I:%M:%S %p")
    text = f"{moment.month:02d}/{moment.day:02d}/{moment.year:04d} {clock}"
    (micros,) = _made("%m/%d/%Y %I:%M:%S %p", text)
    assert micros == (moment.replace(microsecond=0) - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    (days,) = _made("date", f"{moment.year:04d}-{moment.month}-{moment.day}")
    assert (
        days
        == (moment.date() - dt.date(1970, 1, 1)).days
        == days_of(*(np.array([v]) for v in moment.timetuple()[:3]))[0]
    )
    wanted = calendar(moment) | {"elapsed": micros}
    assert {part: int(parts_of(np.array([micros]), "timestamp", part)[0]) for part in PARTS} == wanted
    assert int(parts_of(np.array([days]), "date", "week")[0]) == moment.isocalendar().week


def calendar(moment):
    """Python's parts of a moment."""
    return {
        "year": moment.year,
        "quarter": (moment.month + 2) // 3,
        "month": moment.month,
        "week": moment.isocalendar().week,
        "day": moment.day,
        "day_of_year": moment.timetuple().tm_yday,
        "weekday": moment.weekday(),
        "hour": moment.hour,
        "minute": moment.minute,
        "second": moment.second,
        "elapsed": None,
    }


def test_a_bad_value_costs_its_row_and_numbers_are_taken_as_they_stand():
    price = Column(name="price", type="float32", nullable=True, parse=Parse.model_validate("number"))
    day = Column(name="day", type="int64", nullable=True, parse=Parse.model_validate("%d/%m/%Y"), temporal="date")
    batch = pa.record_batch(
        {
            "price": ["$1,234", "12", None, "cheap", "5"],
            "day": ["02/01/1970", None, "1/1/1970", "1/1/1970", "31/02/1970"],
        }
    )
    done = coerce(batch, [price, day])
    assert done.batch.to_pydict() == {"price": [1234.0, 12.0, None], "day": [1, None, 0]}
    assert [(row["row"], row["column"], row["value"], row["reason"]) for row in done.rejected.to_pylist()] == [
        (3, "price", "cheap", "is not a number that fits float32"),
        (4, "day", "31/02/1970", "is not a date of the form %d/%m/%Y"),
    ]
    numbers = coerce(pa.record_batch({"price": [1234.5], "day": [7]}), [price, day])  # as requests send them
    assert numbers.batch.to_pydict() == {"price": [1234.5], "day": [7]}
    assert raw_types([price, day]) == {}


def test_the_schema_file_keeps_rules():
    columns = (
        Column(
            name="price",
            type="float32",
            nullable=True,
            parse=Parse.model_validate({"as": "number", "null": ["?", "é"]}),
        ),
        Column(name="day", type="int64", nullable=True, parse=Parse.model_validate("date"), temporal="date"),
        Column(name="id", type="int64", nullable=True, meaning="identifier"),
    )
    text = to_text(Schema(columns=columns))
    assert from_text(text, where="x").columns == columns
    with pytest.raises(Exception, match="meaning=odd"):
        from_text(text.replace("meaning=identifier", "meaning=odd"), where="x")


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"parse": "%d/%Q"}, "%Q"),
        ({"parse": "%H:%M"}, "needs a year"),
        ({"parse": "%G-%m"}, "needs %G and %V"),
        ({"parse": {"as": "date", "unit": "kg"}}, "unit goes with number"),
        ({"parse": {"unit": "2kg"}}, "begins with no digit"),
        ({"parse": {"unit": ["kg", " "]}}, "' ' is not a unit"),
        ({"parse": "%YQ%q-%m"}, "%q, a quarter, and a month"),
        ({"parse": "%I %d/%m/%Y"}, "%p"),
        ({"parse": "number", "type": "string"}, "type: string"),
        ({"parse": "date", "shape": 3}, "one value per row"),
        ({"role": ["group", "key"]}, "one role"),
        ({"role": ["ignore", "feature"]}, "not a feature"),
    ],
)
def test_contradicting_settings_are_refused(config, told):
    with pytest.raises(ValidationError, match=told):
        ColumnConfig.model_validate(config)
