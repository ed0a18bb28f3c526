"""Further labels in evaluation and the gate: their part of the predictions, their metrics by name, their comparison."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.errors import ConfigError
from headway.evaluation.further_labels import FurtherLabel, part_of
from headway.evaluation.gate import Candidate, Champion, GateRequest
from headway.evaluation.gate.stage import decide
from headway.evaluation.gate_config import GateConfig
from headway.evaluation.metrics import measure as measure_metrics
from headway.evaluation.results.request import MeasureRequest
from headway.evaluation.results.stage import measure
from headway.monitor import Monitor
from headway.tasks.base import LabelFacts

ROWS = 4000
MINUTES = FurtherLabel(name="minutes", task="regression", facts=LabelFacts(mean=0.0, median=0.0))
KNOWN = np.arange(ROWS) % 5 > 0


def table(error=1.0, *, further=True):
    r = np.random.default_rng(0)
    logit, shift = r.normal(size=ROWS), r.normal(size=ROWS)
    truth = 10 * logit + r.normal(size=ROWS)
    columns = {
        "row": np.arange(ROWS),
        "label": (r.random(ROWS) < 1 / (1 + np.exp(-2 * logit))).astype(int),
        "weight": r.uniform(0.5, 2, ROWS),
        "prediction": 1 / (1 + np.exp(-2 * logit)),
        "carrier": np.array(["AA", "BB"])[np.arange(ROWS) % 2],
        "minutes/label": pa.array(truth, mask=~KNOWN),
    }
    return pa.table(columns | ({"minutes/prediction": truth + error * shift} if further else {}))


@pytest.fixture
def written(tmp_path):
    """written(**of the table) -> its file."""

    def write(**changes):
        path = tmp_path / f"{len(list(tmp_path.glob('*.parquet')))}.parquet"
        pq.write_table(table(**changes), path)
        return path

    return write


def test_the_part_of_a_further_label_is_a_table_of_its_own_where_missing_rows_weigh_nothing():
    whole = table()
    part = part_of(whole, "minutes")
    assert part.column_names == ["row", "label", "weight", "prediction", "carrier"] and len(part) == ROWS
    weight = part.column("weight").to_numpy()
    np.testing.assert_array_equal(weight, np.where(KNOWN, whole.column("weight").to_numpy(), 0.0))
    assert part_of(table(further=False), "minutes") is None


def test_metrics_of_a_further_label_are_those_of_its_known_rows_with_intervals_and_slices(written, tmp_path):
    request = {"task": "binary", "predictions": written(), "labels": (MINUTES,), "slices": ("carrier",)}
    facts = {"label": LabelFacts(counts=(1, 1)), "baselines": {"linear": written(further=False)}}
    found = measure(MeasureRequest(**request, **facts), tmp_path, Monitor())
    known = table().filter(pa.array(KNOWN))
    arrays = [known.column(f"minutes/{name}").to_numpy() for name in ("label", "prediction")]
    expected = measure_metrics("regression", *arrays, known.column("weight").to_numpy())
    for name in ("rmse", "mae", "r2"):
        assert found["metrics"][f"minutes/{name}"] == pytest.approx(expected[name], rel=1e-12)
    low, high = found["intervals"]["minutes/rmse"]
    assert low < expected["rmse"] < high
    assert found["by_slice"]["carrier"]["AA"]["minutes/rmse"] > 0 < found["by_slice"]["carrier"]["AA"]["auc"]
    assert found["baselines"]["constant"]["minutes/rmse"] > 5 and "minutes/rmse" not in found["baselines"]["linear"]
    assert "minutes/residuals" in found["tables"]


def test_a_champions_metrics_of_a_further_label_stand_beside_overall_and_on_slices(written, tmp_path):
    champion = {"baselines": {"champion": written(error=2.0)}, "slices": ("carrier",)}
    request = MeasureRequest(task="binary", predictions=written(), labels=(MINUTES,), **champion)
    found = measure(request, tmp_path, Monitor())
    assert found["baselines"]["champion"]["minutes/rmse"] > 1.5 * found["metrics"]["minutes/rmse"]
    assert found["champion"]["intervals"]["minutes/rmse"] and found["titles"]["minutes/residuals"].startswith(
        "minutes: "
    )
    slice_ = found["by_slice"]["carrier"]["AA"]
    assert slice_["champion"]["minutes/rmse"] > slice_["minutes/rmse"] > 0 < slice_["champion"]["auc"]
    assert slice_["champion"]["intervals"]["minutes/rmse"] and slice_["intervals"]["minutes/rmse"]


def test_a_further_label_that_no_eval_row_has_is_measured_as_nothing(tmp_path):
    whole = table()
    place = whole.column_names.index("minutes/label")
    pq.write_table(whole.set_column(place, "minutes/label", pa.nulls(ROWS, pa.float64())), tmp_path / "p.parquet")
    request = MeasureRequest(task="binary", predictions=tmp_path / "p.parquet", labels=(MINUTES,), slices=("carrier",))
    found = measure(request, tmp_path, Monitor())
    assert found["metrics"]["minutes/rmse"] is None and found["metrics"]["auc"] > 0.5


def judged(candidate, champion, **config):
    return decide(
        GateRequest(
            task="binary",
            config=GateConfig(**config),
            candidate=Candidate(model="new", predictions=candidate, train=(("2", "all"),)),
            champion=Champion(version=1, model="old", predictions=champion, train=(("1", "all"),)),
            labels=(MINUTES,),
            slices=("carrier",),
        )
    )


def test_a_further_label_that_became_worse_blocks_where_its_metric_is_named(written):
    good, worse = written(), written(error=2.0)
    assert judged(worse, good).verdict == "promote"  # the label alone decides by default
    verdict = judged(worse, good, tolerance={"minutes/rmse": "10%"})
    assert verdict.verdict == "reject" and verdict.primary == "auc"
    assert "minutes/rmse rose from 1.00" in verdict.sentences[0] and "version 1" in verdict.sentences[0]
    assert {c.metric for c in verdict.compared()} == {"auc", "loss", "bias", "minutes/rmse"}
    assert {c.metric for c in verdict.compared(slices=True)} >= {"auc", "minutes/rmse"}
    assert judged(good, worse, tolerance={"minutes/rmse": "10%"}).verdict == "promote"


def test_a_threshold_reads_a_further_labels_metric(written):
    verdict = judged(written(), written(), thresholds={"minutes/mae": {"max": 0.1}})
    assert verdict.verdict == "reject" and "minutes/mae is 0.8" in verdict.sentences[0]
    verdict = judged(written(), written(), thresholds={"minutes/mae": {"slices": {"carrier=AA": {"max": 0.1}}}})
    assert "minutes/mae on carrier=AA (2,000 rows) is 0.8" in verdict.sentences[0]


def test_a_champion_that_does_not_predict_the_label_is_compared_by_the_others(written):
    verdict = judged(written(), written(further=False), tolerance={"auc": 0.01, "minutes/rmse": "5%"})
    assert verdict.verdict == "promote"
    assert any(
        "version 1 does not predict minutes, so that minutes/rmse is not compared" in r for r in verdict.sentences
    )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"thresholds": {"hours/rmse": {"max": 1}}}, "no further label 'hours'"),
        ({"thresholds": {"minutes/auc": {"min": 1}}}, "metric 'auc' does not exist for minutes, a regression label"),
        ({"tolerance": {"minutes/coverage": 0.1}}, "unknown metric 'minutes/coverage'"),
    ],
)
def test_a_metric_that_no_further_label_has_is_refused(config, message):
    with pytest.raises((ConfigError, ValueError), match=message):
        GateConfig(**config).check("binary", labels={"minutes": ("regression",)})
