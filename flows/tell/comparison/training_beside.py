"""The trainings of both sides: their settings in words, their curves over one another, and what came out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flows.tell.comparison.outcome import capital
from flows.tell.comparison.sides import Side
from flows.tell.figures.drawing import FIRST, SECOND, Plot, figure
from flows.tell.parts import Chart, Part, Table
from flows.tell.sections.curves import history, series, steps_axis, training_facts
from headway.messages import counted

_DASHED = (0, (3, 2))
Line = list[tuple[int, float]]


def training(a: Side, b: Side) -> Part | None:
    """The part on the trainings; None where the store has neither any more."""
    titles = [_title(side) for side in (a, b)]
    if titles == [None, None]:
        return None
    prints = [title and side.material.outputs[title].fingerprint for side, title in zip((a, b), titles, strict=True)]
    if prints[0] == prints[1]:
        return Part("Training", ["Both have the same training: its output is one and the same."])
    sentences, rows = [], []
    for side, title in zip((a, b), titles, strict=True):
        if title is None:
            sentences.append(f"The store no longer has the training of {side.label}.")
            continue
        if (chosen := side.material.record.training) is not None:
            sentences.append(capital(f"{side.label}: {counted(chosen.rows, 'train row')}, {chosen.says}."))
        rows.append({"training of": side.label, **training_facts(side.material.result(title))})
    return Part("Training", sentences, list(_charts((a, b), titles)), [Table("What came out", rows)])


def _title(side: Side) -> str | None:
    """The training whose model was kept: of several seeds the first."""
    return next((title for title, output in side.material.outputs.items() if output.stage == "train"), None)


def _charts(sides: Sequence[Side], titles: Sequence[str | None]) -> Iterator[Chart]:
    points = [history(side.material, title) if title else [] for side, title in zip(sides, titles, strict=True)]
    losses, held, rates = (
        [series(each, name) for each in points] for name in ("loss", "holdout_loss", "learning_rate")
    )
    labels = [side.label for side in sides]
    if any(losses):
        yield _chart("Loss", losses, held, labels, "Solid: the train rows. Dashed: the holdout." if any(held) else "")
    if len({rate for line in rates for _, rate in line}) > 1:
        yield _chart("Learning rate", rates, [], labels)


def _chart(what: str, solid: list[Line], dashed: list[Line], labels: list[str], note: str = "") -> Chart:
    """Values of both by step."""

    def draw(axes: Plot) -> None:
        for lines, style in ((solid, "-"), (dashed, _DASHED)):
            # the first is seen below a second that is the same
            for line, colour, width in zip(lines, (FIRST, SECOND), (2.8, 1.4), strict=False):
                if line:
                    marker = "o" if len(line) < 8 else ""
                    axes.plot(
                        *zip(*line, strict=True),
                        color=colour,
                        marker=marker,
                        markersize=3,
                        linestyle=style,
                        linewidth=width,
                    )
        steps_axis(axes)
        axes.set_ylabel(what.lower())
        if not dashed:
            axes.set_ylim(bottom=0)
            axes.ticklabel_format(axis="y", scilimits=(-3, 3))

    said = f"{what} by step of {labels[0]} and {labels[1]}"
    keys = list(zip(("first", "second"), labels, strict=True))
    return Chart(f"{what} by step", figure(draw, name=what.lower(), label=said), keys, note)
