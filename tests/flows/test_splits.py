"""The proof of the splits as it is typed: what is shown, what stops a run."""

import json
import shutil

import numpy as np
import pytest

PIPELINE = """
name: small
source: {format: csv, path: "{span}.csv"}
label: y
columns: {customer: {type: string, role: key}, order: {type: int, role: key}, x: }
split: {key: customer, eval: 0.4}
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
    told = typed("run", "--to", "validate", small, check=0).stdout
    assert "No customer is in two splits" in told
    table = [line.split() for line in told.splitlines() if line.strip().startswith(("split", "train", "eval"))]
    assert table[1][:3] == ["split", "rows", "share"] or table[0][:3] == ["split", "rows", "share"]
    assert any(line[0] == "eval" and "40.00%" in line for line in table)
    assert "no customer is in two splits" in typed("show", small, check=0).stdout

    _write(small, "2013-03", [f"{i}.0" for i in range(100)], first=199)
    record = json.loads(typed("run", "--to", "validate", small, "--json", check=0).stdout)
    assert record["state"] == "done"
    stopped = typed("run", "--to", "train", small, check=3).stderr
    assert "are in train and in eval: customer '" in stopped and "as customer '" in stopped


PATIENTS = """
name: patients
source: {format: csv, path: visits.csv}
label: ill
"""


@pytest.mark.slow
def test_validate_names_a_unit_that_a_split_by_row_tears_apart_and_the_line_that_keeps_it_together(typed, tmp_path):
    r = np.random.default_rng(3)
    of = r.permutation(np.repeat(np.arange(300), 10))
    about = [values[of] for values in (r.permutation(9000)[:300], r.integers(20, 90, 300), r.integers(0, 4, 300))]
    ill = (1.5 * r.normal(size=300)[of] + r.normal(size=len(of)) > 0).astype(int)
    rows = np.column_stack([*about, r.integers(0, 99, len(of)), ill])
    text = "\n".join(["mrn,age,site,dose,ill", *(",".join(map(str, row)) for row in rows.tolist())])
    (tmp_path / "visits.csv").write_text(text + "\n")
    (tmp_path / "pipeline.yaml").write_text(PATIENTS)

    def torn():
        [path] = [*tmp_path.glob("store/stages/validate/*/validation.json")]
        found = json.loads(path.read_text())["anomalies"]
        shutil.rmtree(tmp_path / "store")
        return [anomaly for anomaly in found if anomaly["kind"] == "torn unit"]

    typed("run", "--to", "validate", tmp_path, check=0)
    [finding] = torn()
    assert finding["severity"] == "warning" and finding["column"] == "mrn"
    said = "rows of one mrn are in train and in eval (100% of the eval rows, in 3,000 sampled rows)"
    assert said in finding["message"]
    assert finding["fix"].startswith("split by it: split: {key: mrn}; ")
    typed("run", "--to", "validate", tmp_path, "--set", "split.key=mrn", check=0)
    assert torn() == []
    typed("run", "--to", "validate", tmp_path, "--set", "split={mode: column, column: age, eval_from: 70}", check=0)
    assert torn() == []  # by time, or by another order, they may
