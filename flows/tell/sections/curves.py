"""The training: its settings in words, its curves, and what came out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flows.tell.figures.drawing import FIRST, GOOD, SECOND, Plot, figure, thinned
from flows.tell.material import Material
from flows.tell.parts import Chart, Part, Table
from headway.messages import counted, duration, number

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


def training(material: Material) -> Part | None:
    """The part on the training; None of a run that did not come to it."""
    titles = [title for title, output in material.outputs.items() if output.stage == "train"]
    if not titles:
        return None
    chosen = material.record.training
    sentences = [f"{counted(chosen.rows, 'train row')}: {chosen.says}."] if chosen is not None else []
    began = [result["warm_start"]["says"] for result in map(material.result, titles) if result.get("warm_start")]
    took = [duration(material.result(title).get("seconds", 0.0)) for title in titles]
    sentences += [*began, f"The steps took {' and '.join(took)}."]
    charts = [chart for title in titles[:3] for chart in _curves(material, title, alone=len(titles) == 1)]
    rows = [{"training": title, **training_facts(material.result(title))} for title in titles]
    return Part("Training", sentences, charts, [Table("What came out", rows)])


def training_facts(result: Mapping[str, Any]) -> dict[str, Any]:
    """What came out of a training, by name."""
    return {name: _text(result.get(key)) for key, name in _FACTS.items() if result.get(key) not in (None, 0)}


def _text(value: Any) -> str:
    return number(value) if isinstance(value, int | float) else str(value)


def _curves(material: Material, title: str, *, alone: bool) -> list[Chart]:
    points = history(material, title)
    best = material.result(title).get("best_step")
    of = "" if alone else f" of {title}"
    charts = []
    if losses := series(points, "loss"):
        charts.append(_losses(losses, series(points, "holdout_loss"), best, title, of))
    rates = series(points, "learning_rate")
    if len({rate for _, rate in rates}) > 1 and alone:
        charts.append(_rates(rates, title, of))
    return charts


def history(material: Material, title: str) -> list[dict[str, Any]]:
    """The points of a training's curves; none where they are gone."""
    path = material.file(title, "history.json")
    return [] if path is None else thinned(json.loads(path.read_text(encoding="utf-8"))["history"])


def series(points: list[dict[str, Any]], name: str) -> list[tuple[int, float]]:
    """(step, value) of each point that has one."""
    return [(point["step"], point[name]) for point in points if isinstance(point.get(name), int | float)]


def _losses(
    losses: list[tuple[int, float]], held: list[tuple[int, float]], best: int | None, title: str, of: str
) -> Chart:
    def draw(axes: Plot) -> None:
        axes.plot(*zip(*losses, strict=True), color=FIRST, marker="o" if len(losses) < 8 else "", markersize=3)
        if held:
            axes.plot(*zip(*held, strict=True), color=SECOND, marker="o" if len(held) < 8 else "", markersize=3)
        if best is not None and held:
            axes.axvline(best, color=GOOD, linewidth=1, linestyle="--")
        steps_axis(axes)
        axes.set_ylabel("loss")

    said = f"Loss by step{of}: from {number(losses[0][1])} to {number(losses[-1][1])} at step {losses[-1][0]:,}"
    keys = [("first", "train rows")] + ([("second", "holdout")] if held else [])
    keys += [("good", f"best step, {best:,}")] if best is not None and held else []
    return Chart(f"Loss by step{of}", figure(draw, name=f"loss {title}", label=said), keys)


def _rates(rates: list[tuple[int, float]], title: str, of: str) -> Chart:
    def draw(axes: Plot) -> None:
        axes.plot(*zip(*rates, strict=True), color=FIRST, marker="o" if len(rates) < 8 else "", markersize=3)
        steps_axis(axes)
        axes.set_ylim(bottom=0)
        axes.ticklabel_format(axis="y", scilimits=(-3, 3))
        axes.set_ylabel("learning rate")

    said = f"Learning rate by step{of}, at most {number(max(rate for _, rate in rates))}"
    return Chart(f"Learning rate by step{of}", figure(draw, name=f"rate {title}", label=said))


def steps_axis(axes: Plot) -> None:
    """x is the step."""
    axes.set_xlabel("step")
    axes.thousands_of_x()
    axes.set_xlim(left=0)
