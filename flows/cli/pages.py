"""Pages that a command has left in the store, for the one who typed it."""

from __future__ import annotations

import tempfile
import webbrowser
from pathlib import Path

from flows.report.page import place_of
from headway.storage.atomic_io import replace_text
from headway.storage.store import Store


def handed_out(store: Store, path: Path, *, output: Path | None, open: bool) -> str:
    """Copy a page to a file of the user's own, and show it in the browser, as far as wanted.

    Returns:
        Its place: that file, else a path or a bucket's URL.
    """
    if output is not None:
        replace_text(output.absolute(), store.read(path).decode("utf-8"))
    if open:
        webbrowser.open(output.absolute().as_uri() if output is not None else _address(store, path))
    return place_of(store, path) if output is None else str(output)


def _address(store: Store, path: Path) -> str:
    """The address of a page for a browser of this machine; one in a bucket is copied to a temporary file first."""
    if path.is_file():
        return path.absolute().as_uri()
    copy = Path(tempfile.mkdtemp(prefix="headway-")) / path.name
    copy.write_bytes(store.read(path))
    return copy.as_uri()
