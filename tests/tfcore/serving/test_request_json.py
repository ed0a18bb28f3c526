"""Requests as arrays: what is taken, and what is refused with which words."""

import base64
import json
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.schema.columns import Column
from headway.schema.tensor_name import tensor_name
from tfcore.export.signatures import signatures_of
from tfcore.serving import request_json
from tfcore.serving.request_json import RequestError, SignatureReader, most_values, parse_body

COLUMNS = (
    Column(name="dep delay", type="float32", nullable=True),
    Column(name="hour", type="int64", nullable=False),
    Column(name="carrier", type="bytes", nullable=True),
    Column(name="taste", type="float32", nullable=True, shape=(3,)),
    Column(name="tags", type="bytes", nullable=True, shape=(None,)),
)
DELAY = tensor_name("dep delay")
SIGNATURES = signatures_of(COLUMNS, "binary")
ROW = {DELAY: 12.5, "hour": 7, "carrier": "UA", "taste": [1, 2.5, 3], "tags": ["war", "noir"]}


def read(form, name, *values, signatures=SIGNATURES, columns=COLUMNS):
    """The rows of a body in this form."""
    sent = parse_body(bytearray(json.dumps({"sent": values}).encode()))["sent"]
    return getattr(SignatureReader(name, signatures[name], columns), form)(*sent)


instances, inputs = (partial(read, form) for form in ("of_instances", "of_inputs"))


def test_rows_become_arrays_of_the_signatures_types():
    encoded = {"b64": base64.b64encode(b"\xff\x00").decode()}
    rows = instances("serving_default", [ROW, ROW | {DELAY: 3, "carrier": encoded}])
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
    by_row = instances(name, [ROW, ROW | {"hour": 9}])
    by_column = inputs(name, {key: [ROW[key], 9 if key == "hour" else ROW[key]] for key in ROW})
    assert by_row.arrays.keys() == by_column.arrays.keys()
    for key, array in by_row.arrays.items():
        assert array.tolist() == by_column.arrays[key].tolist()


@pytest.mark.parametrize(
    ("column", "sent", "value"),
    [
        ("hour", 2**63 - 1, 2**63 - 1),
        ("hour", -(2**63), -(2**63)),
        ("hour", 2**53 + 1, 2**53 + 1),
        (DELAY, 3.4028235e38, np.finfo(np.float32).max),  # rounded to the largest, as everywhere
        (DELAY, 0.1, float(np.float32(0.1))),
        (DELAY, 10**16, float(np.float32(1e16))),
        (DELAY, -math.inf, -math.inf),
    ],
)
def test_numbers_are_exact_or_rounded_as_the_type_is(column, sent, value):
    assert instances("serving_default", [ROW | {column: sent}]).arrays[column].tolist() == [value]


@pytest.mark.parametrize("nothing", [{}, {DELAY: None}, {DELAY: math.nan}])
def test_a_null_float_is_nan_where_there_are_no_companions(nothing):
    row = {key: value for key, value in ROW.items() if key != DELAY} | nothing
    assert np.isnan(instances("serving_default", [row]).arrays[DELAY]).all()


def test_a_null_vector_is_nan_throughout_where_there_are_no_companions():
    assert np.isnan(instances("serving_default", [ROW | {"taste": None}]).arrays["taste"]).all()


def test_companions_say_what_is_null_and_how_long_a_list_is():
    sent = [
        {"hour": 1, "carrier__present": True},
        ROW,
        {**ROW, "carrier": "x", "carrier__present": False},
        {"hour": 1, "tags": []},
    ]
    arrays = instances("serving_nullable", sent).arrays
    assert arrays["carrier__present"].tolist() == [False, True, False, False]
    assert arrays[f"{DELAY}__present"].tolist() == [False, True, True, False]
    assert arrays["tags__length"].tolist() == [0, 2, 2, 0] and arrays["tags"].shape == (4, 2)
    assert arrays["tags__present"].tolist() == [False, True, True, True], "an empty list is no null"
    assert arrays[DELAY][1] == 12.5


def test_a_companion_of_the_column_form_may_be_one_value_for_all_rows():
    asked = {"hour": [1, 2], "carrier": ["a", "b"], "carrier__present": [False], "tags": [["x", "y"], []]}
    arrays = inputs("serving_nullable", asked | {"tags__length": [1]}).arrays
    assert arrays["carrier__present"].tolist() == [False, False]
    assert arrays["tags__length"].tolist() == [1, 0], "no longer than the row's own list"


def test_an_argument_of_a_signature_stands_in_the_column_form_and_has_its_default():
    columns = {key: [value] for key, value in ROW.items()}
    assert inputs("classify", columns).arrays["threshold"] == np.float32(0.5)
    asked = inputs("classify", columns | {"threshold": 0.25}).arrays["threshold"]
    assert asked == np.float32(0.25) and asked.shape == () and asked.dtype == np.float32


def test_a_signature_of_one_input_takes_plain_values():
    encoded = {"b64": base64.b64encode(b"\x0a\x00").decode()}
    for form in (instances, inputs):
        assert form("serve_examples", [encoded]).arrays["examples"].tolist() == [b"\x0a\x00"]


def test_a_word_for_a_missing_number_is_a_null():
    form = partial(instances, columns=tuple(column.model_copy(update={"null": ("", "NA")}) for column in COLUMNS))
    for name in ("serving_default", "serving_nullable"):
        arrays = form(name, [ROW | {DELAY: "NA"}]).arrays
        assert math.isnan(arrays[DELAY][0]) if name == "serving_default" else not arrays[DELAY + "__present"][0]
        assert arrays["carrier"].tolist() == [b"UA"]
    with pytest.raises(RequestError, match="'N/A', not a number"):
        form("serving_default", [ROW | {DELAY: "N/A"}])


def test_a_date_or_time_is_a_number_and_its_error_names_the_unit():
    columns = (
        Column(name="day", type="int64", nullable=False, temporal="date"),
        Column(name="since", type="int64", nullable=True, temporal="epoch_milliseconds"),
    )
    form = partial(instances, signatures=signatures_of(columns, "binary"), columns=columns)
    wanted = [1359626400000]
    assert form("serving_nullable", [{"day": 15736, "since": 1359626400000}]).arrays["since"].tolist() == wanted
    for row, unit in (({"day": "2013-01-31"}, "days"), ({}, "days"), ({"day": 1, "since": "now"}, "milliseconds")):
        with pytest.raises(RequestError, match=rf"send an integer, {unit} since 1970-01-01 \(UTC\)"):
            form("serving_nullable", [row])


DEFAULT, NULLABLE, CLASSIFY = "serving_default", "serving_nullable", "classify"
REFUSED = [
    (instances, DEFAULT, [ROW | {DELAY: "late"}], f"instances[0].{DELAY}: is 'late', not a number (float32)"),
    (instances, DEFAULT, [ROW | {DELAY: "1"}], "send a number (float32), without quotes"),
    (instances, DEFAULT, [ROW | {DELAY: True}], "is true, not a number"),
    (instances, DEFAULT, [ROW | {DELAY: 1e300}], "is 1e+300, not a number (float32)"),
    (instances, DEFAULT, [ROW | {DELAY: 3.5e38}], "is 3.5e+38, not a number (float32)"),
    (instances, DEFAULT, [ROW | {DELAY: 10**400}], "not a number (float32)"),
    (instances, DEFAULT, [ROW | {DELAY: [1.0]}], "is a list of 1 value, not a number"),
    (instances, DEFAULT, [ROW | {DELAY: {}}], "is an object, not a number"),
    (instances, DEFAULT, [ROW, ROW | {"hour": 1.5}], "instances[1].hour: is 1.5, not an integer (int64)"),
    (instances, DEFAULT, [ROW | {"hour": 2**63}], "is 9223372036854775808, not an integer"),
    (instances, DEFAULT, [ROW | {"hour": 7.0}], "is 7.0, not an integer (int64)"),
    (instances, DEFAULT, [ROW | {"hour": math.nan}], "is nan, not an integer"),
    (instances, DEFAULT, [ROW | {"hour": False}], "is false, not an integer"),
    (
        instances,
        DEFAULT,
        [ROW, ROW | {"hour": None}],
        "instances[1].hour: is null or missing, and serving_default has no",
    ),
    (instances, DEFAULT, [ROW | {"carrier": 3}], "is 3, not a text"),
    (instances, DEFAULT, [ROW | {"carrier": {"b64": "?"}}], "b64: '?' is not base64"),
    (instances, DEFAULT, [ROW | {"carrier": {"b64": 3}}], "b64: 3 is not base64"),
    (instances, DEFAULT, [ROW | {"carrier": "\ud800"}], r"is '\ud800', not a text"),
    (
        instances,
        DEFAULT,
        [ROW | {"carrier": None}],
        'nulls of nullable columns go to "signature_name": "serving_nullable"',
    ),
    (instances, DEFAULT, [ROW | {"taste": [1, 2]}], "taste: is a list of 2 values, not a list of 3 values"),
    (instances, DEFAULT, [ROW | {"taste": 1}], "taste: is 1, not a list of 3 values"),
    (instances, DEFAULT, [ROW, ROW | {"taste": [1, "x", 3]}], "instances[1].taste[1]: is 'x', not a number"),
    (instances, DEFAULT, [ROW | {"taste": [1, None, 3]}], "instances[0].taste[1]: is null, not a number"),
    (
        instances,
        DEFAULT,
        [ROW, ROW | {"tags": ["a"]}],
        "instances[1].tags: has fewer values than another row, which has 2",
    ),
    (instances, DEFAULT, [ROW, ROW | {"tags": ["a", 1]}], "instances[1].tags[1]: is 1, not a text"),
    (instances, DEFAULT, [ROW | {"carier": "x"}], "serving_default has no input 'carier'; did you mean 'carrier'?"),
    (instances, DEFAULT, [ROW | {"carrier__present": True}], "no input 'carrier__present'; ask for"),
    (instances, DEFAULT, {}, "instances: is an object, not a list"),
    (instances, DEFAULT, [], "instances: has no rows"),
    (instances, DEFAULT, [3], "instances[0]: is 3, not an object"),
    (instances, DEFAULT, [{"hour": 1}], "instances[0].carrier: is null or missing"),
    (instances, NULLABLE, [{"carrier": "UA"}], "instances[0].hour: is null or missing"),
    (instances, NULLABLE, [{"hour": 1, "carrier__present": 1}], "carrier__present: is 1, not true or false"),
    (instances, CLASSIFY, [ROW | {"threshold": 0.5}], "send the column form"),
    (instances, "serve_examples", [3], "instances[0].examples: is 3, not a text"),
    (inputs, CLASSIFY, [1], "inputs: is a list of 1 value, not an object"),
    (inputs, CLASSIFY, {"hour": 1}, "inputs.hour: is 1, not a list"),
    (inputs, CLASSIFY, {"hour": [1, 2], "carrier": ["a"]}, "inputs.carrier: has 1 value, and others have 2"),
    (inputs, CLASSIFY, {"hour": []}, "inputs: has no rows"),
    (inputs, CLASSIFY, {"carrier__present": [True]}, "inputs: has no rows"),
    (inputs, CLASSIFY, {"hours": [1]}, "has no input 'hours'; did you mean 'hour'?"),
    (inputs, CLASSIFY, {"hour": [1], "threshold": "x"}, "inputs.threshold: is 'x', not a number"),
    (inputs, CLASSIFY, {"hour": [1], "threshold": None}, "inputs.threshold: is null"),
]


@pytest.mark.parametrize(("form", "name", "sent", "words"), REFUSED)
def test_what_is_wrong_is_said_with_its_place_value_and_fix(form, name, sent, words):
    with pytest.raises(RequestError) as error:
        form(name, sent)
    assert words in str(error.value).replace("\n  fix: ", "; ") and error.value.status == 400


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "the body is not JSON"),
        (b"\xff\xfe\xfd", "the body is not JSON"),
        (b"\x1f\x8b\x08", "send it in UTF-8, uncompressed"),
        (b"", "the body is not JSON"),
        (b"[1]", "the body: is a list of 1 value, not an object"),
        (b'{"a": 1, "a": 2}', "an object has the key 'a' twice"),
        (b'{"instances": [{"a": {"b": 1, "c": 2, "b": 3}}]}', "the key 'b' twice"),
        (b'{"a": ' + b"[" * 100_000, "not JSON: maximum recursion depth"),
        (b'{"a": ' + b'{"a":' * 100_000, "not JSON: maximum recursion depth"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON: Exceeds the limit"),
        (b'{"a": 1e400}', "1e400 is larger than any number"),
    ],
)
def test_odd_json_is_refused_with_its_reason(body, words):
    with pytest.raises(RequestError) as error:
        parse_body(bytearray(body))
    assert words in str(error.value)


def test_what_would_fill_the_memory_is_refused_before_it_does(monkeypatch):
    monkeypatch.setattr(request_json, "MOST_VALUES", 3000)
    monkeypatch.setattr(request_json, "MOST_ROWS", 100)
    for form, sent, words in (
        (instances, [{"hour": 1}] * 101, "instances: has 101 rows, more than 100"),
        (inputs, {"hour": [1] * 101}, "inputs: has 101 rows, more than 100"),
        (instances, [{"hour": 1, "tags": ["a"] * 4000}], "the request: has 4,0"),
        (instances, [{"hour": 1}] * 89 + [{"hour": 1, "tags": ["a"] * 200}], "instances[0].tags: has 18,"),
    ):
        with pytest.raises(RequestError) as error:
            form(NULLABLE, sent)
        assert str(error.value).startswith(words) and error.value.status == 413, error.value
    monkeypatch.setattr(request_json, "MOST_VALUES", 500)
    with pytest.raises(RequestError, match=r"has 600 values, with those that are left out, more than 500"):
        instances(NULLABLE, [{}] * 60)
    monkeypatch.setattr(request_json, "WIDE_BYTES", 1000)
    wide = json.dumps({"a": "x" * 1000 + "\U0001f525"}, ensure_ascii=False).encode()
    with pytest.raises(RequestError, match="too large for a letter outside Unicode's basic plane"):
        parse_body(bytearray(wide))
    assert len(parse_body(bytearray(wide[:900] + b'"}'))["a"]) == 893


TEXTS = st.text(st.sampled_from('a,[{:"\\\n\u00e9\U0001f525'), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["b64", "x"]), inner, max_size=2),
    max_leaves=6,
)
NAMES = st.sampled_from([*ROW, "carrier__present", "tags__length", "threshold", "dep delay", "zzz"])
CELLS = st.dictionaries(NAMES, VALUES, max_size=7)


@given(st.sampled_from(sorted(SIGNATURES)), st.lists(CELLS | VALUES, max_size=3), CELLS | VALUES)
def test_whatever_json_is_sent_is_read_or_refused_as_the_clients_mistake(name, rows, columns):
    for form, value in ((instances, [rows]), (inputs, [columns])):
        try:
            found = form(name, *value)
        except RequestError as error:
            assert error.status == 400
        else:
            assert all(len(array) == found.count for array in found.arrays.values() if array.ndim)


def counted(value):
    """Values, of which those with a name count twice."""
    if isinstance(value, list):
        return 1 + sum(map(counted, value))
    return 1 + sum(1 + counted(one) for one in value.values()) if isinstance(value, dict) else 1


@given(VALUES, st.booleans())
def test_there_are_at_most_as_many_values_as_are_counted_without_reading_them(value, ascii_only):
    assert most_values(bytearray(json.dumps(value, ensure_ascii=ascii_only).encode())) >= counted(value)
