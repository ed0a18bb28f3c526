"""YAML as people write it."""

import re
from typing import Annotated, Literal

import pytest
from pydantic import Field

from headway.config import Frozen, load, read_value, read_yaml
from headway.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-4", 1e-4), ("-2E3", -2000.0), ("1.0e-4", 1e-4), ("7", 7), ("2013-01", "2013-01"), ("e5", "e5")],
)
def test_a_number_with_an_exponent_is_a_number_with_or_without_a_point(tmp_path, text, value):
    found = read_value(text)
    assert found == value and type(found) is type(value)
    (tmp_path / "a.yaml").write_text(f"rate: {text}\n")
    assert read_yaml(tmp_path / "a.yaml") == {"rate": value}


def test_what_is_no_value_is_named():
    with pytest.raises(ConfigError, match="'a: b: c' is not a YAML value"):
        read_value("a: b: c")
    with pytest.raises(ConfigError, match="key 'a' stands twice"):
        read_value("{a: 1, a: 2}")


BOMB = "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 3_000, "nested too deeply"),
        ("[" * 150 + "]" * 150, "nested more than 100 levels deep"),
        ("{a: " * 150 + "1" + "}" * 150, "nested more than 100 levels deep"),
        ("&a [*a]", "nested more than 100 levels deep"),
        (BOMB, "aliases stand for more than 1,000,000 values"),
    ],
)
def test_yaml_without_an_end_is_an_error(tmp_path, text, words):
    with pytest.raises(ConfigError) as error:
        read_value(text)
    assert words in str(error.value) and len(str(error.value)) < 200
    (tmp_path / "a.yaml").write_text(text if text is BOMB else f"key: {text}\n")
    with pytest.raises(ConfigError, match=words):
        read_yaml(tmp_path / "a.yaml")


def test_a_file_that_is_no_pipeline_is_refused_without_showing_its_lines(tmp_path):
    (tmp_path / "shadow").write_text("root:$6$salt$secret:19000:0:99999:7:::\nbin:*:19000:0:99999:7:::\n")
    with pytest.raises(ConfigError) as error:
        read_yaml(tmp_path / "shadow", keys=("name", "source"))
    assert "none of the keys name, source" in str(error.value)
    assert not re.search("salt|secret|bin|19000", str(error.value))
    (tmp_path / "p.json").write_text('{"name": "x"}')
    assert read_yaml(tmp_path / "p.json", keys=("name", "source")) == {"name": "x"}


class Chosen(Frozen):
    op: Literal["chosen"] = "chosen"
    top_k: int = 1


class Other(Frozen):
    op: Literal["other"] = "other"
    buckets: int = 2


class Inner(Frozen):
    kind: Literal["red", "green"] = "red"
    size: Literal["scalar", "list"] | Annotated[int, Field(ge=1)] = "scalar"
    ops: Literal["auto"] | tuple[Annotated[Chosen | Other, Field(discriminator="op")], ...] = "auto"


class Outer(Frozen):
    name: str = "x"
    columns: Literal["auto"] | dict[str, Inner] = "auto"
    pick: Annotated[Chosen | Other, Field(discriminator="op")] = Chosen()


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"nme": 1}, "nme: unknown key; did you mean 'name'?"),
        ({"columns": "atuo"}, "columns: should be 'auto', or be a mapping of keys to values; did you mean 'auto'?"),
        ({"columns": {"a": {"kind": "gren"}}}, "columns.a.kind: should be 'red' or 'green'; did you mean 'green'?"),
        ({"columns": {"str": {"size": -1}}}, "str.size: should be 'scalar' or 'list', or be greater than or equal to 1 (got -1)"),
        ({"columns": {"a": {"ops": [{"op": "chosen", "topk": 1}]}}}, "a.ops.0.chosen.topk: unknown key; did you mean 'top_k'?"),
        ({"columns": {"a": {"ops": [{"op": "chosn"}]}}}, "'chosn': it should be 'chosen' or 'other'; did you mean 'chosen'?"),
        ({"pick": {"othr": {}}}, "pick: should say its op: 'chosen' or 'other'; did you mean 'op: other'?"),
        ({"pick": "other"}, "pick: should be a mapping of keys to values, which are: op, top_k, buckets (got 'other')"),
        ({"columns": {"a": {"size": 0}, "b": {"kind": 3}}}, "columns.b.kind: should be 'red' or 'green' (got 3)"),
    ],
)  # fmt: skip
def test_config_errors_use_the_names_of_the_file(value, sentence):
    with pytest.raises(ConfigError) as error:
        load(Outer, value, where="x.yaml")
    assert sentence in str(error.value)
    assert not re.search(
        r"literal\[|dict\[|tuple\[|function-|tagged-union|Input should|valid dictionary", str(error.value)
    )


def test_a_key_that_is_called_null_is_that_name(tmp_path):
    file = tmp_path / "pipeline.yaml"
    file.write_text("parse: {as: number, null: ['?', none]}\nnull: 1\nempty: null\n")
    assert read_yaml(file) == {"parse": {"as": "number", "null": ["?", "none"]}, "null": 1, "empty": None}
