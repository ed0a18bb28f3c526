"""Jinja2 with the templates of the report, which other pages share: base.html, the macros of parts.html, the style sheet.

html = document(Document(title, pipeline, about, ending, parts))       # one file: no script, nothing from elsewhere
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from flows.tell.ending import Ending
from flows.tell.parts import Finding, Part, anchor
from headway.redaction import redact

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Document:
    """A page that stands alone."""

    title: str
    pipeline: str
    about: str
    """Such as "run 20261123-000714-4081"."""
    ending: Ending
    parts: Sequence[Part]
    facts: Sequence[tuple[str, str]] = ()
    """What a reader wants to know first: (name, value)."""
    findings: Sequence[Finding] = ()
    """What to look at first."""


def document(page: Document) -> str:
    """The HTML of a page, without secrets."""
    drawn = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    html = environment().get_template("report.html").render(page=page, style=style(), drawn=drawn)
    return redact(html).encode("utf-8", "replace").decode("utf-8")  # a file name may hold half a character


def fragment(ending: Ending, parts: Sequence[Part]) -> str:
    """Parts as HTML for a notebook, which has a style sheet of its own."""
    html = environment().get_template("fragment.html").render(ending=ending, parts=parts)
    return redact(html)


@functools.cache
def environment(*folders: Path) -> jinja2.Environment:
    """The templates in `folders` and the report's; everything is escaped, a name that is missing is an error."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, _TEMPLATES]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters |= {"anchor": anchor}
    return made


def style() -> str:
    """The report's style sheet."""
    return (_TEMPLATES / "style.css").read_text(encoding="utf-8")
