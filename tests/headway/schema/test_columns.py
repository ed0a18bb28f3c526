"""What a message tells people to write of a column is what they need."""

import pytest
import yaml

from headway.schema.columns import column_yaml


def test_one_column_named_instead_of_auto_would_be_the_only_one_so_a_fix_names_the_others_too():
    assert column_yaml("c", "ignore", auto=True) == 'columns: {"*": auto, c: ignore}'
    assert column_yaml("c", "ignore", auto=False) == "columns: {c: ignore}"
    assert column_yaml("c", "ignore") == 'columns: {c: ignore}, or {"*": auto, c: ignore} if columns is auto'


@pytest.mark.parametrize(
    "name", ["fare", "a.b", "a-b", "a b", "no", "On", "1", "a: b", "{x}", "größe", '"', "#", "null"]
)
def test_a_column_of_any_name_is_written_as_yaml_reads_it(name):
    said = yaml.safe_load(column_yaml(name, "{type: string}", auto=True))
    assert said == {"columns": {"*": "auto", name: {"type": "string"}}}
