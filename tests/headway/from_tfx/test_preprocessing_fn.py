"""A preprocessing_fn is called with a recorder: what its outputs become, and what is said of those that have no counterpart."""

import multiprocessing
import re
import textwrap

import pytest

from headway.errors import ConfigError, DataError
from headway.from_tfx import recorder
from headway.from_tfx.output_columns import translate
from headway.from_tfx.recorder import read_preprocessing_fn
from headway.from_tfx.values import Raw

INPUTS = {
    "x": Raw("x", "float32", required=True),
    "miles": Raw("miles", "float32", sparse=True),
    "fare": Raw("fare", "float32", required=True),
    "n": Raw("n", "int64", required=True),
    "day": Raw("day", "int64", required=True, category=True),
    "s": Raw("s", "bytes", sparse=True),
}
HEAD = "import tensorflow as tf\nimport tensorflow_transform as tft\n\n"


@pytest.fixture
def forked(monkeypatch):
    """Processes of the user's code are forked from one that has the recorder imported: a start takes a third of a second."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([recorder.__name__])
    monkeypatch.setattr(recorder.multiprocessing, "get_context", lambda kind: context)


@pytest.fixture
def read(tmp_path, forked):
    """read(body): the translation of a preprocessing_fn with this body."""

    def run(body, label=frozenset(), *, sole=True, head=""):
        file = tmp_path / "transform.py"
        inside = textwrap.indent(textwrap.dedent(body), "    ")
        file.write_text(f"{HEAD}{head}\ndef preprocessing_fn(inputs):\n{inside}\n")
        outputs = read_preprocessing_fn(str(file), INPUTS)
        return translate(outputs, label=frozenset(label), sole=sole, taken=INPUTS)

    return run


def config(done):
    return done.columns | {name: (made.source, made.op) for name, made in done.derived.items()}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("tft.scale_to_z_score(inputs['x'])", {"x": "standardize"}),
        ("tft.scale_to_0_1(tf.cast(inputs['n'], tf.float32))", {"n": "min_max"}),
        ("tft.scale_by_min_max(inputs['x'], -1, output_max=1)", {"x": {"min_max": {"low": -1, "high": 1}}}),
        ("tft.bucketize(inputs['x'], num_buckets=7)", {"x": {"bucketize": {"buckets": 7}}}),
        ("tft.apply_buckets(inputs['x'], [[1, 2.5]])", {"x": {"bucketize": {"boundaries": [1, 2.5]}}}),
        ("tft.apply_buckets(inputs['x'], tf.constant([[1., 2.]]))", {"x": {"bucketize": {"boundaries": [1.0, 2.0]}}}),
        (
            "tft.compute_and_apply_vocabulary(inputs['s'], top_k=9, frequency_threshold=3, num_oov_buckets=2)",
            {"s": {"vocabulary": {"top_k": 9, "min_count": 3, "oov_buckets": 2}}},
        ),
        (
            "tft.compute_and_apply_vocabulary(tf.as_string(inputs['n']))",
            {"n": {"vocabulary": {"min_count": 1, "oov_buckets": 1}}},
        ),
        ("tf.one_hot(tft.hash_strings(inputs['s'], 16), 16)", {"s": {"hash": {"buckets": 16}}}),
        ("tf.strings.to_hash_bucket_fast(inputs['s'], 5)", {"s": {"hash": {"buckets": 5}}}),
        (
            "tft.scale_to_z_score(tf.math.log1p(inputs['x']))",
            {"o": ("tf.math.log1p(columns['x'])", "standardize")},
        ),
        (
            "tft.scale_to_0_1(tf.clip_by_value(inputs['x'], 0, clip_value_max=9))",
            {"o": ("tf.clip_by_value(columns['x'], 0, clip_value_max=9)", "min_max")},
        ),
        ("inputs['day']", {"day": "vocabulary"}),
        ("inputs['x']", {"x": "identity"}),
        (
            "tf.where(condition=inputs['x'] > 0, x=inputs['x'], y=float('nan'))",
            {"o": ("tf.where(condition=columns['x'] > 0, x=columns['x'], y=float('nan'))", "identity")},
        ),
        ("tf.log(inputs['x'])", {"o": ("tf.math.log(columns['x'])", "identity")}),
        (
            "tf.math.exp(tf.SparseTensor(inputs['miles'].indices, tf.sqrt(inputs['miles'].values), [1, 1]))",
            {"o": ("tf.exp(tf.sqrt(columns['miles']))", "identity")},
        ),
        ("tft.bucketize(num_buckets=10, x=inputs['x'])", {"x": {"bucketize": {"buckets": 10}}}),
        ("tft.scale_to_0_1(tf.cast(dtype=tf.float32, x=inputs['n']))", {"n": "min_max"}),
        (
            "tft.apply_buckets(bucket_boundaries=tf.constant(dtype=tf.float32, value=[1., 2.]), x=inputs['x'])",
            {"x": {"bucketize": {"boundaries": [1.0, 2.0]}}},
        ),
        (
            "tft.scale_to_z_score(tf.sparse.to_dense(default_value=0, sp_input=inputs['miles']))",
            {"o": ("tf.identity(columns['miles'])", "standardize")},
        ),
        (
            "tf.one_hot(depth=16, indices=tft.hash_strings(hash_buckets=16, strings=tf.squeeze(axis=1, input=inputs['s'])))",
            {"s": {"hash": {"buckets": 16}}},
        ),
        (
            "tf.where(y=0.0, x=inputs['x'], condition=inputs['x'] > 0)",
            {"o": ("tf.where(condition=columns['x'] > 0, x=columns['x'], y=0.0)", "identity")},
        ),
        ("tf.floormod(inputs['x'], 7)", {"o": ("tf.math.floormod(columns['x'], 7)", "identity")}),
        (
            "tft.scale_to_z_score(tf.math.log1p(x=inputs['fare']))",
            {"o": ("tf.math.log1p(x=columns['fare'])", "standardize")},
        ),
        ("inputs['x'] / (1 + inputs['fare'])", {"o": ("columns['x'] / (1 + columns['fare'])", "identity")}),
        (
            "tf.strings.join([inputs['s'], tf.as_string(inputs['n'])], separator='-')",
            {"o": ("tf.strings.join([columns['s'], tf.as_string(columns['n'])], separator='-')", "vocabulary")},
        ),
        (
            "tft.bucketize(tf.sparse.to_dense(inputs['miles'], default_value=-1), 4)",
            {
                "o": (
                    "tf.identity(tf.where(columns['miles__present'], columns['miles'], -1.0))",
                    {"bucketize": {"buckets": 4}},
                )
            },
        ),
    ],
)
def test_a_call_becomes_the_operation_that_does_the_same(read, expression, expected):
    assert config(read(f"return {{'o': {expression}}}")) == expected


def test_what_a_missing_value_is_decides_between_columns_and_a_computed_one(read):
    done = read("return {'a': tft.scale_to_z_score(tf.sparse.to_dense(inputs['miles'], 0)), 'b': inputs['miles'] * 2}")
    assert done.derived["a"].source == "tf.identity(columns['miles'])" and not done.derived["a"].needs
    assert done.derived["b"].needs == {"miles"}
    assert config(read("return {'a': tft.scale_to_z_score(inputs['miles'])}")) == {"miles": "standardize"}
    done = read(
        "return {'a': tft.compute_and_apply_vocabulary(tf.sparse.to_dense(inputs['s'], ''), num_oov_buckets=1)}"
    )
    assert set(done.columns) == {"s"} and "has an id of its own here, where TFX takes it for ''" in str(done.remarks[0])


def test_loops_helpers_constants_and_files_beside_it_are_followed(read, tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "names.py").write_text(
        "NUMBERS = ['x', 'fare']\nBUCKETS = {'n': 3}\n\ndef xf(name):\n  return f'{name}_xf'\n"
    )
    body = """
        outputs = {}
        for key in names.NUMBERS:
            outputs[names.xf(key)] = scaled(inputs[key])
        for key, count in names.BUCKETS.items():
            outputs[names.xf(key)] = tft.bucketize(inputs[key], count)
        outputs.update({name + '_xf': fill(value) for name, value in inputs.items() if name == 'day'})
        if outputs:
            outputs[names.xf('s')] = tft.hash_strings(fill(inputs['s']), hash_buckets=2 ** 3)
        return outputs
    """
    head = textwrap.dedent(
        """
        from models import names

        def scaled(column, *, scale=tft.scale_to_z_score):
            return scale(column)

        def fill(x):
            if not isinstance(x, tf.sparse.SparseTensor):
                return x
            default = '' if x.dtype == tf.string else 0
            dense = tf.sparse.to_dense(tf.SparseTensor(x.indices, x.values, [x.dense_shape[0], 1]), default)
            return tf.squeeze(dense, axis=1)
        """
    )
    assert config(read(body, head=head)) == {
        "x": "standardize", "fare": "standardize", "n": {"bucketize": {"buckets": 3}}, "day": "vocabulary",
        "s": {"hash": {"buckets": 8}},
    }  # fmt: skip


def test_a_column_that_is_used_twice_is_computed_the_second_time(read):
    done = read("return {'a': tft.scale_to_z_score(inputs['x']), 'x': tft.bucketize(inputs['x'], 5)}")
    assert config(done) == {
        "x": "standardize",
        "x_computed": ("tf.identity(columns['x'])", {"bucketize": {"buckets": 5}}),
    }


def test_a_computed_column_has_a_name_that_a_column_can_have(read):
    keys = ["x", "x_computed", "label", "a/b", "x__present", ""]
    done = read(f"return {{key: inputs['x'] * 2 for key in {keys}}}")
    assert [*done.derived] == [
        "x_computed", "x_computed_computed", "label_computed", "a_per_b", "x__present_computed", "computed",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("nowhere.log(inputs['x'])", "nowhere.log is not read"),
        ("inputs['x'] * nowhere.PI", "nowhere.PI is not read"),
        ("inputs['x'][0]", "a part of a column is not read"),
        ("tft.scale_to_gaussian(inputs['x'])", "tft.scale_to_gaussian has no counterpart; say [log, standardize]"),
        ("tft.scale_to_z_score(inputs['x'], elementwise=True)", "with elementwise"),
        (
            "tft.scale_to_0_1(inputs['x'], False)",
            "scale_to_0_1 with these arguments has no counterpart; give them by name",
        ),
        ("tft.scale_to_z_score(inputs['x'], True)", "tft.scale_to_z_score with these arguments has no counterpart"),
        ("tft.compute_and_apply_vocabulary(inputs['s'], -1, 100)", "with these arguments has no counterpart"),
        ("tft.bucketize(inputs['x'])", "tft.bucketize with these arguments has no counterpart"),
        ("tft.compute_and_apply_vocabulary(inputs['s'], weights=inputs['x'])", "with weights"),
        ("tft.vocabulary(inputs['s'])", "tft.vocabulary has no counterpart; tft.compute_and_apply_vocabulary has one"),
        ("inputs['x'] - tft.mean(inputs['x'])", "tft.mean has no counterpart"),
        ("tft.scale_to_z_score(inputs['x']) * 2", "computes with what tft gives"),
        ("tf.reduce_mean(inputs['x'])", "tf.reduce_mean is not known to compute each row by itself"),
        ("tf.py_function(lambda x: x, [inputs['x']], tf.float32)", "tf.py_function is not known"),
        ("inputs['nope']", "there is no 'nope'"),
        ("tf.constant(1.0)", "is the same in every row"),
        ("tf.strings.join([inputs['s'], tft.hash_strings(inputs['s'], 9)])", "computes with what tft gives"),
        ("tf.strings.join(inputs.values())", "computes with a dict_values"),
        ("tf.where(inputs['x'] > 1)", "gives places, not one value per row"),
    ],
)
def test_what_has_no_counterpart_is_listed_with_its_line_and_the_others_stay(read, expression, said):
    done = read(
        f"outputs = {{'kept': inputs['x']}}\noutputs['o'] = {expression}\nreturn outputs", head="import nowhere"
    )
    assert config(done) == {"x": "identity"}
    [remark] = done.remarks
    assert said in str(remark) and "output 'o'" in str(remark) and remark.line == 7


def test_statements_do_what_they_do_in_python(read, tmp_path):
    (tmp_path / "names.py").write_text("NUMBERS = ['x', 'fare', 'n']\n_OWN = 1\n")
    body = """
        outputs, taken = {}, {"a": 1}
        for number, key in enumerate(NUMBERS):
            if key == "fare":
                continue
            outputs[f"{key!s}_{number:02d}"] = tft.scale_to_z_score(inputs[key])
        for key in inputs:
            if key == "s":
                break
        else:
            outputs["never"] = inputs["fare"]
        try:
            first = taken.pop("a") or 7
        except KeyError:
            first = 0
        outputs["day"] = tft.bucketize(inputs["day"], first + 2 if tf.string is tf.string else 9)
        return outputs
    """
    done = read(body, head="from names import *\n")
    assert config(done) == {"x": "standardize", "n": "standardize", "day": {"bucketize": {"buckets": 3}}}
    assert done.why["n"] == "n_02" and not done.remarks


def test_the_function_runs_numpy_prints_and_decorators_and_its_constants_count(read):
    body = """
        print("hello")
        with tf.name_scope("all"):
            return {"o": scaled(inputs["x"], np.pi), "b": tft.apply_buckets(inputs["fare"], np.array([1.0, 2.5])), "c": 7}
    """
    head = "import numpy as np\n\n@tf.function\ndef scaled(x: tf.Tensor | None, by):\n    return np.float64(by) * x\n"
    done = read(body, head=head)
    assert config(done) == {
        "o": ("3.141592653589793 * columns['x']", "identity"), "fare": {"bucketize": {"boundaries": [1.0, 2.5]}},
    }  # fmt: skip
    [remark] = done.remarks
    assert "output 'c': it is not a column" in str(remark)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("1 / 0", "raises ZeroDivisionError: division by zero"),
        ("a, b = inputs['x']", "raises TypeError: a loop, or an assignment to several names, depends on the rows"),
        ("1 if inputs['x'] > 0 else 2", "raises TypeError: a branch depends on the rows: use tf.where"),
        ("numpy.log(inputs['x'])", "raises TypeError"),
        ("(lambda f: f(f))(lambda f: f(f))", "raises RecursionError"),
        ("raise SystemExit(3)", "raises SystemExit: 3"),
    ],
)
def test_an_error_of_the_user_s_code_has_its_file_and_line(read, tmp_path, statement, said):
    with pytest.raises(ConfigError, match=re.escape(said)) as error:
        read(f"{statement}\nreturn {{}}", head="import numpy")
    assert f"{tmp_path / 'transform.py'}:6" in str(error.value)


def test_a_process_that_dies_or_does_not_end_is_an_error(tmp_path):
    file = tmp_path / "t.py"
    for text, seconds, said in (
        ("while True:\n    pass\n", 1, "does not end within 1 seconds"),
        ("import os\nos._exit(7)\n", 300, "ended with exit status 7"),
    ):
        file.write_text(text + "def preprocessing_fn(inputs):\n    return {}\n")
        with pytest.raises(ConfigError, match=said):
            read_preprocessing_fn(str(file), INPUTS, seconds=seconds)


def test_files_that_hold_no_function_end_with_an_error(read, tmp_path):
    with pytest.raises(DataError, match="there is no such file"):
        read_preprocessing_fn(str(tmp_path / "none.py"), INPUTS)
    (tmp_path / "bad.py").write_text("def preprocessing_fn(inputs:\n")
    with pytest.raises(DataError, match=r"bad\.py:1: it is not Python"):
        read_preprocessing_fn(str(tmp_path / "bad.py"), INPUTS)
    (tmp_path / "other.py").write_text("x = 1\n")
    with pytest.raises(ConfigError, match="it has no function preprocessing_fn"):
        read_preprocessing_fn(str(tmp_path / "other.py"), INPUTS)
    with pytest.raises(ConfigError, match="returns no dict"):
        read("return inputs['x']")


def test_the_label_s_own_outputs_are_left_out_and_not_those_of_its_other_columns(read):
    body = "return {'y': inputs['x'] > 0.2 * inputs['fare'], 'fare_xf': tft.scale_to_z_score(inputs['fare'])}"
    assert config(read(body, {"x", "fare"}, sole=False)) == {"fare": "standardize"}
    assert config(read("return {'x_xf': inputs['x'], 'n_xf': inputs['n']}", {"x"})) == {"n": "identity"}


def test_an_import_that_a_library_may_do_without_gets_no_stand_in(read):
    done = read("return {'o': inputs['x'] * pandas.Series([2]).sum()}", head="import pandas")
    assert config(done) == {"o": ("columns['x'] * 2", "identity")}
