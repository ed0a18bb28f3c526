"""Writes a table in memory as an ingested span, without Beam: real shards, statistics and a manifest's result.

examples = write_examples(folder, {"train": table, "eval": other}, columns)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headway.records.tfrecord import Shard, cut_between_groups
from headway.schema.columns import UNIT, Column
from headway.stages.refs import Examples
from headway.statistics.split_statistics import SplitStatistics
from tfcore.heads.weighted_labels import read_label
from tfcore.transform.config import ColumnTransform
from tfcore.transform.fit import fit_parameters
from tfcore.transform.parameters import TransformParameters


@dataclass(frozen=True)
class Written:
    """An ingested span, as the ingest stage would have written it."""

    folder: Path
    result: dict[str, Any]
    columns: tuple[Column, ...]
    statistics: dict[str, SplitStatistics]

    def part(self, split: str) -> Examples:
        return Examples(path=self.folder, split=split, result=self.result)

    def fit(
        self,
        transforms: Mapping[str, ColumnTransform] | None = None,
        task: str | None = None,
        counted: str | None = None,
    ) -> TransformParameters:
        """Fit transform parameters on the train split's statistics."""
        train = self.statistics["train"]
        weighted = read_label([self.part("train")])
        fitted = fit_parameters(
            self.columns, transforms or {}, train, task=task or "auto", counted=counted, weighted=weighted
        )
        return fitted[0]


def write_examples(
    folder: Path,
    splits: Mapping[str, pa.Table],
    columns: Sequence[Column],
    *,
    rows_per_record: int = 4096,
    shards: int = 2,
    span: str = "all",
) -> Written:
    """Write the tables of stored columns (the label's column is "label") as shards into `folder`; with `UNIT_COLUMN` among
    them the records say which rows go together.

    Args:
        shards: how many each split is cut into, of equal length but for a group column, of which no group is cut.
    """
    folder.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {}
    statistics = {}
    stored = [column for column in columns if column.name != UNIT]
    for split, table in splits.items():
        statistics[split] = SplitStatistics.create(stored)
        written = []
        for number, piece in enumerate(cut_between_groups(table, columns, shards)):
            name = f"{split}-{number:05d}-of-{shards:05d}.tfrecord"
            with Shard(folder / name, columns, rows_per_record) as shard:
                for batch in piece.to_batches(max_chunksize=max(rows_per_record, 1024)):
                    statistics[split].update(batch)
                    shard.add(batch)
                written.append({"file": name, "rows": shard.finish()})
        facts[split] = {"rows": table.num_rows, "shards": written}
    result = {
        "span": span,
        "columns": [column.model_dump(mode="json") for column in stored],
        "splits": facts,
        "unit": len(stored) < len(columns),
    }
    return Written(folder, result, tuple(stored), statistics)


def dataset_of(shards, transform, labeler, *, seed, batch, stack, keep_bytes=0, start_step=0, **more):
    """The stacks of a training on the rows of shards, read or kept; `more` is of the row plan, or of `training_dataset`."""
    from tfcore.data.dataset import Inputs, RowCache, RowPlan, training_dataset

    rest = {name: more.pop(name) for name in ("augment", "jit", "count") if name in more}
    plan, inputs = RowPlan.of(shards, seed=seed, **more), Inputs(shards, transform, labeler)
    cache = RowCache.of(plan, inputs, keep_bytes) if keep_bytes else None
    return training_dataset(plan, inputs, batch=batch, stack=stack, start_step=start_step, cache=cache, **rest)
