"""The model that a training begins with: the version that `training.warm_start` names, and whether it may.

parent, notes = parent_of(run_spec, key, evaluation=parts, split=digest)
parent.key            # {"train": fingerprint of its training}: part of the key of the new one
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flows.dag.references import trained_parts
from flows.dag.run_spec import TRAIN, TRANSFORM, RunSpec
from headway.errors import ConfigError
from headway.evaluation.gate import Parts, trained_on
from headway.registry.pointers import CHAMPION
from headway.registry.registry import Version
from tfcore.models.config import ModelConfig
from tfcore.train.request import WarmStart
from tfcore.transform.parameters import TransformParameters

WHERE = "training.warm_start"


@dataclass(frozen=True)
class Parent:
    version: Version
    train: str
    """The fingerprint of its training."""

    @property
    def key(self) -> dict[str, str]:
        return {"train": self.train}

    def request(self, run_spec: RunSpec) -> WarmStart:
        """Return its part of the train stage's request.

        Raises:
            ConfigError: its training is gone from the store.
        """
        trained = run_spec.store.find(TRAIN.name, self.train)
        fitted = None if trained is None else run_spec.store.find(TRANSFORM.name, trained.key["inputs"]["transform"])
        if trained is None or fitted is None:
            raise ConfigError(
                f"the weights of version {self.version.number} are gone from the store's stages",
                where=f"{run_spec.loaded.file}: {WHERE}",
                fix="leave it out once: the next champion's weights are there",
            )
        return WarmStart(
            version=self.version.number,
            trained=run_spec.store.output(TRAIN.name, self.train),
            transform=TransformParameters.model_validate(fitted.result["parameters"]),
            model=ModelConfig.model_validate(trained.key["config"]["model"]),
        )


def parent_of(
    run_spec: RunSpec, key: Mapping[str, object], *, evaluation: Parts, split: str
) -> tuple[Parent | None, str | None]:
    """The model to begin with, or None; and a note.

    Args:
        key: of the training without a warm start. A champion that has this very key is not trained on from itself: it began
            with what this training begins with.
        evaluation: the parts that the candidate will be judged on.
        split: the digest of what assigns rows to splits.

    Raises:
        ConfigError: no version has that name, or it was trained on rows that this candidate will be judged on.
    """
    name, registry = run_spec.loaded.pipeline.training.warm_start, run_spec.registry
    if name is None:
        return None, None
    if run_spec.trial is not None:
        return None, "trials of a study begin with initial weights: the champion's know the holdout's rows"
    if name == CHAMPION and registry.champion() is None:
        return None, "the training begins with initial weights, since this model has no champion yet"
    version = registry.named(name)
    train = str(version.facts.get("train"))
    trained = run_spec.store.find(TRAIN.name, train)
    if (
        trained is not None
        and {k: v for k, v in trained.key.items() if k not in ("warm_start", "stage", "version")} == key
    ):
        before = (trained.key.get("warm_start") or {}).get("train")
        earlier = registry.find("train", before) if before else None
        if before is None or earlier is None:
            return None, None
        version, train = earlier, before
    if trained_on(trained_parts(version), version.facts.get("split", ""), evaluation, split):
        raise ConfigError(
            f"version {version.number} was trained on rows that this candidate will be judged on, so that the verdict would "
            "be worth nothing",
            where=f"{run_spec.loaded.file}: {WHERE}",
            fix="leave it out for this window",
        )
    return Parent(version, train), None
