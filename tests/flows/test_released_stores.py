"""Stores that released versions wrote: this version lists, shows, checks, predicts with and goes on from each.

An archive in stores/ holds a pipeline, two months of raw files, and the store after `headway run --window 1 --until 2026-01`, as
that version wrote it. It is never made anew: a store that this version cannot read is to be read by this version's code.
"""

import json
import tarfile
from pathlib import Path

import pytest

STORES = sorted((Path(__file__).parent / "stores").glob("*.tar.xz"))


@pytest.fixture(params=STORES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def written(request, tmp_path):
    """The folder of a pipeline whose store a released version wrote."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def test_its_versions_and_runs_are_read_and_every_byte_is_as_written(written, typed):
    model = json.loads(typed("models", written, "--json", check=0).stdout)["parcels"]
    assert [version["number"] for version in model["versions"]] == [1] and model["champion"] == 1
    (run,) = json.loads(typed("runs", written, "--json", check=0).stdout)
    assert run["state"] == "promoted"
    shown = typed("show", "latest", written, check=0).stdout
    assert f"run {run['run']} of parcels: promoted" in shown and "no longer in the store" not in shown
    typed("verify", written, check=0)
    plan = json.loads(typed("plan", written, "--window", 2, "--json", check=0).stdout)
    assert [step["step"] for step in plan["steps"]][:2] == ["ingest 2026-01", "ingest 2026-02"]


@pytest.mark.long
def test_its_champion_predicts_and_is_what_a_new_model_is_compared_with(written, typed):
    input, output = written / "data" / "2026-02.csv", written / "scored"
    done = typed("predict", written, "--input", input, "--output", output, check=0)
    assert "400 of 400 rows predicted by version 1" in done.stdout
    record = json.loads(typed("run", written, "--window", 2, "--json").stdout)
    assert record["verdict"]["champion"]["version"] == 1 and record["state"] in ("promoted", "kept")
    assert any(check["metric"] == "auc" and check["before"] is not None for check in record["verdict"]["checks"])
