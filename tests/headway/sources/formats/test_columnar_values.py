"""Parquet and Arrow files of other writers: values as they are, or a refusal that names the column."""

import base64
import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from headway.errors import DataError
from headway.first_pipeline.draft import draft_of, read_source
from headway.first_pipeline.found_files import found_source
from headway.first_pipeline.yaml_text import pipeline_text
from headway.schema.columns import ColumnConfig
from headway.schema_inference.column_types import infer
from headway.statistics.split_statistics import SplitStatistics
from headway.tabular.coerce import coerce, raw_types
from headway.tabular.label import LabelConfig

FAR, MOST = 2**63 - 1, 2**63 - 2**63 % 1000
DAY = 86_400_000_000


def stored(values, kind):
    return pa.array(values, pa.int64()).cast(kind)


def seconds(*texts):
    return [
        int((datetime.datetime.fromisoformat(text) - datetime.datetime(1970, 1, 1)).total_seconds()) for text in texts
    ]


def words(values, *indices):
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), values)


LATIN = pa.array([b"caf\xe9", b"bar", None], pa.binary())
CASES = {
    # name: (array, stored values, reasons by rejected row)
    "seconds beyond microseconds": (stored([FAR, 0, -1], pa.timestamp("s")), [0, -1_000_000], {0: "64 bits of micro"}),
    "milliseconds beyond microseconds": (stored([FAR, -FAR, 5], pa.timestamp("ms")), [5000], {0: "64 bits", 1: "64 bits"}),
    "the last millisecond": (stored([MOST // 1000], pa.timestamp("ms")), [MOST], {}),
    "nanoseconds go towards the past": (stored([-1, -1000, -1001, 1999], pa.timestamp("ns")), [-1, -1, -2, 1], {}),
    "durations": (stored([FAR, -1, None], pa.duration("s")), [-1_000_000, None], {0: "64 bits"}),
    "negative nanoseconds last": (stored([-1], pa.duration("ns")), [-1], {}),
    "times of a day": (pa.array([1, 2], pa.time32("ms")), [1000, 2000], {}),
    "days as milliseconds": (stored([86_400_000, -86_400_000], pa.date64()), [1, -1], {}),
    "days with a time": (stored([86_400_000, 5, -1], pa.date64()), [DAY, 5000, -1000], {}),
    "text views": (pa.array(["a", None, "b" * 30], pa.string_view()), [b"a", None, b"b" * 30], {}),
    "views of bytes": (pa.array([b"\xe9", None], pa.binary_view()), [b"\xe9", None], {}),
    "bytes that are no text": (LATIN, [b"caf\xe9", b"bar", None], {}),
    "text that is not UTF-8": (LATIN.view(pa.string()), [b"caf\xe9", b"bar", None], {}),
    "a dictionary of it": (LATIN.view(pa.string()).dictionary_encode(), [b"caf\xe9", b"bar", None], {}),
    "bytes of one size": (pa.array([b"\xe9\xff", b"ab"], pa.binary(2)), [b"\xe9\xff", b"ab"], {}),
    "null among the words": (words(pa.array(["a", None, "b"]), 0, 1, None, 2), [b"a", None, None, b"b"], {}),
    "null among the numbers": (words(pa.array([7, None]), 0, 1, None), [7, None, None], {}),
    "views in a dictionary": (words(pa.array(["a", "b"], pa.string_view()), 1, 0), [b"b", b"a"], {}),
    "runs": (pc.run_end_encode(pa.array([3, 3, None, 4])), [3, 3, None, 4], {}),
    "null in a list": (pa.array([[1, None], [None], [], None, [2, 3]]), [[1], [], [], None, [2, 3]], {}),
    "null in lists of text": (pa.array([["x", None], None], pa.large_list(pa.string_view())), [[b"x"], None], {}),
    "NaN in a list of integers": (pa.array([[1.0, float("nan")]]), [[1]], {}),
    "null in a vector": (pa.array([[1.0, None], [1.0, 2.0]], pa.list_(pa.float32(), 2)), [[1.0, 2.0]], {0: "is null (shape"}),
}  # fmt: skip


def in_stored_types(source, files, configs=None):
    """(the stored rows of the only column, rejected rows and reasons, statistics)."""
    schema, _ = infer(source.sample(files, 100), configs or {}, only=False, needed=frozenset(), where="x")
    statistics, parts, rejected = SplitStatistics.create(schema.columns), [], {}
    for piece in source.ranges(files):
        for chunk in source.read(piece, schema.names(), raw_types(schema.columns)):
            coerced = coerce(chunk.batch, schema.columns)
            statistics.update(coerced.batch)
            parts.append(coerced.batch)
            rejected |= {row["row"] + chunk.first_row: row["reason"] for row in coerced.rejected.to_pylist()}
    return pa.Table.from_batches(parts), rejected, statistics


def written(table, how, **options):
    out = pa.BufferOutputStream()
    if how == "parquet":
        pq.write_table(table, out, **options)
    else:
        with pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
    return out.getvalue().to_pybytes()


@pytest.mark.parametrize("how", ["arrow", "parquet"])
@pytest.mark.parametrize("case", CASES)
def test_values_are_stored_as_they_are_or_rejected(opened, case, how):
    array, values, reasons = CASES[case]
    try:
        data = written(pa.table({"x": array}), how)
    except pa.ArrowException:
        pytest.skip("Parquet has no such type")
    if how == "parquet" and pq.ParquetFile(pa.BufferReader(data)).schema_arrow.field("x").type != array.type:
        pytest.skip("Parquet has no such type")
    configs = {"x": ColumnConfig(type="int")} if case.startswith("NaN") else None
    rows, rejected, statistics = in_stored_types(*opened(how, data), configs)
    found = rows.column("x").to_pylist()
    if pa.types.is_list(rows.schema.field("x").type):
        found = [value and [each for each in value if each is not None] for value in found]
        nulls = sum(each is None or each != each for value in array.to_pylist() for each in value or ())
        assert statistics.columns["x"].null_elements == nulls
        assert statistics.columns["x"].elements == sum(len(value or ()) for value in values)
    assert found == values and rejected.keys() == reasons.keys()
    assert all(reason in rejected[row] for row, reason in reasons.items())


def test_times_in_int96_are_what_they_say(opened):
    texts = ["9999-12-31T00:00:00", "0001-01-01T00:00:00", "1677-01-01T12:00:01", "1969-12-31T23:59:59"]
    times = pa.array(seconds(*texts), pa.timestamp("s")).cast(pa.timestamp("us"))
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": times}), out, use_deprecated_int96_timestamps=True)
    rows, rejected, _ = in_stored_types(*opened("parquet", out.getvalue().to_pybytes()))
    assert rows.column("x").to_pylist() == [second * 1_000_000 for second in seconds(*texts)] and not rejected


def test_a_time_in_int96_beyond_microseconds_rejects_its_row(opened, read_all):
    table = pa.table({"x": stored([5, 10**13, None], pa.timestamp("s")), "y": [1, 2, 3], "s": [{"t": None}] * 3})
    times = pa.StructArray.from_arrays([stored([10**13, 6, 7], pa.timestamp("s"))], ["t"])
    out = pa.BufferOutputStream()
    pq.write_table(table.set_column(2, "s", times), out, use_deprecated_int96_timestamps=True, row_group_size=2)
    rows, malformed = read_all(opened("parquet", out.getvalue().to_pybytes()), {"y": None, "x": None, "s.t": None})
    assert [(row[0], row[1]) for row in rows] == [(2, 3)]
    why = "is a time that 64 bits of microseconds do not hold"
    assert sorted(malformed) == [(0, "s.t", why), (1, "x", why)]


def test_a_page_whose_checksum_does_not_hold_is_refused_and_its_column_named(opened, tmp_path):
    rows = range(1000)
    table = pa.table({"x": [777_000 + i for i in rows], "y": [i % 2 for i in rows], "z": [i % 13 / 4 for i in rows]})
    data = bytearray(written(table, "parquet", use_dictionary=False, compression="none", write_page_checksum=True))
    data[data.index((777_500).to_bytes(8, "little")) + 2] ^= 1
    source, files = opened("parquet", bytes(data), names=("data.parquet",))
    (piece,) = source.ranges(files)
    with pytest.raises(DataError, match=r"column 'x': could not verify page integrity") as error:
        list(source.read(piece, ["x", "y"], {}))
    assert "{x: ignore}" in error.value.fix
    with pytest.raises(DataError, match="column 'x' cannot be read: ") as error:
        infer(source.sample(files, 100), {}, only=False, needed=frozenset(), where="pipeline.yaml")
    assert error.value.where == files[0].path and "x: ignore" in error.value.fix
    rows, _, _ = in_stored_types(source, files, {"x": ColumnConfig(role="ignore")})  # what is not used never matters
    assert rows.column_names == ["y", "z"] and rows.num_rows == 1000
    found, look = read_source(found_source(files[0].path))
    draft = draft_of(found, look, LabelConfig(column="y"))
    assert "x: ignore" in pipeline_text(draft, path="data.parquet")
    assert any("'x' cannot be read" in doubt and files[0].path in doubt for doubt in draft.doubts)


class _Keys(pe.KmsClient):
    """Hands out keys as they are."""

    def wrap_key(self, key_bytes, master_key_identifier):
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key, master_key_identifier):
        return base64.b64decode(wrapped_key)


@pytest.mark.parametrize("plain_footer", [True, False])
def test_encrypted_columns_are_named_and_the_others_read(opened, tmp_path, plain_footer):
    encryption = pe.EncryptionConfiguration(
        footer_key="f", column_keys={"k": ["secret"]}, plaintext_footer=plain_footer, double_wrapping=False
    )
    factory = pe.CryptoFactory(lambda config: _Keys())
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), encryption)
    table = pa.table({"x": range(20), "secret": range(20), "s": ["a", "b"] * 10})
    with pq.ParquetWriter(tmp_path / "e.parquet", table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    source, files = opened("parquet", (tmp_path / "e.parquet").read_bytes())
    if not plain_footer:
        with pytest.raises(DataError, match="is Parquet with an encrypted footer"):
            source.sample(files, 100)
        return
    with pytest.raises(DataError, match="column 'secret' cannot be read: it is encrypted") as error:
        infer(source.sample(files, 100), {}, only=False, needed=frozenset(), where="x")
    assert "secret: ignore" in error.value.fix
    (piece,) = source.ranges(files)
    with pytest.raises(DataError, match="column 'secret' cannot be read: it is encrypted"):
        list(source.read(piece, ["x", "secret"], {}))


def test_intervals_are_left_out_by_name(opened):
    data = written(pa.table({"x": pa.array([pa.MonthDayNano([1, 2, 3])]), "y": [1]}), "arrow")
    source, files = opened("arrow", data)
    schema, notes = infer(source.sample(files, 10), {}, only=False, needed=frozenset(), where="x")
    assert schema.names() == ["y"] and [note.column for note in notes] == ["x"]
    assert "interval cannot be stored" in notes[0].text
