"""The data of one execution once its transform is fitted: what the stages of models are asked with.

    data = Data(window, ingested, statistics, proof, validated, transform)
    data.examples("eval"), data.fitted, data.slices, data.kept

In a plan an answer may not be known yet: what needs it raises `headway.stages.refs.Unknown`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from flows.config.pipeline import Pipeline
from flows.dag.references import label_facts
from flows.dag.resolved_window import Window
from flows.dag.step import Output
from headway.evaluation.clusters import MOST_KEYS, ClusterSources, repeating
from headway.evaluation.metrics import OWN
from headway.evaluation.results.worst_slices import searched
from headway.evaluation.slices import choose, slice_columns
from headway.schema.calendar_days import Temporal
from headway.stages.ingested import Ingested
from headway.stages.refs import Examples, Ref
from headway.statistics.summary import WindowStatistics
from headway.tasks.base import LabelFacts
from headway.validation.anomaly import SplitProof, Validated
from tfcore.heads.label_parameters import LabelParameters
from tfcore.models.config import ModelConfig
from tfcore.train.settings.auto import Facts, resolve
from tfcore.train.settings.config import TrainingConfig
from tfcore.transform.parameters import Transformed, TransformParameters

MOST_DISTINCT, MOST_COMPARED = 0.9, 1_000_000
"""The share of distinct eval rows up to which equal ones are drawn together, and the most eval rows, whose columns predictions
keep for it."""


@dataclass(frozen=True)
class Data:
    window: Window
    ingested: Mapping[str, Output[Ingested]]
    statistics: Output[WindowStatistics]
    proof: Output[SplitProof]
    validated: Output[Validated]
    transform: Output[Transformed]

    @property
    def pipeline(self) -> Pipeline:
        return self.window.pipeline

    def examples(self, split: str) -> tuple[Examples, ...]:
        return self.window.examples(split, self.ingested)

    @cached_property
    def parameters(self) -> TransformParameters:
        """The fitted transform; a task of the user's own is found by its file."""
        fitted = self.transform.value.parameters
        changes = {"file": self.window.run_spec.loaded.user_files.get("task")}
        return fitted.model_copy(update={"label": fitted.label.model_copy(update=changes)})

    @property
    def fitted(self) -> Ref[TransformParameters]:
        """The same as the input of a stage."""
        return Ref[TransformParameters](
            stage=self.transform.stage, fingerprint=self.transform.fingerprint, answer=self.parameters
        )

    @property
    def label(self) -> LabelParameters:
        return self.transform.value.parameters.label

    @property
    def label_facts(self) -> LabelFacts:
        return label_facts(self.label, self.statistics.value)

    @cached_property
    def size(self) -> Facts:
        """The facts about the data by which settings are chosen."""
        fitted = self.transform.value.parameters
        return Facts(
            rows=self.statistics.value.rows.get("train", 0),
            width=len(fitted.numeric) + len(fitted.categorical),
            task=fitted.label.task,
            images=any(column.pixels is not None for column in fitted.fitted),
        )

    @cached_property
    def chosen(self) -> tuple[TrainingConfig, ModelConfig]:
        """The settings of the training and the model, those left out chosen by size."""
        return resolve(self.pipeline.training, self.pipeline.model, self.size)

    @property
    def training(self) -> TrainingConfig:
        return self.chosen[0]

    @property
    def model(self) -> ModelConfig:
        return self.chosen[1]

    @cached_property
    def slices(self) -> tuple[str, ...]:
        """The slices that the pipeline names, or a handful that is chosen; none in a plan that cannot know them yet."""
        named, found = self.pipeline.evaluation.slices, self.statistics.get()
        if named is not None or not self.validated.known:
            return named or ()
        return choose(
            found["columns"].get("train", []),
            self._strengths,
            eligible=self._sliceable(),
            rows=found["rows"].get("eval", 0),
            least=self.pipeline.gate.slice_min_rows,
        )

    def _sliceable(self) -> list[str]:
        """The columns that slices can be made of without being named."""
        columns = self.window.columns
        single = [column for column in columns.read if not column.shape and not column.temporal]
        return [c.name for c in single if c.name in columns.stored and c.meaning != "identifier"]

    @cached_property
    def searched(self) -> tuple[str, ...]:
        """Where the worst slices are looked for."""
        return searched(self.statistics.get()["columns"].get("train", []), self._strengths, self._sliceable())

    @property
    def _strengths(self) -> dict[str, float]:
        """How much each column tells of the label. In a plan without a validation the order is not known; of few columns the
        set is, so that their predictions are found."""
        return self.validated.value.strengths if self.validated.known else {}

    @property
    def shown(self) -> dict[str, Temporal | None]:
        """The columns whose values are told of single rows, the group's first; and the kind of those that are dates or times."""
        known = {column.name: column for column in self.window.columns.read}
        groups = [name for name, column in known.items() if column.role == "group"]
        return {name: known[name].temporal for name in (*groups, *self.pipeline.evaluation.row_values)}

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns that predictions keep: those of slices and clusters, the item, keys, and what is told of rows."""
        columns, sliced = self.window.columns, slice_columns((*self.slices, *self.searched))
        keys = [c.name for c in columns.read if c.role in ("key", "passthrough") and not c.shape and c.name not in OWN]
        stored = [name for name in keys if name in columns.stored]
        return tuple(sorted({*sliced, *self.pipeline.judged_columns, *self.clusters.stored, *self.shown, *stored}))

    @cached_property
    def clusters(self) -> ClusterSources:
        """What rows are drawn together by: what the split keeps together; else where it may be found out, which is nowhere with
        a group column."""
        columns, unit = self.window.columns, " and ".join(self.pipeline.split.key) or None
        if columns.of_role("group") is not None:
            return ClusterSources(unit=unit)
        stored = [c for c in columns.read if c.name in columns.stored and not c.shape and c.name not in OWN]
        times = sorted((column for column in stored if column.temporal), key=lambda column: column.role != "time")
        repeated = repeating(self.statistics.get()["columns"].get("train", []))
        keys = [c.name for c in stored if c.name in repeated and (c.meaning is not None or c.role == "key")]
        equal, distinct = self._equal_rows()
        return ClusterSources(
            unit=unit,
            equal=equal,
            distinct=distinct,
            columns=tuple(sorted(keys)[:MOST_KEYS]),
            time=(times[0].name, times[0].temporal) if times and times[0].temporal else None,
            by_day=bool(times) and times[0].role == "time",
            spans=tuple(
                (span, self.ingested[span].value.splits[part].rows) for span, part in self.window.parts["eval"]
            ),
        )

    def _equal_rows(self) -> tuple[tuple[str, ...], int]:
        """The columns that tell equal rows, and how many rows are distinct in all that a split without a key hashes, where these
        are more; none unless more than a tenth of the eval rows repeat others."""
        columns, found = self.window.columns, self.proof.get().get("splits", {}).get("eval", {})
        rows, distinct = found.get("rows", 0), found.get("distinct", math.inf)
        if distinct > MOST_DISTINCT * rows or rows > MOST_COMPARED or columns.by_place:
            return (), 0
        read = [c for c in columns.read if not c.shape and c.name in columns.stored and c.name not in OWN]
        hashed, single = [column.name for column in columns.hashed], {c.name for c in read}
        stored = tuple(name for name in hashed if name in single)
        return stored, distinct if len(stored) < len(hashed) else 0
