"""The command that trains the pipeline without some of its columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from cyclopts import Parameter

from flows.cli.commands import answer, load_pipeline, reporting, run_spec_of
from flows.cli.options import Columns, PipelinePath, RunOptions
from headway.errors import ConfigError
from headway.messages import number, signed


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


def _text(result: dict[str, Any]) -> Iterator[str]:
    from flows.tell.text import text_table

    metric = result["primary"]
    value = result["base"].get(metric)
    yield f"{result['pipeline']}: {metric} on {result['eval_rows']:,} eval rows without a column, the most harm first"
    rows: list[dict[str, Any]] = [{"without": "(nothing)", metric: _number(value)}]
    rows += [_row(", ".join(row["without"]), metric, row) for row in result["rows"] if "error" not in row]
    rows.append(_row("(nothing, another seed)", metric, result["seed"]))
    yield text_table(rows, whole=("without", "interval"))
    for row in result["rows"]:
        if "error" in row:
            yield f"without {', '.join(row['without'])}: {row['error']}"
    yield "intervals are of rows; differences as small as that of another seed say nothing"


def _row(name: str, metric: str, row: dict[str, Any]) -> dict[str, Any]:
    interval = row["interval"]
    return {
        "without": name,
        metric: _number(row["value"]),
        "change": "" if row["difference"] is None else signed(row["difference"]),
        "interval": "" if not interval else f"{signed(interval[0])} to {signed(interval[1])}",
        "outcome": row["outcome"],
        "seconds": row.get("seconds", ""),
    }


def _number(value: float | None) -> str:
    return "" if value is None else number(value)
