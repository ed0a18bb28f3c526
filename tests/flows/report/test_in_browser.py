"""A report in a real Chromium: nothing fails, every figure is seen, it can be read on a phone and by a screen reader."""

import pytest

from flows.records import MonitorFindings, SpanCheck, records
from flows.report import compare as comparing
from flows.report.page import write
from flows.report.site import write_site
from tests.flows.report.months import months
from tests.flows.report.recorded import LEVELS, recorded
from tests.flows.report.test_compare import A, B, two_runs

pytestmark = pytest.mark.browser
RUNS = {
    "binary": {"task": "binary"},
    "ranked": {"task": "binary", "ranked": True},
    "classes": {"task": "multiclass"},
    "quantiles": {"task": LEVELS},
    "rejected": {"task": "regression", "state": "rejected"},
    "failed": {"task": "binary", "until": "validate"},
    "wide": {"task": "count", "wide": 100, "rows": 200},
}
FIGURES = """[...document.querySelectorAll('svg.figure')].map(svg => {
    const box = svg.getBoundingClientRect(), seen = e => e.getBoundingClientRect().width > 0;
    const letters = [...svg.querySelectorAll('text')].map(text => text.getBoundingClientRect().height);
    return {width: box.width, height: box.height, letters: Math.min(...letters), labels: letters.length,
            shapes: [...svg.querySelectorAll('path')].filter(seen).length};
})"""


@pytest.fixture(scope="module", params=RUNS)
def report(request, tmp_path_factory):
    """A report, and the number of figures that it has at least."""
    made = RUNS[request.param]
    return write(*recorded(tmp_path_factory.mktemp("report") / "store", **made)), 0 if "until" in made else 3


def whole_and_readable(page, accessible, axe_at, *, least):
    """Assert that a page has no problem and at least so many figures, all of them drawn, on a phone and on a screen, and that
    all of it is printed."""
    assert not page.problems
    for width in (360, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        inside = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert inside[0] <= inside[1], "only tables may be wider than the page"
        page.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
        figures = page.evaluate(FIGURES)
        assert len(figures) >= least
        assert all(f["width"] > 250 and f["height"] > 150 and f["labels"] > 4 and f["shapes"] > 1 for f in figures), (
            figures
        )
        assert all(f["letters"] >= 9 for f in figures), "nine pixels can be read on a phone"
        if width == axe_at:
            accessible(page)
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 720, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 720, "a printed page has no scroll bars"


@pytest.mark.parametrize(("scheme", "axe_at"), [("light", 360), ("dark", 1440)])
def test_a_report_is_whole_and_can_be_read(visit, accessible, report, scheme, axe_at):
    path, least = report
    whole_and_readable(visit(path, scheme=scheme), accessible, axe_at, least=least)


def test_what_comes_before_the_folds_is_three_screens_and_a_click_opens_one(visit, tmp_path):
    page = visit(write(*recorded(tmp_path / "store")), width=1200, height=900)
    assert page.evaluate("document.querySelector('main details').getBoundingClientRect().top") <= 3 * 900
    folded = page.get_by_text("Columns of the train rows")
    assert not folded.is_visible()
    page.get_by_text("Splits and columns").click()
    assert folded.is_visible()


def test_colours_follow_the_reader_and_the_page_prints(visit, tmp_path):
    path = write(*recorded(tmp_path / "store"))

    def colours(scheme):
        return visit(path, scheme=scheme).evaluate(
            "['body', 'svg.figure text'].map(name => Object.values((s => [s.backgroundColor, s.fill])"
            "(getComputedStyle(document.querySelector(name)))))"
        )

    light, dark = colours("light"), colours("dark")
    assert light[0][0] != dark[0][0] and light[1][1] != dark[1][1]
    assert visit(path).pdf().startswith(b"%PDF")


def test_outcomes_hide_what_is_scrolled_below_them_on_a_phone(visit, tmp_path):
    """In the folded checks too."""
    page = visit(write(*recorded(tmp_path / "store", "regression", state="rejected")))
    page.set_viewport_size({"width": 390, "height": 900})
    page.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
    outcomes = page.evaluate(
        "[...document.querySelectorAll('.verdict details td:last-child')].map(td => getComputedStyle(td))"
        ".map(style => [style.position, style.backgroundColor])"
    )
    assert outcomes and all(place == "sticky" and colour != "rgba(0, 0, 0, 0)" for place, colour in outcomes)


@pytest.mark.parametrize(("name", "scheme", "axe_at"), [("index", "light", 360), ("flights", "dark", 1440)])
def test_the_site_of_a_store_is_whole_and_can_be_read(visit, accessible, tmp_path, name, scheme, axe_at):
    store = months(tmp_path)
    for record in records(store):
        write(store, record)
    for place, span in enumerate(("2014-02", "2014-03")):
        check = SpanCheck(span=span, champion=3, rows=900, scored=900, metrics={"auc": 0.8 - 0.1 * place})
        MonitorFindings.of(store, "flights").add(store, "flights", check)
    path = write_site(store).with_name(f"{name}.html")
    page = visit(path, scheme=scheme)
    whole_and_readable(page, accessible, axe_at, least=0)
    page.set_viewport_size({"width": 320, "height": 900})
    page.emulate_media(media="screen")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    seen = "[...document.querySelectorAll('.toned td:last-child')].every(td => td.getBoundingClientRect().right <= 320)"
    assert page.evaluate(seen), "the outcome of a row is seen on a phone"


@pytest.fixture(scope="module", params=[("binary", 4), ("regression", 2)], ids=lambda case: case[0])
def comparison(request, tmp_path_factory):
    """The page of a comparison, and how many figures it has."""
    task, figures = request.param
    return comparing.write(comparing.compare(two_runs(tmp_path_factory.mktemp("compared"), task), A, B)), figures


@pytest.mark.parametrize(("scheme", "axe_at"), [("light", 360), ("dark", 1440)])
def test_a_comparison_is_whole_and_can_be_read(visit, accessible, comparison, scheme, axe_at):
    page, figures = comparison
    whole_and_readable(visit(page, scheme=scheme), accessible, axe_at, least=figures)
