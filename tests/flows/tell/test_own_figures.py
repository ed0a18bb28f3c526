"""Figures of the user's own in a report: each shown, or said why not; none can touch the page."""

import base64
import re

from flows.tell.material import Material
from flows.tell.report_page import page
from tests.flows.tell.recorded import HOSTILE, recorded

MODULE = f"""
from matplotlib.figure import Figure

def scores(rows):
    figure = Figure()
    axes = figure.subplots()
    axes.hist(rows["prediction"].to_numpy())
    axes.set_title({HOSTILE!r})
    return figure

def words(rows):
    return "no figure"

def broken(rows):
    return rows["prediciton"]
"""


def test_a_function_s_figure_is_in_the_report_and_a_broken_one_says_where(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MODULE)
    named = {f"mine:{name}": file for name in ("scores", "words", "broken", "missing")}
    html = page(Material(*recorded(tmp_path, "binary")), named)
    assert "Figures of your own" in html and HOSTILE not in html
    ((name, picture),) = re.findall(r'<img class="own" alt="([^"]+)" src="data:image/svg\+xml;base64,([^"]+)">', html)
    assert name == "mine:scores" and b"<svg" in base64.b64decode(picture)
    assert "mine:words: returns str, not a matplotlib figure" in html
    assert "mine:broken failed: KeyError" in html
    assert re.search("see mine.py, line 15; it has [^<]*label", html), "where, and what it could have read"
    assert "mine:missing: has no function" in html


def test_a_figure_or_a_module_that_ends_the_process_is_told_in_the_report_and_ends_nothing(tmp_path):
    (calls := tmp_path / "calls.py").write_text("import sys\n\ndef figure(rows):\n    sys.exit(3)\n")
    (loads := tmp_path / "loads.py").write_text("import sys\nsys.exit('no display')\n")
    html = page(Material(*recorded(tmp_path, "binary")), {"calls:figure": calls, "loads:figure": loads})
    assert "calls:figure failed: SystemExit: 3" in html and "see calls.py, line 4" in html
    assert "loads:figure: cannot be loaded: SystemExit: no display" in html and "see loads.py, line 2" in html


def test_a_report_without_figures_of_one_s_own_has_no_such_part(tmp_path):
    assert "Figures of your own" not in page(Material(*recorded(tmp_path, "binary")))
