"""Names of outputs, and why two of them differ."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.storage.fingerprint import canonical, equal_leaves, fingerprint, first_difference

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([0.0, 1.0, 0.5]) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.dictionaries(st.text(min_size=1, max_size=3), JSON, max_size=4)


def test_golden_fingerprint():
    """Stores hold outputs under such names: another digest would orphan them all."""
    assert fingerprint({"b": [1, 2.5, None, True], "a": {"ü": "x"}}) == "5ae6711a7b0bec9484d4312246cc2609"
    assert canonical({"b": (1,), "a": "ü"}) == '{"a":"\\u00fc","b":[1]}'


def test_a_number_that_json_lacks_is_refused():
    with pytest.raises(ValueError):
        fingerprint({"x": float("nan")})


@given(KEYS, KEYS)
@settings(deadline=None, derandomize=True)
def test_a_difference_is_found_exactly_when_fingerprints_differ(old, new):
    assert (first_difference(old, new) is None) == (fingerprint(old) == fingerprint(new))
    assert first_difference(old, old) is None


@pytest.mark.parametrize(
    "old, new, said",
    [
        ({"c": {"t": {"rate": 0.001}}}, {"c": {"t": {"rate": 0.002}}}, "c.t.rate: 0.001 -> 0.002"),
        ({"span": "2013-01"}, {"span": "2013-02"}, "span: 2013-01 -> 2013-02"),
        ({"a": 1}, {"a": 1, "b": 2}, "b is new"),
        ({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {}}, "b.c is gone"),
        ({"x": [1, 2]}, {"x": [1, 3]}, "x[1]: 2 -> 3"),
        ({"x": [1, 2]}, {"x": [1]}, "x: 2 entries -> 1"),
        ({"x": 1}, {"x": True}, "x: 1 -> true"),
        ({"x": 1}, {"x": 1.0}, "x: 1 -> 1.0"),
        ({"x": "a" * 90}, {"x": None}, f"x: {'a' * 37}... -> null"),
    ],
)
def test_the_first_difference_is_readable(old, new, said):
    assert str(first_difference(old, new)) == said


def test_differences_are_listed_in_the_order_of_the_new_key():
    assert str(first_difference({"z": 1, "a": 1}, {"z": 2, "a": 2})) == "z: 1 -> 2"


def file(path: str, crc: str) -> dict:
    return {"path": path, "bytes": 3, "crc32c": crc}


def test_files_are_named_by_path():
    old = {"files": [file("/in/a.csv", "00"), file("/in/b.csv", "11")]}
    wanted = "files[/in/b.csv].crc32c: 11 -> 22"
    assert str(first_difference(old, {"files": [old["files"][0], file("/in/b.csv", "22")]})) == wanted
    assert str(first_difference(old, {"files": [*old["files"], file("c.csv", "33")]})) == "files[c.csv] is new"
    assert str(first_difference(old, {"files": old["files"][1:]})) == "files[/in/a.csv] is gone"
    assert str(first_difference(old, {"files": old["files"][::-1]})) == "files: another order"


def test_a_key_from_a_manifest_equals_the_same_key_fresh_from_a_config():
    assert first_difference({"hidden": [64, 32]}, {"hidden": (64, 32)}) is None


def test_shared_counts_equal_leaves():
    assert equal_leaves({"a": 1, "b": {"c": 2, "d": 3}, "e": [1, 2]}, {"a": 1, "b": {"c": 2, "d": 4}, "e": (1, 3)}) == 3
