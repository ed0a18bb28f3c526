"""The measuring stage: everything that is said of kept predictions, as JSON, from the columns that are asked for."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.errors import DataError
from headway.evaluation.measure import METRICS, measure
from headway.evaluation.measured import Measured
from headway.evaluation.requests import MeasureRequest
from headway.metrics.regression import MAE
from headway.monitor import Monitor
from headway.tasks.base import LabelFacts
from headway.tasks.builtin import Binary

ROWS = 3000


def table(seed=0, noise=0.5):
    r = np.random.default_rng(0)
    logit, user = r.normal(size=ROWS), r.integers(0, 150, ROWS)
    truth = logit * np.where(user < 30, -2, 2)
    label = (r.random(ROWS) < 1 / (1 + np.exp(-truth))).astype(int)
    shown = logit + noise * np.random.default_rng(seed).normal(size=ROWS)
    return pa.table(
        {
            "row": np.arange(ROWS),
            "label": label,
            "weight": r.uniform(0.5, 2, ROWS),
            "prediction": 1 / (1 + np.exp(-shown)),
            "carrier": pa.array(np.array(["AA", "BB", "CC"])[r.integers(0, 3, ROWS)]),
            "distance": r.integers(0, 1000, ROWS).astype(np.float32),
            "user": user,
        }
    )


@pytest.fixture
def measured(tmp_path):
    """measured(**request) -> the stage's result."""
    pq.write_table(table(), tmp_path / "predictions.parquet")
    pq.write_table(table(1, 2.0), tmp_path / "linear.parquet")

    def run(**changes):
        given = {"task": "binary", "predictions": tmp_path / "predictions.parquet", "classes": ("no", "yes")}
        return measure(MeasureRequest.model_validate(given | changes), tmp_path, Monitor())

    run.folder = tmp_path
    return run


def test_the_result_is_json_and_has_every_part(measured):
    result = measured(
        slices=("carrier", "distance: 3"),
        searched=("carrier", "distance: 5"),
        threshold={"recall": 0.8},
        label=LabelFacts(counts=(500, 500)),
        baselines={"linear": measured.folder / "linear.parquet"},
    )
    written = json.loads((measured.folder / METRICS).read_text())
    assert written == json.loads(json.dumps(result, allow_nan=False))
    assert set(result["metrics"]) == set(result["intervals"]) == set(result["baselines"]["linear"])
    assert (
        result["baselines"]["constant"]["auc"] == 0.5 < result["baselines"]["linear"]["auc"] < result["metrics"]["auc"]
    )
    assert set(result["by_slice"]["carrier"]["AA"]["intervals"]) == set(result["metrics"])
    assert len(result["by_slice"]["distance: 3"]) == 3 and result["worst_slices"]["tried"] > 8
    assert result["tables"]["confusion"]["label"] == ["no", "no", "yes", "yes"]
    at = result["threshold"]
    assert 0 < at["value"] < 1 and at["intervals"]["recall"][0] < 0.8 < at["intervals"]["recall"][1]
    read = Measured.model_validate(result)
    assert read.of("auc").value == result["metrics"]["auc"] and read.of("auc").interval == result["intervals"]["auc"]
    slice_, told = read.by_slice["carrier"]["AA"], result["by_slice"]["carrier"]["AA"]
    assert (slice_.rows, slice_.of("loss").value) == (told["rows"], told["metrics"]["loss"])
    assert read.worst_slices.tried == result["worst_slices"]["tried"]
    recall = result["tables"]["per_class"]["recall"][1]
    assert recall == pytest.approx(at["metrics"]["recall"]), "the tables are at the threshold"


def test_the_champions_metrics_stand_among_the_baselines(measured):
    path = measured.folder / "linear.parquet"
    found, alone = measured(beside={"champion": path}), measured(predictions=path)
    assert found["baselines"] == {"champion": alone["metrics"]}


def test_the_confusion_matrix_is_decided_by_the_threshold_that_the_result_names(measured):
    """Not by those of five folds, which the result does not name."""
    found = Measured.model_validate(measured(threshold={"recall": 0.9}))
    rows = pq.read_table(measured.folder / "predictions.parquet")
    flagged, label = rows["prediction"].to_numpy() >= found.threshold.value, rows["label"].to_numpy() == 1
    pairs = [(label == positive) & (flagged == decided) for positive in (False, True) for decided in (False, True)]
    assert found.tables["confusion"]["rows"] == [int(each.sum()) for each in pairs]


def test_a_threshold_of_other_rows_is_taken_and_one_that_nothing_reaches_is_said(measured):
    tested = measured(threshold={"recall": 0.8}, given_threshold=0.42)["threshold"]
    assert (tested["value"], tested["chosen_on"]) == (0.42, "the eval rows")
    fixed = measured(threshold=0.3, given_threshold=0.3)["threshold"]
    assert (fixed["value"], fixed["chosen_on"]) == (0.3, "no rows: the config names it")
    one = table().set_column(1, "label", pa.array(np.zeros(ROWS, int)))
    pq.write_table(one, measured.folder / "one.parquet")
    none = measured(threshold="f1", predictions=measured.folder / "one.parquet")["threshold"]
    assert none["value"] is None and none["chosen_on"] == "no threshold follows this rule on the eval rows"
    assert measured()["threshold"] is None


def test_rows_are_drawn_by_their_group_and_the_result_says_so(measured):
    plain, named = measured(), measured(group="user")
    assert plain["drawn_by"] is None
    assert named["drawn_by"] == "rows of one user are drawn together (150 of them)"

    def width(result):
        low, high = result["intervals"]["loss"]
        return high - low

    assert width(named) > 1.2 * width(plain)


def test_baselines_of_other_rows_are_refused(measured):
    pq.write_table(table().slice(1), measured.folder / "other.parquet")
    with pytest.raises(DataError, match="the baseline champion's"):
        measured(baselines={"champion": measured.folder / "other.parquet"})
    with pytest.raises(DataError, match="no column 'carier' to slice by"):
        measured(slices=("carier",))


@pytest.mark.parametrize("threads", [2, 5])
def test_the_result_is_the_same_in_any_number_of_threads(measured, monkeypatch, threads):
    def run(cores):
        monkeypatch.setattr("headway.process.cores", lambda: cores)
        return measured(
            slices=("carrier", "carrier x distance: 3"),
            searched=("carrier", "distance: 5", "user: 4"),
            threshold={"recall": 0.8},
            label=LabelFacts(counts=(500, 500)),
            baselines={"linear": measured.folder / "linear.parquet"},
            beside={"champion": measured.folder / "linear.parquet"},
            group="user",
        )

    assert json.dumps(run(threads)) == json.dumps(run(1))


def test_a_metric_of_the_users_own_runs_in_one_thread(measured, tmp_path, monkeypatch):
    own = "import threading\n\nSEEN = set()\n\n\n"
    own += "def only(label, prediction, columns):\n    SEEN.add(threading.get_ident())\n    return len(SEEN)\n"
    (tmp_path / "own.py").write_text(own)
    monkeypatch.setattr("headway.process.cores", lambda: 4)
    spec = {"name": "own:only", "file": tmp_path / "own.py"}
    result = measured(slices=("carrier",), metrics=(spec,), baselines={"linear": measured.folder / "linear.parquet"})
    assert [facts["metrics"]["own:only"] for facts in result["by_slice"]["carrier"].values()] == [1, 1, 1]


@pytest.mark.parametrize(
    ("asked", "read"), [({}, ()), ({"task": "own:Task"}, ("carrier",)), ({"group": "user"}, ("user", "carrier"))]
)
def test_of_other_models_predictions_all_columns_are_read_that_metrics_look_at(tmp_path, asked, read):
    request = MeasureRequest.model_validate({"task": "binary", "slices": ("carrier",), "predictions": tmp_path} | asked)
    assert set(request.columns_of_others) == set(read)


def test_a_metric_that_a_task_gains_is_computed_where_the_store_has_a_result_without_it(monkeypatch):
    before = MeasureRequest(task="binary", predictions="p").fingerprint
    monkeypatch.setattr(Binary, "metrics", (*Binary.metrics, MAE))
    assert MeasureRequest(task="binary", predictions="p").fingerprint != before
