"""Counts and figures read as people write them."""

import pytest

from headway.messages import (
    agree,
    counted,
    did_you_mean,
    ends,
    interval_text,
    metric_text,
    number,
    p_text,
    percent,
    signed,
    some,
)


@pytest.mark.parametrize(("count", "said"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (12345, "12,345 rows")])
def test_one_of_a_thing_is_not_called_several(count, said):
    assert counted(count, "row") == said


def test_words_that_take_no_s_and_verbs():
    assert (counted(1, "row has", "rows have"), counted(2, "row has", "rows have")) == ("1 row has", "2 rows have")
    assert (agree(1, "is", "are"), agree(0, "is", "are")) == ("is", "are")


def test_the_first_few_of_many_are_named():
    assert some(["a", "b"], 2) == "a, b"
    assert some(["a", "b", "c"], 2, repr) == "'a', 'b' and 1 more"
    assert some(range(2000), 1) == "0 and 1,999 more"


def test_the_nearest_known_name_is_suggested_and_else_what_the_caller_says():
    assert did_you_mean("trian", ["eval", "train"], "nothing near") == "did you mean 'train'?"
    assert did_you_mean("xyz", ["eval", "train"], "nothing near") == "nothing near"
    assert did_you_mean(7, [], cutoff=0.5) == ""


def test_a_share_is_not_rounded_to_nothing_or_to_all():
    shares = [0, 0.0004, 0.002, 0.5, 0.996, 1]
    assert [percent(part) for part in shares] == ["0%", "0.04%", "0.2%", "50%", "99.6%", "100%"]


def test_an_interval_says_its_confidence_and_nothing_of_its_numbers_is_taken_for_it():
    assert interval_text((-10.95, 0.2), 0.95) == "95% interval -10.95 to +0.2"
    assert interval_text((0.95, 2.0), 0.975) == "97.5% interval +0.95 to +2"
    assert interval_text((-0.003, 0.001)) == "interval -0.003 to +0.001" and interval_text(None, 0.9) == "no interval"


def test_a_p_value_and_what_is_as_good_as_nothing():
    assert [p_text(p) for p in (1e-9, 0.0009, 0.0123, None)] == ["p < 0.001", "p < 0.001", "p 0.012", "p undefined"]
    wanted = ["0"] * 3 + ["+0.0000", "-0.0000"]
    assert [number(1e-12), signed(-1e-12), signed(1e-12), signed(2e-5), signed(-2e-5)] == wanted
    told = ["<0.0001", "-0.0000", "0", "0.25", "undefined"]
    assert [metric_text(value) for value in (0.00002, -0.00002, 0.0, 0.25, None)] == told
    assert ends((5.84e-05, 0.25)) == "<0.0001 to 0.25"
