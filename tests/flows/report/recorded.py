"""A run as the store keeps it, without a training: statistics, validation, measures and verdict are the stages' own, of
made-up rows and predictions.

    store, record = recorded(folder, "binary")
    store, later = recorded(folder, "binary", again=1)      # another run of the same rows, with another model
"""

import json
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flows.records import read_record
from headway.evaluation.config import GateConfig
from headway.evaluation.gate import gate
from headway.evaluation.measure import measure
from headway.evaluation.requests import Candidate, Champion, GateRequest, MeasureRequest
from headway.evaluation.verdict import read_verdict
from headway.monitor import Monitor
from headway.schema.columns import LABEL, Column, Schema
from headway.statistics.split_statistics import SplitStatistics
from headway.statistics.stage import StatisticsRequest, merge
from headway.storage.fingerprint import fingerprint
from headway.storage.manifest import Counts
from headway.storage.store import Store
from headway.tabular import quarantine
from headway.tasks.base import LabelFacts
from headway.validation.stage import ChampionStatistics, SpanFacts, ValidateRequest, validate

HOSTILE = "<script>alert('x')</script>"
CLASSES = ("cat", "dog", HOSTILE)
LEVELS = "quantiles(0.1, 0.5, 0.9)"


class _Run:
    def __init__(self, store, again):
        self.store, self.again, self.stages = store, again, []

    def step(self, stage, title, make, *, key=None, counts=None, cached=False):
        """Make an output by make(folder) -> result, and note the step; returns its folder and its result."""
        key = {"stage": stage, "title": title, **(key or {})}
        key |= {"again": self.again} if self.again and stage not in ("ingest", "splits") else {}
        name, began = fingerprint(key), time.perf_counter()
        manifest = self.store.find(stage, name)
        if manifest is None:
            with self.store.open(stage, name, key) as staging:
                manifest = staging.commit(result=make(staging.path), counts=counts)
        took = round(time.perf_counter() - began, 3)
        step = {"stage": stage, "title": title, "fingerprint": name, "cached": cached, "seconds": took}
        step |= {} if cached else {"why": {"kind": "never run"}}
        step |= {"span": title.removeprefix("ingest ")} if stage == "ingest" else {}
        self.stages.append(step)
        return self.store.output(stage, name), manifest.result


def _rows(r, rows, shift, wide):
    city = np.array(["Paris", "Tromsø", HOSTILE, "Køge|5", "東京"], object)[r.integers(0, 5, rows)]
    table = {
        "age": r.normal(40 + shift, 12, rows).astype(np.float32),
        "rooms": r.integers(1, 7, rows),
        "city": city,
        HOSTILE.replace("/", ""): r.exponential(2.0, rows).astype(np.float32),
        "$price_{x}$": np.full(rows, 7, np.int64),
        **{f"w{i:04d}": r.normal(size=rows).astype(np.float32) for i in range(wide)},
    }
    return pa.table({name: pa.array(v) for name, v in table.items()} | {"empty": pa.nulls(rows, pa.float32())})


def _predicted(r, task, label, noise, width):
    rows = len(label)
    if task == "multiclass":
        scores = r.normal(size=(rows, width)) * noise
        scores[np.arange(rows), label.astype(int)] += 2.0
        powers = np.exp(scores)
        return powers / powers.sum(1, keepdims=True)
    if task == "binary":
        return 1 / (1 + np.exp(-(2.5 * (label - 0.5) + r.normal(size=rows) * noise)))
    if task.startswith("quantiles"):
        middle = label + r.normal(size=rows) * noise
        return np.stack([middle - 1.3, middle, middle + 1.3], 1)
    return np.maximum(label + r.normal(size=rows) * noise, 0.05)


def _label(r, task, rows):
    if task == "multiclass":
        return r.integers(0, len(CLASSES), rows)
    if task == "binary":
        return (r.random(rows) < 0.3).astype(np.int64)
    return r.poisson(3.0, rows).astype(np.float64) if task == "count" else r.normal(5.0, 2.0, rows)


_MADE = {}


def recorded(folder, task="binary", **options):
    """A store with one run; returns it and the run's record, as a RunRecord. In a new folder it is a copy of one that this
    process has made once.

    Args:
        options: of `make_recorded`.
    """
    if folder.exists() and any(folder.iterdir()):
        return make_recorded(folder, task, **options)
    kind = (task, *sorted(options.items()))
    if kind not in _MADE:
        place = tempfile.TemporaryDirectory()
        _MADE[kind] = place, make_recorded(Path(place.name), task, **options)[1]
    place, record = _MADE[kind]
    shutil.copytree(place.name, folder, dirs_exist_ok=True)
    return Store(folder), record.model_copy(deep=True)


def make_recorded(
    folder, task="binary", *, champion=True, rows=700, wide=0, until=None, state=None, again=0, ranked=False
):
    """As `recorded`, in this folder.

    Args:
        ranked: the order of the rows of one city is judged too.
        again: which run of the store it is; each has its own model, and columns that drift from those of the one before.
        wide: so many columns more.
        until: the step after which the run failed.
        state: how it ended; None: as its verdict says.
    """
    r = np.random.default_rng(7)
    store = Store(folder)
    store.create()
    run = _Run(store, again)
    record = {
        "run": f"20261123-0{again}0714-4081",
        "pipeline": "homes & <b>gardens<b>",
        "file": "/data/homes/pipeline.yaml",
        "state": "failed",
        "started": "2026-11-23T00:07:14.900Z",
        "window": 2,
        "until": "2026-02",
        "seed": 3,
        "force": False,
        "last": None,
        "code": {
            "tools": {"headway": "0.1.0", "tensorflow": "2.21.0"},
            "modules": {"model.py": "ab" * 32},
            "git": None,
        },
        "config": {"name": "homes", "label": HOSTILE, "training": {"steps": 300 + 60 * again}},
        "stages": run.stages,
        "spans": ["2026-01", "2026-02"],
        "notes": [{"text": f"a note with {HOSTILE}"}],
        "warnings": ["the champion has become worse"] if champion else [],
        "seconds": 12.5,
    }

    def ended():
        whole = read_record(record)
        whole.save(store)
        return store, whole

    table, before = _rows(r, rows, 4.0 * again, wide), _rows(r, rows, 9.0, wide)
    label = _label(r, task, rows)
    stored = pa.array([CLASSES[i].encode() for i in label]) if task == "multiclass" else pa.array(label)
    if task not in ("multiclass", "binary"):
        stored = stored.cast(pa.float32())
    kinds = {"float": "float32", "int64": "int64", "string": "bytes", "binary": "bytes"}
    batches = [each.append_column(LABEL, stored).combine_chunks() for each in (table, before)]
    columns = tuple(
        Column(
            name=f.name,
            type=kinds[str(f.type)],
            nullable=f.name != LABEL,
            role="label" if f.name == LABEL else "feature",
        )
        for f in batches[0].schema
    )
    batches = [
        b.cast(pa.schema([(f.name, pa.binary() if f.type == pa.string() else f.type) for f in b.schema]))
        for b in batches
    ]

    def ingest(span, rejected):
        def make(out):
            if rejected:
                bad = quarantine.rejected([3, 9], "age", [HOSTILE, "12,5"], "is not a number", "raw/<i>2026.csv")
                quarantine.write(out / quarantine.FILE_NAME, [bad])
            counts = {"read": rows + rejected, "written": rows, "quarantined": rejected, "filtered": 0}
            made = SplitStatistics.create(columns)
            for part in batches[not rejected].to_batches() if not wide else ():
                empty = pa.nulls(rows, pa.int64()) if not rejected else part["$price_{x}$"]
                made.update(part.set_column(part.schema.get_field_index("$price_{x}$"), "$price_{x}$", empty))
            made.save(out / "statistics")
            split = {"rows": rows, "statistics": "statistics"}
            stored = [column.model_dump(mode="json") for column in columns]
            return {"span": span, "columns": stored, "counts": counts, "splits": {} if wide else {"train": split}}

        files = [{"bytes": 12_345, "crc32c": "a9846077"}]
        counts = Counts(read=rows + rejected, written=rows, quarantined=rejected, filtered=0)
        run.step("ingest", f"ingest {span}", make, key={"files": files}, counts=counts, cached=not rejected)

    ingest("2026-01", 0)
    ingest("2026-02", 2)

    def statistics(batch):
        def make(out):
            for split, part in (("train", batch), ("eval", batch.slice(0, rows // 2))):
                made = SplitStatistics.create(columns)
                made.update(part.to_batches()[0])
                made.save(out / f"of-{split}")
            splits = {split: (out / f"of-{split}",) for split in ("train", "eval")}
            return merge(StatisticsRequest(columns=columns, splits=splits), out, Monitor())

        return make

    theirs = None
    if champion:
        theirs, _ = run.step("statistics", "statistics of the champion", statistics(batches[1]))
        run.stages.pop()
    ours, _ = run.step("statistics", "statistics", statistics(batches[0]))
    whose = {"name": "version 3 (2025-12)", "statistics": theirs.name} if theirs else None

    def checked(out):
        return validate(
            ValidateRequest(
                schema=Schema(columns=columns),
                statistics=ours,
                splits=("train", "eval"),
                spans=(SpanFacts(span="2026-02", read=rows, written=rows, quarantined=2, filtered=0),),
                stored=tuple(c.name for c in columns),
                champion=ChampionStatistics(name=whose["name"], statistics=theirs) if whose else None,
            ),
            out,
            Monitor(),
        )

    run.step("validate", "validate", checked, key={"champion": whose})
    if until == "validate":
        record["error"] = f"validation found 1 error:\n  - column {HOSTILE!r} is gone\n    fix: mend it"
        return ended()

    def trained(out):
        points = [
            {
                "step": s,
                "loss": (1 + 0.2 * again) / s,
                "holdout_loss": (1 + 0.2 * again) / s + 0.05,
                "learning_rate": 0.01 / s,
            }
            for s in range(1, 40)
        ]
        (out / "history.json").write_text(json.dumps({"history": points}))
        return {"steps": 39, "epochs": 2.0, "rows": rows, "final_loss": 1 / 39, "best_step": 30, "seconds": 1.5}

    run.step("train", "train", trained)
    record["training"] = {"rows": rows, "says": "2 epochs of 64 rows; adam"}
    if until == "train":
        record["error"] = "the loss is not a finite number"
        return ended()

    kept = {"rooms": table["rooms"], "city": table["city"]}

    names = [HOSTILE.replace("/", ""), "age", "city", "rooms"]
    weights = [{"column": name, "permuted": 0.2 / (1 + i), "interval": [0.0, 0.3]} for i, name in enumerate(names)]
    mattering = {"metric": "loss", "value": 0.4, "rows": 350, "columns": weights}

    def predicted(noise):
        def make(out):
            values = _predicted(r, task, label, noise, len(CLASSES))
            made = pa.array(list(values)) if values.ndim > 1 else pa.array(values)
            pq.write_table(
                pa.table({"row": np.arange(rows), "label": label, "prediction": made, **kept}), out / "p.parquet"
            )
            told = {} if ranked else {"importance": mattering}
            return {"predictions": "p.parquet", "rows": rows, "metrics": {}, **told}

        return make

    rows_scored = {"inputs": {"examples": [["2026-02", "eval"]]}}
    mine, _ = run.step("evaluate", "evaluate", predicted(1.0 + 0.5 * again), key=rows_scored)
    other = run.step("evaluate", "evaluate champion 3", predicted(1.4))[0] if champion else None
    counts = np.bincount(label.astype(int)) if task in ("multiclass", "binary") else ()
    facts = LabelFacts(counts=tuple(map(int, counts)), mean=float(np.mean(label)), median=float(np.median(label)))
    order = {"group": "city", "item": "rooms", "ndcg_at": 10} if ranked else {}
    request = MeasureRequest(
        task=task,
        predictions=mine / "p.parquet",
        baselines={"champion": other / "p.parquet"} if other else {},
        label=facts,
        classes=CLASSES if task == "multiclass" else (),
        slices=("city", "rooms"),
        slice_min_rows=20,
        searched=("city", "rooms"),
        shown={"city": None, "rooms": None},
        threshold="f1" if task == "binary" else None,
        **order,
    )
    inputs = {"predictions": mine.name, "beside": {"champion": other.name} if other else {}}
    settings = {"inputs": inputs, "slices": list(request.slices), "config": {"slice_min_rows": request.slice_min_rows}}
    settings |= order
    measured = run.step("measure", "measure", lambda out: measure(request, out, Monitor()), key=settings)[1]

    def judged(out):
        former = Champion(version=3, model="m3", predictions=other / "p.parquet") if other else None
        candidate = Candidate(model="m4", predictions=mine / "p.parquet")
        config = GateConfig(slice_min_rows=50)
        return gate(
            GateRequest(
                task=task, config=config, candidate=candidate, champion=former, label=facts, slices=("city",), **order
            ),
            out,
            Monitor(),
        )

    verdict = read_verdict(run.step("gate", "gate", judged)[0])
    record["verdict"] = verdict.brief.model_dump(mode="json")
    record["metrics"], record["baselines"] = measured["metrics"], verdict.metrics.baselines
    record["state"] = state or verdict.status
    if record["state"] in ("promoted", "already champion"):
        record["version"] = 4
    return ended()
