"""The size of a body before it is read, and what is refused in it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfcore.serving import request_body
from tfcore.serving.refusals import RequestError, RequestLimits, TooLarge
from tfcore.serving.request_body import most_values, parsed, values_of

TEXTS = st.text(st.sampled_from('a,[{:"\\\n\u00e9\U0001f525'), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def counted(value):
    """Values, of which those with a name count twice; an empty list or object counts as one of one value."""
    if isinstance(value, list):
        return 1 + max(1, sum(map(counted, value)))
    if isinstance(value, dict):
        return 1 + (sum(1 + counted(one) for one in value.values()) or 1)
    return 1


@given(VALUES, st.integers(1, 9), st.booleans())
def test_values_are_counted_without_reading_them_and_marks_in_texts_are_none(value, window, ascii_only):
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    before, request_body.MIB = request_body.MIB, window
    try:
        assert values_of(body) == counted(value)
    finally:
        request_body.MIB = before
    assert most_values(body) >= counted(value)


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_a_body_within_the_limits_is_read_as_json(value):
    body = bytearray(json.dumps(value).encode())
    assert parsed(body, RequestLimits(), 1 << 20) == value and not body


def test_a_body_of_too_many_values_or_too_wide_text_is_not_read():
    limits = RequestLimits(cells=100)
    with pytest.raises(TooLarge, match=r"the request has 103 values, more than 100.*\n.*--max-cells"):
        parsed(bytearray(b'{"a": [' + b"1," * 99 + b"1]}"), limits, 1 << 20)
    assert parsed(bytearray(json.dumps({"a": "," * 1000}).encode()), limits, 1 << 20)
    wide = bytearray(json.dumps({"a": "x" * 400_000 + "\U0001f525"}, ensure_ascii=False).encode())
    assert parsed(bytearray(wide), limits, 2 << 20)
    with pytest.raises(TooLarge, match="makes the text 2 MiB in memory, more than 1\n"):
        parsed(wide, limits, 1 << 20)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"a": 1, "a": 2}', "an object has the key 'a' twice"),
        (b'{"instances": [{"a": {"b": 1, "c": 2, "b": 3}}]}', "the key 'b' twice"),
        (b'{"a": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON: a whole number has thousands of digits"),
        (b"[1]", "is not a JSON object"),
    ],
)
def test_odd_json_is_refused_with_its_reason(body, words):
    with pytest.raises(RequestError, match=words):
        parsed(bytearray(body), RequestLimits(), 1 << 20)
