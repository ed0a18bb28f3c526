"""The page's one script: allowed by its hash alone, small, left out on request; what it does for a reader."""

import base64
import hashlib
import re

import pytest

from flows.report.html import environment, script
from flows.report.model import Table
from flows.report.page import page, write
from flows.report.results import RunResults
from tests.flows.report.recorded import HOSTILE, recorded

MOST_BYTES = 12_000


def test_the_policy_of_a_page_allows_its_own_script_by_hash_and_no_other(tmp_path):
    html = page(RunResults(*recorded(tmp_path, "multiclass")))
    (inside,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert inside == script()[0], "nothing of the data is in it"
    digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', html)
    assert policy.endswith(f"; script-src 'sha256-{digest}'") and policy.startswith("default-src 'none';")
    assert len(inside.encode()) <= MOST_BYTES
    assert not re.search(r"fetch|XMLHttp|innerHTML|eval|import\(|src\b", inside)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return write(*recorded(tmp_path_factory.mktemp("script") / "store", wide=100, rows=300))


def rows(page, title):
    """The first cells of a table's rows that are seen."""
    return page.eval_on_selector_all(
        f"[aria-label='{title}'] tbody tr",
        "rows => rows.filter(row => !row.hidden).map(row => row.cells[0].textContent)",
    )


@pytest.mark.browser
def test_a_table_is_sorted_by_a_column_and_filtered_by_words(visit, report, accessible):
    page = visit(report)
    title = "Columns of the train rows"
    page.get_by_role("button", name="column", exact=True).first.click()
    page.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
    before = rows(page, title)
    head = page.locator(f"[aria-label='{title}'] thead")
    head.get_by_role("button", name="distinct").click()
    cells = page.eval_on_selector_all(
        f"[aria-label='{title}'] tbody tr", "rows => rows.map(row => row.cells[3].textContent)"
    )
    numbers = [float(cell.split(" ")[0].replace(",", "")) for cell in cells if cell]
    assert numbers == sorted(numbers, reverse=True) and len(set(numbers)) > 2
    head.get_by_role("button", name="distinct").click()
    assert head.locator("[aria-sort]").get_attribute("aria-sort") == "ascending"
    assert sorted(rows(page, title)) == sorted(before)
    page.get_by_label(f"Filter: {title}").fill("w000")
    assert {name[:4] for name in rows(page, title)} == {"w000"}
    page.get_by_label(f"Filter: {title}").fill(HOSTILE)
    assert rows(page, title) == [], "its name has no slash"
    accessible(page)
    assert not page.problems


@pytest.mark.browser
@pytest.mark.parametrize(
    "ascending",
    [
        ["65 s", "2 min", "1 h", "3 days"],
        ["2024-04-02", "2024-04-11", "2024-11-01"],
        ["-0.2 (-0.3 to -0.1)", "+0.05, within the limit", "<1", "1,200 ±3%"],
        ["999 bytes", "1.2 kB", "3 MB"],
        ["2nd street", "10th street", "elsewhere"],
    ],
)
def test_cells_are_sorted_by_what_they_mean(visit, tmp_path, ascending):
    """A date is no number that its year begins, and of durations and sizes the unit counts."""
    shuffled = [{"name": str(at), "value": ascending[at]} for at in (2, 0, *range(3, len(ascending)), 1)]
    parts = environment().get_template("parts.html").module
    table = parts.cells(Table("Table", shuffled))
    path = tmp_path / "page.html"
    path.write_text(f"<section>{table}</section><script>{script()[0]}</script>", encoding="utf-8")
    page = visit(path)
    button = page.get_by_role("button", name="value")
    button.click()
    if page.locator("[aria-sort]").get_attribute("aria-sort") == "descending":
        button.click()
    assert (
        page.eval_on_selector_all("tbody tr", "rows => rows.map(row => row.cells[1].textContent.trim())") == ascending
    )


@pytest.mark.browser
def test_costs_choose_a_threshold(visit, report):
    page = visit(report)
    said = page.locator(".explorer output")
    page.get_by_label("cost of a false positive").fill("100")
    page.get_by_role("button", name="least cost").click()
    strict = float(said.inner_text().split(",")[0].removeprefix("threshold "))
    page.get_by_label("cost of a false positive").fill("1")
    page.get_by_label("cost of a false negative").fill("100")
    page.get_by_role("button", name="least cost").click()
    assert float(said.inner_text().split(",")[0].removeprefix("threshold ")) < strict
    facts = dict(re.findall(r"(false positives|false negatives|cost) (\d+)", said.inner_text()))
    assert int(facts["cost"]) == int(facts["false positives"]) + 100 * int(facts["false negatives"])
    assert not page.problems


@pytest.mark.browser
def test_a_link_to_a_row_in_a_fold_opens_it(visit, report):
    page = visit(report)
    inside = page.evaluate("[...document.querySelectorAll('details tr[id]')].map(row => row.id)")
    linked = page.evaluate("[...document.querySelectorAll('td a[href^=\"#\"]')].map(link => link.hash.slice(1))")
    name = next(each for each in linked if each in inside)
    page.locator(f"a[href='#{name}']").first.click()
    assert page.locator(f"#{name}").is_visible()
