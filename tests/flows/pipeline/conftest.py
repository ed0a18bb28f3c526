"""A small pipeline of a user's own, trained on three months of four; the fourth month has just landed."""

import os
import shutil

import pytest

from tests.flows import churn as churn_pipeline

PIPELINE = churn_pipeline.PIPELINE.replace(churn_pipeline.TOLERANCE, "{auc: 0.3, loss: 0.5}")
PIPELINE += "validation: {drift: {min_rows: 100}}\nstore: store\n"


def _lay(folder, land):
    (folder / "pipeline.yaml").write_text(PIPELINE)
    for name in ("2024-01", "2024-02", "2024-03", "2024-04"):
        land(folder / "data", name)
        os.utime(folder / "data" / f"{name}.parquet", (1e9, 1e9))
    return folder


@pytest.fixture
def months(tmp_path, land):
    """The pipeline and its four months; nothing has been trained."""
    (tmp_path / "churn").mkdir()
    return _lay(tmp_path / "churn", land)


@pytest.fixture
def churn(made_once, typed_once, tmp_path, land):
    """The same after a run up to 2024-03."""

    def make(folder):
        typed_once("run", _lay(folder, land), "--until", "2024-03", "--json", check=0)

    return shutil.copytree(made_once("churn", make), tmp_path / "churn")
