"""`headway compare A B`: two versions or runs side by side, as text and as a page with figures."""

import sys
from typing import Annotated

from cyclopts import Parameter

from flows.cli.commands import answer, arranged
from flows.cli.options import Options, PipelinePath, SomeFile
from flows.cli.versions.promotion import registry_of
from headway.errors import ConfigError, StoreError
from headway.redaction import redact


def compare(
    first: Annotated[str | None, Parameter(name="A")] = None,
    second: Annotated[str | None, Parameter(name="B")] = None,
    pipeline: PipelinePath = ".",
    /,
    *,
    output: SomeFile = None,
    open: bool = False,
    options: Options = Options(),
) -> int:
    """Two versions of a model, or two runs: metrics with 95% intervals, the difference on the same rows where both scored
    them, config, code, columns, data windows, size, what the gate said; and a page with their figures over one another.

    Args:
        first: a version (its number, champion, previous or an alias), or a run (its name, or latest).
        second: the other version or run (default of both: the last two versions, else the version and the latest run).
        output: also write the page to a file of your own.
        open: show the page in the browser.
    """
    from flows.cli.reports import handed_out
    from flows.records import runs_of
    from flows.tell.comparison.compared import compare as compared
    from flows.tell.comparison.comparison_page import write
    from flows.tell.comparison.shown import Comparison

    names, pipeline = arranged([name for name in (first, second) if name] or [""], pipeline)
    _, registry = registry_of(pipeline, options)
    if names == [""]:
        names = [str(version.number) for version in registry.versions()[-2:]]
        newest = next((run for run in runs_of(registry.store) if run.pipeline == registry.name and run.metrics), None)
        if len(names) == 1 and newest is not None and newest.version != int(names[0]):
            names.append(newest.run)
    if len(names) < 2:
        problem = f"two versions or runs are compared, and there is {names[0] if names else 'no version'} alone"
        raise ConfigError(problem, fix="name both; of runs too, as in headway compare champion latest")
    found = compared(registry, *names)
    page = None
    try:
        page = handed_out(found.store, write(found), output=output, open=open)
    except (OSError, StoreError) as error:  # who may only read the store is told what the two are worth
        if output is not None or open:
            raise
        print(redact(f"the page of this comparison was not written: {error}"), file=sys.stderr)
    text = "\n".join([str(Comparison(found)), *([f"\npage: {page}"] if page else [])])
    return answer(options, found.value | {"page": page}, text)
