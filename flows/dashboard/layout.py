"""A page of the dashboard as plain values, and its HTML: the parts are the report's own (`flows.tell.rendering.parts`).

html = render(Page("Runs", parts=[Part("Runs", tables=[Table("Runs", rows)])]), stores)
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from markupsafe import Markup

from flows.records import RunRecord
from flows.tell.ending import Ending, ending_of
from flows.tell.rendering.parts import Finding, Part
from flows.tell.rendering.templating import environment, style
from headway.redaction import redact

HERE = Path(__file__).parent
PAGE_ROWS = 25
"""Rows of a list before it goes on on the next page."""
LIVE_SECONDS, IDLE_SECONDS = 2, 5
"""How often a page looks for what is new, while something runs and while nothing does."""

_LINKED = re.compile(r'((?:href|action)="[^"]*")')


@dataclass(frozen=True)
class Form:
    """What a confirmation sends."""

    action: str
    label: str
    token: str
    back: str
    hidden: Mapping[str, str] = field(default_factory=dict)
    force: str = ""
    """Why force is needed; then it has to be ticked."""


@dataclass(frozen=True)
class Search:
    """A form that leads to a page and changes nothing."""

    action: str
    label: str
    name: str = ""
    """Of its field; empty: it has none, and boxes elsewhere on the page belong to it."""
    value: str = ""
    hidden: Mapping[str, str] = field(default_factory=dict)
    id: str = "search"


@dataclass(frozen=True)
class Page:
    """A page; `parts` come below its heading."""

    title: str
    heading: str
    store: str | None = None
    """The slug of the store that it is about."""
    tab: str = ""
    crumbs: Sequence[tuple[str, str]] = ()
    """(title, address) of the pages above it."""
    ending: Ending | None = None
    facts: Sequence[tuple[str, Any]] = ()
    findings: Sequence[Finding] = ()
    actions: Sequence[tuple[str, str]] = ()
    """(label, address)"""
    message: str = ""
    parts: Sequence[Part] = ()
    form: Form | None = None
    searches: Sequence[Search] = ()
    every: int = IDLE_SECONDS
    """Seconds between two looks for what is new; 0: it does not change."""
    status: int = 200


def render(page: Page, stores: Mapping[str, str]) -> str:
    """The HTML of a page, without secrets.

    Args:
        stores: {slug: name} of all stores; empty for a reader who has not signed in.
    """
    template = environment(HERE / "templates").get_template("page.html")
    pieces = _LINKED.split(template.render(page=page, stores=stores, here=page.store))
    # a pipeline may be named ${NAME}: a link has to lead to it; only secrets do not stand there either
    html = "".join(redact(piece, secrets_only=at % 2 == 1) for at, piece in enumerate(pieces))
    return html.encode("utf-8", "replace").decode("utf-8")


def style_sheet() -> str:
    """The report's style sheet, and what the dashboard adds to it."""
    return style() + (HERE / "static" / "dashboard.css").read_text(encoding="utf-8")


def tag_of(html: str) -> str:
    """The ETag of a page."""
    return f'"{hashlib.sha256(html.encode()).hexdigest()[:32]}"'


# --- addresses and cells


def address(*names: object, **query: object) -> str:
    """The address of a page of a store: address("flights", "runs", run)."""
    path = "/stores/" + "/".join(quote(str(name), safe="") for name in names)
    given = {k: v for k, v in query.items() if v not in (None, "") and not (k in ("page", "history") and v == 1)}
    return path + (f"?{urlencode(given)}" if given else "")


def crumbs_of(slug: str, model: str) -> list[tuple[str, str]]:
    """The pages above one that is about a model."""
    return [("Overview", address(slug)), (model, address(slug, "models", model))]


def link(text: object, href: str) -> Markup:
    return Markup('<a href="{}">{}</a>').format(href, text)


def state_cell(record: RunRecord) -> Markup:
    """The word for how a run stands, coloured."""
    said = ending_of(record)
    return Markup('<span class="state {}">{}</span>').format(said.tone, said.label)


def choices(key: str, names: Sequence[str], chosen: str, *list_of: object, none: str = "all", **others: str) -> Markup:
    """Links that leave only some of the rows in a list, or sort them.

    Args:
        names: the choices; "" is `none`.
        list_of, others: of the list's address.
    """
    links = [
        Markup("<b>{}</b>").format(name or none)
        if name == chosen
        else link(name or none, address(*list_of, **{key: name}, **others))
        for name in names
    ]
    return Markup('<span class="choices">{}: {}</span>').format(key, Markup(" ").join(links))


def looks_every(runs: Sequence[RunRecord]) -> int:
    """How often a page about these runs looks for what is new."""
    return LIVE_SECONDS if any(run.going_on for run in runs) else IDLE_SECONDS


Row = TypeVar("Row")


def paged(
    rows: Sequence[Row], page: int, *names: object, key: str = "page", size: int = PAGE_ROWS, **query: object
) -> tuple[Sequence[Row], Markup | str]:
    """(the rows of a page, links to those before and after); a page that is not there is the nearest that is.

    Args:
        names, query: of the list's address.
        key: the page's in the query.
    """
    pages = max(1, -(-len(rows) // size))
    page = min(max(page, 1), pages)
    shown = rows[(page - 1) * size : page * size]
    if pages == 1:
        return shown, ""
    newer, older = (
        link(to, address(*names, **query, **{key: at})) for to, at in (("newer", page - 1), ("older", page + 1))
    )
    links = [newer] * (page > 1) + [Markup("<span>page {} of {}</span>").format(page, pages)] + [older] * (page < pages)
    return shown, Markup('<span class="pager">{}</span>').format(Markup(" ").join(links))
