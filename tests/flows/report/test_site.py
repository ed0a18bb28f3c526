"""The site of a store: what its pages say, where their links lead, and when they are written."""

import re
import time

import pytest

from flows.pipeline.promote import promote_version, roll_back
from flows.records import MonitorFindings, SpanCheck, State, records
from flows.report import page
from flows.report.site import index_path, renew_site, site_of_report, write_site
from headway.errors import StoreError
from headway.registry.registry import Registry
from tests.flows.report.months import months
from tests.flows.report.recorded import recorded

pytestmark = pytest.mark.slow  # whole runs are told


def site_of(store, *models):
    """The pages of a store's site, by file."""
    folder = write_site(store, *models).parent
    return {path.name: path.read_text() for path in folder.glob("*.html")}


def rows_of(html, title):
    """The cells of a section's table, row by row, without markup."""
    section = html[html.index(f">{title}</h2>") :].partition("</section>")[0]
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", section)
    return [[re.sub("<[^>]+>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in rows]


def test_the_first_page_leads_to_the_models_and_to_the_reports_that_there_are(tmp_path):
    store = months(tmp_path)
    newest = next(iter(records(store)))
    page.write(store, newest)
    pages = site_of(store)
    first = pages["index.html"]
    assert rows_of(first, "Models")[1][:2] == ["flights", "version 3"] and "1 model, 3 runs" in first
    runs = rows_of(first, "Runs")
    assert runs[0] == ["run", "model", "took", "what it came to", "status"]
    assert [row[-1] for row in runs[1:]] == ["promoted"] * 3 and runs[1][3].startswith("Version 3 is promoted: ")
    links = [link for text in pages.values() for link in re.findall(r'href="([^"#]+)"', text) if link != "data:,"]
    assert f"../runs/{newest.run}.html" in links and "flights.html" in links and "index.html" in links
    assert all((index_path(store).parent / link).is_file() for link in links)


def test_the_page_of_a_model_has_its_champions_with_when_and_why_and_the_deciding_metric(tmp_path):
    html = site_of(months(tmp_path))["flights.html"]
    champions, versions = rows_of(html, "Champions"), rows_of(html, "Versions")
    assert champions[0] == ["when", "version", "auc", "by", "why", "what"]
    assert [row[1] for row in champions[1:]] == ["3", "2", "1"]
    assert champions[1][4].startswith("Version 3 is promoted: ") and champions[1][-1] == "promoted"
    assert [row[:2] for row in versions[1:]] == [["3", "champion"], ["2", "previous"], ["1", ""]]
    assert "of different rows" in html
    assert re.search(
        r"<h1>Version 3 is promoted: .* It is the champion since \d{4}-\d\d-\d\d \d\d:\d\d UTC.</h1>", html
    )


def test_what_monitoring_found_stands_by_span_and_the_newest_alarm_is_told_first(tmp_path):
    store, state = months(tmp_path), MonitorFindings()
    assert "Spans since the training" not in site_of(store)["flights.html"]
    lost, worse = "column 'x' is lost", "the champion has become worse"
    for span, drift, auc in (("2014-02", (), 0.81), ("2014-03", (lost,), None), ("2014-04", (), 0.74)):
        scored = {} if auc is None else {"scored": 900, "metrics": {"auc": auc}}
        decay = (worse,) * (span == "2014-04")
        state.add(store, "flights", SpanCheck(span=span, champion=3, rows=900, drift=drift, decay=decay, **scored))
    pages = site_of(store, "flights")
    rows = [
        [row[0], row[3], row[4], row[5], row[6]] for row in rows_of(pages["flights.html"], "Spans since the training")
    ]
    assert rows[1:] == [
        ["2014-04", "none", "0.74", worse, "alarm"],
        ["2014-03", lost.replace("'", "&#39;"), "", "no labels yet", "alarm"],
        ["2014-02", "none", "0.81", "as at its promotion", "none"],
    ]
    assert f"<b>warning</b> 2014-04: {worse}" in pages["flights.html"], "of the newest span"
    assert f"<b>warning</b> flights: 2014-04: {worse}" in pages["index.html"]


def test_a_promotion_and_a_rollback_write_the_site(tmp_path):
    store, noted = months(tmp_path), []
    registry = Registry(store, "flights")
    roll_back(None, registry, reason="it was too slow", note=noted.append)
    pages = {name: (index_path(store).parent / name).read_text() for name in ("index.html", "flights.html")}
    assert "version 2" in rows_of(pages["index.html"], "Models")[1]
    assert rows_of(pages["flights.html"], "Champions")[1][4:] == ["it was too slow", "rolled back"]
    assert rows_of(pages["flights.html"], "Versions")[1][1] == "rolled back"
    promote_version(None, registry, "1", reason="for the audit", note=noted.append)
    html = (index_path(store).parent / "flights.html").read_text()
    assert "Version 1: for the audit. It is the champion since " in html and not noted


def test_a_run_that_went_on_is_read_again_and_a_damaged_list_of_runs_is_made_again(tmp_path):
    store = months(tmp_path)
    newest = next(iter(records(store)))
    newest.model_copy(update={"state": State.RUNNING}).save(store)
    assert rows_of(site_of(store)["index.html"], "Runs")[1][-1] == "killed", "no process holds its lock"
    newest.save(store)
    assert rows_of(site_of(store)["index.html"], "Runs")[1][-1] == "promoted"
    index_path(store).with_name("runs.json").write_text('{"lines": [')
    assert rows_of(site_of(store)["index.html"], "Runs")[1][-1] == "promoted"
    store.discard(store.runs_folder / f"{newest.run}.json")
    assert len(rows_of(site_of(store)["index.html"], "Runs")) == 3


def test_a_store_without_a_model_has_a_site_and_nothing_in_the_data_becomes_markup(tmp_path):
    html = site_of(recorded(tmp_path, state="rejected")[0])["index.html"]
    assert "0 models, 1 run" in html and "<b>gardens" not in html and "homes &amp; &lt;b&gt;gardens" in html
    assert "<script" not in html and not re.search(r'(?:src|href)="(?!#|data:,|\.\./runs/)', html)


def test_a_site_that_cannot_be_written_is_a_note(tmp_path, monkeypatch):
    store, noted = months(tmp_path), []

    def full(*_):
        raise StoreError("the disk is full")

    monkeypatch.setattr(store, "replace", full)
    renew_site(store, "flights", noted.append)
    assert noted == ["the site of this store was not written: StoreError: the disk is full"]


def test_many_runs_and_versions_stay_small_and_fast(tmp_path):
    store = months(tmp_path)
    registry, newest = Registry(store, "flights"), next(iter(records(store)))
    facts = registry.version(3).facts
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"model")
    for number in range(4, 101):
        registry.publish(tmp_path / "saved", facts)
        registry.promote(number, reason="as the gate decided", run=newest.run)
    for number in range(500):
        newest.model_copy(update={"run": f"20150{number // 100 + 1}01-{number:06d}-4081"}).save(store)
    write_site(store, "flights")
    newest.model_copy(update={"run": "20160101-000000-4081"}).save(store)
    seconds = []
    while len(seconds) < 5 and min(seconds, default=1.0) >= 0.3:  # busy cores share their caches
        began = time.process_time()
        pages = site_of(store, "flights")
        seconds.append(time.process_time() - began)
    assert seconds[-1] < 0.3, "0.1 s, measured alone"
    assert all(len(html) < 400_000 for html in pages.values()), {name: len(html) for name, html in pages.items()}
    assert len(rows_of(pages["index.html"], "Runs")) == 501 and len(rows_of(pages["flights.html"], "Versions")) == 101


def test_the_site_lies_in_the_store_of_a_report():
    assert site_of_report("s3://bucket/store/runs/20261123.html") == "s3://bucket/store/site/index.html"
