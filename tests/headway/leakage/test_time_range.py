"""Times of every kind: null, unreadable and readable ones apart, merged in any order to the same."""

import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.leakage.time_range import time_range, time_text

STAMPS = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1))


@given(st.lists(STAMPS, max_size=8), st.booleans())
def test_texts_are_compared_as_the_times_they_say(stamps, encoded):
    texts = pa.array([stamp.isoformat().encode() for stamp in stamps], pa.binary())
    note = time_range(texts.dictionary_encode() if encoded else texts, "text")
    as_numbers = time_range(pa.array(stamps, pa.timestamp("us")).cast(pa.int64()), "timestamp")
    assert (note.low, note.high) == (as_numbers.low, as_numbers.high)
    assert note.missing == note.unreadable == 0


def test_what_is_no_time_is_counted_and_zones_are_heeded():
    texts = pa.array(
        [b"2013-01-01T02:00:00+02:00", b"2013-01-01T00:00:00Z", b"soon", b"soon", None, b"\xff"], pa.binary()
    )
    note = time_range(texts, "text")
    assert note.low == note.high == 1356998400000000
    assert (note.missing, note.unreadable) == (1, 3)
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
        (1357034400000000, "text", "2013-01-01 10:00:00"),
        (1357034400, "epoch_seconds", "2013-01-01 10:00:00"),
        (1356998400000, "epoch_milliseconds", "2013-01-01"),
        (1357034400500000001, "epoch_nanoseconds", "2013-01-01 10:00:00.500000001"),
        (2**31 - 1, "date", "5881580-07-11"),  # the last of Arrow's
        (10**17, "epoch_seconds", "3168875820-09-06 09:46:40"),  # a number that is no time
        (12345, "number", "12,345"),
        (1.5, "number", "1.5"),
        (None, "date", "none"),
    ],
)
def test_times_as_people_read_them(value, kind, text):
    assert time_text(value, kind) == text
