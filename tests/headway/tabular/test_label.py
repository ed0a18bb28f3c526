"""The label: a column or an expression, stored as what, null where it is missing."""

import math

import pyarrow as pa
import pytest

from headway.config import load
from headway.errors import ConfigError, DataError
from headway.schema.columns import Column
from headway.tabular.label import LabelConfig

COLUMNS = (
    Column(name="delay", type="int64", nullable=True),
    Column(name="fare", type="float32", nullable=True),
    Column(name="species", type="bytes", nullable=True, encoding="dictionary"),
)
BATCH = pa.RecordBatch.from_pydict(
    {
        "delay": pa.array([20, 15, None]),
        "fare": pa.array([0.5, math.nan, None], pa.float32()),
        "species": pa.array([b"cat", None, b"dog"]).dictionary_encode(),
    }
)


def label(value):
    return load(LabelConfig, value, where="pipeline.yaml: label")


@pytest.mark.parametrize(
    ("text", "kind", "encoding", "values"),
    [
        ("delay", "int64", "plain", [20, 15, None]),
        ("delay > 15", "int64", "plain", [1, 0, None]),
        ("delay % 10 == 0 or species == 'dog'", "int64", "plain", [1, None, 1]),
        ("fare", "float32", "plain", [0.5, None, None]),
        ("fare * 2", "float32", "plain", [1.0, None, None]),
        ("delay / 2", "float32", "plain", [10.0, 7.5, None]),
        ("species", "bytes", "dictionary", [b"cat", None, b"dog"]),
        ("upper(species)", "bytes", "dictionary", [b"CAT", None, b"DOG"]),
    ],
)
def test_a_label_is_computed_in_the_type_it_is_stored_in(text, kind, encoding, values):
    config = label(text)
    column = config.stored(COLUMNS)
    assert (column.name, column.type, column.encoding, column.role) == ("label", kind, encoding, "label")
    assert not column.nullable
    found = config.compute(BATCH)
    assert found.to_pylist() == values and found.type == column.arrow
    assert config.compute(BATCH.slice(0, 0)).type == column.arrow


def test_words_are_columns_and_everything_else_is_an_expression():
    assert label("species").column == "species" and label("species").missing == "filter"
    assert label("delay > 15").expression == "delay > 15"
    assert label({"column": "two words"}).columns() == {"two words"}
    assert label("tips > 0.2 * fare").columns() == {"tips", "fare"}
    assert label({"expression": "delay > 15", "missing": "quarantine"}).missing == "quarantine"


def test_a_label_beyond_float32_is_no_crash():
    batch = pa.RecordBatch.from_pydict({"x": pa.array([1e30, 1.0], pa.float32())})
    assert label("x * 1e30").compute(batch).to_pylist() == [math.inf, pytest.approx(1e30)]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({}, "give a column, or an expression"),
        ({"column": "a", "expression": "b > 1"}, "one of the two"),
        ("two words", "at character 5"),
        ("delay >", "not an expression"),
        ({"expression": "exec('x')"}, "exec() is not known"),
        ({"column": "a", "missing": "drop"}, "'filter' or 'quarantine'"),
        ({"colum": "a"}, "did you mean 'column'"),
        (3, "got 3"),
    ],
)
def test_wrong_labels_are_refused(value, said):
    with pytest.raises(ConfigError) as error:
        label(value)
    assert said in str(error.value) and "pipeline.yaml" in str(error.value)


def test_a_label_of_columns_that_do_not_exist_or_do_not_fit():
    with pytest.raises(ConfigError, match="'wind'"):
        label("wind > 3").stored(COLUMNS)
    with pytest.raises(DataError, match="delay > 'x'"):
        label("delay > 'x'").stored(COLUMNS)


def test_a_label_of_several_values_a_row_says_what_to_do():
    columns = (Column(name="y", type="int64", nullable=True, shape=(None,)),)
    with pytest.raises(ConfigError, match="several values per row") as caught:
        label("y").stored(columns)
    assert "columns: {y: {shape: scalar}}" in caught.value.fix


@pytest.mark.parametrize("value", [["late", "delay"], {"late": {"task": "binary"}, "delay": {"task": "regression"}}])
def test_several_labels_are_refused_with_what_to_write(value):
    with pytest.raises(ValueError, match="names several labels: late, delay; name the one that is predicted"):
        LabelConfig.model_validate(value)
