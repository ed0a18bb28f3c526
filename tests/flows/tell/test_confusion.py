"""Confusion matrices: by which threshold, and the champion's beside."""

import pytest

from flows.tell.sections.confusion import confusion_tables
from headway.evaluation.results.measured import Measured


def pairs(counts):
    """Rows of each (label, predicted)."""
    (labels, predicted), rows = zip(*counts, strict=True), list(counts.values())
    return {"label": list(labels), "predicted": list(predicted), "rows": rows, "weight": rows}


def told(task, ours, theirs=None, threshold=None):
    champion = None if theirs is None else {"confusion": pairs(theirs)}
    facts = {"rule": "the largest F1", "value": threshold} if threshold else None
    measured = {"task": task, "rows": 9, "tables": {"confusion": pairs(ours)}, "champion": champion, "threshold": facts}
    return list(confusion_tables(Measured.model_validate(measured), "version 3"))


def test_of_two_classes_both_models_are_in_one_table_that_says_its_threshold():
    ours, theirs = {(0, 0): 5, (0, 1): 1, (1, 0): 2, (1, 1): 1}, {(0, 0): 6, (1, 1): 3}
    (table,) = told("binary", ours, theirs, 0.31)
    assert table[0] == {
        "label": "0",
        "predicted 0": 5,
        "predicted 1": 1,
        "version 3: predicted 0": 6,
        "version 3: predicted 1": 0,
    }
    assert "the threshold 0.31;" in table.note and table.shades[1]["version 3: predicted 1"] == 1.0
    (table,) = told("binary", ours)
    assert list(table[0]) == ["label", "predicted 0", "predicted 1"] and "the threshold 0.5 " in table.note


@pytest.mark.parametrize(
    ("classes", "titles"),
    [(5, ["Confusion matrix", "Confusion matrix of version 3"]), (14, ["The classes that are confused most"])],
)
def test_of_more_classes_the_champion_has_a_table_or_a_column_of_its_own(classes, titles):
    names = [f"c{i:02}" for i in range(classes)]
    ours = {(a, a): 3 for a in names} | {("c00", "c01"): 2}
    tables = told("multiclass", ours, ours | {("c00", "c01"): 7})
    assert [table.title for table in tables] == titles and "the most likely class" in tables[0].note
    if classes == 14:
        assert list(tables[0]) == [{"label": "c00", "predicted": "c01", "rows": 2, "version 3": 7}]
