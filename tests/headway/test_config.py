"""YAML as people write it."""

import pytest

from headway.config import read_value, read_yaml
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
