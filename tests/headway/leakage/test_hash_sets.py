"""Sets of hashes answer as sets do, in whatever order and slices they come."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import DataError
from headway.leakage import hash_sets

VALUES = st.integers(0, 2**64 - 1) | st.integers(0, 20) | st.integers(2**64 - 5, 2**64 - 1)
LISTS = st.lists(st.lists(VALUES, max_size=12), max_size=5)
MOST = st.integers(1, 8)


def made(lists):
    return [hash_sets.distinct(np.array(one, np.uint64)) for one in lists]


@given(st.lists(VALUES, max_size=40))
def test_distinct_gives_each_hash_once_rising(values):
    assert hash_sets.distinct(np.array(values, np.uint64)).tolist() == sorted(set(values))


@given(LISTS, MOST)
def test_slices_cut_every_set_at_the_same_values(lists, most):
    sets = made(lists)
    pieces = list(hash_sets.slices(sets, most))
    for i, one in enumerate(sets):
        assert [value for piece in pieces for value in piece[i].tolist()] == one.tolist()
    ends = [[value for one in piece for value in one.tolist()] for piece in pieces]
    ends = [piece for piece in ends if piece]
    assert all(max(a) < min(b) for a, b in itertools.pairwise(ends))


@given(LISTS, LISTS, LISTS, MOST, st.randoms())
def test_groups_overlap_exactly_when_their_sets_intersect(train, eval_, test, most, random):
    groups = {"train": made(train), "eval": made(eval_), "test": made(test)}
    flat = {name: {v for one in sets for v in one.tolist()} for name, sets in groups.items()}
    found = hash_sets.compare(groups, most)
    assert found.values == {name: len(values) for name, values in flat.items()}
    for a, b in (("train", "eval"), ("train", "test"), ("eval", "test")):
        shared = sorted(flat[a] & flat[b])
        assert ((a, b) in found.shared) == bool(shared)
        if shared:
            wanted = (len(shared), shared[: hash_sets.MOST_SHARED])
            assert (found.shared[a, b].count, found.shared[a, b].least.tolist()) == wanted
    for sets in groups.values():
        random.shuffle(sets)
    again = hash_sets.compare(groups, most)
    assert again.values == found.values and again.shared.keys() == found.shared.keys()


def test_files_hold_what_was_written_and_damage_is_reported(tmp_path):
    for values in ([], [1, 2**64 - 1]):
        hash_sets.write(tmp_path / "a.u64", np.array(values, np.uint64))
        assert hash_sets.read(tmp_path / "a.u64").tolist() == values
    (tmp_path / "a.u64").write_bytes(b"123")
    with pytest.raises(DataError, match="3 bytes"):
        hash_sets.read(tmp_path / "a.u64")
    with pytest.raises(DataError, match="none"):
        hash_sets.read(tmp_path / "none.u64")
