"""Logged requests joined with the data by their keys."""

import json

import numpy as np
import pyarrow as pa
import pytest

from headway.errors import DataError
from headway.schema.columns import Column
from headway.validation.joined_skew import joined_skew
from headway.validation.request_rows import request_rows

ROWS = 4000
R = np.random.default_rng(0)
COLUMNS = (
    Column(name="delay", type="float32", nullable=True),
    Column(name="hour", type="int64", nullable=True),
    Column(name="carrier", type="bytes", nullable=True),
)
DELAY = R.normal(10, 20, ROWS).astype(np.float32)
HOUR = R.integers(0, 24, ROWS)
CARRIER = np.array([b"AA", b"B6", b"UA"])[R.choice(3, ROWS, p=[0.5, 0.3, 0.2])]
SCORE = 1 / (1 + np.exp(-DELAY / 20))


def table(*, key=None, prediction=SCORE, **changes):
    columns = {"delay": DELAY, "hour": HOUR, "carrier": CARRIER} | changes
    made = {name: values if isinstance(values, pa.Array) else pa.array(values) for name, values in columns.items()}
    key = np.arange(ROWS).astype(str) if key is None else key
    return pa.table({"id": pa.array(key), **made, "prediction": prediction})


def found(logged, data=None, **options):
    return joined_skew(logged, table() if data is None else data, keys=("id",), columns=COLUMNS, **options)


def test_rows_that_agree_have_no_finding_in_whatever_order():
    result = found(table().take(pa.array(R.permutation(ROWS))))
    assert result["findings"] == [] and result["joined"] == ROWS
    assert [c["differing"] for c in result["columns"]] == [0, 0, 0] and result["predictions"]["differing"] == 0


@pytest.mark.parametrize(
    ("changes", "column", "kind", "words"),
    [
        ({"delay": R.permutation(DELAY)}, "delay", "moved", "has the values of other rows (correlation "),
        ({"carrier": R.permutation(CARRIER)}, "carrier", "moved", "'carrier' has the values of other rows: 6"),
        ({"hour": np.roll(HOUR, 1)}, "hour", "moved", "and the values as a whole are those of the data"),
        (
            {"delay": DELAY + np.float32(0.3 * DELAY.std())},
            "delay",
            "shifted",
            "shifted by +0.3 standard deviations: 100.0%",
        ),
        ({"delay": pa.array(DELAY, mask=R.random(ROWS) < 0.08)}, "delay", "lost", "'delay' is null in 7."),
        (
            {"carrier": pa.array(CARRIER, mask=R.random(ROWS) < 0.08)},
            "carrier",
            "lost",
            "of 4,000 joined rows that have a value",
        ),
        ({"hour": np.where(R.random(ROWS) < 0.05, 99, HOUR)}, "hour", "different", "such as 99 where the data have "),
        ({"carrier": np.where(R.random(ROWS) < 0.05, b"aa", CARRIER)}, "carrier", "different", "such as 'aa' where"),
    ],
)
def test_what_distributions_hardly_show_is_found_and_named(changes, column, kind, words):
    [finding] = found(table(**changes))["findings"]
    assert (finding["column"], finding["kind"]) == (column, kind)
    assert words in finding["message"]


def test_a_value_that_only_requests_have_is_named():
    data = table(delay=pa.array(DELAY, mask=np.arange(ROWS) % 5 == 0))
    [finding] = found(table(), data)["findings"]
    assert finding["message"] == "'delay' has a value in 20.0% of 4,000 joined rows that are null in the data"


def test_less_than_the_limit_is_forgiven():
    late = table(hour=np.where(np.arange(ROWS) < 30, 99, HOUR))
    assert found(late)["findings"] == [] and found(late)["columns"][1]["differing"] == 30 / ROWS
    assert found(late, limit=0.001)["findings"][0]["column"] == "hour"


def test_predictions_of_another_model_are_told_from_those_of_other_values():
    moved = table(delay=np.roll(DELAY, 1), prediction=np.roll(SCORE, 1))  # a permutation may leave a row where it was
    assert "no row has all columns as in the data" in found(moved)["findings"][-1]["message"]
    [other] = found(table(prediction=SCORE + 0.01))["findings"]
    assert other["kind"] == "predictions" and "another model answered" in other["message"]
    half = np.arange(ROWS) % 2 == 0
    some = table(delay=np.where(half, DELAY + 50, DELAY), prediction=np.where(half, SCORE + 0.2, SCORE))
    last = found(some)["findings"][-1]["message"]
    assert "50.0% of 4,000 joined rows differ, by 0.1 on average; of the 2,000 rows with all columns" in last
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.stack([SCORE, 1 - SCORE], 1).ravel()), 2)
    assert found(table(prediction=vectors), table(prediction=vectors))["predictions"]["differing"] == 0


def test_a_key_of_several_rows_tells_none():
    keys = np.arange(ROWS).astype(str)
    keys[1] = keys[0]
    result = found(table(), table(key=keys))
    assert (result["joined"], result["ambiguous"]) == (ROWS - 2, 1)
    with pytest.raises(DataError, match="logged id='x0', in the data id='0'"):
        found(table(key=np.array([f"x{i}" for i in range(ROWS)])))


def write(path, *entries):
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return [path]


def test_requests_are_read_with_their_keys_from_either_place(tmp_path):
    columns = COLUMNS[:2]
    rows = [{"delay": 1.5, "hour": 3}, {"hour": 4}]
    path = write(
        tmp_path / "log.jsonl",
        {
            "instances": rows,
            "keys": [7, "b"],
            "predictions": [{"probability": 0.1, "logit": -2}, {"probability": 0.2}],
            "version": 3,
        },
        {"instances": [{"delay": 2, "hour": 5, "id": "c"}], "predictions": [0.5], "version": 3},
        {"instances": rows, "keys": ["x", "y"], "version": 2},
        {"instances": [{"hour": 5}], "version": 3},
        {"instances": [{"hour": "noon"}], "keys": ["z"], "predictions": [0.3]},
    )
    read = request_rows(path, columns, keys=("id",), version=3, output="probability")
    assert read.table.to_pydict() == {
        "delay": [1.5, None, 2.0],
        "hour": [3, 4, 5],
        "id": ["7", "b", "c"],
        "prediction": [0.1, 0.2, 0.5],
    }
    assert (read.other_versions, read.unfit) == (2, 2)
    two = request_rows(
        write(tmp_path / "two", {"instances": [{"hour": 1}], "keys": [["a", 2]]}),
        columns,
        keys=("id", "n"),
        version=None,
        output="prediction",
    )
    assert two.table.select(["id", "n"]).to_pylist() == [{"id": "a", "n": "2"}]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"instances": [{"hour": 1}], "keys": []}, "'keys' are not one for each of 1 instances"),
        ({"instances": [1]}, "a list of objects"),
        ({"instances": [{"hour": 1}]}, "no logged row has a key"),
        ({"instances": [{"hour": 1}], "keys": [1], "version": 9}, "no row was answered by version 3"),
        ([1], "is not an object"),
    ],
)
def test_what_is_no_log_is_told_with_its_line(tmp_path, entry, message):
    with pytest.raises(DataError, match=message):
        request_rows(write(tmp_path / "log", entry), COLUMNS, keys=("id",), version=3, output="probability")


def test_a_file_that_is_not_text_is_told_by_its_line(tmp_path):
    path = tmp_path / "log.parquet"
    path.write_bytes(b"PAR1\xff\xfe")
    with pytest.raises(DataError, match="is not JSON: 'utf-8' codec") as caught:
        request_rows([path], COLUMNS, keys=("id",), version=3, output="probability")
    assert caught.value.where == f"{path}: line 1"


def test_an_object_where_a_number_belongs_is_a_row_that_does_not_fit(tmp_path):
    path = write(tmp_path / "log", {"instances": [{"hour": 3}, {"hour": {"a": 1}}], "keys": ["x", "y"]})
    read = request_rows(path, COLUMNS[:2], keys=("id",), version=3, output="probability")
    assert (read.table["id"].to_pylist(), read.unfit) == (["x"], 1)
