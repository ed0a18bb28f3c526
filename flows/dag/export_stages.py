"""The DAG's last stages: export of a trained model, its replay in a fresh process, and the facts of a version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flows.dag.evaluate_stages import EvaluateSteps
from flows.dag.references import data_of, trained_parts
from flows.dag.replay_stage import ReplayRequest
from flows.dag.run_spec import ALREADY, EXPORT, REPLAY
from flows.dag.step import Output
from flows.dag.train_stages import Training
from headway.evaluation.verdict import Model, Reason, Verdict
from headway.messages import listed, number
from headway.registry.registry import Version
from headway.registry.standing import standing_of
from headway.schema.notes import Note
from headway.storage.fingerprint import fingerprint
from tfcore.export.model_card import CardFacts
from tfcore.export.request import Exported, ExportRequest


class ExportSteps(EvaluateSteps):
    """The steps that export and replay a model."""

    exported: list[tuple[Training, Output]]
    """The exports of the other seeds."""
    again: Version | None = None
    """The champion, where this run exports its model once more in further formats."""

    def _export_seeds(self) -> Output:
        """Export the chosen training, and with a promotion the others: later candidates are compared with the mean of all."""
        export = self.run_result.export = self._export(self.training_of)
        verdict = self.run_result.verdict
        others = self.others if verdict is not None and verdict.promote else []
        self.exported = [(training, self._export(training)) for training in others]
        return export

    def _export(self, training: Training) -> Output:
        card = self._card(training)
        formats = self.pipeline.export.formats
        key = {
            "config": {"formats": list(formats)} if formats else {},
            **self._module(),
            "card": fingerprint(card.model_dump(mode="json")),
            "inputs": {"train": training.output.fingerprint, "transform": self.transform.fingerprint},
        }

        def request() -> ExportRequest:
            return ExportRequest(
                trained=training.output.path,
                transform=self._parameters(),
                model=self.model,
                module=self.run_spec.loaded.module_file,
                preprocess=self.run_spec.loaded.preprocess_file,
                seed=training.seed,
                card=card,
                formats=formats,
            )

        return self._call(EXPORT, "export" + self._suffix(training.seed), key, request)

    def _card(self, training: Training) -> CardFacts:
        """Return the run's facts for the model card."""
        assert training.scored is not None
        evaluated = self.measured if training is self.training_of else training.scored
        evaluation, verdict = evaluated.result or {}, self.run_result.verdict
        return CardFacts(
            model=self.pipeline.name,
            label=self.pipeline.label.column or self.pipeline.label.expression or "",
            spans=tuple(self.window),
            train_rows=(self.statistics.result or {}).get("rows", {}).get("train"),
            eval_rows=evaluation.get("rows"),
            seed=training.seed,
            metrics=evaluation.get("metrics") or {},
            intervals=evaluation.get("intervals") or {},
            threshold=evaluation.get("threshold"),
            verdict=None if verdict is None else verdict.brief,
        )

    def _replay(self, export: Output) -> None:
        key = {
            "config": self.pipeline.export.model_dump(mode="json"),
            "inputs": {"export": export.fingerprint, "candidate": self.candidate.fingerprint},
        }

        def request() -> ReplayRequest:
            label, exported = self.fitted.label, Exported.model_validate(export.get())
            return ReplayRequest(
                saved_model=export.path / exported.saved_model,
                examples=self._examples("eval"),
                predictions=self.candidate.path / self.candidate.get()["predictions"],
                columns=self.fitted.raw,
                task=label.task,
                labels={each.name: each.task for each in label.further},
                label_std=label.std,
                rows=self.pipeline.export.replay_rows,
                limits=self.pipeline.export.limits,
                formats=exported.formats,
            )

        self.run_result.replay = self._call(REPLAY, "replay", key, request).result
        if export.result is not None and self.measured.result is not None:
            self.run_result.facts = self._facts(export)

    def _facts(self, export: Output) -> dict[str, Any]:
        verdict = self.run_result.verdict
        if self.again is not None:
            return {**self.again.facts, "export": export.fingerprint, "signatures": export.get()["signatures"]}
        return {
            "pipeline": self.pipeline.name,
            "spans": self.window,
            "train_parts": [list(part) for part in self.parts["train"]],
            "eval_parts": [list(part) for part in self.parts["eval"]],
            "split": self._split_digest(),
            "task": self.fitted.label.task,
            "train": self.trained.fingerprint,
            "statistics": self.statistics.fingerprint,
            "reference": self.reference,
            "export": export.fingerprint,
            "seed": self.training_of.seed,
            "repeats": [
                {"seed": t.seed, "train": t.output.fingerprint, "export": out.fingerprint} for t, out in self.exported
            ],
            "evaluation": self.candidate.fingerprint,
            "worth": verdict and verdict.worth,
            "data": data_of(self.run_spec, self.parts["train"]),
            "metrics": self.measured.get()["metrics"],
            "baselines": verdict.metrics.baselines if verdict else {},
            "threshold": self._threshold(),
            "test": self.run_result.test,
            "standing": verdict and standing_of(verdict),
            "signatures": export.get()["signatures"],
            **self._inherited(),
        }

    def _threshold(self) -> dict[str, object] | None:
        """Return the threshold that the model is promoted with, and the rule in the config that chose it."""
        rule, chosen = self.pipeline.evaluation.threshold, self.measured.get().get("threshold")
        if rule is None or chosen is None:
            return None
        return {"config": rule.model_dump(mode="json"), "value": chosen["value"]}

    def _inherited(self) -> dict[str, object]:
        """Return what a version says of the model that its training began with."""
        parent = self.parents[self.training_of.seed]
        if parent is None:
            return {}
        parts = [list(part) for part in trained_parts(parent.version)]
        return {"warm_start": parent.version.number, "inherited_parts": parts}

    def _lacking(self, champion: Version) -> list[str]:
        """The formats of `export.formats` that a version was exported without."""
        has = (champion.facts.get("replay") or {}).get("formats") or {}
        return [name for name in self.pipeline.export.formats if name not in has]

    def _already(self, champion: Version, lacking: Sequence[str] = ()) -> bool:
        """The candidate is the champion: say so; return whether it is promoted once more, in the formats that it lacks."""
        again, names = bool(lacking) and self.run_spec.force, listed(lacking)
        if again:
            self.again = champion
            reason = f"forced: the model of version {champion.number} once more, with {names} (export.formats)"
        else:
            reason = f"the candidate is the champion, version {champion.number}: there is nothing to promote"
        verdict = "forced" if again else ALREADY
        self.run_result.verdict = Verdict(
            verdict=verdict,
            promote=again,
            reasons=(Reason(verdict=verdict, summary=reason),),
            champion=None if again else Model(version=champion.number),
        )
        self.run_result.facts = {name: champion.facts.get(name) for name in ("metrics", "baselines")}
        if lacking and not again:
            text = f"version {champion.number} was promoted without {names} (export.formats): headway export writes the same "
            text += "model with it, and headway run --force promotes that as a new version"
            self.run_result.notes.append(Note(text=text))
        now, kept = self.pipeline.evaluation.threshold, champion.facts.get("threshold") or {}
        if (now and now.model_dump(mode="json")) != kept.get("config"):
            value = number(kept["value"]) if kept.get("value") is not None else "none was chosen: 0.5"
            text = f"the model card and `classify` of version {champion.number} keep the threshold that it was promoted with "
            text += f"({value}); evaluation.threshold takes effect with the next version. "
            text += "headway evaluate shows what it chooses on the eval rows"
            self.run_result.notes.append(Note(text=text))
        return again
