"""Splits: the same row in the same split for ever, duplicates together, shares as asked for."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.config import load
from headway.errors import ConfigError, DataError
from headway.schema.columns import Column
from headway.tabular.splits import SplitConfig, assign_splits, column_hash, row_hash, stored_value, window_splits

GOLDEN = pa.RecordBatch.from_pydict(
    {
        "i": pa.array([1, -1, None, 2**63 - 1]),
        "f": pa.array([1.5, -0.0, None, float("nan")], pa.float32()),
        "s": pa.array([b"a", b"", None, b"abcdefghij"]),
    }
)
FLOATS = st.floats(width=32) | st.none() | st.sampled_from([0.0, -0.0])
ROWS = st.lists(
    st.tuples(st.integers(-(2**63), 2**63 - 1) | st.none(), FLOATS, st.binary(max_size=12) | st.none()),
    min_size=1,
    max_size=40,
)


def split_of(config, batch):
    return assign_splits(config, batch).codes


def batch_of(rows, encoded=False):
    whole, floats, texts = zip(*rows, strict=True)
    text = pa.array(texts, pa.binary())
    return pa.RecordBatch.from_pydict(
        {
            "i": pa.array(whole, pa.int64()),
            "f": pa.array(floats, pa.float32()),
            "s": text.dictionary_encode() if encoded else text,
        }
    )


@pytest.mark.parametrize(
    ("hashed", "golden"),
    [
        (column_hash(GOLDEN["i"]), "910a2dec89025cc1 e4d971771b652c20 6e756c6c6e756c6c 2a67d7552e039ea7"),
        (column_hash(GOLDEN["f"]), "555b738727e4a1cf e220a8397b1dcdaf 6e756c6c6e756c6c 597709b67ebb1c02"),
        (column_hash(GOLDEN["s"]), "5e025f9ade9eaf3e e220a8397b1dcdaf 6e756c6c6e756c6c fdb918fdab0970f0"),
        (row_hash(GOLDEN, ["s", "i", "f"]), "7a8e084adbc36050 39367a57284fb9de a5d378fa7a92418c 66186b9f1354c74b"),
    ],
)
def test_golden_hashes(hashed, golden):
    assert " ".join(f"{value:016x}" for value in hashed) == golden


def test_golden_splits():
    batch = pa.RecordBatch.from_pydict({"id": pa.array(range(40))})
    assert "".join(map(str, split_of(SplitConfig(eval=0.3, test=0.2), batch))) == GOLDEN_SPLITS


GOLDEN_SPLITS = "1020012002120002110100000210002202011020"


@given(ROWS, st.integers(0, 40), st.booleans())
def test_a_row_keeps_its_split_whatever_batch_it_is_in(rows, cut, encoded):
    config = SplitConfig(eval=0.3, test=0.3)
    whole = split_of(config, batch_of(rows)).tolist()
    batch = batch_of(rows, encoded)
    parts = [batch.slice(0, cut), batch.slice(cut)]
    assert [code for part in parts for code in split_of(config, part)] == whole
    # alone in its batch, too
    assert [split_of(config, batch_of([row]))[0] for row in rows] == whole


@given(ROWS)
def test_a_key_alone_decides(rows):
    config = SplitConfig(key=("s",), eval=0.4, test=0.3)
    other = [(None, 0.5, text) for _, _, text in rows]
    assert split_of(config, batch_of(rows)).tolist() == split_of(config, batch_of(other)).tolist()


def test_keys_in_any_order_are_the_same_key():
    forth, back = (row_hash(GOLDEN, names).tolist() for names in (["i", "s"], ["s", "i"]))
    assert forth == back


def test_values_that_change_columns_change_the_hash():
    a = pa.RecordBatch.from_pydict({"x": [b"u"], "y": [b"v"]})
    b = pa.RecordBatch.from_pydict({"x": [b"v"], "y": [b"u"]})
    assert row_hash(a, ["x", "y"]) != row_hash(b, ["x", "y"])


def test_null_nan_zero_and_empty_hash_apart_and_signs_of_zero_alike():
    floats = column_hash(pa.array([None, float("nan"), 0.0, -0.0, -float("nan")], pa.float32()))
    assert len(set(floats[:3].tolist())) == 3 and floats[3] == floats[2] and floats[4] == floats[1]
    texts = column_hash(pa.array([None, b"", b"\0", b"null"]))
    assert len(set(texts.tolist())) == 4


def test_repeated_and_distinct_texts_hash_alike_in_large_batches():
    texts = [f"customer {i % 700}".encode() for i in range(5000)] + [None, b""]
    once = column_hash(pa.array(texts))
    assert once.tolist() == [column_hash(pa.array([text], pa.binary()))[0] for text in texts]
    assert column_hash(pa.array(texts).slice(1234, 3000)).tolist() == once[1234:4234].tolist()
    assert column_hash(pa.array(texts, pa.large_binary())).tolist() == once.tolist()


def test_a_dictionary_may_hold_null():
    odd = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int32()), pa.array([b"a", None]))
    assert column_hash(odd).tolist() == column_hash(pa.array([b"a", None, None])).tolist()


@pytest.mark.parametrize(("share", "test"), [(0.2, 0.0), (0.1, 0.3), (0.5, 0.25), (0.001, 0.0)])
def test_shares_are_as_asked_for(share, test):
    n = 100_000
    codes = split_of(SplitConfig(eval=share, test=test), pa.RecordBatch.from_pydict({"id": np.arange(n)}))
    for code, wanted in ((1, share), (2, test), (0, 1 - share - test)):
        assert abs((codes == code).mean() - wanted) < 4 * (0.25 / n) ** 0.5


def test_a_larger_eval_share_only_takes_rows_in():
    batch = pa.RecordBatch.from_pydict({"id": np.arange(2000)})
    small, large = (split_of(SplitConfig(eval=share), batch) == 1 for share in (0.1, 0.3))
    assert (large | ~small).all()


def test_empty_batches():
    columns = [pa.array([], pa.int64()), pa.array([], pa.binary()), pa.array([], pa.binary()).dictionary_encode()]
    batch = pa.RecordBatch.from_arrays(columns, names=["a", "b", "c"])
    for config in (SplitConfig(), SplitConfig(mode="time"), SplitConfig(mode="column", column="b")):
        assert split_of(config, batch).tolist() == []


# --- by a column


@pytest.mark.parametrize("dictionary", [False, True])
def test_a_split_column_decides_each_row(dictionary):
    values = pa.array([b"eval", b"train", b"test", b"train"])
    batch = pa.RecordBatch.from_pydict({"part": values.dictionary_encode() if dictionary else values})
    assert split_of(SplitConfig(mode="column", column="part"), batch).tolist() == [1, 0, 2, 0]


def test_a_column_with_other_words_for_it():
    config = SplitConfig(mode="column", column="year", values={"2012": "train", "2013": "eval"})
    assert split_of(config, pa.RecordBatch.from_pydict({"year": [2013, 2012]})).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("values", "said"),
    [([b"train", b"dev"], "'dev'"), ([b"train", b"\xff"], r"'\\xff'"), ([b"train", None], "1 row has no value")],
)
@pytest.mark.parametrize("dictionary", [False, True])
def test_a_value_that_says_nothing_is_a_data_error(values, said, dictionary):
    array = pa.array(values)
    batch = pa.RecordBatch.from_pydict({"part": array.dictionary_encode() if dictionary else array})
    with pytest.raises(DataError) as error:
        split_of(SplitConfig(mode="column", column="part"), batch)
    assert said in str(error.value) and "'part'" in str(error.value) and error.value.fix


# --- the window


def test_hash_splits_take_every_span():
    parts = window_splits(SplitConfig(test=0.1), ["a", "b"])
    assert parts["train"] == [("a", "train"), ("b", "train")] and parts["test"] == [("a", "test"), ("b", "test")]
    assert window_splits(SplitConfig(), ["a", "b"])["test"] == []


@given(st.integers(1, 4), st.integers(0, 4), st.integers(1, 12))
def test_time_splits_part_the_window_in_order(eval_spans, test_spans, n):
    config = SplitConfig(mode="time", eval_spans=eval_spans, test_spans=test_spans)
    spans = [f"{i:02d}" for i in range(n)]
    if n <= eval_spans + test_spans:
        with pytest.raises(ConfigError, match=f"at least {eval_spans + test_spans + 1}"):
            window_splits(config, spans)
        return
    parts = window_splits(config, spans)
    assert [span for name in ("train", "eval", "test") for span, _ in parts[name]] == spans
    assert (len(parts["eval"]), len(parts["test"])) == (eval_spans, test_spans)
    assert {split for part in parts.values() for _, split in part} == {"all"}


def test_moving_a_time_window_ingests_nothing_again():
    a, b = SplitConfig(mode="time"), SplitConfig(mode="time", eval_spans=3, test_spans=2)
    assert a.at_ingest() == b.at_ingest() and a.names() == ("all",)


def test_what_changes_the_rows_changes_what_ingest_is_named_after():
    configs = [SplitConfig(), SplitConfig(eval=0.3), SplitConfig(key="a"), SplitConfig(test=0.1)]
    assert len({repr(config.at_ingest()) for config in configs}) == len(configs)


def test_a_key_changes_what_is_noted_and_names_its_columns():
    assert SplitConfig().index_settings() == {} and SplitConfig(key="a").index_settings() == {"key": ["a"]}
    named = SplitConfig(mode="column", column="p", key="k")
    assert named.columns() == {"p", "k"} and [named.setting_of(name) for name in "pk"] == ["split.column", "split.key"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"eval": 0.5, "test": 0.5}, "leave nothing to train on"),
        ({"eval": 0}, "greater than 0"),
        ({"mode": "column"}, "column's name"),
        ({"column": "a"}, "column: a needs mode: column; write split: {mode: column, column: a}"),
        ({"mode": "time", "key": "a"}, "a key is for mode: hash"),
        ({"key": ["a", "b", "a"]}, "key names a twice"),
        ({"key": ["a", "a"]}, "key names a twice"),
        ({"values": {"a": "train"}}, "mode: column"),
        ({"mode": "column", "column": "a", "values": {"b": "dev"}}, "values.b"),
        ({"evl": 0.2}, "did you mean 'eval'"),
    ],
)
def test_wrong_configs_are_refused(value, said):
    with pytest.raises(ConfigError) as error:
        load(SplitConfig, value, where="pipeline.yaml: split")
    assert said in str(error.value) and "pipeline.yaml" in str(error.value)


# --- from a value of a column on


def test_rows_from_a_value_on_are_eval():
    batch = pa.RecordBatch.from_pydict({"day": pa.array([15_705, 15_706, 15_707, 20_000])})
    config = SplitConfig(mode="column", column="day", eval_from=datetime.date(2013, 1, 1), test_from="2013-01-03")
    day = Column(name="day", type="int64", nullable=True, temporal="date")
    begins = [stored_value(text, day, where="split") for text in (config.eval_from, config.test_from)]
    assert begins == [15_706, 15_708]
    assert assign_splits(config, batch, begins=begins).codes.tolist() == [0, 1, 1, 2]
    assert window_splits(config, ["all"])["test"] == [("all", "test")]
    assert window_splits(SplitConfig(mode="column", column="day", eval_from="2013-01-01"), ["all"])["test"] == []
    with pytest.raises(DataError, match=r"1 row has no value(.|\n)*source.where: day is not None"):
        assign_splits(config, pa.RecordBatch.from_pydict({"day": pa.array([None, 1])}), begins=begins)


def test_integers_beyond_a_double_are_split_exactly():
    first = 1_700_000_000_000_000_001  # nanoseconds since 1970
    batch = pa.RecordBatch.from_pydict({"ts": pa.array([first - 1, first, first + 1])})
    config = SplitConfig(mode="column", column="ts", eval_from="2023-11-14 22:13:20", test_from="2023-11-15")
    assert assign_splits(config, batch, begins=[first, first + 1]).codes.tolist() == [0, 1, 2]
    few = pa.RecordBatch.from_pydict({"ts": pa.array([5, 6, 7])})
    assert assign_splits(config, few, begins=[5.5, float("inf")]).codes.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("kind", "temporal", "text", "value"),
    [
        ("int64", "timestamp", "2013-01-01 01:00:00+01:00", 1_356_998_400_000_000),
        ("int64", "timestamp", "2013-01-01", 1_356_998_400_000_000),
        ("float32", None, "2.5", 2.5),
        ("bytes", None, "2013-01", b"2013-01"),
    ],
)
def test_a_value_of_the_config_as_the_column_stores_it(kind, temporal, text, value):
    assert stored_value(text, Column(name="t", type=kind, nullable=True, temporal=temporal), where="split") == value


def test_a_split_from_a_value_that_cannot_be():
    with pytest.raises(ConfigError, match=r"'soon' is not a date(.|\n)*2013-10-01"):
        stored_value("soon", Column(name="t", type="int64", nullable=True, temporal="date"), where="split")
    with pytest.raises(ConfigError, match=r"is not a number(.|\n)*holds numbers(.|\n)*parse: epoch_seconds"):
        stored_value("2013-10-01", Column(name="t", type="int64", nullable=True), where="split")
    for wrong in ({"eval_from": 3}, {"mode": "column", "column": "a", "test_from": 3}):
        with pytest.raises(ConfigError, match="eval_from"):
            load(SplitConfig, wrong, where="split")
