"""The model that a training begins with: the version that `training.warm_start` names, and whether it may.

parent, note = parent_of(context, request)
parent.warm_start(context)               # part of the request of the new one
"""

from dataclasses import dataclass

from flows.pipeline.champion import knows_rows
from flows.pipeline.context import Context
from headway.errors import ConfigError
from headway.registry.pointers import CHAMPION
from headway.registry.registry import Version
from headway.stages.refs import Ref
from headway.storage.fingerprint import fingerprint
from tfcore.models.config import ModelConfig
from tfcore.train.request import Trained, TrainRequest, WarmStart
from tfcore.transform.parameters import TransformParameters, TransformRequest

WHERE = "training.warm_start"


@dataclass(frozen=True)
class Parent:
    """The version that a training begins with."""

    version: Version
    train: str
    """The fingerprint of its training."""

    def warm_start(self, context: Context) -> WarmStart:
        """Return its part of the train stage's request.

        Raises:
            ConfigError: its training is gone from the store.
        """
        trained = context.store.find(TrainRequest.name, self.train)
        fitted = (
            None if trained is None else context.store.find(TransformRequest.name, trained.key["inputs"]["transform"])
        )
        if trained is None or fitted is None:
            raise ConfigError(
                f"the weights of version {self.version.number} are gone from the store's stages",
                where=f"{context.loaded.file}: {WHERE}",
                fix="leave it out once: the next champion's weights are there",
            )
        return WarmStart(
            version=self.version.number,
            trained=Ref[Trained](
                stage=TrainRequest.name,
                fingerprint=self.train,
                path=context.store.output(TrainRequest.name, self.train),
            ),
            transform=TransformParameters.model_validate(fitted.result["parameters"]),
            model=ModelConfig.model_validate(trained.key["config"]["model"]),
        )


def parent_of(context: Context, request: TrainRequest) -> tuple[Parent | None, str | None]:
    """The model to begin with, or None; and a note.

    Args:
        request: of the training without a warm start. A champion that has its very key is not trained on from itself: it
            began with what this training begins with.

    Raises:
        ConfigError: no version has that name, or it was trained on rows that this candidate will be judged on.
    """
    name, registry = context.loaded.pipeline.training.warm_start, context.registry
    if name is None:
        return None, None
    if context.trial is not None:
        return None, "trials of a study begin with initial weights: the champion's know the holdout's rows"
    if name == CHAMPION and registry.champion() is None:
        return None, "the training begins with initial weights, since this model has no champion yet"
    version = registry.named(name)
    train = str(version.facts.get("train"))
    trained = context.store.find(TrainRequest.name, train)
    if trained is not None and fingerprint({**trained.key, "warm_start": None}) == fingerprint(
        {**request.key(), "version": trained.key["version"], "warm_start": None}
    ):
        before = (trained.key.get("warm_start") or {}).get("train")
        earlier = registry.find("train", before) if before else None
        if before is None or earlier is None:
            return None, None
        version, train = earlier, before
    _refuse(context, version)
    return Parent(version, train), None


def check_parent(context: Context) -> None:
    """Check that a training which is not known yet may begin with the version that is named.

    Raises:
        ConfigError, StoreError: as `parent_of`.
    """
    name, registry = context.loaded.pipeline.training.warm_start, context.registry
    if name is None or context.trial is not None or (name == CHAMPION and registry.champion() is None):
        return
    version = registry.named(name)
    if (
        tuple(map(tuple, version.facts.get("train_parts") or ())) != context.parts["train"]
    ):  # else it may be this very training
        _refuse(context, version)


def _refuse(context: Context, version: Version) -> None:
    if knows_rows(context, version):
        raise ConfigError(
            f"version {version.number} was trained on rows that this candidate will be judged on, so that the verdict would "
            "be worth nothing",
            where=f"{context.loaded.file}: {WHERE}",
            fix="leave it out for this window",
        )
