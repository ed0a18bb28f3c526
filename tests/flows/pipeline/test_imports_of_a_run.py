"""What a run imports before it has looked at the data."""

import pytest

from flows.cli.app import main
from tfcore.runtime.tensorflow_process import Child

PIPELINE = "name: toy\nsource: {format: csv, path: a.csv}\nlabel: y\n"


@pytest.mark.parametrize(("options", "begins"), [([], ["Beam", "TensorFlow"]), (["--to", "ingest"], ["Beam"])])
def test_a_first_run_imports_what_it_will_need_while_it_looks_at_the_data(options, begins, tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("x,y\n1,0\n2,1\n")
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.replace("label: y", "label: z"))
    begun = []
    monkeypatch.setattr("flows.pipeline.run.begin_import", lambda: begun.append("Beam"))
    monkeypatch.setattr(Child, "spawn", lambda child: begun.append("TensorFlow"))
    assert main(["run", str(tmp_path), *options]) == 2, "there is no column z"
    assert begun == begins
