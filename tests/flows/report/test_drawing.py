"""The figures of a report: what is drawn where, and the ticks of their axes."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from flows.report.plot import FIRST, MUTED, SECOND, Plot, figure


def told(draw):
    """(the texts of a figure, its paths)"""
    svg = ElementTree.fromstring(figure(draw, label='what "it" <shows>'))
    assert svg.get("aria-label") == 'what "it" <shows>'
    return [each.text for each in svg.iter("text")], list(svg.iter("path"))[1:]  # the first is the grid


def ticks(low, high):
    def draw(axes: Plot) -> None:
        axes.plot([low, high], [0.0, 1.0], color=FIRST)
        axes.frame(x_ends=(low, high))

    texts, _ = told(draw)
    return texts[texts.index("1.0") + 1 :]


@pytest.mark.parametrize(
    ("ends", "texts"),
    [
        ((0, 1), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ((-0.3, 0.26), ["-0.3", "-0.2", "-0.1", "0.0", "0.1", "0.2"]),
        ((0.86, 0.93), ["0.86", "0.88", "0.90", "0.92"]),
        ((3, 17), ["5.0", "7.5", "10.0", "12.5", "15.0"]),
        ((0, 48_000), ["0", "10,000", "20,000", "30,000", "40,000"]),
        ((0, 2e-6), ["0", "5e-07", "1e-06", "1.5e-06", "2e-06"]),
        ((-4e9, 4e9), ["-4e+09", "-2e+09", "0", "2e+09", "4e+09"]),
        ((-1e300, 1e300), ["-1e+300", "-5e+299", "0", "5e+299", "1e+300"]),
        ((999_994, 1_000_005), ["999,994", "999,998", "1,000,002"]),  # every second one: there is no room for more
        ((0.12341, 0.12346), ["0.12341", "0.12343", "0.12345"]),
    ],
)
def test_ticks_are_round_numbers_within_the_axis(ends, texts):
    assert ticks(*ends) == texts


def test_a_line_is_broken_where_a_value_is_not_a_number_and_stays_inside_the_axes():
    def draw(axes: Plot) -> None:
        axes.plot([0, 1, 2, 3], [0.0, np.nan, 5.0, 0.5], color=SECOND, linestyle="--")
        axes.frame(y_ends=(0, 1))

    _, (line,) = told(draw)
    assert re.findall("[ML]", line.get("d")) == ["M", "M", "L"] and "stroke-dasharray: 5 3" in line.get("style")
    heights = [float(y) for y in re.findall(r"[\d.]+ ([\d.]+)", line.get("d"))]
    assert min(heights) == 8 and max(heights) == 171, "of a figure 187 high, with room for ticks"


def test_a_histogram_stands_on_its_foot_and_points_are_dots():
    def draw(axes: Plot) -> None:
        axes.stairs([1.0, 3.0], [0.0, 1.0, 2.0], color=FIRST)
        axes.plot([0.5], [2.0], color=MUTED, marker=True)

    _, (bars, _, dot) = told(draw)
    assert len(re.findall("[ML]", bars.get("d"))) == 6 and bars.get("style") == "fill: var(--first); opacity: 0.4"
    assert "stroke-linecap: round" in dot.get("style") and re.fullmatch(r"M(\S+ \S+)L\1", dot.get("d"))


def test_a_figure_of_one_value_or_none_has_axes():
    texts, paths = told(lambda axes: axes.plot([3], [0.0], color=FIRST))
    assert len(texts) > 4 and len(paths) == 1
    assert told(lambda axes: axes.frame("step"))[0][-1] == "step"


def test_the_labels_of_a_small_figure_stay_inside_it():
    def draw(axes: Plot) -> None:
        axes.stairs([0.5, 1.0], range(3), color=FIRST)
        axes.ticks({0: "first", 1: "", 2: "last"}, {0: "0", 1: "100%"})
        axes.frame(x_ends=(0, 2), y_ends=(0, 1))

    svg = ElementTree.fromstring(figure(draw, label="small", small=True))
    texts = {each.text: (each.get("text-anchor"), float(each.get("x"))) for each in svg.iter("text")}
    assert svg.get("class") == "panel" and list(texts) == ["0", "100%", "first", "last"]
    assert texts["first"][0] == "start" and texts["last"] == ("end", 232.0) and texts["100%"][1] >= 4 * 6.6


def test_an_axis_of_one_value_has_a_place_for_it():
    def draw(axes: Plot) -> None:
        axes.stairs([1.0], [3.0, 3.0], color=FIRST)
        axes.frame(x_ends=(3.0, 3.0))
        axes.ticks({3.0: "three"})

    texts, paths = told(draw)
    assert "three" in texts and "nan" not in paths[0].get("d")
