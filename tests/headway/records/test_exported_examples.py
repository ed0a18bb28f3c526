"""Rows for other tools as classic Examples, which stock tf.io parses."""

import json

import pyarrow as pa
import pytest

from headway.errors import ConfigError, DataError
from headway.records.row_files import SPEC, write_examples
from headway.schema.columns import Column

COLUMNS = (
    Column(name="n", type="int64", nullable=True),
    Column(name="x", type="float32", nullable=False),
    Column(name="s", type="bytes", nullable=True, encoding="dictionary"),
    Column(name="v", type="float32", nullable=True, shape=(2,)),
    Column(name="l", type="bytes", nullable=True, encoding="dictionary", shape=(None,)),
    Column(name="label", type="int64", nullable=False, role="label"),
)
ROWS = [
    {"n": 1, "x": 0.5, "s": b"a", "v": [1.0, 2.0], "l": [b"p", b"q"], "label": 0},
    {"n": None, "x": float("nan"), "s": None, "v": None, "l": None, "label": 1},
    {"n": 0, "x": 0.0, "s": b"", "v": [0.0, 0.0], "l": [], "label": 0},
    {"n": -7, "x": float("inf"), "s": b"\xff", "v": [3.0, -1.0], "l": [b""], "label": 1},
]


def table(count):
    made = {c.name: pa.array([ROWS[i % 4][c.name] for i in range(count)], c.arrow, from_pandas=False) for c in COLUMNS}
    return pa.table(made)


@pytest.fixture
def written(tmp_path):
    from tests import example_shards

    return example_shards.write_examples(tmp_path / "in", {"train": table(6), "eval": table(4)}, COLUMNS, shards=1)


def parts(found):
    return {split: [(found.folder, found.result, split)] for split in ("train", "eval")}


def test_stock_tf_io_parses_the_examples_by_the_spec_alone(tf, written, tmp_path):
    assert write_examples(parts(written), tmp_path / "out") == {"train": 6, "eval": 4}
    spec = json.loads((tmp_path / "out" / SPEC).read_text())
    kinds = {"int64": tf.int64, "float32": tf.float32, "string": tf.string}
    features = {}
    for name, entry in spec.items():
        kind = kinds[entry["dtype"]]
        fixed = entry["kind"] == "scalar"
        features[name] = tf.io.FixedLenFeature(entry.get("shape", []), kind) if fixed else tf.io.RaggedFeature(kind)
    files = sorted(map(str, (tmp_path / "out").glob("train-*.tfrecord")))
    parsed = [tf.io.parse_single_example(record, features) for record in tf.data.TFRecordDataset(files)]
    assert [row["n"].numpy().tolist() for row in parsed] == [[1], [], [0], [-7], [1], []]
    assert [row["l"].numpy().tolist() for row in parsed[:4]] == [[b"p", b"q"], [], [], [b""]]
    assert [int(row["l/present"]) for row in parsed[:4]] == [1, 0, 1, 1]


def test_the_folder_appears_whole_or_not_at_all(written, tmp_path):
    shard = written.folder / "eval-00000-of-00001.tfrecord"
    good = shard.read_bytes()
    shard.write_bytes(good[:-3])
    with pytest.raises(DataError):
        write_examples(parts(written), tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["in"]
    shard.write_bytes(good)
    write_examples(parts(written), tmp_path / "out")
    with pytest.raises(ConfigError, match="exists already"):
        write_examples(parts(written), tmp_path / "out")
