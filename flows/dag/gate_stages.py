"""The DAG's gate stages: the models a candidate is compared with, the verdict, and the test split of one that passed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from flows.dag.export_stages import ExportSteps
from flows.dag.references import check_metrics, data_of, further_labels, label_facts, reference_version, trained_parts
from flows.dag.run_spec import EXPORT, GATE
from flows.dag.step import Output
from headway.evaluation.checks.small_steps import Measured
from headway.evaluation.gate import Candidate, Champion, GateRequest, Repeat, trained_on
from headway.evaluation.verdict import Verdict
from headway.messages import counted, metrics_line
from headway.metrics.ranking import ITEM_BASELINES
from headway.registry.registry import Version
from headway.registry.standing import Reference
from headway.schema.notes import Note
from headway.statistics.summary import WindowStatistics
from tfcore.evaluation.request import SavedModel


@dataclass
class Judge:
    """A version that the candidate is compared with, scored on the same rows."""

    role: str
    """champion or reference."""
    version: Version
    since: Reference | None = None
    """Of the reference: how the champions since stood to it."""
    scored: Output | None = None
    reason: str | None = None
    """Why it was not scored."""
    repeats: list[tuple[dict[str, Any], Output]] = field(default_factory=list)
    """Its other seeds that the store still has: facts, and their evaluations."""

    def key(self) -> dict[str, object]:
        """Return the judge's part of the gate's key."""
        key = {"version": self.version.number, "scored": self.scored.fingerprint if self.scored else self.reason}
        return (
            key
            | {"worth": self.version.facts.get("worth"), "repeats": [out.fingerprint for _, out in self.repeats]}
            | ({} if self.since is None else {"place": self.since.place, "since": self.since.measured})
        )


class GateSteps(ExportSteps):
    """The steps that compare a model with the champion and with an early champion, the reference."""

    def _task(self) -> str | None:
        """The task, once the train labels are known."""
        return None if self.transform.result is None else self.fitted.label.task

    def _check_task(self) -> None:
        """Check the task against the metrics that the pipeline names and the champion's task."""
        if (task := self._task()) is None:
            return
        check_metrics(self.run_spec.loaded, (task,), {of.name: (of.task,) for of in self.fitted.label.further})
        champion = self.run_spec.registry.champion()
        if champion is not None and (reason := self._other_task(champion, task)):
            text = f"the champion, version {champion.number}, cannot be compared: {reason}"
            self.run_result.notes.append(Note(text=text))

    @staticmethod
    def _other_task(champion: Version, task: str | None) -> str | None:
        theirs = champion.facts.get("task")
        if None in (theirs, task) or theirs == task:
            return None
        return f"it was trained for a {theirs} label, and this pipeline's label is {task}"

    def _judges(self, champion: Version | None) -> list[Judge]:
        """The champion, and an early one when there is another, on the candidate's evaluation rows."""
        if champion is None:
            return []
        self.run_result.champion = champion.number
        task = self._task()
        evaluation = tuple(self.parts["eval"])
        early = reference_version(self.run_spec, champion, task=task, evaluation=evaluation, split=self._split_digest())
        judges = [Judge("champion", champion)] + ([] if early is None else [Judge("reference", early[0], early[1])])
        for judge in judges:
            judge.reason = self._other_task(judge.version, task)
            if judge.reason is None:
                judge.scored = self._evaluate(
                    f"evaluate {judge.role} {judge.version.number}",
                    SavedModel(path=judge.version.saved_model),
                    {"version": judge.version.number, "export": judge.version.facts.get("export")},
                )
                self._score_repeats(judge)
        return judges

    def _score_repeats(self, judge: Judge) -> None:
        """Score the champion's other seeds where means are compared, as far as the store has their exports."""
        if self.pipeline.gate.repeats == 1 or judge.role != "champion":
            return
        for repeat in judge.version.facts.get("repeats") or ():
            manifest = self.run_spec.store.find(EXPORT.name, repeat["export"])
            if manifest is not None:
                path = self.run_spec.store.output(EXPORT.name, repeat["export"]) / manifest.result["saved_model"]
                scored = self._evaluate(
                    f"evaluate champion {judge.version.number} seed {repeat['seed']}",
                    SavedModel(path=path),
                    {"version": judge.version.number, "export": repeat["export"]},
                )
                judge.repeats.append((repeat, scored))

    def _measure_candidate(self, judges: Sequence[Judge]) -> Output:
        """Measure the candidate's predictions, beside the champion's unless it was trained on these rows."""
        fair = [
            judge
            for judge in judges
            if judge.role == "champion"
            and not trained_on(
                trained_parts(judge.version),
                judge.version.facts.get("split", ""),
                tuple(self.parts["eval"]),
                self._split_digest(),
            )
        ]
        beside = {judge.role: judge.scored for judge in fair if judge.scored is not None}
        return self._measure("measure", self.candidate, beside)

    @staticmethod
    def _stand_in(scored: Output) -> Judge:
        """Return another model's evaluation in the champion's place; its version is none of the registry."""
        return Judge("champion", Version(number=0, path=scored.path, created="", facts={}), scored=scored)

    def _test(self) -> None:
        """Score the test split with a candidate that passed: reported, and never used to decide."""
        if not sum(out.get()["splits"][part]["rows"] for out, part in self._of("test") if out.result is not None):
            return
        threshold = ((self.measured.result or {}).get("threshold") or {}).get("value")
        predicted = self._evaluate_trained("evaluate test", self.training_of, "test")
        tested = self._measure("measure test", predicted, {}, split="test", given=threshold)
        if tested.result is None or self.run_result.verdict is None:
            return  # a plan
        self.run_result.test = {"rows": tested.result["rows"], "metrics": tested.result["metrics"]}
        sentence = f"on the {counted(tested.result['rows'], 'row')} of the test split, which decide nothing: "
        sentence += metrics_line(tested.result["metrics"])
        self.run_result.verdict = self.run_result.verdict.noting(sentence)

    def _gate(self, judges: Sequence[Judge]) -> Verdict | None:
        """The verdict; None in a plan that cannot know."""
        candidate, trained = self.candidate, self.trained.fingerprint
        rolled_back = self._rolled_back({trained, *(training.output.fingerprint for training in self.others)})
        group, slices, chosen = self.columns.of_role("group"), self._slices(), self.pipeline.evaluation.slices is None
        training = self.pipeline.training
        own_objective = any((training.loss, training.class_weights, training.ranking, training.retrieval))
        key = {
            "config": self.pipeline.gate.model_dump(mode="json"),
            "slices": list(slices),
            "slices_chosen": chosen,
            "clusters": self._clusters().model_dump(mode="json"),
            "eval": [list(part) for part in self.parts["eval"]],
            "split": self._split_digest(),
            "force": self.run_spec.force,
            "own_objective": own_objective,
            **self._ranked(),
            **self._own_metrics(),
            "rolled_back": rolled_back,
            "inputs": {
                "train": trained,
                "candidate": candidate.fingerprint,
                "repeats": [training.scored.fingerprint for training in self.others if training.scored],
                **{judge.role: judge.key() for judge in judges},
            },
        }

        def request() -> GateRequest:
            label, statistics = self.fitted.label, WindowStatistics.model_validate(self.statistics.get())
            since = next((judge.since for judge in judges if judge.since is not None), None)
            champions = {judge.role: self._champion(judge) for judge in judges}
            return GateRequest(
                task=label.task,
                config=self.pipeline.gate,
                candidate=Candidate(
                    model=trained,
                    predictions=candidate.path / candidate.get()["predictions"],
                    seed=self.training_of.seed,
                    repeats=tuple(
                        self._repeat(training.seed, training.output.fingerprint, training.scored)
                        for training in self.others
                        if training.scored
                    ),
                    rolled_back=rolled_back,
                    train=tuple(self.parts["train"]),
                    data=data_of(self.run_spec, self.parts["train"]),
                ),
                champion=champions.get("champion"),
                reference=champions.get("reference"),
                since=() if since is None else tuple(map(Measured.model_validate, since.measured)),
                place=0 if since is None else since.place,
                label=label_facts(label, statistics),
                labels=further_labels(label, statistics),
                baselines={name: candidate.path / file for name, file in candidate.get().get("baselines", {}).items()},
                to_beat=tuple(name for name in ITEM_BASELINES if name in candidate.get().get("baselines", {})),
                eval=tuple(self.parts["eval"]),
                split=self._split_digest(),
                slices=slices,
                slices_chosen=chosen,
                clusters=self._clusters(),
                metrics=self.run_spec.loaded.own_metrics,
                group=group.name if group else None,
                seed=self.run_spec.chosen_seed,
                force=self.run_spec.force,
                own_objective=own_objective,
                ndcg_at=self.pipeline.ndcg_at,
                item=self.pipeline.evaluation.item,
                retrieval=self.pipeline.ranks_index,
            )

        return self._call(GATE, "gate", key, request).read(Verdict)

    @staticmethod
    def _champion(judge: Judge) -> Champion:
        facts, reason, predictions = judge.version.facts, judge.reason, None
        if judge.scored is not None:
            result = judge.scored.get()
            reason = result.get("incompatible")
            predictions = None if reason else judge.scored.path / result["predictions"]
        return Champion(
            version=judge.version.number,
            model=str(facts.get("train")),
            predictions=predictions,
            incompatible=reason,
            train=trained_parts(judge.version),
            data=facts.get("data") or {},
            split=facts.get("split", ""),
            worth=facts.get("worth"),
            repeats=tuple(
                GateSteps._repeat(repeat["seed"], repeat["train"], scored)
                for repeat, scored in judge.repeats
                if predictions is not None and not scored.get().get("incompatible")
            ),
        )

    @staticmethod
    def _repeat(seed: int, model: str, scored: Output) -> Repeat:
        return Repeat(seed=seed, model=model, predictions=scored.path / scored.get()["predictions"])

    def _rolled_back(self, trained: Collection[str]) -> str | None:
        """Which version of these very trainings was rolled back, and why."""
        registry = self.run_spec.registry
        rolled_back = registry.rolled_back()
        numbers = [version.number for version in registry.versions() if version.facts.get("train") in trained]
        return next((f"version {number}, {why}" for number, why in rolled_back.items() if number in numbers), None)
