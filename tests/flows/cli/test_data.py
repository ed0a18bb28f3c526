"""quarantine and export-rows, as they are typed."""

import json

import pyarrow as pa
import pytest

from flows.cli.data import Rejected, _quarantine_text
from headway.tabular import quarantine

PIPELINE = """
name: small
source: {format: csv, path: "{span}.csv"}
label: y
columns: {x: {type: float}, s: }
split: {mode: time}
validation: {max_quarantined: 1.0}
"""


@pytest.fixture
def small(tmp_path):
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "a.csv").write_text("x,s,y\n1,a,0\noops,b,1\n2.5,,1\n4,c,0,9\n")
    (tmp_path / "b.csv").write_text("x,s,y\n5,a,1\n6,b,0\n")
    return tmp_path


@pytest.mark.slow
def test_what_was_rejected_is_shown_and_what_was_kept_is_given_away(typed, small):
    assert "no store yet" in typed("quarantine", small, check=5).stderr
    typed("run", "--to", "ingest", small, check=0)
    told = typed("quarantine", small, check=0).stdout
    assert "2 of 6 rows were rejected" in told and "oops" in told and "a.csv" in told
    facts = json.loads(typed("quarantine", small, "--json", "--span", "b", check=0).stdout)
    assert (facts["rows"], facts["read"]) == (0, 2)
    assert "it has: a, b" in typed("quarantine", small, "--span", "c", check=2).stderr

    out = small / "out"
    examples = ("export-rows", small, "--format", "examples", "--output", out)
    assert sum(json.loads(typed(*examples, "--json", check=0).stdout)["rows"].values()) == 4
    assert "exists already" in typed(*examples, check=2).stderr
    read = small / "read.yaml"
    read.write_text(f"name: r\nsource: {{format: examples, path: {out}/*.tfrecord}}\nlabel: label\n")
    assert "4 rows" in typed("run", "--to", "ingest", read, check=0).stderr, "what was given away is a source as well"


@pytest.mark.slow
def test_the_manifest_s_feature_spec_is_all_that_stock_tf_io_needs(typed, small):
    tf = pytest.importorskip("tensorflow")
    typed("run", "--to", "ingest", small, check=0)
    kinds = {"int64": tf.int64, "float32": tf.float32, "string": tf.string}
    found = []
    for path in (small / "store" / "stages" / "ingest").glob("*/manifest.json"):
        features = {}
        for name, entry in json.loads(path.read_text())["result"]["feature_spec"].items():
            kind, shape = kinds[entry["dtype"]], entry.get("shape", [])
            features[name] = tf.io.FixedLenSequenceFeature(shape, kind, allow_missing=True)
        shards = [str(shard) for shard in path.parent.glob("*.tfrecord")]
        for record in tf.data.TFRecordDataset(shards):
            parsed = tf.io.parse_single_example(record, features)
            found += parsed["x"].numpy().reshape(-1).tolist()
    assert sorted(found) == [1.0, 2.5, 5.0, 6.0]


def test_the_same_fault_at_another_byte_is_one_reason():
    reasons = [
        "2 columns instead of 6, at byte 349",
        "2 columns instead of 6, at byte 7",
        "not a list, in the line at byte 3",
    ]
    table = pa.table({"column": pa.nulls(3, pa.string()), "reason": reasons})
    wanted = [("2 columns instead of 6", 2), ("not a list", 1)]
    assert [(found["reason"], found["rows"]) for found in quarantine.reasons(table)] == wanted


def test_a_reason_is_shown_to_its_last_word_which_is_the_byte():
    reason = "holds a list where an object should be, in the line at byte 123,456,789"
    row = {"span": ["a"], "file": ["0.jsonl"], "row": [1], "column": pa.nulls(1, pa.string()), "value": ["v" * 99]}
    table = pa.table(row | {"reason": [reason]})
    told = _quarantine_text(Rejected(1, 10, quarantine.reasons(table), table.to_pylist()))
    assert " ".join(told.split()).endswith(reason) and "v" * 49 not in told  # it may go on below
