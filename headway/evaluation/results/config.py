"""`evaluation:` of pipeline.yaml: what is measured of a model on the eval rows.

EvaluationConfig(slices=["carrier"], threshold={"recall": 0.9}).columns          # ("carrier",)
"""

import re
from typing import Any

from pydantic import Field, field_validator

from headway.config import Frozen
from headway.evaluation.results.threshold import ThresholdRule
from headway.evaluation.slices import slice_columns
from headway.metrics.base import Better
from headway.tasks.table import ALL_METRICS


class EvaluationConfig(Frozen):
    """The metrics that evaluation computes, and the slices of the eval split that it reports."""

    slices: tuple[str, ...] | None = Field(
        default=None,
        description="columns whose values are measured and compared one by one; crossed: carrier x origin; numbers in "
        "quantile bins: {distance: 4}. Left out: a handful is chosen; []: none",
    )
    slice_min_rows: int = Field(
        default=100,
        ge=1,
        description="smaller slices are not reported (gate.slice_min_rows: not judged)",
    )
    batch_size: int = Field(
        default=4096, ge=1, description="rows that are predicted at once; it bounds the memory and changes no metric"
    )
    ndcg_at: int | None = Field(
        default=None,
        ge=1,
        description="judge the order within groups by NDCG of this many top ranks; default: only with training.ranking, "
        "at its k or 10",
    )
    threshold: ThresholdRule | None = Field(
        default=None,
        description="how a binary model's threshold is chosen: f1, {recall: 0.9}, {precision: 0.8}, "
        "{cost: {false_positive: 1, false_negative: 10}} or a number; precision, recall and costs at it are reported",
    )
    row_values: tuple[str, ...] = Field(
        default=(),
        description="columns whose values the report shows of the rows where the model is most wrong; "
        "default: none, since a report is mailed further than the data",
    )
    metrics: dict[str, Better] = Field(
        default={},
        description="metrics of your own: module:function of a file beside the pipeline, and whether higher or lower is "
        "better; neither: reported and not compared. A list means neither",
    )
    item: str | None = Field(
        default=None,
        description="with ndcg_at: the column that names the ranked item; a candidate then has to beat popularity and the "
        "mean label of an item as well, and item_coverage is reported",
    )

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of one value per row that the evaluation reads."""
        return tuple(
            dict.fromkeys([*slice_columns(self.slices), *self.row_values, *([self.item] if self.item else [])])
        )

    @field_validator("slices", mode="before")
    @classmethod
    def _slices(cls, value: Any) -> Any:
        """`distance: 4` is a mapping in YAML."""
        if not isinstance(value, list | tuple):
            return value
        names = [
            f"{next(iter(v))}: {next(iter(v.values()))}" if isinstance(v, dict) and len(v) == 1 else v for v in value
        ]
        slice_columns([name for name in names if isinstance(name, str)])
        return names

    @field_validator("metrics", mode="before")
    @classmethod
    def _own_metrics(cls, value: Any) -> Any:
        value = dict.fromkeys(value, "neither") if isinstance(value, list) else value
        for name in value if isinstance(value, dict) else ():
            if not re.fullmatch(r"[A-Za-z_]\w*:[A-Za-z_]\w*", str(name)):
                known = "it is reported without being named" if name in ALL_METRICS else "write module:function"
                raise ValueError(f"{name!r} is not a metric of your own: {known}")
        return value
