"""The user's preprocess function: what it is given, what it may give, and the same columns wherever it runs."""

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from headway.errors import ConfigError
from headway.monitor import Monitor
from headway.records.encode import encode
from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics
from tests.example_shards import write_examples
from tfcore.data.reader import Decoder
from tfcore.graph.python_op import PythonOpError
from tfcore.preprocess.request import AnalyseRequest
from tfcore.preprocess.stage import analyse
from tfcore.transform.config import ColumnTransform, DerivedParameters
from tfcore.transform.fit import TransformRequest, fit
from tfcore.transform.layer import transform_of
from tfcore.transform.preprocess import load_preprocess

COLUMNS = (
    Column(name="miles", type="int64", nullable=True),
    Column(name="origin", type="bytes", nullable=False, encoding="dictionary"),
    Column(name="tags", type="bytes", nullable=True, shape=(None,)),
    Column(name="unread", type="float32", nullable=False),
    Column(name="label", type="int64", nullable=False, role="label"),
)
TABLE = pa.table(
    {
        "miles": pa.array([100, None, 300, 0] * 5, pa.int64()),
        "origin": pa.array([b"JFK", b"EWR", b"JFK", b"LGA"] * 5, pa.binary()),
        "tags": pa.array([[b"a", b"b"], None, [], [b"b"]] * 5, pa.list_(pa.binary())),
        "unread": pa.array(np.arange(20, dtype=np.float32)),
        "label": pa.array([0, 1] * 10, pa.int64()),
    }
)
GOOD = """
import tensorflow as tf

def preprocess(columns):
    miles = tf.cast(columns["miles"], tf.float32)
    scale = tf.constant(1.0)
    if tf.reduce_max(miles) > 200:          # AutoGraph's work
        scale = scale * 2.0
    return {
        "far": miles * 0.5, "far__present": columns["miles__present"],
        "place": tf.strings.lower(columns["origin"]),
        "both": tf.stack([miles, -miles], 1),
        "labels": tf.concat([columns["tags"], columns["origin"][:, None]], 1),
        "is_jfk": columns["origin"] == b"JFK",
    }
"""


def analysed(tmp_path, source, rows_per_record=8, log=None):
    (tmp_path / "features.py").write_text(source)
    written = write_examples(tmp_path / "data", {"train": TABLE}, COLUMNS, rows_per_record=rows_per_record)
    request = AnalyseRequest(
        examples=(written.part("train"),), file=tmp_path / "features.py", function="features:preprocess"
    )
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    monitor = Monitor()
    monitor.log = log or monitor.log
    return analyse(request, out, monitor), SplitStatistics.load(out / "train"), written


def test_columns_kinds_and_statistics_are_those_of_what_the_function_gives(tmp_path):
    result, statistics, _ = analysed(tmp_path, GOOD)
    found = {c["name"]: (c["type"], c["nullable"], c.get("shape", [])) for c in result["columns"]}
    assert found == {
        "far": ("float32", True, []),
        "place": ("bytes", False, []),
        "both": ("float32", False, [2]),
        "labels": ("bytes", False, [None]),
        "is_jfk": ("int64", False, []),
    }
    assert [c["name"] for c in result["reads"]] == ["miles", "origin", "tags"] and result["rows"] == 20
    far, place = statistics.columns["far"], statistics.columns["place"]
    assert (far.missing, far.maximum) == (5, 150.0)
    assert place.top() == [(b"jfk", 10), (b"ewr", 5), (b"lga", 5)]
    assert dict(statistics.columns["labels"].top()) == {b"JFK": 10, b"b": 10, b"a": 5, b"EWR": 5, b"LGA": 5}


def test_derived_columns_are_fitted_and_computed_like_raw_ones(tmp_path):
    result, _, written = analysed(tmp_path, GOOD)
    written.statistics["train"].save(tmp_path / "statistics")
    request = TransformRequest(
        columns=COLUMNS,
        transforms={"miles": ColumnTransform()},
        statistics=tmp_path / "statistics",
        derived=DerivedParameters.model_validate(
            {"function": "features:preprocess", **{k: result[k] for k in ("reads", "columns")}}
        ),
        derived_statistics=tmp_path / "out" / "train",
        derived_transforms={"place": ColumnTransform.model_validate({"transform": {"hash": {"buckets": 7}}})},
    )
    from tfcore.transform.parameters import TransformParameters

    parameters = TransformParameters.model_validate(fit(request, tmp_path, Monitor())["parameters"])
    assert [c.name for c in parameters.raw] == ["miles", "origin", "tags", "unread"]
    assert {c.name: c.size for c in parameters.categorical}["place"] == 7
    transform = transform_of(parameters, tmp_path / "features.py")
    batch = TABLE.slice(0, 4).combine_chunks().to_batches()[0]
    rows = Decoder(COLUMNS, [c.name for c in COLUMNS])(tf.constant(encode(batch, COLUMNS)))
    named = transform.named(rows)
    assert named["both"].shape == [4, 2] and named["far__missing"].numpy().tolist() == [0, 1, 0, 0]
    with pytest.raises(ConfigError, match="neither the files nor features:preprocess give a column 'plaice'"):
        fit(request.model_copy(update={"derived_transforms": {"plaice": ColumnTransform()}}), tmp_path, Monitor())
    (tmp_path / "features.py").write_text(GOOD.replace('"place"', '"spot"'))
    with pytest.raises(ConfigError, match="other columns than when it was analysed: place, spot"):
        transform_of(parameters, tmp_path / "features.py").named(rows)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return {'x': columns['mile']}", "no column 'mile'"),
        ("return {'x': columns['label']}", "no column 'label'"),
        ("return {'miles': columns['miles']}", "a raw column has that name"),
        ("return {}", "returned no columns"),
        ("return columns['miles']", "returned a"),
        ("return {'x': columns['miles'] + 'a'}", "features.py, line 3"),
        ("return {'x': tf.reshape(columns['miles'], [-1, 2, 2])}", "shape"),
        ("return {'x': columns['miles'][:1]}", "preprocess: x has"),
        ("return {'x': tf.complex(1.0, 1.0) + tf.zeros([8], tf.complex64)}", "complex64"),
        ("return {'x': tf.zeros([8])}", "reads no column"),
        ("raise RuntimeError('no')", "RuntimeError: no"),
        (
            "return {'x': tf.cast(columns['miles'], tf.float32) + tf.random.normal([])}",
            "features:preprocess: draws random numbers",
        ),
        (
            "return {'x': tf.random.shuffle(columns['miles'])}",
            r"draws random numbers \(RandomShuffle\)(.|\n)*own columns",
        ),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path, body, said):
    with pytest.raises(ConfigError, match=said):
        analysed(tmp_path, f"import tensorflow as tf\ndef preprocess(columns):\n    {body}\n")


def test_a_function_that_does_not_exist(tmp_path):
    with pytest.raises(ConfigError, match="has no function 'preprocess'"):
        analysed(tmp_path, "def process(columns):\n    return columns\n")


PYTHON = """
import numpy as np
import tensorflow as tf
from tfcore.graph.python_op import numpy_op

NAMES = {b"JFK": 1, b"EWR": 2, b"LGA": 3}

def number(origin):
    return np.array([NAMES[name] for name in origin], np.int64)

op = numpy_op(number, tf.TensorSpec([None], tf.int64))

def preprocess(columns):
    return {"number": op(columns["origin"])}
"""


def test_a_python_op_in_preprocess_runs_and_its_end_is_foretold(tmp_path):
    lines = []
    _, statistics, _ = analysed(tmp_path, PYTHON, log=lines.append)
    assert (statistics.columns["number"].minimum, statistics.columns["number"].maximum) == (1, 3)
    (line,) = (line for line in lines if line.startswith("warning"))
    assert "calls Python functions, which no exported model can: features:number (features.py:8)" in line


def test_an_exception_in_a_python_op_of_preprocess_is_shown_with_its_own_line(tmp_path):
    with pytest.raises(PythonOpError, match=r"features:number \(features.py:8\): raised KeyError: b'LGA'") as caught:
        analysed(tmp_path, PYTHON.replace(', b"LGA": 3', ""))
    assert 'features.py", line 9, in number' in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)
    call = 'tf.reshape(tf.numpy_function(number, [columns["origin"]], tf.int64), [-1])'
    bare = PYTHON.replace(', b"LGA": 3', "").replace('op(columns["origin"])', call)
    with pytest.raises(PythonOpError, match=r"KeyError: b'LGA' in File .*features.py"):
        analysed(tmp_path, bare)


def test_a_preprocess_imports_where_autograph_converts_it(tmp_path):
    text = "def features(columns):\n    import helpers\n    from parts.units import scaled\n"
    text += "    return {'y': scaled(columns['x']) if helpers.ON else columns['x']}\n"
    (tmp_path / "parts").mkdir()
    (tmp_path / "mine.py").write_text(text)
    (tmp_path / "helpers.py").write_text("ON = True\n")
    (tmp_path / "parts" / "units.py").write_text("def scaled(x):\n    return x * 3\n")
    assert load_preprocess(tmp_path / "mine.py", "mine:features")({"x": 2}) == {"y": 6}
