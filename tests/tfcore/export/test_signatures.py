"""Names, dtypes and shapes of an exported model's signatures: frozen, since servers and clients are written to them."""

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.schema.columns import Column
from headway.schema.tensor_name import PRESENT, tensor_name
from tfcore.export.request_columns import of_examples, of_tensors
from tfcore.export.signatures import nullable_inputs, raw_inputs, signatures_of, tensor_names


def column(name, type="float32", nullable=False):
    return Column(name=name, type=type, nullable=nullable)


def shown(tensors):
    return [(t.name, t.dtype, t.shape) + ((t.default,) if t.default is not None else ()) for t in tensors]


def test_golden_flights_like_inputs():
    columns = [
        column("dep_delay", nullable=True),
        column("month", "int64"),
        column("carrier", "bytes"),
        column("tailnum", "bytes", nullable=True),
    ]
    signatures = signatures_of(columns, "binary")
    plain = [
        ("dep_delay", "float32", (None,)),
        ("month", "int64", (None,)),
        ("carrier", "string", (None,)),
        ("tailnum", "string", (None,)),
    ]
    assert shown(signatures["serving_default"].inputs) == plain
    assert shown(signatures["serving_nullable"].inputs) == [
        *plain,
        ("dep_delay__present", "bool", (None,), True),
        ("tailnum__present", "bool", (None,), True),
    ]
    assert shown(signatures["serve_examples"].inputs) == [("examples", "string", (None,))]
    outputs = [("probability", "float32", (None,)), ("logit", "float32", (None,))]
    assert shown(signatures["serving_default"].outputs) == shown(signatures["serve_examples"].outputs) == outputs
    assert shown(signatures["serving_nullable"].outputs) == outputs
    assert signatures["transform"].inputs == signatures["serving_nullable"].inputs
    raw = shown(signatures["serving_nullable"].inputs)
    assert shown(signatures["classify"].inputs) == [*raw, ("threshold", "float32", (), 0.5)]
    assert signatures_of(columns, "binary", threshold=0.3)["classify"].inputs[-1].default == 0.3
    assert "classify" not in signatures_of(columns, "regression")
    several = signatures_of(columns, "multiclass", ["a", "b"])["classify"]
    assert shown(several.inputs) == [*raw, ("top_k", "int32", (), 1)]
    assert shown(several.outputs) == [("classes", "string", (None, None)), ("probabilities", "float32", (None, None))]


def test_golden_outputs():
    def outputs(task, classes=None):
        return shown(
            signatures_of([Column(name="a", type="float32", nullable=False)], task, classes)["serving_default"].outputs
        )

    assert outputs("regression") == outputs("count") == [("prediction", "float32", (None,))]
    assert outputs("multiclass", ["a", "b", "c"]) == [
        ("probabilities", "float32", (None, 3)),
        ("class", "string", (None,)),
    ]
    assert outputs("multiclass", [3, 5])[1] == ("class", "int64", (None,))
    assert outputs("quantiles(0.1, 0.9)") == [("quantiles", "float32", (None, 2)), ("prediction", "float32", (None,))]


def test_names_tensorflow_cannot_use_are_changed_and_stay_apart():
    names = [
        "arr delay (min)",
        "arr_delay_min",
        "class",
        "self",
        "1st",
        "_x",
        "Ü",
        "examples",
        "a.b",
        "a b",
        "价格",
        "温度",
    ]
    made = tensor_names([column(name) for name in names])
    assert made["arr_delay_min"] == "arr_delay_min"
    others = {name: made[name] for name in names if name != "arr_delay_min"}
    assert others == {name: tensor_name(name) for name in others}
    assert {name: found[:-7] for name, found in others.items()} == {
        "arr delay (min)": "arr_delay_min",
        "class": "class",
        "self": "self",
        "1st": "c_1st",
        "_x": "x",
        "Ü": "U",
        "examples": "examples",
        "a.b": "a_b",
        "a b": "a_b",
        "价格": "c",
        "温度": "c",
    }
    assert len(set(made.values())) == len(names)
    assert tensor_names([column("价格")])["价格"] == made["价格"]  # whatever stands beside it
    both = [column("x", nullable=True), column("x" + PRESENT)]
    assert names_of(both) == ["x", "x__present_2", "x__present"]


def names_of(columns):
    return [tensor.name for tensor in nullable_inputs(columns)]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.text("aA1_ .-é", min_size=1, max_size=4) | st.sampled_from(["if", "a__present"]), st.booleans()),
        unique_by=lambda pair: pair[0],
        min_size=1,
        max_size=12,
    )
)
def test_every_input_has_a_name_of_its_own_that_python_takes(pairs):
    columns = [column(name, nullable=nullable) for name, nullable in pairs]
    names = names_of(columns)
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name.isascii() and name[0].isalpha() for name in names)
    assert names_of(columns) == names


COLUMNS = (
    Column(name="state", type="bytes", nullable=True, null=("",)),
    Column(name="city", type="bytes", nullable=True, null=("", "NA")),
    Column(name="x", type="float32", nullable=True, null=("", "NA")),
    Column(name="plain", type="bytes", nullable=False, null=("NA",)),
)
ROWS = {"state": [b"NA", b"", b"DE"], "city": [b"NA", b"", b"Bonn"], "x": [1.0, 2.0, 3.0], "plain": [b"NA", b"a", b"b"]}
KNOWN = {"state": [True, False, True], "city": [False, False, True], "x": [True, True, True]}


def _check(raw):
    for name, present in KNOWN.items():
        assert raw[name].present.numpy().tolist() == present
    assert raw["plain"].present is None and raw["plain"].plain().numpy().tolist() == ROWS["plain"]
    assert raw["city"].plain().numpy().tolist() == [b"", b"", b"Bonn"]


def test_a_word_for_a_missing_value_is_a_null_in_tensors():
    tensors = {name: tf.constant(np.array(values)) for name, values in ROWS.items()}
    tensors["x"] = tf.cast(tensors["x"], tf.float32)
    _check(of_tensors(tensors, COLUMNS, raw_inputs(COLUMNS)))
    flags = {f"{name}__present": tf.constant([True]) for name in KNOWN}
    _check(of_tensors(tensors | flags, COLUMNS, nullable_inputs(COLUMNS)))


def test_a_word_for_a_missing_value_is_a_null_in_examples():
    records = []
    for i in range(3):
        example = tf.train.Example()
        for name, values in ROWS.items():
            kind = example.features.feature[name]
            (kind.float_list if name == "x" else kind.bytes_list).value.append(values[i])
        records.append(example.SerializeToString())
    _check(of_examples(tf.constant(records), COLUMNS))


def test_the_graph_of_a_wide_table_grows_by_few_operations_a_column():
    def operations(count):
        wide = [column(f"c{i}", nullable=True) for i in range(count)]
        inputs = nullable_inputs(wide)
        given = {tensor.name: tf.TensorSpec([None], tensor.dtype) for tensor in inputs}

        def read(given, records):
            raw = [*of_tensors(given, wide, inputs).values(), *of_examples(records, wide).values()]
            return [(each.values, each.present) for each in raw]

        traced = tf.function(read, autograph=False).get_concrete_function(given, tf.TensorSpec([None], tf.string))
        return len(traced.graph.get_operations())

    assert operations(60) - operations(20) <= 40 * 7
