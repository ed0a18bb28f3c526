"""The proof of the splits as it is typed: what is shown, what stops a run."""

import json

import pytest

PIPELINE = """
name: small
source: {format: csv, path: "{span}.csv"}
label: y
columns: {customer: {type: string, role: key}, order: {type: int, role: key}, x: }
split: {key: customer, eval: 0.4, unique: order}
"""


def _write(folder, span, customers, first=0):
    lines = [f"{customer},{first + i},{i},{i % 2}" for i, customer in enumerate(customers)]
    (folder / f"{span}.csv").write_text("\n".join(["customer,order,x,y", *lines]) + "\n")


@pytest.fixture
def small(tmp_path):
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    _write(tmp_path, "2013-01", range(100))
    _write(tmp_path, "2013-02", range(100), first=100)
    return tmp_path


@pytest.mark.slow
def test_validate_and_show_say_what_is_proven_and_a_leak_stops_the_run(typed, small):
    told = typed("validate", small, check=0).stdout
    assert "no customer is in two splits" in told and "order is unique: no value occurs twice in 200 rows" in told
    table = [line.split() for line in told.splitlines() if line.strip().startswith(("split", "train", "eval"))]
    assert table[1][:3] == ["split", "rows", "share"] or table[0][:3] == ["split", "rows", "share"]
    assert any(line[0] == "eval" and "40.00%" in line for line in table)
    shown = typed("show", small, check=0).stdout
    assert "no customer is in two splits" in shown and "order is unique" in shown

    _write(small, "2013-03", [f"{i}.0" for i in range(100)], first=199)
    record = json.loads(typed("validate", small, "--json", check=0).stdout)
    assert record["state"] == "done"
    stopped = typed("train", small, check=3).stderr
    assert "are in train and in eval: customer '" in stopped and "as customer '" in stopped
    assert "order 199 (2013-02 2013-02.csv row 100; 2013-03 2013-03.csv row 1)" in stopped


@pytest.mark.slow
def test_unknown_columns_are_reported_with_their_setting_and_the_nearest_name(typed, small):
    typed("validate", small, check=0)
    for setting, value, name in (("split.key", "costumer", "customer"), ("split.unique", "ordr", "order")):
        said = typed("validate", small, "--set", f"{setting}={value}", check=2).stderr
        assert setting in said and f"{value!r}" in said and f"did you mean {name!r}" in said
