"""Parts as HTML: a page that stands alone.

html = document(title=..., pipeline=..., about=..., ending=ending, parts=parts)     # one file, nothing from elsewhere
"""

import time
from collections.abc import Sequence

from flows.tell.ending import Ending
from flows.tell.rendering.parts import Part
from flows.tell.rendering.templating import environment, script, style
from headway.redaction import redact


def document(
    *,
    title: str,
    pipeline: str,
    about: str,
    ending: Ending,
    parts: Sequence[Part],
    facts: Sequence[tuple[str, str]] = (),
) -> str:
    """The HTML of a page that stands alone, without secrets.

    Args:
        about: such as "run 20261123-000714-4081".
        facts: figures below the ending: (name, value).
    """
    drawn = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    page = {"title": title, "pipeline": pipeline, "about": about, "ending": ending, "parts": parts}
    page |= {"facts": facts}
    text, digest = script()
    template = environment().get_template("report.html")
    html = template.render(page=page, style=style(), drawn=drawn, script=text, digest=digest)
    return redact(html).encode("utf-8", "replace").decode("utf-8")  # a file name may hold half a character
