"""The DAG's training: one step for each seed, with the settings that the train rows choose."""

from __future__ import annotations

from dataclasses import dataclass

from flows.dag.data_stages import DataSteps
from flows.dag.run_spec import TRAIN
from flows.dag.step import Output, Step
from flows.dag.warm_start import Parent, parent_of
from flows.records import Chosen
from headway.schema.notes import Note
from headway.storage.fingerprint import fingerprint
from headway.user_code import files as user_files
from tfcore.train.request import Latest, TrainRequest
from tfcore.train.settings.auto import Facts, described, resolve
from tfcore.train.settings.ranking import VERSION as RANKING_VERSION
from tfcore.train.settings.retrieval import VERSION as RETRIEVAL_VERSION
from tfcore.transform.parameters import TransformParameters


@dataclass
class Training:
    """A model trained with one seed."""

    seed: int
    output: Output
    scored: Output | None = None
    """Its evaluation on the eval rows."""


class TrainSteps(DataSteps):
    """The steps that train a model, once for each seed."""

    training_of: Training
    """The one that is exported."""
    others: list[Training]
    """Those of `gate.repeats` with other seeds."""
    parents: dict[int, Parent | None]
    """The model that the training of each seed begins with."""

    @property
    def trained(self) -> Output:
        return self.training_of.output

    def _module(self) -> dict[str, str]:
        """Return the part of the key of a stage that calls the user's model, task or loss."""
        loaded = self.run_spec.loaded
        files = {"module": loaded.module_file, "task": loaded.task_file, "loss": loaded.loss_file}
        return {name: user_files.digest(file) for name, file in files.items() if file}

    def _parameters(self) -> TransformParameters:
        """The fitted transform; a task of the user's own is found by its file, further labels have their weights."""
        label, weights = self.fitted.label, self._weights()
        further = tuple(each.model_copy(update={"weight": weights[each.name]}) for each in label.further)
        label = label.model_copy(update={"file": self.run_spec.loaded.task_file, "further": further})
        return self.fitted.model_copy(update={"label": label})

    def _weights(self) -> dict[str, float]:
        """Of the losses of further labels."""
        return {name: config.weight for name, config in self.pipeline.labels.items()}

    def _own_metrics(self) -> dict[str, dict[str, list[str]]]:
        """Return the part of the key of a stage that computes the user's metrics."""
        specs = self.run_spec.loaded.own_metrics
        return {"own_metrics": {s.name: [s.better, user_files.digest(s.file)] for s in specs}} if specs else {}

    def _resolve(self) -> None:
        """The training's and the model's settings, those left out chosen by size; in a plan that cannot know it yet they
        stay as they are."""
        if self.transform.result is None or self.statistics.result is None:
            return
        fitted = self.fitted
        facts = self.run_result.size = Facts(
            rows=self.statistics.result["rows"].get("train", 0),
            width=len(fitted.numeric) + len(fitted.categorical),
            task=fitted.label.task,
            images=any(column.pixels is not None for column in fitted.fitted),
        )
        self.training, self.model = resolve(self.pipeline.training, self.pipeline.model, facts)
        self.run_result.training = Chosen(
            rows=facts.rows,
            says=described(self.training, self.model),
            training=self.training.model_dump(mode="json"),
            model=self.model.model_dump(mode="json"),
        )

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
        config: dict[str, object] = {
            "model": self.model.model_dump(mode="json"),
            # a timeout changes no bit, and a warm start has a key of its own
            "training": training.model_dump(mode="json", exclude={"worker_timeout", "warm_start"}),
            "seed": seed,
        }
        if weights := self._weights():
            config["labels"] = weights
        if training.ranking is not None:
            config["ranking_version"] = RANKING_VERSION
        if training.retrieval is not None:
            config["retrieval_version"] = RETRIEVAL_VERSION
        inputs = {"transform": self.transform.fingerprint, "examples": self._examples_key("train")}
        key: dict[str, object] = {"config": config, **self._module(), "inputs": inputs}
        trial = self.run_spec.trial
        if trial is not None:
            key["trial"] = trial.model_dump(mode="json")
        latest = Latest.of(self.pipeline.split)
        if trial is not None or training.early_stopping is not None:
            # what a holdout is drawn by that the examples do not say
            group = self.columns.of_role("group")
            drawn = {"latest": latest.model_dump() if latest else None, "group": group.name if group else None}
            key |= {"holdout": drawn} if latest or group else {}
        parent, note = parent_of(self.run_spec, key, evaluation=tuple(self.parts["eval"]), split=self._split_digest())
        if note and (noted := Note(text=note)) not in self.run_result.notes:
            self.run_result.notes.append(noted)
        self.parents[seed] = parent
        if parent is not None:
            key["warm_start"] = parent.key
        name = fingerprint({"stage": "train", "version": TRAIN.version, **key})

        def request() -> TrainRequest:
            loaded, store = self.run_spec.loaded, self.run_spec.store
            return TrainRequest(
                examples=self._examples("train"),
                transform=self._parameters(),
                model=self.model,
                training=training,
                seed=seed,
                module=loaded.module_file,
                preprocess=loaded.preprocess_file,
                loss=loaded.loss_file,
                checkpoints=store.checkpoints / name,
                trial=trial,
                latest=latest,
                warm_start=parent.request(self.run_spec) if parent is not None else None,
                # a study's trials are compared in its table, and nobody turns their knobs
                summaries=None if trial else store.summaries / self.pipeline.name / name,
                control=None if trial else loaded.control_file,
            )

        return self._step(TRAIN, "train" + self._suffix(seed), key, request)

    def _suffix(self, seed: int) -> str:
        """What the title of a step says of the seed; nothing of the run's own."""
        return "" if seed == self.run_spec.chosen_seed else f" seed {seed}"

    def _split_digest(self) -> str:
        """Return a digest of the settings that assign rows to splits; if it differs, so do the eval rows."""
        hashed = {column.name: f"{column.type}{list(column.shape) or ''}" for column in self.columns.hashed}
        by_place = {"by_place": True} if self.columns.by_place else {}
        return fingerprint(self.pipeline.split.at_ingest() | ({"hashed": hashed} if hashed else {}) | by_place)
