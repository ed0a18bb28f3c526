"""The other formats of an export: names are checked when the pipeline is read, converters when a run begins that exports."""

import pytest
from pydantic import ValidationError

from flows.config import pipeline
from flows.pipeline.context import Context
from flows.pipeline.dag import walk
from flows.pipeline.engine import Planner
from headway.errors import HeadwayError
from tfcore.export import config
from tfcore.export.config import ExportConfig


def test_known_formats_are_taken_once():
    assert ExportConfig(formats="tflite").formats == ("tflite",)
    assert ExportConfig(formats=["tflite", "tflite_float16", "tflite"]).formats == ("tflite", "tflite_float16")


def test_an_unknown_format_is_refused():
    with pytest.raises(ValidationError, match="'tflit' is not a format; did you mean 'tflite'"):
        ExportConfig(formats=["tflit"])
    with pytest.raises(ValidationError, match="keeps weights of 32 bits; use tflite_float16"):
        ExportConfig(formats=["tflite_bfloat16"])


def test_a_missing_converter_stops_runs_that_export_and_no_other_command(monkeypatch, tmp_path):
    monkeypatch.setattr(config, "find_spec", lambda package: None)
    ExportConfig(formats=["tflite"]).check_installed("pipeline.yaml")
    (tmp_path / "pipeline.yaml").write_text(
        "name: toy\nsource: {format: csv, path: no.csv}\nlabel: y\nexport: {formats: [onnx]}"
    )
    loaded = pipeline.read_pipeline(tmp_path)  # as serve, compare and rollback read it
    for last, found in ((None, "onnx needs"), ("export", "onnx needs"), ("train", "no.csv")):
        with pytest.raises(HeadwayError) as refused:
            walk(Context(loaded, loaded.open_store(), last=last), Planner(loaded.open_store()))
        assert found in str(refused.value)
        if last != "train":
            assert "pipeline.yaml: export.formats" in str(refused.value)
            assert "pip install 'headway[onnx]'" in str(refused.value)
