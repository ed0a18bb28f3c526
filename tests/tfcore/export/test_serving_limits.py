"""What an exported model costs a server, held against the limits of pipeline.yaml."""

import pytest

from tfcore.export.config import ServingLimits
from tfcore.export.replay import over, serving_text

RESULT = {
    "load_seconds": 0.75,
    "serving": {
        "size_mb": 12.5,
        "latency": {
            "1": {"p50_ms": 0.9, "p99_ms": 2.4, "calls": 150},
            "64": {"p50_ms": 1.1, "p99_ms": 3.5, "calls": 130},
        },
    },
}


@pytest.mark.parametrize(
    ("limits", "broken"),
    [
        ({}, []),
        ({"size_mb": 12.5, "p99_ms": 2.4}, []),
        ({"size_mb": 12}, ["size_mb is 12.5, the limit 12"]),
        ({"size_mb": 12, "p99_ms": 1}, ["size_mb is 12.5, the limit 12", "p99_ms is 2.4, the limit 1"]),
    ],
)
def test_a_limit_is_broken_by_what_lies_beyond_it_and_said_with_both_numbers(limits, broken):
    assert over(RESULT, ServingLimits(**limits)) == broken


def test_what_a_server_has_to_expect_stands_in_a_line():
    assert serving_text(RESULT) == (
        "serving: 12.5 MB on disk, loaded in 0.75 s, 1 row p50 0.9 ms, p99 2.4 ms, 64 rows p50 1.1 ms, p99 3.5 ms"
    )
