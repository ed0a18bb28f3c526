"""What users of commit c0a2370c have on their disks, with today's code. older_store/make.py made it, once."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.flows.older_store.make import MONTHS, PIPELINES

pytestmark = pytest.mark.slow
CHAMPIONS = {"visits": 2, "sales": 1, "queries": 1}
FOUND = {
    "visits": [False] * 4,  # its records lack the code of split.key's values: it is ingested again, once
    "sales": [True] * 4,
    "queries": [True, True, True, False],
}
"""Which months' examples are found in the store. The last month is new, but to sales."""


@pytest.mark.parametrize("name", PIPELINES)
def test_every_version_and_run_is_shown_and_every_byte_is_as_it_was(name, older_store, typed):
    folder = older_store(name)
    listed = json.loads(typed("models", folder, "--json", check=0).stdout)[name]
    assert listed["champion"] == CHAMPIONS[name]
    assert [version["number"] for version in listed["versions"]] == ([1] if name == "queries" else [1, 2])
    assert typed("models", folder, check=0).stdout.startswith(f"{name}\n")
    for version in listed["versions"]:
        typed("show", folder, version["facts"]["run"], check=0)
    runs = [*(folder / "store" / "runs").glob("*.json")]
    assert len(runs) == {"visits": 4, "sales": 2, "queries": 1}[name]
    for run in runs:
        assert "\n  metrics " in typed("show", folder, run.stem, check=0).stdout
        assert run.with_suffix(".html").is_file()
    assert "every byte is as written" in typed("verify", folder, check=0).stdout


@pytest.mark.parametrize("name", PIPELINES)
def test_only_rows_of_a_key_are_ingested_again_and_the_plan_says_what_is_made_anew(name, older_store, typed):
    folder = older_store(name)
    steps = json.loads(typed("plan", folder, "--json", check=0).stdout)["steps"]
    assert [step["cached"] for step in steps if step["stage"] == "ingest"] == FOUND[name]
    # of the window that has been trained on, what a run makes is what the plan says
    steps = json.loads(typed("plan", folder, "--until", "2024-03", "--json", check=0).stdout)["steps"]
    planned = {step["step"]: step["cached"] for step in steps}
    made = json.loads(typed("train", folder, "--until", "2024-03", "--json", check=0).stdout)["stages"]
    assert {step["title"]: step["cached"] for step in made} == {step["title"]: planned[step["title"]] for step in made}


def test_both_versions_predict_what_they_predicted(older_store, typed, tmp_path):
    folder = older_store("visits")
    for version in ("1", "2"):
        there = ("--input", folder / "data" / "2024-03.csv", "--output", tmp_path / version)
        typed("predict", folder, "--model", version, *there, check=0)
        (now,), (then,) = (
            [*map(pq.read_table, place.glob("*.parquet"))]
            for place in (tmp_path / version, folder / f"predicted-{version}")
        )
        assert now.num_rows == 400 and now.column_names == then.column_names
        np.testing.assert_allclose(now["prediction"].to_numpy(), then["prediction"].to_numpy(), atol=1e-5)


def test_a_champion_is_rolled_back_and_comes_back(older_store, typed):
    folder = older_store("visits")
    pointer = folder / "store" / "models" / "visits" / "champion.json"
    before = len(json.loads(pointer.read_text())["history"])
    for command, champion in (
        (("rollback", folder), 1),
        (("promote", folder, "--to", "2", "--force"), 2),
        (("promote", folder, "--to", "stable", "--force"), 1),
    ):
        typed(*command, "--reason", "a test", check=0)
        assert json.loads(pointer.read_text())["version"] == champion
    assert len(json.loads(pointer.read_text())["history"]) == before + 3
    assert "485 rows that both scored" in typed("compare", "1", "2", folder, check=0).stdout
    latest = max((folder / "store" / "runs").glob("*.json")).stem
    typed("compare", "champion", latest, folder, check=0)


@pytest.mark.parametrize("name", PIPELINES)
def test_a_new_month_retrains_against_the_champion_of_then(name, older_store, typed):
    folder = older_store(name)
    done = typed("run", folder, "--json")
    assert done.returncode in (0, 4) and "Traceback" not in done.stderr, done.stdout + done.stderr
    run = json.loads(done.stdout)
    cached = {step["title"]: step["cached"] for step in run["stages"]}
    assert [cached[f"ingest {month}"] for month in MONTHS] == FOUND[name]
    champion = CHAMPIONS[name]
    assert f"evaluate champion {champion}" in cached, "the champion scores the new eval rows"
    assert run["verdict"]["reasons"] and "first model" not in run["state"], run["verdict"]
    assert (run["state"] == "promoted") == (done.returncode == 0)
    report = max((folder / "store" / "runs").glob("*.html")).read_text()
    assert f"version {champion}" in report.lower()
