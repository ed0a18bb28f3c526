"""Learning to rank: losses over the pairs of each group (the items of a query, the offers of a day).

    pairwise_loss(scores, labels, row_splits=[0, 3, 3, 8], kind="lambdarank", k=10)     # float32 [groups]
    group_splits(query_ids)                                                             # row_splits of sorted ids

By an op in C++ where it is built (`python -m tfcore.ops.compile`) and the graph is not for XLA or a GPU, else by
TensorFlow's own ops: the same values, the same gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfcore.data.groups.group_ids import group_splits
    from tfcore.losses.pairwise import pairwise_loss

_HOMES = {"group_splits": "tfcore.data.groups.group_ids", "pairwise_loss": "tfcore.losses.pairwise"}
__all__ = ["group_splits", "pairwise_loss"]


def __getattr__(name: str) -> Any:
    # on first use: importing the package imports no TensorFlow
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
