"""The graph against NumPy, row groups against single rows, dictionaries against plain values."""

from functools import cache

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics
from tfcore.transform.config import ColumnTransform
from tfcore.transform.fit import fit_parameters
from tfcore.transform.layer import Transform, transform_of
from tfcore.transform.parameters import apply_numeric
from tfcore.transform.raw_column import RawColumn

FLOAT = Column(name="x", type="float32", nullable=True)
INT = Column(name="n", type="int64", nullable=True)
TEXT = Column(name="s", type="bytes", nullable=True, encoding="dictionary")
LABEL = Column(name="label", type="int64", nullable=False, role="label")


def _fitted(column, values, transform):
    batch = pa.RecordBatch.from_arrays(
        [pa.array(values, column.arrow), pa.array([i % 2 for i in range(len(values))])], names=[column.name, "label"]
    )
    statistics = SplitStatistics.create((column, LABEL))
    statistics.update(batch)
    parameters, _ = fit_parameters((column, LABEL), {column.name: ColumnTransform(transform=transform)}, statistics)
    return parameters


CHAINS = [
    "standardize",
    "min_max",
    "identity",
    ["log", "standardize"],
    [{"clip": {"min": -3, "max": 3}}, {"min_max": {"low": -1, "high": 1}}],
    [{"clip": {"quantiles": [0.1, 0.9]}}, "standardize"],
]


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_numbers_equal_the_numpy_reference(chain):
    r = np.random.default_rng(0)
    train = np.round(r.normal(0, 50, 500), 1).astype(np.float32).tolist()
    parameters = _fitted(FLOAT, [*train, None], chain)
    values = np.array([*train[:50], np.nan, np.inf, 0.0, -0.0, 1e6], np.float32)
    present = np.ones(len(values), bool)
    present[3] = False
    got = Transform(parameters).named({"x": RawColumn(tf.constant(values), tf.constant(present))})
    fitted = parameters.fitted[0]
    usable = present & np.isfinite(values)
    want = np.where(usable, values, fitted.fill).astype(np.float64)
    for op in fitted.ops:
        want = apply_numeric(op, want)
    np.testing.assert_allclose(got["x"].numpy(), want, rtol=2e-5, atol=2e-6)
    np.testing.assert_array_equal(got["x__missing"].numpy(), (~present).astype(np.float32))


@given(st.lists(st.integers(-(2**53), 2**53), min_size=2, max_size=40, unique=True))
def test_centring_in_float64_keeps_large_integers_apart(values):
    parameters = _fitted(INT, values, "standardize")
    got = Transform(parameters).named({"n": RawColumn(tf.constant(values, tf.int64), None)})["n"].numpy()
    op = parameters.fitted[0].ops[0]
    np.testing.assert_allclose(got, (np.array(values, np.float64) - op.mean) / op.std, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("chain", ["standardize", "min_max"])
def test_numbers_too_small_for_float32_s_exponent_are_not_divided_by_0(chain):
    values = np.array([0.0, 1e-40, 3e-40] * 20, np.float32)
    got = (
        Transform(_fitted(FLOAT, values.tolist(), chain))
        .named({"x": RawColumn(tf.constant(values), None)})["x"]
        .numpy()
    )
    assert np.isfinite(got).all() and np.abs(got).max() <= 1


def test_buckets_equal_searchsorted_and_null_has_an_id_of_its_own():
    parameters = _fitted(FLOAT, list(range(100)), {"bucketize": {"boundaries": [10, 20, 30]}})
    values = np.array([-5, 10, 10.5, 29.9, 30, 99, 7, np.nan], np.float32)
    present = np.array([1, 1, 1, 1, 1, 1, 0, 1], bool)
    got = Transform(parameters).named({"x": RawColumn(tf.constant(values), tf.constant(present))})["x"].numpy()
    want = np.searchsorted(parameters.fitted[0].ops[0].boundaries, values, side="right")
    want[6] = want[7] = 4
    np.testing.assert_array_equal(got, want)
    assert parameters.categorical[0].size == 5


@pytest.mark.parametrize("before", ["log", "standardize", {"min_max": {"low": -2, "high": 5}}], ids=str)
def test_a_value_on_a_boundary_has_one_bucket_whatever_stands_before_and_beside_it(before):
    train = np.repeat(np.arange(0, 700, dtype=np.float32) * np.float32(0.1), 2).tolist()
    behind = Transform(_fitted(FLOAT, train, [before, {"bucketize": {"buckets": 200}}]))
    plain = Transform(_fitted(FLOAT, train, {"bucketize": {"buckets": 200}}))
    values = tf.constant(train[::2])
    want = plain.named({"x": RawColumn(values, None)})["x"].numpy()
    assert len(set(want)) == 200
    ids = tf.function(lambda x: behind.named({"x": RawColumn(x, None)})["x"], autograph=False)
    np.testing.assert_array_equal(ids(values), want)
    for start in (1, 2, 3, 5):
        np.testing.assert_array_equal(ids(values[start:][:333]), want[start:][:333])
    singly = [ids(values[i : i + 1])[0] for i in range(0, 700, 7)]
    np.testing.assert_array_equal(singly, want[::7])


WORDS = st.lists(
    st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"NaN", "é".encode(), b"new", b"\xff"])), max_size=30
)


TEXTS, KNOWN, CODES = (tf.TensorSpec([None], dtype) for dtype in (tf.string, tf.bool, tf.int64))


@cache
def _text_transform(name, option):
    """(the parameters, ids of plain values and of a dictionary's, each one graph for any number of rows)."""
    parameters = _fitted(TEXT, [b"a"] * 5 + [b"b"] * 3 + [b""] * 2 + [None], {name: dict([option])})
    module = Transform(parameters)

    @tf.function(input_signature=[TEXTS, KNOWN], autograph=False)
    def plain(values, present):
        return module({"s": RawColumn(values, present)})["categorical"]

    @tf.function(input_signature=[TEXTS, KNOWN, CODES], autograph=False)
    def dictionary(words, present, codes):
        return module({"s": RawColumn(words, present, codes)})["categorical"]

    return parameters, plain, dictionary


@pytest.mark.parametrize("transform", [("vocabulary", ("oov_buckets", 3)), ("hash", ("buckets", 5))], ids=str)
@given(rows=WORDS)
def test_a_dictionary_gives_the_same_ids_as_plain_values_and_as_single_rows(transform, rows):
    parameters, ids_of, ids_of_dictionary = _text_transform(*transform)
    array = pa.array(rows, pa.binary())
    present = tf.constant([row is not None for row in rows], tf.bool)
    plain = tf.constant([row or b"" for row in rows], tf.string)
    encoded = array.dictionary_encode()
    codes = tf.constant([0 if i is None else i for i in encoded.indices.to_pylist()], tf.int64)
    ids = ids_of(plain, present).numpy()[:, 0]
    whole = ids_of_dictionary(tf.constant(encoded.dictionary.to_pylist(), tf.string), present, codes)
    np.testing.assert_array_equal(whole[:, 0], ids)
    single = [ids_of(plain[i : i + 1], present[i : i + 1])[0, 0] for i in range(len(rows))]
    np.testing.assert_array_equal(ids, single)
    size = parameters.categorical[0].size
    assert ((ids >= 0) & (ids < size)).all()
    assert all((row is None) == (i == size - 1) for row, i in zip(rows, ids, strict=True))


INTEGERS = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize("spread", [40, 10**9], ids=["close together", "far apart"])
@given(values=st.lists(INTEGERS | st.integers(-60, 60), max_size=20))
def test_integer_vocabularies_know_train_values_and_nothing_else(spread, values):
    train = [-spread, -3, 0, 0, 7, 7, 7, spread] * 2
    parameters = _fitted(INT, train, "vocabulary")
    got = Transform(parameters)({"n": RawColumn(tf.constant(values, tf.int64), None)})["categorical"].numpy()[:, 0]
    known = parameters.fitted[0].ops[0].integers
    assert known[:2] == (7, 0) and set(known) == set(train)
    assert got.tolist() == [known.index(v) if v in known else len(known) for v in values]


def test_columns_of_one_form_are_traced_once_for_all_graphs_that_ask_for_them():
    traced = []

    def preprocess(columns):
        traced.append(sorted(columns))
        return {}

    transform = Transform(_fitted(FLOAT, [1.0, 2.0, None], "standardize"), preprocess)

    def graph(body):
        spec = tf.TensorSpec([None], tf.float32)
        known = tf.function(lambda x: body({"x": RawColumn(x, ~tf.math.is_nan(x)), "other": RawColumn(x, None)}))
        return known.get_concrete_function(spec)

    inputs, named = graph(transform), graph(transform.named)
    assert traced == [["x"]]
    x = tf.constant([1.0, np.nan, 3.0])
    np.testing.assert_array_equal(inputs(x)["numeric"], tf.stack([named(x)[n] for n in ("x", "x__missing")], 1))
    data = tf.data.Dataset.from_tensors({"x": x}).map(lambda row: graph(transform)(row["x"]))
    np.testing.assert_array_equal(next(iter(data))["numeric"], inputs(x)["numeric"])
    assert traced == [["x"]]


def test_the_stages_of_a_run_share_a_transform_and_another_one_is_made_for_other_parameters():
    parameters = _fitted(FLOAT, [1.0, 2.0, None], "standardize")
    first = transform_of(parameters, None)
    again = type(parameters).model_validate_json(parameters.model_dump_json())
    assert transform_of(again, None) is first
    assert transform_of(_fitted(FLOAT, [1.0, 3.0], "standardize"), None) is not first
