"""Tuning: tries settings of the training and the model, each judged by the loss on a holdout of the train rows.

    result = tune(run_spec, load, report, trials=20)
    result["best"]            # {"number": 7, "loss": 0.41, "overrides": {...}, ...}; None: the pipeline's own are best

The rows that the gate judges on are never looked at: a trial ends with its training. Trials share the ingested examples and
the fitted transform, so each costs its training only. The study's journal is a file in the store: a second `tune` goes on
where the first ended, however it ended; a training that was killed goes on from its checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml

from flows.config.extras import command
from flows.config.pipeline import LoadedPipeline
from flows.config.tune_config import Range, Space
from flows.dag.run_spec import RunResult, RunSpec
from flows.execution.studies.search_space import check_space, overrides_at, space_of, suggest
from flows.execution.studies.study import Load, Run, studying
from flows.execution.tensorflow_process import ChildError
from flows.progress.reporter import Reporter
from headway.errors import ConfigError, DataError, Pruned
from headway.messages import counted, number
from headway.storage.atomic_io import replace_text
from headway.storage.fingerprint import fingerprint
from tfcore.train.request import Pruning, TrialConfig
from tfcore.train.settings.studies import storage_of

NAME = "{}.tune"
OVERLAY = "tuned.yaml"
"""The file beside the pipeline that gets the best settings."""
STARTUP = 8
"""Trials drawn at random before the sampler learns from them."""


def tune(
    run_spec: RunSpec,
    load: Load,
    report: Reporter,
    *,
    trials: int | None = None,
    timeout: float | None = None,
    wait_seconds: float = 0.0,
) -> dict[str, Any]:
    """Bring the pipeline's study to `trials` trials; see the module.

    Args:
        load: the pipeline of `run_spec` with keys set over it.
        trials: of the study in all, those of earlier calls among them; None: `tune.trials` of the pipeline.
        timeout: seconds after which no further trial begins.

    Returns:
        pipeline, study (its digest), journal, holdout (a share of the train rows), space, base (the pipeline's own settings as
        a trial), trials (number, state, loss, seconds, steps, params), same (whether no trial has another loss than base), best
        (or None), overlay (the file written, or None).

    Raises:
        ConfigError: Optuna is missing, or the space does not fit the pipeline.
        DataError, ConfigError: no trial could be trained; the first one's error.
    """
    optuna = _optuna()
    config = run_spec.loaded.pipeline.tune
    with studying(run_spec, report, name=NAME.format(run_spec.loaded.pipeline.name), wait_seconds=wait_seconds) as run:
        found = run(replace(run_spec, last="transform"), freeze=True)
        space = space_of(run_spec.loaded, found)
        check_space(run_spec.loaded, load, found, space)
        if run_spec.loaded.pipeline.training.warm_start is not None:
            report.note(
                "trials begin with initial weights, without training.warm_start: the champion knows the holdout's rows"
            )
        if run_spec.loaded.pipeline.training.ranking is not None:
            report.note(
                "trials are judged by the loss of single rows, which says little of their order: the gate judges that"
            )
        report.note("the pipeline's own settings, on the holdout")
        assert found.training is not None
        early = found.training["training"].get("early_stopping")
        trial = TrialConfig(holdout=early["holdout"] if early else config.holdout)
        spec = replace(run_spec, last="train", trial=trial)
        base = run(spec)
        pruner = None if config.pruner == "none" else config.pruner
        # what the trials have in common, so that other rows or another space are another study
        digest = fingerprint(
            {"base": base.outputs[-1].fingerprint, "space": {k: str(v) for k, v in space.items()}, "pruner": pruner}
        )[:16]
        study = _Study(optuna, spec, load, run, report, base, space, digest, pruner)
        ends = None if timeout is None else time.monotonic() + timeout
        study.go(config.trials if trials is None else trials, ends)
        return study.result()


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            "tuning needs Optuna, which is not installed", where="headway tune", fix=command("tune")
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class _Study:
    """An Optuna study in a journal in the store."""

    def __init__(
        self,
        optuna: Any,
        run_spec: RunSpec,
        load: Load,
        run: Run,
        report: Reporter,
        base: RunResult,
        space: Space,
        digest: str,
        pruner: str | None,
    ):
        self._optuna, self._run_spec, self._load, self._run, self._report = optuna, run_spec, load, run, report
        self._base, self._space, self._digest, self._pruner = base, space, digest, pruner
        store, name = run_spec.store, run_spec.loaded.pipeline.name
        self.journal = store.root / "studies" / name / f"tune-{digest}.journal"
        self.journal.parent.mkdir(parents=True, exist_ok=True)
        here = self.journal.stat().st_size if self.journal.exists() else 0
        with contextlib.suppress(FileNotFoundError):
            if len(kept := store.read(self.journal)) > here:  # a store in a bucket has trials of another machine
                self.journal.write_bytes(kept)
        self._study = optuna.create_study(study_name=digest, storage=storage_of(self.journal), load_if_exists=True)
        self._first_error: Exception | None = None

    def go(self, trials: int, ends: float | None) -> None:
        """Make the trials that are left."""
        states = self._optuna.trial.TrialState
        for left in self._study.get_trials(deepcopy=False, states=(states.RUNNING,)):
            # its process died: the same settings again, from the training's checkpoint
            self._study.tell(left.number, state=states.FAIL)
            self._study.enqueue_trial(left.params)
        while (done := self._done()) < trials:
            if ends is not None and time.monotonic() >= ends:
                self._report.note(f"the time is over after {counted(done, 'trial')}")
                break
            self._trial(done + 1, trials)
            self._run_spec.store.replace(self.journal, self.journal.read_text(encoding="utf-8"))
        if self._first_error is not None and not self._of("COMPLETE"):
            raise self._first_error

    def _of(self, *states: str) -> list[Any]:
        return [trial for trial in self._study.get_trials(deepcopy=False) if trial.state.name in states]

    def _done(self) -> int:
        """Count the trials that ended by themselves; one whose process died does not count."""
        return len(self._of("COMPLETE", "PRUNED")) + sum("error" in trial.user_attrs for trial in self._of("FAIL"))

    def _trial(self, ordinal: int, of: int) -> None:
        # settings follow from the trials before, and how many they are: a study that was interrupted draws the same
        self._study.sampler = self._optuna.samplers.TPESampler(
            seed=self._run_spec.chosen_seed + ordinal, n_startup_trials=STARTUP
        )
        trial = self._study.ask()
        point = suggest(trial, self._space)
        self._report.note(f"trial {trial.number} ({ordinal} of {of}): {point_text(point)}")
        began = time.perf_counter()
        states = self._optuna.trial.TrialState
        value, state, facts = None, states.FAIL, dict[str, Any]()
        try:
            overrides = overrides_at(self._load, self._base, point)
            facts["overrides"] = overrides
            trained = self._train(self._load(overrides), trial.number)
            facts |= {"steps": trained["steps"], "training_seconds": trained["seconds"]}
            value = trained["holdout_loss"]
            if value is None:
                facts["error"] = "its loss on the holdout is not a finite number"
            else:
                state = states.COMPLETE
                self._report.note(f"  loss on the holdout: {number(value)} ({self._compared(value)})")
        except Pruned as ended:
            state = states.PRUNED
            self._report.note(f"  {ended.problem}")
        except (ConfigError, DataError, ChildError) as error:
            self._first_error = self._first_error or error
            facts["error"] = str(error)
            self._report.note(f"  failed: {error}")
        facts["seconds"] = round(time.perf_counter() - began, 3)
        for name, fact in facts.items():
            trial.set_user_attr(name, fact)
        self._study.tell(trial, value, state=state)

    def _train(self, loaded: LoadedPipeline, number_of: int) -> dict[str, Any]:
        """Train a trial, or find it trained; its result."""
        training: dict[str, Any] = {}
        if self._pruner is not None:
            study = {"journal": self.journal, "study": self._digest, "trial": number_of, "pruner": self._pruner}
            training["pruning"] = Pruning.model_validate(study).model_dump(mode="json")
        return self._run(replace(self._run_spec, loaded=loaded), **training).outputs[-1].get()

    def _compared(self, loss: float) -> str:
        base = self._base.outputs[-1].get()["holdout_loss"]
        if base is None:
            return "the pipeline's own settings have none"
        return f"{number(base)} with the pipeline's own settings"

    def result(self) -> dict[str, Any]:
        """The table, and the best settings if they beat the pipeline's own; these are written beside the pipeline."""
        base = self._base.outputs[-1].get()
        trials = [_facts(trial) for trial in self._of("COMPLETE", "PRUNED", "FAIL") if trial.user_attrs]
        whole = [trial for trial in trials if trial["state"] == "complete"]
        best = min(whole, key=lambda trial: trial["loss"], default=None)
        own = base["holdout_loss"]
        if best is not None and own is not None and best["loss"] >= own:
            best = None
        same = own is not None and bool(whole) and all(number(trial["loss"]) == number(own) for trial in whole)
        loaded, trial = self._run_spec.loaded, self._run_spec.trial
        assert trial is not None
        result = {
            "pipeline": loaded.pipeline.name,
            "study": self._digest,
            "journal": str(self.journal),
            "holdout": trial.holdout,
            "space": {key: _described(values) for key, values in self._space.items()},
            "base": {"loss": own, "steps": base["steps"], "training_seconds": base["seconds"]},
            "trials": trials,
            "same": same,
            "best": None if same else best,
            "overlay": None,
        }
        if best is not None and not same:
            path = loaded.folder / OVERLAY
            replace_text(path, overlay_text(best, own, len(trials)))
            result["overlay"] = str(path)
        return result


def _facts(trial: Any) -> dict[str, Any]:
    facts = {
        name: trial.user_attrs.get(name) for name in ("overrides", "steps", "seconds", "training_seconds", "error")
    }
    params = {key: json.loads(value) if isinstance(value, str) else value for key, value in trial.params.items()}
    return {"number": trial.number, "state": trial.state.name.lower(), "loss": trial.value, "params": params} | facts


def _described(values: Range | tuple[Any, ...]) -> Any:
    return values.model_dump(mode="json") if isinstance(values, Range) else list(values)


def point_text(point: Mapping[str, Any]) -> str:
    """A point of the space in one line, keys by their last word."""
    return ", ".join(
        f"{short(key)} {value if not isinstance(value, float) else f'{value:.4g}'}" for key, value in point.items()
    )


def short(key: str) -> str:
    """A key's name in a table: learning_rate of training.learning_rate.initial."""
    return key.removesuffix(".initial").rpartition(".")[2]


def overlay_text(best: Mapping[str, Any], own: float | None, trials: int) -> str:
    """The best settings as YAML, to be copied into the pipeline or named by `--set @tuned.yaml`."""
    sections: dict[str, dict[str, Any]] = {}
    for key, value in best["overrides"].items():
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = value
    versus = "" if own is None else f"; {number(own)} with the pipeline's own settings"
    return (
        f"# headway tune, {trials} trials: a loss of {number(best['loss'])} on a holdout of the train rows{versus}\n"
        "# headway run --set @tuned.yaml uses these settings; to keep them, copy them into pipeline.yaml\n"
        + yaml.safe_dump(sections, sort_keys=False, default_flow_style=None)
    )
