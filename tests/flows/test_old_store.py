"""A store of an early Headway 0.1.0 (formats of 22 November 2026), of two runs that each promoted a version: what
docs/operations.md says of an upgrade holds for it. `old_store.tar.xz` is frozen: it is never made anew with a newer Headway.

It also holds the data, and the predictions of its champion for the last month, as that Headway wrote them.
"""

import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from headway.evaluation.verdict import Verdict


@pytest.fixture
def churn(tmp_path):
    """The pipeline's folder, with its store."""
    with tarfile.open(Path(__file__).with_name("old_store.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "churn"


def _versions(typed, churn):
    return json.loads(typed("models", churn, "--json", check=0).stdout)["churn"]


def _predictions(folder):
    (part,) = folder.glob("part-*.parquet")
    return pq.read_table(part).sort_by("source_row")


def test_it_is_listed_explained_and_whole(typed, churn):
    assert typed("verify", churn, check=0).stdout.endswith("every byte is as written\n")
    models = _versions(typed, churn)
    assert (models["champion"], models["previous"], len(models["versions"])) == (2, 1, 2)
    runs = json.loads(typed("runs", churn, "--json", check=0).stdout)
    assert [(run["state"], run["version"]) for run in runs] == [("promoted", 2), ("promoted", 1)]
    for command in ("show", "quarantine"):
        assert typed(command, churn, check=0).stdout
    report = Path(typed("report", churn, check=0).stdout.strip())
    assert "<svg" in report.read_text() and "promote" in report.read_text()
    assert "Headway's code of this stage is newer" in typed("plan", churn, check=0).stdout


def test_it_is_copied_rolled_back_and_cleaned(typed, churn, tmp_path):
    shutil.copytree(churn / "store", tmp_path / "copy", symlinks=True)
    typed("rollback", churn, check=0)
    assert _versions(typed, churn)["champion"] == 1
    typed("clean", churn, "--keep", 1, "--yes", check=0)
    served = sorted(path.name for path in (churn / "store" / "serving" / "churn").iterdir())
    assert served == ["2", "3"], "TensorFlow Serving may still read the one before"
    assert len(_versions(typed, churn)["versions"]) == 2
    assert "every byte is as written" in typed("verify", churn, check=0).stdout
    # restored
    shutil.rmtree(churn / "store")
    shutil.copytree(tmp_path / "copy", churn / "store", symlinks=True)
    assert "every byte is as written" in typed("verify", churn, check=0).stdout
    assert _versions(typed, churn)["champion"] == 2
    assert len(json.loads(typed("runs", churn, "--json", check=0).stdout)) == 2


def test_new_rows_are_held_against_the_statistics_of_its_champion(typed, churn):
    limits = ("--set", "validation.drift.jensen_shannon=0", "--set", "validation.drift.l_infinity=0")
    said = typed("validate", churn, *limits, check=0)
    for column in ("x", "c"):
        assert f"column '{column}' has drifted" in said.stdout + said.stderr


@pytest.mark.slow
def test_its_champion_predicts_as_before_and_is_the_champion_of_the_next_run(typed, churn, tmp_path):
    typed("predict", churn, "--input", churn / "data" / "2024-03.parquet", "--output", tmp_path / "now", check=0)
    before, now = _predictions(churn / "predictions"), _predictions(tmp_path / "now")
    assert now.schema.equals(before.schema) and now["id"].equals(before["id"])
    np.testing.assert_allclose(now["prediction"], before["prediction"], rtol=1e-5)

    record = json.loads(typed("run", churn, "--force", "--json", "--set", "seed=1", check=0).stdout)
    assert record["state"] == "promoted" and record["version"] == 3
    said = Verdict.model_validate(record["verdict"]).sentences
    assert any(" (version 2) to " in sentence for sentence in said), "it was compared with the old champion"
    typed("rollback", churn, check=0)
    assert _versions(typed, churn)["champion"] == 2
    assert "every byte is as written" in typed("verify", churn, check=0).stdout
