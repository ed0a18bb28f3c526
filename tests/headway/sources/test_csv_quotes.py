"""Newlines inside quotes are found wherever blocks end."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.sources.text_files import Quotes


def found(blocks, quote='"'):
    quotes = Quotes(quote)
    for block in blocks:
        quotes.feed(block)
    return quotes.newline_inside


@given(st.text("a,\"'\n", max_size=300), st.lists(st.integers(0, 300), max_size=4), st.sampled_from("\"'"))
def test_a_newline_is_inside_when_an_odd_number_of_quotes_precede_it(text, cuts, quote):
    data = text.encode()
    at = [0, *sorted(cuts), len(data)]
    blocks = [data[a:b] for a, b in itertools.pairwise(at)]
    wanted = any(c == "\n" and text[:i].count(quote) % 2 for i, c in enumerate(text))
    assert found(blocks, quote) == found([data], quote) == wanted


@pytest.mark.parametrize(
    ("data", "inside"),
    [
        (b'a,"b\nc"\n', True),
        (b'a,"b""\n"\n', True),
        (b'a,"b"\n"c",d\n', False),
        (b'a,"say ""hi"""\nb,c\n', False),
        (b"a,b\nc,d\n", False),
        (b"", False),
        (b'5" pipe\nnext\n', True),  # cannot be told apart, so the file is not cut: safe
    ],
)
def test_examples(data, inside):
    assert found([data]) is inside
