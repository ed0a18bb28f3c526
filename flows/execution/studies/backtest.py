"""The pipeline over its past windows: each trained as it would have been then, and judged on the span after.

    found = backtest(run_spec, report, windows=12)
    found.windows[-1]            # Window(until="2013-06", verdict="promote", candidate={...}, champion={...}, ...)

The champion of a window is the model that the gate would have promoted in the windows before it; the first window has none.
Champions stand in a registry of the backtest's own, which is removed afterwards, so that nothing in production changes. Outputs
lie in the store as those of any run: a second backtest, and runs over the same windows, find them there.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from flows.dag.run_spec import RunResult, RunSpec
from flows.execution.studies.study import Run, studying
from flows.progress.reporter import Reporter
from flows.records import Metrics
from flows.tell.rendering.tables import Table
from headway.config import Frozen
from headway.errors import ConfigError, DataError
from headway.evaluation.verdict import ModelMetrics
from headway.messages import agree, counted, window_text
from headway.sources.discovery.spans import spans
from headway.sources.discovery.window import select_window
from headway.storage.store import Store
from headway.tabular.splits import window_splits
from headway.tasks.table import direction

MODEL = "{}.backtest"
"""The name of the backtest's registry; no pipeline can have it."""


class Window(Frozen):
    """A past window: its candidate, and the champion of its time, on the eval rows of its last spans."""

    until: str
    verdict: str | None
    """failed: there is no candidate, for `error`."""
    train: tuple[str, ...] = ()
    rows: int | None = None
    primary: str | None = None
    better: str | None = None
    """Whether a higher or a lower metric is, where only its author knows."""
    candidate: Metrics = Field(default_factory=dict)
    champion: Metrics | None = None
    champion_of: str | None = None
    """The last span of the window that made the champion."""
    baselines: dict[str, Metrics] = Field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    error: str | None = None


class Backtest(Frozen):
    pipeline: str
    primary: str | None
    windows: tuple[Window, ...]
    verdicts: dict[str, int]
    means: dict[str, float | None]
    """Of candidate, champion and baselines, over the windows that have a champion; where none has, over all."""
    candidate_better: int
    """In how many of the windows that have a champion."""
    compared: int

    @property
    def table(self) -> Table:
        """The primary metric of candidate, champion and baselines in each window, and the verdict."""
        primary = str(self.primary)
        rows = [
            {
                "until": row.until,
                "trained on": window_text(row.train),
                "rows": row.rows,
                "candidate": row.candidate.get(primary),
                "champion": (row.champion or {}).get(primary),
                "champion of": row.champion_of,
                **{who: metrics.get(primary) for who, metrics in row.baselines.items()},
                "verdict": str(row.verdict) + (f": {row.error.splitlines()[0]}" if row.error else ""),
            }
            for row in self.windows
        ]
        title = f"{self.pipeline}: {self.primary or 'no metric'} of each window on the span after it"
        return Table(title, rows, whole=("verdict",))


def backtest(run_spec: RunSpec, report: Reporter, *, windows: int, wait_seconds: float = 0.0) -> Backtest:
    """Train and judge the pipeline on each of its past windows; see the module.

    Args:
        run_spec: `until` is the last window's last span, `window` the size of each.
        windows: how many, the last ones.

    Raises:
        ConfigError: the split is not by time, or there are too few spans.
        Locked: a run of this pipeline is going on.
    """
    pipeline = run_spec.loaded.pipeline
    if not pipeline.source.has_spans:
        raise ConfigError(
            "the source is one span, and a backtest trains on some and judges on the next",
            where=f"{run_spec.loaded.file}: source.path",
            fix="write one file or folder per day or month, and its place in the path: data/{span}.csv",
        )
    if pipeline.split.mode != "time":
        raise ConfigError(
            f"split.mode is {pipeline.split.mode}, so a window is judged on rows of its own spans, not of the next one",
            where=f"{run_spec.loaded.file}: split.mode",
            fix="--set 'split={mode: time}'",
        )
    ends = _ends(run_spec, windows)
    name = MODEL.format(pipeline.name)
    rows: list[Window] = []
    with studying(run_spec, report, name=name, wait_seconds=wait_seconds) as run:
        _forget(run_spec.store, name)
        try:
            for until in ends:
                report.note(f"window up to {until} ({len(rows) + 1} of {len(ends)})")
                rows.append(_window(replace(run_spec, until=until, model=name, force=False, last=None), run))
        finally:
            _forget(run_spec.store, name)
    return _summary(pipeline.name, rows)


def _ends(run_spec: RunSpec, windows: int) -> list[str]:
    """Return the last spans of the windows, oldest first: those with enough spans before them to train on."""
    config = run_spec.loaded.pipeline
    every = spans(config.source)
    last = select_window(every, None, run_spec.until, config.source.gaps)[-1]
    before = every[: every.index(last) + 1]
    held_out = config.split.eval_spans + config.split.test_spans
    ends = []
    for until in before[-windows:]:
        try:
            window = run_spec.chosen_window.spans(until, before)
        except ConfigError:  # the first spans have too little before them
            continue
        if len(window) > held_out:
            ends.append(until)
    if not ends:
        raise ConfigError(
            f"{counted(len(before), 'span')} up to {last} {agree(len(before), 'is', 'are')} too few to train on some and "
            "judge on the next",
            where=f"{run_spec.loaded.file}: source.path",
            fix="a smaller --window, or more spans",
        )
    return ends


def _window(run_spec: RunSpec, run: Run) -> Window:
    """Run one window, and make the promotion that would have followed."""
    try:
        result = run(run_spec)
    except DataError as error:
        return Window(until=run_spec.until, verdict="failed", error=str(error))
    verdict, evaluation = result.verdict, result.evaluation
    metrics = verdict.metrics if verdict else ModelMetrics()
    champion = run_spec.registry.champion()
    if verdict is not None and verdict.promote:
        _promote(run_spec, result)
    return Window(
        until=run_spec.until,
        train=tuple(span for span, _ in window_splits(run_spec.loaded.pipeline.split, result.spans)["train"]),
        rows=evaluation.rows if evaluation else None,
        verdict=verdict.verdict if verdict else None,
        primary=verdict.primary if verdict else None,
        better=verdict.better if verdict else None,
        candidate=metrics.candidate or (evaluation.metrics if evaluation else {}),
        champion=metrics.champion,
        champion_of=None if champion is None else champion.facts.get("until"),
        baselines=metrics.baselines,
        reasons=tuple(verdict.sentences) if verdict else (),
    )


def _promote(run_spec: RunSpec, result: RunResult) -> None:
    assert result.export is not None
    saved_model = run_spec.store.local(result.export.path) / result.export.get()["saved_model"]
    version = run_spec.registry.publish(saved_model, result.facts | {"until": run_spec.until})
    run_spec.registry.promote(version.number, reason="backtest")


def _forget(store: Store, name: str) -> None:
    for folder in ("models", "serving"):
        if (path := store.root / folder / name).exists():
            store.discard(path)


def _summary(name: str, rows: Sequence[Window]) -> Backtest:
    judged = [row for row in rows if row.primary]
    primary = judged[-1].primary if judged else None
    better = direction(primary, judged[-1].better if judged else None)
    sides = [{"candidate": row.candidate, "champion": row.champion or {}, **row.baselines} for row in judged]
    known = [{who: metrics.get(str(primary)) for who, metrics in row.items()} for row in sides]
    compared = [row for row in known if row["champion"] is not None]
    gains = [better * ((row["candidate"] or 0.0) - (row["champion"] or 0.0)) for row in compared]
    return Backtest(
        pipeline=name,
        primary=primary,
        windows=tuple(rows),
        verdicts=dict(Counter(str(row.verdict) for row in rows)),
        means={who: _mean([row.get(who) for row in compared or known]) for row in known for who in row},
        candidate_better=sum(gain > 0 for gain in gains),
        compared=len(gains),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
