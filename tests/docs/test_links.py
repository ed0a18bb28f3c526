"""Links between pages lead somewhere, and docs/index.md leads to every page."""

import json
import re
import sys

import pytest

from tests.docs.pages import LINK, PAGES, ROOT, anchors, name, without_code

sys.path.insert(0, str(ROOT / "infra" / "site"))
import navigation


def broken(page):
    """(line, address) of each relative link of a page that leads nowhere."""
    text = without_code(page.read_text(encoding="utf-8"))
    return [
        (text.count("\n", 0, link.start()) + 1, link[1])
        for link in LINK.finditer(text)
        if not re.match(r"[a-z]+:", link[1]) and not _is_there(page, link[1])
    ]


def _is_there(page, address):
    path, _, anchor = address.partition("#")
    target = page.parent / path if path else page
    if not target.exists():
        return False
    return not anchor or (target.suffix == ".md" and anchor in anchors(target))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_and_anchor_of_a_page_leads_somewhere(page):
    assert not broken(page)


def test_the_notebook_s_links_lead_somewhere():
    notebook = ROOT / "docs" / "notebook.ipynb"
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    assert all(_is_there(notebook, link[1]) for link in LINK.finditer(text))


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    (tmp_path / "other.md").write_text("# A title: with `code`\n## Twice\n## Twice\n```text\n# no title\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n[a](other.md) [b](other.md#a-title-with-code) [c](other.md#twice-1) [d](#page) [e](https://x.example/y)\n"
        "`[no](link.md)`\n```text\n[no](link.md)\n```\n[f](other.md#no-title) [g](missing.md)\n![h](missing.png) [i](#titel)\n"
    )
    assert broken(page) == [(7, "other.md#no-title"), (7, "missing.md"), (8, "missing.png"), (8, "#titel")]


def test_the_site_s_navigation_has_every_page_once_and_new_ones_under_more(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(
        "# T\n## Start\n- [One](one.md): x\n- [B](../README.md)\n- [w](https://x.example/a.md)\n"
    )
    for page in (docs / "one.md", docs / "new.md", tmp_path / "README.md"):
        page.write_text("# x\n")
    made = navigation.groups((docs / "index.md").read_text(), tmp_path)
    assert made == {"Start": ["One <docs/one.md>", "B <README.md>"], "More": ["docs/new.md"]}
    home = navigation.home(tmp_path)
    assert "[One](docs/one.md)" in home and "[B](README.md)" in home and ":caption: More\n\ndocs/new.md\n" in home
