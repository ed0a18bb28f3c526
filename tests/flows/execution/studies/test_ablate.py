"""Ablation: the pipeline without its columns, compared over the same rows; all but the trainings is shared."""

import json

import pytest

from flows.dag.run_spec import RunResult
from flows.execution.studies.ablate import _compared
from headway.evaluation.verdict import CHAMPION, Check, Verdict
from headway.storage.store import Store


@pytest.mark.long
def test_columns_are_sorted_by_the_harm_of_leaving_them_out(typed, project):
    done = typed(
        *("ablate", project, "--columns", "dep_delay", "--group", "origin,carrier", "--json"),
        *("--set", "training.steps=40", "--set", "evaluation.slices=[]"),
        check=0,
    )
    result = json.loads(done.stdout)
    assert result["primary"] == "auc" and result["eval_rows"] > 1_900
    first, second = result["rows"]
    # the delay at departure says most of the one at arrival
    assert first["without"] == ["dep_delay"] and first["outcome"] != "better" and first["interval"][1] < 0
    assert first["harm"] > 0.1 > second["harm"] and second["without"] == ["origin", "carrier"]
    assert first["value"] + first["harm"] == pytest.approx(result["base"]["auc"])
    assert abs(result["seed"]["difference"]) < first["harm"]
    store = Store(project / "store")
    counts = {
        stage: len(store.manifests(stage)) for stage in ("ingest", "statistics", "validate", "transform", "train")
    }
    assert counts == {"ingest": 4, "statistics": 1, "validate": 1, "transform": 3, "train": 4}
    columns = [[c["name"] for c in m.key["columns"]] for m in store.manifests("transform")]
    assert sum("dep_delay" not in names for names in columns) == 1
    assert not (project / "store" / "models").exists() and not list(store.runs())

    done = typed("ablate", project, "--columns", "orign", check=2)
    assert "'orign' is not a feature" in done.stderr and "did you mean 'origin'" in done.stderr
    assert "names no column" in typed("ablate", project, "--group", "", check=2).stderr


def test_harm_is_a_loss_that_rises_and_a_score_that_falls():
    def row(metric, difference, **more):
        check = Check(name=CHAMPION, metric=metric, change=difference, outcome="better")
        verdict = Verdict(verdict="promote", promote=True, primary=metric, checks=(check,), **more)
        return _compared(RunResult(spans=[], verdict=verdict)).harm

    assert row("auc", -0.1) == 0.1 and row("rmse", 0.2) == 0.2 and row("rmse", -0.2) == -0.2
    assert row("mine:gain", -0.1, better="higher") == 0.1 and row("mine:cost", 0.1, better="lower") == 0.1
    alone = Verdict(verdict="first model", promote=True, primary="auc")
    assert _compared(RunResult(spans=[], verdict=alone)).outcome == "not compared"
