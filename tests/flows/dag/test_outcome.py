"""What a run says of the version that it finds promoted already."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.dag.outcome import already
from flows.dag.run_spec import RunResult
from headway.evaluation.results.config import EvaluationConfig
from headway.registry.registry import Version

F1 = {"config": EvaluationConfig(threshold="f1").threshold.model_dump(mode="json"), "value": 0.31}


@pytest.mark.parametrize(
    ("rule", "kept", "note"),
    [
        (None, None, None),
        ("f1", F1, None),
        ("f1", None, "(none was chosen: 0.5)"),
        (0.3, F1, "(0.31)"),
        (None, F1, "(0.31)"),
    ],
)
def test_a_champion_that_keeps_another_threshold_than_the_config_names_is_said(rule, kept, note):
    result = RunResult(spans=[])
    window = SimpleNamespace(run_spec=SimpleNamespace(force=False))
    data = SimpleNamespace(window=window, pipeline=SimpleNamespace(evaluation=EvaluationConfig(threshold=rule)))
    already(data, Version(number=4, path=Path(), created="", facts={"threshold": kept}), [], result)
    assert result.verdict.verdict == "already champion"
    assert len(result.notes) == (note is not None)
    if note:
        (said,) = result.notes
        assert "`classify` of version 4 keep the threshold" in said.text and note in said.text
