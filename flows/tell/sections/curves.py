"""The training: its settings in words, its curves, and what came out."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.tell.figures.drawing import FIRST, GOOD, MUTED, SECOND, Plot, figure, thinned
from flows.tell.material import Material
from flows.tell.parts import Chart, Part, Table
from headway.messages import counted, duration, number

_COLOURS = (("first", FIRST), ("second", SECOND), ("good", GOOD))
Line = list[tuple[int, float]]
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
class Trained:
    """A training to tell of: one of a run's, or of a side of a comparison."""

    name: str
    material: Material
    title: str
    """The step's."""

    @property
    def result(self) -> Mapping[str, Any]:
        return self.material.result(self.title)

    @functools.cached_property
    def history(self) -> list[dict[str, Any]]:
        """The points of its curves; none where they are gone."""
        path = self.material.file(self.title, "history.json")
        return [] if path is None else thinned(json.loads(path.read_text(encoding="utf-8"))["history"])

    def line(self, name: str) -> Line:
        """(step, value) of each point that has one."""
        return [(point["step"], point[name]) for point in self.history if isinstance(point.get(name), int | float)]


def trained_by(material: Material) -> list[str]:
    """The titles of the trainings of a run: one, or one of each seed."""
    return [title for title, output in material.outputs.items() if output.stage == "train"]


def training(material: Material) -> Part | None:
    """The part on the training; None of a run that did not come to it."""
    found = [Trained(title, material, title) for title in trained_by(material)]
    if not found:
        return None
    chosen = material.record.training
    sentences = [f"{counted(chosen.rows, 'train row')}: {chosen.says}."] if chosen is not None else []
    sentences += [each.result["warm_start"]["says"] for each in found if each.result.get("warm_start")]
    sentences.append(f"The steps took {' and '.join(duration(each.result.get('seconds', 0.0)) for each in found)}.")
    return trainings(found, sentences)


def trainings(found: Sequence[Trained], sentences: Sequence[str]) -> Part:
    """Trainings with their curves over one another, and what came out of each."""
    rows = [{"training": each.name, **_facts(each.result)} for each in found]
    charts = list(_charts(found[: len(_COLOURS)]))
    return Part("Training", sentences, charts, [Table("What came out", rows)])


def _facts(result: Mapping[str, Any]) -> dict[str, Any]:
    """What came out of a training, by name."""
    return {name: _text(result.get(key)) for key, name in _FACTS.items() if result.get(key) not in (None, 0)}


def _text(value: Any) -> str:
    return number(value) if isinstance(value, int | float) else str(value)


def _charts(found: Sequence[Trained]) -> Iterator[Chart]:
    """The curves, each training in its colour."""
    styles = [
        # the first is seen below a second that is the same
        (each, {"color": colour, "linewidth": 2.8 if place == 0 and len(found) > 1 else 1.4})
        for place, ((_, colour), each) in enumerate(zip(_COLOURS, found, strict=False))
    ]
    keys = [(key, each.name) for (key, _), each in zip(_COLOURS, found, strict=False)] if len(found) > 1 else []
    losses = [(each.line("loss"), style) for each, style in styles]
    held = [(each.line("holdout_loss"), {**style, "linestyle": (0, (3, 2))}) for each, style in styles]
    rates = [(each.line("learning_rate"), style) for each, style in styles]
    has_holdout = any(line for line, _ in held)
    best = found[0].result.get("best_step") if len(found) == 1 and has_holdout else None
    if any(line for line, _ in losses):
        note = "Solid: the train rows. Dashed: the holdout." if has_holdout else ""
        best_key = [("muted", f"best step, {best:,}")] if best is not None else []
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
            axes.ticklabel_format(axis="y", scilimits=(-3, 3))

    ends = [f"from {number(line[0][1])} to {number(line[-1][1])} at step {line[-1][0]:,}" for line, _ in lines if line]
    said = f"{what} by step, {' and '.join(ends)}"
    title = f"{what} by step"
    return Chart(title, figure(draw, name=what.lower(), label=said), keys, note)
