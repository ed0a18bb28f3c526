"""Numbers that count the time since 1970 are times if the column's name says so; they are stored and sent as they are."""

import numpy as np
import pyarrow as pa
import pytest

from headway.schema.calendar_days import DAY, PER_DAY, parts_of
from headway.schema.columns import Column, ColumnConfig
from headway.schema.parse_rules import Parse
from headway.schema_inference.column_types import epoch_rule, infer, says_date, says_time
from headway.sources.sample import Sample
from headway.tabular.coerce import coerce

SECOND = 1_700_000_000  # 2023-11-14 22:13:20 UTC


UNITS = {"epoch_seconds": 1, "epoch_milliseconds": 10**3, "epoch_microseconds": 10**6, "epoch_nanoseconds": 10**9}


@pytest.mark.parametrize(("kind", "scale"), UNITS.items())
def test_the_unit_follows_from_the_size(kind, scale):
    rule, note = epoch_rule("created_at", pa.array([SECOND * scale, None, (SECOND + 7) * scale]))
    assert rule.as_ == kind and f"{SECOND * scale} is 2023-11-14 22:13:20" in note
    assert (scale == 10**6) == (rule.temporal == "timestamp")  # stored as every other time is
    for part, value in {"hour": 22, "minute": 13, "second": 20, "weekday": 1, "month": 11}.items():
        assert parts_of(np.array([SECOND * scale]), rule.temporal, part)[0] == value


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("user_id", [SECOND, SECOND + 1]),
        ("timestamp_id", [SECOND, SECOND + 1]),
        ("amount", [SECOND, SECOND + 1]),
        ("time", [3, 14]),
        ("time", [SECOND, 5, 6]),
        ("time", [None, None]),
        ("ts", [str(SECOND)]),
    ],
)
def test_other_numbers_are_no_times(name, values):
    assert epoch_rule(name, pa.array(values, None if values[0] else pa.int64())) is None


def test_names_that_say_times_or_dates():
    assert all(
        map(says_time, ("ts", "createdAt", "unixReviewTime", "Timestamp", "last seen", "event_ts", "pickup_datetime"))
    )
    assert not any(map(says_time, ("price", "order_id", "status", "key")))
    assert says_date("yyyymm") and says_date("Order Date") and not says_date("code")


def _inferred(values, name="ts", needed=frozenset(), **config):
    sample = Sample(pa.table({name: pa.array(values)}))
    configs = {name: ColumnConfig(**config)} if config else {}
    return infer(sample, configs, only=False, needed=needed, where="x", typed=False)[0].column(name)


def test_the_schema_has_the_rule_unless_the_pipeline_says_otherwise():
    column = _inferred([SECOND, SECOND + 1])
    assert (column.type, column.temporal, column.parse.as_) == ("int64", "epoch_seconds", "epoch_seconds")
    assert _inferred([SECOND + 0.5, SECOND]).type == "int64"  # float32 would round to minutes
    assert _inferred([SECOND], type="int").temporal is None
    assert _inferred([SECOND], needed=frozenset({"ts"})).temporal is None  # an expression compares the number
    assert _inferred([SECOND], name="n", parse="epoch_seconds").temporal == "epoch_seconds"
    assert _inferred(["20240101", "20240102"], parse={"as": "epoch_seconds"}).type == "int64"


def test_months_as_six_digits_are_dates_if_the_name_says_so_or_there_are_many():
    months = [f"2023{month:02d}" for month in range(1, 13)]
    assert _inferred([*map(int, months)], name="month").parse.format == "%Y%m"
    assert _inferred([*map(int, months)], name="code").parse is None
    assert (
        _inferred([int(f"{year}{month:02d}") for year in (2022, 2023) for month in range(1, 13)], name="x").temporal
        == "date"
    )
    assert _inferred([20240101, 20240102, 20240105], name="day").parse.format == "%Y%m%d"


@pytest.mark.parametrize(("kind", "scale"), UNITS.items())
def test_texts_and_numbers_in_all_units_are_stored_alike(kind, scale):
    rule = Parse.model_validate(kind)
    column = Column(name="ts", type="int64", nullable=True, parse=rule, temporal=rule.temporal)

    def stored(values):
        return coerce(pa.record_batch({"ts": values}), [column]).batch.to_pydict()["ts"]

    assert stored([str(SECOND * scale), "1.7e+09", None]) == [SECOND * scale, SECOND, None]
    assert stored([str(SECOND), "NaN", "nan"]) == [SECOND, None, None]
    for raw in ([SECOND, None], [SECOND + 0.75, None], [f"{SECOND}.5", None], [f" {SECOND}", None]):
        assert stored(raw) == [SECOND, None]
    [reason] = coerce(pa.record_batch({"ts": ["soon"]}), [column]).rejected["reason"].to_pylist()
    assert reason.startswith("is not a number of")
    assert stored(["-5.5", "-5.0", "+5.5", "-0.25"]) == stored([-5.5, -5.0, 5.5, -0.25]) == [-6, -5, 5, -1]
    # a later file has them as timestamps
    moments = pa.array([SECOND * 1000 + 250, None], pa.timestamp("ms"))
    assert stored(moments) == [SECOND * scale + scale // 4, None]


def test_a_later_file_may_have_dates_for_times_and_times_for_dates():
    day = pa.array([19_723, -1, None], pa.date32())
    time = pa.array([19_723 * DAY + 5, -1, None], pa.timestamp("us"))
    for unit in ("date", "timestamp"):
        column = Column(name="d", type="int64", nullable=True, temporal=unit)
        of_days, of_times = (
            coerce(pa.record_batch({"d": raw}), [column]).batch.to_pydict()["d"] for raw in (day, time)
        )
        assert of_days == [19_723 * PER_DAY[unit], -PER_DAY[unit], None]
        assert of_times == ([19_723, -1, None] if unit == "date" else [19_723 * DAY + 5, -1, None])
