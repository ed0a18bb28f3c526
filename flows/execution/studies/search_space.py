"""The search space of `headway tune`: what is varied, and the overrides of the pipeline that a point in it comes to.

space = space_of(loaded, run_result)                           # that of the pipeline, or one chosen for its model
overrides = overrides_at(loaded, run_result, {"training.learning_rate.initial": 0.004})
loaded.changed(overrides)                                                # the pipeline at that point
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flows.config.pipeline import LoadedPipeline
from flows.dag.run_spec import RunResult
from headway.errors import ConfigError
from headway.storage.fingerprint import canonical
from tfcore.train.settings.auto import resolve
from tfcore.train.settings.tune_config import Range, Space

if TYPE_CHECKING:
    from optuna import Trial

RATE_BELOW, RATE_ABOVE, PENALTY_RANGE = 8, 5, 30
LEAST_BATCH, MOST_DROPOUT = 16, 0.4
_HIDDEN = ((32,), (64, 32), (128, 64), (256, 128), (100, 70, 50, 25))
_HIDDEN_OF_MEMBERS = ((32, 32), (64, 64), (128, 64), (128, 128))


def space_of(loaded: LoadedPipeline, base: RunResult) -> Space:
    """The pipeline's space, or for one without: learning rate and batch size, of a built-in model its layers, dropout and
    penalty too.

    Args:
        base: of the pipeline as it is, up to the transform at least.
    """
    if loaded.pipeline.tune.space:
        return loaded.pipeline.tune.space
    assert base.training is not None
    training, model = base.training.training, base.training.model
    rate, batch = training["learning_rate"].get("initial"), training["batch_size"]
    space: Space = {}
    if rate:
        space["training.learning_rate.initial"] = Range(
            low=_rounded(rate / RATE_BELOW), high=_rounded(rate * RATE_ABOVE), log=True
        )
    least = max(
        LEAST_BATCH, training.get("micro_batches", 1) * (training.get("replicas") or training.get("workers") or 1)
    )
    batches = [size for size in (batch // 2, batch, batch * 2) if size >= least]
    if len(batches) > 1:
        space["training.batch_size"] = tuple(batches)
    if loaded.pipeline.model.user_defined:
        return space
    hidden = [list(units) for units in (_HIDDEN_OF_MEMBERS if model["name"] == "tabm" else _HIDDEN)]
    if model["hidden"]:
        space["model.hidden"] = tuple(hidden if model["hidden"] in hidden else [model["hidden"], *hidden])
        space["model.dropout"] = Range(low=0.0, high=MOST_DROPOUT)
    penalty = model.get("l2", 0.0) or 1e-6
    space["model.l2"] = Range(low=_rounded(penalty / PENALTY_RANGE), high=_rounded(penalty * PENALTY_RANGE), log=True)
    return space


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def suggest(trial: Trial, space: Space) -> dict[str, Any]:
    """Have Optuna choose a point; {key: value}."""
    point: dict[str, Any] = {}
    for key, values in space.items():
        if not isinstance(values, Range):
            # a choice may be a list: Optuna keeps its JSON
            by_text = {canonical(choice): choice for choice in values}
            point[key] = by_text[trial.suggest_categorical(key, list(by_text))]
        elif values.whole:
            point[key] = trial.suggest_int(key, int(values.low), int(values.high), log=values.log)
        else:
            # to four digits, so that a value copied from the table is the value used
            drawn = trial.suggest_float(key, float(values.low), float(values.high), log=values.log)
            point[key] = min(max(float(f"{drawn:.4g}"), float(values.low)), float(values.high))
    return point


def overrides_at(loaded: LoadedPipeline, base: RunResult, point: Mapping[str, Any]) -> dict[str, Any]:
    """The overrides that set the pipeline to a point: each names a whole key of a section, `training.learning_rate`.

    A key within one (`training.learning_rate.initial`) changes what is set there or was chosen by the number of rows.
    """
    overrides = {key: value for key, value in point.items() if key.count(".") == 1}
    nested = {key: value for key, value in point.items() if key not in overrides}
    if not nested:
        return overrides
    pipeline = loaded.changed(overrides).pipeline
    assert base.size is not None
    training, model = resolve(pipeline.training, pipeline.model, base.size)
    settings = {"training": training.model_dump(mode="json"), "model": model.model_dump(mode="json")}
    for key, value in nested.items():
        section, name, *inner, last = key.split(".")
        whole = overrides.setdefault(f"{section}.{name}", settings[section].get(name))
        at = whole
        for part in inner:
            at = at.get(part) if isinstance(at, dict) else None
        if not isinstance(at, dict):
            raise ConfigError(
                f"{section}.{name} is {whole!r} here, which has no {last}",
                where="tune.space",
                fix=f"set {section}.{name} in the pipeline, or leave the key out of the space",
            )
        at[last] = value
    return overrides


def check_space(loaded: LoadedPipeline, base: RunResult, space: Space) -> None:
    """Try the ends or choices of each key alone.

    Raises:
        ConfigError: one of them does not fit the pipeline; names the key.
    """
    for key, values in space.items():
        for value in values.ends() if isinstance(values, Range) else values:
            try:
                loaded.changed(overrides_at(loaded, base, {key: value}))
            except ConfigError as error:
                where = f"{loaded.file}: tune.space: {key}"
                fix = error.fix or "correct the key, or the values to choose from"
                raise ConfigError(f"{value!r} does not fit: {error.problem}", where=where, fix=fix) from None
