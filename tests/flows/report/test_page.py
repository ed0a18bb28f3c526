"""The report of a run: what it says, that it stands alone, and that nothing in the data becomes markup."""

import re
import time
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import pyarrow as pa
import pytest

from flows.report.data import _panel, usual_values
from flows.report.page import on_this_disk, page, write
from flows.report.plot import FIRST
from flows.report.results import RunResults
from headway.monitor import Monitor
from headway.registry.registry import Registry
from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics
from headway.statistics.stage import StatisticsRequest, merge, summary
from headway.statistics.summary import ColumnSummary
from headway.storage.fingerprint import fingerprint
from tests.flows.report.recorded import HOSTILE, LEVELS, recorded

pytestmark = pytest.mark.slow  # whole runs are told

TASKS = ["binary", "multiclass", "regression", "count", LEVELS]


def html_of(store, record):
    return page(RunResults(store, record))


@pytest.mark.parametrize("task", TASKS)
def test_a_promoted_run_says_so_first_and_shows_every_part(tmp_path, task):
    html = html_of(*recorded(tmp_path, task))
    h1 = re.search(r"<h1>(.*?)</h1>", html)[1]
    assert h1.startswith("Version 4 is promoted: ") and "version 3" in h1
    parts = re.findall(r"<h2 [^>]*>(.*?)</h2>", html)
    assert parts == ["Evaluation", "Data", "Training", "Where it comes from", "Notes"]
    charts = re.findall(r"<figcaption>(.*?)</figcaption>", html)
    named = {
        "binary": ["ROC curve", "Precision and recall", "Calibration", "Gain"],
        "multiclass": ["Calibration"],
        LEVELS: ["Residuals", "Coverage of the quantiles"],
    }
    assert set(named.get(task, ["Residuals", "Calibration"])) <= set(charts)
    assert "Loss by step" in charts
    assert "2 rejected (headway quarantine shows them)." in html and "is not a number" not in html
    assert "<summary>The config of this run, with what --set changed</summary>" in html and "  steps: 300" in html


def test_nothing_in_the_data_becomes_markup(tmp_path):
    html = html_of(*recorded(tmp_path, "multiclass"))
    assert "<script" not in html and "<i>2026" not in html and "gardens<b>" not in html
    assert html.count("&lt;script&gt;") > 5
    assert "$price_{x}$" in html, "no mathematics is made of a column's name"


def test_the_worst_rows_have_no_values_but_those_that_are_named(tmp_path):
    html = page(RunResults(*recorded(tmp_path / "store")))
    inside = html[html.index("<summary>Rows where the model is most wrong") :].partition("</table>")[0]
    heads, rows = inside.partition("</thead>")[::2]
    assert re.findall(r">([^<>]+)</th>", heads)[:4] == ["row", "city", "rooms", "label"]
    numbers = re.findall(r'<th scope="row"[^>]*>(\d+)</th>', rows)
    assert len(numbers) == len(set(numbers)) > 9, "each row is told once"


def test_columns_stand_in_the_order_of_their_importance_and_the_first_have_a_figure(tmp_path):
    html = page(RunResults(*recorded(tmp_path / "store")))
    table = html[html.index("<h3>Columns of the train rows") :].partition("</table>")[0]
    columns = re.findall(r'<th scope="row"[^>]*>([^<]+)</th>', table)
    assert columns[:5] == ["the label", "&lt;script&gt;alert(&#39;x&#39;)&lt;script&gt;", "age", "city", "rooms"]


def test_a_run_that_evaluated_nothing_names_the_one_that_did(tmp_path):
    store, record = recorded(tmp_path, state="already champion")
    store.discard(store.output("measure", next(iter(store.children(store.stages / "measure")))))
    (tmp_path / "model").mkdir()
    registry = Registry(store, record.pipeline)
    for _ in range(4):
        registry.publish(tmp_path / "model", {"run": "run-of-4", "task": "regression"})
    html = html_of(store, record)
    assert "This run evaluated nothing" in html and "the run that made it: headway report run-of-4." in html
    assert "how far predictions are off: 0 is perfect (squared error)" in html


def test_columns_that_are_new_gone_or_of_another_type_since_the_champion_are_named(tmp_path):
    store, record = recorded(tmp_path)
    columns = [Column(name=name, type="float32", nullable=False) for name in ("age", "rooms", "floor")]
    made, key = SplitStatistics.create(columns), {"champion": "another"}
    made.update(pa.record_batch({name: pa.array([1.0, 2.0], pa.float32()) for name in ("age", "rooms", "floor")}))
    with store.open("statistics", fingerprint(key), key) as staging:
        made.save(staging.path / "of")
        request = StatisticsRequest(columns=tuple(columns), splits={"train": (staging.path / "of",)})
        staging.commit(result=merge(request, staging.path, Monitor()))

    class Since(RunResults):
        def key(self, title):
            champion = {"name": "version 3", "statistics": fingerprint(key)}
            return {"champion": champion} if title == "validate" else super().key(title)

    said = re.search("<p>(Since version 3, columns are .*?)</p>", page(Since(store, record)))[1]
    assert "are new: city, " in said and said.endswith("; gone: floor; of another type: rooms.")
    assert "columns are" not in html_of(store, record)


def test_a_figure_is_svg_with_colours_of_the_style_sheet_and_ids_of_its_own(tmp_path):
    html = html_of(*recorded(tmp_path))
    pictures = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(pictures) > 9
    for picture in pictures:
        ElementTree.fromstring(picture.replace("<svg", '<svg xmlns:xlink="http://www.w3.org/1999/xlink"', 1))
        assert not re.search("#[0-9a-f]{6}", picture)
    ids = re.findall(r' id="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    names = set(re.findall(r'(?:url\(#|href="#)([\w-]+)', html))
    assert names <= set(ids)


def test_a_page_needs_nothing_from_elsewhere(tmp_path):
    html = html_of(*recorded(tmp_path))
    assert not re.search(r'(?:src|href)="(?!#|data:,)', html) and "@import" not in html and "url(http" not in html


def test_a_run_that_failed_in_validation_shows_what_there_is(tmp_path):
    html = html_of(*recorded(tmp_path, until="validate"))
    assert "The run failed: validation found 1 error." in html
    assert "Columns of the train rows" in html and "Evaluation" not in html


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("rejected", "The candidate is rejected: "),
        ("kept", "The champion stays: "),
        ("needs a person", "The candidate waits for a person: "),
        ("already champion", "Version 4 is the champion already"),
        ("cancelled", "The run was stopped"),
        ("killed", "The process of this run died"),
    ],
)
def test_every_end_of_a_run_has_its_sentence(tmp_path, state, words):
    store, record = recorded(tmp_path, "regression", state=state)
    assert words in html_of(store, record)


def test_what_the_store_no_longer_has_is_left_out(tmp_path):
    store, record = recorded(tmp_path)
    for stage in ("statistics", "evaluate", "train", "ingest", "gate"):
        for name in store.children(store.stages / stage):
            store.discard(store.output(stage, name))
    html = html_of(store, record)
    assert "Metrics" in html and "Version 4 is promoted" in html


def test_the_same_run_gives_the_same_page(tmp_path):
    store, record = recorded(tmp_path)
    once, again = (re.sub(r"Drawn by.*", "", html_of(store, record)) for _ in range(2))
    assert once == again


def test_a_report_lies_beside_the_record_and_replaces_the_one_before(tmp_path):
    store, record = recorded(tmp_path)
    place = write(store, record)
    assert place == str(store.runs_folder / f"{record.run}.html")
    assert write(store, record) == place
    assert store.children(store.runs_folder) == [f"{record.run}.html", f"{record.run}.json"]
    assert [run["run"] for run in store.runs()] == [record.run]


def test_a_wide_table_is_drawn_in_part_and_stays_small(tmp_path):
    html_of(*recorded(tmp_path / "narrow", rows=200))  # imports, and the font cache
    store, record = recorded(tmp_path / "wide", rows=200, wide=600)
    began = time.process_time()
    html = html_of(store, record)
    assert time.process_time() - began < 2.4, "0.4 s, measured alone"
    assert len(html) < 150_000
    assert "571 further columns: headway run --to statistics" in html and HOSTILE.replace("/", "") not in html


def test_each_column_has_a_figure_of_train_eval_and_the_champions_rows_with_axes(tmp_path):
    html = page(RunResults(*recorded(tmp_path / "store")))
    section = html[html.index("<h3>Columns</h3>") :].partition("</section>")[0]
    figures = re.findall(r'<svg class="panel".*?</svg>', section)
    assert len(figures) == len(re.findall("<figcaption>", section)) >= 5
    age = next(each for each in figures if 'aria-label="age:' in each)
    assert age.count("<path") == 4, "the axes, and three histograms"
    assert age.count("stroke-dasharray") == 1 and "fill: var(--first)" in age, "told apart in grey print too"
    assert len(re.findall(r"<text [^>]*>[^<]+</text>", age)) == 5, "two labels beside the axis and three below"
    wanted = [("first", "train rows"), ("muted", "eval rows"), ("second", "train rows of version 3 (2025-12)")]
    assert re.findall(r'<span class="key (\w+)"><i></i>([^<]+)', section)[:3] == wanted


def test_values_that_are_no_text_are_told_by_their_size():
    column = {
        "column": "x",
        "type": "bytes",
        "rows": 4000,
        "missing": 0,
        "distinct": 400,
        "shortest": 97,
        "longest": 4000,
    }

    def told(*top):
        return usual_values(ColumnSummary.model_validate(column | {"top": top}))

    assert told(["\\x89PNG\r\n\x1a", 1]) == "97 to 4,000 bytes"
    assert told(["cat", 2000], ["dog", 3], ["a@b.no", 2]) == "cat 50%, dog under 1%"
    assert told(["a@b.no", 2], ["c@d.no", 1]) == "each in fewer than 3 rows" and told() == ""


def test_texts_of_single_rows_are_not_told(tmp_path):
    """Neither as usual values nor below a figure: a report is mailed further than the data."""
    rows = 60
    mail = pa.array([f"someone{i}@mail.no".encode() for i in range(rows)])
    made = SplitStatistics.create([Column(name=name, type="bytes", nullable=True) for name in ("mail", "city")])
    made.update(pa.record_batch({"mail": mail, "city": pa.array([b"Oslo", b"Bergen"] * (rows // 2))}))
    summaries = [ColumnSummary.model_validate(each) for each in summary(made)]
    panels = {each.column: _panel(each, {"train rows": (made.columns, FIRST)}) for each in summaries}
    assert "Oslo" in panels["city"] and "20 values" in panels["mail"] and "someone" not in panels["mail"]


def test_a_ranking_says_what_its_metrics_look_at_and_has_the_one_that_decides_first(tmp_path):
    html = html_of(*recorded(tmp_path, ranked=True))
    assert "The order of the rows of one city is judged by ndcg, mrr and recall_at_k, on its first 10 ranks" in html
    table = html[html.index('aria-label="Metrics"') :]
    assert re.search(r'<th scope="row">(.*?)</th>', table)[1] == "ndcg"


def test_the_copy_of_a_page_in_a_bucket_is_as_new_as_the_page(tmp_path):
    path, pages = tmp_path / "runs" / "1.html", iter([b"first", b"second"])
    store = SimpleNamespace(read=lambda path: next(pages))
    assert [on_this_disk(store, path).read_text() for _ in range(2)] == ["first", "second"]
