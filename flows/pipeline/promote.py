"""Moves the champion and the aliases by hand, then renews the store's site, and the aliases in MLflow if a server is set.

promote_version(loaded, registry, "3", reason="asked for", note=print)      # returns the registry's Event
roll_back(loaded, registry, reason="asked for", note=print)                 # to the previous champion
execute(last_candidate(context), report)                                   # promotes what the last run did not promote
"""

from collections.abc import Callable
from dataclasses import replace

from flows.config.pipeline import LoadedPipeline
from flows.pipeline.context import Context
from flows.pipeline.mlflow_tracking import sync_aliases
from flows.pipeline.plan import plan_run
from flows.records import State, records
from headway.errors import ConfigError, StoreError
from headway.messages import window_text
from headway.registry.pointers import NOBODY, Event
from headway.registry.registry import Registry
from headway.sources.spans import ALL

Note = Callable[[str], None]


def promote_version(
    loaded: LoadedPipeline | None,
    registry: Registry,
    version: str,
    *,
    alias: str | None = None,
    reason: str,
    force: bool = False,
    note: Note,
) -> Event:
    """Make a version the champion, or point an alias at it.

    Args:
        loaded: the pipeline, which may name an MLflow server; None: no server is told.
        version: the version's number, previous or an alias.
        force: do it even if the version was rolled back, or somebody changed the pointer meanwhile.
        note: called with a line if the MLflow server or the site could not be updated.

    Raises:
        StoreError: the version does not exist or was rolled back, or champion or alias changed meanwhile.
    """
    if alias is None:
        against = _against(registry, force)
        event = registry.promote(registry.number(version), reason=reason, force=force, against=against)
    else:
        stood = None if force else registry.alias(alias) or NOBODY
        event = registry.set_alias(alias, registry.number(version), reason=reason, against=stood)
    _publish(loaded, registry, note)
    return event


def roll_back(
    loaded: LoadedPipeline | None,
    registry: Registry,
    version: str | None = None,
    *,
    reason: str,
    force: bool = False,
    note: Note,
) -> Event:
    """Make the previous champion, or `version`, the champion again.

    Args:
        loaded, force, note: as for `promote_version`.

    Raises:
        StoreError: a previous champion or the version does not exist, or the champion changed meanwhile.
    """
    number = None if version is None else registry.number(version)
    event = registry.rollback(number, reason=reason, force=force, against=_against(registry, force))
    _publish(loaded, registry, note)
    return event


def _publish(loaded: LoadedPipeline | None, registry: Registry, note: Note) -> None:
    """Set the aliases in MLflow, and write the site of the store."""
    from flows.report.site import renew_site

    sync_aliases(loaded, registry, note=note)
    renew_site(registry.store, registry.name, note)


def _against(registry: Registry, force: bool) -> int | None:
    return None if force else registry.champion_or_nobody()


def remove_alias(loaded: LoadedPipeline, registry: Registry, alias: str, *, reason: str, note: Note) -> Event:
    """Remove an alias, and return the registry's event."""
    event = registry.remove_alias(alias, reason=reason)
    _publish(loaded, registry, note)
    return event


def last_candidate(context: Context) -> Context:
    """Returns the context of a run that promotes the last whole run's candidate by force, without training anything.

    Raises:
        StoreError: no run has reached the gate, or the model of the last run that did is the champion already.
        ConfigError: config, code or data have changed since, so that the run would promote another model.
    """
    name = context.loaded.pipeline.name
    own = (run for run in records(context.store) if run.pipeline == name)
    run = next((run for run in own if run.last is None and run.verdict is not None), None)
    if run is None:
        problem = f"no candidate waits: no run of {name} has come as far as the gate"
        raise StoreError(problem, where=context.store.name, fix="headway run makes one")
    if run.state in (State.PROMOTED, State.ALREADY):
        problem = f"no candidate waits: the last run, {run.run}, ended with {run.state}"
        raise StoreError(problem, where=context.store.name, fix="--to names a version; headway models lists them")
    until = run.spans[-1] if context.loaded.pipeline.source.has_spans else "latest"
    spec = replace(context, force=True, window=run.window or ALL, until=until, seed=run.seed)
    steps = plan_run(spec).steps
    trainings = [step for step in steps if step.stage == "train"]
    judged = {step.fingerprint for step in run.stages if step.stage == "train"}
    otherwise = None
    if not trainings or not all(step.cached for step in trainings):
        missing = next((step for step in steps if not step.cached), None)
        why = "" if missing is None else missing.reason
        otherwise = f"{'train' if missing is None else missing.step} would run again{why and f' ({why})'}"
    elif not judged.issuperset(step.fingerprint for step in trainings):  # it was trained before that run
        otherwise = "the settings, the code or the data are those of another training"
    if otherwise is not None:
        raise ConfigError(
            f"{otherwise}, so this would promote another model than the one that the gate judged",
            where=f"run {run.run} ({window_text(run.spans)})",
            fix="type --set as that run had it; or headway run judges a new candidate, and headway run --force "
            "promotes it whatever the gate says",
        )
    return spec
