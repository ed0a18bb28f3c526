"""Whether a candidate is promoted, and why: a verdict with reasons a person can follow.

    verdict = gate(GateRequest(task="binary", candidate=..., champion=..., config=GateConfig()), out, monitor)
    verdict["verdict"], verdict["promote"], verdict["reasons"]

It reads predictions only (Parquet files written by evaluation: label, prediction, weight, slice columns, in the same
order for both models), so neither model nor TensorFlow is needed. A candidate fails on an absolute threshold, or when
the bootstrap interval of (candidate - champion) lies wholly beyond the tolerance on the bad side, overall or, with
Holm's correction for looking many times, on a slice. Verdicts:

    promote, reject                       compared with the champion
    first model                           there is no champion; the thresholds decide
    already champion                      the candidate is the champion: nothing to do
    not comparable                        the champion was trained on these evaluation rows
    incompatible champion                 the champion cannot score these rows
    rolled back                           this very model was rolled back before: it returns only by force
    held                                  it passed, and waits for a person
    forced                                promoted against the rules because a person said so
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, model_validator

from headway.comparison import compare
from headway.config import Frozen
from headway.errors import DataError
from headway.gate_config import Bounds, GateConfig
from headway.metrics import columns, measure_table
from headway.monitor import Monitor
from headway.tasks import Task
from headway.words import agree, counted, number, some

VERSION = 1

Parts = tuple[tuple[str, str], ...]
"""(span, split as ingested: "train", "eval", "test" or "all") pairs."""


class Candidate(Frozen):
    model: str = Field(description="what identifies the model: the fingerprint of its training")
    predictions: Path = Field(description="Parquet file over the evaluation rows")
    rolled_back: str | None = Field(default=None, description="set when this model was rolled back: which version, why")


class Champion(Frozen):
    version: int
    model: str
    predictions: Path | None = Field(default=None, description="Parquet file over the same evaluation rows")
    incompatible: str | None = Field(default=None, description="why it cannot score these rows")
    train: Parts = Field(default=(), description="what it was trained on")
    split: str = Field(default="", description="digest of the split config its spans were ingested with")

    @model_validator(mode="after")
    def _scored_or_not(self) -> Champion:
        if self.predictions is not None and self.incompatible is not None:
            raise ValueError("a champion that is incompatible has no predictions")
        return self


class GateRequest(Frozen):
    """Everything a verdict depends on."""

    task: Task
    config: GateConfig = GateConfig()
    candidate: Candidate
    champion: Champion | None = None
    eval: Parts = Field(default=(), description="the parts that the evaluation rows come from")
    split: str = Field(default="", description="digest of the split config of this run's spans")
    slices: tuple[str, ...] = ()
    group: str | None = Field(default=None, description="column whose equal values are resampled together")
    ndcg_at: int | None = Field(default=None, ge=1, description="judge the order within groups too, its first ranks")
    seed: int = 0
    force: bool = False

    @model_validator(mode="after")
    def _has_groups(self) -> GateRequest:
        if self.ndcg_at is not None and self.group is None:
            raise ValueError("ndcg_at is of groups, and no column says them")
        return self


def gate(request: GateRequest, out: Path, monitor: Monitor) -> dict[str, Any]:
    """The stage: decide, and write out/verdict.json. Returns the verdict."""
    verdict = decide(request, monitor)
    (out / "verdict.json").write_text(json.dumps(verdict, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    for reason in verdict["reasons"]:
        monitor.log(reason)
    return verdict


def decide(request: GateRequest, monitor: Monitor | None = None) -> dict[str, Any]:
    """The verdict as JSON: verdict, promote, reasons, metrics, thresholds, comparisons and the settings used."""
    request.config.check(request.task, ranked=request.ndcg_at is not None)
    champion = request.champion
    ranking: dict[str, Any] = {"group": request.group, "ndcg_at": request.ndcg_at}
    candidate_rows = _read(request.candidate.predictions)
    ours = measure_table(candidate_rows, request.task, **ranking)
    metrics: dict[str, Any] = {"candidate": ours, "champion": None}
    thresholds = _thresholds(request.config.thresholds, ours)
    base: dict[str, Any] = {
        "format": 1,
        "task": request.task,
        "rows": len(candidate_rows),
        "candidate": request.candidate.model,
        "champion": {"version": champion.version, "model": champion.model} if champion else None,
        "metrics": metrics,
        "thresholds": thresholds,
        "comparisons": {"overall": [], "slices": [], "left_out": []},
        "settings": request.config.model_dump(mode="json") | {"seed": request.seed, "group": request.group},
    }
    if request.ndcg_at is not None:
        base["settings"]["ndcg_at"] = request.ndcg_at
    if champion and champion.model == request.candidate.model:
        reason = f"the candidate is the champion, version {champion.version}: there is nothing to promote"
        return {"verdict": "already champion", "promote": False, "reasons": [reason], **base}

    blocks: list[tuple[str, str]] = []  # (verdict, reason) of everything against a promotion, the gravest first
    notes: list[str] = []
    if request.candidate.rolled_back is not None:
        why = request.candidate.rolled_back
        blocks.append(("rolled back", f"this model was rolled back ({why}) and returns only by force"))
    unusable = _unusable(candidate_rows, request.task)
    blocks += [("reject", reason) for reason in unusable]
    blocks += [("reject", check["reason"]) for check in thresholds if not check["passed"]]
    if thresholds and all(check["passed"] for check in thresholds):
        notes.append("every threshold is met: " + ", ".join(_met(check) for check in thresholds))

    passed = "promote"
    if champion is None:
        passed = "first model"
        notes.append("there is no champion yet" + ("" if thresholds else " and no threshold is set"))
    elif uncomparable := _uncomparable(request, champion):
        passed = uncomparable[0]
        if request.config.uncomparable == "hold":
            blocks.append((passed, f"{uncomparable[1]}; a person must decide (promote it by force)"))
        else:
            notes.append(f"{uncomparable[1]}; the thresholds alone decide")
    elif not unusable:
        champion_rows = _read(champion.predictions)  # type: ignore[arg-type]
        _check_same_rows(candidate_rows, champion_rows, request)
        metrics["champion"] = measure_table(champion_rows, request.task, **ranking)
        found = compare(
            request.task,
            candidate_rows,
            champion_rows,
            config=request.config,
            slices=request.slices,
            group=request.group,
            ndcg_at=request.ndcg_at,
            seed=request.seed,
            monitor=monitor or Monitor(),
        )
        base["comparisons"] = found.as_json()
        blocks += [("reject", reason) for reason in found.failures(f"version {champion.version}")]
        notes += found.notes(f"version {champion.version}")
    return {**_conclude(request, blocks, notes, passed), **base}


def _conclude(request: GateRequest, blocks: list[tuple[str, str]], notes: list[str], passed: str) -> dict[str, Any]:
    if not blocks and request.config.hold:
        blocks = [("held", "it passed, and the gate is set to hold it for a person to promote")]
    if blocks and request.force:
        reasons = ["promoted by force, against: " + reason for _, reason in blocks]
        return {"verdict": "forced", "promote": True, "reasons": reasons + notes}
    if blocks:
        return {"verdict": blocks[0][0], "promote": False, "reasons": [reason for _, reason in blocks] + notes}
    return {"verdict": passed, "promote": True, "reasons": notes}


def _read(path: Path) -> pa.Table:
    try:
        table = pq.read_table(path)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise DataError(f"predictions cannot be read: {error}", where=str(path)) from None
    if not len(table):
        raise DataError("there are no evaluation rows to judge by", where=str(path), fix="give eval more rows or spans")
    return table


def _unusable(rows: pa.Table, task: Task) -> list[str]:
    _, prediction, _ = columns(rows, task)
    finite = (abs(prediction) < float("inf")).reshape(len(rows), -1).all(1)
    bad = len(rows) - int(finite.sum())
    return (
        [f"{bad:,} of {len(rows):,} predictions {agree(bad, 'is not a finite number', 'are not finite numbers')}"]
        if bad
        else []
    )


def _thresholds(bounds: dict[str, Bounds], metrics: dict[str, float | None]) -> list[dict[str, Any]]:
    checks = []
    for name, bound in bounds.items():
        for side, limit in (("min", bound.min), ("max", bound.max)):
            if limit is None:
                continue
            value = metrics[name]
            passed = value is not None and (value >= limit if side == "min" else value <= limit)
            if value is None:
                reason = f"{name} has no value on these rows, and a threshold asks for one"
            elif side == "min":
                reason = f"{name} is {number(value)}, below the required minimum of {number(limit)}"
            else:
                reason = f"{name} is {number(value)}, above the allowed maximum of {number(limit)}"
            checks.append({"metric": name, "bound": side, "limit": limit, "value": value, "passed": passed})
            checks[-1]["reason"] = None if passed else reason
    return checks


def _met(check: dict[str, Any]) -> str:
    sign = "at least" if check["bound"] == "min" else "at most"
    return f"{check['metric']} {number(check['value'])} ({sign} {number(check['limit'])})"


def _uncomparable(request: GateRequest, champion: Champion) -> tuple[str, str] | None:
    """(verdict, reason) when the champion cannot fairly be held against the candidate."""
    name = f"the champion, version {champion.version},"
    if champion.incompatible is not None or champion.predictions is None:
        return (
            "incompatible champion",
            f"{name} cannot score these rows: {champion.incompatible or 'it has no predictions'}",
        )
    seen = trained_on(champion.train, champion.split, request.eval, request.split)
    if seen:
        shown = some(seen, 5)
        return "not comparable", f"{name} was trained on evaluation rows of this run (spans {shown})"
    return None


def trained_on(train: Parts, train_split: str, evaluation: Parts, evaluation_split: str) -> list[str]:
    """The spans whose evaluation rows a model may have been trained on, in order.

    Two parts of one span are apart only when both come from the same split of it and have different names; a part that
    is "all" of a span overlaps every other.
    """
    by_span: dict[str, set[str]] = {}
    for span, split in train:
        by_span.setdefault(span, set()).add(split)
    seen = {
        span
        for span, split in evaluation
        if (known := by_span.get(span))
        and (split == "all" or "all" in known or split in known or train_split != evaluation_split)
    }
    return sorted(seen)


def _check_same_rows(candidate: pa.Table, champion: pa.Table, request: GateRequest) -> None:
    """DataError unless both tables are about the same rows in the same order."""
    where = str(request.champion.predictions) if request.champion else None
    if len(candidate) != len(champion):
        raise DataError(
            f"the candidate has {counted(len(candidate), 'prediction')}, the champion {len(champion):,}", where=where
        )
    for name in ("row", "label", "weight"):
        if name in candidate.column_names and name in champion.column_names:
            left, right = candidate.column(name), champion.column(name)
            if not left.combine_chunks().equals(right.combine_chunks().cast(left.type)):
                raise DataError(f"the champion's predictions are of other rows: column {name!r} differs", where=where)
