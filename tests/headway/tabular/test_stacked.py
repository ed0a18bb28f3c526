"""Columns as blocks: whatever is done with them is what Arrow does with the batch."""

import numpy as np
import pyarrow as pa
import pytest

from headway.tabular.stacked import Stack, joined

RNG = np.random.default_rng(0)


def batch(rows, words=("a", "b", "c"), nulls=True, null_word=False):
    def some(values, kind):
        return pa.array(values, kind, mask=RNG.random(rows) < 0.3 if nulls else None)

    dictionary = pa.array([*(word.encode() for word in words), *([None] if null_word else [])], pa.binary())
    codes = some(RNG.integers(0, max(len(dictionary), 1), rows), pa.int32()) if words else pa.nulls(rows, pa.int32())
    columns = {
        "i": some(RNG.integers(-(2**60), 2**60, rows), pa.int64()),
        "f": some(RNG.standard_normal(rows), pa.float32()),
        "t": pa.DictionaryArray.from_arrays(codes, dictionary),
        "plain": some([b"x%d" % n for n in range(rows)], pa.binary()),
        "j": pa.array(np.arange(rows)),
        "list": pa.array([[n] * (n % 3) for n in range(rows)], pa.list_(pa.int64())),
        "u": pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([b"one"])),
    }
    return pa.RecordBatch.from_pydict(columns)


def same(found, wanted):
    assert found.schema.names == wanted.schema.names and found.num_rows == wanted.num_rows
    for one, other in zip(found.columns, wanted.columns, strict=True):
        assert one.to_pylist() == other.to_pylist()


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 50])
def test_rows_of_a_stack_are_those_of_the_batch(rows, nulls):
    whole = batch(rows, nulls=nulls)
    even, none = np.arange(0, rows, 2), np.zeros(0, np.int64)
    stacks = Stack.parts(whole.slice(rows // 3), [None, even[even < rows - rows // 3], none])
    part = whole.slice(rows // 3)
    same(stacks[0].batch(), part)
    same(stacks[1].batch(), part.take(pa.array(even[even < part.num_rows])))
    same(stacks[2].batch(), part.slice(0, 0))
    same(stacks[0].slice(1, 5).batch(), part.slice(1, 5))
    backwards = np.arange(part.num_rows)[::-1]
    same(stacks[0].take(backwards).batch(), part.take(pa.array(backwards)))
    for name in part.schema.names:
        assert stacks[0].column(name).to_pylist() == part.column(name).to_pylist()


@pytest.mark.parametrize("words", [("a", "b", "c"), ("c", "d"), ("b", "a", "b"), ()])
@pytest.mark.parametrize("null_word", [False, True])
def test_stacks_of_other_words_are_put_together(words, null_word):
    first, second = batch(20), batch(30, words, null_word=null_word and bool(words))
    wanted = pa.Table.from_batches([first, second]).unify_dictionaries() if not null_word else None
    found = joined([Stack.of(first), Stack.of(second), Stack.of(first)]).batch()
    assert found.to_pylist() == first.to_pylist() + second.to_pylist() + first.to_pylist()
    assert wanted is None or found.slice(0, 50).to_pylist() == wanted.to_pylist()
    # and the other way round: a word that stands twice among the first stack's
    assert joined([Stack.of(second), Stack.of(first)]).batch().to_pylist() == second.to_pylist() + first.to_pylist()


def test_words_that_batches_share_are_held_once():
    first, second = Stack.of(batch(9)), batch(9)
    assert Stack.parts(second, [None], first.words)[0].words is first.words
    other = Stack.parts(batch(9, ("a", "z")), [None], first.words)[0]
    assert other.words is not first.words and first.words.differing(other.words) == [0]
    assert first.words.repeating == frozenset() and Stack.of(batch(5, ("b", "a", "b"))).words.repeating == {0}
