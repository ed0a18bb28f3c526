"""The other formats of an export are checked when the pipeline is read, long before a model is there."""

import pytest
from pydantic import ValidationError

from flows.config import pipeline
from flows.config.pipeline import ExportConfig


def test_known_formats_are_taken_once_and_none_change_no_fingerprint():
    assert ExportConfig(formats="tflite").formats == ("tflite",)
    assert ExportConfig(formats=["tflite", "tflite_float16", "tflite"]).formats == ("tflite", "tflite_float16")
    assert "formats" not in ExportConfig().model_dump()


def test_an_unknown_format_is_refused():
    with pytest.raises(ValidationError, match="'tflit' is not a format; did you mean 'tflite'"):
        ExportConfig(formats=["tflit"])


def test_a_format_whose_converter_is_missing_is_refused_with_what_to_install(monkeypatch):
    monkeypatch.setattr(pipeline, "find_spec", lambda package: None)
    with pytest.raises(ValidationError, match=r"onnx needs tf2onnx and onnxruntime: pip install 'headway\[onnx\]'"):
        ExportConfig(formats=["onnx"])
    assert ExportConfig(formats=["tflite"]).formats == ("tflite",)
