"""The command that holds logged requests against the same rows in the data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from flows.cli.commands import answer, load_pipeline, reporting
from flows.cli.options import Columns, Options, PipelinePath
from headway.errors import ConfigError
from headway.messages import agree, counted, listed


def skew(
    pipeline: PipelinePath = ".",
    /,
    *,
    input: Annotated[
        str, Parameter(metavar="PATH", help="the data that hold the requested rows: a file, a folder or a glob")
    ],
    requests: Annotated[
        tuple[Path, ...],
        Parameter(
            metavar="FILE", help="files of logged requests (default: all that headway serve logged in this store)"
        ),
    ] = (),
    key: Annotated[Columns, Parameter(help="the columns that identify a row (default: the pipeline's keys)")] = None,
    model: Annotated[
        str,
        Parameter(
            name=("--model", "--version"),
            help="the version whose predictions are compared, or the folder of a SavedModel",
        ),
    ] = "champion",
    format: Annotated[str | None, Parameter(help="the format of --input (default: the pipeline's)")] = None,
    max_differing: Annotated[
        float, Parameter(metavar="SHARE", help="the share of rows in which a column may differ")
    ] = 0.01,
    options: Options = Options(),
) -> int:
    if not 0 <= max_differing <= 1:
        raise ConfigError(f"{max_differing:g} is not a share from 0 to 1", where="--max-differing")
    from flows.scoring.request_skew import request_skew

    missing = [str(path) for path in requests if not path.is_file()]
    if missing:
        fix = "name files of JSON lines, as headway serve --log-rate SHARE writes them; without --requests all of them are read"
        raise ConfigError(
            f"{listed(missing)} {agree(len(missing), 'is not a file', 'are not files')}", where="--requests", fix=fix
        )
    loaded = load_pipeline(pipeline, options)
    with reporting(options) as report:
        result = request_skew(
            loaded,
            requests=requests,
            input=input,
            keys=[name for name in (key or "").split(",") if name],
            model=model,
            monitor=report.monitor("predict"),
            format=format,
            limit=max_differing,
        )
    return answer(options, result, "\n".join(_text(result)), 3 if result["findings"] else 0)


def _text(result: dict[str, Any]) -> Iterator[str]:
    rows, joined = result["rows"], result["joined"]
    which = f"version {result['version']}" if result["version"] else "the model"
    yield f"{joined:,} of {counted(rows, 'logged row')} that {which} answered are in the data, by {', '.join(result['keys'])}"
    if result["ambiguous"]:
        yield f"  {counted(result['ambiguous'], 'row')} left out: several rows of the data have the key"
    if result["other_versions"]:
        yield f"  {counted(result['other_versions'], 'row')} left out: another version answered"
    if result["unfit"]:
        yield f"  {counted(result['unfit'], 'row')} left out: without a key, or with a value that does not fit"
    if result["not_compared"]:
        yield f"  not compared, as they have several values per row: {', '.join(result['not_compared'])}"
    for found in result["findings"]:
        yield f"  {found['message']}"
    if not result["findings"]:
        predictions = "" if result["predictions"] is None else " and the predictions"
        share = f"{result['limit']:.3g}"
        yield f"  all {counted(len(result['columns']), 'column')}{predictions} agree, in all but at most {share} of the rows"
