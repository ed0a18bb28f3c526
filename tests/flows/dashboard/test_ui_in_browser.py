"""`headway ui` as a process of its own, in a real Chromium: every page whole and readable, what runs updates itself, promote and
rollback by clicking."""

import http.client
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from PIL import Image

from flows.progress.step_progress import Progress, RunningStep, as_json
from flows.records import progress_path
from headway.registry.registry import Registry
from headway.storage.store import Store
from tests.flows.dashboard.conftest import add_run, fill, name_of, verdict

pytestmark = pytest.mark.browser
MODEL = "/stores/flights/models/flights"
SECOND, THIRD = "/stores/flights-2", "/stores/flights-3"
PICTURE = Path(__file__).parents[3] / "docs" / "images" / "dashboard.png"
PAGES = {
    "stores": "/",
    "overview": "/stores/flights",
    "runs": "/stores/flights/runs",
    "compare": f"/stores/flights/compare?run={name_of(1)[0]}&run={name_of(2)[0]}&run={name_of(3)[0]}",
    "run": f"/stores/flights/runs/{name_of(3)[0]}",
    "failed": f"/stores/flights/runs/{name_of(4)[0]}",
    "model": MODEL,
    "version": f"{MODEL}/versions/3",
    "promote": f"{MODEL}/versions/3/promote",
    "spans": "/stores/flights/spans",
}


@pytest.fixture(scope="module")
def projects(tmp_path_factory, made_once):
    """Three such folders: one to look at, one to change, one in which something runs."""
    root = tmp_path_factory.mktemp("projects")
    return [shutil.copytree(made_once("dashboard", fill), root / name / "flights") for name in "abc"]


@pytest.fixture(scope="module")
def served(projects):
    """The address that `headway ui` printed, with its token."""
    command = [sys.executable, "-P", "-m", "flows.cli", "ui", *map(str, projects), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        printed = ""
        for line in process.stdout:
            printed += line
            if line.startswith("}"):
                break
        try:
            yield json.loads(printed)["url"]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=40) == 0, process.stderr.read()


def entered(visit, served, path="/", **settings):
    """A page of a reader who has signed in by the printed address."""
    page = visit(served, **settings)
    assert page.url.endswith("/") and "token" not in page.url
    if path != "/":
        page.goto(served.partition("/?")[0] + path)
    return page


def half_done(step):
    for done in (150, 300):
        step = step.after(
            Progress(step=step.step, done=done, total=600, unit="steps", facts={"loss": 1 / done, "holdout_loss": 0.3})
        )
    return step


def wide(page):
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


@pytest.mark.parametrize(("scheme", "axe_at"), [("light", 360), ("dark", 1440)])
def test_every_page_is_whole_and_can_be_read(visit, accessible, served, scheme, axe_at):
    page = entered(visit, served, scheme=scheme)
    base = served.partition("/?")[0]
    for name, path in PAGES.items():
        page.goto(base + path)
        page.wait_for_load_state("networkidle")
        for width in (360, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            assert wide(page) <= 0, f"{name} at {width}: only tables may be wider than the page"
            if width == axe_at:
                accessible(page)
        assert not page.problems, (name, page.problems)
    page.goto(base + MODEL)
    inside = (
        "[...document.querySelectorAll('svg.figure')].map(f => ['path', 'text'].map(e => f.querySelectorAll(e).length))"
    )
    figures = page.evaluate(inside)
    assert len(figures) == 2 and all(paths > 1 and texts > 4 for paths, texts in figures), figures


def test_a_reports_own_script_runs_in_its_sandbox(visit, served):
    page = entered(visit, served)
    page.goto(served.partition("/?")[0] + PAGES["run"] + "/report")
    assert page.locator("button.sort").count() > 3 and not page.problems


def test_nothing_is_asked_of_another_machine(visit, served):
    page = visit(served)
    asked = set()
    page.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
    for path in PAGES.values():
        page.goto(served.partition("/?")[0] + path)
    assert asked - {""} == {urlsplit(served).netloc}


def test_rollback_and_promote_by_clicking(visit, served, projects):
    store = Store(projects[1] / "store")
    page = entered(visit, served, SECOND)
    page.locator("#models").get_by_role("link", name="flights").click()
    page.get_by_role("link", name="Roll back to version 1").click()
    assert "Roll flights back from version 2 to version 1?" in page.inner_text("h1")
    page.get_by_role("link", name="Leave it as it is").click()
    assert Registry(store, "flights").history()[-1].version == 2
    page.get_by_role("link", name="Roll back to version 1").click()
    page.get_by_label("Why, for the history").fill("complaints")
    page.get_by_role("button", name="Roll back to version 1").click()
    assert page.get_by_role("status").first.inner_text() == "Version 1 is the champion now."
    assert Registry(store, "flights").history()[-1].reason == "complaints"
    # version 3 was rolled back: it returns only when its reader ticks that
    page.locator("tr", has_text="v3").get_by_role("link", name="promote…").click()
    page.get_by_role("button", name="Promote version 3").click()
    assert page.get_by_label("was rolled back").evaluate("box => box.validity.valueMissing")
    page.get_by_label("was rolled back").check()
    page.get_by_role("button", name="Promote version 3").click()
    assert "version 3 is the champion" in page.inner_text("h1")
    assert Registry(store, "flights").history()[-1].version == 3
    assert not page.problems


def test_a_page_follows_a_run_without_being_loaded_again(visit, served, projects):
    store = Store(projects[2] / "store")
    page = entered(visit, served, THIRD)
    run = add_run(store, 9, state="running", seen="2026-11-20T00:09:20.000Z")
    (store.runs_folder / f"{run}.log").write_text("2026-11-20T00:09:20.000Z   ingest 2013-03   1.2 s\n")
    step = RunningStep(step="train", began=time.time())
    progress_path(store, run).write_text(as_json([step]))
    with store.lock("run-flights", {"run": run}).held():
        page.get_by_text(re.compile(r"train: \d+ s so far")).wait_for(timeout=30_000)
        page.goto(served.partition("/?")[0] + f"{THIRD}/runs/{run}")
        page.evaluate("window.loadedOnce = true")
        progress_path(store, run).write_text(as_json([half_done(step)]))
        page.get_by_text("train: 300 of 600 steps").first.wait_for(timeout=30_000)
        assert page.locator("progress").first.get_attribute("value") == "300"
        page.get_by_role("img", name="Loss by step").wait_for()
    add_run(store, 9, version=3, **verdict(0.9))
    page.get_by_role("heading", name="Version 3 is promoted").wait_for(timeout=30_000)
    assert page.evaluate("window.loadedOnce"), "the page was not loaded again"
    assert not page.problems


def test_the_picture_in_the_docs_is_the_page_of_a_run_in_progress(visit, served, projects):
    """HEADWAY_RENEW_GOLDEN=1 draws it anew."""
    store = Store(projects[2] / "store")
    log = [("00:14:01", "ingest 2013-03           1.2 s  27,902 rows, 931 filtered, 23,251 rows/s")]
    log += [("00:14:01", "statistics               0.1 s  train 50,361 rows, eval 27,902 rows")]
    log += [("00:14:02", "validate                 1.3 s  0 errors, 0 warnings")]
    log += [("00:14:02", "transform                0.0 s  12 columns, binary")]
    step = RunningStep(step="train", began=time.time() - 41)
    for done in range(32, 5_900, 32):
        loss, held = 0.21 + 0.4 / (1 + done / 300), 0.24 + 0.38 / (1 + (done - done % 640) / 300)
        facts = {"loss": round(loss + (done * 37 % 11 - 5) / 900, 6), "holdout_loss": round(held, 6)}
        amount = {"done": done, "total": 9_000, "unit": "steps", "per_second": 148.0, "seconds_left": 21.0}
        step = step.after(Progress(step="train", facts=facts, **amount))
    run = add_run(store, 14, state="running", seen="2026-11-20T00:14:20.000Z", steps=[])
    (store.runs_folder / f"{run}.log").write_text("".join(f"2026-11-20T{at}.000Z   {said}\n" for at, said in log))
    progress_path(store, run).write_text(as_json([step]))
    with store.lock("run-flights", {"run": run}).held():
        page = entered(visit, served, f"{THIRD}/runs/{run}", width=960)
        page.get_by_role("img", name="Loss by step").wait_for()
        drawn = page.locator("#now").screenshot()
    if os.environ.get("HEADWAY_RENEW_GOLDEN"):
        PICTURE.write_bytes(drawn)
    kept, now = Image.open(PICTURE).size, Image.open(io.BytesIO(drawn)).size
    assert kept[0] == now[0] and abs(kept[1] - now[1]) < 40, "the page looks otherwise by now: draw the picture anew"
    add_run(store, 14, state="done", last="train")


def test_ticked_runs_stay_ticked_while_the_list_changes_and_are_compared(visit, served, projects):
    store = Store(projects[2] / "store")
    page = entered(visit, served, f"{THIRD}/runs")
    for at in (1, 3):
        page.get_by_label(f"compare {name_of(at)[0]}").check()
    add_run(store, 12, state="done", last="train")
    page.get_by_text(name_of(12)[0]).wait_for(timeout=30_000)
    page.get_by_role("button", name="Compare the ticked runs").click()
    page.get_by_role("heading", name="2 runs beside each other").wait_for()
    assert name_of(3)[0] in page.url and name_of(2)[0] not in page.url
    assert not page.problems


def test_the_reader_keeps_place_and_hears_that_the_dashboard_has_ended(visit, served, projects):
    store = Store(projects[2] / "store")
    page = entered(visit, served, f"{THIRD}/runs", width=360)
    page.evaluate("document.querySelector('.scroll').scrollLeft = 90")
    add_run(store, 11, state="done", last="train")
    page.get_by_text(name_of(11)[0]).wait_for(timeout=30_000)
    assert page.evaluate("document.querySelector('.scroll').scrollLeft") == 90
    page.context.set_offline(True)
    page.get_by_text("headway ui does not answer").wait_for(timeout=30_000)
    page.context.set_offline(False)
    page.get_by_text("headway ui does not answer").wait_for(state="hidden", timeout=60_000)


def test_a_reader_without_the_token_stays_outside(visit, served):
    page = visit(served.partition("/?")[0] + MODEL)
    assert "Open the address that headway ui printed" in page.inner_text("h1")
    page.goto(served)
    page.get_by_role("heading", name="3 stores").wait_for()


def test_a_page_of_another_origin_leads_inside(visit, served, tmp_path):
    leading = f'<meta http-equiv="refresh" content="0; url={served}">'
    (tmp_path / "headway-ui.html").write_text(f"<!DOCTYPE html>{leading}")
    page = visit(tmp_path / "headway-ui.html")
    page.get_by_role("heading", name="3 stores").wait_for()
    assert page.url == served.partition("/?")[0] + "/"


def test_another_site_can_neither_frame_the_dashboard_nor_send_its_forms(visit, served):
    entered(visit, served)
    base = served.partition("/?")[0]
    page = visit(served)
    page.set_content(f'<iframe src="{base}/"></iframe>')
    page.wait_for_timeout(300)
    assert any("frame" in problem.lower() for problem in page.problems)
    page.goto("about:blank")
    page.set_content(
        f'<form method="post" action="{base}{MODEL}/rollback"><input name="token"><button>Go</button></form>'
    )
    page.get_by_role("button").click()
    page.get_by_text("this form was sent from another site").wait_for()


def test_raw_paths_and_hosts_find_nothing(served):
    host = urlsplit(served).netloc
    for path in (
        "/stores/flights/runs/../../pipeline.yaml",
        "/static/../web_app.py",
        "//etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
    ):
        assert _status(host, path) in (401, 404), path
    assert _status(host, "/", {"Host": "evil.example"}) == 421
    assert re.fullmatch(r"127\.0\.0\.1:\d+", host)


def _status(host, path, headers=None):
    connection = http.client.HTTPConnection(host, timeout=10)
    try:
        connection.putrequest("GET", path, skip_host="Host" in (headers or {}))
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        connection.endheaders()
        return connection.getresponse().status
    finally:
        connection.close()
