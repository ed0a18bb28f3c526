"""The rows where a model is most wrong, as a table."""

from flows.report.evaluation import worst_rows
from headway.evaluation.measured import Measured


def told(task, **row):
    facts = {"row": 7, "loss": 1.5, "label": 1.0, "prediction": 0.25, "values": {}}
    (table,) = worst_rows(Measured.model_validate({"task": task, "rows": 9, "worst_rows": [facts | row]}), "eval")
    return table[0]


def test_a_column_that_is_called_as_the_tables_own_stands_beside_it():
    values = {"row": "R1", "predicted": "p", "loss": 0.3, "label": "m", "city": "Oslo"}
    row = told("binary", values=values)
    assert (row["row"], row["predicted"], row["loss"], row["label"]) == ("7", "0.25", "1.5", "1")
    own = {name.removeprefix("column "): value for name, value in row.items() if name.startswith("column ")}
    assert own == {"row": "R1", "predicted": "p", "loss": "0.3", "label": "m"} and row["city"] == "Oslo"


def test_a_label_and_a_prediction_that_begin_alike_differ():
    row = told("multiclass", label="x" * 80 + "one", prediction="x" * 80 + "two", of_label=0.1)
    assert row["label"].endswith("one") and row["predicted"].endswith("two")
