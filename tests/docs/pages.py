"""The Markdown pages that people read, and what stands in them: blocks, links, headings."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "bench/*.md", "infra/*.md", "examples/*/*.md")
    for page in ROOT.glob(pattern)
)
FENCE = re.compile(r"^(?P<pad> *)```(?P<language>\S*)\n(?P<code>.*?)^(?P=pad)```$", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"<!-- (not run|exits|files|folder): ?(.*?) -->\n", re.DOTALL)
LINK = re.compile(r"(?<!\\)!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: its first line (of the page, from 1), language, text, and the notes in comments right above it."""

    page: Path
    line: int
    language: str
    code: str
    notes: dict[str, str]
    follows: bool
    """Nothing but white space stands between it and the block above."""

    @property
    def place(self):
        return f"{name(self.page)}, line {self.line}"


def name(page):
    return str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name


def blocks(page):
    """The fenced blocks of a page, from top to bottom."""
    text = page.read_text(encoding="utf-8")
    found, end = [], 0
    for fence in FENCE.finditer(text):
        above = text[end : fence.start()]
        notes, rest = {}, above
        while mark := re.search(f"{MARK.pattern} *$", rest, re.DOTALL):
            notes[mark[1]], rest = " ".join(mark[2].split()), rest[: mark.start()]
        pad = len(fence["pad"])
        code = "".join(line[pad:] if line.strip() else "\n" for line in fence["code"].splitlines(keepends=True))
        line = text.count("\n", 0, fence.start()) + 1
        found.append(Block(page, line, fence["language"], code, notes, bool(found) and not rest.strip()))
        end = fence.end()
    return found


def without_code(text):
    """The text with its code blanked out, fences and spans: what looks like a link there is none."""
    text = FENCE.sub(lambda m: "\n" * m[0].count("\n"), text)
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", lambda m: "`" * len(m[0]), text, flags=re.DOTALL)


def anchors(page):
    """The anchors that GitHub makes of a page's headings."""
    found, seen = set(), {}
    for title in HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = seen[slug] = seen.get(slug, -1) + 1
        found.add(f"{slug}-{count}" if count else slug)
    return found


def indented(page):
    """The first lines of blocks that are indented by four spaces instead of fenced, outside of lists."""
    lines = FENCE.sub("", page.read_text(encoding="utf-8")).splitlines()
    found = []
    for above, line in zip(["", *lines], lines, strict=False):
        if line.startswith("    ") and line.strip() and (not above.strip() or above.startswith("#")):
            found.append(line)
    return found
