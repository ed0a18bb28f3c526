"""What a run says of the version that it finds promoted already."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.pipeline.champion import recognise
from flows.pipeline.context import Context
from headway.evaluation.config import EvaluationConfig
from headway.registry.registry import Version
from headway.stages.step import Output

F1 = {"config": EvaluationConfig(threshold="f1").threshold.model_dump(mode="json"), "value": 0.31}


def test_a_run_that_ends_with_the_training_says_nothing_of_the_champion():
    context = Context(SimpleNamespace(pipeline=pipeline_with(None)), None, last="train")
    context.champion = Version(number=4, path=Path(), created="", facts={"train": "t"})
    context.add([Output("train", "train", "t", Path(), {}, hit=True)])
    recognise(context)
    assert context.verdict is None and context.champion is not None


def pipeline_with(rule):
    return SimpleNamespace(evaluation=EvaluationConfig(threshold=rule))


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
    context = Context(SimpleNamespace(pipeline=pipeline_with(rule)), None)
    context.champion = Version(number=4, path=Path(), created="", facts={"threshold": kept, "train": "t"})
    context.add([Output("train", "train", "t", Path(), {}, hit=True)])
    recognise(context)
    assert context.verdict.status == "kept" and context.over
    assert len(context.notes) == (note is not None)
    if note:
        (said,) = context.notes
        assert "`classify` of version 4 keep the threshold" in said.text and note in said.text
