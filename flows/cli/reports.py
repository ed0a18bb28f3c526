"""`headway report`: the page of a run; and how a command hands out a page that it has left in the store."""

import webbrowser
from pathlib import Path

from flows.cli.commands import answer, arranged, store_of
from flows.cli.options import Options, PipelinePath, SomeFile
from flows.records import LATEST, State, find
from headway.errors import ConfigError
from headway.storage.store import Store


def report(
    run: str = LATEST,
    pipeline: PipelinePath = ".",
    /,
    *,
    again: bool = False,
    plain: bool = False,
    output: SomeFile = None,
    open: bool = False,
    options: Options = Options(),
) -> int:
    """Where the report of a run is: one page with figures. A run that has none yet gets one; the pipeline may come first or
    last.

    Args:
        run: the run's name or the beginning of it.
        again: draw it again, from what the store has now.
        plain: a second file without the script, which sorts and filters tables and tries thresholds.
        output: also write it to this file.
        open: open it in the browser.
    """
    from flows.tell.report_page import path_of, write

    (run,), pipeline = arranged([run], pipeline, LATEST)
    loaded, store = store_of(pipeline, options)
    record = find(store, run, pipeline=loaded.pipeline.name)
    path = path_of(store, record.run, plain=plain)
    # of a run that went on when it was drawn, another is to come
    if again or plain or record.state in (State.RUNNING, State.KILLED) or path.name not in store.children(path.parent):
        write(store, record, plain=plain)
    place = handed_out(store, path, output=output, open=open)
    return answer(options, {"run": record.run, "report": place}, place)


def handed_out(store: Store, path: Path, *, output: Path | None, open: bool) -> str:
    """Copy a page to a file of the user's own, and show it in the browser, as far as wanted.

    Returns:
        Its place: that file, else a path or a bucket's URL.

    Raises:
        ConfigError: there can be no such file.
    """
    from flows.tell.report_page import on_this_disk, place_of
    from headway.storage.atomic_io import replace_text

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
