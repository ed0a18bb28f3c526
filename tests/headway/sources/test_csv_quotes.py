"""Newlines inside quotes are found wherever blocks end; a misplaced quote costs its line alone, in every range alike."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.sources.config import CsvConfig
from headway.sources.text_files import QuoteRules, Quotes

LONG = 1 << 20


def found(blocks, **config):
    quotes = Quotes(CsvConfig(**config))
    for block in blocks:
        quotes.feed(block)
    return quotes.newline_inside


@given(st.text("a,\"'\n", max_size=300), st.lists(st.integers(0, 300), max_size=4), st.sampled_from("\"'"))
def test_a_newline_is_inside_when_an_odd_number_of_quotes_precede_it(text, cuts, quote):
    data = text.encode()
    at = [0, *sorted(cuts), len(data)]
    blocks = [data[a:b] for a, b in itertools.pairwise(at)]
    wanted = any(c == "\n" and text[:i].count(quote) % 2 for i, c in enumerate(text))
    assert found(blocks, quote=quote) == found([data], quote=quote) == wanted


@pytest.mark.parametrize(
    ("data", "config", "inside"),
    [
        (b'a,"b\nc"\n', {}, True),
        (b'a,"b""\n"\n', {}, True),
        (b'a,"b"\n"c",d\n', {}, False),
        (b'a,"say ""hi"""\nb,c\n', {}, False),
        (b"a,b\nc,d\n", {}, False),
        (b"", {}, False),
        (b'5" pipe\nnext\n', {}, True),  # cannot be told apart, so the file is not cut: safe
        (b'a,"b\nc"\n', {"quote": ""}, False),
        (b"a,b\nc,d\\\ne\n", {"escape": "\\"}, True),
    ],
)
def test_examples(data, config, inside):
    assert found([data], **config) is inside


@pytest.mark.parametrize(
    ("data", "config", "lines"),
    [
        (b'1,"12" pipe"\n2,x\n', {}, [b'1,"12" pipe"\n']),
        (b'1,"Heroes\n2,x\n3,12" Remix\n4,"y"\n', {}, [b'1,"Heroes\n']),
        (b'1,"Heroes\n' + b"2,x\n" * 18 + b'5,12"\n6,a\n', {}, [b'1,"Heroes\n']),  # rows between two stray quotes
        (b'1,"a\n' + b"2,x\n" * 17 + b'5,b"\n6,a\n', {}, []),
        (b'1,"a\n' + b"x\n" * 40 + b'b"\n2,x\n', {}, []),
        (b'1,"a\nb","c"\n2,"x"y\n', {}, [b'2,"x"y\n']),
        (b'1,"a\nb","c"d\n2,x,y\n', {}, [b'1,"a\nb","c"d\n']),
        (b'1,5" pipe,7"\n2,"x"\r\n3,"y" ,""\n', {}, []),
        (b'"x\ny",5" pipe\n1,2\n', {}, []),
        (b'1,x\n2,"y', {}, [b'2,"y']),
        (b'1,"""a"",""b"""\n2,""a"\n', {}, [b'2,""a"\n']),
        (b'1,"say \\"hi\\", x"\n2,"a\\\\"\n3,a\\,"b\n', {"escape": "\\"}, []),
        (b'1,"say \\"hi\\", x"\n', {}, [b'1,"say \\"hi\\", x"\n']),
        (b'1,"Heroes\n2,12" Remix\n', {"quote": ""}, []),
        (b"1\t'a'b\n2\t\"c\n", {"quote": "'", "delimiter": "\t"}, [b"1\t'a'b\n"]),
    ],
)
def test_a_misplaced_quote_breaks_its_line_alone(data, config, lines):
    rules = QuoteRules(CsvConfig(**config), LONG)
    assert [data[b.start : b.end] for b in rules.broken(data, 2)] == lines


PIECES = st.lists(st.sampled_from([b'"', b",", b"\n", b"a", b'""', b"\\", b"\r\n", b'"b c",', b' " ']), max_size=40)


CONFIGS = st.sampled_from([{}, {"quote": ""}, {"escape": "\\"}, {"quote": "", "escape": "\\"}])


@given(PIECES, st.lists(st.integers(1, 30), max_size=8), CONFIGS)
def test_what_is_broken_is_the_same_whatever_blocks_a_file_is_read_in(pieces, sizes, config):
    data = b"".join(pieces)
    rules = QuoteRules(CsvConfig(**config), LONG)
    at, held, found = 0, b"", []
    for size in [*sizes, len(data)]:
        held += data[at + len(held) : at + len(held) + size]
        end = rules.record_end(held, 2)
        found += [(at + b.start, at + b.end) for b in rules.broken(held[:end], 2)]
        at, held = at + end, held[end:]
    found += [(at + b.start, at + b.end) for b in rules.broken(held, 2)]
    assert found == [(b.start, b.end) for b in rules.broken(data, 2)]


@given(PIECES)
def test_quotes_are_judged_alike_in_each_range(pieces):
    """Of a file that is cut at line ends, as no newline stands inside quotes there."""
    data = b"".join(pieces).rstrip(b"\n") + b"\n"
    rules = QuoteRules(CsvConfig(), LONG)
    alone, at = [], 0
    for line in data.splitlines(keepends=True) if b"\r" not in data.replace(b"\r\n", b"") else []:
        alone += [(at + b.start, at + b.end) for b in rules.broken(line, 2, newlines=False)]
        at += len(line)
    if at:
        assert [(b.start, b.end) for b in rules.broken(data, 2, newlines=False)] == alone


def test_an_escape_before_a_letter_is_a_letter():
    rules = QuoteRules(CsvConfig(escape="\\"), LONG)
    assert rules.escaped(b'C:\\dir,\\N,"a\\"b\\\\","\\\\\\x"\n') == b'C:\\\\dir,\\\\N,"a\\"b\\\\","\\\\\\\\x"\n'
