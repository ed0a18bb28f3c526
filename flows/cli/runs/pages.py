"""Pages that a command has left in the store, for the one who typed it."""

from __future__ import annotations

import webbrowser
from pathlib import Path

from flows.tell.report_page import on_this_disk, place_of
from headway.errors import ConfigError
from headway.storage.atomic_io import replace_text
from headway.storage.store import Store


def handed_out(store: Store, path: Path, *, output: Path | None, open: bool) -> str:
    """Copy a page to a file of the user's own, and show it in the browser, as far as wanted.

    Returns:
        Its place: that file, else a path or a bucket's URL.

    Raises:
        ConfigError: there can be no such file.
    """
    if output is not None:
        if output.is_dir():
            raise ConfigError(f"{output} is a folder", where="--output", fix=f"name a file: {output / path.name}")
        page = store.read(path).decode("utf-8")
        try:
            replace_text(output.absolute(), page)
        except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
            raise ConfigError(
                f"{output} cannot be written: {error.strerror}", where="--output", fix="name a file in a folder"
            ) from None
    if open:
        shown = output if output is not None else on_this_disk(store, path)
        webbrowser.open(shown.absolute().as_uri())
    return place_of(store, path) if output is None else str(output)
