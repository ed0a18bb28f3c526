"""The schema file: what TFDV's protos read of it, and what a person may get wrong in it."""

import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from headway.errors import ConfigError
from headway.schema.columns import Column, Schema
from headway.schema.pbtxt import from_text, to_text

SCHEMA = Schema(
    columns=(
        Column(name="hour", type="int64", nullable=True),
        Column(name="delay", type="float32", nullable=True),
        Column(name="carrier", type="bytes", nullable=True, encoding="dictionary"),
    ),
    ranges={"hour": (0, 23), "delay": (-10.5, None)},
    domains={"carrier": ("AA", "Zürich")},
    required=("hour",),
)


def feature(body):
    return f'feature {{ name: "x" {body} }}'


def test_tensorflow_metadata_reads_it_and_it_comes_back():
    text = to_text(SCHEMA)
    message = text_format.Parse(text, schema_pb2.Schema())
    hour, delay, carrier = message.feature
    assert (hour.type, delay.type, carrier.type) == (schema_pb2.INT, schema_pb2.FLOAT, schema_pb2.BYTES)
    assert (hour.int_domain.min, hour.int_domain.max, hour.presence.min_fraction) == (0, 23, 1.0)
    assert delay.float_domain.min == -10.5 and not delay.float_domain.HasField("max")
    assert list(carrier.string_domain.value) == ["AA", "Zürich"]
    assert hour.HasField("shape") and not hour.shape.dim  # a scalar
    assert from_text(text, where="schema.pbtxt") == SCHEMA


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("type: FLOAT float_domain { min: 5 max: -2.5 }", "begins at 5.0 and ends at -2.5"),
        ("type: INT int_domain { min: 5 max: 2 }", "begins at 5 and ends at 2"),
        ("type: FLOAT float_domain { min: nan }", "min of its domain is nan"),
        ("type: FLOAT float_domain { max: nan }", "max of its domain is nan"),
        ("type: FLOAT float_domain { min: inf }", "min of its domain is inf"),
        ("type: INT float_domain { min: 0.5 }", "is INT, and min of its float_domain is 0.5"),
        ("type: INT float_domain { max: 1e30 }", "is INT, and max of its float_domain is"),
    ],
)
def test_a_range_that_cannot_be_meant(body, said):
    with pytest.raises(ConfigError) as caught:
        from_text(feature(body), where="schema.pbtxt")
    told = str(caught.value)
    assert "schema.pbtxt" in told and "'x'" in told and said in told and caught.value.fix


def test_ranges_that_can():
    assert from_text(feature("type: INT float_domain { min: 2 }"), where="s").ranges == {"x": (2.0, None)}
    open_ended = from_text(feature("type: INT float_domain { min: -inf max: 7 }"), where="s")
    assert from_text(to_text(open_ended), where="s").ranges == {"x": (None, 7.0)}
    assert from_text(feature("type: FLOAT float_domain { min: 3 max: 3 }"), where="s").ranges == {"x": (3.0, 3.0)}
