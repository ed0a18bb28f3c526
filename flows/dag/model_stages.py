"""The DAG's model stages, from a fitted transform to a replayed export: train, evaluate, export, replay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.dag.data_stages import DataSteps
from flows.dag.references import data_of, label_facts, trained_parts
from flows.dag.run_spec import ALREADY, EVALUATE, EXPORT, IMPORTANCE, MEASURE, REPLAY, TRAIN
from flows.dag.step import Output, Step
from flows.dag.warm_start import Parent, parent_of
from headway.evaluation.clusters import MOST_KEYS, ClusterSources, repeating
from headway.evaluation.results.request import MeasureRequest
from headway.evaluation.results.worst_slices import searched
from headway.evaluation.slices import choose, slice_columns
from headway.registry.registry import Version
from headway.registry.standing import standing_of
from headway.storage.fingerprint import fingerprint
from headway.tasks.table import HIGHER_IS_BETTER
from headway.user_code import files as user_files
from tfcore.train.settings.auto import Facts, described, resolve
from tfcore.train.settings.ranking import VERSION as RANKING_VERSION
from tfcore.transform.parameters import TransformParameters


@dataclass
class Training:
    """A model trained with one seed."""

    seed: int
    output: Output
    scored: Output | None = None
    """Its evaluation on the eval rows."""


class ModelSteps(DataSteps):
    """The steps that train, evaluate, export and replay a model."""

    training_of: Training
    """The one that is exported."""
    others: list[Training]
    """Those of `gate.repeats` with other seeds."""
    exported: list[tuple[Training, Output]]
    """The exports of the others."""
    measured: Output
    """What the candidate's predictions amount to."""
    parents: dict[int, Parent | None]
    """The model that the training of each seed begins with."""

    @property
    def trained(self) -> Output:
        return self.training_of.output

    @property
    def candidate(self) -> Output:
        """The trained model's predictions of the eval rows."""
        assert self.training_of.scored is not None
        return self.training_of.scored

    def _module(self) -> dict[str, Any]:
        """Return the part of the key of a stage that calls the user's model, task or loss."""
        loaded = self.run_spec.loaded
        files = {"module": loaded.module_file, "task": loaded.task_file, "loss": loaded.loss_file}
        return {name: user_files.digest(file) for name, file in files.items() if file}

    def _parameters(self) -> dict[str, Any]:
        """The fitted transform; a task of the user's own is found by its file."""
        parameters: dict[str, Any] = self.transform.get()["parameters"]
        if (file := self.run_spec.loaded.task_file) is not None:
            parameters = parameters | {"label": parameters["label"] | {"file": file}}
        return parameters

    def _own_metrics(self) -> dict[str, Any]:
        """Return the part of the key of a stage that computes the user's metrics."""
        specs = self.run_spec.loaded.own_metrics
        return {"own_metrics": {s.name: [s.better, user_files.digest(s.file)] for s in specs}} if specs else {}

    def _resolve(self) -> None:
        """The training's and the model's settings, those left out chosen by size; in a plan that cannot know it yet they
        stay as they are."""
        if self.transform.result is None or self.statistics.result is None:
            return
        parameters = TransformParameters.model_validate(self._parameters())
        facts = self.run_result.size = Facts(
            rows=self.statistics.result["rows"].get("train", 0),
            width=len(parameters.numeric) + len(parameters.categorical),
            task=parameters.label.task,
            images=any(fitted.pixels is not None for fitted in parameters.fitted),
        )
        self.training, self.model = resolve(self.pipeline.training, self.pipeline.model, facts)
        self.run_result.training = {
            "rows": facts.rows,
            "training": self.training.model_dump(mode="json"),
            "model": self.model.model_dump(mode="json"),
            "says": described(self.training, self.model),
        }

    def _train(self) -> None:
        """Train a model for each of `gate.repeats` seeds; only the champion where it is one of them."""
        self.parents = {}
        first = self.run_spec.chosen_seed
        repeats = 1 if self.run_spec.trial else self.pipeline.gate.repeats
        steps = {seed % 2**31: self._train_step(seed % 2**31) for seed in range(first, first + repeats)}
        champion = None if self.run_spec.force else self.run_spec.registry.champion()
        already = [s for s, step in steps.items() if champion and champion.facts.get("train") == step.fingerprint]
        done = [Training(seed, self._run(steps[seed])) for seed in already[:1] or steps]
        self.training_of, self.others = done[0], done[1:]

    def _train_step(self, seed: int) -> Step:
        training = self.training
        key: dict[str, Any] = {
            "config": {
                "model": self.model.model_dump(mode="json"),
                # a timeout changes no bit, and a warm start has a key of its own
                "training": training.model_dump(mode="json", exclude={"worker_timeout", "warm_start"}),
                "seed": seed,
            },
            **self._module(),
            "inputs": {"transform": self.transform.fingerprint, "examples": self._examples_key("train")},
        }
        if training.ranking is not None:
            key["config"]["ranking_version"] = RANKING_VERSION
        trial = self.run_spec.trial
        if trial is not None:
            key["trial"] = trial.model_dump(mode="json")
        parent, note = parent_of(self.run_spec, key, evaluation=tuple(self.parts["eval"]), split=self._split_digest())
        self.run_result.notes += [note] if note and note not in self.run_result.notes else []
        self.parents[seed] = parent
        if parent is not None:
            key["warm_start"] = parent.key
        name = fingerprint({"stage": "train", "version": TRAIN.version, **key})

        def request() -> dict[str, Any]:
            return {
                "examples": self._examples("train"),
                "transform": self._parameters(),
                "model": self.model.model_dump(mode="json"),
                "training": training.model_dump(mode="json"),
                **self._code(seed),
                "loss": self.run_spec.loaded.loss_file,
                "checkpoints": self.run_spec.store.checkpoints / name,
                "trial": trial,
                "warm_start": parent.request(self.run_spec) if parent is not None else None,
                # a study's trials are compared in its table, and nobody turns their knobs
                "summaries": None if trial else self.run_spec.store.summaries / self.pipeline.name / name,
                "control": None if trial else self.run_spec.loaded.control_file,
            }

        return self._step(TRAIN, "train" + self._suffix(seed), key, request)

    def _suffix(self, seed: int) -> str:
        """What the title of a step says of the seed; nothing of the run's own."""
        return "" if seed == self.run_spec.chosen_seed else f" seed {seed}"

    def _code(self, seed: int) -> dict[str, Any]:
        """Return the part of the request of a stage that builds the model."""
        loaded = self.run_spec.loaded
        return {"seed": seed, "module": loaded.module_file, "preprocess": loaded.preprocess_file}

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
        """Return where the worst slices are looked for; nowhere in a plan that cannot know."""
        found = self.statistics.result
        if found is None or self.validated.result is None:
            return ()
        strengths = self.validated.result.get("strengths", {})
        return searched(found["columns"].get("train", []), strengths, self._sliceable())

    def _kept(self) -> tuple[str, ...]:
        """Return the columns that predictions keep: those of slices and clusters, the group, the item, stored keys."""
        keys = [c.name for c in self.columns.read if c.role in ("key", "group", "passthrough") and not c.shape]
        stored = [name for name in keys if name in self.columns.stored]
        sliced = slice_columns((*self._slices(), *self._searched()))
        item = [name for name in (self.pipeline.evaluation.item,) if name]
        return tuple(sorted({*sliced, *self._clusters().stored, *stored, *item}))

    def _clusters(self) -> ClusterSources:
        """Where rows that belong together may be found out; nowhere with a group column, or in a plan that cannot know."""
        if self.columns.of_role("group") is not None or self.statistics.result is None:
            return ClusterSources()
        stored = [c for c in self.columns.read if c.name in self.columns.stored and not c.shape]
        times = sorted((column for column in stored if column.temporal), key=lambda column: column.role != "time")
        repeated = repeating(self.statistics.result["columns"].get("train", []))
        keys = [c.name for c in stored if c.name in repeated and (c.meaning is not None or c.role == "key")]
        parts = self.parts["eval"]
        return ClusterSources(
            columns=tuple(sorted(keys)[:MOST_KEYS]),
            time=(times[0].name, times[0].temporal) if times and times[0].temporal else None,
            by_day=bool(times) and times[0].role == "time",
            spans=tuple(
                (span, out.get()["splits"][part]["rows"])
                for (span, part), (out, _) in zip(parts, self._of("eval"), strict=True)
            ),
        )

    def _evaluate(self, title: str, model: dict[str, Any], identity: dict[str, Any], split: str = "eval") -> Output:
        """The one pass of a model over a split; what is said of it is computed from the predictions that this keeps."""
        config, kept = self.pipeline.evaluation, self._kept()
        key = {
            "config": config.model_dump(mode="json", include={"batch_size"}),
            "columns": list(kept),
            **({"item": config.item} if self._item_rows(identity) else {}),
            **(self._module() if "train" in identity else {}),
            "model": identity,
            "inputs": {"transform": self.transform.fingerprint, "examples": self._examples_key(split)},
        }

        def request() -> dict[str, Any]:
            return {
                "model": model,
                "examples": self._examples(split),
                "transform": self._parameters(),
                "columns": list(kept),
                "batch_size": config.batch_size,
                **({"item": config.item, "train": self._examples("train")} if self._item_rows(identity) else {}),
            }

        return self._call(EVALUATE, title, key, request)

    def _item_rows(self, identity: dict[str, Any]) -> bool:
        """Whether the baselines of the item are computed beside a model: beside a training's, not a version's."""
        return self.pipeline.evaluation.item is not None and "train" in identity

    def _importance(self) -> None:
        """How much each column matters to the trained model, where the config asks for it."""
        rows = self.pipeline.evaluation.importance
        if rows is None:
            return
        inputs = {"transform": self.transform.fingerprint, "train": self.trained.fingerprint}
        key = {
            "config": {"rows": rows},
            "seed": self.training_of.seed,
            **self._module(),
            "inputs": inputs | {"examples": self._examples_key("eval")},
        }

        def request() -> dict[str, Any]:
            return {
                "model": self._model_of(self.training_of),
                "transform": self._parameters(),
                "examples": self._examples("eval"),
                "rows": rows,
                "seed": self.training_of.seed,
            }

        self._call(IMPORTANCE, "importance", key, request)

    def _measure(self, title: str, scored: Output, beside: Mapping[str, Output], given: float | None = None) -> Output:
        """Measure predictions.

        Args:
            beside: the predictions of other models on the same rows, by name.
            given: the threshold, where other rows chose it.
        """
        config, group = self.pipeline.evaluation, self.columns.of_role("group")
        settings = {
            "config": config.model_dump(mode="json", include={"slice_min_rows", "threshold"}),
            "slices": list(self._slices()),
            "searched": list(self._searched()),
            "clusters": self._clusters().model_dump(mode="json"),
            "group": group.name if group else None,
            "confidence": self.pipeline.gate.confidence,
            "given_threshold": given,
            "seed": self.run_spec.chosen_seed,
            **self._ranked(),
        }
        key = {
            **settings,
            **self._own_metrics(),
            "inputs": {
                "predictions": scored.fingerprint,
                "statistics": self.statistics.fingerprint,
                "beside": {name: output.fingerprint for name, output in beside.items()},
            },
        }

        def request() -> MeasureRequest:
            parameters = self.transform.get()["parameters"]
            others = {name: scored.path / file for name, file in scored.get().get("baselines", {}).items()}
            for name, output in beside.items():
                if not output.get().get("incompatible"):
                    others[name] = output.path / output.get()["predictions"]
            return MeasureRequest.model_validate(
                {name: value for name, value in settings.items() if name != "config"}
                | settings["config"]
                | {
                    "task": parameters["label"]["task"],
                    "predictions": scored.path / scored.get()["predictions"],
                    "baselines": others,
                    "label": label_facts(parameters, self.statistics.get()),
                    "classes": parameters["label"].get("classes") or (),
                    "metrics": self.run_spec.loaded.own_metrics,
                }
            )

        return self._call(MEASURE, title, key, request)

    def _ranked(self) -> dict[str, Any]:
        """Return the part of the evaluation's request and key that a ranking model adds."""
        at, item = self.pipeline.ndcg_at, self.pipeline.evaluation.item
        return {} if at is None else {"ndcg_at": at} | ({} if item is None else {"item": item})

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
        task = self.transform.get()["parameters"]["label"]["task"]
        metric = self.pipeline.gate.primary_metric(task, ranked=self.pipeline.ndcg_at is not None)
        own = {spec.name for spec in self.run_spec.loaded.own_metrics if spec.better == "higher"}
        sign = 1 if metric in own or metric in HIGHER_IS_BETTER else -1

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

    def _model_of(self, training: Training) -> dict[str, Any]:
        """Return the part of the request of a stage that loads a trained model."""
        config = self.model.model_dump(mode="json")
        return {"kind": "trained", "path": training.output.path, "config": config, **self._code(training.seed)}

    def _split_digest(self) -> str:
        """Return a digest of the settings that assign rows to splits; if it differs, so do the eval rows."""
        hashed = {column.name: f"{column.type}{list(column.shape) or ''}" for column in self.columns.hashed}
        return fingerprint(self.pipeline.split.at_ingest() | ({"hashed": hashed} if hashed else {}))

    def _note_other_rows(self, champion: Version) -> None:
        """Add a note if eval rows are drawn in another way than for the champion."""
        before = champion.facts.get("split")
        if before and before != self._split_digest():
            self.run_result.notes.append(
                f"eval rows are not drawn as they were for version {champion.number} (the split, or the columns that it "
                "hashes, changed since): metrics of that run and of this one are of different rows"
            )

    def _export_seeds(self) -> Output:
        """Export the chosen training, and with a promotion the others: later candidates are compared with the mean of all."""
        export = self.run_result.export = self._export(self.training_of)
        others = self.others if (self.run_result.verdict or {}).get("promote") else []
        self.exported = [(training, self._export(training)) for training in others]
        return export

    def _export(self, training: Training) -> Output:
        card = self._card(training)
        formats = self.pipeline.export.formats
        key = {
            "config": {"formats": list(formats)} if formats else {},
            **self._module(),
            "card": fingerprint(card),
            "inputs": {"train": training.output.fingerprint, "transform": self.transform.fingerprint},
        }

        def request() -> dict[str, Any]:
            return {
                "trained": training.output.path,
                "transform": self._parameters(),
                "model": self.model.model_dump(mode="json"),
                **self._code(training.seed),
                "card": card,
                "formats": formats,
            }

        return self._call(EXPORT, "export" + self._suffix(training.seed), key, request)

    def _card(self, training: Training) -> dict[str, Any]:
        """Return the run's facts for the model card: a `tfcore.export.model_card.CardFacts`."""
        assert training.scored is not None
        evaluated = self.measured if training is self.training_of else training.scored
        evaluation, verdict = evaluated.result or {}, self.run_result.verdict
        kept = ("verdict", "reasons", "champion", "comparisons", "metrics")
        return {
            "model": self.pipeline.name,
            "label": self.pipeline.label.column or self.pipeline.label.expression or "",
            "spans": list(self.window),
            "train_rows": (self.statistics.result or {}).get("rows", {}).get("train"),
            "eval_rows": evaluation.get("rows"),
            "seed": training.seed,
            "metrics": evaluation.get("metrics") or {},
            "intervals": evaluation.get("intervals") or {},
            "threshold": evaluation.get("threshold"),
            "verdict": None if verdict is None else {name: verdict[name] for name in kept if name in verdict},
        }

    def _replay(self, export: Output) -> None:
        key = {
            "config": self.pipeline.export.model_dump(mode="json"),
            "inputs": {"export": export.fingerprint, "candidate": self.candidate.fingerprint},
        }

        def request() -> dict[str, Any]:
            parameters = self.transform.get()["parameters"]
            return {
                "saved_model": export.path / export.get()["saved_model"],
                "examples": self._examples("eval"),
                "predictions": self.candidate.path / self.candidate.get()["predictions"],
                "columns": TransformParameters.model_validate(parameters).raw,
                "task": parameters["label"]["task"],
                "rows": self.pipeline.export.replay_rows,
                "limits": self.pipeline.export.limits.model_dump(mode="json"),
                "formats": export.get().get("formats"),
            }

        self.run_result.replay = self._call(REPLAY, "replay", key, request).result
        if export.result is not None and self.measured.result is not None:
            self.run_result.facts = self._facts(export)

    def _facts(self, export: Output) -> dict[str, Any]:
        verdict = self.run_result.verdict or {}
        return {
            "pipeline": self.pipeline.name,
            "spans": self.window,
            "train_parts": [list(part) for part in self.parts["train"]],
            "eval_parts": [list(part) for part in self.parts["eval"]],
            "split": self._split_digest(),
            "task": self.transform.get()["parameters"]["label"]["task"],
            "train": self.trained.fingerprint,
            "statistics": self.statistics.fingerprint,
            "reference": self.reference,
            "export": export.fingerprint,
            "seed": self.training_of.seed,
            "repeats": [
                {"seed": t.seed, "train": t.output.fingerprint, "export": out.fingerprint} for t, out in self.exported
            ],
            "evaluation": self.candidate.fingerprint,
            "worth": verdict.get("worth"),
            "data": data_of(self.run_spec, self.parts["train"]),
            "metrics": self.measured.get()["metrics"],
            "baselines": (verdict.get("metrics") or {}).get("baselines") or {},
            "test": self.run_result.test,
            "standing": standing_of(verdict) if "comparisons" in verdict else None,
            "signatures": export.get()["signatures"],
            **self._inherited(),
        }

    def _inherited(self) -> dict[str, Any]:
        """Return what a version says of the model that its training began with."""
        parent = self.parents[self.training_of.seed]
        if parent is None:
            return {}
        parts = [list(part) for part in trained_parts(parent.version)]
        return {"warm_start": parent.version.number, "inherited_parts": parts}

    def _already(self, champion: Version) -> None:
        reason = f"the candidate is the champion, version {champion.number}: there is nothing to promote"
        verdict = {"verdict": ALREADY, "promote": False, "reasons": [reason], "champion": champion.number}
        self.run_result.verdict = verdict
        self.run_result.facts = {name: champion.facts.get(name) for name in ("metrics", "baselines")}
