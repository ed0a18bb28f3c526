"""What is told is made of parts: sentences, tables, charts, lists, findings. They are plain values, which `text`, `markdown`
and `flows.tell.rendering.templating` render.

Chart("ROC curve", svg, keys=(("first", "candidate"), ("second", "version 3")))
Part("Splits", ["No id is in two splits."], tables=[Table("splits", rows)])
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from flows.tell.rendering.tables import Table


@dataclass(frozen=True)
class Finding:
    """What a reader should look at."""

    severity: Literal["error", "warning", "info"]
    message: str
    fix: str = ""


@dataclass(frozen=True)
class Chart:
    """A figure with its title above and its keys (a colour's name and what has it) below."""

    title: str
    svg: Markup
    keys: Sequence[tuple[str, str]] = ()
    note: str = ""


@dataclass(frozen=True)
class Panels:
    """Small figures of one kind, side by side."""

    title: str
    charts: Sequence[Chart]
    keys: Sequence[tuple[str, str]] = ()
    """Of all of them."""
    note: str = ""


@dataclass(frozen=True)
class Part:
    """A part of a page."""

    title: str
    sentences: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    findings: Sequence[Finding] = ()
    commands: Sequence[str] = ()
    points: Sequence[str] = ()
    """A list."""
    texts: Sequence[tuple[str, str]] = ()
    """(title, a file's text)"""
    panels: Sequence[Panels] = ()
    """Below the tables."""
