"""A column that is one thing in one file and another in the next is named with both files, and can be left out."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from headway.errors import DataError
from headway.schema.columns import ColumnConfig
from headway.schema_inference.column_types import infer


def _lines(*values):
    return b"".join(json.dumps({"a": value, "z": 1}).encode() + b"\n" for value in values)


def _schema(opened, *datas, configs=None, only=False):
    source, found = opened("jsonl", *datas)
    return infer(source.sample(found, 1000), configs or {}, only=only, needed=frozenset(), where="p.yaml")


@pytest.mark.parametrize(
    ("one", "other", "kinds", "names"),
    [
        ([1, 2], {"b": 1, "c": 2}, ("a list", "an object"), ["a", "a.b", "a.c"]),
        ({"b": 1}, [1, 2], ("an object", "a list"), ["a.b", "a"]),
        (1, {"b": 1}, ("one value", "an object"), ["a", "a.b"]),
        ("x", [1], ("one value", "a list"), ["a"]),
        ([1], [{"b": 1}], ("a list", "a list of objects"), ["a"]),
        (1.5, [[1]], ("one value", "a list of lists"), ["a"]),
        ({"b": {"c": 1}}, {"b": 2}, None, ["a.b.c", "a.b"]),
    ],
)
def test_files_that_disagree_are_named_and_the_fix_works(opened, one, other, kinds, names):
    datas = _lines(*[one] * 20), _lines(*[other] * 20)
    with pytest.raises(DataError) as error:
        _schema(opened, *datas)
    said, fix = error.value.problem, error.value.fix
    if kinds:
        assert f"column 'a' is {kinds[0]} in " in said and f"0.jsonl and {kinds[1]} in " in said
        assert said.endswith("1.jsonl")
    else:
        assert said.startswith("column 'a.b' is an object in ") and "0.jsonl and one value in " in said
    columns = yaml.safe_load(fix[fix.index("columns: ") :])["columns"]
    assert columns == {"*": "auto"} | dict.fromkeys(names, "ignore")
    schema, _ = _schema(opened, *datas, configs={name: ColumnConfig(role="ignore") for name in names})
    assert schema.names() == ["z"]
    assert _schema(opened, *datas, configs={"z": ColumnConfig()}, only=True)[0].names() == ["z"]


@pytest.mark.parametrize(
    ("usual", "odd", "kind"),
    [
        (1, {"b": 1}, ("int64", ())),
        (1, [1], ("int64", ())),
        ([1.5], {"b": 1}, ("float32", (1,))),
        ([1.5], [{"b": 1}], ("float32", (1,))),
        ([1.5], [], ("float32", (None,))),
        (1, [], ("int64", ())),
    ],
)
def test_one_line_in_a_hundred_is_no_disagreement(opened, usual, odd, kind):
    schema, _ = _schema(opened, _lines(*[usual] * 150), _lines(odd), _lines(*[usual] * 49))
    assert {column.name: (column.type, column.shape) for column in schema.columns} == {"a": kind, "z": ("int64", ())}


def test_parquet_files_that_disagree_can_be_read_without_the_column(opened, tmp_path):
    for i, values in enumerate([[1, 2], [[1], [2]]]):
        (tmp_path / "raw").mkdir(exist_ok=True)
        pq.write_table(pa.table({"a": values, "z": [1, 2]}), tmp_path / "raw" / f"{i}.parquet")
    source, found = opened("parquet")
    prefix = source.sample(found, 1000)
    with pytest.raises(DataError, match="column 'a' has types that differ between the files: int64 and list"):
        infer(prefix, {}, only=False, needed=frozenset(), where="x")
    configs = {"a": ColumnConfig(role="ignore")}
    assert infer(prefix, configs, only=False, needed=frozenset(), where="x")[0].names() == ["z"]


def test_files_that_agree_but_for_nulls_and_numbers_are_no_disagreement(opened):
    schema, _ = _schema(opened, _lines({"b": 1}, None), _lines({"b": None}), _lines(None), _lines({"b": 2.5}, {}))
    assert {column.name: column.type for column in schema.columns} == {"a.b": "float32", "z": "int64"}
