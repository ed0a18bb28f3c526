"""The confusion matrix: by which threshold, and its pairs where there are many classes."""

import pytest

from flows.report.evaluation import confusion_table
from flows.report.plot import apart
from headway.evaluation.measured import Measured


def pairs(counts):
    """Rows of each (label, predicted)."""
    (labels, predicted), rows = zip(*counts, strict=True), list(counts.values())
    return {"label": list(labels), "predicted": list(predicted), "rows": rows, "weight": rows}


def told(task, ours, threshold=None):
    facts = {"rule": "the largest F1", "value": threshold} if threshold else None
    measured = {"task": task, "rows": 9, "tables": {"confusion": pairs(ours)}, "threshold": facts}
    return confusion_table(Measured.model_validate(measured))


def test_of_two_classes_the_table_says_its_threshold():
    ours = {(0, 0): 5, (0, 1): 1, (1, 0): 2, (1, 1): 1}
    table = told("binary", ours, 0.31)
    assert table[0] == {"label": "0", "predicted 0": 5, "predicted 1": 1}
    assert "the threshold 0.31;" in table.note and table.shades[1]["predicted 0"] == pytest.approx(2 / 3)
    assert "the threshold 0.5 " in told("binary", ours).note


@pytest.mark.parametrize(("classes", "title"), [(5, "Confusion matrix"), (14, "The classes that are confused most")])
def test_of_many_classes_the_pairs_that_are_confused_are_listed(classes, title):
    names = [f"c{i:02}" for i in range(classes)]
    table = told("multiclass", {(a, a): 3 for a in names} | {("c00", "c01"): 2})
    assert table.title == title and "the most likely class" in table.note
    if classes == 14:
        assert list(table) == [{"label": "c00", "predicted": "c01", "rows": 2}]


@pytest.mark.parametrize("classes", [3, 14])
def test_classes_whose_names_begin_alike_are_told_apart(classes):
    names = [f"a long name that begins as all the others do, {i:02}" for i in range(classes)]
    ours = {(a, a): 5 for a in names} | {(names[0], names[1]): 3, (names[1], names[2]): 2}
    table = told("multiclass", ours)
    if classes == 3:
        assert [sum(n for n in row.values() if isinstance(n, int)) for row in table] == [8, 7, 5]
        assert len({row["label"] for row in table}) == 3 and all(
            row["label"].endswith(f"0{i}") for i, row in enumerate(table)
        )
    else:
        assert [(row["label"][-2:], row["predicted"][-2:]) for row in table] == [("00", "01"), ("01", "02")]


def test_labels_are_short_and_each_its_own():
    alike = ["x" * 20 + middle + "y" * 20 for middle in ("1", "2")]
    assert len(set(apart(alike, 10).values())) == 2
    assert apart(["a", "b", "a"]) == {"a": "a", "b": "b"} and apart([0, 1]) == {0: "0", 1: "1"}
    assert apart(["a\n", "a\t"]) == {"a\n": "a\ufffd", "a\t": "a\ufffd (2)"}


def test_rows_with_weights_are_counted_by_them():
    weighed = pairs({(0, 0): 5, (0, 1): 1, (1, 1): 1}) | {"weight": [2.5, 0.25, 0.5]}
    measured = Measured.model_validate({"task": "binary", "rows": 7, "tables": {"confusion": weighed}})
    table = confusion_table(measured)
    assert (table[0]["predicted 1"], table[1]["predicted 1"]) == (0.25, 0.5) and "Weights of rows by" in table.note
    assert table.shades[1]["predicted 1"] == 1.0
