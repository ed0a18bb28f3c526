"""A text is the same text however it is compressed, encoded or ended, in pieces of any size; blocks are whole lines."""

import bz2
import gzip
import io
import zipfile
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import DataError
from headway.sources import text_files
from headway.sources.config import CsvConfig
from headway.sources.text_files import QuoteRules, TextFile, last_line_end

LINES = "".join(f'{i},Köln,"a ""b""\n{i % 7}"\n' for i in range(2000))


def zipped(**files):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name.replace("-", "/"), data)
    return sink.getvalue()


WAYS = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "zstd": lambda data: pa.compress(data, "zstd", asbytes=True),
    "zip": lambda data: zipped(data=data, **{"__MACOSX-x": b"y", "a-.DS_Store": b"z"}),
    "utf-16": lambda data: data.decode().encode("utf-16"),
    "utf-16-be": lambda data: data.decode().encode("utf-16-be"),
    "gzip of utf-16": lambda data: gzip.compress(data.decode().encode("utf-16")),
    r"\r": lambda data: data.replace(b"\n", b"\r"),
    r"\r\r\n": lambda data: data.replace(b"\n", b"\r\r\n"),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_same_lines_are_read_whatever_stands_around_them(tmp_path, way):
    (tmp_path / "a").write_bytes(WAYS[way](LINES.encode()))
    text = TextFile(str(tmp_path / "a"))
    assert text.streamed
    for start, size in ((0, 100), (0, 1 << 20), (7777, 4096)):
        found = list(text.blocks(start, None, size, last_line_end))
        assert b"".join(data for _, data in found) == LINES.encode()[start:]
        assert [at for at, _ in found] == [start + sum(len(data) for _, data in found[:i]) for i in range(len(found))]
    assert text.line(2) == (LINES.encode().index(b"1,K"), '1,Köln,"a ""b""\n'.encode())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (zipped(a=b"x", b=b"y"), "a zip archive that holds 2 files: a, b"),
        (bz2.compress(LINES.encode())[:-20], "not a whole bzip2 file"),
        (b"\xfd7zXZ\0", "compressed with xz, not text\n  fix: unpack it: xz -d FILE"),
        (zipped(a=gzip.compress(LINES.encode())), "a gzip file, compressed with zip again"),
        ("a,b\n".encode("utf-16") + b"x", "not whole utf-16"),
        (zipped(**{"[Content_Types].xml": "<x/>", "xl-workbook.xml": "<x/>"}), "an Excel workbook"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, data, said):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(DataError, match=said):
        list(TextFile(str(tmp_path / "a")).blocks(0, None, 1 << 20, len))


def test_plain_text_is_no_stream_and_zero_bytes_make_no_utf16_of_it(tmp_path):
    for plain in (LINES.encode().replace(b"\n", b"\r\n"), b"a,b\n1,\0\n2,3\n" * 9, b"ab,\0\n" * 9):
        (tmp_path / "a").write_bytes(plain)
        assert not TextFile(str(tmp_path / "a")).streamed


@pytest.mark.parametrize("way", ["plain", *WAYS])
def test_a_line_that_does_not_end_is_refused_with_its_number_before_it_is_held_whole(tmp_path, monkeypatch, way):
    monkeypatch.setattr(text_files, "LONGEST_LINE", 1 << 20)
    lines = b"a,b\n1,2\n" + b"x" * (4 << 20) + b"\n3,4\n"
    (tmp_path / "a").write_bytes(WAYS.get(way, bytes)(lines))
    text = TextFile(str(tmp_path / "a"))
    size = None if text.streamed else len(lines)
    with pytest.raises(DataError, match=r"a: line 3 has more than 1 MiB\n"):
        for _, data in text.blocks(0, size, 1 << 16, last_line_end):
            assert len(data) <= 1 << 20


def test_a_line_as_long_as_may_be_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "LONGEST_LINE", 1 << 20)
    lines = b"a,b\n" + b"x" * (1 << 20) + b"\n3,4\n"
    for way in ("plain", "gzip", r"\r"):
        (tmp_path / "a").write_bytes(WAYS.get(way, bytes)(lines))
        text = TextFile(str(tmp_path / "a"))
        blocks = text.blocks(0, None if text.streamed else len(lines), 1 << 16, last_line_end)
        assert b"".join(data for _, data in blocks) == lines


def test_a_quote_that_is_never_closed_holds_no_more_than_a_value_may_have(tmp_path):
    text = b'a,b\n1,2\n"x,' + b"1,2\n" * (1 << 20)
    (tmp_path / "a").write_bytes(gzip.compress(text))
    rules = QuoteRules(CsvConfig(), 1 << 20)
    blocks = TextFile(str(tmp_path / "a")).blocks(0, None, 1 << 16, partial(rules.record_end, columns=2))
    sizes = [len(data) for _, data in blocks]
    assert sum(sizes) == len(text) and max(sizes) < 3 << 20


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    return tmp_path_factory.mktemp("lines") / "a.csv"


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 300), st.booleans())
def test_blocks_are_the_text_cut_at_line_ends(lines, lengths, size, ended):
    text = b"\n".join(b"x" * n for n in lengths) + b"\n" * ended
    lines.write_bytes(b"head\n" + text)
    found = list(TextFile(str(lines)).blocks(5, 5 + len(text), size, last_line_end))
    assert b"".join(data for _, data in found) == text
    at = 5
    for place, data in found:
        assert place == at and data
        at += len(data)
    assert all(data.endswith(b"\n") for _, data in found[:-1])


def test_no_block_is_a_small_rest(lines):
    lines.write_bytes(b"0123456789\n" * 1000)
    sizes = [len(data) for _, data in TextFile(str(lines)).blocks(0, 11_000, 5000, last_line_end)]
    assert len(sizes) == 3 and min(sizes) > 3600 and max(sizes) < 3700
