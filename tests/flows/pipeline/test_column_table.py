"""What became of each column is told in one table, and what is new in the source is told and proposed."""

import pyarrow.csv as pa_csv
import pytest

from flows.config.columns import new_columns, resolve, unknown_columns
from flows.config.pipeline import read_pipeline
from flows.pipeline.column_table import column_table, current_table
from flows.report.text import text_table
from headway.errors import ConfigError
from headway.schema.columns import Schema
from headway.schema.pbtxt import from_text, to_text
from headway.sources.spans import files

PIPELINE = """
name: shop
source: {format: csv, path: raw.csv, rename: {"q/r": q_r}}
label: price > 100
columns:
  "*": auto
  user_id: {transform: vocabulary, role: group}
  junk: ignore
  w: weight
"""


def _loaded(tmp_path, text=PIPELINE):
    lines = []
    for i in range(100):
        day, price = f"{2013 + i % 3}-01-0{i % 9 + 1}", f'"$1,{i % 1000:03d}"'
        lines.append(f"{i},{i % 9},{price},{day},0{i % 90 + 10},{i % 4},1,{i % 5}.5,,{i % 7}")
    header = "id,user_id,price,day,zip,junk,w,q/r,empty,n"
    (tmp_path / "raw.csv").write_text("\n".join([header, *lines, ""]))
    (tmp_path / "pipeline.yaml").write_text(text)
    return read_pipeline(tmp_path)


def test_each_column_has_a_line_with_its_type_its_transform_and_why(tmp_path):
    loaded = _loaded(tmp_path)
    found = files(loaded.pipeline.source, "all")
    columns = resolve(loaded, ["all"], lambda span: found)
    read = {column.name: column for column in columns.read}
    assert read["user_id"].role == "group" and read["user_id"].is_feature and "user_id" in columns.stored
    assert columns.transforms(loaded.pipeline.column_configs())["user_id"].transform != "auto"
    table = {row["column"]: row for row in column_table(columns, loaded.pipeline, columns.notes, None)}
    assert list(table) == ["id", "user_id", "price", "day", "zip", "w", "q_r", "n", "junk", "empty"]
    assert table["price"]["transform"] == "left out" and "the label is made of it" in table["price"]["why"]
    assert table["price"]["type"] == "number" and "'$1,000' is 1000" in table["price"]["why"]
    assert table["user_id"]["why"].startswith("role: group, and a feature")
    assert table["day"]["type"] == "date" and "read as dates" in table["day"]["why"]
    assert table["zip"]["type"] == "text" and "begin with 0" in table["zip"]["why"]
    assert (table["w"]["transform"], table["w"]["why"]) == ("kept", "role: weight")
    assert table["empty"]["transform"] == table["junk"]["transform"] == "left out"
    assert all(len(line) <= 100 for line in text_table(list(table.values()), whole=("why",), width=100).splitlines())


def test_a_column_new_in_the_source_is_known_and_proposed(tmp_path):
    loaded = _loaded(tmp_path)
    found = files(loaded.pipeline.source, "all")
    schema = resolve(loaded, ["all"], lambda span: found).schema
    loaded.schema_file.write_text(to_text(schema))
    assert unknown_columns(loaded, schema, found) == ["empty"] and new_columns(loaded, schema, {"all": found}) == []
    fewer = schema.model_copy(update={"columns": tuple(c for c in schema.columns if c.name not in ("n", "day"))})
    loaded.schema_file.write_text(to_text(fewer))
    assert unknown_columns(loaded, fewer, found) == ["day", "empty", "n"]
    said = {row["column"]: row["why"] for row in current_table(loaded)}
    assert said["empty"] == "schema.pbtxt does not have it"
    loaded.schema_file.write_text(to_text(fewer) + said["day"].partition("to read it, add there: ")[2])
    added = resolve(loaded, ["all"], lambda span: found).schema.columns[-1]
    assert (added.name, added.temporal) == ("day", "date")
    loaded.schema_file.write_text(to_text(fewer))
    table = pa_csv.read_csv(found[0].path)
    pa_csv.write_csv(table.drop_columns(["n"]), tmp_path / "older.csv")
    older = files(loaded.pipeline.source.model_copy(update={"path": str(tmp_path / "older.csv")}), "all")
    for spans, since in (({"a": found}, None), ({"a": older, "b": older, "c": found, "d": found}, "c")):
        new = new_columns(loaded, fewer, spans)
        assert [(c.name, c.temporal, c.since) for c in new] == [("day", "date", None), ("n", None, since)]
        kept = from_text(to_text(Schema(columns=tuple(new))), where="schema.pbtxt")
        assert [column.since for column in kept.columns] == [None, since]
    again = resolve(loaded, ["all"], lambda span: found)  # the schema file keeps the rules
    assert next(c for c in again.read if c.name == "price").parse.as_ == "number"


def test_a_transform_of_a_column_that_is_not_a_feature_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="its transform would do nothing"):
        _loaded(tmp_path, PIPELINE.replace("junk: ignore", "junk: {role: ignore, transform: log}"))
    both = _loaded(tmp_path, PIPELINE.replace("{transform: vocabulary, role: group}", "{role: [group, feature]}"))
    assert both.pipeline.column_configs()["user_id"].feature is True
