"""Jinja2 with the templates of the report, which other pages share: the macro `part` of parts.html, and the style sheet.

environment().get_template("report.html").render(...)
"""

from __future__ import annotations

import functools
from pathlib import Path

import jinja2

from flows.report.view import anchor

_TEMPLATES = Path(__file__).parent / "templates"


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
