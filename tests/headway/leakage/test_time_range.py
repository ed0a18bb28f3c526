"""Times of every kind: null ones apart, merged in any order to the same."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.leakage.time_range import time_range, time_text


def test_what_is_missing_is_counted_and_text_has_no_range():
    texts = pa.array([b"2013-01-01", b"soon", None], pa.binary())
    for column in (texts, texts.dictionary_encode()):
        note = time_range(column, "text")
        assert (note.kinds, note.low, note.high, note.missing) == (("text",), None, None, 1)
    digits = time_range(pa.array([7, None, 3], pa.int64()), "text")
    assert (digits.kinds, digits.low, digits.high, digits.missing) == (("number",), 3, 7, 1)
    floats = time_range(pa.array([1.5, None, float("nan"), -2.0], pa.float32()), "number")
    assert (floats.low, floats.high, floats.missing) == (-2.0, 1.5, 2)


@given(st.lists(st.lists(st.integers(-5, 5) | st.none(), max_size=4), min_size=1, max_size=4), st.randoms())
def test_notes_merge_in_any_order(parts, random):
    notes = [time_range(pa.array(part, pa.int64()), "number") for part in parts]
    random.shuffle(notes)
    total = notes[0]
    for note in notes[1:]:
        total = total.merged(note)
    assert total == time_range(pa.array([v for part in parts for v in part], pa.int64()), "number")


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (15706, "date", "2013-01-01"),
        (1356998400000000, "timestamp", "2013-01-01"),
        (1357034400500000, "timestamp", "2013-01-01 10:00:00.500000"),
        (1357034400500000001, "epoch_nanoseconds", "2013-01-01 10:00:00.500000001"),
        (12345, "number", "12,345"),
        (1.5, "number", "1.5"),
        (None, "date", "none"),
    ],
)
def test_times_as_people_read_them(value, kind, text):
    assert time_text(value, kind) == text
