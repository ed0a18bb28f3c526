"""The DAG's evaluation: one pass of a model over the eval rows, and what its predictions amount to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from flows.dag.references import further_labels, label_facts
from flows.dag.run_spec import EVALUATE, IMPORTANCE, MEASURE
from flows.dag.step import Output
from flows.dag.train_stages import Training, TrainSteps
from headway.evaluation.clusters import MOST_KEYS, ClusterSources, repeating
from headway.evaluation.metrics import OWN
from headway.evaluation.results.request import MeasureRequest
from headway.evaluation.results.worst_slices import searched
from headway.evaluation.slices import choose, slice_columns
from headway.registry.registry import Version
from headway.schema.notes import Note
from headway.statistics.summary import WindowStatistics
from headway.tasks.table import direction, task_of
from tfcore.evaluation.request import EvaluateRequest, ImportanceRequest, SavedModel, TrainedModel

MOST_DISTINCT, MOST_COMPARED = 0.9, 1_000_000
"""The share of distinct eval rows up to which equal ones are drawn together, and the most eval rows, whose columns predictions
keep for it."""


class EvaluateSteps(TrainSteps):
    """The steps that evaluate models, trained and published."""

    measured: Output
    """What the candidate's predictions amount to."""

    @property
    def candidate(self) -> Output:
        """The trained model's predictions of the eval rows."""
        assert self.training_of.scored is not None
        return self.training_of.scored

    def _slices(self) -> tuple[str, ...]:
        """The slices that the pipeline names, or a handful that is chosen; none in a plan that cannot know them yet."""
        named, found = self.pipeline.evaluation.slices, self.statistics.result
        if named is not None or found is None or self.validated.result is None:
            return named or ()
        return choose(
            found["columns"].get("train", []),
            self.validated.result.get("strengths", {}),
            eligible=self._sliceable(),
            rows=found["rows"].get("eval", 0),
            least=self.pipeline.gate.slice_min_rows,
        )

    def _sliceable(self) -> list[str]:
        """Return the columns that slices can be made of without being named."""
        single = [column for column in self.columns.read if not column.shape and not column.temporal]
        return [c.name for c in single if c.name in self.columns.stored and c.meaning != "identifier"]

    def _searched(self) -> tuple[str, ...]:
        """Return where the worst slices are looked for; nowhere in a plan that cannot know.

        Without a validation, in a plan, the order is not known; of few columns the set is, so that their predictions are found.
        """
        found = self.statistics.result
        if found is None:
            return ()
        strengths = (self.validated.result or {}).get("strengths", {})
        return searched(found["columns"].get("train", []), strengths, self._sliceable())

    def _kept(self) -> tuple[str, ...]:
        """Return the columns that predictions keep: those of slices and clusters, the group, the item, stored keys."""
        keys = [c.name for c in self.columns.read if c.role in ("key", "group", "passthrough") and not c.shape]
        stored = [name for name in keys if name in self.columns.stored]
        sliced = (*slice_columns((*self._slices(), *self._searched())), *self.pipeline.gate.columns)
        item = [name for name in (self.pipeline.evaluation.item,) if name]
        return tuple(sorted({*sliced, *self._clusters().stored, *stored, *item}))

    def _clusters(self) -> ClusterSources:
        """What rows are drawn together by: what the split keeps together; else where it may be found out, which is nowhere with
        a group column, or in a plan that cannot know."""
        unit = " and ".join(self.pipeline.split.key) or None
        lost = any(out.result is None for out, _ in self._of("eval"))
        if self.columns.of_role("group") is not None or self.statistics.result is None or lost:
            return ClusterSources(unit=unit)
        stored = [c for c in self.columns.read if c.name in self.columns.stored and not c.shape and c.name not in OWN]
        times = sorted((column for column in stored if column.temporal), key=lambda column: column.role != "time")
        repeated = repeating(self.statistics.result["columns"].get("train", []))
        keys = [c.name for c in stored if c.name in repeated and (c.meaning is not None or c.role == "key")]
        parts = self.parts["eval"]
        equal, distinct = self._equal_rows()
        return ClusterSources(
            unit=unit,
            equal=equal,
            distinct=distinct,
            columns=tuple(sorted(keys)[:MOST_KEYS]),
            time=(times[0].name, times[0].temporal) if times and times[0].temporal else None,
            by_day=bool(times) and times[0].role == "time",
            spans=tuple(
                (span, out.get()["splits"][part]["rows"])
                for (span, part), (out, _) in zip(parts, self._of("eval"), strict=True)
            ),
        )

    def _equal_rows(self) -> tuple[tuple[str, ...], int]:
        """The columns that tell equal rows, and how many rows are distinct in all that a split without a key hashes, where these
        are more; none unless more than a tenth of the eval rows repeat others."""
        found = (self.proven.result or {}).get("splits", {}).get("eval", {})
        rows, distinct = found.get("rows", 0), found.get("distinct", math.inf)
        if distinct > MOST_DISTINCT * rows or rows > MOST_COMPARED or self.columns.by_place:
            return (), 0
        read = [c for c in self.columns.read if not c.shape and c.name in self.columns.stored and c.name not in OWN]
        hashed, single = [column.name for column in self.columns.hashed], {c.name for c in read}
        stored = tuple(name for name in hashed if name in single)
        return stored, distinct if len(stored) < len(hashed) else 0

    def _evaluate(
        self,
        title: str,
        model: TrainedModel | SavedModel,
        identity: Mapping[str, int | str | None],
        split: str = "eval",
    ) -> Output:
        """The one pass of a model over a split; what is said of it is computed from the predictions that this keeps."""
        config, kept = self.pipeline.evaluation, self._kept()
        trained = isinstance(model, TrainedModel)
        # the baselines of the item are computed beside a training, not a version
        item = config.item if trained else None
        group, ranks = self._index() if item is not None else (None, None)
        key = {
            "config": config.model_dump(mode="json", include={"batch_size"}),
            "columns": list(kept),
            **({} if item is None else {"item": item}),
            **({} if ranks is None else {"group": group, "ranks": ranks}),
            **(self._module() if trained else {}),
            "model": identity,
            "inputs": {"transform": self.transform.fingerprint, "examples": self._examples_key(split)},
        }

        def request() -> EvaluateRequest:
            return EvaluateRequest(
                model=model,
                examples=self._examples(split),
                transform=self._parameters(),
                columns=kept,
                batch_size=config.batch_size,
                item=item,
                group=group,
                ranks=ranks,
                train=() if item is None else self._examples("train"),
            )

        return self._call(EVALUATE, title, key, request)

    def _index(self) -> tuple[str | None, int | None]:
        """Return the column of the groups and the number of ranks, where each row's item is ranked among all items."""
        group = self.columns.of_role("group")
        return (group.name, self.pipeline.ndcg_at) if self.pipeline.ranks_index and group is not None else (None, None)

    def _importance(self) -> None:
        """How much each column matters to the trained model, where the config asks for it."""
        rows = self.pipeline.evaluation.importance
        if rows is None:
            return
        inputs = {"transform": self.transform.fingerprint, "train": self.trained.fingerprint}
        grouped = self.columns.of_role("group")
        group = grouped.name if grouped is not None and grouped.name in self.columns.stored else None
        key = {
            "config": {"rows": rows},
            "group": group,
            "seed": self.training_of.seed,
            **self._module(),
            "inputs": inputs | {"examples": self._examples_key("eval")},
        }

        def request() -> ImportanceRequest:
            return ImportanceRequest(
                model=self._model_of(self.training_of),
                transform=self._parameters(),
                examples=self._examples("eval"),
                rows=rows,
                group=group,
                seed=self.training_of.seed,
            )

        self._call(IMPORTANCE, "importance", key, request)

    def _measure(
        self,
        title: str,
        scored: Output,
        beside: Mapping[str, Output],
        *,
        split: str = "eval",
        given: float | None = None,
    ) -> Output:
        """Measure predictions.

        Args:
            beside: the predictions of other models on the same rows, by name.
            split: whose rows these are.
            given: the threshold, where other rows chose it.
        """
        config, group = self.pipeline.evaluation, self.columns.of_role("group")
        key = {
            "config": config.model_dump(mode="json", include={"slice_min_rows", "threshold"}),
            "slices": list(self._slices()),
            "searched": list(self._searched()),
            "clusters": self._clusters().model_dump(mode="json"),
            "group": group.name if group else None,
            "confidence": self.pipeline.gate.confidence,
            "given_threshold": given,
            "seed": self.run_spec.chosen_seed,
            **self._ranked(),
            **self._own_metrics(),
            "inputs": {
                "predictions": scored.fingerprint,
                "statistics": self.statistics.fingerprint,
                "beside": {name: output.fingerprint for name, output in beside.items()},
            },
        }

        def request() -> MeasureRequest:
            label, statistics = self.fitted.label, WindowStatistics.model_validate(self.statistics.get())
            others = {name: scored.path / file for name, file in scored.get().get("baselines", {}).items()}
            for name, output in beside.items():
                if not output.get().get("incompatible"):
                    others[name] = output.path / output.get()["predictions"]
            return MeasureRequest(
                task=label.task,
                predictions=scored.path / scored.get()["predictions"],
                spans=tuple(span for span, _ in self.parts[split]),
                baselines=others,
                label=label_facts(label, statistics),
                labels=further_labels(label, statistics),
                classes=label.classes or (),
                slices=self._slices(),
                searched=self._searched(),
                clusters=self._clusters(),
                slice_min_rows=config.slice_min_rows,
                threshold=config.threshold,
                given_threshold=given,
                group=group.name if group else None,
                confidence=self.pipeline.gate.confidence,
                metrics=self.run_spec.loaded.own_metrics,
                seed=self.run_spec.chosen_seed,
                ndcg_at=self.pipeline.ndcg_at,
                item=config.item,
                retrieval=self.pipeline.ranks_index,
            )

        return self._call(MEASURE, title, key, request)

    def _ranked(self) -> dict[str, int | str]:
        """Return the part of a key that a ranking model adds."""
        at, item = self.pipeline.ndcg_at, self.pipeline.evaluation.item
        if at is None:
            return {}
        index = {"retrieval": True} if self.pipeline.ranks_index else {}
        return {"ndcg_at": at} | ({} if item is None else {"item": item}) | index

    def _evaluate_seeds(self) -> None:
        """Evaluate every training, and choose the one to export: the median by the primary metric, of two the lower.

        The best would owe its place to the eval rows, and the first may be an outlier that its mean does not show.
        """
        trainings = [self.training_of, *self.others]
        for training in trainings:
            training.scored = self._evaluate_trained("evaluate" + self._suffix(training.seed), training)
        if self.others and all(t.scored is not None and t.scored.result is not None for t in trainings):
            trainings = self._by_quality(trainings)
            self.training_of = trainings.pop((len(trainings) - 1) // 2)
            self.others = sorted(trainings, key=lambda training: training.seed)

    def _by_quality(self, trainings: Sequence[Training]) -> list[Training]:
        """The worst first; those without a value before all."""
        task = self.fitted.label.task
        metric = self.pipeline.gate.primary_metric(task, ranked=self.pipeline.ndcg_at is not None)
        better = {each.name: each.better for each in task_of(task).metrics}
        better |= {each.name: each.better for each in self.run_spec.loaded.own_metrics}
        sign = direction(metric, better.get(metric))

        def quality(training: Training) -> tuple[float, int]:
            assert training.scored is not None
            metrics = training.scored.get()["metrics"]
            if metric not in metrics:  # one of evaluation.metrics
                measured = self._measure("measure" + self._suffix(training.seed), training.scored, {})
                metrics = {} if measured.result is None else measured.result["metrics"]  # None in a plan
            value = metrics.get(metric)
            return (-math.inf if value is None else sign * value), training.seed

        return sorted(trainings, key=quality)

    def _evaluate_trained(self, title: str, training: Training, split: str = "eval") -> Output:
        return self._evaluate(title, self._model_of(training), {"train": training.output.fingerprint}, split)

    def _model_of(self, training: Training) -> TrainedModel:
        """Return the part of the request of a stage that loads a trained model."""
        return TrainedModel(
            path=training.output.path,
            config=self.model,
            seed=training.seed,
            module=self.run_spec.loaded.module_file,
            preprocess=self.run_spec.loaded.preprocess_file,
        )

    def _note_other_rows(self, champion: Version) -> None:
        """Add a note if eval rows are drawn in another way than for the champion."""
        before = champion.facts.get("split")
        if before and before != self._split_digest():
            text = f"eval rows are not drawn as they were for version {champion.number} (the split, or the columns that it "
            text += "hashes, changed since): metrics of that run and of this one are of different rows"
            self.run_result.notes.append(Note(text=text))
