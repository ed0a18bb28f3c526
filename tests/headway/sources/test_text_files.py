"""Text is read in blocks of whole lines, of about one size."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.sources.text_files import TextFile, last_line_end


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("lines") / "a.csv"


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 300), st.booleans())
def test_blocks_are_the_text_cut_at_line_ends(path, lengths, size, ended):
    text = b"\n".join(b"x" * n for n in lengths) + b"\n" * ended
    path.write_bytes(b"head\n" + text)
    found = list(TextFile(str(path)).blocks(5, 5 + len(text), size, last_line_end))
    assert b"".join(data for _, data in found) == text
    at = 5
    for place, data in found:
        assert place == at and data
        at += len(data)
    assert all(data.endswith(b"\n") for _, data in found[:-1])


def test_no_block_is_a_small_rest(path):
    path.write_bytes(b"0123456789\n" * 1000)
    sizes = [len(data) for _, data in TextFile(str(path)).blocks(0, 11_000, 5000, last_line_end)]
    assert len(sizes) == 3 and min(sizes) > 3600 and max(sizes) < 3700
