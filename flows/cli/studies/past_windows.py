"""The command that trains and judges the pipeline over its past windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from cyclopts import Parameter

from flows.cli.commands import answer, reporting, run_spec_of
from flows.cli.options import Count, PipelinePath, RunOptions
from headway.errors import ConfigError
from headway.messages import number, window_text


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


def _text(result: dict[str, Any]) -> Iterator[str]:
    from flows.tell.text import text_table

    primary = result["primary"]
    yield f"{result['pipeline']}: {primary or 'no metric'} of each window on the span after it"
    rows = []
    for row in result["windows"]:
        if row["verdict"] == "failed":
            rows.append({"judged on": row["until"], "verdict": f"failed: {row['error'].splitlines()[0]}"})
            continue
        train = row["train"]
        rows.append(
            {
                "judged on": row["until"],
                "trained on": window_text(train),
                "rows": row["rows"],
                "candidate": _value(row["candidate"], primary),
                "champion": _value(row["champion"] or {}, primary),
                "champion of": row["champion_of"] or "",
                **{who: _value(metrics, primary) for who, metrics in row["baselines"].items()},
                "verdict": row["verdict"],
            }
        )
    yield text_table(rows, whole=("verdict",))
    means = ", ".join(f"{who} {number(value)}" for who, value in result["means"].items() if value is not None)
    yield f"means: {means or 'none'}"
    if result["compared"]:
        yield f"better than the champion of its time in {result['candidate_better']} of {result['compared']} windows"
    yield "verdicts: " + ", ".join(f"{verdict} {count}" for verdict, count in result["verdicts"].items())


def _value(metrics: dict[str, Any], name: str | None) -> str:
    value = metrics.get(name or "")
    return "" if value is None else number(value)
