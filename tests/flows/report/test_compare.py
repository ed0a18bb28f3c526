"""The page of a comparison: what it says first, what is drawn over what, and that nothing in the data becomes markup."""

import re

import pytest

from flows.records import ResolvedSettings, records
from flows.report.compare import compare, describe, page, write
from headway.registry.gc import COMPARED_SECONDS, collect
from headway.registry.registry import Registry
from tests.flows.report.recorded import LEVELS, recorded
from tests.run_files import save_run

pytestmark = pytest.mark.slow  # whole runs are told

A, B = "20261123-000714-4081", "20261123-010714-4081"


def two_runs(folder, task="binary", then=None, ranked=False, **second):
    """Two runs of one pipeline that scored the same rows; the second one's model is worse, and of the task `then`."""
    for again, (name, more) in enumerate([(task, {}), (then or task, second)]):
        more = {"champion": False, "state": "rejected", "again": again, "ranked": ranked} | more
        store, record = recorded(folder / "store", name, **more)
        save_run(store, record.as_json() | {"pipeline": "homes"})
    return Registry(store, "homes")


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression", LEVELS])
def test_the_page_says_first_which_one_is_better_and_draws_both(tmp_path, task):
    html = page(compare(two_runs(tmp_path, task), A, B))
    h1 = re.search(r"<h1>(.*?)</h1>", html)[1]
    assert h1.startswith(f"Run {B} is worse than run {A}: ") and "on the 700 rows that both scored" in h1
    parts = re.findall(r"<h2 [^>]*>(.*?)</h2>", html)
    assert parts == ["Metrics", "What differs"]
    charts = set(re.findall(r"<figcaption>(.*?)</figcaption>", html))
    named = {
        "binary": {"ROC curve", "Precision and recall", "Calibration"},
        "multiclass": {"Calibration"},
        LEVELS: {"Residuals", "Coverage of the quantiles"},
    }
    assert named.get(task, {"Residuals", "Calibration"}) <= charts
    assert (
        html.count('<span class="key second"><i></i>run B</span>')
        == html.count('<span class="key first"><i></i>run A</span>')
        > 0
    )
    assert "on the 700 rows that each one&#39;s own run scored; differences are" in html
    assert ">training.steps</th>" in html and "candidate's" not in html
    assert "<script" not in html


def test_a_terminal_is_told_in_thirty_lines_what_differs_first_and_all_of_it_when_it_is_asked_for(tmp_path):
    found = compare(two_runs(tmp_path), A, B)
    lines = describe(found).splitlines()
    assert len(lines) <= 30 and lines[0].startswith(f"Run {B} is worse than run {A}: auc -")
    assert lines[2] == "On the 700 rows that both scored, with 95% intervals"
    assert re.search(r"\n  what +run A +run B\n  training.steps +300 +360(\n|$)", describe(found))
    said = "that each one's own run scored"
    assert said not in describe(found) and said in describe(found, complete=True)


def test_what_auto_chose_for_more_rows_is_no_setting_that_differs(tmp_path):
    """The settings that were asked for are the same."""
    registry = two_runs(tmp_path)
    for run in list(records(registry.store)):
        rows = 100 if run.run == A else 200
        chosen = ResolvedSettings(rows=rows, says="", training={"steps": 10 * rows}, model={"hidden": [8]})
        run.model_copy(update={"config": {"name": "homes"}, "training": chosen}).save(registry.store)
    found = compare(registry, A, B)
    told = [(each.key, each.a, each.b) for each in found.differences]
    assert told[-1] == ("auto, for more rows: training.steps", 1000, 2000)
    assert not any(key.startswith("training") for key, _, _ in told)
    assert re.search(r"auto, for more rows: training.steps +1000 +2000", describe(found))
    assert "auto, for more rows: training.steps" in page(found)


def test_runs_that_scored_different_rows_are_not_called_better_or_worse(tmp_path):
    registry = two_runs(tmp_path, rows=500)
    registry.store.discard(registry.store.output("evaluate", _stage(registry, A, "evaluate")))
    found = compare(registry, A, B)
    assert found.same is None
    said = "It cannot be told which one is better by auc: metrics are of different rows"
    assert found.value["summary"].startswith(said)
    html = page(found)
    assert "Metrics are of different rows: no run scored the same rows with both" in html
    assert "Run A on the eval rows of" in html


def test_runs_of_different_tasks_and_runs_that_failed_have_a_page_too(tmp_path):
    registry = two_runs(tmp_path, task="binary", until="validate")
    found = compare(registry, A, B)
    assert found.value["summary"] == f"Run {B} has no metrics: nothing was evaluated."
    assert "What differs" in page(found)
    found = compare(two_runs(tmp_path / "other", then="regression"), A, B)
    assert "their metrics do not compare" in found.value["summary"] and page(found)


def test_a_task_that_is_no_longer_known_is_not_called_another_task(tmp_path):
    registry = two_runs(tmp_path)
    registry.store.discard(registry.store.output("measure", _stage(registry, A, "measure")))
    value = compare(registry, A, B).value
    said = "It cannot be told which one is better: the store no longer has the evaluation of run"
    assert value["summary"].startswith(said)
    assert value["no_difference"] in value["summary"]


def test_runs_that_rank_are_compared_by_the_order_within_groups(tmp_path):
    found = compare(two_runs(tmp_path, ranked=True), A, B)
    assert ": ndcg -0." in found.value["summary"] and found.value["no_difference"] is None
    assert {check.metric for check in found.same.checks} >= {"ndcg", "auc"}


def test_what_the_store_no_longer_has_is_left_out(tmp_path):
    registry = two_runs(tmp_path)
    store = registry.store
    for stage in store.children(store.stages):
        if not stage.startswith("."):
            for name in store.children(store.stages / stage):
                store.discard(store.output(stage, name))
    html = page(compare(registry, A, B))
    assert "Metrics" in html and "ROC curve" not in html


def test_the_same_two_have_one_page_which_is_collected_when_it_is_old(tmp_path, monkeypatch):
    registry = two_runs(tmp_path)
    path = write(compare(registry, A, B))
    assert path.name == f"compare-homes-{A}-{B}.html" and write(compare(registry, A, B)) == path
    assert len([run["run"] for run in registry.store.runs()]) == 2
    assert path not in [item.path for item in collect(registry.store, keep_runs=9)]
    now = registry.store.clock()
    monkeypatch.setattr(type(registry.store), "clock", lambda self: now + COMPARED_SECONDS + 60)
    assert path in [item.path for item in collect(registry.store, keep_runs=9)]


def _stage(registry, run, title):
    record = next(each for each in registry.store.runs() if each["run"] == run)
    return next(stage["fingerprint"] for stage in record["stages"] if stage["title"] == title)
