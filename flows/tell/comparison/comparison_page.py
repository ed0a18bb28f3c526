"""A comparison as one HTML file, drawn as the report of a run is.

place = write(comparison)                # <store>/runs/compare-<pipeline>-<A>-<B>.html, whole or not at all
"""

from __future__ import annotations

from pathlib import Path

from flows.tell.comparison.beside import parts_of
from flows.tell.comparison.compared import Compared
from flows.tell.figures.drawing import reused
from flows.tell.html import Document, document
from flows.tell.rendering.parts import Finding


def write(comparison: Compared) -> Path:
    """Draw the page, and put it into the store; the same two have the same page.

    Raises:
        OSError, StoreError: the store cannot be written.
    """
    store, path = comparison.store, comparison.path
    try:
        before = store.read(path).decode("utf-8", "replace")
    except OSError:  # the first one
        before = None
    with reused(before):
        html = page(comparison)
    store.replace(path, html)
    return path


def page(comparison: Compared) -> str:
    """The page of a comparison, without secrets."""
    a, b = comparison.a, comparison.b
    problems = [Finding("warning", f"{side.title}: {side.problem}") for side in (a, b) if side.problem]
    return document(
        Document(
            title=f"{comparison.pipeline}: {a.title} and {b.title}",
            pipeline=comparison.pipeline,
            about=", ".join(f"{side.letter}: {side.title}" for side in (a, b)),
            ending=comparison.ending,
            parts=parts_of(comparison, drawn=True),
            findings=problems,
        )
    )
