"""New spans: when one is complete, and what is kept of those that were checked."""

import os

import pytest

from flows.config.pipeline import read_pipeline
from flows.config.production import ArrivalConfig
from flows.pipeline.spans import read_spans
from flows.records import MonitorFindings, SpanCheck
from headway.storage.store import Store


def test_a_span_is_complete_once_its_files_are_quiet(months):
    source, config = read_pipeline(months).pipeline.source, ArrivalConfig(quiet_minutes=10)
    late = months / "data" / "2024-04.parquet"
    os.utime(late, (5_000, 5_000))
    for name in ("2024-01", "2024-02", "2024-03"):
        os.utime(months / "data" / f"{name}.parquet", (1_000, 1_000))
    found = read_spans(source, config, now=5_300)
    assert found.complete == ["2024-01", "2024-02", "2024-03"]
    assert found.waiting["2024-04"].startswith("its files changed 5 min ago")
    assert read_spans(source, config, now=5_600).complete[-1] == "2024-04"


def test_files_of_a_clock_that_is_ahead_wait_until_ours_has_come_so_far(months):
    source, config = read_pipeline(months).pipeline.source, ArrivalConfig(quiet_minutes=10)
    os.utime(months / "data" / "2024-04.parquet", (9e9, 9e9))  # of another machine
    assert read_spans(source, config, now=2e9).waiting["2024-04"].startswith("its files changed 0")
    assert read_spans(source, config, now=9e9 + 601).complete[-1] == "2024-04"


def test_a_done_file_says_so(months):
    source = read_pipeline(months).pipeline.source
    config = ArrivalConfig(done=str(months / "data" / "{span}.done"))
    (months / "data" / "2024-01.done").touch()
    found = read_spans(source, config, now=0)
    assert found.complete == ["2024-01"] and "2024-02.done is not there yet" in found.waiting["2024-02"]


def test_findings_are_kept_by_version_the_last_ones(tmp_path):
    store = Store(tmp_path)
    store.create()
    for number in [1, *range(2, 21), 1, 21]:  # 1 comes back
        check = SpanCheck(span=f"2024-{number}", champion=number, drift=("x has drifted",))
        MonitorFindings.of(store, "p").add(store, "p", check)
    kept = MonitorFindings.of(store, "p").versions
    assert set(kept) == {1, *range(3, 22)} and kept[1]["2024-1"].alarms == ("x has drifted",)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"versions": {"1": {"2024-04": 3}}}', '{"versions": {"one": {}}}'])
def test_a_damaged_file_of_findings_counts_as_none(tmp_path, text):
    store = Store(tmp_path)
    store.create()
    store.replace(tmp_path / "monitor" / "p.json", text)
    assert MonitorFindings.of(store, "p").versions == {}
