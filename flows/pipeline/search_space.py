"""The search space of `headway tune`: what is varied, and the overrides of the pipeline that a point in it comes to.

space = space_of(loaded, run_result)                           # that of the pipeline, or one chosen for its model
overrides = overrides_at(loaded, run_result, {"training.learning_rate.initial": 0.004})
loaded.changed(overrides)                                                # the pipeline at that point
"""

from collections.abc import Mapping
from typing import Any

from flows.config.pipeline import LoadedPipeline
from flows.dag.run_spec import RunResult
from headway.errors import ConfigError
from tfcore.train.settings.auto import resolve
from tfcore.train.settings.tune_config import Range, Space, default_space


def space_of(loaded: LoadedPipeline, base: RunResult) -> Space:
    """The pipeline's space, or for one without the default of its model.

    Args:
        base: of the pipeline as it is, up to the transform at least.
    """
    if loaded.pipeline.tune.space:
        return loaded.pipeline.tune.space
    assert base.training is not None
    model = None if loaded.pipeline.model.user_defined else base.training.model
    return default_space(base.training.training, model)


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
