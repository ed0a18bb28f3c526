"""The commands that put pipelines on a Prefect server, and take them away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from flows.cli.commands import answer
from flows.cli.options import JsonOption, Positive
from headway.config import load
from headway.errors import ConfigError

if TYPE_CHECKING:
    from flows.config.production import ScheduleConfig

Pipelines = Annotated[
    list[str], Parameter(help="pipeline.yaml files, or their folders (default: this folder)", show_default=False)
]


def deploy(
    pipelines: Pipelines = ["."],  # noqa: B006
    /,
    *,
    schedule: Annotated[str | None, Parameter(metavar="CRON")] = None,
    timezone: Annotated[str | None, Parameter(metavar="ZONE")] = None,
    pool: Annotated[str, Parameter(metavar="NAME")] = "headway",
    gpus: Positive | None = None,
    yaml: bool = False,
    remove: bool = False,
    options: JsonOption = JsonOption(),
) -> int:
    """Put pipelines on a Prefect server.

    Args:
        schedule: when to retrain, e.g. '0 5 2 * *'; none removes the schedule (default: schedule of pipeline.yaml).
        timezone: the time zone of --schedule (default: UTC).
        pool: the work pool; it is created if it does not exist.
        gpus: how many trainings may run at once on the workers of queue gpu (default: unchanged, at first 1).
        yaml: change nothing; print the deployments as a prefect.yaml.
        remove: remove the pipelines from the server; their stores and past runs stay.
    """
    from flows.config.extras import require
    from flows.config.pipeline import read_pipeline

    if remove:
        given = {"--schedule": schedule, "--timezone": timezone, "--gpus": gpus, "--yaml": yaml or None}
        if other := next((name for name, value in given.items() if value is not None), None):
            raise ConfigError("--remove sets nothing", where=other, fix="leave one of the two out")
        require("prefect", where="headway deploy")
        return _remove(pipelines, options)
    timing = _timing(schedule, timezone)
    loaded = [read_pipeline(Path(pipeline)) for pipeline in pipelines]
    names = [each.pipeline.name for each in loaded]
    if twice := next((name for name in names if names.count(name) > 1), None):
        problem = f"two of these pipelines are called {twice!r}, and deployments are named after them"
        raise ConfigError(problem, where=twice, fix="give one of them another name")

    require("prefect", where="headway deploy")
    from flows.config.production import DATA_QUEUE
    from flows.orchestration.deploying.plan import entries, queues_of

    if yaml:
        if kept := next((each for each in loaded if each.pipeline.secrets), None):
            raise ConfigError(
                "'prefect deploy' would write the values of the Secret blocks into the deployments, for all to read",
                where=f"{kept.file}: secrets",
                fix="headway deploy, without --yaml: workers ask for them when a flow run starts",
            )
        found = [entry for each in loaded for entry in entries(each, pool=pool, retrain=timing)]
        return answer(options, {"deployments": found}, _yaml_text(found))

    from flows.orchestration.deploying.apply import deploy as deploy_one
    from flows.orchestration.deploying.connection import connected
    from flows.orchestration.deployments import polled, worker_command, workers_online

    with connected() as (client, url):
        changes = {
            each.pipeline.name: deploy_one(client, each, pool=pool, retrain=timing, gpus=gpus) for each in loaded
        }
        lines = _changed(url, changes, "nothing to change")
        for each in loaded:
            if not each.pipeline.alarms.notify:
                lines.append(
                    f"{each.pipeline.name}: nobody is told of a failure: alarms.notify of {each.file} is empty"
                )
        online = bool(workers_online(pool))
        others = {queue for each in loaded for queue in queues_of(each)} - {DATA_QUEUE}
        idle = [queue for queue in sorted(others) if not polled(pool, queue)]
    lines.append("next:")
    if not online:
        lines.append(f"  start a worker, as none polls {pool}:  python -P -m flows.orchestration.worker --pool {pool}")
    lines += [f"  start a worker of queue {queue}, unless one is up:  {worker_command(pool, queue)}" for queue in idle]
    lines += [f"  retrain now:  prefect deployment run 'retrain/{name}' --watch" for name in names]
    return answer(options, {"server": url, "changes": changes, "worker": online}, "\n".join(lines))


def _remove(pipelines: Sequence[str], options: JsonOption) -> int:
    from flows.orchestration.deploying.apply import undeploy
    from flows.orchestration.deploying.connection import connected

    names = [_name(pipeline) for pipeline in pipelines]
    with connected() as (client, url):
        changes = {name: undeploy(client, name) for name in names}
    return answer(
        options, {"server": url, "changes": changes}, "\n".join(_changed(url, changes, "nothing of it is there"))
    )


def _changed(url: str, changes: Mapping[str, Sequence[str]], nothing: str) -> list[str]:
    lines = [f"Prefect server {url}"]
    for name, changed in changes.items():
        lines += [f"{name}:", *(f"  {each}" for each in changed)] if changed else [f"{name}: {nothing}"]
    return lines


def _name(pipeline: str) -> str:
    """A pipeline's name: that in its file, or, as the file may be gone, what was typed."""
    from flows.config.pipeline import read_pipeline

    path = Path(pipeline)
    return read_pipeline(path).pipeline.name if path.exists() else pipeline


def _timing(schedule: str | None, timezone: str | None) -> ScheduleConfig | Literal[False] | None:
    from flows.config.production import ScheduleConfig

    if timezone is not None and schedule in (None, "none"):
        raise ConfigError(
            "there is no schedule to be of this time zone", where="--timezone", fix="name --schedule CRON too"
        )
    if schedule is None:
        return None
    if schedule == "none":
        return False
    return load(ScheduleConfig, {"retrain": schedule, "timezone": timezone or "UTC"}, where="--schedule")


def _yaml_text(found: list[dict[str, Any]]) -> str:
    import yaml

    head = "# headway deploy does the same, and alarms and the work pool besides\npull: []\n"
    return head + yaml.safe_dump({"deployments": found}, sort_keys=False, width=120).rstrip()
