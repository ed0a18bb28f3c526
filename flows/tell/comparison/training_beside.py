"""The trainings of both sides: their settings in words, their curves over one another, and what came out."""

from __future__ import annotations

from typing import Any

from flows.tell.comparison.outcome import capital
from flows.tell.comparison.sides import Side
from flows.tell.figures.drawing import FIRST, SECOND, Plot, figure
from flows.tell.parts import Chart, Part, Table
from flows.tell.sections.curves import history, series, steps_axis, training_facts
from headway.messages import counted

_DASHED = (0, (3, 2))
_COLOURS = (FIRST, SECOND)


def training(a: Side, b: Side) -> Part | None:
    """The part on the trainings; None where the store has neither any more."""
    titles = [_title(side) for side in (a, b)]
    if titles == [None, None]:
        return None
    if all(titles) and _fingerprint(a) == _fingerprint(b):
        return Part("Training", ["Both have the same training: its output is one and the same."])
    sentences, rows = [], []
    points: list[list[dict[str, Any]]] = []
    for side, title in zip((a, b), titles, strict=True):
        points.append([] if title is None else history(side.material, title))
        if title is None:
            sentences.append(f"The store no longer has the training of {side.label}.")
            continue
        if (chosen := side.material.record.training) is not None:
            told = f"{side.label}: {counted(chosen.rows, 'train row')}, {chosen.says}."
            sentences.append(capital(told))
        rows.append({"training of": side.label, **training_facts(side.material.result(title))})
    keys = [("first", a.label), ("second", b.label)]
    charts = [chart for chart in (_losses(points, keys), _rates(points, keys)) if chart is not None]
    return Part("Training", sentences, charts, [Table("What came out", rows)])


def _title(side: Side) -> str | None:
    """The training whose model was kept: of several seeds the first."""
    return next((title for title, output in side.material.outputs.items() if output.stage == "train"), None)


def _fingerprint(side: Side) -> str | None:
    title = _title(side)
    return None if title is None else side.material.outputs[title].fingerprint


def _losses(points: list[list[dict[str, Any]]], keys: list[tuple[str, str]]) -> Chart | None:
    train = [series(each, "loss") for each in points]
    held = [series(each, "holdout_loss") for each in points]
    if not any(train):
        return None

    def draw(axes: Plot) -> None:
        for losses, style in ((train, "-"), (held, _DASHED)):
            for line, colour in zip(losses, _COLOURS, strict=True):
                if line:
                    _line(axes, line, colour, linestyle=style)
        steps_axis(axes)
        axes.set_ylabel("loss")

    note = "Solid: the train rows. Dashed: the holdout." if any(held) else ""
    label = f"Loss by step of {keys[0][1]} and {keys[1][1]}"
    return Chart("Loss by step", figure(draw, name="losses", label=label), keys, note)


def _rates(points: list[list[dict[str, Any]]], keys: list[tuple[str, str]]) -> Chart | None:
    rates = [series(each, "learning_rate") for each in points]
    if len({rate for line in rates for _, rate in line}) < 2:
        return None

    def draw(axes: Plot) -> None:
        for line, colour in zip(rates, _COLOURS, strict=True):
            if line:
                _line(axes, line, colour)
        steps_axis(axes)
        axes.set_ylim(bottom=0)
        axes.ticklabel_format(axis="y", scilimits=(-3, 3))
        axes.set_ylabel("learning rate")

    label = f"Learning rate by step of {keys[0][1]} and {keys[1][1]}"
    return Chart("Learning rate by step", figure(draw, name="rates", label=label), keys)


def _line(axes: Plot, line: list[tuple[int, float]], colour: str, **style: Any) -> None:
    style |= {"linewidth": 2.8 if colour == FIRST else 1.4}  # the first is seen below a second that is the same
    axes.plot(*zip(*line, strict=True), color=colour, marker="o" if len(line) < 8 else "", markersize=3, **style)
