"""Classic tf.Examples become columns, whatever their layout, and what does not fit is refused."""

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.records import wire
from headway.schema.columns import Column
from tests.headway.sources.formats.test_tfexample import feature as made_by
from tfcore.ops.example_parser import parse_examples

TYPES = {"i": "int64", "f": "float32", "s": "bytes"}


def columns(nullable):
    """A scalar, a vector and a list of each type."""
    return [
        Column(name=letter + kind, type=TYPES[letter], nullable=nullable and kind != "l", shape=shape)
        for letter in TYPES
        for kind, shape in {"": (), "v": (2,), "l": (None,)}.items()
    ]


OPTIONAL, REQUIRED = columns(True), columns(False)


def feature(letter, values, packed=True):
    """A Feature; None: one that holds nothing."""
    return made_by(values if values is None else {"i": "int", "f": "float", "s": "bytes"}[letter], values, packed)


def entry(name, value, swapped=False):
    parts = [wire.field(name.encode()), wire.field(value, b"\x12")]
    return wire.field(b"".join(reversed(parts) if swapped else parts))


def example(*entries):
    return wire.field(b"".join(entries))


VALUES = {
    "i": st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(0, 300)),
    "f": st.floats(width=32),
    "s": st.one_of(st.binary(max_size=30), st.binary(min_size=120, max_size=200)),
}


@st.composite
def good_records(draw):
    """Records that have every column, in any order and layout, and others beside them."""
    entries = []
    for column in OPTIONAL:
        letter = column.name[0]
        size = {"v": st.just(2), "l": st.integers(0, 5)}.get(column.name[1:], st.just(1))
        count = draw(size)
        values = draw(st.lists(VALUES[letter], min_size=count, max_size=count))
        entries.append(entry(column.name, feature(letter, values, draw(st.booleans())), draw(st.booleans())))
    if draw(st.booleans()):
        entries.append(entry("other", feature("i", [1, 2])))
    return example(*draw(st.permutations(entries)))


def parsed(records, wanted):
    return parse_examples(tf.constant(records, tf.string), wanted)


PECULIAR = {
    "the last of two wins": ([entry("i", feature("i", [1])), entry("i", feature("i", [2]))], "i", 2),
    "an empty last one does not win where a value is required": (
        [entry("i", feature("i", [1])), entry("i", b"")],
        "i",
        1,
    ),
    "behind a packed run nothing counts": (
        [entry("i", wire.field(wire.field(b"\x05") + b"\x08\x06", wire.INTS))],
        "i",
        5,
    ),
}


@pytest.mark.parametrize("case", PECULIAR)
def test_odd_records_are_read_as_parse_example_reads_them(case):
    entries, name, value = PECULIAR[case]
    wanted = [Column(name=name, type=TYPES[name[0]], nullable=False)]
    assert parsed([example(*entries)], wanted)[name].numpy().tolist() == [value]


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [entry("i", feature("f", [1]))],
        [entry("i", feature("f", []))],
        [entry("i", feature("i", [1, 2]))],
        [entry("i", b"\x22\x00")],
        [entry("i", wire.field(b"\x08\x06" + wire.field(b"\x05"), wire.INTS))],
    ],
)
def test_a_record_that_does_not_fit_is_refused(entries):
    wanted = [Column(name="i", type="int64", nullable=False)]
    good = example(entry("i", feature("i", [1])))
    with pytest.raises((tf.errors.InvalidArgumentError, UnicodeDecodeError)):
        parsed([good, good, example(*entries)], wanted)


@settings(max_examples=30)
@given(st.lists(good_records(), min_size=1, max_size=4))
def test_what_was_written_is_read(records):
    """Every bit of it, NaN and -0.0 too, as protobuf has it."""
    for wanted in (OPTIONAL, REQUIRED):
        found = parsed(records, wanted)
        for column in wanted:
            kept = [values_of(tf.train.Example.FromString(record), column.name) for record in records]
            values = found[column.name].numpy()
            if column.is_list:
                flags = found.get(f"{column.name}/present")
                assert flags is None or flags.numpy().shape == (len(records),)
                assert found[f"{column.name}/lengths"].numpy().tolist() == [len(each) for each in kept]
            assert (
                values.reshape(-1).tolist()
                == pytest.approx([value for each in kept for value in each], rel=0, abs=0, nan_ok=True)
                if column.type == "float32"
                else [*values.reshape(-1)] == [value for each in kept for value in each]
            )


def values_of(message, name):
    """The values of a feature."""
    kept = message.features.feature[name]
    return list(getattr(kept, kept.WhichOneof("kind") or "int64_list").value)


def test_a_list_that_is_there_and_empty_is_empty_and_one_that_is_absent_is_null():
    """As a client writes it, whatever the other rows of the batch have."""
    tags = Column(name="tags", type="bytes", nullable=True, shape=(None,))
    empty = tf.train.Feature(bytes_list=tf.train.BytesList(value=[]))
    some = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a", b"b"]))
    other = tf.train.Feature(int64_list=tf.train.Int64List(value=[1]))
    rows = [{"tags": some, "x": other}, {"tags": empty}, {"x": other}, {}, {"tags": tf.train.Feature()}]
    records = [tf.train.Example(features=tf.train.Features(feature=row)).SerializeToString() for row in rows]
    for start in range(len(records)):
        found = parsed(records[start:], [tags])
        assert found["tags/present"].numpy().tolist() == [True, True, False, False, False][start:]
        assert found["tags/lengths"].numpy().tolist() == [2, 0, 0, 0, 0][start:]
