"""The tables of an evaluation: confusion, slices, the worst rows; of the rows that were measured."""

import base64
import io
import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from markupsafe import Markup
from PIL import Image

from flows.report.charts import tables_of
from flows.report.evaluation import _image, _image_files, confusion_table, evaluation, slices, worst_rows
from flows.report.plot import distinct_labels
from flows.report.results import RunResults
from headway.evaluation import predictions
from headway.evaluation.measured import Measured
from headway.evaluation.predictions import read_predictions
from headway.evaluation.verdict import Check, Verdict
from headway.registry.registry import Registry
from headway.storage.manifest import checksum
from headway.storage.store import Store
from tests.flows.report.recorded import recorded


def pairs(counts):
    """Rows of each (label, predicted)."""
    (labels, predicted), rows = zip(*counts, strict=True), list(counts.values())
    return {"label": list(labels), "predicted": list(predicted), "rows": rows, "weight": rows}


def confusion(task, ours, threshold=None):
    facts = {"rule": "the largest F1", "value": threshold} if threshold else None
    measured = {"task": task, "rows": 9, "tables": {"confusion": pairs(ours)}, "threshold": facts}
    return confusion_table(Measured.model_validate(measured))


def test_of_two_classes_the_table_says_its_threshold():
    ours = {(0, 0): 5, (0, 1): 1, (1, 0): 2, (1, 1): 1}
    table = confusion("binary", ours, 0.31)
    assert table[0] == {"label": "0", "predicted 0": 5, "predicted 1": 1}
    assert "the threshold 0.31;" in table.note and table.shades[1]["predicted 0"] == pytest.approx(2 / 3)
    assert "the threshold 0.5 " in confusion("binary", ours).note


@pytest.mark.parametrize(("classes", "title"), [(5, "Confusion matrix"), (14, "The classes that are confused most")])
def test_of_many_classes_the_pairs_that_are_confused_are_listed(classes, title):
    names = [f"c{i:02}" for i in range(classes)]
    table = confusion("multiclass", {(a, a): 3 for a in names} | {("c00", "c01"): 2})
    assert table.title == title and "the most likely class" in table.note
    if classes == 14:
        assert list(table) == [{"label": "c00", "predicted": "c01", "rows": 2}]


@pytest.mark.parametrize("classes", [3, 14])
def test_classes_whose_names_begin_alike_are_told_apart(classes):
    names = [f"a long name that begins as all the others do, {i:02}" for i in range(classes)]
    ours = {(a, a): 5 for a in names} | {(names[0], names[1]): 3, (names[1], names[2]): 2}
    table = confusion("multiclass", ours)
    if classes == 3:
        assert [sum(n for n in row.values() if isinstance(n, int)) for row in table] == [8, 7, 5]
        assert len({row["label"] for row in table}) == 3
        assert all(row["label"].endswith(f"0{i}") for i, row in enumerate(table))
    else:
        assert [(row["label"][-2:], row["predicted"][-2:]) for row in table] == [("00", "01"), ("01", "02")]


def test_labels_are_short_and_each_its_own():
    alike = ["x" * 20 + middle + "y" * 20 for middle in ("1", "2")]
    assert len(set(distinct_labels(alike, 10).values())) == 2
    assert distinct_labels(["a", "b", "a"]) == {"a": "a", "b": "b"} and distinct_labels([0, 1]) == {0: "0", 1: "1"}
    assert distinct_labels(["a\n", "a\t"]) == {"a\n": "a\ufffd", "a\t": "a\ufffd (2)"}


def test_rows_with_weights_are_counted_by_them():
    weighed = pairs({(0, 0): 5, (0, 1): 1, (1, 1): 1}) | {"weight": [2.5, 0.25, 0.5]}
    measured = Measured.model_validate({"task": "binary", "rows": 7, "tables": {"confusion": weighed}})
    table = confusion_table(measured)
    assert (table[0]["predicted 1"], table[1]["predicted 1"]) == (0.25, 0.5) and "Weights of rows by" in table.note
    assert table.shades[1]["predicted 1"] == 1.0


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


def row_of(task, **row):
    facts = {"row": 7, "loss": 1.5, "label": 1.0, "prediction": 0.25, "values": {}}
    (table,) = worst_rows(Measured.model_validate({"task": task, "rows": 9, "worst_rows": [facts | row]}), "eval")
    return table[0]


def test_a_column_that_is_called_as_the_tables_own_stands_beside_it():
    values = {"row": "R1", "predicted": "p", "loss": 0.3, "label": "m", "city": "Oslo"}
    row = row_of("binary", values=values)
    assert (row["row"], row["predicted"], row["loss"], row["label"]) == ("7", "0.25", "1.5", "1")
    own = {name.removeprefix("column "): value for name, value in row.items() if name.startswith("column ")}
    assert own == {"row": "R1", "predicted": "p", "loss": "0.3", "label": "m"} and row["city"] == "Oslo"


def test_a_label_and_a_prediction_that_begin_alike_differ():
    row = row_of("multiclass", label="x" * 80 + "one", prediction="x" * 80 + "two", of_label=0.1)
    assert row["label"].endswith("one") and row["predicted"].endswith("two")


def test_of_many_rows_of_a_ranking_figures_are_of_the_sample_that_was_measured(tmp_path, monkeypatch):
    results = RunResults(*recorded(tmp_path, ranked=True))
    monkeypatch.setattr(predictions, "MOST_ROWS", 400)  # of 700, in five groups
    monkeypatch.setattr(predictions, "_GROUP_SHARE", 1)
    drawn = []
    monkeypatch.setattr(
        "flows.report.evaluation.tables_of", lambda task, rows: drawn.append(rows.prediction) or tables_of(task, rows)
    )
    evaluation(results)
    file = results.file("evaluate champion 3", "p.parquet")
    measured, otherwise = (
        read_predictions(file, ("city",), group=group).column("prediction").to_numpy() for group in ("city", None)
    )
    assert np.array_equal(drawn[0], measured) and not np.array_equal(measured, otherwise)


def test_an_image_that_a_worst_row_names_is_shown_by_a_small_copy_and_else_by_its_name(tmp_path):
    (tmp_path / "cat").mkdir()
    for name, mode in (("1.png", "RGB"), ("5.png", "I;16")):
        Image.new(mode, (300, 100)).save(tmp_path / "cat" / name)
    whole = (tmp_path / "cat" / "1.png").read_bytes()
    (tmp_path / "cat" / "2.png").write_bytes(whole[:60])
    (tmp_path / "cat" / "3.png").write_bytes(whole.replace(b"IDAT", b"ID\xc3T"))
    names = ["1.png", "2.png", "3.png", "5.png"]
    paths = [tmp_path / "cat" / name for name in names]
    files = {"all": [{"path": str(path), "crc32c": checksum(path)[1]} for path in paths]}
    rows = [
        {"row": 3, "loss": 2.0, "label": "cat", "prediction": "dog", "values": {"path": f"cat/{n}.png"}}
        for n in (1, 2, 3, 4, 5)
    ]
    measured = Measured.model_validate({"task": "multiclass", "rows": 9, "worst_rows": rows})
    for format, shown in (("csv", False), ("images", True)):
        results = SimpleNamespace(record=SimpleNamespace(config={"source": {"format": format}}), raw_files=files)
        (table,) = worst_rows(measured, "eval", partial(_image, _image_files(results)))
        first, *others = (row["path"] for row in table.rows)
        assert isinstance(first, Markup) is shown and others == [f"cat/{n}.png" for n in (2, 3, 4, 5)]
    (data,) = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', first)
    assert Image.open(io.BytesIO(base64.b64decode(data))).size == (64, 21)
    files["all"][0] |= {"crc32c": "00000000"}
    (table,) = worst_rows(measured, "eval", partial(_image, _image_files(results)))
    assert table.rows[0]["path"] == "cat/1.png", "the file has changed since it was ingested"
    files["all"][0] |= {"crc32c": checksum(paths[0])[1]}
    files["later"] = [{"path": str(tmp_path / "later" / "cat" / "1.png")}]
    (table,) = worst_rows(measured, "eval", partial(_image, _image_files(results)))
    assert table.rows[0]["path"] == "cat/1.png", "which of two spans it is of is not known"


def test_a_report_that_is_drawn_again_knows_the_raw_files_by_the_version_of_its_run(tmp_path):
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "saved_model.pb").write_bytes(b"graph")
    store = Store(tmp_path / "store")
    store.create()
    spans = [{"span": span, "files": [{"path": f"{span}/1.png"}]} for span in ("a", "b")]
    Registry(store, "pets").publish(tmp_path / "exported", {}, {"spans": spans})
    record = SimpleNamespace(version=1, pipeline="pets")
    assert RunResults(store, record).raw_files == {span["span"]: span["files"] for span in spans}
    assert RunResults(store, record, {"a": []}).raw_files == {"a": [], "b": spans[1]["files"]}
    assert RunResults(store, SimpleNamespace(version=None, pipeline="pets")).raw_files == {}
