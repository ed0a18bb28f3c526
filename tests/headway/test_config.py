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
    with pytest.raises(ConfigError, match="'a: b: c' is no YAML value"):
        read_value("a: b: c")


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
def test_what_is_wrong_is_said_in_the_words_of_the_file(value, sentence):
    with pytest.raises(ConfigError) as error:
        load(Outer, value, where="x.yaml")
    assert sentence in str(error.value)
    assert not re.search(
        r"literal\[|dict\[|tuple\[|function-|tagged-union|Input should|valid dictionary", str(error.value)
    )
