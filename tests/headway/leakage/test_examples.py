"""A second look: two keys that share a hash raise nothing, and one key in two places always does."""

import numpy as np

from headway.leakage import examples
from headway.leakage.examples import KeyOccurrence, examine, rows_text
from headway.leakage.hash_sets import SharedHashes


def found(*hashes):
    made = SharedHashes()
    made.add(np.array(hashes, np.uint64))
    return made


def seen(hashed, value, split, row=1, written=None):
    return KeyOccurrence(hashed, (value,), written or f"id {value}", "2013-01", split, "a.csv", row)


def both(rows):
    return {row.split for row in rows} >= {"train", "eval"}


def test_two_keys_that_share_a_hash_are_no_leak():
    rows = [seen(5, "a", "train"), seen(5, "b", "eval")]
    assert examine(found(5), lambda hashes: rows, both) == examples.RealOverlaps(0, [])
    assert examine(found(5), lambda hashes: rows, lambda one: len(one) > 1).count == 0


def test_one_of_two_keys_that_share_a_hash_may_leak_all_the_same():
    rows = [seen(5, "a", "train"), seen(5, "b", "eval"), seen(5, "b", "train")]
    examined = examine(found(5), lambda hashes: rows, both)
    assert examined.count == 1 and examined.examples == [rows[1:]]


def test_one_key_is_what_its_hash_says_even_if_not_all_its_rows_are_found():
    for rows in ([seen(5, "a", "train")], []):
        assert examine(found(5), lambda hashes, rows=rows: rows, both) == examples.RealOverlaps(1, [rows])


def test_it_looks_on_as_long_as_all_is_chance_and_no_longer():
    looked = []

    def look(hashes):
        looked.append(len(hashes))
        return [
            seen(int(one), key, split)
            for one in hashes
            for key, split in ((("a", "train"), ("b", "eval")) if one < 20 else (("a", "train"), ("a", "eval")))
        ]

    examined = examine(found(*range(500)), look, both)
    assert examined.count == 480 and len(examined.examples) == examples.EXAMPLES
    assert looked == [8, 64]


def test_rows_are_shown_with_how_they_are_written():
    rows = [seen(5, "7", "eval", 3), seen(5, "7", "eval", 4), seen(5, "7", "train", 9, "id 7.0")]
    assert rows_text(rows, splits=True) == "id 7 (eval: 2013-01 a.csv row 3; train: 2013-01 a.csv row 9, as id 7.0)"
    assert rows_text(rows, splits=False).startswith("id 7 (2013-01 a.csv row 3; 2013-01 a.csv row 4; ")
