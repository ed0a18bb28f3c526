"""Tuning: tries settings of the training and the model, each judged by the loss on a holdout of the train rows.

    found = tune(context, report, trials=20)
    found.best                # Trial(number=7, loss=0.41, overrides={...}, ...); None: no trial beats the pipeline

A trial is one training; the eval rows of the gate are never read. Trials reuse the ingested examples and the fitted transform of
earlier trials, studies and runs, so that each trial costs only its training. The study's journal is a file in the store: a second
`tune` goes on where the first ended, even if the first was killed. A killed training goes on from its checkpoint. A study holds
the pipeline's run lock and one TensorFlow process. It promotes nothing, and writes no record of a run.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from flows.config.extras import install_command
from flows.config.pipeline import LoadedPipeline
from flows.config.tune_config import Range, Space, default_space, suggest
from flows.pipeline.context import Context
from flows.pipeline.dag import walk
from flows.pipeline.engine import Engine
from flows.pipeline.listeners import Reporter
from headway.config import Frozen
from headway.errors import ConfigError, DataError, Pruned
from headway.messages import counted, number
from headway.registry.gc import run_lease
from headway.registry.leases import WAIT_SECONDS
from headway.stages.step import Output
from headway.storage.atomic_io import replace_text
from headway.storage.fingerprint import fingerprint
from tfcore.runtime.tensorflow_process import Child, ChildError
from tfcore.train.auto import resolve
from tfcore.train.request import Pruning, TrainRequest, TrialConfig, storage_of

OVERLAY = "tuned.yaml"
"""The file beside pipeline.yaml to which the best settings are written."""
STARTUP = 8
"""The number of trials that are drawn at random before the sampler learns from them."""
FAILURES = (ConfigError, DataError, ChildError)
"""Errors by which a trial fails while the study goes on."""
Run = Callable[..., Context]
"""run(context, freeze=False, **runtime arguments of the train stage) -> the context after the run"""


class HoldoutLoss(Frozen):
    """The result of a training: its loss on the holdout (None: not finite, or the training failed), steps and seconds."""

    loss: float | None
    steps: int | None = None
    training_seconds: float | None = None


class Trial(HoldoutLoss):
    """One trial of a study: a training with the settings of one point of the search space."""

    number: int
    state: str
    """complete, pruned (ended early) or fail."""
    params: dict[str, Any]
    overrides: dict[str, Any] | None = None
    seconds: float | None = None
    error: str | None = None

    @property
    def order(self) -> tuple[bool, float, int]:
        """The sort key of trials, the best first: whether there is no loss, the loss, the number."""
        return self.loss is None, self.loss or 0.0, self.number


class Tuning(Frozen):
    """The result of a study: its trials, and the best settings."""

    pipeline: str
    study: str
    journal: str
    holdout: float
    space: Space
    base: HoldoutLoss
    """The training with the pipeline's own settings."""
    trials: tuple[Trial, ...]
    same: bool
    """Whether every complete trial has the same loss, as printed, as the pipeline's own settings."""
    best: Trial | None
    """The best trial; None: no trial is better than the pipeline's own settings."""
    overlay: str | None


def tune(
    context: Context,
    report: Reporter,
    *,
    trials: int | None = None,
    timeout: float | None = None,
    wait_seconds: float = 0.0,
) -> Tuning:
    """Runs trials until the study has `trials` of them. If the best beats the pipeline's own settings, writes it to tuned.yaml.

    Args:
        trials: the trials of the whole study, with those of earlier calls; None: `tune.trials` of the pipeline.
        timeout: seconds after which no further trial starts.

    Raises:
        ConfigError: Optuna is missing, or the space does not fit the pipeline.
        DataError, ConfigError, ChildError: no trial of the study is complete; the first error of this call.
        Locked: a run of this pipeline is going on, or `headway clean` does not end.
    """
    optuna, loaded = _optuna(), context.loaded
    config, training = loaded.pipeline.tune, loaded.pipeline.training
    with _runs(context, report, wait_seconds) as run:
        fitted = run(replace(context, last="transform"), freeze=True)
        space = space_of(loaded, fitted)
        check_space(loaded, fitted, space)
        if training.warm_start is not None:
            begin = "trials begin with initial weights, without training.warm_start"
            report.note(f"{begin}: the champion knows the holdout's rows")
        if training.ranking is not None:
            judged = "trials are judged by the loss of single rows"
            report.note(f"{judged}, which says little of their order: the gate judges that")
        report.note("the pipeline's own settings, on the holdout")
        assert fitted.settings is not None
        early = fitted.settings.training.get("early_stopping")
        trial = TrialConfig(holdout=early["holdout"] if early else config.holdout)
        context = replace(context, last="train", trial=trial)
        base = run(context).outputs[-1]
        pruner = None if config.pruner == "none" else config.pruner
        # what the trials have in common, so that other rows or another space are another study
        common = {"base": base.fingerprint, "space": {k: str(v) for k, v in space.items()}, "pruner": pruner}
        digest = fingerprint(common)[:16]
        study = _Study(optuna, context, run, report, fitted, _holdout_loss(base), space, digest, pruner)
        study.go(config.trials if trials is None else trials, None if timeout is None else time.monotonic() + timeout)
        return study.result(trial.holdout)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            "tuning needs Optuna, which is not installed", where="headway tune", fix=install_command("tune")
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


@contextlib.contextmanager
def _runs(context: Context, report: Reporter, wait_seconds: float) -> Iterator[Run]:
    """Holds the pipeline's lock and a TensorFlow process during the block; yields the function that runs the DAG."""
    context.store.create()
    name = f"{context.loaded.pipeline.name}.tune"
    lock, lease_seconds = context.store.lock(f"run-{context.loaded.pipeline.name}", {"run": name}), WAIT_SECONDS
    with (
        lock.held(wait_seconds=wait_seconds, on_wait=report.note),
        run_lease(context.store, name, name, wait_seconds=max(wait_seconds, lease_seconds), on_wait=report.note),
        Child(on_line=report.relay) as child,
    ):
        told: set[str] = set()

        def tell(output: Output) -> None:
            if output.fingerprint not in told:  # what trials share is told once
                report.output(output)
            told.add(output.fingerprint)

        def run(variant: Context, *, freeze: bool = False, **training: Any) -> Context:
            report.check()
            runtime = {TrainRequest.name: training}
            engine = Engine(context.store, child=child, report=report, on_output=tell, runtime=runtime)
            return walk(replace(variant, freezes=freeze), engine)

        yield run


@dataclass
class _Study:
    """An Optuna study, kept in a journal file in the store."""

    optuna: Any
    context: Context
    """The context of a trial with the pipeline's own settings."""
    run: Run
    report: Reporter
    fitted: Context
    """The context of the unchanged pipeline after its transform."""
    base: HoldoutLoss
    space: Space
    digest: str
    pruner: str | None
    first_error: Exception | None = None

    def __post_init__(self) -> None:
        store, name = self.context.store, self.context.loaded.pipeline.name
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
        """Runs trials until the study has `trials` of them, or `ends` has passed. Raises the first error if none is complete."""
        for left in self.study.get_trials(deepcopy=False, states=(self.states.RUNNING,)):
            # its process died: the same settings again, from the training's checkpoint
            self.study.tell(left.number, state=self.states.FAIL)
            self.study.enqueue_trial(left.params)
        while (done := len(self.trials())) < trials:
            if ends is not None and time.monotonic() >= ends:
                self.report.note(f"the study has used its time, after {counted(done, 'trial')}")
                break
            self._trial(done + 1, trials)
            self.context.store.replace(self.journal, self.journal.read_text(encoding="utf-8"))
        if self.first_error is not None and not any(trial.state == "complete" for trial in self.trials()):
            raise self.first_error

    def trials(self) -> tuple[Trial, ...]:
        """Returns the trials that have ended; a trial whose process died is left out."""
        ended = (self.states.COMPLETE, self.states.PRUNED, self.states.FAIL)
        return tuple(
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
            if trial.state != self.states.FAIL or "error" in trial.user_attrs
        )

    def _trial(self, ordinal: int, of: int) -> None:
        # settings follow from the trials before, and how many they are: a study that was interrupted draws the same
        self.study.sampler = self.optuna.samplers.TPESampler(
            seed=self.context.chosen_seed + ordinal, n_startup_trials=STARTUP
        )
        trial = self.study.ask()
        point = suggest(trial, self.space)
        settings = ", ".join(f"{short(key)} {setting_text(value)}" for key, value in point.items())
        self.report.note(f"trial {trial.number} ({ordinal} of {of}): {settings}")
        began = time.perf_counter()
        value, state, facts = None, self.states.FAIL, dict[str, Any]()
        try:
            facts["overrides"] = overrides_at(self.context.loaded, self.fitted, point)
            trained = self._train(facts["overrides"], trial.number)
            facts |= trained.model_dump(exclude={"loss"})
            if (value := trained.loss) is None:
                facts["error"] = "its loss on the holdout is not a finite number"
            else:
                state, own = self.states.COMPLETE, "the pipeline's own settings"
                own = f"{own} have none" if self.base.loss is None else f"{number(self.base.loss)} with {own}"
                self.report.note(f"  loss on the holdout: {number(value)} ({own})")
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

    def _train(self, overrides: Mapping[str, Any], trial: int) -> HoldoutLoss:
        """Trains a trial, or finds its stored training, and returns its loss."""
        training: dict[str, Any] = {}
        if self.pruner is not None:
            study = {"journal": self.journal, "study": self.digest, "trial": trial, "pruner": self.pruner}
            training["pruning"] = Pruning.model_validate(study).model_dump(mode="json")
        context = replace(self.context, loaded=self.context.loaded.with_overrides(overrides))
        return _holdout_loss(self.run(context, **training).outputs[-1])

    def result(self, holdout: float) -> Tuning:
        """Returns the study's result; writes the best settings to tuned.yaml if they beat the pipeline's own."""
        trials, own, loaded = self.trials(), self.base.loss, self.context.loaded
        complete = [trial for trial in trials if trial.state == "complete"]
        same = own is not None and bool(complete) and all(number(trial.loss) == number(own) for trial in complete)
        better = [trial for trial in complete if not same and (own is None or (trial.loss or 0.0) < own)]
        best = min(better, key=lambda trial: trial.order, default=None)
        overlay = loaded.folder / OVERLAY
        if best is not None:
            replace_text(overlay, overlay_text(best, own, len(trials)))
        return Tuning(
            pipeline=loaded.pipeline.name,
            study=self.digest,
            journal=str(self.journal),
            holdout=holdout,
            space=self.space,
            base=self.base,
            trials=trials,
            same=same,
            best=best,
            overlay=None if best is None else str(overlay),
        )


def _holdout_loss(output: Output) -> HoldoutLoss:
    result = output.json()
    return HoldoutLoss(loss=result["holdout_loss"], steps=result["steps"], training_seconds=result["seconds"])


def setting_text(value: Any) -> str:
    """Returns a setting's value as text, with all the digits that it was drawn with, so that it may be copied."""
    if isinstance(value, list):
        return "-".join(map(str, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def short(key: str) -> str:
    """Returns the short name of a key in tables: learning_rate for training.learning_rate.initial."""
    return key.removesuffix(".initial").rpartition(".")[2]


def overlay_text(best: Trial, own: float | None, trials: int) -> str:
    """Returns the best settings as YAML; a comment has their loss, and `own`, the loss of pipeline.yaml's settings."""
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


def space_of(loaded: LoadedPipeline, base: Context) -> Space:
    """Returns the search space that pipeline.yaml sets, else the default search space of the pipeline's model.

    Args:
        base: the context of the unchanged pipeline after its transform.
    """
    if loaded.pipeline.tune.space:
        return loaded.pipeline.tune.space
    assert base.settings is not None
    model = None if loaded.pipeline.model.user_defined else base.settings.model
    return default_space(base.settings.training, model)


def overrides_at(loaded: LoadedPipeline, base: Context, point: Mapping[str, Any]) -> dict[str, Any]:
    """Returns {key such as training.learning_rate: value}, the overrides of the pipeline that set a point of the search space.

    A deeper key of the point, such as `training.learning_rate.initial`, changes one entry within the key's present value.
    """
    overrides = {key: value for key, value in point.items() if key.count(".") == 1}
    nested = {key: value for key, value in point.items() if key not in overrides}
    if not nested:
        return overrides
    pipeline = loaded.with_overrides(overrides).pipeline
    training, model = resolve(pipeline.training, pipeline.model, base.data_facts)
    settings = {"training": training.model_dump(mode="json"), "model": model.model_dump(mode="json")}
    for key, value in nested.items():
        section, name, *inner, last = key.split(".")
        whole = overrides.setdefault(f"{section}.{name}", settings[section].get(name))
        at = whole
        for part in inner:
            at = at.get(part) if isinstance(at, dict) else None
        if not isinstance(at, dict):
            raise ConfigError(
                f"{section}.{name} is {whole!r} here, which has no {last}",
                where="tune.space",
                fix=f"set {section}.{name} in the pipeline, or leave the key out of the space",
            )
        at[last] = value
    return overrides


def check_space(loaded: LoadedPipeline, base: Context, space: Space) -> None:
    """Loads the pipeline with each value of the space, one key at a time: each choice, or both ends of a range.

    Raises:
        ConfigError: a value does not fit the pipeline; the error names its key.
    """
    for key, values in space.items():
        for value in values.ends() if isinstance(values, Range) else values:
            try:
                loaded.with_overrides(overrides_at(loaded, base, {key: value}))
            except ConfigError as error:
                where = f"{loaded.file}: tune.space: {key}"
                fix = error.fix or "correct the key, or the values to choose from"
                raise ConfigError(f"{value!r} does not fit: {error.problem}", where=where, fix=fix) from None
