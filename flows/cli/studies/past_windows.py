"""The command that trains and judges the pipeline over its past windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from flows.cli.commands import answer, reporting, run_spec_of
from flows.cli.options import Count, PipelinePath, RunOptions
from headway.errors import ConfigError
from headway.messages import counted, number, window_text

if TYPE_CHECKING:
    from flows.execution.studies.backtest import Backtest


def backtest(
    pipeline: PipelinePath = ".",
    /,
    *,
    windows: Annotated[
        Count, Parameter(help="how many windows, up to --until; the last span of each judges its model")
    ] = 6,
    options: RunOptions = RunOptions(),
) -> int:
    if windows < 1:
        raise ConfigError(f"{windows} is not a number of 1 or more", where="--windows", fix="--windows 6")
    from flows.execution.studies.backtest import backtest as run_backtest

    run_spec = run_spec_of(pipeline, options)
    with reporting(options) as report:
        result = run_backtest(run_spec, report, windows=windows, wait_seconds=options.wait)
    return answer(options, result, "\n".join(_text(result)))


def _text(found: Backtest) -> Iterator[str]:
    from flows.tell.sections.column_rows import cell
    from flows.tell.text import text_table

    primary = str(found.primary)
    yield f"{found.pipeline}: {found.primary or 'no metric'} of each window on the span after it"
    rows: list[dict[str, object]] = []
    for row in found.windows:
        error = "" if row.error is None else f": {row.error.splitlines()[0]}"
        rows.append(
            {
                "judged on": row.until,
                "trained on": window_text(row.train),
                "rows": row.rows,
                "candidate": cell(row.candidate.get(primary)),
                "champion": cell((row.champion or {}).get(primary)),
                "champion of": row.champion_of,
                **{who: cell(metrics.get(primary)) for who, metrics in row.baselines.items()},
                "verdict": f"{row.verdict}{error}",
            }
        )
    yield text_table(rows, whole=("verdict",))
    means = ", ".join(f"{who} {number(value)}" for who, value in found.means.items() if value is not None)
    over = f" over {counted(found.compared, 'window')} with a champion" if found.compared else ""
    yield f"means{over}: {means or 'none'}"
    if found.compared:
        yield f"better than the champion of its time in {found.candidate_better} of {found.compared} windows"
    yield "verdicts: " + ", ".join(f"{verdict} {count}" for verdict, count in found.verdicts.items())
