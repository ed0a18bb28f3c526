"""Further labels in the config: their short forms, their names, and what is refused."""

import pytest

from flows.config.pipeline import Pipeline
from headway.config import load
from headway.errors import ConfigError

PLAIN = {"name": "flights", "source": {"format": "csv", "path": "a.csv"}, "label": "arr_delay > 15"}


def read(**changes):
    return load(Pipeline, PLAIN | changes, where="pipeline.yaml")


@pytest.mark.parametrize(
    ("labels", "columns", "expressions"),
    [
        (["arr_delay"], {"arr_delay": "arr_delay"}, {}),
        ("arr_delay", {"arr_delay": "arr_delay"}, {}),
        ({"minutes": "arr_delay", "late": "arr_delay > 60"}, {"minutes": "arr_delay"}, {"late": "arr_delay > 60"}),
        ({"arr_delay": {"weight": 0.5}, "gain": None}, {"arr_delay": "arr_delay", "gain": "gain"}, {}),
        ({"arrival": {"column": "arr delay (min)"}}, {"arrival": "arr delay (min)"}, {}),
        ({"late": {"expression": "x > 1", "task": "binary"}}, {}, {"late": "x > 1"}),
    ],
)
def test_a_further_label_is_a_column_or_an_expression(labels, columns, expressions):
    found = read(labels=labels).labels
    assert {name: of.column for name, of in found.items() if of.column} == columns
    assert {name: of.expression for name, of in found.items() if of.expression} == expressions


def test_the_columns_of_every_label_are_no_features_by_themselves():
    pipeline = read(labels={"gain": "dep_delay - arr_delay", "air": "air_time"})
    assert pipeline.label_columns() == {"arr_delay", "dep_delay", "air_time"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": {"arr delay": None}}, "'arr delay' cannot be the name of a label.*arrival: {column: 'arr delay'}"),
        ({"labels": {"label": "x"}}, "'label' cannot be the name of a label"),
        ({"labels": {"gain": "x >"}}, r"x >"),
        ({"labels": {"gain": {"column": "a", "expression": "b > 1"}}}, "one of the two"),
        ({"labels": {"gain": {"weight": 0}}}, "greater than 0"),
        ({"labels": {"gain": {"task": "my_tasks:Spread"}}}, "the main label's alone"),
        ({"labels": {"gain": {"taks": "binary"}}}, "taks"),
        ({"labels": ["gain"], "training": {"ranking": {"kind": "logistic"}}}, "training.ranking knows one label"),
        ({"labels": ["gain"], "gate": {"primary": "gain/rmse"}}, "primary is a metric of the label"),
        (
            {"label": ["late", "gain"]},
            "names several labels: late, gain; label is the one that decides; name the others",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_fix(changes, message):
    with pytest.raises(ConfigError, match=message):
        read(**changes)


def test_labels_without_a_label_say_that_one_decides():
    with pytest.raises(ConfigError, match="label is the one that decides"):
        load(Pipeline, {k: v for k, v in PLAIN.items() if k != "label"} | {"labels": ["a", "b"]}, where="pipeline.yaml")
