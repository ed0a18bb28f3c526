"""Training options as they are typed: from pipeline.yaml or --set to the promoted model and what show tells of it."""

import json

import pytest

OPTIONS = {
    "training.precision": "float16",
    "training.micro_batches": "2",
    "training.early_stopping": "{every_steps: 20, patience: 9}",
    "training.optimizer": "{name: adamw, settings: {weight_decay: 0.01}}",
    "training.learning_rate": "cosine",
    "training.schedules": "{label_smoothing: 0.05, temperature: {name: PolynomialDecay, settings: "
    "{initial_learning_rate: 2.0, decay_steps: 100, end_learning_rate: 1.0}}}",
    "training.steps": "200",
}


@pytest.mark.long
def test_a_model_trained_with_every_option_is_replayed_promoted_and_shown(typed, exported):
    project = exported
    given = [word for key, value in OPTIONS.items() for word in ("--set", f"{key}={value}")]
    record = json.loads(typed("run", project, "--window", "2", "--json", *given, check=0).stdout)
    assert record["state"] == "promoted" and record["verdict"]["status"] == "promoted", record.get("verdict")
    assert any(stage["stage"] == "replay" for stage in record["stages"])  # served rows are those evaluated, in float32
    assert "the loss scale ended at" in typed("show", project, check=0).stdout
