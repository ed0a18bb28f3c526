"""Sections as HTML: a page that stands alone, rendered by Jinja2 with the templates beside this module.

html = document(title=..., pipeline=..., about=..., ending=ending, parts=parts)     # one file, nothing from elsewhere
"""

import functools
import time
from collections.abc import Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from flows.report.model import Section, cell
from flows.report.verdict import RunSummary
from headway.redaction import redact

_TEMPLATES = Path(__file__).parent / "templates"


@functools.cache
def environment() -> jinja2.Environment:
    """Returns Jinja's environment of the templates: it escapes every value, and raises for a missing name."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters |= {
        "anchor": lambda title: title.lower().replace(" ", "-"),
        "cell": lambda value: value if isinstance(value, Markup) else cell(value),
    }
    return made


def document(
    *,
    title: str,
    pipeline: str,
    about: str,
    ending: RunSummary,
    parts: Sequence[Section],
    facts: Sequence[tuple[str, str]] = (),
    links: Sequence[tuple[str, str]] = (),
) -> str:
    """Returns the HTML of a page that stands alone, without secrets.

    Args:
        about: what the page is about, such as "run 20261123-000714-4081".
        facts: figures below the ending: (name, value).
        links: links to other pages, each as (address, text).
    """
    drawn = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    page = {"title": title, "pipeline": pipeline, "about": about, "ending": ending, "parts": parts}
    page |= {"facts": facts, "links": links}
    style = (_TEMPLATES / "style.css").read_text(encoding="utf-8")
    template = environment().get_template("report.html")
    html = template.render(page=page, style=style, drawn=drawn)
    return redact(html).encode("utf-8", "replace").decode("utf-8")  # a file name may hold half a character
