"""`headway report`, and the reports that runs leave: typed, on runs that need no TensorFlow."""

import json
import webbrowser

import pytest

from tests.flows.report.recorded import recorded
from tests.run_files import save_run

PIPELINE = """
name: homes
source: {format: csv, path: homes.csv}
label: price > 5
columns: auto
store: store
"""


@pytest.fixture
def homes(tmp_path, monkeypatch):
    """A folder with a pipeline and its data; the working folder."""
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    rows = [f"{i % 11},{i},{'NESW'[i % 4]}" for i in range(200)]
    (tmp_path / "homes.csv").write_text("\n".join(["price,size,side", *rows]) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_says_last_where_its_report_is(homes, typed):
    done = typed("run", "--to", "statistics", "--verbose", check=0)
    last = done.stdout.splitlines()[-1].split()
    assert last[0] == "report" and last[1].endswith(".html")
    html = (homes / last[1]).read_text()
    assert "The run ended after statistics, as it was asked to" in html and "homes.csv" in html
    assert typed("report", check=0).stdout.strip() == last[1]
    site = homes / "store" / "site" / "index.html"
    assert f"../runs/{last[1].split('/')[-1]}" in site.read_text(), "the run wrote it"
    site.unlink()
    assert typed("report", "--site", check=0).stdout.strip() == str(site) and site.is_file()
    assert "the site is of the whole store" in typed("report", "--site", "2026", check=2).stderr
    assert json.loads(typed("run", "--to", "statistics", "--json", check=0).stdout)["report"].endswith(".html")


def test_a_run_that_fails_leaves_a_report_with_the_reason(homes, typed):
    done = typed("run", "--set", "validation.min_train_rows=5000", check=3)
    html = next((homes / "store" / "runs").glob("*.html")).read_text()
    assert "The run failed" in html and "at least 5,000 are needed" in html and "Columns of the train rows" in html
    assert "report: " in done.stderr


def test_a_report_that_cannot_be_drawn_fails_no_run(homes, typed, monkeypatch):
    def broken(*_, **__):
        raise ValueError("no ink")

    monkeypatch.setattr("flows.report.page.page", broken)
    done = typed("run", "--to", "statistics", "--verbose", check=0)
    assert "the report of this run was not written: ValueError: no ink" in done.stderr
    assert json.loads(typed("run", "--to", "statistics", "--json", check=0).stdout)["report"] is None
    monkeypatch.undo()


def test_runs_of_before_get_their_report_when_it_is_asked_for(homes, typed, monkeypatch):
    store, record = recorded(homes / "store")
    record = record.model_copy(update={"pipeline": "homes"})
    record.save(store)
    path = store.runs_folder / f"{record.run}.html"
    assert typed("report", check=0).stdout.strip() == str(path) and path.is_file()
    path.write_text("an earlier one")
    typed("report", "20261123", check=0)
    assert path.read_text() == "an earlier one"
    shown = []
    monkeypatch.setattr(webbrowser, "open", shown.append)
    typed("report", ".", "latest", "--again", "--open", check=0)
    assert "Version 4 is promoted" in path.read_text() and shown == [path.as_uri()]
    save_run(store, record.as_json() | {"state": "running"})
    typed("report", check=0)
    assert "died" in path.read_text(), "of a run that went on another is to come"
    assert "there is no run '2099'" in typed("report", "2099", check=5).stderr
