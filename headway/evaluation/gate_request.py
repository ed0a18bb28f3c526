"""The gate's request: two models' predictions on the same rows, and the data each was trained on.

request = GateRequest(task="binary", candidate=Candidate(model=..., predictions=...), champion=None)
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from headway.config import Frozen
from headway.evaluation.baseline import LabelFacts
from headway.evaluation.gate_config import GateConfig
from headway.evaluation.tasks import Task
from headway.messages import some

Parts = tuple[tuple[str, str], ...]
"""(span, split as ingested: "train", "eval", "test" or "all") pairs."""


class Candidate(Frozen):
    model: str = Field(description="what identifies the model: the fingerprint of its training")
    predictions: Path = Field(description="Parquet file over the evaluation rows")
    rolled_back: str | None = Field(default=None, description="set when this model was rolled back: which version, why")
    train: Parts = Field(default=(), description="what it was trained on")
    data: dict[str, str] = Field(default={}, description="digest of the raw files of each span that it was trained on")


class Champion(Frozen):
    version: int
    model: str
    predictions: Path | None = Field(default=None, description="Parquet file over the same evaluation rows")
    incompatible: str | None = Field(default=None, description="why it cannot score these rows")
    train: Parts = Field(default=(), description="what it was trained on")
    data: dict[str, str] = Field(default={}, description="digest of the raw files of each span that it was trained on")
    split: str = Field(default="", description="digest of the split config its spans were ingested with")

    @model_validator(mode="after")
    def _scored_or_not(self) -> Champion:
        if self.predictions is not None and self.incompatible is not None:
            raise ValueError("a champion that is incompatible has no predictions")
        return self


class GateRequest(Frozen):
    """Everything a verdict depends on."""

    task: Task
    config: GateConfig = GateConfig()
    candidate: Candidate
    champion: Champion | None = None
    reference: Champion | None = Field(default=None, description="the best of the last champions, if another than it")
    label: LabelFacts | None = Field(default=None, description="of the train rows: what the constant baseline predicts")
    baselines: dict[str, Path] = Field(
        default={}, description="predictions of other baselines by name, over the same rows; shown, never decisive"
    )
    eval: Parts = Field(default=(), description="the parts that the evaluation rows come from")
    split: str = Field(default="", description="digest of the split config of this run's spans")
    slices: tuple[str, ...] = ()
    group: str | None = Field(default=None, description="column whose equal values are resampled together")
    ndcg_at: int | None = Field(default=None, ge=1, description="judge the order within groups too, its first ranks")
    seed: int = 0
    force: bool = False

    @model_validator(mode="after")
    def _has_groups(self) -> GateRequest:
        if self.ndcg_at is not None and self.group is None:
            raise ValueError("ndcg_at needs a column with role: group")
        return self

    @property
    def ranked(self) -> bool:
        """Whether the order within groups is judged."""
        return self.ndcg_at is not None


def newer(candidate: Candidate, champion: Champion) -> str | None:
    """Why the candidate's train data are newer than the champion's; None when they are not, or when it is not known.

    They are newer when the last span is later, or when the last span is the same and the raw files of a span that both
    were trained on have changed since.
    """
    if not candidate.train or not champion.train:
        return None
    ours, theirs = (max(span for span, _ in parts) for parts in (candidate.train, champion.train))
    if ours > theirs:
        return f"the candidate was trained up to span {ours}, version {champion.version} up to {theirs}"
    if ours < theirs:
        return None
    known = champion.data
    changed = [span for span, digest in sorted(candidate.data.items()) if known.get(span, digest) != digest]
    if changed:
        return f"the raw files of span {some(changed, 3)} have changed since version {champion.version} was trained"
    return None


def trained_on(train: Parts, train_split: str, evaluation: Parts, evaluation_split: str) -> list[str]:
    """The spans whose evaluation rows a model may have been trained on, in order.

    Two parts of one span are apart only when both come from the same split of it and have different names; a part that
    is "all" of a span overlaps every other.
    """
    by_span: dict[str, set[str]] = {}
    for span, split in train:
        by_span.setdefault(span, set()).add(split)
    seen = {
        span
        for span, split in evaluation
        if (known := by_span.get(span))
        and (split == "all" or "all" in known or split in known or train_split != evaluation_split)
    }
    return sorted(seen)
