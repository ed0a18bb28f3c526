"""Parts as HTML: a page that stands alone, and a fragment for a notebook.

html = document(Document(title, pipeline, about, ending, parts))       # one file: no script, nothing from elsewhere
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from flows.tell.ending import Ending
from flows.tell.rendering.parts import Finding, Part
from flows.tell.rendering.templating import environment, style
from headway.redaction import redact


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
