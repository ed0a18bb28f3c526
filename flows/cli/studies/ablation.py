"""The command that trains the pipeline without some of its columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from flows.cli.commands import answer, load_pipeline, reporting, run_spec_of
from flows.cli.options import Columns, PipelinePath, RunOptions
from headway.errors import ConfigError
from headway.messages import signed

if TYPE_CHECKING:
    from flows.execution.studies.ablate import Ablation


def ablate(
    pipeline: PipelinePath = ".",
    /,
    *,
    columns: Annotated[Columns, Parameter(help="features to leave out, one at a time (default: every feature)")] = None,
    group: Annotated[
        tuple[str, ...], Parameter(metavar="A,B", help="features to leave out together (may be repeated)")
    ] = (),
    options: RunOptions = RunOptions(),
) -> int:
    from flows.execution.studies.ablate import ablate as run_ablate

    groups: list[tuple[str, ...]] = [(name,) for name in (columns or "").split(",") if name]
    groups += [tuple(name for name in together.split(",") if name) for together in group]
    if () in groups or (columns is not None and not any(columns.split(","))):
        where = "--group" if () in groups else "--columns"
        raise ConfigError("names no column", where=where, fix=f"{where} carrier,origin; neither: each feature alone")
    run_spec = run_spec_of(pipeline, options)

    def load(overrides: Any) -> Any:
        return load_pipeline(pipeline, options, **overrides)

    with reporting(options) as report:
        result = run_ablate(run_spec, load, report, groups=groups, wait_seconds=options.wait)
    return answer(options, result, "\n".join(_text(result)))


def _text(found: Ablation) -> Iterator[str]:
    from flows.tell.sections.column_rows import cell
    from flows.tell.text import text_table

    metric = str(found.primary)
    yield f"{found.pipeline}: {metric} on {found.eval_rows or 0:,} eval rows without a column, the most harm first"
    made = {", ".join(row.without): row for row in found.rows if row.error is None}
    rows: list[dict[str, object]] = [{"without": "(nothing)", metric: cell(found.base.get(metric))}]
    rows += [
        {
            "without": name,
            metric: cell(row.value),
            "change": "" if row.difference is None else signed(row.difference),
            "interval": "" if row.interval is None else f"{signed(row.interval[0])} to {signed(row.interval[1])}",
            "outcome": row.outcome,
            "seconds": row.seconds,
        }
        for name, row in [*made.items(), ("(nothing, another seed)", found.seed)]
    ]
    yield text_table(rows, whole=("without", "interval"))
    for row in found.rows:
        if row.error is not None:
            yield f"without {', '.join(row.without)}: {row.error}"
    yield "intervals are of rows; differences as small as that of another seed say nothing"
