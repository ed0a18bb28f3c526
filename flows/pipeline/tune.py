"""Tuning: tries settings of the training and the model, each judged by the loss on a holdout of the train rows.

    found = tune(run_spec, report, trials=20)
    found.best                # Trial(number=7, loss=0.41, overrides={...}, ...); None: the pipeline's own are best

The rows that the gate judges on are never looked at: a trial ends with its training. Trials share the ingested examples and
the fitted transform, so each costs its training only. The study's journal is a file in the store: a second `tune` goes on
where the first ended, however it ended; a training that was killed goes on from its checkpoint.
"""

import contextlib
import json
import time
from dataclasses import dataclass, replace
from typing import Any

import yaml

from flows.config.extras import command
from flows.config.pipeline import LoadedPipeline
from flows.dag.run_spec import RunResult, RunSpec
from flows.dag.step import Output
from flows.pipeline.search_space import check_space, overrides_at, space_of
from flows.pipeline.study import FAILURES, Run, studying
from flows.progress.reporter import Reporter
from headway.config import Frozen
from headway.errors import ConfigError, Pruned
from headway.messages import counted, number
from headway.storage.atomic_io import replace_text
from headway.storage.fingerprint import fingerprint
from tfcore.train.request import Pruning, TrialConfig
from tfcore.train.settings.studies import storage_of
from tfcore.train.settings.tune_config import Space, suggest

NAME = "{}.tune"
OVERLAY = "tuned.yaml"
"""The file beside the pipeline that gets the best settings."""
STARTUP = 8
"""Trials drawn at random before the sampler learns from them."""


class Tried(Frozen):
    """A training, judged by its loss on the holdout."""

    loss: float | None
    steps: int | None = None
    training_seconds: float | None = None


class Trial(Tried):
    number: int
    state: str
    """complete, pruned (ended early) or fail."""
    params: dict[str, Any]
    overrides: dict[str, Any] | None = None
    seconds: float | None = None
    error: str | None = None

    @property
    def order(self) -> tuple[bool, float, int]:
        """Best first."""
        return self.loss is None, self.loss or 0.0, self.number


class Tuning(Frozen):
    pipeline: str
    study: str
    journal: str
    holdout: float
    space: Space
    base: Tried
    """The pipeline's own settings."""
    trials: tuple[Trial, ...]
    same: bool
    """No trial has another loss than the pipeline's own settings."""
    best: Trial | None
    """None: the pipeline's own settings are as good."""
    overlay: str | None


def tune(
    run_spec: RunSpec,
    report: Reporter,
    *,
    trials: int | None = None,
    timeout: float | None = None,
    wait_seconds: float = 0.0,
) -> Tuning:
    """Bring the pipeline's study to `trials` trials; see the module.

    Args:
        trials: of the study in all, those of earlier calls among them; None: `tune.trials` of the pipeline.
        timeout: seconds after which no further trial begins.

    Raises:
        ConfigError: Optuna is missing, or the space does not fit the pipeline.
        DataError, ConfigError: no trial could be trained; the first one's error.
    """
    optuna = _optuna()
    config = run_spec.loaded.pipeline.tune
    with studying(run_spec, report, name=NAME.format(run_spec.loaded.pipeline.name), wait_seconds=wait_seconds) as run:
        found = run(replace(run_spec, last="transform"), freeze=True)
        space = space_of(run_spec.loaded, found)
        check_space(run_spec.loaded, found, space)
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
        early = found.training.training.get("early_stopping")
        trial = TrialConfig(holdout=early["holdout"] if early else config.holdout)
        spec = replace(run_spec, last="train", trial=trial)
        base = run(spec).outputs[-1]
        pruner = None if config.pruner == "none" else config.pruner
        # what the trials have in common, so that other rows or another space are another study
        common = {"base": base.fingerprint, "space": {k: str(v) for k, v in space.items()}, "pruner": pruner}
        study = _Study(optuna, spec, run, report, found, base, space, fingerprint(common)[:16], pruner)
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


@dataclass
class _Study:
    """An Optuna study in a journal in the store."""

    optuna: Any
    run_spec: RunSpec
    run: Run
    report: Reporter
    fitted: RunResult
    """Of the pipeline as it is, up to the transform."""
    base: Output
    """Its training."""
    space: Space
    digest: str
    pruner: str | None
    first_error: Exception | None = None

    def __post_init__(self) -> None:
        store, name = self.run_spec.store, self.run_spec.loaded.pipeline.name
        self.states = self.optuna.trial.TrialState
        self.journal = store.root / "studies" / name / f"tune-{self.digest}.journal"
        self.journal.parent.mkdir(parents=True, exist_ok=True)
        here = self.journal.stat().st_size if self.journal.exists() else 0
        with contextlib.suppress(FileNotFoundError):
            if len(kept := store.read(self.journal)) > here:  # a store in a bucket has trials of another machine
                self.journal.write_bytes(kept)
        storage = storage_of(self.journal)
        self.study = self.optuna.create_study(study_name=self.digest, storage=storage, load_if_exists=True)

    def go(self, trials: int, ends: float | None) -> None:
        """Make the trials that are left."""
        for left in self.study.get_trials(deepcopy=False, states=(self.states.RUNNING,)):
            # its process died: the same settings again, from the training's checkpoint
            self.study.tell(left.number, state=self.states.FAIL)
            self.study.enqueue_trial(left.params)
        # one whose process died does not count
        while (done := sum(trial.state != "fail" or trial.error is not None for trial in self.trials())) < trials:
            if ends is not None and time.monotonic() >= ends:
                self.report.note(f"the time is over after {counted(done, 'trial')}")
                break
            self._trial(done + 1, trials)
            self.run_spec.store.replace(self.journal, self.journal.read_text(encoding="utf-8"))
        if self.first_error is not None and not any(trial.state == "complete" for trial in self.trials()):
            raise self.first_error

    def trials(self) -> list[Trial]:
        """Those that ended by themselves, and those that a process left behind that died."""
        ended = (self.states.COMPLETE, self.states.PRUNED, self.states.FAIL)
        return [
            Trial(
                number=trial.number,
                state=trial.state.name.lower(),
                loss=trial.value,
                params={
                    key: json.loads(value) if isinstance(value, str) else value for key, value in trial.params.items()
                },
                **trial.user_attrs,
            )
            for trial in self.study.get_trials(deepcopy=False, states=ended)
        ]

    def _trial(self, ordinal: int, of: int) -> None:
        # settings follow from the trials before, and how many they are: a study that was interrupted draws the same
        self.study.sampler = self.optuna.samplers.TPESampler(
            seed=self.run_spec.chosen_seed + ordinal, n_startup_trials=STARTUP
        )
        trial = self.study.ask()
        point = suggest(trial, self.space)
        settings = ", ".join(f"{short(key)} {setting_text(value)}" for key, value in point.items())
        self.report.note(f"trial {trial.number} ({ordinal} of {of}): {settings}")
        began = time.perf_counter()
        value, state, facts = None, self.states.FAIL, dict[str, Any]()
        try:
            facts["overrides"] = overrides_at(self.run_spec.loaded, self.fitted, point)
            trained = self._train(self.run_spec.loaded.changed(facts["overrides"]), trial.number)
            facts |= {"steps": trained.steps, "training_seconds": trained.training_seconds}
            if (value := trained.loss) is None:
                facts["error"] = "its loss on the holdout is not a finite number"
            else:
                state = self.states.COMPLETE
                self.report.note(f"  loss on the holdout: {number(value)} ({self._own()})")
        except Pruned as ended:
            state = self.states.PRUNED
            self.report.note(f"  {ended.problem}")
        except FAILURES as error:
            self.first_error = self.first_error or error
            facts["error"] = str(error)
            self.report.note(f"  failed: {error}")
        for name, fact in (facts | {"seconds": round(time.perf_counter() - began, 3)}).items():
            trial.set_user_attr(name, fact)
        self.study.tell(trial, value, state=state)

    def _train(self, loaded: LoadedPipeline, number_of: int) -> Tried:
        """Train a trial, or find it trained."""
        training: dict[str, Any] = {}
        if self.pruner is not None:
            study = {"journal": self.journal, "study": self.digest, "trial": number_of, "pruner": self.pruner}
            training["pruning"] = Pruning.model_validate(study).model_dump(mode="json")
        return _tried(self.run(replace(self.run_spec, loaded=loaded), **training).outputs[-1])

    def _own(self) -> str:
        loss = _tried(self.base).loss
        own = "the pipeline's own settings"
        return f"{own} have none" if loss is None else f"{number(loss)} with {own}"

    def result(self) -> Tuning:
        """The table, and the best settings if they beat the pipeline's own; these are written beside the pipeline."""
        base, trials = _tried(self.base), tuple(trial for trial in self.trials() if trial.seconds is not None)
        whole = [trial for trial in trials if trial.state == "complete"]
        best = min(whole, key=lambda trial: trial.order, default=None)
        same = base.loss is not None and bool(whole) and all(number(t.loss) == number(base.loss) for t in whole)
        if same or (best is not None and base.loss is not None and (best.loss or 0.0) >= base.loss):
            best = None
        loaded, trial = self.run_spec.loaded, self.run_spec.trial
        assert trial is not None
        overlay = loaded.folder / OVERLAY
        if best is not None:
            replace_text(overlay, overlay_text(best, base.loss, len(trials)))
        return Tuning(
            pipeline=loaded.pipeline.name,
            study=self.digest,
            journal=str(self.journal),
            holdout=trial.holdout,
            space=self.space,
            base=base,
            trials=trials,
            same=same,
            best=best,
            overlay=None if best is None else str(overlay),
        )


def _tried(output: Output) -> Tried:
    result = output.get()
    return Tried(loss=result["holdout_loss"], steps=result["steps"], training_seconds=result["seconds"])


def setting_text(value: Any) -> str:
    """A value of a setting as it was drawn: it may be copied."""
    if isinstance(value, list):
        return "-".join(map(str, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def short(key: str) -> str:
    """A key's name in a table: learning_rate of training.learning_rate.initial."""
    return key.removesuffix(".initial").rpartition(".")[2]


def overlay_text(best: Trial, own: float | None, trials: int) -> str:
    """The best settings as YAML, to be copied into the pipeline or named by `--set @tuned.yaml`."""
    sections: dict[str, dict[str, Any]] = {}
    for key, value in (best.overrides or {}).items():
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = value
    versus = "" if own is None else f"; {number(own)} with the pipeline's own settings"
    return (
        f"# headway tune, {trials} trials: a loss of {number(best.loss)} on a holdout of the train rows{versus}\n"
        "# headway run --set @tuned.yaml uses these settings; to keep them, copy them into pipeline.yaml\n"
        + yaml.safe_dump(sections, sort_keys=False, default_flow_style=None)
    )
