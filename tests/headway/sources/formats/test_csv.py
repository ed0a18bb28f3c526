"""CSV: ranges together are the file; lines that cannot be cut are counted, numbered and kept out; nothing is lost."""

import gzip
import random

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import DataError
from headway.schema.columns import Column
from headway.sources.base import BATCH_ROWS, Range
from headway.sources.config import SourceConfig
from headway.sources.formats.csv import CsvSource
from headway.tabular.coerce import coerce

INT, TEXT, REAL = pa.int64(), pa.binary(), pa.float64()


@pytest.fixture
def written(opened):
    """written(b"a,b\\n1,2\\n", delimiter=";") -> (source, its files)"""
    return lambda *datas, range_size=1 << 20, **config: opened("csv", *datas, small=range_size, csv=config)


def rows_of(source, found, types=None, columns=None):
    """(rows as a list of dicts with their number in the file, malformed lines as (number, text, reason))"""
    rows, malformed = [], []
    base = {}
    for piece in source.ranges(found):
        columns = columns or list(piece.facts["names"])
        start = base.get(piece.file, 0)
        count = 0
        for chunk in source.read(piece, columns, types or {}):
            assert chunk.batch.schema.names == columns
            at = zip(chunk.positions(), chunk.batch.to_pylist(), strict=True)
            rows += [(start + int(i), *row.values()) for i, row in at]
            malformed += [(start + line.row, line.text, line.reason) for line in chunk.malformed]
            count += chunk.batch.num_rows + len(chunk.malformed)
        base[piece.file] = start + count
    return rows, malformed


def many(n, seed=0):
    draw = random.Random(seed)
    lines = ["id,text,x"]
    for i in range(n):
        text = draw.choice(
            ["", "NA", "plain", '"a,b"', '""', '"say ""hi"""', "é" * draw.randrange(9), "z" * draw.randrange(50)]
        )
        lines.append(f"{i},{text},{draw.choice(['', 'NA', '1.5', '-0', 'nan', '1e300'])}")
    return ("\n".join(lines) + "\n").encode()


def by_pyarrow(data, types):
    return pacsv.read_csv(
        pa.py_buffer(data),
        convert_options=pacsv.ConvertOptions(
            column_types=types, null_values=["", "NA"], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )


@pytest.mark.parametrize("range_size", [1, 2, 7, 50, 1000, 10_000, 1 << 20])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(("begin", "last"), [(b"", None), (b"\xef\xbb\xbf", None), (b"", -1)])
def test_the_union_of_ranges_is_the_file(written, range_size, end, begin, last):
    data = begin + many(300)[:last].replace(b"\n", end)
    types = {"id": INT, "text": TEXT, "x": REAL}
    source, found = written(data, range_size=range_size)
    rows, malformed = rows_of(source, found, types)
    wanted = by_pyarrow(data, types).to_pylist()
    assert repr([row[1:] for row in rows]) == repr([tuple(row.values()) for row in wanted])
    assert [row[0] for row in rows] == list(range(300)) and not malformed


def test_several_files_are_cut_one_by_one_and_in_order(written):
    source, found = written(many(50), many(20, 1), range_size=300)
    pieces = source.ranges(found)
    assert [piece.file for piece in pieces] == sorted(piece.file for piece in pieces)
    assert {piece.path for piece in pieces} == {file.path for file in found}
    assert len(rows_of(source, found)[0]) == 70


def test_columns_in_the_order_that_was_asked_for(written):
    source, found = written(b"a,b,c\n1,2,3\n")
    assert rows_of(source, found, {"c": INT, "a": INT}, ["c", "a"])[0] == [(0, 3, 1)]
    with pytest.raises(DataError, match=r"0\.csv: there is no column 'bb'(.|\n)*did you mean 'b'"):
        rows_of(source, found, {}, ["bb"])


# --- ways to write CSV


@pytest.mark.parametrize(
    ("data", "config", "wanted"),
    [
        (b"\xef\xbb\xbfa,b\n1,x\n", {}, [(0, 1, b"x")]),
        (b"a;b\n1;x,y\n", {"delimiter": ";"}, [(0, 1, b"x,y")]),
        (b"a\tb\n1\t'x\ty'\n", {"delimiter": "\t", "quote": "'"}, [(0, 1, b"x\ty")]),
        (b"1,x\n2,y\n", {"header": False, "names": ("a", "b")}, [(0, 1, b"x"), (1, 2, b"y")]),
        (b"\xef\xbb\xbf1,x\n", {"header": False, "names": ("a", "b")}, [(0, 1, b"x")]),
        (b"a,b\n1,-\n2,\n", {"null_values": ("-",)}, [(0, 1, None), (1, 2, b"")]),
        (b'a,b\n1,""\n2,\n3,NA\n4,"NA"\n', {}, [(0, 1, b""), (1, 2, None), (2, 3, None), (3, 4, b"NA")]),
        (b"a,b\n1,x", {}, [(0, 1, b"x")]),
        (b"a,b\r\n1,x\r\n", {}, [(0, 1, b"x")]),
        (b"a,b\n", {}, []),
        (b"a,b", {}, []),
        (b"a,b\n\n\n1,x\n\n", {}, [(0, 1, b"x")]),
        (b"a,b\n1,\xe9\n", {}, [(0, 1, b"\xc3\xa9")]),
        (b"a,b\n1,\xe9\n", {"encoding": "cp1251"}, [(0, 1, "й".encode())]),
        (b"a,b\n1,x\x00y\n", {}, [(0, 1, b"x\x00y")]),
        (b'a,b\n1,5" pipe\n2,y\n', {}, [(0, 1, b'5" pipe'), (1, 2, b"y")]),
    ],
)
def test_a_way_to_write_csv(written, data, config, wanted):
    source, found = written(data, **config)
    assert rows_of(source, found, {"a": INT, "b": TEXT}) == (wanted, [])
    assert not found or source.names(found[0]) == ["a", "b"]


def test_a_file_with_quoted_newlines_is_one_range(written):
    data = b"a,b\n" + b'1,"x\ny"\n' * 50
    source, found = written(data, range_size=20)
    assert len(source.ranges(found)) == 1
    assert rows_of(source, found, {"a": INT, "b": TEXT})[0] == [(i, 1, b"x\ny") for i in range(50)]
    plain, cut = written(b"a,b\n" + b'1,"xy"\n' * 50, range_size=20)
    assert len(plain.ranges(cut)) > 10


def test_a_newline_inside_a_quoted_name(written):
    source, found = written(b'"a\nb",c\n1,2\n')
    assert source.names(found[0]) == ["a\nb", "c"]
    assert rows_of(source, found, {"a\nb": INT, "c": INT})[0] == [(0, 1, 2)]


def test_a_line_longer_than_a_block(written):
    for text in (b"x" * (3 << 20), b'"' + b"x\n" * (2 << 20) + b'"'):
        source, found = written(b"a,b\n1," + text + b"\n2,y\n")
        rows, malformed = rows_of(source, found, {"a": INT, "b": TEXT})
        assert [(row[1], len(row[2])) for row in rows] == [(1, len(text.strip(b'"'))), (2, 1)] and not malformed
        assert source.sample(found, 10).table.num_rows == 2


def test_large_ranges_come_in_chunks_that_count_on(written):
    rows = 3 * BATCH_ROWS + 70
    source, found = written(b"a,b\n" + b"".join(b"%d,x\n" % i for i in range(rows)), range_size=1 << 26)
    (piece,) = source.ranges(found)
    chunks = list(source.read(piece, ["a"], {"a": INT}))
    assert [chunk.first_row for chunk in chunks][:2] == [0, chunks[0].batch.num_rows]
    assert len(chunks) == 3 and min(chunk.batch.num_rows for chunk in chunks) > BATCH_ROWS - 70  # none is a small rest
    assert [v for chunk in chunks for v in chunk.batch.column(0).to_pylist()] == list(range(rows))


# --- lines and values that do not fit


@pytest.mark.parametrize("range_size", [1, 8, 30, 1 << 20])
def test_malformed_lines_are_counted_and_numbered(written, range_size):
    lines = ["1,a", "2", "3,c", "4,d,e", '"5"', "6,f"]
    source, found = written("\n".join(["a,b", *lines, ""]).encode(), range_size=range_size)
    rows, malformed = rows_of(source, found, {"a": INT, "b": TEXT})
    assert rows == [(0, 1, b"a"), (2, 3, b"c"), (5, 6, b"f")]
    assert malformed == [
        (1, "2", "1 column instead of 2, at byte 8"),
        (3, "4,d,e", "3 columns instead of 2, at byte 14"),
        (4, '"5"', "1 column instead of 2, at byte 20"),
    ]


def test_malformed_lines_far_into_a_range_are_numbered_too(written):
    n = 200_000
    lines = [b"%d,text" % i for i in range(n)]
    for i in (3, 99_999, n - 1):
        lines[i] = b"%d" % i
    source, found = written(b"a,b\n" + b"\n".join(lines) + b"\n", range_size=16 << 20)
    rows, malformed = rows_of(source, found, {"a": INT, "b": TEXT})
    assert [(at, text) for at, text, _ in malformed] == [(i, str(i)) for i in (3, 99_999, n - 1)]
    assert len(rows) == n - 3 and all(at == value for at, value, _ in rows)


@pytest.mark.parametrize("quoted", [b"y", b'"y\nz"'])
def test_malformed_lines_that_are_no_utf8(written, quoted, capfd):
    kind = pa.dictionary(pa.int32(), pa.binary())
    source, found = written(b"a,b,c\n1,\xe9\xff,caf\xe9\n2\xe9\n3," + quoted + b",\n")
    rows, malformed = rows_of(source, found, {"a": INT, "b": TEXT, "c": kind})
    assert rows == [(0, 1, "éÿ".encode(), "café".encode()), (2, 3, quoted.strip(b'"'), None)]
    where = ", at byte 16" if quoted == b"y" else ""  # lines are not told apart cheaply where they may be quoted
    assert malformed == [(1, "2\\xe9", "1 column instead of 3" + where)]
    assert source.sample(found, 10).table.num_rows == 2
    assert capfd.readouterr().err == ""


def test_a_long_malformed_line_is_cut_in_the_message(written):
    source, found = written(b"a,b\n" + b"x" * 5000 + b"\n")
    assert len(rows_of(source, found)[1][0][1]) == 200


def test_a_value_that_does_not_fit_makes_its_column_text_and_no_other(written):
    data = b"a,b,c\n1,2,x\n1.0,y,007\n"
    source, found = written(data)
    rows, _ = rows_of(source, found, {"a": INT, "b": REAL, "c": TEXT})
    assert rows == [(0, b"1", b"2", b"x"), (1, b"1.0", b"y", b"007")]
    rows, _ = rows_of(source, found, {"a": REAL, "b": REAL, "c": TEXT})
    assert rows == [(0, 1.0, b"2", b"x"), (1, 1.0, b"y", b"007")]
    assert rows_of(source, found, {"c": INT}, ["c"])[0] == [(0, b"x"), (1, b"007")]


def test_many_columns_that_do_not_fit(written):
    names = [f"c{i}" for i in range(20)]
    source, found = written(",".join(names).encode() + b"\n" + b",".join([b"x"] * 20) + b"\n")
    assert rows_of(source, found, dict.fromkeys(names, INT))[0] == [(0, *[b"x"] * 20)]


VALUES = [
    "1", "2.0", "-0", " 7", "+3", "0x1F", "1e3", "1e400", "nan", "NaN(7)", "iNf", "true", "x", '""', "", "NA", "2013-01-01",
]  # fmt: skip


@given(st.lists(st.sampled_from(VALUES), min_size=1, max_size=8))
@pytest.mark.parametrize(("kind", "stored"), [(INT, "int64"), (REAL, "float32")])
def test_a_values_fate_does_not_hang_on_its_neighbours(tmp_path_factory, kind, stored, values):
    path = tmp_path_factory.getbasetemp() / "fate.csv"

    def fate(texts):
        data = "".join(f"{text},\n" for text in texts).encode()
        path.write_bytes(data)
        piece = Range(0, str(path), 0, 0, len(data), {"names": ["a", "b"], "quoted": False})
        (chunk,) = CsvSource(SourceConfig(format="csv", path=str(path))).read(piece, ["a"], {"a": kind})
        done = coerce(chunk.batch, [Column(name="a", type=stored, nullable=True)])
        found = dict(zip(range(len(texts)), done.batch.column(0).to_pylist(), strict=False))
        if done.fitting_rows is not None:
            found = dict(zip(done.fitting_rows.tolist(), done.batch.column(0).to_pylist(), strict=True))
        return [repr(found.get(i, "rejected")) for i in range(len(texts))]

    assert fate(values) == [fate([value])[0] for value in values]


# --- damage


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a\xff,b\n1,2\n", "UTF-8"),
        (b"a,b,a\n1,2,3\n", "two columns 'a'"),
        (b"a,b\r1,2\r3,4\n5,6\n", "carriage return alone"),
        (b"\n\n", "first line is empty"),
        (b'a,"12" pipe"\n1,2\n', "the header cannot be read: text follows a closing quote"),
        (b'a,"b\n1,2\n', "the header cannot be read: a quote opens a value and does not close it"),
    ],
)
def test_a_header_that_cannot_be_used_names_the_file_and_what_to_do(written, data, said):
    source, found = written(data)
    with pytest.raises(DataError) as error:
        source.ranges(found)
    assert said in str(error.value) and error.value.where.removesuffix(":1").endswith("0.csv") and error.value.fix


def test_a_file_that_is_gone_or_was_cut_is_a_data_error_that_names_it(written, tmp_path):
    source, found = written(many(100), range_size=500)
    pieces = source.ranges(found)
    path = tmp_path / "raw" / "0.csv"
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(DataError, match=r"0\.csv: ends at byte 700, not at \d+"):
        list(source.read(pieces[-1], ["id"], {}))
    with pytest.raises(DataError, match=r"0\.csv: ends at byte 700"):
        source.ranges(found)
    path.unlink()
    for read in (
        lambda: list(source.read(pieces[0], ["id"], {})),
        lambda: source.ranges(found),
        lambda: source.names(found[0]),
        lambda: source.sample(found, 10),
    ):
        with pytest.raises(DataError, match=r"0\.csv: there is no such file\n  fix: check the path"):
            read()


# --- the prefix a schema is inferred from


def test_a_prefix_takes_from_the_whole_file(written):
    data = b"part,x\n" + b"".join(b"%d,1\n" % (i // 100_000) for i in range(800_000))
    source, found = written(data)
    prefix = source.sample(found, 1000)
    assert prefix.table.num_rows <= 1000 and len(set(prefix.table["part"].to_pylist())) > 4


@pytest.mark.parametrize(
    ("datas", "types"),
    [
        ([b"a,b\n1,x\n", b"a,b\n1.5,y\n"], ["double", "string"]),
        ([b"a,b\n1,x\n", b"a,b\ny,z\n"], ["binary", "string"]),
        ([b"a,b\n1,x\n", b"a,b\n\xff,z\n"], ["binary", "string"]),
        ([b"a,b\n1,x\n", b"a,b\n,z\n"], ["int64", "string"]),
        ([b"a,b\n1,x\n", b"b,c\nz,1\n"], ["int64", "string", "int64"]),
        ([b"a,b\n2013-01-01,12:30\n"], ["string", "string"]),
        ([b"a,b\n1,2\n" + b"1,2\n" * 400_000 + b"x,y\n"], ["int64", "int64"]),
        ([b"a,b\n" + b"1,2\n" * 700_000 + b"x,y\n" * 700_000], ["binary", "binary"]),
        ([b'a,b\n"1\n2",2\n'], ["string", "int64"]),
        ([b"a,b\n1\n2\n", b"a,b\n1,2\n"], ["int64", "int64"]),
        ([b"a,b\n1,2\n3\xff\n"], ["int64", "int64"]),
    ],
)
def test_a_prefix_finds_types_that_hold_for_every_sample(written, datas, types):
    source, found = written(*datas)
    assert [str(kind) for kind in source.sample(found, 100).table.schema.types] == types


def test_a_large_file_with_quoted_newlines_is_sampled_and_not_read_whole(written):
    source, found = written(b"a,b\n" + b'1,"x\ny"\n' * 400_000)
    prefix = source.sample(found, 10**6)
    assert 0 < prefix.table.num_rows < 300_000 and set(prefix.table["b"].to_pylist()) == {"x\ny"}
    one_value, huge = written(b'a,b\n1,"' + b"x\n" * 1_500_000 + b'"\n')
    assert one_value.sample(huge, 10).table.num_rows == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a,b\n1,2,\n3,4,\n", "none of 2 sampled lines fits the column names: 3 columns instead of 2, first '1,2,'"),
        (b"a,b\n", r"0\.csv: the files hold (column names and )?no rows"),
        (gzip.compress(b""), r"0\.csv: the file is empty"),
    ],
)
def test_files_without_rows_or_whose_lines_do_not_fit_are_refused(written, data, said):
    source, found = written(data)
    with pytest.raises(DataError, match=said):
        source.sample(found, 10)


# --- gzip


@pytest.mark.parametrize("range_size", [16, 100, 1 << 20])
@pytest.mark.parametrize("quoted", [False, True])
def test_a_gzip_file_is_one_range_read_in_blocks(written, range_size, quoted):
    text = '"x\n,y"' if quoted else "xy"
    data = "id,s\n" + "".join(f"{i},{text}\n" if i % 7 else f"{i}\n" for i in range(100))
    source, found = written(gzip.compress(data.encode()), range_size=range_size)
    assert len(source.ranges(found)) == 1 and source.names(found[0]) == ["id", "s"]
    rows, malformed = rows_of(source, found, {"id": INT, "s": TEXT})
    assert rows == [(i, i, text.strip('"').encode()) for i in range(100) if i % 7]
    assert [(at, line) for at, line, _ in malformed] == [(i, str(i)) for i in range(0, 100, 7)]
    assert source.sample(found, 10).table.schema.types == [pa.int64(), pa.string()]


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"PK\x03\x04x", "unzip"), (b"BZh9", "bzip2"), (b"PAR1", "format: parquet"), (b"a,\0\0\0\n", "zero bytes")],
)
def test_a_file_of_another_kind_says_what_it_is(written, data, said):
    source, found = written(data)
    with pytest.raises(DataError, match=said):
        source.ranges(found)


# --- quotes that are never closed


@pytest.mark.parametrize("range_size", [1, 30, 1 << 20])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("latin", [b"", b"\xe9"])
def test_no_row_vanishes_between_stray_quotes(written, range_size, packed, latin):
    lines = [b"%d,song,x" % i for i in range(100)]
    lines[10], lines[40] = b'10,"Heroes,x' + latin, b'40,12" Remix,x'
    lines[60], lines[70], lines[80] = b'60,"12" pipe",x', b'70,"a, b",x', b"80,short"
    data = b"a,b,c\n" + b"\n".join(lines) + b"\n"
    source, found = written(gzip.compress(data) if packed else data, range_size=range_size)
    rows, malformed = rows_of(source, found, {"a": INT, "b": TEXT, "c": TEXT})
    assert [row[0] for row in rows] == [row[1] for row in rows] == [i for i in range(100) if i not in (10, 60, 80)]
    assert {row[1]: row[2] for row in rows}[70] == b"a, b"
    assert [(at, reason.split(" (")[0].split(",")[0]) for at, _, reason in malformed] == [
        (10, "a quote opens a value and does not close it"),
        (60, "text follows a closing quote"),
        (80, "2 columns instead of 3"),
    ]
    assert malformed[1][1] == '60,"12" pipe",x'


@pytest.mark.parametrize(
    ("line", "config", "value"),
    [
        (b'"say \\"hi\\", x"', {"escape": "\\"}, b'say "hi", x'),
        (b"a\\,b", {"escape": "\\"}, b"a,b"),
        (b"a\\\nb", {"escape": "\\"}, b"a\nb"),
        (b'"C:\\dir\\\\"', {"escape": "\\"}, b"C:\\dir\\"),
        (b"\\N", {"escape": "\\", "null_values": ("", "\\N")}, None),
        (b'"Heroes', {"quote": ""}, b'"Heroes'),
        (b'"a"', {"quote": ""}, b'"a"'),
        (b'"a\nb"', {}, b"a\nb"),
    ],
)
@pytest.mark.parametrize("range_size", [1, 1 << 20])
def test_how_quotes_are_written_is_what_the_config_says(written, line, config, value, range_size):
    source, found = written(
        b"a,b\n" + b"".join(b"%d," % i + line + b"\n" for i in range(30)), range_size=range_size, **config
    )
    assert rows_of(source, found, {"a": INT, "b": TEXT}) == ([(i, i, value) for i in range(30)], [])


def test_many_broken_lines_of_long_values_take_no_other_line_with_them(written):
    lines = [b'"x"y' if i % 50 == 0 else b"a value of some length %d" % i for i in range(20_000)]
    source, found = written(b"a\n" + b"\n".join(lines) + b"\n")
    rows, malformed = rows_of(source, found)
    assert [row[1] for row in rows] == [line for line in lines if line[:1] != b'"']
    assert [at for at, *_ in malformed] == list(range(0, 20_000, 50))


def test_a_zero_byte_takes_no_line_with_it(written):
    zeros = [b"\0" * (i % 100 == 0) for i in range(100_000)]
    lines = [b"a value of some length %d,second%s" % (i, zero) for i, zero in enumerate(zeros)]
    source, found = written(b"a,b\n" + b"\n".join(lines) + b"\n\0,x,y\n", range_size=16 << 20)
    rows, malformed = rows_of(source, found, {"b": pa.dictionary(pa.int32(), pa.binary())})
    assert [row[2] for row in rows] == [b"second" + zero for zero in zeros]
    assert [(at, text) for at, text, _ in malformed] == [(100_000, "\0,x,y")]


def test_digits_beyond_a_double_are_no_infinity(written):
    source, found = written(b"a,b\n1,1e400\n2,inf\n3,0.5\n", b"a,b\n1,2\n")
    first, second = (chunk for piece in source.ranges(found) for chunk in source.read(piece, ["b"], {"b": REAL}))
    assert first.batch.column(0).to_pylist() == [b"1e400", b"inf", b"0.5"]
    assert second.batch.column(0).type == REAL
    read = coerce(first.batch, [Column(name="b", type="float32", nullable=True)])
    assert read.batch.column(0).to_pylist() == [float("inf"), 0.5]
    assert read.rejected.column("value").to_pylist() == ["1e400"]


def test_a_quote_in_the_middle_of_a_name_costs_no_row(written):
    for odd in (b"3", b'3" x'):
        source, found = written(b'a,5" pipe\n1,2\n' + odd + b",4\n5,6\n")
        assert rows_of(source, found) == ([(0, b"1", b"2"), (1, odd, b"4"), (2, b"5", b"6")], [])


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (b"b,a,,a\n1,2,3,4\n", "'b' is number 1 here, and number 2 in csv.names"),
        (b"# a,a,b,\n1,2,3,4\n", "'a_2' is number 2 here"),
        (b"a,b,a,\n1,2,3,4\n", None),
        (b"a,renamed,a,\n1,2,3,4\n", None),
        (b"a,b,a\n1,2,3,4\n", None),  # a comma behind each row
        (b"Sales of 2020\n1,2,3,4\n", None),
        (b"b\n1,2,3,4\n", None),  # a title that is called as a column
        (b"b,,,\n1,2,3,4\n", None),
    ],
)
def test_a_later_file_whose_skipped_header_has_another_order_is_refused(opened, second, told):
    csv = {"skip_lines": 1, "header": False, "names": ("a", "b", "a_2", "column_4")}
    source, found = opened("csv", b"a,b,a,\n1,2,3,4\n", second, csv=csv)
    if told is None:
        assert len(source.ranges(found)) == 2
        return
    with pytest.raises(DataError, match="another order") as error:
        source.ranges(found)
    assert told in error.value.problem and error.value.where.endswith("1.csv:1")
