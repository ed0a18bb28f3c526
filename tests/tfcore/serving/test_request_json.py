"""Requests as arrays: what is taken, and what is refused with which words."""

import base64
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.schema.columns import Column
from headway.schema.tensor_name import tensor_name
from tfcore.export.signatures import describe
from tfcore.serving.refusals import RequestError, answered
from tfcore.serving.request_json import SignatureReader

COLUMNS = (
    Column(name="dep delay", type="float32", nullable=True),
    Column(name="hour", type="int64", nullable=False),
    Column(name="carrier", type="bytes", nullable=True),
    Column(name="taste", type="float32", nullable=True, shape=(3,)),
    Column(name="tags", type="bytes", nullable=True, shape=(None,)),
)
DELAY = tensor_name("dep delay")
SIGNATURES = describe(COLUMNS, "binary")
ROW = {DELAY: 12.5, "hour": 7, "carrier": "UA", "taste": [1, 2.5, 3], "tags": ["war", "noir"]}


def reader(name="serving_default"):
    return SignatureReader(name, SIGNATURES[name], COLUMNS)


def test_rows_become_arrays_of_the_signatures_types():
    rows = reader().of_instances([ROW, ROW | {DELAY: 3, "carrier": {"b64": base64.b64encode(b"\xff\x00").decode()}}])
    assert rows.count == 2
    found = {name: (array.dtype, array.shape) for name, array in rows.arrays.items()}
    assert found == {
        DELAY: (np.float32, (2,)),
        "hour": (np.int64, (2,)),
        "carrier": (object, (2,)),
        "taste": (np.float32, (2, 3)),
        "tags": (object, (2, 2)),
    }
    assert rows.arrays["carrier"].tolist() == [b"UA", b"\xff\x00"]
    assert rows.arrays["taste"][0].tolist() == [1.0, 2.5, 3.0]


@pytest.mark.parametrize("name", ["serving_default", "serving_nullable", "classify", "transform"])
def test_columns_and_rows_of_the_same_values_become_the_same_arrays(name):
    by_row = reader(name).of_instances([ROW, ROW | {"hour": 9}])
    by_column = reader(name).of_inputs({key: [ROW[key], 9 if key == "hour" else ROW[key]] for key in ROW})
    assert by_row.arrays.keys() == by_column.arrays.keys()
    for key, array in by_row.arrays.items():
        assert array.tolist() == by_column.arrays[key].tolist()


TIMES = (
    Column(name="day", type="int64", nullable=False, temporal="date"),
    Column(name="at", type="int64", nullable=True, temporal="timestamp"),
    Column(name="since", type="int64", nullable=True, temporal="epoch_milliseconds"),
)


def times(**row):
    signatures = describe(TIMES, "binary")
    sent = SignatureReader("serving_nullable", signatures["serving_nullable"], TIMES).of_instances([row])
    return [sent.arrays[column.name][0] for column in TIMES]


def test_dates_and_times_may_be_iso_texts():
    numbers = times(day=15736, at=1359626400000000, since=1359626400000)
    assert numbers == [15736, 1359626400000000, 1359626400000]
    assert times(day="2013-01-31", at="2013-01-31T11:00:00+01:00", since="2013-01-31 10:00") == numbers
    assert times(day=15736.0, at="2013-01-31T10:00Z", since="2013-01-31T10:00:00.000") == numbers


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"day": "31.01.2013"},
            "instances[0].day: is '31.01.2013', not a date; send a whole number of days since 1970-01-01",
        ),
        ({"day": "2013-01-31T10:00:00"}, "or an ISO text such as '2013-01-31'"),
        ({"day": "15736"}, "a whole number of days"),
        ({"day": "2013-02-30"}, "a whole number of days"),
        ({"day": 1.5}, "a whole number of days"),
        ({"day": True}, "is true, not a date; send a whole number of days"),
        ({"day": None}, "is null; send a whole number of days since 1970-01-01"),
        ({"day": 1, "at": "soon\ud800"}, "a whole number of microseconds since 1970-01-01 (UTC)"),
        ({"day": 1, "since": "now"}, "a whole number of milliseconds since 1970-01-01 (UTC)"),
    ],
)
def test_an_error_about_a_time_names_its_unit(row, said):
    with pytest.raises(RequestError) as error:
        times(**row)
    assert said in answered(error.value)


@pytest.mark.parametrize("nothing", [{}, {DELAY: None}, {DELAY: math.nan}])
def test_a_null_float_is_nan_where_there_are_no_companions(nothing):
    row = {key: value for key, value in ROW.items() if key != DELAY} | nothing
    assert np.isnan(reader().of_instances([row]).arrays[DELAY]).all()


def test_a_null_vector_is_nan_throughout_where_there_are_no_companions():
    assert np.isnan(reader().of_instances([ROW | {"taste": None}]).arrays["taste"]).all()


def test_companions_say_what_is_null_and_how_long_a_list_is():
    rows = reader("serving_nullable").of_instances(
        [{"hour": 1}, ROW, {**ROW, "carrier": "x", "carrier__present": False}]
    )
    arrays = rows.arrays
    assert arrays["carrier__present"].tolist() == [False, True, False]
    assert arrays[f"{DELAY}__present"].tolist() == [False, True, True]
    assert arrays["tags__length"].tolist() == [0, 2, 2] and arrays["tags"].shape == (3, 2)
    assert arrays[f"{DELAY}"][1] == 12.5


def test_a_companion_of_the_column_form_may_be_one_value_for_all_rows():
    asked = {"hour": [1, 2], "carrier": ["a", "b"], "carrier__present": [False], "tags": [["x", "y"], []]}
    arrays = reader("serving_nullable").of_inputs(asked | {"tags__length": [1]}).arrays
    assert arrays["carrier__present"].tolist() == [False, False]
    assert arrays["tags__length"].tolist() == [1, 0], "no longer than the row's own list"


def test_an_argument_of_a_signature_stands_in_the_column_form_and_has_its_default():
    inputs = {key: [value] for key, value in ROW.items()}
    assert reader("classify").of_inputs(inputs).arguments["threshold"] == np.float32(0.5)
    asked = reader("classify").of_inputs(inputs | {"threshold": 0.25}).arguments["threshold"]
    assert asked == np.float32(0.25) and asked.shape == () and asked.dtype == np.float32


def test_a_signature_of_one_input_takes_plain_values():
    encoded = {"b64": base64.b64encode(b"\x0a\x00").decode()}
    for rows in (reader("serve_examples").of_instances([encoded]), reader("serve_examples").of_inputs([encoded])):
        assert rows.arrays["examples"].tolist() == [b"\x0a\x00"]


def test_examples_have_the_names_of_the_columns_and_share_a_context():
    examples = [{"dep delay": [1.5], "tags": ["a"], "taste": [1, 2, 3]}, {"carrier": "UA"}]
    rows = reader("serving_nullable").of_examples(examples, {"hour": 4})
    assert rows.arrays["hour"].tolist() == [4, 4] and rows.arrays["tags__length"].tolist() == [1, 0]
    assert rows.arrays["carrier__present"].tolist() == [False, True]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({DELAY: "late"}, f"instances[1].{DELAY}: is 'late', not a number; send float32, without quotes"),
        ({DELAY: True}, "is true, not a number; send float32"),
        ({DELAY: 1e300}, "is 1e+300, beyond float32; send at most 3.4e38"),
        ({DELAY: 10**400}, "beyond float32"),
        ({DELAY: [1.0]}, "is a list of 1 value, not a number"),
        ({DELAY: {}}, "is an empty object, not a number"),
        ({"hour": 1.5}, "instances[1].hour: is 1.5, not a whole number of 64 bits; send int64"),
        ({"hour": 2**63}, "is 9223372036854775808, not a whole number of 64 bits"),
        ({"hour": math.nan}, "is nan, not a whole number"),
        ({"hour": None}, "instances[1].hour: is null; send a whole number of 64 bits"),
        ({"carrier": 3}, "is 3, not a text"),
        ({"carrier": {"b64": "?"}}, "instances[1].carrier: its b64 is not base64; encode it in base64"),
        ({"carrier": "\ud800"}, "is not valid Unicode"),
        (
            {"carrier": None},
            'is null, and serving_default has no nulls in this column; send a text, or {"b64": "..."} for bytes',
        ),
        ({"taste": [1, 2]}, "instances[1].taste: is 2 values, not a list of 3 float32 values"),
        ({"taste": 1}, "is 1, not a list of 3 float32 values"),
        ({"taste": [1, "x", 3]}, "instances[1].taste[1]: is 'x', not a number"),
        ({"tags": ["a"]}, "has 1 value, and another row has 2; ask for"),
        ({"tags": ["a", 1]}, "instances[1].tags[1]: is 1, not a text"),
        ({"carier": "x"}, "instances[1]: serving_default has no input 'carier'; did you mean 'carrier'?"),
        ({"dep delay": 1}, f"serving_default has no input 'dep delay'; its input is called '{DELAY}'"),
        ({"carrier__present": True}, 'has no input \'carrier__present\'; ask for "signature_name": "serving_nullable"'),
    ],
)
def test_what_is_wrong_with_a_row_is_said_with_its_place_value_and_fix(changed, words):
    with pytest.raises(RequestError) as error:
        reader().of_instances([ROW, ROW | changed])
    assert words in answered(error.value)


@pytest.mark.parametrize(
    ("name", "instances", "words"),
    [
        ("serving_default", {}, "instances: is an empty object, not a list of rows"),
        ("serving_default", [], "instances: is a list of 0 values, not a list of rows"),
        ("serving_default", [3], "instances[0]: is 3, not an object"),
        ("serving_default", [{"hour": 1}], "instances[0].carrier: is missing, and serving_default has no nulls"),
        ("serving_nullable", [{"carrier": "UA"}], "instances[0].hour: is missing; send a whole number"),
        ("serving_nullable", [{"hour": 1, "carrier__present": True}], "is missing, but its __present is true"),
        ("serving_nullable", [{"hour": 1, "carrier__present": 1}], "carrier__present: is 1, not true or false"),
        ("classify", [ROW | {"threshold": 0.5}], "it is one value for all rows: send the column form"),
        ("serve_examples", [3], "instances[0].examples: is 3, not a text"),
    ],
)
def test_what_is_wrong_with_a_request_of_rows_is_said(name, instances, words):
    with pytest.raises(RequestError) as error:
        reader(name).of_instances(instances)
    assert words in answered(error.value)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([1], "inputs: is a list of 1 value, not an object of lists"),
        ({"hour": 1}, "inputs.hour: is 1, not a list"),
        ({"hour": [1, 2], "carrier": ["a"]}, "inputs.carrier: has 1 value, and others have 2"),
        ({"hour": []}, "inputs: has no rows"),
        ({"hours": [1]}, "has no input 'hours'; did you mean 'hour'?"),
        ({"hour": [1], "threshold": "x"}, "inputs.threshold: is 'x', not a number"),
        ({"hour": [1], "threshold": None}, "inputs.threshold: is null"),
    ],
)
def test_what_is_wrong_with_a_request_of_columns_is_said(inputs, words):
    with pytest.raises(RequestError) as error:
        reader("classify").of_inputs(inputs)
    assert words in answered(error.value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["b64", "x"]), inner, max_size=2),
    max_leaves=6,
)
NAMES = st.sampled_from([*ROW, "carrier__present", "tags__length", "threshold", "dep delay", "zzz"])
CELLS = st.dictionaries(NAMES, VALUES, max_size=7)


@given(st.sampled_from(sorted(SIGNATURES)), st.lists(CELLS | VALUES, max_size=3), CELLS | VALUES)
def test_whatever_json_is_sent_is_read_or_refused_as_the_clients_mistake(name, instances, inputs):
    for read, value in ((reader(name).of_instances, instances), (reader(name).of_inputs, inputs)):
        try:
            rows = read(json.loads(json.dumps(value)))
        except RequestError as error:
            assert error.status == 400 and answered(error)
        else:
            assert all(len(array) == rows.count for array in rows.arrays.values())


def test_a_word_for_a_missing_number_is_a_null():
    columns = tuple(column.model_copy(update={"null": ("", "NA")}) for column in COLUMNS)
    for name in ("serving_default", "serving_nullable"):
        rows = SignatureReader(name, SIGNATURES[name], columns).of_instances([ROW | {DELAY: "NA"}])
        assert (
            math.isnan(rows.arrays[DELAY][0]) if name == "serving_default" else not rows.arrays[DELAY + "__present"][0]
        )
        assert rows.arrays["carrier"].tolist() == [b"UA"]
    with pytest.raises(RequestError, match="'N/A', not a number"):
        SignatureReader("serving_default", SIGNATURES["serving_default"], columns).of_instances([ROW | {DELAY: "N/A"}])
