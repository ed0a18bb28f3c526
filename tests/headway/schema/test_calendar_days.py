"""The texts of stored dates and times."""

import pytest

from headway.schema.calendar_days import moment


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (15_706, "date", "2013-01-01"),
        (2**31 - 1, "date", "5881580-07-11"),
        (-1.5, "epoch_seconds", "1969-12-31 23:59:59"),
        (1_700_000_000_000_000, "epoch_seconds", "53872825-06-17 22:13:20"),
        (-(2**63), "epoch_milliseconds", "-292275055-05-16 16:47:04.193"),
        (-(2**63), "timestamp", "-290308-12-21 19:59:05.224193"),
        (float("nan"), "timestamp", "nan"),
    ],
)
def test_every_value_that_a_column_can_hold_has_a_text(value, unit, text):
    assert moment(value, unit) == text
