"""Warm start: a training begins with the weights of the version that `training.warm_start` names.

start_version(context)                           # the version, or None
request = with_warm_start(context, request)      # with the version's weights, if there is one
"""

from flows.pipeline.champion import trained_on_eval_rows
from flows.pipeline.context import Context
from headway.errors import ConfigError
from headway.registry.pointers import CHAMPION
from headway.registry.registry import Version
from headway.schema.notes import Note
from headway.stages.refs import Ref
from headway.storage.fingerprint import fingerprint
from tfcore.models.config import ModelConfig
from tfcore.train.request import Trained, TrainRequest, WarmStart
from tfcore.transform.fit import TransformRequest
from tfcore.transform.parameters import TransformParameters


def with_warm_start(context: Context, request: TrainRequest) -> TrainRequest:
    """Returns the request with the warm-start version's weights, and sets `context.parent`; the same request without one.

    If this request trained that version, the weights are the ones which that training began with, so nothing is trained again.

    Raises:
        ConfigError: the version was trained on rows that will judge this candidate, or its weights are gone.
    """
    version = start_version(context)
    if version is None:
        if context.pipeline.training.warm_start is not None and context.trial is None:  # of trials headway tune tells
            text = "the training begins with initial weights, since this model has no champion yet"
            context.notes.append(Note(text=text))
        return request
    train = str(version.facts.get("train"))
    trained = context.store.find(TrainRequest.name, train)
    if trained is not None and fingerprint({**trained.key, "warm_start": None}) == fingerprint(
        {**request.key(), "version": trained.key["version"], "warm_start": None}
    ):
        before = (trained.key.get("warm_start") or {}).get("train")
        if before is None or (earlier := context.registry.find("train", before)) is None:
            return request
        version, train, trained = earlier, before, context.store.find(TrainRequest.name, before)
    fitted = trained and context.store.find(TransformRequest.name, trained.key["inputs"]["transform"])
    if trained is None or fitted is None:
        problem = f"the weights of version {version.number} are gone from the store's stages"
        raise _error(context, problem, "leave it out once: the next champion's weights are there")
    context.parent, path = version, context.store.output(TrainRequest.name, train)
    start = WarmStart(
        version=version.number,
        trained=Ref[Trained](stage=TrainRequest.name, fingerprint=train, path=path),
        transform=TransformParameters.model_validate(fitted.result["parameters"]),
        model=ModelConfig.model_validate(trained.key["config"]["model"]),
    )
    return request.model_copy(update={"warm_start": start})


def start_version(context: Context) -> Version | None:
    """Returns the version that `training.warm_start` names; None: the training begins with initial weights."""
    name = context.pipeline.training.warm_start
    if name is None or context.trial is not None or (name == CHAMPION and context.registry.champion() is None):
        return None
    version = context.registry.named(name)
    if trained_on_eval_rows(context, version):
        problem = f"version {version.number} was trained on rows that this candidate will be judged on"
        raise _error(context, problem, "leave it out for this window: the verdict would be worth nothing")
    return version


def _error(context: Context, problem: str, fix: str) -> ConfigError:
    return ConfigError(problem, where=f"{context.loaded.file}: training.warm_start", fix=fix)
