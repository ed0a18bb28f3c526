"""Learning the order within groups beside the label itself (Sculley, "Combined regression and ranking", 2010).

    RankingConfig(share=0.5, kind="lambdarank", k=10)
    RankingConfig().check("binary", group="query", mixup=False)

TensorFlow-free. The objective is (1 - share) * the rows' loss + share * `tfcore.losses.pairwise.pairwise_loss` of the groups in
a batch, on the model's outputs (of a regression: in standard deviations of the label). Predictions stay what they
are, probabilities or numbers, and are judged as ever; how rows of a group compare weighs more in what is learned.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from headway.config import Frozen
from headway.errors import ConfigError, DataError
from headway.schema.columns import column_yaml
from headway.tasks.table import task_of

VERSION = 3
"""Raised by whoever changes what a training that ranks writes for the same request; others keep what they have."""

_WHERE = "training.ranking"
LARGE_BATCH = 256
"""From here on plain steps gain more than XLA does, whose matrix of pairs grows with the square of a batch."""


class RankingConfig(Frozen):
    """The order of the rows of a group, the column with `role: group`, as a part of the objective."""

    share: float = Field(
        default=0.5, gt=0.0, lt=1.0, description="its part of the objective; the rest is the loss of the rows"
    )
    kind: Literal["logistic", "lambdarank"] = Field(
        default="logistic", description="logistic: all pairs count alike; lambdarank: by how much a pair changes NDCG"
    )
    k: int | None = Field(default=None, ge=1, description="lambdarank: only the first k ranks count; default: all")

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if self.k is not None and self.kind != "lambdarank":
            raise ValueError(f"k: only lambdarank has it, not {self.kind}")
        return self

    def check(self, task: str | None, *, group: str | None, mixup: bool) -> None:
        """ConfigError where there is nothing to rank.

        Args:
            task: None: not known yet.
            group: the name of the group column, if there is one.
            mixup: whether rows are mixed with others.
        """
        if group is None:
            raise ConfigError(
                "needs a column with role: group",
                where=_WHERE,
                fix=f"{column_yaml('NAME', 'group')}, as a query's id",
            )
        if task is not None and task_of(task).wide:
            raise ConfigError(
                f"the predictions of a {task} task have no order", where=_WHERE, fix="rank a binary label or a number"
            )
        if mixup:
            raise ConfigError(
                "mixup makes rows of two groups", where=_WHERE, fix="leave out training.augment.mixup, or ranking"
            )

    def check_gains(self, least: float) -> None:
        """DataError where the smallest label has no gain, 2^label - 1."""
        if least < 0:
            raise DataError(
                f"lambdarank gives a label the gain 2^label - 1, and one is {least:g}",
                where=_WHERE,
                fix="grades from 0 up as the label, or kind: logistic",
            )
