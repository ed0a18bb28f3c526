"""`headway compare A B`: two versions or runs side by side, as text and as a page with figures."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.cli.commands import answer, arranged
from flows.cli.options import Options, PipelinePath
from flows.cli.versions.promotion import registry_of
from headway.errors import StoreError
from headway.redaction import redact


def compare(
    first: Annotated[
        str,
        Parameter(
            name="A", help="a version (its number, champion, previous or an alias), or a run (its name, or latest)"
        ),
    ],
    second: Annotated[str, Parameter(name="B", help="the other version or run")],
    pipeline: PipelinePath = ".",
    /,
    *,
    output: Annotated[Path | None, Parameter(metavar="FILE", help="also write the page to a file of your own")] = None,
    open: bool = False,
    options: Options = Options(),
) -> int:
    """Two versions of a model, or two runs: metrics with 95% intervals, the difference on the same rows where both scored
    them, config, code, columns, data windows, size, what the gate said; and a page with their figures over one another.

    Args:
        open: show the page in the browser.
    """
    from flows.cli.runs.reports import handed_out
    from flows.tell.comparison.compared import compare as compared
    from flows.tell.comparison.comparison_page import write
    from flows.tell.comparison.shown import Comparison

    (first, second), pipeline = arranged([first, second], pipeline)
    _, registry = registry_of(pipeline, options)
    found = compared(registry, first, second)
    page = None
    try:
        page = handed_out(found.store, write(found), output=output, open=open)
    except (OSError, StoreError) as error:  # who may only read the store is told what the two are worth
        if output is not None or open:
            raise
        print(redact(f"the page of this comparison was not written: {error}"), file=sys.stderr)
    text = "\n".join([str(Comparison(found)), *([f"\npage: {page}"] if page else [])])
    return answer(options, found.value | {"page": page}, text)
