"""The tables on slices, from what evaluation measured."""

from flows.report.evaluation import slices
from headway.evaluation.measured import Measured
from headway.evaluation.verdict import Check, Verdict


def test_the_worst_slices_of_counts_are_told_by_their_deviance():
    worst = {"slice": "age", "value": "5 = age > 75", "rows": 200, "loss": 2.5, "loss_of_others": 1.5}
    found = {"metric": "deviance", "tried": 40, "columns": 3, "significant": 1, "slices": [worst]}
    measured = {"task": "count", "rows": 1000, "metrics": {"deviance": 1.7}, "worst_slices": found}
    (table,) = slices(Measured.model_validate(measured), None)
    assert (table[0]["deviance"], table[0]["deviance of the other rows"]) == (2.5, 1.5)
    said = "1 of 40 slices of 3 columns has a deviance above that of all other rows beyond chance."
    assert table.note == said, "nothing of predicted and observed means, which it has not"
    known = {"slices": [worst | {"prediction_mean": 1.0, "label_mean": 2.0}]}
    (table,) = slices(Measured.model_validate(measured | {"worst_slices": found | known}), None)
    assert table.note.startswith(f"{said} Where predicted and observed agree, ")


def test_each_slice_has_its_change_from_the_champion():
    by_slice = {"city": {"1": {"rows": 40, "metrics": {"loss": 0.6, "auc": 0.7}}}}
    measured = {"task": "binary", "rows": 100, "metrics": {"loss": 0.5, "auc": 0.8}, "by_slice": by_slice}
    known = {"name": "champion", "metric": "auc", "slice": "city", "slice_value": "1", "against": "version 3"}
    check = Check(**known, change=-0.02, interval=(-0.03, -0.01), better="higher", outcome="cannot tell")
    verdict = Verdict(status="promoted", primary="auc", checks=(check,))
    (table,) = slices(Measured.model_validate(measured), verdict)
    assert table[0]["against version 3"] == "-0.02, worse, perhaps within the limit"


def test_the_worst_slice_by_the_metric_that_decides_comes_first():
    values = {
        value: {"rows": 40, "metrics": {"auc": auc, "loss": auc - 0.5}} for value, auc in (("a", 0.9), ("b", 0.6))
    }
    measured = {"task": "binary", "rows": 100, "metrics": {"loss": 0.5, "auc": 0.8}, "by_slice": {"city": values}}
    verdict = Verdict(status="promoted", primary="auc", better="higher")
    order = {
        metric: [row["slice"] for row in next(slices(Measured.model_validate(measured), of))]
        for metric, of in (("auc", verdict), ("loss", None))
    }
    assert order == {"auc": ["city=b", "city=a"], "loss": ["city=a", "city=b"]}
