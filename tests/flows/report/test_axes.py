"""Labels at the axes of small figures: numbers and times that differ are told apart, and stand where they belong."""

import pytest

from flows.report.data import _labels, ticks


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([0.0126, 0.5, 0.98765], ["0.0126", "0.5", "0.9877"]),
        ([999_993.2, 999_998.93, 1_000_004.7], ["999,993.20", "999,998.93", "1,000,004.70"]),
        ([1_700_000_000, 1_700_000_400], ["1,700,000,000", "1,700,000,400"]),
        ([-1e300, 1.0, 1e300], ["-1e+300", "1", "1e+300"]),
        ([7.0], ["7"]),
    ],
)
def test_numbers_have_the_digits_that_tell_them_apart(values, told):
    assert ticks(values) == told


def test_a_label_stands_below_its_bar_or_at_its_edge():
    assert _labels([0, 1, 2], 3, None, ()) == {0.5: "0", 1.5: "1", 2.5: "2"}
    assert _labels([float(edge) for edge in range(21)], 20, None, ()) == {0: "0", 10: "10", 20: "20"}
    assert _labels(["a", "rare"], 2, None, {"a"}) == {0.5: "a", 1.5: ""}
    long = [each * 12 for each in "abcd"]
    assert _labels(long, 4, None, set(long)) == {0.0: "a" * 12, 4.0: "4 values"}


def test_times_stand_at_both_ends_to_the_second():
    assert _labels([0.25, 30_000.5, 90_000.0], 2, "epoch_seconds", ()) == {0: "1970-01-01", 2: "1970-01-02 01:00:00"}
    assert _labels([1_500_000, 3_000_000], 1, "timestamp", ()) == {0: "1970-01-01 00:00:01", 1: "1970-01-01 00:00:03"}
