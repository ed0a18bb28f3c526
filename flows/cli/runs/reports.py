"""`headway report`: the page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.cli.commands import answer, store_of
from flows.cli.options import Options, PipelinePath
from flows.cli.runs.reasons import arranged_run
from flows.records import LATEST, State, find


def report(
    run: str = LATEST,
    pipeline: PipelinePath = ".",
    /,
    *,
    again: bool = False,
    output: Annotated[Path | None, Parameter(metavar="FILE", help="also write it to this file")] = None,
    open: bool = False,
    options: Options = Options(),
) -> int:
    """Where the report of a run is: one page with figures. A run that has none yet gets one; the pipeline may come first or
    last.

    Args:
        run: the run's name or the beginning of it.
        again: draw it again, from what the store has now.
        open: open it in the browser.
    """
    from flows.cli.runs.pages import handed_out
    from flows.tell.report_page import path_of, write

    run, pipeline = arranged_run(run, pipeline)
    loaded, store = store_of(pipeline, options)
    record = find(store, run, pipeline=loaded.pipeline.name)
    path = path_of(store, record.run)
    # of a run that went on when it was drawn, another is to come
    if again or record.state in (State.RUNNING, State.KILLED) or path.name not in store.children(path.parent):
        write(store, record)
    place = handed_out(store, path, output=output, open=open)
    return answer(options, {"run": record.run, "report": place}, place)
