"""NDCG, MRR, recall and coverage of groups: by their definitions, and in the gate."""

import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.report.verdict import explain
from headway.errors import ConfigError
from headway.evaluation.config import GateConfig
from headway.evaluation.gate import decide
from headway.evaluation.requests import GateRequest
from headway.metrics.ranking import NO_GROUP, RANKED, ItemCoverage, codes_of, rank_metrics
from headway.tasks.table import task_of
from tests.headway.evaluation.arrays import compare_arrays, results_of


def by_definition(label, score, k):
    """(ndcg and recall, mean over all orders of equal scores; mrr with mean ranks) of one group."""
    best = sum((2.0**y - 1) / np.log2(2 + r) for r, y in enumerate(sorted(label, reverse=True)[:k]))
    found, hits = [], []
    for order in itertools.permutations(range(len(label))):
        if all(score[a] >= score[b] for a, b in itertools.pairwise(order)):
            found.append(sum((2.0 ** label[i] - 1) / np.log2(2 + r) for r, i in enumerate(order[:k])) / best)
            hits.append(sum(label[i] > 0 for i in order[:k]) / sum(y > 0 for y in label))
    rank = min(sum(s > score[i] for s in score) + (1 + score.count(score[i])) / 2 for i, y in enumerate(label) if y > 0)
    return np.mean(found), 1 / rank, np.mean(hits)


GROUPS = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.1, 0.5, 0.5, 0.9])), min_size=1, max_size=5),
    min_size=1,
    max_size=5,
)


@settings(deadline=None)
@given(GROUPS, st.integers(1, 6), st.randoms())
def test_the_metrics_are_their_definitions_however_rows_lie(groups, k, random):
    rows = [(y, s, g) for g, group in enumerate(groups) for y, s in group]
    random.shuffle(rows)
    label, score, codes = (np.array(column) for column in zip(*rows, strict=True))
    found = rank_metrics(label.astype(float), score, np.ones(len(rows)), codes, k=k)
    judged = [group for group in groups if any(y > 0 for y, _ in group)]
    expected = [by_definition([y for y, _ in group], [s for _, s in group], k) for group in judged]
    for at, name in enumerate(RANKED):
        np.testing.assert_allclose(found.values[name], [one[at] for one in expected], rtol=1e-9, atol=1e-12)
    means = found.mean()
    assert (means["ndcg"] is None) == (not judged)
    if judged:
        assert means["ndcg"] == pytest.approx(np.mean([one[0] for one in expected]))


def test_weights_and_what_is_no_number():
    label, score = np.float64([1, 0, 0, 1, 5]), np.float64([0.9, 0.1, 0.8, 0.2, 0.5])
    codes = np.array([0, 0, 1, 1, NO_GROUP])
    weight = np.float64([2, 2, 1, 1, 7])
    found = rank_metrics(label, score, weight, codes, k=10)
    assert found.mean()["mrr"] == pytest.approx((2 * 1 + 1 * 0.5) / 3)
    assert rank_metrics(label, score, np.float64([2, 2, 0, 1, 7]), codes).mean()["mrr"] == 1  # weight 0: not there
    spoilt = rank_metrics(label, np.where(codes == 1, np.nan, score), weight, codes)
    assert spoilt.mean() == dict.fromkeys(RANKED) and spoilt.values["mrr"][0] == 1
    negative = rank_metrics(np.float64([1, -1, 0, 1, 5]), score, weight, codes).mean()
    assert negative["ndcg"] is None and negative["mrr"] == pytest.approx(2.5 / 3)
    none = rank_metrics(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0, np.int64))
    assert none.mean() == dict.fromkeys(RANKED)
    assert codes_of(pa.chunked_array([["b", None], ["a", "b"]])).tolist() == [0, NO_GROUP, 1, 0]


def test_coverage_is_the_share_of_items_that_some_group_is_shown_and_tells_apart_who_shows_the_same():
    items = np.array(list("abcdabcd"), object)
    label, codes, same = np.zeros(8), np.repeat([0, 1], 4), np.float64([4, 3, 2, 1] * 2)
    rows = task_of("regression").rows(label, same, groups=codes, columns={"movie": items})
    coverage = ItemCoverage("movie", 2)
    assert coverage.cached_value(rows) == 0.5 and coverage.cached_value(rows.predicted(-same)) == 0.5
    assert coverage.cached_value(rows.predicted(np.where(codes == 0, same, -same))) == 1.0
    assert coverage.cached_value(rows.at(np.arange(4))) == 0.5


def models(groups=300, seed=0, noise=(0.5, 0.5)):
    r = np.random.default_rng(seed)
    sizes = r.integers(2, 9, groups)
    codes = np.repeat(np.arange(groups), sizes)
    worth = r.normal(size=len(codes))
    label = (worth + r.normal(size=len(codes)) > 0.5).astype(float)
    return label, codes, *(1 / (1 + np.exp(-worth - s * r.normal(size=len(codes)))) for s in noise)


def test_comparisons_of_groups_are_weighted_and_need_the_groups():
    label, codes, a, b = models(120)
    weight = np.random.default_rng(0).uniform(0.5, 2, len(label))
    found = compare_arrays("binary", label, a, b, weight, metrics=("ndcg",), group=codes, ndcg_at=3)["ndcg"]
    assert found.value == pytest.approx(rank_metrics(label, a, weight, codes, k=3).mean()["ndcg"])
    assert found.error > 0
    with pytest.raises(ValueError, match="the rows have none"):
        compare_arrays("binary", label, a, b, metrics=("ndcg",), ndcg_at=3)


def written(path, label, score, codes):
    table = pa.table(
        {
            "row": np.arange(len(label)),
            "label": label.astype(np.int64),
            "weight": np.ones(len(label)),
            "prediction": score,
            "query": pa.array([f"q{code}" for code in codes]),
            "half": pa.array(np.where(codes % 2 == 0, "even", "odd")),
        }
    )
    pq.write_table(table, path)
    return table


def test_the_gate_judges_by_ndcg_and_mrr(tmp_path):
    label, codes, a, b = models(noise=(3.0, 0.2))
    worse = written(tmp_path / "worse.parquet", label, a, codes)
    written(tmp_path / "better.parquet", label, b, codes)
    base = {
        "task": "binary",
        "config": {"tolerance": {"ndcg": 0.005, "mrr": 0.005}, "thresholds": {"ndcg": {"min": 0.1}}},
        "candidate": {"model": "x", "predictions": tmp_path / "worse.parquet"},
        "champion": {"version": 1, "model": "y", "predictions": tmp_path / "better.parquet"},
        "group": "query",
        "ndcg_at": 3,
    }
    verdict = decide(GateRequest.model_validate(base))
    assert verdict.status == "rejected" and any("ndcg fell" in reason for reason in explain(verdict).sentences)
    assert json.dumps(verdict.model_dump(mode="json"))
    ours = results_of(worse, "binary", group="query", ndcg_at=3)["metrics"]
    assert verdict.metrics.candidate == ours and verdict.metrics.candidate["mrr"] < 0.95
    whole = results_of(worse, "binary", slices=["half"], group="query", ndcg_at=3)
    assert whole["metrics"] == ours and whole["by_slice"]["half"]["odd"]["metrics"]["ndcg"] != ours["ndcg"]
    assert GateConfig().tolerances("binary", ranked=True) == dict(task_of("binary").tolerances) | {"ndcg": 0.005}
    with pytest.raises(ConfigError, match="has no groups to rank"):
        decide(GateRequest.model_validate(base | {"ndcg_at": None}))
    with pytest.raises(ValueError, match="needs a column with role: group"):
        GateRequest.model_validate(base | {"group": None})


def test_a_candidate_has_to_beat_every_order_by_the_item_alone(tmp_path):
    label, codes, weak, strong = models(noise=(3.0, 0.2))
    paths = {name: tmp_path / f"{name}.parquet" for name in ("weak", "strong")}
    for name, score in (("weak", weak), ("strong", strong)):
        written(paths[name], label, score, codes)

    def verdict(candidate, other, **config):
        request = {
            "task": "binary",
            "candidate": {"model": "x", "predictions": paths[candidate]},
            "baselines": {"item_mean": paths[other]},
            "to_beat": ["item_mean"],
            "group": "query",
            "ndcg_at": 3,
            "item": "half",
            "config": config,
        }
        return decide(GateRequest.model_validate(request))

    assert verdict("strong", "weak", thresholds={"item_coverage": {"min": 0.5}}).promote
    lost = verdict("weak", "strong")
    assert lost.status == "rejected" and "is worse than the item_mean baseline: ndcg is" in explain(lost).sentences[0]
    assert verdict("weak", "strong", baseline=False).promote
    assert lost.metrics.baselines["item_mean"]["recall_at_k"] > lost.metrics.candidate["recall_at_k"]
    with pytest.raises(ConfigError, match=r"set evaluation\.item"):
        GateConfig.model_validate({"primary": "item_coverage"}).check("binary", ranked=True)
