"""One odd row of a sample decides no column's type; many do, and what stands as text stays text."""

import json

import pyarrow as pa
import pytest

from headway.records.tfrecord import frame
from headway.records.wire import BYTES, INTS, field
from headway.schema.columns import ColumnConfig
from headway.schema_inference.column_types import infer


def _types(opened, format, *datas, configs=None):
    source, found = opened(format, *datas)
    prefix = source.sample(found, 1000)
    schema, notes = infer(prefix, configs or {}, only=False, needed=frozenset(), where="x")
    return {column.name: (column.type, column.shape) for column in schema.columns}, [str(note) for note in notes]


def _csv(values):
    return b"a,b\n" + b"".join(b"%s,1\n" % value.encode() for value in values)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1"] * 199 + ["odd"], "int64"),
        (["1", "2.5"] * 99 + ["1", "odd"], "float32"),
        (["1"] * 197 + ["odd", "n/a", "x"], "bytes"),
        (["1"] * 20 + ["odd"], "bytes"),
        (["odd"] * 199 + ["1"], "bytes"),
        (["1"] * 199 + ["99999999999999999999"], "int64"),
        (["1"] * 298 + ["odd", "-99999999999999999999"], "int64"),
        (["1", "2.5"] * 99 + ["1", "99999999999999999999"], "float32"),
        (["1.0"] * 199 + ["99999999999999999999"], "float32"),
        (["1"] * 199 + ["1e30"], "float32"),
        (["1"] * 199 + ["2.5"], "float32"),
        (["1"] * 197 + ["99999999999999999999"] * 3, "float32"),
        (["99999999999999999999"] * 200, "float32"),
        (["1.5"] * 190 + ["-1.7976931348623157e+308"] * 10, "float32"),
        (["1.5"] * 49 + ["1e39"], "float32"),
    ],
)
def test_one_odd_value_in_a_hundred_of_a_csv_file_decides_nothing(opened, values, kind):
    types, notes = _types(opened, "csv", _csv(values))
    assert types == {"a": (kind, ()), "b": ("int64", ())}
    assert ("'odd'" in " ".join(notes)) == (kind != "bytes" and "odd" in values)


def test_a_few_lines_of_json_with_digits_beyond_int64_are_judged_with_all_others(opened):
    """The pieces of a sample may be so short that one value is more than a hundredth of one."""
    line = b'{"a": %d, "b": "' + b"x" * 20_000 + b'"}\n'
    source, found = opened("jsonl", b"".join(line % (10**20 if i == 7 else i) for i in range(150)))
    prefix = source.sample(found, 1000)
    assert prefix.table.num_rows > 100 and prefix.table.schema.field("a").type == pa.int64()


def test_a_configured_type_needs_no_note(opened):
    config = {"a": ColumnConfig(type="string")}
    types, notes = _types(opened, "csv", _csv(["1"] * 199 + ["odd"]), configs=config)
    assert types["a"] == ("bytes", ()) and not notes


@pytest.mark.parametrize(
    ("usual", "odd", "kind"),
    [
        (1, "odd", ("int64", ())),
        (1, [2], ("int64", ())),
        (1.5, {"x": 1}, ("float32", ())),
        ([1, 2], 3, ("int64", (2,))),
        ([1.5], ["odd"], ("float32", (1,))),
        ("00123", 5, ("bytes", ())),
        ("00123", "odd", ("bytes", ())),
        (True, "odd", ("int64", ())),
        (1, 10**20, ("int64", ())),
        ([1, 2], [3, -(10**20)], ("int64", (2,))),
        (1.5, 10**20, ("float32", ())),
        (10**20, 1, ("float32", ())),
        (1, 2.5, ("float32", ())),
    ],
)
def test_one_odd_line_of_json_decides_nothing(opened, usual, odd, kind):
    data = b"".join(json.dumps({"a": value}).encode() + b"\n" for value in [*[usual] * 150, odd, *[usual] * 49])
    types, _ = _types(opened, "jsonl", data)
    assert types == {"a": kind}


def test_one_list_with_digits_beyond_int64_in_one_of_the_files_decides_nothing(opened):
    usual, odd = b'{"a": [1, 2]}\n', b'{"a": [18446744073709551615]}\n'
    types, notes = _types(opened, "jsonl", usual * 100, usual * 99 + odd)
    assert types == {"a": ("int64", (None,))}
    assert "1 of 399 sampled values does not fit int64, such as '18446744073709551615'" in " ".join(notes)


def _feature(name, tag, body):
    return field(field(name.encode()) + field(field(body, tag), b"\x12"))


@pytest.mark.parametrize(("odd", "kind"), [(1, "int64"), (3, "bytes")])
def test_one_odd_record_of_examples_decides_nothing(opened, odd, kind):
    usual, other = _feature("a", INTS, field(b"\x05")), _feature("a", BYTES, field(b"word"))
    data = b"".join(frame(field(part)) for part in [*[usual] * 150, *[other] * odd, *[usual] * 49])
    types, notes = _types(opened, "examples", data)
    assert types == {"a": (kind, ())} and ("'word'" in " ".join(notes)) == (kind == "int64")


def _records(*values):
    return b"".join(frame(field(_feature("a", INTS, field(bytes(value)) if value else b""))) for value in values)


@pytest.mark.parametrize(
    ("odd", "shape"), [([(1, 2)], ()), ([(1, 2), ()], ()), ([()], ()), ([(1, 2)] * 3, (None,)), ([()] * 3, (None,))]
)
def test_one_record_of_several_values_makes_no_list_of_a_column(opened, odd, shape):
    data = _records(*[(5,)] * 100, *odd), _records(*[(6,)] * 100)
    types, notes = _types(opened, "examples", *data)
    assert types == {"a": ("int64", shape)}
    assert ("has several values, up to 2" in " ".join(notes)) == (shape == () and (1, 2) in odd)
    configs = {"a": ColumnConfig(shape="list")}
    types, notes = _types(opened, "examples", *data, configs=configs)
    assert types == {"a": ("int64", (None,))} and not notes


def test_quoted_digits_of_one_file_and_numbers_of_another_are_text(opened):
    source, found = opened("jsonl", b'{"zip": 12345}\n' * 200, b'{"zip": "02139"}\n' * 200)
    assert source.sample(found, 1000).table.schema.field("zip").type in (pa.string(), pa.binary())
