"""A store whose months differ in difficulty, so that levels and differences on the same rows have opposite signs: every step is
the stages' own, of made-up predictions; no TensorFlow.

    store = months(folder)          # three versions of "flights", judged on an easy, a hard and an easy month

Version 1 is judged on 2013-10, which is easy. Version 2 is better, and judged on 2013-12, which is hard: its AUC is lower there
than that of version 1 on 2013-10. Version 3 is a little worse than 2, and judged on 2014-01, which is easy.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flows.records import read_record
from flows.report.verdict import explain
from headway.evaluation.config import GateConfig
from headway.evaluation.gate import gate
from headway.evaluation.measure import measure
from headway.evaluation.requests import Candidate, Champion, GateRequest, MeasureRequest
from headway.evaluation.verdict import read_verdict
from headway.monitor import Monitor
from headway.registry.registry import Registry
from headway.storage.store import Store
from headway.tasks.base import LabelFacts
from tests.flows.report.recorded import _Run

PIPELINE = """
name: flights
source: {format: parquet, path: "data/{span}.parquet"}
label: arr_delay > 15
store: store
"""
ROWS = 3000
EVALS = ("2013-10", "2013-12", "2014-01")
"""By version."""
_DIFFICULTY = {"2013-10": 0.9, "2013-12": 2.4, "2014-01": 0.8}
_NOISE = (0.55, 0.35, 0.6)
"""Of each version's predictions; less is better."""


def months(folder):
    (folder / "pipeline.yaml").write_text(PIPELINE)
    store = Store(folder / "store")
    store.create()
    for number, span in enumerate(EVALS, 1):
        _judge(store, number, span)
    return store


def _judge(store, number, span):
    """A run that judged a candidate on a month's rows, beside the champion, and made it version `number`."""
    run, before = _Run(store, number), number - 1
    name = f"2014020{number}-000714-4081"
    window = [f"20{m // 12:02d}-{m % 12 + 1:02d}" for m in range(13 * 12 + 2 * number, 13 * 12 + 2 * number + 3)] + [
        span
    ]
    parts = {"train": [[each, "train"] for each in window[:-1]], "eval": [[span, "eval"]]}
    run.step("splits", "splits", lambda out: {"says": ["apart"], "splits": {}}, key={"inputs": {"parts": parts}})
    scored = {"inputs": {"examples": [[span, "eval"]]}}
    mine, _ = run.step("evaluate", "evaluate", _predictions(span, number), key=scored)
    theirs = run.step("evaluate", f"evaluate champion {before}", _predictions(span, before))[0] if before else None
    label = LabelFacts(counts=(ROWS // 2, ROWS // 2), mean=0.5, median=0.5)
    request = MeasureRequest(
        task="binary",
        predictions=mine / "p.parquet",
        baselines={"champion": theirs / "p.parquet"} if theirs else {},
        label=label,
        slices=("city",),
        slice_min_rows=50,
    )
    inputs = {"predictions": mine.name, "beside": {"champion": theirs.name} if theirs else {}}
    key = {"inputs": inputs, "slices": ["city"], "config": {"slice_min_rows": 50}}
    measured = run.step("measure", "measure", lambda out: measure(request, out, Monitor()), key=key)[1]
    champion = Champion(version=before, model=f"m{before}", predictions=theirs / "p.parquet") if theirs else None
    train = tuple((each, "train") for each in window[:-1])
    judging = GateRequest(
        task="binary",
        config=GateConfig(tolerance={"auc": 0.05}),
        candidate=Candidate(model=f"m{number}", predictions=mine / "p.parquet", train=train),
        champion=champion and champion.model_copy(update={"train": (("2012-01", "train"),)}),
        label=label,
        eval=((span, "eval"),),
    )
    verdict = read_verdict(run.step("gate", "gate", lambda out: gate(judging, out, Monitor()))[0])
    assert verdict.promote, explain(verdict).sentences
    saved = store.root.parent / "saved"
    saved.mkdir(exist_ok=True)
    (saved / "saved_model.pb").write_bytes(b"model")
    facts = {"run": name, "task": "binary", "metrics": measured["metrics"], "spans": window, "evaluation": mine.name}
    facts |= {"train_parts": parts["train"], "eval_parts": parts["eval"], "compared": verdict.beside_champion}
    registry = Registry(store, "flights")
    lineage = {"format": 1, "run": {"run": name}, "code": None, "config": None, "champion": before, "parts": parts}
    lineage |= {
        "verdict": {"status": verdict.status, "reasons": explain(verdict).sentences},
        "spans": [],
        "stages": run.stages,
    }
    assert registry.publish(saved, facts, lineage).number == number
    registry.promote(number, reason="as the gate decided", run=name, basis=verdict.basis, anchor=verdict.anchors)
    record = {"run": name, "pipeline": "flights", "state": "promoted", "started": f"2014-02-0{number}T00:07:14.900Z"}
    record |= {"spans": window, "seed": 0, "seconds": 61.0, "version": number, "stages": run.stages}
    record |= {"verdict": verdict.brief.model_dump(mode="json"), "metrics": measured["metrics"]}
    record |= {"baselines": verdict.metrics.baselines, "champion": {"version": before} if before else None}
    read_record(record).save(store)


def _predictions(span, version):
    """What a version predicts of a month's rows."""

    def make(out):
        r = np.random.default_rng(EVALS.index(span))
        label = r.integers(0, 2, ROWS)
        hard = r.normal(size=ROWS) * _DIFFICULTY[span]
        city = np.array(["Paris", "Oslo"], object)[r.integers(0, 2, ROWS)]
        noise = np.random.default_rng([EVALS.index(span), version]).normal(size=ROWS) * _NOISE[version - 1]
        prediction = 1 / (1 + np.exp(-(2.5 * (label - 0.5) + hard + noise)))
        rows = {"row": np.arange(ROWS), "label": label, "prediction": prediction, "city": city}
        pq.write_table(pa.table(rows), out / "p.parquet")
        return {"predictions": "p.parquet", "rows": ROWS, "metrics": {}}

    return make
