"""Every verdict the gate knows, and the sentences it gives as reasons."""

import json
from statistics import NormalDist

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.report.verdict import explain
from headway.config import load
from headway.errors import ConfigError, DataError
from headway.evaluation.compare import Difference
from headway.evaluation.config import GateConfig
from headway.evaluation.gate import decide, gate
from headway.evaluation.requests import Candidate, Champion, GateRequest, spans_trained_on
from headway.evaluation.tolerance import Margin, corrected, tolerance_check
from headway.evaluation.verdict import LeftOut, Verdict, read_verdict
from headway.messages import number, signed
from headway.monitor import Monitor
from headway.tasks.table import task_of

N = 12_000
RNG = np.random.default_rng(0)
Z = RNG.normal(size=N)
LABEL = (RNG.random(N) < 1 / (1 + np.exp(1 - Z))).astype(np.int64)
CARRIER = np.array(["AA", "B6", "UA", "rare"])[np.minimum(RNG.integers(0, 400, N) // 133, 3)]
NOISE = RNG.normal(size=N)
FIXED = {"auc": 0.002, "loss": 0.002}


def predictions(path, *, noise=0.5, bad=None, nan=0, rows=N, label=LABEL):
    """Predictions as good as `noise` is small; on slice `bad` they know nothing."""
    score = 1 / (1 + np.exp(1 - Z - noise * NOISE))
    if bad is not None:
        score = np.where(bad == CARRIER, LABEL.mean(), score)
    score[:nan] = np.nan
    columns = {
        "row": np.arange(N),
        "label": label,
        "weight": np.ones(N, np.float32),
        "prediction": score,
        "carrier": CARRIER,
    }
    pq.write_table(pa.table(columns).slice(0, rows), path)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predictions")
    return {
        "good": predictions(folder / "good.parquet"),
        "same": predictions(folder / "same.parquet", noise=0.52),
        "worse": predictions(folder / "worse.parquet", noise=1.0),
        "bad slice": predictions(folder / "slice.parquet", bad="UA"),
        "nan": predictions(folder / "nan.parquet", nan=3),
    }


def request(files, candidate="good", champion="good", **changes):
    config = {"thresholds": {"auc": {"min": 0.6}}, "tolerance": FIXED, **changes.pop("config", {})}
    parts = (("2013-01", "all"),)  # the candidate's data are newer, unless a test says otherwise
    known = {"version": 3, "model": "old", "predictions": files[champion], "train": parts} if champion else None
    ours = {"train": (*parts, ("2013-02", "all"))} | changes.pop("candidate_facts", {})
    return GateRequest(
        **{
            "task": "binary",
            "config": GateConfig(**config),
            "candidate": Candidate(model="new", predictions=files[candidate], **ours),
            "champion": Champion(**{**known, **changes.pop("champion_facts", {})}) if known else None,
            "slices": ("carrier",),
            **changes,
        }
    )


def outcome(request):
    verdict = decide(request)
    kept = verdict.model_dump(mode="json")
    assert json.loads(json.dumps(kept, allow_nan=False)) == kept and Verdict.model_validate(kept) == verdict
    return verdict.status, verdict.promote, " | ".join(explain(verdict).sentences)


def test_promote_when_no_worse(files):
    verdict, promote, reasons = outcome(request(files, "same"))
    assert (verdict, promote) == ("promoted", True)
    assert "auc is 0.7" in reasons and "at least 0.6 is required" in reasons
    assert "its data are newer, and nothing blocks it; auc is within the limit of 0.002: from 0.7" in reasons
    assert "(the candidate was trained up to span 2013-02, version 3 up to 2013-01)" in reasons
    assert "auc is within the limit of 0.002: from 0.7" in reasons
    assert "95% interval" in reasons and "none of the 3 slices" in reasons
    assert "slices that were not compared: 1 value of carrier (fewer than 200 rows)" in reasons


def test_reject_when_clearly_worse(files):
    verdict, promote, reasons = outcome(request(files, "worse"))
    assert (verdict, promote) == ("rejected", False)
    assert "auc fell from 0.7" in reasons and "(version 3) to 0.6" in reasons
    assert "more than the allowed drop of 0.002" in reasons and "loss rose from" in reasons


def test_a_wide_tolerance_accepts_it(files):
    assert outcome(request(files, "worse", config={"tolerance": {"auc": 0.2}}))[0] == "promoted"
    assert outcome(request(files, "worse", config={"tolerance": {"loss": "50%"}}))[0] == "promoted"
    assert outcome(request(files, "worse", config={"tolerance": {"loss": "1%"}}))[0] == "rejected"


def test_reject_for_one_slice(files):
    found = decide(request(files, "bad slice", config={"tolerance": {"auc": 0.12, "loss": 0.12}}))
    assert found.status == "rejected" and all(c.passed for c in found.compared())
    failed = [c for c in found.compared(slices=True) if not c.passed]
    assert {(c.slice, c.slice_value) for c in failed} == {("carrier", "UA")}
    assert all(c.p_adjusted >= c.p for c in found.compared(slices=True))
    assert "carrier=UA (3," in explain(found).sentences[0]
    assert "after correcting for all slices" in explain(found).sentences[0]
    assert found.left_out == (LeftOut(slice="carrier", values=1, why="fewer than 200 rows"),)


def test_reject_below_a_threshold_even_if_first(files):
    verdict, promote, reasons = outcome(request(files, champion=None, config={"thresholds": {"auc": {"min": 0.9}}}))
    assert (verdict, promote) == ("rejected", False) and "below the required minimum of 0.9" in reasons
    verdict, _, reasons = outcome(request(files, config={"thresholds": {"ece": {"max": 0.0001}}}))
    assert verdict == "rejected" and "ece is" in reasons and "above the allowed maximum of 0.0001" in reasons


def test_first_model(files):
    assert outcome(request(files, champion=None))[:2] == ("promoted", True)
    verdict, promote, reasons = outcome(request(files, champion=None, config={"thresholds": {}}))
    assert (verdict, promote) == ("promoted", True)
    assert reasons.startswith("there is no champion yet and no threshold is set; auc")


def test_already_champion_whatever_else(files):
    for extra in ({}, {"force": True}, {"config": {"hold": True}}, {"candidate_facts": {"rolled_back": "version 1"}}):
        verdict, promote, reasons = outcome(request(files, champion_facts={"model": "new"}, **extra))
        assert (verdict, promote) == ("kept", False) and "version 3" in reasons


def test_not_comparable_when_the_champion_saw_the_rows(files):
    seen = {"train": (("2013-01", "all"), ("2013-02", "all")), "split": "x"}
    facts = {"champion_facts": seen, "eval": (("2013-02", "all"),), "split": "x"}
    verdict, promote, reasons = outcome(request(files, **facts))
    assert (verdict, promote) == ("needs a person", False) and "spans 2013-02" in reasons
    assert "headway promote" in reasons
    assert outcome(request(files, **facts, force=True))[:2] == ("promoted", True)
    assert outcome(request(files, **{**facts, "eval": (("2013-03", "all"),)}))[0] == "kept"


def test_trained_on():
    train = (("a", "train"), ("b", "all"))
    assert spans_trained_on(train, "s", (("a", "eval"), ("c", "all")), "s") == []
    assert spans_trained_on(train, "s", (("a", "eval"), ("b", "eval")), "s") == ["b"]
    assert spans_trained_on(train, "s", (("a", "all"),), "s") == ["a"]
    assert spans_trained_on(train, "s", (("a", "eval"),), "another split of the same span") == ["a"]


def test_incompatible_champion(files):
    facts = {"champion_facts": {"predictions": None, "incompatible": "it needs a column 'tailnum'"}}
    verdict, promote, reasons = outcome(request(files, **facts))
    assert (verdict, promote) == ("needs a person", False) and "needs a column 'tailnum'" in reasons
    with pytest.raises(ValueError, match="incompatible has no predictions"):
        Champion(version=1, model="x", predictions=files["good"], incompatible="why")


def test_held_for_a_person_and_released_by_force(files):
    assert outcome(request(files, config={"hold": True}))[:2] == ("needs a person", False)
    verdict, promote, reasons = outcome(request(files, config={"hold": True}, force=True))
    assert (verdict, promote) == ("promoted", True) and "promoted by force, against: it passed" in reasons
    assert outcome(request(files, "worse", config={"hold": True}))[0] == "rejected"


def test_force_is_only_named_when_it_was_needed(files):
    assert outcome(request(files, force=True))[0] == "promoted"
    verdict, promote, reasons = outcome(request(files, "worse", force=True))
    assert (verdict, promote) == ("promoted", True) and "promoted by force, against: auc fell" in reasons


def test_a_rolled_back_model_returns_only_by_force(files):
    facts = {"candidate_facts": {"rolled_back": "version 2, on 2024-05-01"}}
    verdict, promote, reasons = outcome(request(files, **facts))
    assert (verdict, promote) == ("rejected", False) and "version 2, on 2024-05-01" in reasons
    assert outcome(request(files, **facts, force=True))[:2] == ("promoted", True)


def test_predictions_that_are_not_numbers_are_rejected(files):
    verdict, _, reasons = outcome(request(files, "nan"))
    assert verdict == "rejected"
    assert "gives 3 of 12,000 predictions that are not finite numbers, the first in row 0" in reasons


def test_other_rows_are_an_error_not_a_verdict(files, tmp_path):
    for name, changes, message in [
        ("short", {"rows": 10}, "12,000"),
        ("labels", {"label": 1 - LABEL}, "'label' differs"),
    ]:
        other = {**files, "other": predictions(tmp_path / f"{name}.parquet", **changes)}
        with pytest.raises(DataError, match=message):
            decide(request(other, champion="other"))
    empty = {**files, "other": predictions(tmp_path / "empty.parquet", rows=0)}
    with pytest.raises(DataError, match="no evaluation rows"):
        decide(request(empty, "other"))
    with pytest.raises(DataError, match="cannot be read"):
        decide(request({**files, "other": tmp_path / "none"}, "other"))


def test_groups_reach_the_comparison(files, tmp_path):
    days = {}
    for name in ("good", "same"):
        days[name] = tmp_path / f"{name}.parquet"
        pq.write_table(pq.read_table(files[name]).append_column("day", pa.array(np.arange(N) % 200)), days[name])
    by_row = decide(request(files, "same")).compared()[0]
    by_group = decide(request(days, "same", group="day")).compared()[0]
    assert by_row == decide(request(files, "same")).compared()[0]
    assert by_row.change == by_group.change and by_group.interval is not None
    assert by_row.interval != by_group.interval
    with pytest.raises(DataError, match="'nothing'"):
        decide(request(files, "same", group="nothing"))


def test_a_slice_of_few_groups_is_not_compared(files, tmp_path):
    many = {}
    for name in ("good", "worse"):
        table = pq.read_table(files[name])
        day = np.where(CARRIER == "UA", np.arange(N) % 4, np.arange(N) % 400)
        many[name] = tmp_path / f"{name}.parquet"
        pq.write_table(table.append_column("day", pa.array(day)), many[name])
    found = decide(request(many, "worse", group="day"))
    assert LeftOut(slice="carrier", value="UA", why="under 5 groups") in found.left_out
    assert {c.slice_value for c in found.compared(slices=True)} == {"AA", "B6"}
    assert not all(c.passed for c in found.compared(slices=True))


def test_the_stage_writes_its_verdict(files, tmp_path):
    asked = request(files)
    decided = decide(asked)
    assert gate(asked, tmp_path, Monitor()) == {"status": decided.status}
    assert read_verdict(tmp_path) == decided and explain(decided).sentences
    assert GateRequest.model_validate(request(files).model_dump(mode="json")) == request(files)


def test_verdicts_of_a_regression(tmp_path):
    truth = np.random.default_rng(0).normal(size=3000)
    paths = {}
    for name, noise in (("good", 1.0), ("worse", 1.2)):
        paths[name] = tmp_path / f"{name}.parquet"
        values = truth + noise * np.random.default_rng(1).normal(size=3000)
        pq.write_table(pa.table({"label": truth, "prediction": values}), paths[name])
    config = {"thresholds": {"rmse": {"max": 1.5}}, "tolerance": None}
    facts = {"task": "regression", "slices": (), "config": config}
    assert outcome(request(paths, "worse", **facts))[0] == "rejected"
    assert outcome(request(paths, "good", "worse", **facts))[0] == "promoted"
    with pytest.raises(ConfigError, match="'auc' does not exist for a regression task"):
        decide(request(paths, **{**facts, "config": {"tolerance": None}}))


def test_holm_by_hand():
    def one(p):
        error = None if p is None else 0.01
        moved = 0.01 * NormalDist().inv_cdf(p or 0.5)
        measured = Difference(metric="auc", value=0.7, other=0.7, difference=moved, error=error)
        return tolerance_check(task_of("binary").metric("auc"), measured, Margin(0.0), 0.9)

    found = corrected([one(0.03), one(0.001), one(None), one(0.02), one(0.9)])
    wanted = [pytest.approx(each) if each else None for each in (0.06, 0.004, None, 0.06, 0.9)]
    assert [t.p_adjusted for t in found] == wanted
    assert [t.passed for t in found] == [True, False, True, True, True]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"thresholds": {"acu": {"min": 0.5}}}, "did you mean 'auc'"),
        ({"thresholds": {"auc": {}}}, "a threshold needs min or max"),
        ({"thresholds": {"auc": {"slices": {"carrier": {}}}}}, "a threshold needs min or max"),
        ({"thresholds": {"auc": {"slices": {"distance: 1": {"min": 0.5}}}}}, "2 to 100 bins"),
        ({"thresholds": {"auc": {"min": 0.9, "max": 0.1}}}, "above max"),
        ({"tolerance": {"auc": "much"}}, "percentage"),
        ({"tolerance": {"auc": -0.1}}, "not negative"),
        ({"tolerance": {"calibration": 0.1}}, "unknown metric 'calibration'"),
        ({"tolerance": {}}, "it is empty"),
        ({"primary": "acu"}, "did you mean 'auc'"),
        ({"primary": "loss", "tolerance": {"auc": 0.1}}, "not among the metrics of tolerance"),
        ({"confidence": 2}, "confidence"),
        ({"treshold": {}}, "treshold"),
    ],
)
def test_a_wrong_config_is_refused(value, message):
    with pytest.raises(ConfigError, match=message):
        load(GateConfig, value, where="pipeline.yaml: gate")


def test_numbers_in_words():
    shown = [number(x) for x in (None, 0.0, 0.712345, 12345.678, 1e-5, 3.0, -0.25, 150, 2e9)]
    assert shown == ["undefined", "0", "0.7123", "12,345.68", "1e-05", "3", "-0.25", "150", "2e+09"]
    assert [signed(x) for x in (0.5, -0.5, 0.0, None)] == ["+0.5", "-0.5", "0", "undefined"]
