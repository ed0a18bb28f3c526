"""Learning which item of all a user wants, beside the label itself: `training.retrieval`; TensorFlow-free.

    RetrievalConfig(share=0.5, correction=True)

The objective is (1 - share) * what it is without + share * `tfcore.losses.in_batch.in_batch_softmax` of the rows whose label
is above 0, each by its label: a reward.
"""

from pydantic import Field

from headway.config import Frozen

VERSION = 1
"""Raised by whoever changes what such a training writes for the same request."""
MOST_ROWS = 8192
"""Of a batch: each row meets the item of every other, and this many make a matrix of 256 MiB."""


class RetrievalConfig(Frozen):
    """The choice among the items of a batch as a part of the objective; of two_towers."""

    share: float = Field(
        default=0.5, gt=0.0, le=1.0, description="its part of the objective; the rest is the loss without it"
    )
    correction: bool = Field(
        default=True, description="subtract the logarithm of an item's share of the train rows from its logit"
    )
