"""Which columns decide a row's split without a key: what names rows, what is frozen, what it is hashed as."""

import numpy as np
import pyarrow as pa
import pytest

from headway.errors import ConfigError
from headway.schema.columns import Column, Schema
from headway.schema.pbtxt import from_tags, from_text, to_tags, to_text, with_split
from headway.schema_inference.split_columns import few_distinct, names_rows, row_columns, without_label
from headway.sources.sample import Sample
from headway.tabular.coerce import coerce
from headway.tabular.splits import RowSplit, SplitConfig

ROWS = 1000
RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("name", "values", "named"),
    [
        ("id", RANDOM.permutation(ROWS), True),
        ("PassengerId", np.arange(ROWS), True),
        ("n", np.arange(ROWS) * 3 + 7, True),  # rising, and never twice
        ("code", [f"a{i:x}" for i in RANDOM.permutation(ROWS)], True),
        ("order_id", RANDOM.integers(0, 2000, ROWS), True),  # a few times twice
        ("amount", [f"{i / 1000:.3f}".replace(".", ",") for i in RANDOM.permutation(ROWS)], False),  # a number in text
        ("store_id", np.arange(ROWS) % 20, False),
        ("cents", RANDOM.integers(0, 10**9, ROWS), False),
        ("distance", RANDOM.normal(size=ROWS), False),
        ("review", [f"review {i}" for i in range(ROWS)], False),
        ("day", [f"2013-01-01T{i // 60 % 24:02d}:{i % 60:02d}:{i // 200:02d}" for i in range(ROWS)], False),
        ("idle", RANDOM.integers(0, 5, ROWS), False),
        ("image", [b"\xff%d" % i + b"x" * 99 for i in range(ROWS)], False),
        ("id", list(range(10)), False),  # too few to say
    ],
)
def test_what_names_rows(name, values, named):
    assert names_rows(name, pa.chunked_array([pa.array(values)])) is named


def test_all_columns_of_the_first_span_but_the_label_s_and_identifiers():
    table = pa.table(
        {
            "id": np.arange(ROWS),
            "x": RANDOM.normal(size=ROWS),
            "tags": [["a", "b"]] * ROWS,
            "pixels": pa.array([[1.0, 2.0]] * ROWS, pa.list_(pa.float32(), 2)),
            "hash": pa.array([2**63] * ROWS, pa.uint64()),
            "y": np.arange(ROWS) % 2,
            "odd": pa.array([{"a": 1}] * ROWS),
        }
    )
    columns, identifiers = row_columns(Sample(table), {"y"})
    assert identifiers == ["id"]
    tags = ["FLOAT x", "BYTES[] tags", "FLOAT[] pixels", "BYTES hash"]
    assert to_tags(columns) == [f"headway.split={tag}" for tag in tags]
    assert from_tags(to_tags(columns), where="s") == columns
    assert [c.name for c in without_label(columns, {"x", "y"})] == ["tags", "pixels", "hash"]
    only_ids, none = row_columns(Sample(table.select(["id", "y"])), {"y"})
    assert [c.name for c in only_ids] == ["id"] and none == []  # there is nothing else
    with pytest.raises(ConfigError, match="no column is left"):
        without_label(only_ids, {"id"})


SPLIT = from_tags(["headway.split=INT a b", "headway.split=BYTES[] c"], where="s")


def test_the_schema_file_keeps_them():
    schema = Schema(columns=(Column(name="x", type="int64", nullable=True),), split=SPLIT)
    assert from_text(to_text(schema), where="s") == schema
    plain = "# mine\n" + to_text(schema.model_copy(update={"split": ()})) + "# the end\n"
    text = with_split(plain, SPLIT)
    assert text.startswith(plain) and from_text(text, where="s") == schema
    annotated = 'feature { name: "x" type: INT }\nannotation { tag: "mine" }\n'
    both = with_split(annotated, SPLIT)
    assert '"mine"' in both and from_text(both, where="s").split == SPLIT


@pytest.mark.parametrize("tag", ["headway.split=INT", "headway.split=NUMBER x", "headway.split=INT x"])
def test_an_empty_tag_is_refused(tag):
    with pytest.raises(ConfigError) as error:
        from_text(f'annotation {{ tag: "headway.split=INT x" tag: "{tag}" }}', where="schema.pbtxt")
    assert "schema.pbtxt" in str(error.value) and "draw eval rows anew" in error.value.fix


# --- what is hashed


FROZEN = from_tags([f"headway.split={tag}" for tag in ("INT n", "FLOAT f", "BYTES s", "FLOAT[] v")], where="s")
RAW = pa.RecordBatch.from_pydict(
    {
        "n": pa.array([1, 2, None, 4]),
        "f": pa.array([0.5, 1.5, 2.5, None]),
        "s": pa.array(["7", "b", "7.0", ""]),
        "v": pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]),
    }
)
AS_FROZEN = {c.name: c for c in FROZEN}


def codes(read, raw=RAW, frozen=FROZEN, kept=None):
    rows = RowSplit(SplitConfig(eval=0.4, test=0.3), read, frozen)
    batch = coerce(raw, read).batch
    return rows.assign_splits(batch if kept is None else batch.take(pa.array(kept)), raw, kept).hashes.tolist()


@pytest.mark.parametrize(
    "read",
    [
        [AS_FROZEN["s"]],
        [AS_FROZEN["n"].model_copy(update={"type": "float32"})],
        [AS_FROZEN["n"].model_copy(update={"type": "bytes", "encoding": "dictionary", "role": "key"})],
        [Column(name="v", type="float32", nullable=False, shape=(2,))],
        [Column(name="new", type="int64", nullable=True)],
    ],
)
def test_what_is_stored_and_as_what_changes_no_row_s_split(read):
    raw = pa.RecordBatch.from_arrays([*RAW.columns, pa.array([1, 2, 3, 4])], names=[*RAW.schema.names, "new"])
    every = codes(list(FROZEN))
    assert codes(read, raw) == every
    assert codes(read, raw, kept=np.array([1, 3])) == [every[1], every[3]]


def test_what_does_not_fit_is_a_null_to_the_hash_and_costs_no_row():
    odd = pa.RecordBatch.from_pydict({**RAW.to_pydict(), "n": ["1", "x", None, "4"]})
    null = pa.RecordBatch.from_pydict({**RAW.to_pydict(), "n": pa.array([1, None, None, 4])})
    listed = pa.RecordBatch.from_pydict({**RAW.to_pydict(), "n": [[1], [2], [3], [4]]})
    nulls = pa.RecordBatch.from_pydict({**RAW.to_pydict(), "n": pa.nulls(4)})
    read = [AS_FROZEN["f"]]
    assert codes(read, odd) == codes(read, null)
    assert codes(read, listed) == codes(read, nulls) == codes(read, RAW.drop_columns(["n"]))


def test_what_is_read_of_a_file():
    rows = RowSplit(SplitConfig(), [AS_FROZEN["f"].model_copy(update={"role": "key"})], FROZEN)
    assert rows.extra and list(rows.types({"f", "s", "other"}, {"f": pa.float64()})) == ["f", "s"]
    assert list(rows.types(None, {"f": pa.float64()})) == ["f", "n", "s", "v"]
    number = AS_FROZEN["s"].model_copy(update={"type": "int64", "encoding": "plain"})
    assert RowSplit(SplitConfig(), [number], FROZEN[2:3]).types(None, {"s": pa.int64()})["s"] != pa.int64()
    assert not RowSplit(SplitConfig(key="n"), [AS_FROZEN["n"]], FROZEN).extra


def test_a_place_that_decides_the_split_is_kept():
    schema = Schema(columns=(Column(name="x", type="int64", nullable=True),), split=SPLIT)
    placed = schema.model_copy(update={"split_by_place": True})
    assert "split_by_place" not in to_text(schema) and not from_text(to_text(schema), where="s").split_by_place
    assert from_text(to_text(placed), where="s") == placed and placed.digest() != schema.digest()
    assert (
        from_text(with_split(to_text(schema.model_copy(update={"split": ()})), SPLIT, by_place=True), where="s")
        == placed
    )


def things(rows, **columns):
    """Rows of `rows` things, of which each column is the same in all of its rows."""
    of = RANDOM.integers(0, rows, 20 * ROWS)
    return {name: RANDOM.integers(0, most, rows)[of] for name, most in columns.items()}


@pytest.mark.parametrize(
    ("columns", "few"),
    [
        ({"a": RANDOM.integers(0, 3, ROWS), "b": RANDOM.integers(0, 2, ROWS), "c": RANDOM.integers(0, 2, ROWS)}, True),
        ({"a": RANDOM.choice(["u", "v", None], ROWS)}, True),
        ({name: RANDOM.integers(0, 4, 20 * ROWS) for name in "abcde"}, True),  # 1,024 combinations
        ({name: RANDOM.integers(0, 4, ROWS) for name in "abcde"}, False),  # more than a tenth
        ({"a": RANDOM.integers(0, 3, ROWS), "x": RANDOM.normal(size=ROWS)}, False),
        ({"a": [1, 2] * 9}, False),  # too few rows to say
        (things(800, age=70, height=60, weight=70, sex=2), False),  # of a patient, and nothing that changes
        (things(800, mrn=10**6, sex=2), False),
        ({"tags": [["a"]] * ROWS}, False),
    ],
)
def test_few_rows_are_distinct_where_they_are_combinations_of_a_few_categories(columns, few):
    sample = Sample(pa.table(columns))
    hashed, _ = row_columns(sample, set())
    assert few_distinct(sample, hashed, set()) is few


@pytest.mark.parametrize(("rows", "label"), [(40, RANDOM.normal(size=40)), (12, np.arange(12) % 2)])
def test_equal_rows_whose_labels_are_equal_too_are_copies_and_stay_together(rows, label):
    of = RANDOM.integers(0, rows, ROWS)
    columns = {"a": np.arange(rows)[of] % 7, "b": RANDOM.permutation(90)[:rows][of]}
    for y, few in ((label[of], False), (np.where(RANDOM.random(ROWS) < 0.1, 1 - label[of], label[of]), True)):
        sample = Sample(pa.table(columns | {"y": y}))
        assert few_distinct(sample, row_columns(sample, {"y"})[0], {"y"}) is few
