"""Labels count by the rows' weights: as if a row of weight 3 were there three times, and one of weight 0 not at all."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import DataError
from headway.schema.columns import Column
from headway.statistics.column_statistics import ColumnStatistics
from tests.example_shards import write_examples
from tests.properties import examples
from tfcore.heads.label_parameters import fit_label
from tfcore.heads.weighted_labels import WeightedLabel

FLOAT, INT, TEXT = (Column(name="label", type=kind, nullable=False) for kind in ("float32", "int64", "bytes"))


def weighted(column, labels, weights, pieces=2):
    label = WeightedLabel(column)
    for part in np.array_split(np.arange(len(labels)), pieces):
        type = {"float32": pa.float32(), "int64": pa.int64(), "bytes": pa.binary()}[column.type]
        label.add(pa.array([labels[i] for i in part], type), pa.array([weights[i] for i in part], pa.float32()))
    return label


def fitted(column, labels, weights, task):
    return fit_label(ColumnStatistics("label", column.type), task, weighted=weighted(column, labels, weights))


@examples(60)
@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 4)), min_size=3, max_size=40))
def test_a_weight_of_n_is_n_rows(rows):
    labels, weights = (np.array(side) for side in zip(*rows, strict=True))
    repeated = np.repeat(labels, weights)
    if not len(repeated):
        return
    label = weighted(FLOAT, labels.tolist(), weights.tolist())
    np.testing.assert_allclose([label.mean, label.std], [repeated.mean(), repeated.std()], atol=1e-9)
    levels = [0.1, 0.5, 0.9]
    assert label.quantile(levels) == np.quantile(repeated, levels, method="inverted_cdf").tolist()


def test_rows_of_weight_0_do_not_count_at_all():
    r = np.random.default_rng(0)
    labels, weights = r.normal(size=1000), np.ones(1000)
    labels[::50], weights[::50] = 1e5, 0.0
    label = fitted(FLOAT, labels.tolist(), weights.tolist(), "quantiles(0.1, 0.5, 0.9)")
    assert abs(label.mean) < 0.2 and abs(label.std - 1) < 0.1 and max(label.quantiles) < 2 and abs(label.median) < 0.2
    # a class that only they have is none
    label = fitted(TEXT, [b"a", b"b", b"?", b"b"], [1, 2, 0, None], "auto")
    assert label.task == "binary" and label.classes == ("a", "b")
    assert label.counts == (1, 1) and label.base_rate == pytest.approx(2 / 3)
    label = fitted(INT, [0, 1, 2, 9, 2], [1.0, 1.0, 2.0, 0.0, 4.0], "multiclass")
    assert label.classes == (0, 1, 2) and label.counts == (1, 1, 3)
    # nor is it one of a label that is 0 or 1 elsewhere
    label, all_rows = weighted(INT, [0, 1, -1, 1], [1, 1, 0, 1]), ColumnStatistics("label", "int64")
    all_rows.update(pa.array([0, 1, -1, 1]))
    assert fit_label(all_rows, "auto", weighted=label).classes == (0, 1)


def test_no_row_that_counts_is_said():
    stats = ColumnStatistics("label", "float32")
    stats.update(pa.array([1.0, 2.0], pa.float32()))
    with pytest.raises(DataError, match="no train row with a label has a weight above 0"):
        fit_label(stats, "regression", weighted=weighted(FLOAT, [1.0, 2.0], [0, 0]))


@pytest.mark.parametrize("rows_per_record", [7, 4096])
def test_shards_are_read_again_where_rows_have_weights(tmp_path, rows_per_record):
    columns = [
        Column(name="x", type="float32", nullable=False),
        Column(name="w", type="float32", nullable=True, role="weight"),
        Column(name="label", type="float32", nullable=False),
    ]
    table = pa.table(
        {
            "x": pa.array(np.arange(40), pa.float32()),
            "w": pa.array([None if i == 3 else float(i % 4) for i in range(40)], pa.float32()),
            "label": pa.array([1e6 if i % 4 == 0 else i for i in range(40)], pa.float32()),
        }
    )
    written = write_examples(tmp_path, {"train": table}, columns, rows_per_record=rows_per_record)
    label = written.fit().label
    w, y = table["w"].fill_null(0).to_numpy(), table["label"].to_numpy()
    assert label.mean == pytest.approx(np.average(y, weights=w)) and label.mean < 40
