"""The predictions that an evaluation kept, as rows that metrics are computed on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headway.evaluation.gate_checks import read_predictions
from headway.evaluation.metrics import metrics_of, rows_of
from headway.metrics.base import Metric, Rows
from headway.storage.store import Store

CONFIDENCE = 0.95
"""Of every interval of a comparison."""


def predictions(store: Store, fingerprint: str | None) -> pa.Table | None:
    """The predictions of an evaluation that the store still has; None when they are gone."""
    manifest = store.find("evaluate", fingerprint) if fingerprint else None
    if manifest is None or fingerprint is None or "predictions" not in manifest.result:
        return None
    path = store.output("evaluate", fingerprint) / manifest.result["predictions"]
    store.localize(str(path))
    return read_predictions(path)


@dataclass(frozen=True)
class Judged:
    """How a run judges predictions: its task, and of a ranking the group, the item and how many ranks."""

    task: str
    group: str | None = None
    item: str | None = None
    ndcg_at: int | None = None

    @classmethod
    def by(cls, task: str, settings: Mapping[str, Any]) -> Judged:
        """As the settings of a measuring step say."""
        return cls(task, settings.get("group"), settings.get("item"), settings.get("ndcg_at"))

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return metrics_of(self.task, self.ndcg_at, item=self.item)

    def rows(self, table: pa.Table) -> Rows:
        """The rows of a predictions table; those of one group belong together."""
        read = tuple(name for name in (self.group, self.item) if name) if self.ndcg_at is not None else ()
        return rows_of(table, self.task, self.group, columns=read)
