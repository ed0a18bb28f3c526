"""A proposed schema holds the window, narrows nothing, and keeps what else the file says."""

import pyarrow as pa

from headway.schema.columns import Column
from headway.schema.pbtxt import from_text
from headway.schema_inference.schema_update import difference, proposed
from headway.statistics.split_statistics import SplitStatistics

FILE = """feature { name: "hour" type: INT presence { min_fraction: 1.0 } int_domain { min: 0 max: 23 } }
feature { name: "x" type: FLOAT float_domain { max: 2.5 } lifecycle_stage: BETA }
feature { name: "s" type: BYTES string_domain { value: "AA" value: "ZZ" } }
feature { name: "t" type: BYTES domain: "shared" }
feature { name: "gone" type: INT }
string_domain { name: "shared" value: "a" }
"""
COLUMNS = [
    Column(name="hour", type="int64", nullable=True),
    Column(name="x", type="float32", nullable=True),
    Column(name="s", type="bytes", nullable=True),
    Column(name="t", type="bytes", nullable=True),
]


def split(hour, x, s, t):
    made = SplitStatistics.create(COLUMNS)
    arrays = [pa.array(hour, pa.int64()), pa.array(x, pa.float32()), pa.array(s, pa.binary()), pa.array(t, pa.binary())]
    made.update(pa.record_batch(arrays, names=[column.name for column in COLUMNS]))
    return made


def test_domains_ranges_and_presence_are_widened():
    train = split([1, 24, None, 3], [1.0, 7.5, 0.0, None], [b"BB", b"AA", b"\xff", None], [b"a", b"b", b"a", b"a"])
    text = proposed(FILE, [train], where="schema.pbtxt")
    schema = from_text(text, where="schema.proposed.pbtxt")
    assert schema.ranges == {"hour": (0, 24), "x": (None, 7.5)}
    assert schema.domains == {"s": ("AA", "ZZ", "BB"), "t": ("a", "b")}
    assert schema.required == () and "lifecycle_stage: BETA" in text and schema.names()[-1] == "gone"
    changes = difference(FILE, text, "schema.pbtxt", "schema.proposed.pbtxt")
    assert changes.startswith("--- schema.pbtxt\n+++ schema.proposed.pbtxt") and '+    value: "BB"' in changes


def test_long_texts_drop_their_domain_and_new_columns_are_added():
    train = split([1], [1.0], [b"x" * 5000], [b"y" * 5000])
    new = [Column(name="late", type="int64", nullable=True, temporal="date")]
    schema = from_text(proposed(FILE, [train], where="schema.pbtxt", new=new), where="x")
    assert schema.domains == {} and schema.column("late").temporal == "date"


def test_a_window_that_fits_changes_nothing():
    fits = split([1, 2], [1.0, 2.0], [b"AA", b"AA"], [b"a", None])
    once = proposed(FILE, [fits], where="schema.pbtxt")
    assert from_text(once, where="a") == from_text(FILE, where="b")
    assert difference(once, proposed(once, [fits], where="schema.pbtxt"), "a", "b") == ""
