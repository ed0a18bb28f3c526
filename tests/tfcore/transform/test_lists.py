"""Lists and vectors as model inputs: the same from row groups, single rows and served tensors; four kinds of nothing apart."""

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import ConfigError
from headway.records.encode import encode, encode_classic
from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics
from tfcore.data.reader import Decoder
from tfcore.export.request_columns import of_examples, of_tensors
from tfcore.export.saved_model import Served
from tfcore.export.signatures import nullable_inputs
from tfcore.models.layers import ListEmbedding
from tfcore.transform.config import ColumnTransform
from tfcore.transform.fit import fit_parameters
from tfcore.transform.layer import Transform

LABEL = Column(name="label", type="int64", nullable=False, role="label")
WORDS = Column(name="words", type="bytes", nullable=True, encoding="dictionary", shape=(None,))
IDS = Column(name="ids", type="int64", nullable=False, shape=(None,))
PAIR = Column(name="pair", type="float32", nullable=True, shape=(2,))
HISTORY = Column(name="history", type="float32", nullable=True, shape=(None,))
COLUMNS = (WORDS, IDS, PAIR, HISTORY)

TRAIN = {
    "words": [[b"a", b"b", b"a"], [b"a"], [], None, [b"c", b"b"], [b"b"]],
    "ids": [[3, 1], [1], [], [3, 3, 3, 1], [1], [2, 2]],
    "pair": [[1, 2], [0, 0], None, [3, float("nan")], [5, 6], [1, 1]],
    "history": [[1.0, 3.0], [], None, [0.0], [float("nan"), 2.0], [4.0]],
}


def table(rows, columns=COLUMNS):
    arrays = [pa.array(rows[c.name], c.arrow, from_pandas=False) for c in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[c.name for c in columns])


def fitted(transforms=None):
    train = table(TRAIN)
    train = train.append_column("label", pa.array([i % 2 for i in range(train.num_rows)]))
    statistics = SplitStatistics.create((*COLUMNS, LABEL))
    statistics.update(train)
    transforms = {"ids": {"transform": "vocabulary"}} | (transforms or {})  # auto's category needs more rows than these
    configs = {name: ColumnTransform.model_validate(value) for name, value in transforms.items()}
    return fit_parameters((*COLUMNS, LABEL), configs, statistics)[0]


def served(transform):
    return Served(transform=transform, predict=lambda inputs: inputs, columns=COLUMNS, variables=[])


def as_tensors(batch):
    tensors = {}
    for column in COLUMNS:
        values = batch.column(column.name).to_pylist()
        empty = b"" if column.type == "bytes" else 0
        if column.is_list:
            longest = max([1, *(len(v or []) for v in values)]) + 1  # wider than any list
            tensors[f"{column.name}__length"] = tf.constant([len(v or []) for v in values], tf.int64)
        else:
            longest = column.length
        padded = [[*(v or []), *[empty] * longest][:longest] for v in values]
        dtype = {"bytes": tf.string, "int64": tf.int64, "float32": tf.float32}[column.type]
        tensors[column.name] = tf.constant(padded, dtype, [len(values), longest])
        if column.nullable:
            tensors[f"{column.name}__present"] = tf.constant([v is not None for v in values])
    return tensors


def lists_of(element):
    return st.lists(element, max_size=5)


ROWS = st.fixed_dictionaries(
    {
        "words": st.one_of(st.none(), lists_of(st.sampled_from([b"a", b"b", b"c", b"", b"new"]))),
        "ids": lists_of(st.sampled_from([0, 1, 2, 3, -7])),
        "pair": st.one_of(st.none(), st.lists(st.sampled_from([0.0, 1.5, float("nan")]), min_size=2, max_size=2)),
        "history": st.one_of(st.none(), lists_of(st.sampled_from([0.0, -2.0, float("nan"), 1e6]))),
    }
)


@pytest.fixture(scope="module")
def ways():
    """From a batch to the model inputs in each way, traced once for all batches; the first is from a row group."""
    transform = Transform(fitted())
    served_module = served(transform)
    nullable = nullable_inputs(COLUMNS)
    some = as_tensors(table(TRAIN))
    open_shapes = {name: tf.TensorSpec([None] * value.shape.rank, value.dtype) for name, value in some.items()}

    def traced(function, spec):
        return tf.function(function, input_signature=[spec], autograph=False)

    names = [c.name for c in COLUMNS]
    group = traced(lambda record: transform(Decoder(COLUMNS, names)(record)), tf.TensorSpec([], tf.string))
    records = tf.TensorSpec([None], tf.string)
    tensors = traced(lambda given: served_module.predict(of_tensors(given, COLUMNS, nullable)), open_shapes)
    examples = traced(lambda records: served_module.predict(of_examples(records, COLUMNS)), records)
    return (
        lambda batch: group(tf.constant(encode(batch, COLUMNS))),
        lambda batch: tensors(as_tensors(batch)),
        lambda batch: examples(tf.constant(encode_classic(batch, COLUMNS))),
    )


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(ROWS, min_size=1, max_size=6))
def test_row_groups_and_served_tensors_give_the_same_inputs(ways, rows):
    batch = table({name: [row[name] for row in rows] for name in TRAIN})
    group, *others = ways
    wanted = {name: value.numpy() for name, value in group(batch).items()}
    assert set(wanted) == {"numeric", "categorical", "lists"} and wanted["lists"].dtype == np.int32
    for way in others:
        found = way(batch)
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name].numpy(), value, err_msg=name)


def named(rows, transforms=None):
    parameters = fitted(transforms)
    group = Decoder(COLUMNS, [c.name for c in COLUMNS])(tf.constant(encode(table(rows), COLUMNS)))
    found = Transform(parameters).named(group)
    return {name: value.numpy() for name, value in found.items()}, parameters


def test_null_empty_zero_and_nan_are_four_different_inputs():
    rows = {
        "words": [None, [], [b""], [b"a"]],
        "ids": [[], [0], [1], [2]],
        "pair": [None, [0, 0], [float("nan"), 0], [1, 2]],
        "history": [None, [], [0.0], [float("nan")]],
    }
    found, parameters = named(rows)
    rows_of = {
        "words": found["words"],
        "pair": np.column_stack([found["pair"], found["pair__missing"], found["pair__nan"]]),
        "history": np.column_stack([found[name] for name in sorted(found) if name.startswith("history__")]),
    }
    for name, inputs in rows_of.items():
        assert len(np.unique(inputs, axis=0)) == 4, (name, inputs)
    assert found["words"][1].tolist() == [-1] * found["words"].shape[1]
    assert found["words"][0][0] == parameters.fitted[0].size - 1


def test_figures_of_a_list_of_numbers():
    rows = {"words": [[]] * 3, "ids": [[]] * 3, "pair": [[0, 0]] * 3, "history": [[1.0, 4.0], [], [2.0]]}
    found, _ = named(rows, {"history": {"transform": "identity", "pool": ["mean", "min", "max", "sum", "length"]}})
    figures = {name: found[f"history__{name}"].tolist() for name in ("mean", "min", "max", "sum", "length")}
    wanted = {"mean": [2.5, 0, 2], "min": [1, 0, 2], "max": [4, 0, 2], "sum": [5, 0, 2], "length": [1.0, 0, 0.5]}
    assert figures == wanted


def test_a_longer_list_is_cut_at_max_length():
    rows = {"words": [[b"a", b"b", b"c"]], "ids": [[]], "pair": [None], "history": [None]}
    found, parameters = named(rows, {"words": {"max_length": 2}})
    assert found["words"].shape == (1, 2) and parameters.lists[0].width == 2
    assert parameters.inputs()["lists"] == ((2 + parameters.lists[1].width,), "int32")


def test_statistics_of_lists_are_of_their_elements():
    statistics = SplitStatistics.create(COLUMNS)
    statistics.update(table(TRAIN))
    words, history = statistics.columns["words"], statistics.columns["history"]
    assert words.top(2) == [(b"b", 3), (b"a", 3)][::-1]
    assert (words.rows, words.missing, words.empty, words.elements, words.longest_list) == (6, 1, 1, 7, 3)
    assert (history.nan, history.zeros, history.finite, history.mean) == (1, 1, 5, 2.0)


def test_the_mean_embedding_ignores_empty_slots():
    layer = ListEmbedding([3, 4], [2, 3], 5, seed=0)
    out = layer(tf.constant([[0, 2, 3, -1, -1], [-1, -1, -1, -1, -1]])).numpy()
    table_ = layer.table.numpy()
    np.testing.assert_allclose(out[0], [table_[[0, 2]].mean(0), table_[6]], rtol=1e-6)
    assert not out[1].any()


def test_a_pool_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="nothing of the list"):
        fitted({"history": {"pool": []}})
