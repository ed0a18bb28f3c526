"""Rank correlations of the columns that matter most."""

import numpy as np
import pyarrow as pa

from flows.tell.sections.window.correlations import correlations
from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics


def saved(folder, **columns):
    kinds = {"float": "float32", "int64": "int64", "binary": "bytes"}
    table = pa.table(columns)
    made = SplitStatistics.create([Column(name=f.name, type=kinds[str(f.type)], nullable=True) for f in table.schema])
    made.update(table.to_batches()[0])
    made.save(folder)
    return folder


def test_numbers_are_ranked_and_texts_left_out(tmp_path):
    r = np.random.default_rng(1)
    x = r.normal(size=500).astype(np.float32)
    holes = pa.array(x, mask=r.random(500) < 0.3)
    columns = {"x": x, "cubed": -(x**3), "holes": holes, "noise": r.normal(size=500).astype(np.float32)}
    columns |= {"same": np.full(500, 3, np.int64), "text": pa.array([b"a", b"b"] * 250)}
    (table,) = correlations(saved(tmp_path, **columns), list(columns), len(columns))
    told = {row["column"]: row for row in table}
    assert list(told) == ["x", "cubed", "holes", "noise"], "in the order of the names; a constant goes with nothing"
    assert (told["x"]["cubed"], told["x"]["x"], told["cubed"]["holes"]) == ("-1.00", "1.00", "-1.00")
    assert abs(float(told["x"]["noise"])) < 0.15 and table.shades[0]["cubed"] > 0.999
    assert "500 sampled train rows" in table.note


def test_equal_values_share_a_rank_and_few_rows_tell_nothing(tmp_path):
    few = np.arange(20, dtype=np.float32)
    assert list(correlations(saved(tmp_path / "few", a=few, b=few), ["a", "b"], 2)) == []
    a = np.repeat([0, 1], 100)
    b = np.concatenate([np.zeros(150, np.int64), np.ones(50, np.int64)])
    (table,) = correlations(saved(tmp_path / "ties", a=a, b=b), ["a", "b"], 2)
    assert float(table[0]["b"]) == round(float(np.corrcoef(a, b)[0, 1]), 2)


def test_columns_whose_names_begin_alike_stay_apart(tmp_path):
    x = np.random.default_rng(1).normal(size=(2, 300)).astype(np.float32)
    columns = {"u" * 70 + str(i): values for i, values in enumerate(x)}
    (table,) = correlations(saved(tmp_path, **columns), list(columns), 2)
    first, second = (row["column"] for row in table)
    assert first != second and (table[0][first], table[1][second]) == ("1.00", "1.00")
    assert table[0][second] == table[1][first] != "1.00"


def test_without_a_sample_there_is_no_table(tmp_path):
    assert list(correlations(None, ["a"], 1)) == []
    (tmp_path / "sample.arrow").write_bytes(b"damaged")
    assert list(correlations(tmp_path, ["a", "b"], 2)) == []
