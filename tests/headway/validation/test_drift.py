"""Drift from the champion's window, and how grave a finding is."""

import numpy as np
import pyarrow as pa
import pytest

from headway.config import load
from headway.errors import ConfigError
from headway.monitor import Monitor
from headway.schema.columns import Column, Schema
from headway.statistics.split_statistics import SplitStatistics
from headway.validation.drift import check_drift, shifted_numbers
from headway.validation.stage import ChampionStatistics, ValidateConfig, ValidateRequest, validate
from tests.headway.statistics.made import statistics_of

ROWS = 4000
COLUMNS = (
    Column(name="carrier", type="bytes", nullable=True),
    Column(name="delay", type="float32", nullable=True),
    Column(name="label", type="int64", nullable=False),
)


def rows(share=0.5, shift=0.0, missing=0.0, labels=2, count=ROWS):
    random = np.random.default_rng(7)
    carriers = [b"AA" if u < share else b"UA" for u in random.random(count)]
    delay = random.normal(size=count) * 10 + shift
    return pa.record_batch(
        [
            pa.array(carriers, pa.binary()),
            pa.array(delay.astype(np.float32), mask=random.random(count) < missing),
            pa.array(random.integers(0, labels, count)),
        ],
        names=["carrier", "delay", "label"],
    )


@pytest.fixture
def check(tmp_path):
    def run(ours, theirs, config=None, gone=False, task="auto", schema=Schema(columns=COLUMNS[:2]), auto=()):
        for folder, batch in (("now/train", ours), ("now/eval", ours), ("then/train", theirs)):
            (tmp_path / folder).parent.mkdir(exist_ok=True)
            statistics_of(COLUMNS, batch).save(tmp_path / folder)
        request = ValidateRequest(
            schema=schema,
            auto=auto,
            statistics=tmp_path / "now",
            splits=("train", "eval"),
            spans=(),
            task=task,
            config=load(ValidateConfig, config or {}, where="pipeline.yaml"),
            champion=ChampionStatistics(name="version 3 (2013-01)", statistics=tmp_path / ("gone" if gone else "then")),
        )
        return [(a["severity"], a["column"], a["message"]) for a in validate(request, tmp_path, Monitor())["anomalies"]]

    return run


@pytest.mark.parametrize(("times", "said"), [(1000, "1,000 times"), (0.001, "1/1,000"), (3, None)])
def test_numbers_of_a_later_span_that_are_a_thousand_times_as_large_are_told(times, said):
    columns = (*COLUMNS[1:2], Column(name="late", type="int64", nullable=False))

    def of(factor):
        random = np.random.default_rng(3)
        delay = (random.normal(size=200) * factor).astype(np.float32)
        late = (random.random(200) < 0.01).astype(np.int64)
        return statistics_of(columns, pa.record_batch({"delay": delay, "late": late}))

    found = list(shifted_numbers("eval", of(times), of(1), ("delay", "late"), by_time=True))
    assert [a.column for a in found] == (["delay"] if said else [])
    if said:
        assert found[0].severity == "warning" and f"about {said} as large in the eval rows" in found[0].message


def test_numbers_that_all_lie_beyond_the_range_of_train_are_named_by_time():
    """A counter, a sum, one that falls; not a time, whose parts are learned, nor numbers that overlap by one value."""
    names = ("counter", "total", "left", "over", "day", "same")
    columns = [Column(name=n, type="int64", nullable=False, temporal="date" if n == "day" else None) for n in names]

    def of(first):
        at = np.arange(first, first + 300)
        columns_of = {"counter": at, "total": 7 * at + 1000, "left": 900 - at, "over": at - (first > 0), "day": at}
        return statistics_of(columns, pa.record_batch(columns_of | {"same": np.full(300, 3)}))

    train, later = of(0), of(300)
    found = {a.column: a for a in shifted_numbers("eval", later, train, names, by_time=True)}
    assert [*found] == ["counter", "total", "left"]
    assert {a.kind for a in found.values()} == {"drift"} and "ignore" in found["total"].fix
    assert found["left"].message.startswith(
        "column 'left' is below every value of train in all eval rows: it goes from 601 to 900 in train and from 301 to 600 "
    )
    assert [a.column for a in shifted_numbers("eval", later, train, ("over",), by_time=True)] == []
    assert [a.column for a in shifted_numbers("eval", later, train, names, by_time=False)] == []


def test_equal_data_move_and_drift_in_at_most_one_draw_of_a_hundred():
    """Heavy tails, values that are rare, two far values, counts, categories with many and with few values, missing ones,
    columns that are seldom there."""
    rows = 1000

    def of(random):
        normal = random.normal(size=(4, rows)).astype(np.float32)
        columns = {
            "heavy": np.exp(3 * normal[0]),
            "rare": np.where(random.random(rows) < 0.05, np.float32(1000), np.float32(0.5)),
            "two": np.where(random.random(rows) < 0.5, np.float32(1), np.float32(100)),
            "count": random.poisson(1, rows),
            "holes": pa.array(normal[1], mask=random.random(rows) < 0.5),
            "half": np.where(random.random(rows) < 0.5, np.float32(np.inf), normal[2]),
            "seldom": pa.array(normal[3], mask=random.random(rows) > 0.002),
            "at_times": pa.array(normal[3], mask=random.random(rows) > 0.03),
        }
        texts = {
            name: pa.array([b"%d" % v for v in random.integers(0, of, rows)])
            for name, of in (("many", 500), ("few", 2))
        }
        kinds = dict.fromkeys(columns, "float32") | {"count": "int64"} | dict.fromkeys(texts, "bytes")
        made = [Column(name=name, type=kind, nullable=True) for name, kind in kinds.items()]
        return [*columns], statistics_of(made, pa.record_batch(columns | texts))

    raised = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        (numbers, ours), (_, theirs) = of(random), of(random)
        found = [*shifted_numbers("eval", ours, theirs, numbers, by_time=True)]
        config = ValidateConfig(drift={"min_rows": 400})
        found += [a for a in check_drift(ours, theirs, "version 3", config) if a.severity != "info"]
        raised += bool(found)
    assert raised <= 2


def test_infinities_are_not_counted_as_missing():
    def of(share):
        delay = np.random.default_rng(3).normal(size=ROWS).astype(np.float32)
        delay[: round(share * ROWS)] = np.inf
        return statistics_of(COLUMNS[1:2], pa.record_batch({"delay": delay}))

    assert list(check_drift(of(0.3), of(0.0), "version 3", ValidateConfig())) == []
    assert list(check_drift(of(1.0), of(0.0), "version 3", ValidateConfig())) == []  # `infinite`, `all missing` say it


def test_drift_of_dates_is_told_in_dates(tmp_path):
    column = Column(name="born", type="int64", nullable=False, temporal="date")
    pieces = []
    for first in (3653, 7305):  # 1980 and 1990
        born = pa.record_batch({"born": pa.array(np.arange(first, first + ROWS))})
        statistics_of([column], born).save(tmp_path / str(first))
        pieces.append(SplitStatistics.load(tmp_path / str(first)))
    [told] = check_drift(pieces[1].with_units([column]), pieces[0], "version 3", ValidateConfig())
    assert "its median went from 1985-06-23 to 1995-06-23" in told.message


def test_the_same_distribution_is_no_drift(check):
    assert check(rows(), rows()) == []
    assert check(rows(share=0.53, shift=1.0), rows()) == []


def test_text_says_which_value_changed(check):
    [(severity, column, message)] = check(rows(share=0.75), rows(share=0.5))
    assert (severity, column) == ("warning", "carrier")
    assert message == (
        "column 'carrier' has drifted from version 3 (2013-01): 'AA' is 74.70% of its values in the train rows, and "
        "was 50.32% (L-infinity distance 0.244; the limit is 0.1)"
    )


def test_numbers_say_where_they_went(check):
    [(_, column, message)] = check(rows(shift=20.0), rows())
    assert column == "delay"
    assert "its median went from -0.1057653 to 19.89424" in message and "Jensen-Shannon divergence 0." in message
    assert "5% to 95% range from [-1" in message and "quantile distance 0.6" in message


def test_an_identifier_that_the_transform_leaves_out_does_not_drift(check):
    schema = Schema(columns=(COLUMNS[0], COLUMNS[1].model_copy(update={"meaning": "identifier"})))
    assert check(rows(shift=100), rows(), schema=schema, auto=("carrier", "delay")) == []
    assert [column for _, column, _ in check(rows(shift=100), rows(), schema=schema)] == ["delay"]


def test_missing_values_drift_too(check):
    [(_, column, message)] = check(rows(missing=0.3), rows(missing=0.02))
    assert column == "delay" and "is missing in 29.95% of the train rows, and was in 1.93%" in message


def test_a_column_has_a_gravity_of_its_own(check):
    ours, theirs = rows(share=0.75, shift=20.0), rows()
    drifted = check(ours, theirs, {"columns": {"carrier": {"severity": {"drift": "ignore"}}}})
    assert [column for _, column, _ in drifted] == ["delay"]
    graver = check(
        ours, theirs, {"severity": {"drift": "error"}, "columns": {"delay": {"severity": {"drift": "info"}}}}
    )
    assert [(severity, column) for severity, column, _ in graver] == [("error", "carrier"), ("info", "delay")]
    assert check(ours, theirs, {"severity": {"drift": "ignore"}}) == []


def test_what_cannot_be_compared_is_reported(check):
    few = {"drift": {"min_rows": 5000}}
    assert [s for s, _, _ in check(rows(), rows(), few)] == ["info"]
    [(severity, _, message)] = check(rows(), rows(), gone=True)
    assert severity == "info" and "the statistics of version 3 (2013-01) are not in the store" in message


def test_a_class_that_vanished(check):
    [*_, (severity, column, message)] = check(rows(labels=2), rows(labels=3), {"severity": {"drift": "ignore"}})
    assert (severity, column) == ("warning", "label")
    assert message.startswith("no train row has a label that version 3 (2013-01) was trained on: 2 (1,")


def test_a_config_that_names_what_is_not_there():
    with pytest.raises(ConfigError, match="did you mean 'drift'"):
        load(ValidateConfig, {"severity": {"drifts": "error"}}, where="pipeline.yaml")
    config = load(ValidateConfig, {"columns": {"carier": {"severity": {"drift": "error"}}}}, where="pipeline.yaml")
    with pytest.raises(ConfigError, match="carrier"):
        config.check(Schema(columns=COLUMNS[:2]), where="pipeline.yaml")
    assert load(ValidateConfig, {"severity": {"few_keys": "ignore"}}, where="x").severity == {"few keys": "ignore"}


def test_of_text_too_long_to_be_counted_the_share_of_missing_values_is_compared(check):
    long = rows(missing=0.0)
    values = long.column("carrier").to_pylist()
    values[3] = b"x" * 5000
    long = long.set_column(0, "carrier", pa.array(values, pa.binary()))
    for ours, theirs in ((long, rows()), (rows(), long), (long, long)):
        assert check(ours, theirs) == []
    mostly = pa.array([None if i % 2 else b"y" * 4097 for i in range(ROWS)], pa.binary())
    [(_, _, message)] = check(long.set_column(0, "carrier", mostly), long)
    assert "is missing in 50.00%" in message


@pytest.mark.parametrize(("share", "said"), [(0.003, "missing in all"), (0.001, None)])
def test_a_column_that_was_seldom_there_and_now_is_not_drifts_where_five_values_were_to_be_expected(share, said):
    def of(present):
        delay = pa.array(np.arange(ROWS, dtype=np.float32), mask=np.arange(ROWS) >= present)
        return statistics_of(COLUMNS[1:2], pa.record_batch({"delay": delay}))

    found = list(check_drift(of(0), of(round(share * ROWS)), "version 3", ValidateConfig()))
    assert [said in a.message for a in found] == ([True] if said else [])
