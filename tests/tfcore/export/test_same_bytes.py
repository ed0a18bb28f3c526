"""A SavedModel that is written by another process has the same bytes."""

import subprocess
import sys

import pytest

EXPORT = """
import sys
from pathlib import Path

from tfcore.runtime.worker import preload

memory = [bytearray(int(sys.argv[2]) * n) for n in range(2000)]  # objects lie elsewhere
preload(["keras"])
from headway.schema.columns import Column
from tfcore.export.saved_model import save_model
from tfcore.heads.label_parameters import LabelParameters
from tfcore.models.build import build
from tfcore.models.config import ModelConfig
from tfcore.transform.parameters import Fitted, FittedOp
from tfcore.transform.layer import Transform
from tfcore.transform.parameters import TransformParameters

delay = Column(name="dep delay", type="float32", nullable=True)
carrier = Column(name="carrier", type="bytes", nullable=True)
parameters = TransformParameters(
    fitted=(
        Fitted(column=delay, ops=(FittedOp(op="standardize", mean=10.0, std=20.0),), fill=10.0),
        Fitted(column=carrier, ops=(FittedOp(op="vocabulary", words=("UA", "AA"), oov_buckets=1),), size=4),
    ),
    label=LabelParameters(task="binary", type="int64", base_rate=0.2),
)
save_model(Path(sys.argv[1]), build(ModelConfig(), parameters, seed=0), Transform(parameters), parameters)
"""


@pytest.mark.long
def test_two_processes_write_a_saved_model_of_the_same_bytes(tmp_path):
    children = [
        subprocess.Popen([sys.executable, "-c", EXPORT, str(tmp_path / name), str(3 + place)])
        for place, name in enumerate("ab")
    ]
    assert [child.wait(200) for child in children] == [0, 0]
    files = [
        {f.relative_to(tmp_path / name): f.read_bytes() for f in (tmp_path / name).rglob("*") if f.is_file()}
        for name in "ab"
    ]
    assert files[0].keys() == files[1].keys() and len(files[0]) >= 4
    assert [str(path) for path, data in files[0].items() if data != files[1][path]] == []
