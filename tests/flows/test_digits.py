"""The example of images, as PNG files and as raw pixels in TFRecords: from its own files to a promoted model."""

import json
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_digits

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits"
RAW = """
name: digits
source: {format: examples, path: digits.tfrecord}
label: label
columns: {image_raw: {image: {height: 8, width: 8, channels: 1}}}
"""


def _copied(folder):
    for name in ("prepare.py", "pipeline.yaml", "schema.pbtxt"):
        shutil.copy(EXAMPLE / name, folder)
    runpy.run_path(str(folder / "prepare.py"), run_name="__main__")


def _raw(folder):
    digits = load_digits()
    with tf.io.TFRecordWriter(str(folder / "digits.tfrecord")) as file:
        for pixels, label in zip((digits.images * 15).astype(np.uint8), digits.target, strict=True):
            example = tf.train.Example()
            example.features.feature["image_raw"].bytes_list.value.append(pixels.tobytes())
            example.features.feature["label"].int64_list.value.append(int(label))
            file.write(example.SerializeToString())
    (folder / "pipeline.yaml").write_text(RAW)


@pytest.mark.long
@pytest.mark.parametrize("write", [_copied, _raw])
def test_digits_are_learned_and_promoted_without_settings(typed, tmp_path, write):
    write(tmp_path)
    # the defaults' 1,116 steps reach 0.986
    record = json.loads(typed("run", tmp_path, "--json", "--set", "training.steps=150", check=0).stdout)
    assert record["state"] == "promoted" and record["metrics"]["accuracy"] > 0.9, record
