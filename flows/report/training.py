"""The training: its settings in words, its curves, and what came out."""

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.report.data import tick
from flows.report.model import Chart, Section, Table
from flows.report.plot import FIRST, GOOD, MUTED, SECOND, Plot, figure, thinned
from flows.report.results import RunResults
from headway.messages import counted, duration, number
from tfcore.train.request import Trained

_COLOURS = (FIRST, SECOND, GOOD)
_LINES = ("-", "-.", ":")
Point = Mapping[str, float | None]
"""The step, and what was recorded at it: loss, holdout_loss, learning_rate."""
Line = list[tuple[int, float]]
"""(step, value)"""
_BOTH = "Solid: the train rows. Dashed: the holdout."
_FACTS = {
    "steps": "steps",
    "epochs": "epochs",
    "rows": "rows seen",
    "parameters": "parameters",
    "final_loss": "last loss",
    "best_loss": "best loss on the holdout",
    "best_step": "at step",
    "stopped": "ended by",
    "steps_per_second": "steps/s",
    "strategy": "devices",
    "jit": "compiled by",
    "skipped": "steps skipped",
}


@dataclass(frozen=True)
class Training:
    """A training to tell of: one of a run's, or of a side of a comparison."""

    name: str
    results: RunResults
    title: str
    """The step's."""

    @functools.cached_property
    def result(self) -> Trained:
        return self.results.read(self.title, Trained) or Trained()

    @functools.cached_property
    def history(self) -> list[Point]:
        """The points of its curves; none where they are gone."""
        path = self.results.file(self.title, "history.json")
        return [] if path is None else thinned(recorded(path))

    def line(self, name: str) -> Line:
        return series(self.history, name)


def trained_by(results: RunResults) -> list[str]:
    """The titles of the trainings of a run."""
    return [title for title, output in results.outputs.items() if output.stage == "train"]


def training(results: RunResults) -> Section | None:
    """The part on the training; None of a run that did not come to it."""
    found = [Training(title, results, title) for title in trained_by(results)]
    if not found:
        return None
    chosen = results.record.training
    sentences = [f"{counted(chosen.rows, 'train row')}: {chosen.says}."] if chosen is not None else []
    sentences += [each.result.warm_start.says for each in found if each.result.warm_start is not None]
    sentences.append(f"The steps took {' and '.join(duration(each.result.seconds) for each in found)}.")
    return trainings(found, sentences)


def trainings(found: Sequence[Training], sentences: Sequence[str]) -> Section:
    """Trainings with their curves over one another, and what came out of each."""
    rows = [{"training": each.name, **_facts(each.result)} for each in found]
    charts = list(_charts(found[: len(_COLOURS)]))
    return Section("Training", sentences, charts, [Table("What came out", rows)])


def _facts(trained: Trained) -> dict[str, str | int | float]:
    """What came out of a training, by name."""
    known = {said: getattr(trained, name) for name, said in _FACTS.items()}
    return {said: tick(of, 4) if isinstance(of, float) else of for said, of in known.items() if of not in (None, 0)}


def recorded(path: Path) -> list[dict[str, float | None]]:
    """The points of a training's file; none where it is not on this machine."""
    try:
        return list(json.loads(path.read_text(encoding="utf-8"))["history"])
    except (OSError, ValueError, KeyError):
        return []


def series(points: Sequence[Point], name: str) -> Line:
    """(step, value) of each point that has one."""
    return [(int(p["step"] or 0), value) for p in points if isinstance(value := p.get(name), int | float)]


def _charts(found: Sequence[Training]) -> Iterator[Chart]:
    """The curves, each training in its colour."""
    styles = [
        # the first is seen below a second that is the same
        (
            each,
            {"color": colour, "linewidth": 2.8 if place == 0 and len(found) > 1 else 1.4, "linestyle": _LINES[place]},
        )
        for place, (colour, each) in enumerate(zip(_COLOURS, found, strict=False))
    ]
    keys = [(colour, each.name) for colour, each in zip(_COLOURS, found, strict=False)] if len(found) > 1 else []
    losses = [(each.line("loss"), style) for each, style in styles]
    held = [(each.line("holdout_loss"), {**style, "linestyle": (0, (3, 2))}) for each, style in styles]
    rates = [(each.line("learning_rate"), style) for each, style in styles]
    has_holdout = any(line for line, _ in held)
    best = found[0].result.best_step if len(found) == 1 and has_holdout else None
    if any(line for line, _ in losses):
        note = _BOTH if has_holdout else ""
        best_key = [(MUTED, f"best step, {best:,}")] if best is not None else []
        yield _chart("Loss", losses + held, [*keys, *best_key], best=best, note=note)
    if len({rate for line, _ in rates for _, rate in line}) > 1:
        yield _chart("Learning rate", rates, keys)


def _chart(
    what: str,
    lines: Sequence[tuple[Line, Mapping[str, Any]]],
    keys: Sequence[tuple[str, str]],
    *,
    best: int | None = None,
    note: str = "",
) -> Chart:
    """Values by step.

    Args:
        lines: each with its style.
        best: the step that was best.
    """

    def draw(axes: Plot) -> None:
        for line, style in lines:
            if line:
                axes.plot(*zip(*line, strict=True), marker="o" if len(line) < 8 else "", markersize=3, **style)
        if best is not None:
            axes.axvline(best, color=MUTED, linewidth=1, linestyle="--")
        axes.set_xlabel("step")
        axes.thousands_of_x()
        axes.set_xlim(left=0)
        axes.set_ylabel(what.lower())
        if what != "Loss":
            axes.set_ylim(bottom=0)

    ends = [f"from {number(line[0][1])} to {number(line[-1][1])} at step {line[-1][0]:,}" for line, _ in lines if line]
    said = f"{what} by step, {' and '.join(ends)}"
    title = f"{what} by step"
    return Chart(title, figure(draw, label=said), keys, note)
