"""Jinja2 with the templates of the report: its page, the macros of parts.html, the style sheet, the script."""

import base64
import functools
import hashlib
from pathlib import Path

import jinja2
from markupsafe import Markup

from flows.tell.rendering.cells import cell

_TEMPLATES = Path(__file__).parent / "templates"


@functools.cache
def environment() -> jinja2.Environment:
    """The templates; everything is escaped, a name that is missing is an error."""
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


def style() -> str:
    """The report's style sheet."""
    return (_TEMPLATES / "style.css").read_text(encoding="utf-8")


@functools.cache
def script() -> tuple[str, str]:
    """The report's script, and what a Content-Security-Policy allows it by."""
    text = (_TEMPLATES / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return text, f"sha256-{digest}"
