"""The figures of a report: what is drawn where, and the ticks of their axes."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from flows.report.charts import shares
from flows.report.data import _labels
from flows.report.data import ticks as labels_of
from flows.report.plot import FIRST, MUTED, SECOND, Plot, figure
from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics


def told(draw):
    """(the texts of a figure, its paths)"""
    svg = ElementTree.fromstring(figure(draw, label='what "it" <shows>'))
    assert svg.get("aria-label") == 'what "it" <shows>'
    return [each.text for each in svg.iter("text")], list(svg.iter("path"))[1:]  # the first is the grid


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
    def draw(axes: Plot) -> None:
        axes.plot(list(ends), [0.0, 1.0], color=FIRST)
        axes.frame(x_ends=ends)

    shown, _ = told(draw)
    assert shown[shown.index("1.0") + 1 :] == texts


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


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([0.0126, 0.5, 0.98765], ["0.0126", "0.5", "0.9877"]),
        ([999_993.2, 999_998.93, 1_000_004.7], ["999,993.20", "999,998.93", "1,000,004.70"]),
        ([1_700_000_000, 1_700_000_400], ["1,700,000,000", "1,700,000,400"]),
        ([-1e300, 1.0, 1e300], ["-1e+300", "1", "1e+300"]),
        ([7.0], ["7"]),
    ],
)
def test_numbers_have_the_digits_that_tell_them_apart(values, told):
    assert labels_of(values) == told


def test_a_label_stands_below_its_bar_or_at_its_edge():
    assert _labels([0, 1, 2], 3, None, ()) == {0.5: "0", 1.5: "1", 2.5: "2"}
    assert _labels([float(edge) for edge in range(21)], 20, None, ()) == {0: "0", 10: "10", 20: "20"}
    assert _labels(["a", "rare"], 2, None, {"a"}) == {0.5: "a", 1.5: ""}
    long = [each * 12 for each in "abcd"]
    assert _labels(long, 4, None, set(long)) == {0.0: "a" * 12, 4.0: "4 values"}


def test_times_stand_at_both_ends_to_the_second():
    assert _labels([0.25, 30_000.5, 90_000.0], 2, "epoch_seconds", ()) == {0: "1970-01-01", 2: "1970-01-02 01:00:00"}
    assert _labels([1_500_000, 3_000_000], 1, "timestamp", ()) == {0: "1970-01-01 00:00:01", 1: "1970-01-01 00:00:03"}


def test_columns_of_a_split_whose_rows_were_all_rejected_have_no_bars():
    statistics = SplitStatistics.create([Column(name="a", type="bytes", nullable=True)])
    assert shares([statistics.columns["a"], None]) is None
