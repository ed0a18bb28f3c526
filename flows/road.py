"""The road from raw files to a promoted model, written once.

    end = road(trip, engine)                  # runs it
    end = road(trip, planner)                 # only looks what would run

A `Caller` blocks: locally it runs a step, under Prefect it submits the same step as a task and waits, in a plan it only
looks for the output. Nothing in here knows which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from beam_jobs.request import IngestRequest
from flows.columns import Columns, resolve
from flows.pipeline import Located
from flows.proving import splits
from flows.steps import Output, Stage, Step
from headway.errors import DataError
from headway.fingerprint import fingerprint
from headway.gate import Candidate, Champion, GateRequest
from headway.registry import Registry, Version
from headway.sources.base import InputFile, files, select_window, spans
from headway.splits import window_splits
from headway.statistics.split import SplitStatistics
from headway.statistics.window import StatisticsRequest
from headway.store import Store
from headway.validate import ChampionFacts, SpanFacts, ValidateRequest, errors
from headway.validation.serving import checksum
from tfcore.transform.parameters import TransformParameters, TransformRequest
from tfcore.transform.preprocess_config import DerivedParameters

INGEST = Stage("ingest", "beam_jobs.ingest:ingest", many="beam_jobs.ingest:ingest_many")
STATISTICS = Stage("statistics", "headway.statistics.window:merge")
SPLITS = Stage("splits", "beam_jobs.proof:prove")
VALIDATE = Stage("validate", "headway.validate:validate")
ANALYSE = Stage("analyse", "tfcore.analyse:analyse", tensorflow=True, streams=True)
TRANSFORM = Stage("transform", "tfcore.transform.parameters:fit")
TRAIN = Stage("train", "tfcore.train.stage:train", tensorflow=True, streams=True)
EVALUATE = Stage("evaluate", "tfcore.evaluate:predict", tensorflow=True, streams=True)
GATE = Stage("gate", "headway.gate:gate")
EXPORT = Stage("export", "tfcore.export:export", tensorflow=True)
REPLAY = Stage("replay", "flows.replay:replay")
STAGES = (INGEST, STATISTICS, SPLITS, VALIDATE, ANALYSE, TRANSFORM, TRAIN, EVALUATE, GATE, EXPORT, REPLAY)
ALREADY = "already champion"


class Caller(Protocol):
    def call(self, step: Step) -> Output: ...

    def call_many(self, steps: Sequence[Step]) -> list[Output]: ...


@dataclass(frozen=True)
class Trip:
    """One execution: a pipeline over a window."""

    located: Located
    store: Store
    window: int | str | None = None
    until: str = "latest"
    seed: int | None = None
    force: bool = False
    last: str | None = None
    """The stage to stop after; None: all the way."""
    memo: dict[str, tuple[InputFile, ...]] = field(default_factory=dict)
    """Checksums of the spans' files, read once a process."""

    @property
    def registry(self) -> Registry:
        return Registry(self.store, self.located.pipeline.name)

    @property
    def chosen_seed(self) -> int:
        return self.located.pipeline.seed if self.seed is None else self.seed

    def files(self, span: str) -> tuple[InputFile, ...]:
        if span not in self.memo:
            self.memo[span] = files(self.located.pipeline.source, span)
        return self.memo[span]


@dataclass
class End:
    """How far the road went."""

    spans: list[str]
    notes: list[str] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    anomalies: list[dict[str, Any]] = field(default_factory=list)
    verdict: dict[str, Any] | None = None
    evaluation: dict[str, Any] | None = None
    export: Output | None = None
    replay: dict[str, Any] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """What a version published from this run says of itself."""
    later: list[str] = field(default_factory=list)
    """In a plan: stages that cannot be judged before others have run."""


def road(trip: Trip, caller: Caller, *, freeze: bool = True) -> End:
    """Walk the road as far as `trip.last` says, or to the end: the verdict, and the replayed export of a promotion.

    Promotion itself is the caller's, since it changes what the next run is compared with.

    Raises:
        ConfigError, DataError: with the place and the fix; what was done before is kept.
    """
    return _Walk(trip, caller, freeze).walk()


class _Walk:
    def __init__(self, trip: Trip, caller: Caller, freeze: bool):
        self.trip, self.caller, self.pipeline = trip, caller, trip.located.pipeline
        self.window = select_window(spans(self.pipeline.source), trip.window, trip.until, self.pipeline.source.gaps)
        self.parts = window_splits(self.pipeline.split, self.window)
        self.columns: Columns = resolve(trip.located, trip.files(self.window[0]))
        self.pipeline.validation.check(self.columns.schema.names(), where=str(trip.located.file))
        self.freeze = freeze
        self.end = End(spans=self.window, notes=list(self.columns.notes))
        self.requests: dict[str, IngestRequest] = {}
        self.statistics = ""
        self.reference: dict[str, Any] | None = None

    def walk(self) -> End:
        ingested = self._ingest()
        if self._stops("ingest"):
            return self.end
        statistics = self._statistics(ingested)
        self.statistics = statistics.fingerprint
        if self._stops("statistics"):
            return self.end
        self._freeze_schema(statistics)
        validated = self._validate(ingested, statistics, self._splits(ingested))
        if self._stops("validate") or not self._passed(validated):
            return self.end
        transform = self._transform(statistics, self._analyse(ingested))
        if self._stops("transform"):
            return self.end
        train = self._train(ingested, transform)
        if self._stops("train"):
            return self.end
        champion = self.trip.registry.champion()
        if champion is not None and champion.facts.get("train") == train.fingerprint and not self.trip.force:
            self._already(champion)
            return self.end
        return self._judge(ingested, transform, train, champion)

    def _stops(self, stage: str) -> bool:
        return self.trip.last == stage

    def _call(self, stage: Stage, title: str, key: dict[str, Any], request: Any, **runtime: Any) -> Output:
        key = {"stage": stage.name, "version": stage.version, **key}
        output = self.caller.call(Step(stage, title, key, request, runtime))
        self.end.outputs.append(output)
        return output

    # --- data

    def _ingest(self) -> dict[str, Output]:
        steps = []
        for span in self.window:
            request = self.requests[span] = IngestRequest(
                span=span,
                files=self.trip.files(span),
                source=self.pipeline.source,
                read=self.columns.read,
                stored=self.columns.stored,
                label=self.pipeline.label,
                split=self.pipeline.split,
                records=self.pipeline.records,
            )
            key = request.key()
            steps.append(Step(INGEST, f"ingest {span}", key, lambda r=request: r, {"runner": self.pipeline.runner}))  # type: ignore[misc]
        outputs = self.caller.call_many(steps)
        self.end.outputs += outputs
        return dict(zip(self.window, outputs, strict=True))

    def _of(self, ingested: Mapping[str, Output], split: str) -> list[tuple[Output, str]]:
        """(the span's ingest, its split) of each part of a window's split."""
        return [(ingested[span], part) for span, part in self.parts[split]]

    def _statistics(self, ingested: Mapping[str, Output]) -> Output:
        used = {name: self._of(ingested, name) for name, parts in self.parts.items() if parts}
        key = {"inputs": {name: [[out.fingerprint, part] for out, part in parts] for name, parts in used.items()}}

        def request() -> StatisticsRequest:
            first = next(iter(ingested.values())).get()
            splits = {
                name: tuple(out.path / out.get()["splits"][part]["statistics"] for out, part in parts)
                for name, parts in used.items()
            }
            return StatisticsRequest.model_validate({"columns": first["columns"], "splits": splits})

        return self._call(STATISTICS, "statistics", key, request)

    def _freeze_schema(self, statistics: Output) -> None:
        """The first time: what the window showed becomes what later windows are held against."""
        if not self.columns.inferred or not self.freeze or statistics.result is None:
            return
        folder = self.trip.store.local(statistics.path)
        splits = [SplitStatistics.load(folder / name) for name in statistics.result["rows"]]
        self.columns = self.columns.frozen(self.trip.located, splits)
        self.end.notes = list(self.columns.notes)

    def _splits(self, ingested: Mapping[str, Output]) -> Output:
        """The proof that the window's splits keep keys, rows and times apart."""
        key, request = splits(self.pipeline.split, self.parts, self.requests, ingested)
        return self._call(SPLITS, "splits", key, request)

    def _validate(self, ingested: Mapping[str, Output], statistics: Output, proven: Output) -> Output:
        schema = self.columns.schema
        splits = tuple(name for name, parts in self.parts.items() if parts)
        features = tuple(column for column in self.columns.read if column.role == "feature")
        serving = self.trip.located.serving_file
        self.reference = self._reference(statistics)
        key = {
            "config": self.pipeline.validation.model_dump(mode="json", exclude={"serving"}),
            "serving": checksum(serving) if serving else None,
            "schema": schema.digest(),
            "task": self.pipeline.task,
            "features": [column.model_dump(mode="json") for column in features],
            "champion": self.reference,
            "split": self.pipeline.split.at_ingest(),
            "inputs": {
                "statistics": statistics.fingerprint,
                "splits": proven.fingerprint,
                "spans": [[span, out.fingerprint] for span, out in ingested.items()],
            },
        }

        def request() -> ValidateRequest:
            return ValidateRequest(
                schema=schema,
                statistics=statistics.path,
                splits=splits,
                spans=tuple(SpanFacts(span=span, **out.get()["counts"]) for span, out in ingested.items()),
                stored=self.columns.stored,
                task=self.pipeline.task,
                config=self.pipeline.validation,
                features=tuple(column.name for column in features),
                columns=features,
                serving=serving,
                champion=self._champion_facts(),
                split=self.pipeline.split,
                proof=proven.path,
            )

        return self._call(VALIDATE, "validate", key, request)

    def _reference(self, statistics: Output) -> dict[str, Any] | None:
        """What drift is measured from: the statistics that the champion was trained on.

        The window that made the champion is held against what it was held against then, so that nothing runs anew.
        """
        champion = self.trip.registry.champion()
        if champion is None:
            return None
        made = champion.facts.get("statistics")
        if made == statistics.fingerprint:
            return champion.facts.get("reference")
        spans = champion.facts.get("train_parts") or [["?"]]
        first, last = spans[0][0], spans[-1][0]
        name = f"version {champion.number} ({first if first == last else f'{first} to {last}'})"
        return {"name": name, "statistics": made}

    def _champion_facts(self) -> ChampionFacts | None:
        if self.reference is None:
            return None
        made = self.reference["statistics"]
        return ChampionFacts(
            name=self.reference["name"],
            statistics=self.trip.store.output(STATISTICS.name, made) if made else None,
        )

    def _passed(self, validated: Output) -> bool:
        """Raise on errors; False in a plan that cannot know yet."""
        if validated.result is None:
            return True  # a plan assumes that data passes
        self.end.anomalies = validated.result["anomalies"]
        wrong = errors(validated.result)
        if wrong:
            lines = "\n".join(f"  - {a['message']}" + (f"\n    fix: {a['fix']}" if a["fix"] else "") for a in wrong)
            raise DataError(
                f"validation found {len(wrong)} error{'s' * (len(wrong) > 1)}:\n{lines}", where=str(validated.path)
            )
        return True

    def _analyse(self, ingested: Mapping[str, Output]) -> Output | None:
        """What the user's preprocess function makes of the train split; None without one."""
        config = self.pipeline.preprocess
        if config is None:
            return None
        key = {
            "config": {"function": config.function},
            "module": self.trip.located.preprocess_digest(),
            "inputs": {"examples": [[out.fingerprint, part] for out, part in self._of(ingested, "train")]},
        }

        def request() -> dict[str, Any]:
            return {
                "examples": self._examples(ingested, "train"),
                "file": str(self.trip.located.preprocess_file),
                "function": config.function,
            }

        return self._call(ANALYSE, "analyse", key, request)

    def _preprocess(self) -> str | None:
        file = self.trip.located.preprocess_file
        return str(file) if file else None

    def _transform(self, statistics: Output, analysed: Output | None) -> Output:
        transforms = self.columns.transforms(self.pipeline.column_configs())
        columns = tuple(column for column in self.columns.read if column.name in self.columns.stored)
        key: dict[str, Any] = {
            "config": {name: t.model_dump(mode="json") for name, t in transforms.items()},
            "columns": [column.model_dump(mode="json") for column in columns],
            "task": self.pipeline.task,
            "inputs": {"statistics": statistics.fingerprint},
        }
        derived = self.pipeline.preprocess
        if derived is not None and analysed is not None:
            key["inputs"] |= {"analysed": analysed.fingerprint}
            key["derived"] = {name: t.model_dump(mode="json") for name, t in derived.columns.items()}

        def request() -> TransformRequest:
            made = TransformRequest(
                columns=columns, transforms=transforms, statistics=statistics.path / "train", task=self.pipeline.task
            )
            if derived is None or analysed is None:
                return made
            found = analysed.get()
            return made.model_copy(
                update={
                    "derived": DerivedParameters.model_validate(
                        {"function": derived.function, "reads": found["reads"], "columns": found["columns"]}
                    ),
                    "derived_statistics": analysed.path / "train",
                    "derived_transforms": derived.columns,
                }
            )

        return self._call(TRANSFORM, "transform", key, request)

    # --- model

    def _module(self) -> dict[str, Any]:
        """Part of the key of a stage that calls the user's module."""
        digest = self.trip.located.module_digest()
        return {"module": digest} if digest else {}

    def _examples(self, ingested: Mapping[str, Output], split: str) -> list[dict[str, Any]]:
        return [{"path": str(out.path), "split": part, "result": out.get()} for out, part in self._of(ingested, split)]

    def _train(self, ingested: Mapping[str, Output], transform: Output) -> Output:
        training = self.pipeline.training
        examples = [[out.fingerprint, part] for out, part in self._of(ingested, "train")]
        key = {
            "config": {
                "model": self.pipeline.model.model_dump(mode="json"),
                "training": training.model_dump(mode="json"),
                "seed": self.trip.chosen_seed,
            },
            **self._module(),
            "inputs": {"transform": transform.fingerprint, "examples": examples},
        }
        name = fingerprint({"stage": "train", "version": TRAIN.version, **key})

        def request() -> dict[str, Any]:
            module = self.trip.located.module_file
            return {
                "examples": self._examples(ingested, "train"),
                "transform": transform.get()["parameters"],
                "model": self.pipeline.model.model_dump(mode="json"),
                "training": training.model_dump(mode="json"),
                "seed": self.trip.chosen_seed,
                "module": str(module) if module else None,
                "preprocess": self._preprocess(),
                "checkpoints": str(self.trip.store.checkpoints / name),
                "summaries": str(self.trip.store.summaries / self.pipeline.name / name),
                "control": str(self.trip.located.control_file),
            }

        return self._call(TRAIN, "train", key, request)

    def _evaluate(
        self,
        title: str,
        ingested: Mapping[str, Output],
        transform: Output,
        model: dict[str, Any],
        identity: dict[str, Any],
    ) -> Output:
        config, group = self.pipeline.evaluation, self.columns.of_role("group")
        key = {
            "config": config.model_dump(mode="json"),
            "group": group.name if group else None,
            **(self._module() if "train" in identity else {}),
            "model": identity,
            "inputs": {
                "transform": transform.fingerprint,
                "examples": [[out.fingerprint, part] for out, part in self._of(ingested, "eval")],
            },
        }

        def request() -> dict[str, Any]:
            return {
                "model": model,
                "examples": self._examples(ingested, "eval"),
                "transform": transform.get()["parameters"],
                "slices": list(config.slices),
                "slice_min_rows": config.slice_min_rows,
                "group": group.name if group else None,
                "batch_size": config.batch_size,
            }

        return self._call(EVALUATE, title, key, request)

    def _trained_model(self, train: Output) -> dict[str, Any]:
        module = self.trip.located.module_file
        return {
            "kind": "trained",
            "path": str(train.path),
            "config": self.pipeline.model.model_dump(mode="json"),
            "seed": self.trip.chosen_seed,
            "module": str(module) if module else None,
            "preprocess": self._preprocess(),
        }

    def _judge(self, ingested: Mapping[str, Output], transform: Output, train: Output, champion: Version | None) -> End:
        candidate = self._evaluate(
            "evaluate", ingested, transform, self._trained_model(train), {"train": train.fingerprint}
        )
        self.end.evaluation = candidate.result
        scored = None
        if champion is not None:
            scored = self._evaluate(
                f"evaluate champion {champion.number}",
                ingested,
                transform,
                {"kind": "saved_model", "path": str(champion.saved_model)},
                {"version": champion.number, "export": champion.facts.get("export")},
            )
        if self._stops("evaluate"):
            return self.end
        verdict = self._gate(transform, train, candidate, champion, scored)
        if verdict is None:
            self.end.later = ["gate", "export", "replay", "promote"]
            return self.end
        self.end.verdict = verdict
        if self._stops("gate") or (not verdict["promote"] and self.trip.last is None):
            return self.end
        return self._ship(ingested, transform, train, candidate)

    def _split_digest(self) -> str:
        return fingerprint(self.pipeline.split.at_ingest())

    def _gate(
        self, transform: Output, train: Output, candidate: Output, champion: Version | None, scored: Output | None
    ) -> dict[str, Any] | None:
        """The verdict; None in a plan that cannot know."""
        rolled_back = self._rolled_back(train.fingerprint)
        group = self.columns.of_role("group")
        settings = {
            "slices": list(self.pipeline.evaluation.slices),
            "eval": [list(part) for part in self.parts["eval"]],
            "split": self._split_digest(),
            "force": self.trip.force,
        }
        key = {
            "config": self.pipeline.gate.model_dump(mode="json"),
            **settings,
            "rolled_back": rolled_back,
            "inputs": {
                "train": train.fingerprint,
                "candidate": candidate.fingerprint,
                "champion": champion.number if champion else None,
                "scored": scored.fingerprint if scored else None,
            },
        }

        def request() -> GateRequest:
            task = transform.get()["parameters"]["label"]["task"]
            return GateRequest(
                task=task,
                config=self.pipeline.gate,
                candidate=Candidate(
                    model=train.fingerprint,
                    predictions=candidate.path / candidate.get()["predictions"],
                    rolled_back=rolled_back,
                ),
                champion=self._champion(champion, scored),
                eval=tuple((span, part) for span, part in self.parts["eval"]),
                split=self._split_digest(),
                slices=self.pipeline.evaluation.slices,
                group=group.name if group else None,
                seed=self.trip.chosen_seed,
                force=self.trip.force,
            )

        return self._call(GATE, "gate", key, request).result

    @staticmethod
    def _champion(champion: Version | None, scored: Output | None) -> Champion | None:
        if champion is None or scored is None:
            return None
        result = scored.get()
        incompatible = result.get("incompatible")
        return Champion(
            version=champion.number,
            model=str(champion.facts.get("train")),
            predictions=None if incompatible else scored.path / result["predictions"],
            incompatible=incompatible,
            train=tuple((span, part) for span, part in champion.facts.get("train_parts", [])),
            split=champion.facts.get("split", ""),
        )

    def _rolled_back(self, train: str) -> str | None:
        """Which version of this very model was rolled back, and why."""
        registry = self.trip.registry
        for number, why in registry.rolled_back().items():
            version = next((v for v in registry.versions() if v.number == number), None)
            if version is not None and version.facts.get("train") == train:
                return f"version {number}, {why}"
        return None

    def _ship(self, ingested: Mapping[str, Output], transform: Output, train: Output, candidate: Output) -> End:
        key = {
            "config": {},
            **self._module(),
            "inputs": {"train": train.fingerprint, "transform": transform.fingerprint},
        }

        def request() -> dict[str, Any]:
            model = self._trained_model(train)
            return {
                "trained": str(train.path),
                "transform": transform.get()["parameters"],
                "model": model["config"],
                "module": model["module"],
                "preprocess": model["preprocess"],
                "seed": model["seed"],
            }

        export = self._call(EXPORT, "export", key, request)
        self.end.export = export
        if self._stops("export"):
            return self.end
        replayed = self._replay(ingested, transform, candidate, export)
        self.end.replay = replayed.result
        if export.result is not None and candidate.result is not None:
            self.end.facts = self._facts(transform, train, candidate, export)
        return self.end

    def _replay(self, ingested: Mapping[str, Output], transform: Output, candidate: Output, export: Output) -> Output:
        key = {
            "config": self.pipeline.export.model_dump(mode="json"),
            "inputs": {"export": export.fingerprint, "candidate": candidate.fingerprint},
        }

        def request() -> dict[str, Any]:
            parameters = transform.get()["parameters"]
            return {
                "saved_model": export.path / export.get()["saved_model"],
                "examples": self._examples(ingested, "eval"),
                "predictions": candidate.path / candidate.get()["predictions"],
                "columns": TransformParameters.model_validate(parameters).raw,
                "task": parameters["label"]["task"],
                "rows": self.pipeline.export.replay_rows,
            }

        return self._call(REPLAY, "replay", key, request)

    def _facts(self, transform: Output, train: Output, candidate: Output, export: Output) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline.name,
            "spans": self.window,
            "train_parts": [list(part) for part in self.parts["train"]],
            "eval_parts": [list(part) for part in self.parts["eval"]],
            "split": self._split_digest(),
            "task": transform.get()["parameters"]["label"]["task"],
            "train": train.fingerprint,
            "statistics": self.statistics,
            "reference": self.reference,
            "export": export.fingerprint,
            "seed": self.trip.chosen_seed,
            "metrics": candidate.get()["metrics"],
            "signatures": export.get()["signatures"],
        }

    def _already(self, champion: Version) -> None:
        reason = f"the candidate is the champion, version {champion.number}: there is nothing to promote"
        self.end.verdict = {"verdict": ALREADY, "promote": False, "reasons": [reason], "champion": champion.number}
        self.end.facts = {"metrics": champion.facts.get("metrics")}
