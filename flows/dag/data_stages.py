"""The DAG's data stages, from raw files to a fitted transform: the spans and columns, and a step for each stage.

Nothing in here runs a stage: a step is handed to the caller, with a key that says what it depends on and a request that
is made only if it runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from beam_jobs.ingest.range_worker import NOTES
from beam_jobs.ingest.request import IngestRequest
from beam_jobs.leakage_check import SpanOutput, SplitsRequest
from flows.config.columns import Columns, new_columns, resolve
from flows.dag.column_table import column_table
from flows.dag.references import check_metrics, possible_tasks
from flows.dag.run_spec import ANALYSE, INGEST, SPLITS, STATISTICS, TRANSFORM, VALIDATE, Executor, RunResult, RunSpec
from flows.dag.step import Output, Stage, Step
from flows.upgrades import upgraded_result
from headway.config import Frozen
from headway.errors import ConfigError, DataError
from headway.messages import counted
from headway.schema.columns import FURTHER, named_for
from headway.schema.notes import Note
from headway.statistics.split_statistics import SplitStatistics
from headway.statistics.stage import StatisticsRequest
from headway.tabular.splits import window_splits
from headway.tasks.user_task import load_task
from headway.user_code import files as user_files
from headway.validation.anomaly import Validated
from headway.validation.serving import checksum
from headway.validation.stage import ChampionFacts, SpanFacts, ValidateRequest
from headway.validation.torn_units import SampledRows, sample_of
from tfcore.data.examples import Examples
from tfcore.heads.weighted_labels import LabelShards
from tfcore.preprocess.request import AnalyseRequest
from tfcore.runtime.tf_import import startup
from tfcore.transform.config import DerivedParameters
from tfcore.transform.parameters import TransformParameters, TransformRequest


class DataSteps:
    """The window of one execution, and the steps up to the transform; later steps find the outputs of earlier ones here."""

    ingested: dict[str, Output]
    """By span, in the window's order."""
    statistics: Output
    validated: Output
    transform: Output

    def __init__(self, run_spec: RunSpec, executor: Executor, freeze: bool):
        self.run_spec, self.executor, self.pipeline = run_spec, executor, run_spec.loaded.pipeline
        self.window, prepared = run_spec.spans, run_spec.prepared
        # a span alone can be ingested, and be too little to train on
        self.parts = window_splits(self.pipeline.split, self.window) if run_spec.last != "ingest" else {}
        frozen = None if prepared is None else prepared.schema_text
        self.columns: Columns = resolve(run_spec.loaded, run_spec.files(self.window[0]), schema_text=frozen)
        further = [FURTHER + name for name in self.pipeline.labels]
        self.pipeline.validation.check([*self.columns.schema.names(), *further], where=str(run_spec.loaded.file))
        serving = run_spec.loaded.serving_file if prepared is None else None
        if serving is not None and not serving.is_file() and run_spec.last not in ("ingest", "statistics"):
            fix = "name a file of logged requests, JSON lines or tf.Examples, or leave the key out"
            raise ConfigError(f"{serving} is not a file", where=f"{run_spec.loaded.file}: validation.serving", fix=fix)
        if (task_file := run_spec.loaded.task_file) is not None:
            with startup():
                load_task(self.pipeline.task, task_file)
        read = self.columns.read
        labels = {name: possible_tasks(of.task, of.label, read) for name, of in self.pipeline.labels.items()}
        check_metrics(run_spec.loaded, possible_tasks(self.pipeline.task, self.pipeline.label, read), labels)
        self.freeze = freeze
        self.inferring = self.columns.inferred
        self.run_result = RunResult(spans=self.window, notes=list(self.columns.notes))
        self.requests: dict[str, IngestRequest] = {}
        self.reference: dict[str, str | None] | None = None
        """What the data are held against for drift: the name of a model, and the statistics of its train split."""
        self.training, self.model = self.pipeline.training, self.pipeline.model

    @staticmethod
    def _step(stage: Stage, title: str, key: Mapping[str, object], request: Callable[[], Frozen]) -> Step:
        return Step(stage, title, {"stage": stage.name, "version": stage.version, **key}, request)

    def _call(self, stage: Stage, title: str, key: Mapping[str, object], request: Callable[[], Frozen]) -> Output:
        return self._run(self._step(stage, title, key, request))

    def _run(self, step: Step) -> Output:
        output = self.executor.call_many([step])[0]
        self.run_result.outputs.append(output)
        return output

    def _ingest(self) -> None:
        steps = []
        for span in self.window:
            request = self.requests[span] = IngestRequest(
                span=span,
                files=self.run_spec.files(span),
                source=self.pipeline.source,
                read=self.columns.read,
                stored=self.columns.stored,
                label=self.pipeline.label,
                labels={name: config.label for name, config in self.pipeline.labels.items()},
                split=self.pipeline.split,
                hashed=self.columns.hashed,
                by_place=self.columns.by_place,
                records=self.pipeline.records,
            )
            key = request.key()
            steps.append(Step(INGEST, f"ingest {span}", key, lambda r=request: r, {"runner": self.pipeline.runner}))  # type: ignore[misc]
        outputs = self.executor.call_many(steps)
        self.run_result.outputs += outputs
        self.ingested = dict(zip(self.window, outputs, strict=True))

    def _of(self, split: str) -> list[tuple[Output, str]]:
        """Return (ingest output of the span, split of the span) for each part of a window's split."""
        return [(self.ingested[span], part) for span, part in self.parts[split]]

    def _examples(self, split: str) -> tuple[Examples, ...]:
        return tuple(Examples(path=out.path, split=part, result=out.get()) for out, part in self._of(split))

    def _examples_key(self, split: str) -> list[list[str]]:
        return [[out.fingerprint, part] for out, part in self._of(split)]

    def _spans_key(self) -> list[list[str]]:
        return [[span, out.fingerprint] for span, out in self.ingested.items()]

    def _statistics(self) -> None:
        used = [name for name, parts in self.parts.items() if parts]

        def request() -> StatisticsRequest:
            splits = {
                name: tuple(out.path / out.get()["splits"][part]["statistics"] for out, part in self._of(name))
                for name in used
            }
            columns = self.ingested[self.window[0]].get()["columns"]
            return StatisticsRequest.model_validate({"columns": columns, "splits": splits})

        key = {"inputs": {name: self._examples_key(name) for name in used}}
        self.statistics = self._call(STATISTICS, "statistics", key, request)

    def _freeze_schema(self, validated: Output) -> None:
        """Freeze the first window's schema as the reference for later windows, unless validation found errors."""
        first = self.columns.inferred or self.columns.completes
        found = validated.read(Validated)
        if not first or not self.freeze or found is None or found.stopping:
            return
        self.columns = self.columns.frozen(self.run_spec.loaded)
        self.run_result.notes = list(self.columns.notes)

    def _splits(self) -> Output:
        """Run the stage that proves that the window's splits keep keys, rows and times apart."""
        used = {name: tuple(parts) for name, parts in self.parts.items() if parts}
        key = {
            "config": self.pipeline.split.model_dump(mode="json"),
            "inputs": {
                "parts": {name: [list(part) for part in parts] for name, parts in used.items()},
                "spans": self._spans_key(),
            },
        }

        def request() -> SplitsRequest:
            outputs = self.ingested.items()
            spans = tuple(SpanOutput(request=self.requests[span], notes=out.path / NOTES) for span, out in outputs)
            return SplitsRequest(split=self.pipeline.split, spans=spans, parts=used)

        return self._call(SPLITS, "splits", key, request)

    def _validate(self) -> Output:
        if self.columns.inferred and self.freeze and self.statistics.result is not None:
            # the first time the schema is completed with what the window's statistics show
            folder = self.run_spec.store.local(self.statistics.path)
            completed = [SplitStatistics.load(folder / name) for name in self.statistics.result["rows"]]
            self.columns = self.columns.completed(completed)
        self.proven = proven = self._splits()
        schema = self.columns.schema
        splits = tuple(name for name, parts in self.parts.items() if parts)
        features = tuple(column for column in self.columns.read if column.is_feature)
        serving = self.run_spec.loaded.serving_file
        if (prepared := self.run_spec.prepared) is not None:
            unread, served = prepared.unread, prepared.serving
        else:
            newest = {self.window[-1]: self.run_spec.files(self.window[-1])}
            unread = tuple(column.name for column in new_columns(self.run_spec.loaded, schema, newest))
            served = checksum(serving) if serving else None
        self.reference = self._reference()
        key = {
            "config": self.pipeline.validation.model_dump(mode="json", exclude={"serving"}),
            "serving": served,
            "schema": schema.digest(),
            "task": self.pipeline.task,
            "features": [column.model_dump(mode="json") for column in features],
            "champion": self.reference,
            "split": self.pipeline.split.at_ingest(),
            **({"unread": unread} if unread else {}),
            "inputs": {
                "statistics": self.statistics.fingerprint,
                "splits": proven.fingerprint,
                "spans": self._spans_key(),
            },
        }

        def request() -> ValidateRequest:
            return ValidateRequest(
                schema=schema,
                statistics=self.statistics.path,
                splits=splits,
                spans=tuple(SpanFacts(span=span, **out.get()["counts"]) for span, out in self.ingested.items()),
                stored=self.columns.stored,
                weight=named_for(self.columns.read, "weight"),
                task=self.pipeline.task,
                config=self.pipeline.validation,
                features=tuple(column.name for column in features),
                columns=features,
                serving=serving,
                champion=self._champion_facts(),
                split=self.pipeline.split,
                proof=proven.path,
                unread=unread,
                filters=self.pipeline.source.where is not None,
                rows=self._sampled_rows(),
            )

        self.validated = self._call(VALIDATE, "validate", key, request)
        return self.validated

    def _sampled_rows(self) -> SampledRows | None:
        """Rows by which units are found that have rows on both sides; by time they may."""
        if self.pipeline.split.mode == "time" or self.pipeline.split.eval_from is not None:
            return None
        return sample_of(
            {split: [(out.path, out.get(), part) for out, part in self._of(split)] for split in self.parts}
        )

    def _reference(self) -> dict[str, str | None] | None:
        """Return the reference for drift: the statistics of the champion's train split.

        The window that made the champion is held against what it was held against then, so that nothing runs anew.
        """
        champion = self.run_spec.registry.champion()
        if champion is None:
            return None
        trained_on = champion.facts.get("statistics")
        if trained_on == self.statistics.fingerprint:
            return champion.facts.get("reference")
        spans = champion.facts.get("train_parts") or [["?"]]
        first, last = spans[0][0], spans[-1][0]
        name = f"version {champion.number} ({first if first == last else f'{first} to {last}'})"
        return {"name": name, "statistics": trained_on}

    def _champion_facts(self) -> ChampionFacts | None:
        if self.reference is None:
            return None
        trained_on = self.reference["statistics"]
        return ChampionFacts(
            name=str(self.reference["name"]),
            statistics=self.run_spec.store.output(STATISTICS.name, trained_on) if trained_on else None,
        )

    def _refuse_errors(self, validated: Output) -> None:
        """Raise a DataError if validation found errors; a plan that cannot know yet assumes that it finds none."""
        if (found := validated.read(Validated)) is None:
            return
        self.run_result.anomalies = list(found.anomalies)
        if wrong := found.stopping:
            problem = f"validation found {counted(len(wrong), 'error')}"
            if len(wrong) == 1:
                raise DataError(f"{problem}: {wrong[0].message}", where=validated.title, fix=wrong[0].fix or None)
            lines = "\n".join(f"  - {a.message}" + (f"\n    fix: {a.fix}" if a.fix else "") for a in wrong)
            raise DataError(f"{problem}:\n{lines}", where=validated.title)

    @functools.cached_property
    def fitted(self) -> TransformParameters:
        """The fitted transform; only for code that runs after its step did."""
        return TransformParameters.model_validate(self.transform.get()["parameters"])

    def _analyse(self) -> Output | None:
        """Run the user's preprocess function on the train split; None without a preprocess function."""
        config, file = self.pipeline.preprocess, self.run_spec.loaded.preprocess_file
        if config is None or file is None:
            return None
        key = {
            "config": {"function": config.function},
            "module": user_files.digest(file),
            "inputs": {"examples": self._examples_key("train")},
        }

        def request() -> AnalyseRequest:
            return AnalyseRequest(examples=self._examples("train"), file=file, function=config.function)

        return self._call(ANALYSE, "analyse", key, request)

    def _transform(self) -> None:
        analysed = self._analyse()
        transforms = self.columns.transforms(self.pipeline.column_configs())
        without = self.run_spec.without
        columns = tuple(c for c in self.columns.read if c.name in self.columns.stored and c.name not in without)
        transforms = {name: transform for name, transform in transforms.items() if name not in without}
        task_file = self.run_spec.loaded.task_file
        inputs: dict[str, object] = {"statistics": self.statistics.fingerprint}
        key: dict[str, object] = {
            "config": {name: t.model_dump(mode="json") for name, t in transforms.items()},
            "columns": [column.model_dump(mode="json") for column in columns],
            "task": self.pipeline.task,
            **({"task_file": user_files.digest(task_file)} if task_file else {}),
            "inputs": inputs,
        }
        weighted = named_for(columns, "weight") is not None
        if weighted:
            inputs["weighted"] = self._examples_key("train")
        labels = {name: config.task for name, config in self.pipeline.labels.items()}
        if labels:
            key["labels"] = [*labels.items()]
        if bins := self.pipeline.model.quantile_bins:
            key["bins"] = bins
        if counted := self.pipeline.training.counted(self.pipeline.model.item):
            key["counted"] = counted
        derived = self.pipeline.preprocess
        if derived is not None and analysed is not None:
            inputs["analysed"] = analysed.fingerprint
            key["derived"] = {name: t.model_dump(mode="json") for name, t in derived.columns.items()}

        def request() -> TransformRequest:
            asked = TransformRequest(
                columns=columns,
                transforms=transforms,
                statistics=self.statistics.path / "train",
                task=self.pipeline.task,
                bins=bins,
                counted=counted,
                labels=labels,
                weighted=LabelShards.of((out.path, out.get(), part) for out, part in self._of("train"))
                if weighted
                else None,
            )
            if derived is None or analysed is None:
                return asked
            parameters = DerivedParameters.model_validate(
                {"function": derived.function} | {name: analysed.get()[name] for name in ("reads", "columns")}
            )
            own = {"derived_statistics": analysed.path / "train", "derived_transforms": derived.columns}
            return asked.model_copy(update={"derived": parameters} | own)

        self.transform = self._call(TRANSFORM, "transform", key, request)
        if self.inferring and (result := self.transform.result) is not None:
            notes = [*self.columns.notes, *map(Note.model_validate, upgraded_result("transform", result)["notes"])]
            self.run_result.columns = column_table(self.columns, self.pipeline, notes, result["parameters"])
