"""What the pages say of a store: whole, empty, damaged, large, and while a run goes on."""

import json
import re
import shutil
import time
from html import unescape

import pytest

from flows.dashboard.opened_stores import checked_spans, opened
from flows.dashboard.run_index import RunIndex
from flows.progress.step_progress import Progress, RunningStep, as_json
from flows.records import progress_path
from headway import redaction
from headway.errors import ConfigError, StoreError
from headway.redaction import remember
from headway.registry.registry import Registry
from headway.storage.store import Store
from tests.flows.dashboard.conftest import PIPELINE, SPANS, add_run, add_version, ingest, name_of, verdict

MODEL, RUNS = "/stores/flights/models/flights", "/stores/flights/runs"


def text_of(html):
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def test_a_store_is_told_on_one_page(client):
    said = text_of(client.get("/").text)
    assert "flights, span 2013-05: column 'dep_delay' has drifted" in said
    assert re.search(r"flights v2 [\d: -]+ auc 0.85 on 2013-03 3 ", said), (
        "model, champion, since when, metric, versions"
    )
    assert "failed" in said and "all 4 runs" in said


def test_runs_are_listed_newest_first_and_chosen_by_state(client):
    said = client.get("/stores/flights/runs").text
    assert said.index(name_of(4)[0]) < said.index(name_of(1)[0])
    chosen = client.get("/stores/flights/runs?state=failed").text
    assert name_of(4)[0] in chosen and name_of(1)[0] not in chosen and "1 run of 4" in chosen
    assert "There is none." in client.get("/stores/flights/runs?state=x").text
    assert client.get("/stores/flights/runs?page=999").status_code == 200


def test_runs_are_searched_and_sorted(client, store):
    long, best = add_run(store, 20, seconds=900.0), add_run(store, 21, spans=["2019-07"], **verdict(0.99))

    def listed(**query):
        return re.findall(
            r'<th scope="row"><a href="/stores/flights/runs/([^"]+)"', client.get(RUNS, params=query).text
        )

    assert listed(search="2019-07 PROMOTED") == [best] and listed(search="no such thing") == []
    assert listed(sort="longest")[0] == long and listed(sort="best")[0] == best and listed()[0] == best
    page = client.get(RUNS, params={"search": '"><script>', "sort": "best"}).text
    assert 'value="&#34;&gt;&lt;script&gt;"' in page and 'name="sort" value="best"' in page, "a search keeps the order"


def test_the_best_run_comes_first_only_where_one_metric_decided_all_of_them(client, store):
    def judged(at, value, **more):
        found = {"verdict": "promote", "promote": True, "primary": "cost", "better": "lower"}
        return add_run(store, at, pipeline="other", verdict=found, metrics={"cost": value}, **more)

    dear, cheap = judged(30, 7.0), judged(31, 3.0)
    judged(32, 1.0, state="already champion")  # the champion's metric, on other rows
    both = client.get(RUNS, params={"sort": "best"}).text
    assert "choose a pipeline to have the best first" in both and "sort=best" not in client.get(RUNS).text
    page = client.get(RUNS, params={"sort": "best", "pipeline": "other"}).text
    assert page.index(cheap) < page.index(dear), "its own metric, of which less is better"
    assert "Best first by cost, each run&#39;s own level: the eval rows of two runs may differ." in page


def test_several_runs_are_compared(client, store):
    others = [add_run(store, at, spans=["2019-07"], seed=at, **verdict(0.5 + at / 100)) for at in (21, 22, 23)]
    names = [name_of(1)[0], *others]
    page = text_of(client.get("/stores/flights/compare", params={"run": names}).text)
    assert "4 runs beside each other" in page and "judged on others stand in a table of their own" in page
    assert re.search(
        "Settings that differ key .*seed 0 21 22 23 spans 2013-01 to 2013-03 2019-07 2019-07 2019-07", page
    )
    assert re.search("How long each step took .*train 40 s 40 s 40 s 40 s", page)
    two = text_of(client.get("/stores/flights/compare", params={"run": names[:2]}).text)
    assert f"headway compare {names[0]} {names[1]}" in two, "it has the intervals of the differences"
    assert "Tick two runs or more" in client.get("/stores/flights/compare").text
    assert client.get("/stores/flights/compare", params={"run": [names[0], "../secret"]}).status_code == 404
    many = [add_run(store, at) for at in range(40, 53)]
    assert "12 runs beside each other, the first of 13 that are ticked" in text_of(
        client.get("/stores/flights/compare", params={"run": many}).text
    )
    boxes = re.findall(r'name="run" value="([^"]+)" form="compare"', client.get(RUNS).text)
    assert {*names} <= {*boxes}


def test_settings_differ_only_where_both_are_known(client, store):
    base = {"name": "flights", "source": {"format": "csv", "path": "d.csv"}, "label": "late"}
    chosen = {"rows": 900, "says": "", "training": {"steps": 300, "rate": 0.1}, "model": {"type": "linear"}}
    ended = add_run(store, 21, config=base | {"gate": {"tolerance": {"auc": 0.1}}}, training=chosen, **verdict(0.9))
    config = base | {"evaluation": {"row_values": []}, "columns": {"x": {"transform": [{"op": "hash", "buckets": 9}]}}}
    failed = add_run(store, 22, config=config, state="failed", error="e")
    steps = add_run(store, 23, config=base | {"training": {"steps": 200}}, state="failed", error="e")
    page = text_of(client.get("/stores/flights/compare", params={"run": [ended, failed, steps]}).text)
    settings = page[page.index("Settings that differ") : page.index("How long each step took")]
    assert "gate.tolerance.auc 0.1 – –" in settings and "training.steps 300 unknown 200" in settings
    assert '"op": "hash"' in settings and "&#39;" not in settings and "'op'" not in settings
    for key in ("training.rate", "model.type", "train rows", "row_values"):
        assert key not in settings, "known of one alone, or at its default"
    assert f"Without metrics: {failed}, {steps}." in page and page.count("On the eval rows") == 1


def test_a_run_says_how_it_ended_and_has_its_report(client):
    run = client.get(f"/stores/flights/runs/{name_of(4)[0]}").text
    assert "The run failed: the loss is not a finite number" in run
    promoted = text_of(client.get(f"/stores/flights/runs/{name_of(3)[0]}").text)
    assert "Version 3 is promoted" in promoted and "the whole log" in promoted
    # no report was written: it is drawn for the reader, and not kept
    report = client.get(f"/stores/flights/runs/{name_of(3)[0]}/report")
    assert report.status_code == 200 and "sandbox" in report.headers["content-security-policy"]
    assert "<!DOCTYPE html>" in report.text


def test_a_report_that_the_run_wrote_is_served_as_it_is(client, store):
    run = name_of(1)[0]
    (store.runs_folder / f"{run}.html").write_text("<p>as it was written</p>")
    assert client.get(f"/stores/flights/runs/{run}/report").text == "<p>as it was written</p>"


def test_a_model_shows_champions_versions_and_drift(client):
    page = client.get(MODEL).text
    said = text_of(page)
    assert "version 2 is the champion" in said and "rolled back to v2 v3" in said
    assert page.count('class="figure"') == 2, (
        "the champion on later spans, columns; no champion was held against another"
    )
    assert "headway monitor checked 2 spans; 1 span raised an alarm, the last of them 2013-05" in said
    assert re.search(r"v3 rolled back promote…", said)
    version = text_of(client.get(f"{MODEL}/versions/3").text)
    assert "It was rolled back" in version and "which one is better is not known" in version
    assert "Version 3 on the eval rows of 2013-03" in version and "Version 2 on the eval rows of 2013-03" in version


def test_spans_show_what_became_of_their_rows(client):
    said = text_of(client.get("/stores/flights/spans").text)
    assert re.search(r"2013-02 [\d: -]+ 1,200 1,100 96 4 2.0 kB 3 ", said)
    assert "judged on it" in said and "trained on it" in said
    assert re.search(r"2013-05 1,200 0 held against it 1", said), "monitor checked it, no run has used it"


# --- while a run goes on


def test_a_run_that_goes_on_shows_its_step_and_then_its_end(client, store):
    run = add_run(store, 9, state="running", seen="2026-11-20T00:09:20.000Z")
    (store.runs_folder / f"{run}.log").write_text("2026-11-20T00:09:00.000Z ingest 2013-03   1.2 s\n")
    begun = RunningStep(step="train", began=time.time() - 40)
    progress_path(store, run).write_text(as_json([begun]))
    address = f"/stores/flights/runs/{run}"
    with store.lock("run-flights", {"run": run}).held():
        assert re.search(r"train: 4\d s so far", client.get(address).text), "it has said nothing yet"
        step = begun
        for done in (1600, 3200):
            amount = {"done": done, "total": 6000, "unit": "steps", "per_second": 120}
            step = step.after(Progress(step="train", facts={"loss": 960 / done}, **amount))
        progress_path(store, run).write_text(as_json([step]))
        for path in ("/", address):
            page = client.get(path).text
            assert 'data-every="2"' in page and 'value="3200" max="6000"' in page
            assert re.search("train: 3,200 of 6,000 steps, 120 steps/s, loss 0.3, 4. s so far", page)
        assert "Loss by step, from 0.6 to 0.3 at step 3,200" in page
        tag = client.get("/stores/flights/runs?state=failed").headers["etag"]
        again = client.get("/stores/flights/runs?state=failed", headers={"If-None-Match": tag})
        assert again.status_code == 304 and not again.content
    assert "killed" in client.get(address).text, "its process is gone"
    add_run(store, 9, version=3, **verdict(0.9))
    assert 'data-every="0"' in client.get(address).text and "is promoted" in client.get(address).text


def test_a_record_is_read_once(store, monkeypatch):
    index, read = RunIndex(store), []
    first = index.runs()
    monkeypatch.setattr(Store, "read", lambda self, path: read.append(path))
    assert index.runs() == first and not read


# --- stores that are not as they should be


def test_an_empty_store_says_what_to_type(tmp_path, show, monkeypatch):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    empty = show([tmp_path / "new"])
    assert "headway run new" in empty.get("/").text
    for page in ("", "/runs", "/spans", "/models/flights"):
        assert empty.get(f"/stores/flights{page}").status_code == 200, page
    assert not (tmp_path / "new" / "store").exists(), "looking makes nothing"
    (tmp_path / "bare").mkdir()
    assert "headway run PIPELINE" in show([], [tmp_path / "bare"]).get("/").text


DAMAGE = {
    "runs/x.json": ("not json", "runs/x.json is not JSON"),
    "runs/y.json": ('{"run": "y"}', "runs/y.json is not a run&#39;s record: pipeline"),
    "runs/z.json": (
        '{"run": "z", "pipeline": "p", "state": "done", "started": "t", "stages": "none"}',
        "runs/z.json is not a run&#39;s record: stages",
    ),
    "runs/up.json": (
        '{"run": "up", "pipeline": "../../etc", "state": "running", "started": "t"}',
        "runs/up.json is not a run&#39;s record: pipeline",
    ),
    "runs/other.json": (
        '{"run": "20261120-000100-0001", "pipeline": "p", "state": "done", "started": "t"}',
        "runs/other.json is the record of run 20261120-000100-0001, under another name",
    ),
    "models/flights/champion.json": ("{", "champion.json: is damaged"),
    "models/flights/stable.json": ("{", "stable.json: is damaged"),
    "models/notes/README": ("mine", "models/notes is not a model"),
    "models/README": ("mine", "models/README is not a model"),
    "monitor/flights.json": ("[]", "monitor/flights.json is damaged"),
    "watch/flights.json": ("{", "watch/flights.json is damaged"),
}


@pytest.mark.parametrize("path", DAMAGE)
def test_damage_is_named_and_the_rest_is_shown(client, store, path):
    text, said = DAMAGE[path]
    (store.root / path).parent.mkdir(exist_ok=True, parents=True)
    (store.root / path).write_text(text)
    pages = {page: client.get(f"/stores/flights{page}") for page in ("", "/runs", "/spans", "/models/flights")}
    assert all(page.status_code == 200 for page in pages.values()), pages
    assert any(said in page.text for page in pages.values())
    assert name_of(3)[0] in pages["/runs"].text
    assert not client.said


def test_a_damaged_version_is_marked_and_the_others_are_shown(client, store):
    (store.root / "models" / "flights" / "3" / "manifest.json").unlink()
    (store.root / "models" / "flights" / "2" / "saved_model" / "saved_model.pb").write_bytes(b"")
    said = text_of(client.get(MODEL).text)
    assert "v3 damaged" in said and "v1" in said and "version 2 does not exist or is damaged" in said
    assert client.get(f"{MODEL}/versions/3").status_code == 404
    assert client.get("/").status_code == 200


def test_a_span_whose_output_is_gone_says_so(client, store):
    shutil.rmtree(store.root / "stages")
    assert "no longer in the store" in client.get("/stores/flights/spans").text
    assert client.get(f"/stores/flights/runs/{name_of(3)[0]}/report").status_code == 200


def test_what_monitor_wrote_before_there_were_distances_is_shown(store):
    state = {"champion": 2, "spans": {"2013-04": {"rows": 5, "drift": []}}, "more": 1}
    store.replace(store.root / "monitor" / "flights.json", json.dumps(state))
    ((row,), _) = checked_spans(store, "flights")
    assert (row.champion, row.span, row.rows, row.distances) == (2, "2013-04", 5, {})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: None, "there is no such folder"),
        (lambda folder: folder.write_text(""), "is a file"),
        (lambda folder: (folder.mkdir(), (folder / "photo.jpg").write_text("")), "is not a store: it holds none of"),
    ],
)
def test_what_is_no_store_is_refused_by_name(tmp_path, make, words):
    make(tmp_path / "x")
    with pytest.raises(StoreError, match=words) as refused:
        opened([], [str(tmp_path / "x")])
    assert str(tmp_path / "x") in str(refused.value) and "fix:" in str(refused.value)


def test_a_folder_without_a_pipeline_says_what_to_type(tmp_path, typed, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = typed("ui", check=2).stderr
    assert "there is no pipeline.yaml in this folder" in said and "--store" in said
    with pytest.raises(ConfigError):
        opened([str(tmp_path)], [])


def test_several_stores_have_a_page_each_and_names_of_their_own(project, tmp_path, show):
    other = shutil.copytree(project, tmp_path / "b" / "flights")
    stores = opened([str(project), str(project)], [str(other / "store"), str(project / "store")])
    assert list(stores) == ["flights", "flights-2"]
    both = show([project], [other / "store"])
    assert "2 stores" in both.get("/").text
    assert both.get("/stores/flights-2/models/flights").status_code == 200


def test_metrics_that_are_not_numbers_are_left_out_or_named(client, store):
    state = {"champion": 2, "spans": {"2013-04": {"scored": 5, "metrics": {"auc": 0.5, "by": {"k": 1}, "odd": "x"}}}}
    store.replace(store.root / "monitor" / "flights.json", json.dumps(state))
    add_run(store, 20, metrics={"auc": 0.5}, baselines=5)
    assert client.get(MODEL).status_code == 200
    assert "is not a run's record: baselines: " in text_of(client.get("/stores/flights").text)
    assert not client.said


def test_links_lead_to_what_a_variable_names_and_hold_no_secret(client, store):
    add_run(store, 20, pipeline="flights-berlin")
    try:
        remember("REGION", "flights-berlin")
        said = client.get("/stores/flights").text
        assert ">${REGION}</a>" in said and ">flights-berlin" not in said
        assert 'href="/stores/flights/models/flights-berlin"' in said
        remember("API_KEY", "flights-berlin")
        assert "flights-berlin" not in client.get("/stores/flights").text
    finally:
        redaction.forget()


def test_no_store_hides_another_whose_folder_has_a_numbered_name(tmp_path):
    folders = [tmp_path / name for name in ("a/x-2", "a/x", "b/x")]
    for folder in folders:
        folder.mkdir(parents=True)
    stores = opened([], list(map(str, folders)))
    assert {slug: each.store.root for slug, each in stores.items()} == dict(
        zip(("x-2", "x", "x-3"), folders, strict=True)
    )


def test_two_pipelines_of_one_store(project, show):
    (project / "second").mkdir()
    second = PIPELINE.replace("name: flights", "name: delays").replace("store: store", "store: ../store")
    (project / "second" / "pipeline.yaml").write_text(second)
    add_run(Store(project / "store"), 20, pipeline="delays")
    one = show([project, project / "second"])
    said = text_of(one.get("/").text)
    assert "delays" in said and "none yet" in said
    assert "pipeline: all delays flights" in text_of(one.get("/stores/flights/runs").text)
    assert "no champion yet" in one.get("/stores/flights/models/delays").text


# --- large stores


def test_a_large_store_opens_quickly(tmp_path, show, made_once):
    def make(folder):
        (folder / "pipeline.yaml").write_text(PIPELINE)
        store = Store(folder / "store")
        store.create()
        steps = [ingest(store, span) for span in SPANS]
        config = {"columns": {f"column_{i}": {"role": "feature"} for i in range(400)}}
        store.replace = lambda path, text: path.write_text(text)  # 500 syncs take seconds
        for at in range(500):
            add_run(store, at, steps=steps, config=config, version=1, **verdict(0.9))
        del store.replace
        registry = Registry(store, "flights")
        add_version(store, name_of(0)[0], 0.9)
        first = registry.folder / "1"
        text = (first / "manifest.json").read_text()
        for number in range(2, 101):
            target = registry.folder / str(number)
            shutil.copytree(first, target)
            (target / "manifest.json").write_text(text.replace('"fingerprint": "1"', f'"fingerprint": "{number}"'))
        registry.promote(100, reason="the best")

    large = show([made_once("dashboard-large", make)])
    pages = ["/", "/stores/flights/runs", "/stores/flights/runs?page=20", MODEL, "/stores/flights/spans"]
    took = {}
    for page in pages:
        began = time.process_time()
        assert large.get(page).status_code == 200
        took[page] = time.process_time() - began
    print(took)
    assert max(took.values()) < 5.0, took  # well under a second on a machine that does nothing else: docs/dashboard.md
    said = large.get("/stores/flights/runs").text
    assert "page 1 of 20" in said and said.count("<tr>") == 26, "a page of them is read and shown"
    assert "page 2 of 4" in large.get(f"{MODEL}?page=2").text
