"""The tables on slices, from what evaluation measured."""

from flows.tell.sections.slice_harm import slices
from headway.evaluation.results.measured import Measured


def test_the_worst_slices_of_counts_are_told_by_their_deviance():
    worst = {"slice": "age", "value": "5 = age > 75", "rows": 200, "deviance": 2.5, "deviance_of_others": 1.5}
    found = {"metric": "deviance", "tried": 40, "columns": 3, "significant": 1, "slices": [worst]}
    measured = {"task": "count", "rows": 1000, "metrics": {"deviance": 1.7}, "worst_slices": found}
    (table,) = slices(Measured.model_validate(measured), None)
    assert (table[0]["deviance"], table[0]["deviance of the other rows"]) == (2.5, 1.5)
