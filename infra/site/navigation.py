"""The site's navigation, taken from docs/index.md: each "## heading" is a group, each link of its list a page.

A page of docs/ that the index does not name yet is put under "More", so that a new page never breaks the build.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INDEX = "docs/index.md"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"^ *(```+).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
PAGES = (".md", ".ipynb")


def home(source: Path) -> str:
    """The first page: docs/index.md with its links as seen from the root, and the groups as hidden tables of contents."""
    text = (source / INDEX).read_text(encoding="utf-8")
    (source / INDEX).unlink()
    return (
        _outside_code(text, lambda part: LINK.sub(lambda m: _from_root(m, source), part))
        + "\n"
        + "".join(
            f"\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n:caption: {name}\n\n" + "\n".join(pages) + "\n```\n"
            for name, pages in groups(text, source).items()
        )
    )


def groups(text: str, source: Path) -> dict[str, list[str]]:
    """{group: its pages as "title <file from the root>"}, those that no group names under More."""
    parts = HEADING.split(text)
    found: dict[str, list[str]] = {}
    named: set[str] = set()
    for group, part in zip(parts[1::2], parts[2::2], strict=True):
        found[group] = []
        for link in LINK.finditer(part):
            page = os.path.normpath(Path("docs") / link[3].partition("#")[0])
            if link[1] or "://" in link[3] or not page.endswith(PAGES) or page in named:
                continue  # a picture, another site, or a page that stands in the navigation already
            named.add(page)
            found[group].append(f"{link[2]} <{page}>")
    others = {str(p.relative_to(source)) for p in source.rglob("*") if p.suffix in PAGES and p.name != "index.md"}
    return {name: pages for name, pages in [*found.items(), ("More", sorted(others - named))] if pages}


def links(text: str, page: Path, source: Path) -> str:
    """The text of a page with its links as the site has them: of a folder its README; of what it does not have the words."""

    def turned(match: re.Match[str]) -> str:
        address, mark, anchor = match[3].partition("#")
        if not address or "://" in address or address.startswith("mailto:"):
            return match[0]
        target = Path(os.path.normpath(page.parent / address))
        if target == source / INDEX:
            address = os.path.relpath(source / "index.md", page.parent)
        elif (target / "README.md").is_file():
            address = os.path.relpath(target / "README.md", page.parent)
        elif not target.is_file() and (ROOT / target.relative_to(source)).exists():
            return match[2]  # a file that the site does not have
        return f"{match[1]}[{match[2]}]({address}{mark}{anchor})"

    return _outside_code(text, lambda part: LINK.sub(turned, part))


def _from_root(match: re.Match[str], source: Path) -> str:
    if "://" in match[3] or match[3].startswith("#"):
        return match[0]
    return f"{match[1]}[{match[2]}]({os.path.normpath(Path('docs') / match[3])})"


def _outside_code(text: str, change) -> str:
    """`change` every part of a Markdown text that is not in a fence."""
    made, end = [], 0
    for fence in FENCE.finditer(text):
        made += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*made, change(text[end:])])
