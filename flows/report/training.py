"""The section on the training: its settings in words, its curves, and what came out."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flows.report.model import Chart, Section, Table
from flows.report.plot import FIRST, MUTED, Plot, figure, thinned
from flows.report.results import RunResults
from headway.messages import counted, duration, number
from tfcore.train.request import Trained

_STEP = "train"
Point = Mapping[str, float | None]
"""The step, and what was recorded at it: loss, holdout_loss, learning_rate."""
Line = list[tuple[int, float]]
"""(step, value)"""
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


def training(results: RunResults) -> Section | None:
    """Returns the section on the training; None if the run did not reach it."""
    if _STEP not in results.outputs:
        return None
    trained, chosen = results.read(_STEP, Trained) or Trained(), results.record.training
    sentences = [f"{counted(chosen.rows, 'train row')}: {chosen.says}."] if chosen is not None else []
    sentences += [trained.warm_start.says] if trained.warm_start is not None else []
    sentences.append(f"The steps took {duration(trained.seconds)}.")
    known = {said: getattr(trained, name) for name, said in _FACTS.items()}
    facts = {said: number(of) if isinstance(of, float) else of for said, of in known.items() if of not in (None, 0)}
    path = results.file(_STEP, "history.json")
    points = [] if path is None else thinned(read_history(path))
    tables = [Table("What came out", [facts])]
    return Section("Training", sentences, list(_charts(points, trained.best_step)), tables, fold="Curves and figures")


def read_history(path: Path) -> list[dict[str, float | None]]:
    """Returns the points in a training's history.json; an empty list if the file cannot be read."""
    try:
        return list(json.loads(path.read_text(encoding="utf-8"))["history"])
    except (OSError, ValueError, KeyError):
        return []


def _charts(points: Sequence[Point], best: int | None) -> Iterator[Chart]:
    loss, held, rate = (_line(points, name) for name in ("loss", "holdout_loss", "learning_rate"))
    if loss:
        note = "Solid: the train rows. Dashed: the holdout." if held else ""
        shown = best if held else None
        keys = [(MUTED, f"best step, {shown:,}")] if shown is not None else []
        yield _chart("Loss", [loss, held], keys, best=shown, note=note)
    if len({value for _, value in rate}) > 1:
        yield _chart("Learning rate", [rate])


def _line(points: Sequence[Point], name: str) -> Line:
    """Returns the (step, value) of each point that has a number under this name."""
    return [(int(p["step"] or 0), value) for p in points if isinstance(value := p.get(name), int | float)]


def _chart(
    what: str, lines: Sequence[Line], keys: Sequence[tuple[str, str]] = (), *, best: int | None = None, note: str = ""
) -> Chart:
    """Returns a chart of values by step.

    Args:
        lines: the second one is dashed.
        best: the step that was best.
    """

    def draw(axes: Plot) -> None:
        for place, line in enumerate(lines):
            if line:
                x, y = zip(*line, strict=True)
                axes.plot(x, y, color=FIRST, linestyle="--" if place else "-", marker=len(line) < 8)
        if best is not None:
            axes.axvline(best, color=MUTED, linewidth=1, linestyle="--")
        axes.frame("step", what.lower(), x_ends=(0, None), y_ends=(None if what == "Loss" else 0, None))

    ends = [f"from {number(line[0][1])} to {number(line[-1][1])} at step {line[-1][0]:,}" for line in lines if line]
    return Chart(f"{what} by step", figure(draw, label=f"{what} by step, {' and '.join(ends)}"), keys, note)
