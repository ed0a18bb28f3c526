"""What is fitted, from what; no TensorFlow."""

import io

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from PIL import Image
from pydantic import TypeAdapter

from headway.errors import ConfigError, DataError
from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics
from tfcore.transform.column_config import ColumnConfig
from tfcore.transform.config import ColumnTransform, TransformConfig, allowed_operations, check_chain, check_chains
from tfcore.transform.fit import fit_parameters
from tfcore.transform.layer import Vocabulary
from tfcore.transform.parameters import TransformParameters, image_input

COLUMNS = (
    Column(name="x", type="float32", nullable=True),
    Column(name="n", type="int64", nullable=False),
    Column(name="s", type="bytes", nullable=True, encoding="dictionary"),
    Column(name="label", type="int64", nullable=False, role="label"),
)


def _batch(rows=2000, seed=0):
    r = np.random.default_rng(seed)
    x = r.normal(5, 2, rows).astype(np.float32)
    s = [None if i % 50 == 0 else f"w{int(v)}".encode() for i, v in enumerate(r.zipf(1.5, rows) % 30)]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(x, mask=r.random(rows) < 0.1),
            pa.array(r.integers(0, 1000, rows)),
            pa.array(s, pa.binary()).dictionary_encode(),
            pa.array((x > 5).astype(np.int64)),
        ],
        names=["x", "n", "s", "label"],
    )


def _texts(values):
    """Rows of which s has these values."""
    return _batch(len(values)).set_column(2, "s", pa.array(values, pa.binary()).dictionary_encode())


def _fit(batch=None, columns=COLUMNS, task="auto", bins=0, counted=None, item=None, **transforms):
    statistics = SplitStatistics.create(columns)
    statistics.update(batch if batch is not None else _batch())
    chosen = {name: ColumnTransform(transform=value) for name, value in transforms.items()}
    return fit_parameters(columns, chosen, statistics, task=task, bins=bins, counted=counted, item=item)


def _ops(parameters, name):
    return next(f for f in parameters.fitted if f.column.name == name).ops


def test_standardize_uses_exact_train_moments():
    batch = _batch()
    parameters, _ = _fit(batch, x="standardize")
    values = batch["x"].drop_null().to_numpy().astype(np.float64)
    (op,) = _ops(parameters, "x")
    assert op.mean == pytest.approx(values.mean(), rel=1e-12)
    assert op.std == pytest.approx(values.std(), rel=1e-9)


def test_moments_behind_other_operations_are_those_of_their_output():
    batch = _batch()
    parameters, _ = _fit(batch, x=[{"clip": {"min": 2, "max": 8}}, "log", "standardize"])
    values = np.log1p(np.clip(batch["x"].drop_null().to_numpy().astype(np.float64), 2, 8))
    op = _ops(parameters, "x")[-1]
    assert op.mean == pytest.approx(values.mean(), rel=1e-9)
    assert op.std == pytest.approx(values.std(), rel=1e-9)


def test_equal_values_are_not_divided_by_a_rounding_error():
    rows = 1000
    batch = _batch(rows).set_column(0, "x", pa.array([0.1] * (rows - 1) + [None], pa.float32()))
    parameters, _ = _fit(batch, x="standardize")
    (op,) = _ops(parameters, "x")
    assert op.std == 1.0


def test_bucketize_cuts_train_rows_into_equal_parts():
    batch = _batch()
    parameters, _ = _fit(batch, n={"bucketize": {"buckets": 4}})
    (op,) = _ops(parameters, "n")
    values = batch["n"].to_numpy()
    counts = np.bincount(np.searchsorted(op.boundaries, values, side="right"), minlength=4)
    assert len(op.boundaries) == 3 and counts.min() > 0.9 * len(values) / 4


@pytest.mark.parametrize(
    ("counts", "buckets", "edges"),
    [
        ({0: 50, 1: 50}, 2, (1,)),
        ({0: 90, 1: 10}, 2, (1,)),
        ({0: 10, 1: 90}, 10, (1,)),
        ({1: 10, 2: 10, 3: 10}, 3, (2, 3)),
        ({1: 1, 2: 1, 3: 98}, 3, (2, 3)),
        ({0: 80, 1: 10, 2: 10}, 3, (1, 2)),
        ({0: 97, 1: 1, 2: 1, 3: 1}, 2, (1,)),
        (dict.fromkeys(range(100), 2), 4, (25, 50, 75)),
        (dict.fromkeys(range(-3, 4), 2), 100, (-2, -1, 0, 1, 2, 3)),
        ({5: 20}, 3, ()),
    ],
)
def test_no_bucket_is_empty_and_few_values_have_one_each(counts, buckets, edges):
    values = np.repeat([*counts], [*counts.values()]).astype(np.float32)
    batch = pa.RecordBatch.from_pydict({"x": pa.array(values), "label": pa.array(np.arange(len(values)) % 2)})
    columns = (Column(name="x", type="float32", nullable=False), COLUMNS[-1])
    for chain in ({"bucketize": {"buckets": buckets}}, ["identity", {"bucketize": {"buckets": buckets}}]):
        op = _ops(_fit(batch, columns, x=chain)[0], "x")[-1]
        assert op.boundaries == edges
        assert np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(edges) + 1).min() > 0


def test_bins_are_equally_full_of_what_the_operations_give():
    batch, chains = _batch(), {"x": ["log", "standardize"], "n": [{"clip": {"min": 2000, "max": 3000}}]}
    parameters, _ = _fit(batch, bins=4, s={"hash": {"buckets": 7}}, **chains)
    assert parameters.numeric == ("x", "x__missing", "n"), "an indicator only where train rows miss a number"
    x, missing, same = parameters.edges
    assert missing == same == () and len(x) == 5
    (op,) = (op for op in _ops(parameters, "x") if op.op == "standardize")
    x_values = batch["x"].drop_null().to_numpy().astype(np.float64)
    values = (np.sign(x_values) * np.log1p(np.abs(x_values)) - op.mean) / op.std
    assert np.histogram(values, x)[0] / len(values) == pytest.approx(0.25, abs=0.01)
    assert TransformParameters.model_validate(parameters.model_dump(mode="json")) == parameters


def test_an_integer_of_few_values_keeps_its_order_where_a_model_asks_for_bins():
    batch, columns = {"n": pa.array([*range(20)] * 20)}, [Column(name="n", type="int64", nullable=False), COLUMNS[-1]]
    batch = pa.record_batch(batch | {"label": [0, 1] * 200})
    alone, binned = (_fit(batch, columns, bins=bins)[0] for bins in (0, 48))
    assert alone.numeric == () and [category.name for category in alone.categorical] == ["n"]
    assert binned.numeric == ("n",) and binned.categorical == () and len(binned.edges[0]) == 20
    given = _fit(batch, columns, bins=48, n="vocabulary")[0]
    assert given.numeric == (), "what the user says counts"


def test_bins_are_wider_than_rounding_errors():
    values = np.concatenate([np.full(1000, 1.0), np.full(1000, 1.0 + 1e-6), np.linspace(2, 50, 100)])
    batch = pa.RecordBatch.from_pydict({"x": pa.array(values), "label": pa.array([0, 1] * 1050)})
    columns = (Column(name="x", type="float32", nullable=False), COLUMNS[-1])
    (edges,) = _fit(batch, columns, bins=16)[0].edges
    assert np.diff(edges).min() > 1e-3
    subnormal = batch.set_column(0, "x", pa.array(np.arange(2100) * 1e-42, pa.float32()))
    assert _fit(subnormal, columns, bins=16)[0].edges == ((),)


def test_words_that_are_no_text_have_ids_like_others():
    words = [b"caf\xe9", b"\xff\xfe", "caf\u00e9".encode(), b"\0caf\xe9", b"\0a", b""]
    values = [word for i, word in enumerate(words) for _ in range(2 * len(words) - 2 * i)]
    parameters, _ = _fit(_texts(values), s="vocabulary", counted="s")
    again = TransformParameters.model_validate_json(parameters.model_dump_json())
    assert list(_ops(again, "s")[0].values) == words and again.fitted[-1].counts[:2] == (12, 10)
    ids = Vocabulary(again.fitted[-1].ops[-1])(tf.constant([*words, b"caf\xe8"]))
    assert ids.numpy().tolist() == [*range(len(words)), len(words)]


def test_a_vocabulary_is_ordered_by_count_and_then_by_value():
    batch = _texts([b"b"] * 3 + [b"a"] * 3 + [b"z"] * 5 + [b"once"])
    batch = batch.set_column(1, "n", pa.array(range(12)))
    parameters, _ = _fit(batch, s="vocabulary")
    (op,) = _ops(parameters, "s")
    assert op.words == ("z", "a", "b")
    # 3 words, 1 out-of-vocabulary bucket, 1 id for null
    assert parameters.categorical[-1].size == 5
    for chain, kept in (
        ("vocabulary", 4),
        ("auto", 4),
        ({"vocabulary": {"min_count": 3}}, 3),
        ({"vocabulary": {"top_k": 2}}, 2),
    ):
        assert len(_ops(_fit(batch, s=chain, item="s")[0], "s")[0].words) == kept, "every item has an id"
    counted, _ = _fit(batch, s="vocabulary", counted="s")
    assert counted.fitted[-1].counts == (5, 3, 3, 1)
    assert _fit(batch, n="vocabulary", counted="n")[0].fitted[1].counts == (12,)  # nothing comes twice
    assert _fit(batch, s={"hash": {"buckets": 4}}, counted="s")[0].fitted[-1].counts == ()


@pytest.mark.parametrize(
    ("label", "task"),
    [
        ([0, 1, 1, 0], "binary"),
        ([3, 4, 5, 3], "multiclass"),
        ([0.5, 1.5, 2.5, 3.5], "regression"),
        ([b"no", b"yes", b"no", b"no"], "binary"),
        ([b"a", b"b", b"c", b"c"], "multiclass"),
    ],
)
def test_the_task_is_read_off_the_label(label, task):
    kind = {int: "int64", float: "float32", bytes: "bytes"}[type(label[0])]
    columns = (COLUMNS[0], Column(name="label", type=kind, nullable=False, role="label"))
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1.0, 2.0, 3.0, 4.0], pa.float32()), pa.array(label, columns[1].arrow)], names=["x", "label"]
    )
    parameters, _ = _fit(batch, columns)
    assert parameters.label.task == task
    if task == "binary" and kind == "bytes":
        assert parameters.label.classes == ("no", "yes") and parameters.label.base_rate == 0.25


def test_wrong_operations_are_refused_with_the_column_named():
    with pytest.raises(ValueError, match="no operation 'vocabularly'; did you mean 'vocabulary'"):
        ColumnTransform(transform="vocabularly")
    with pytest.raises(ValueError, match="say mean, median, zero or a number"):
        ColumnTransform(impute=False)
    with pytest.raises(ConfigError, match=r"columns\.s"):
        _fit(s="standardize")
    with pytest.raises(ConfigError, match=r"columns\.x"):
        _fit(x="vocabulary")


def test_a_label_that_never_changes_is_refused():
    batch = _batch().set_column(3, "label", pa.array([1] * 2000))
    with pytest.raises(DataError, match="nothing to learn"):
        _fit(batch)


def test_identifiers_and_constants_are_left_out_and_names_are_categories_unless_a_transform_is_given():
    columns = (
        Column(name="id", type="int64", nullable=False, meaning="identifier"),
        Column(name="user_id", type="int64", nullable=False, meaning="category"),
        Column(name="same", type="int64", nullable=False),
        COLUMNS[-1],
    )
    rows = np.arange(2000)
    batch = pa.record_batch({"id": rows, "user_id": rows % 300, "same": rows * 0, "label": rows % 2})
    parameters, (note, constant) = _fit(batch, columns)
    assert [(f.column.name, f.size) for f in parameters.fitted] == [("user_id", 301)] and constant.column == "same"
    assert str(note).startswith("column 'id' is left out: 2,000 distinct values in 2,000 look like an identifier")
    parameters, _ = _fit(batch, columns, id="standardize", user_id="standardize")
    assert parameters.numeric == ("id", "user_id")


def test_a_vector_of_few_integers_keeps_its_places():
    columns = (Column(name="v", type="int64", nullable=False, shape=(2,)), COLUMNS[-1])
    values = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(400) % 5), 2)
    parameters, _ = _fit(pa.record_batch({"v": values, "label": np.arange(200) % 2}), columns)
    assert parameters.numeric == ("v__0", "v__1")


def test_integers_of_a_group_are_names_whatever_the_column_is_called():
    columns = (Column(name="rider", type="int64", nullable=False), COLUMNS[-1])
    batch = pa.record_batch({"rider": np.arange(600) % 200, "label": np.arange(600) % 2})
    assert _fit(batch, columns)[0].numeric == ("rider",)
    for role in ("group", "key"):
        learned = columns[0].model_copy(update={"role": role, "feature": True})
        parameters, _ = _fit(batch, (learned, COLUMNS[-1]))
        assert [category.name for category in parameters.categorical] == ["rider"] and not parameters.numeric


def test_images_of_any_name_are_apart():
    names = [image_input(name) for name in ("photo_1", "photo 1", "价格", "温度")]
    assert names[0] == "image_photo_1" and len(set(names)) == 4 and all(name.isascii() for name in names)


def test_an_identifier_that_looks_like_lists_has_a_note_with_the_fix():
    r = np.random.default_rng(0)
    words = [f"g{i}" for i in range(40)]
    lists = [";".join(r.choice(words, r.integers(2, 7), replace=False)) for _ in range(2000)]
    ids = [f"{i:05d}-{r.integers(10**9)}" for i in range(2000)]
    for values, told in ((lists, True), (ids, False)):
        _, notes = _fit(_texts([v.encode() for v in values]))
        [note] = [note.text for note in notes if note.column == "s"]
        assert "look like an identifier" in note and ("separator" in note) == told != ("hash" in note)
    _, [note] = _fit(_texts([v.encode() for v in lists]))
    assert 'columns: {s: {shape: list, separator: ";"}}' in note.text


@pytest.mark.parametrize("size", [3e37, 3.3e38])
def test_numbers_that_float32_cannot_divide_by_are_refused_with_their_size_and_a_clip_mends_it(size):
    batch = _batch()
    x = pa.array(np.where(np.arange(len(batch)) % 2, size, -size), pa.float32())
    batch = batch.set_column(0, "x", x)
    if size < 8e37:
        (op,) = _ops(_fit(batch)[0], "x")
        assert op.std == pytest.approx(size, rel=1e-6)
        return
    with pytest.raises(DataError) as error:
        _fit(batch)
    assert "values of up to 3.3e+38" in str(error.value) and "columns.x" in str(error.value)
    (_, op) = _ops(_fit(batch, x=[{"clip": {"min": -1e30, "max": 1e30}}, "standardize"])[0], "x")
    assert op.std == pytest.approx(1e30, rel=1e-6)


def test_bytes_that_are_images_have_a_note_with_the_size_to_write():
    r = np.random.default_rng(0)
    files = list(map(_png, r.integers(0, 256, (2000, 6, 9), np.uint8)))
    digests = [bytes(each) for each in r.integers(0, 256, (2000, 64), np.uint8)]
    words = [f"{i:0256d}".encode() for i in range(2000)]
    told = {
        "s: {image: {height: 6, width: 9, channels: 1}}": files,
        "2,000 look like an identifier": digests,
        "2,000 distinct values in 2,000 look like an identifier": words,
    }
    for expected, values in told.items():
        _, notes = _fit(_texts(values))
        [note] = [note.text for note in notes if note.column == "s"]
        assert expected in note and ("hash" in note) == ("identifier" in expected)


def _png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_few_integers_are_categories_only_where_each_has_rows_enough():
    columns = (Column(name="age", type="int64", nullable=False), COLUMNS[-1])

    def fitted(rows):
        return _fit(pa.record_batch({"age": np.arange(rows) % 30, "label": np.arange(rows) % 2}), columns)[0]

    assert fitted(60).numeric == ("age",) and not fitted(60).categorical
    assert [category.name for category in fitted(300).categorical] == ["age"]


def test_a_columns_settings_are_written_out_whole_so_that_those_of_two_versions_compare():
    written = ColumnConfig().model_dump(mode="json")
    assert (written["max_length"], written["pool"]) == (None, ["mean", "min", "max", "length"])


ONE = {"hash": {"buckets": 4}, "image": {"height": 2, "width": 2}, "clip": {"min": 0}}
KINDS = [("bytes", ()), ("int64", ()), ("float32", ()), ("bytes", (None,)), ("int64", (3,))]


def _chain(value):
    return TypeAdapter(TransformConfig).validate_python(value)


@pytest.mark.parametrize(("kind", "shape"), KINDS)
@pytest.mark.parametrize(
    "op", ["standardize", "min_max", "log", "clip", "bucketize", "vocabulary", "hash", "image", "identity"]
)
def test_chains_accepted_by_the_check_run_and_the_rest_is_refused(kind, shape, op):
    column = Column(name="c", type=kind, nullable=True, shape=shape)
    chain = _chain({op: ONE.get(op, {})})
    if op in allowed_operations(column):
        check_chain(column, chain, where="columns.c")
        return
    with pytest.raises(ConfigError) as error:
        check_chain(column, chain, where="columns.c")
    assert error.value.where == "columns.c" and "column 'c' holds" in error.value.problem
    assert all(name in error.value.fix for name in allowed_operations(column))


def test_only_features_with_operations_of_their_own_are_looked_at():
    text = Column(name="s", type="bytes", nullable=True)
    log = {"s": ColumnTransform(transform=_chain("log"))}
    check_chains([text.model_copy(update={"role": "key"})], log, where="p.yaml")
    check_chains([text], {"s": ColumnTransform()}, where="p.yaml")
    with pytest.raises(ConfigError, match="log needs numbers, and column 's' holds text") as error:
        check_chains([text], log, where="p.yaml")
    assert error.value.where == "p.yaml: columns.s" and "s: {type: float, transform: log}" in error.value.fix
