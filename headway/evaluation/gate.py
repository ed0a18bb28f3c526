"""The gate: decides whether a candidate is promoted.

    verdict = decide(GateRequest(task="binary", candidate=..., champion=..., config=GateConfig()))
    verdict.status, verdict.basis, verdict.checks

It reads predictions only, so neither a model nor TensorFlow is needed. Evaluation wrote them to Parquet files (label,
prediction, weight, slice columns; the same rows for all models). docs/gate.md has the rules in a table. The status is one of

    promoted        better than the champion; trained on newer data and not blocked; a first model that is better than a
                    constant beyond chance; or by force, since a person said so
    kept            the champion stays: the candidate is neither blocked nor better, or is the champion itself
    rejected        blocked: worse than the champion by more than the tolerance, under a threshold, no better than a
                    constant, or a model that was rolled back
    needs a person  it passed and the config lets a person promote; it cannot be compared; or the rows cannot tell
                    whether a first model is better than a constant

A candidate is blocked if it is worse than the champion beyond chance by more than the tolerance, over all rows or on a
slice. With newer data it is also blocked if it is that much worse than the anchor: the last champion that was a first
model, was better than its predecessor, or was chosen by a person. So small losses within the tolerance cannot add up.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headway.evaluation.baseline import (
    CONSTANT,
    BaselineTest,
    compare_with_baseline,
    constant,
    constant_predictions,
    judge_against_baseline,
    judge_first_model,
)
from headway.evaluation.config import Bounds, GateConfig, slice_and_value
from headway.evaluation.predictions import (
    OF_ROWS,
    check_same_rows,
    measured,
    metrics_of,
    metrics_without_value,
    population_size,
    read_predictions,
    rows_of,
    unusable_text,
)
from headway.evaluation.requests import Champion, GateRequest, newer_data_check, spans_trained_on
from headway.evaluation.slices import slice_rows
from headway.evaluation.tolerance import Comparison, Margins, decay_checks, made_up_for, with_errors, within_tolerances
from headway.evaluation.units import with_resampling_units
from headway.evaluation.verdict import (
    ANCHOR,
    CHAMPION,
    GRAVEST_FIRST,
    KEPT,
    NEEDS_PERSON,
    PROMOTED,
    REJECTED,
    THRESHOLD,
    Basis,
    Check,
    LeftOut,
    Metrics,
    MetricsByModel,
    MetricsWithErrors,
    Model,
    Status,
    Verdict,
    is_better,
    write_verdict,
)
from headway.metrics.base import Floats, Metric, Rows
from headway.metrics.classification import ORDER
from headway.monitor import Monitor
from headway.stages.refs import Ref
from headway.tasks.base import LabelFacts
from headway.tasks.table import task_of

NOT_CHECKED = "not checked"


def gate(request: GateRequest, out: Path, monitor: Monitor) -> dict[str, Any]:
    """Decide about the candidate, and write the verdict to `out`. Returns a `headway.evaluation.verdict.Decision` as JSON."""
    verdict = decide(request, monitor)
    write_verdict(verdict, out)
    return {"status": verdict.status}


def decide(request: GateRequest, monitor: Monitor | None = None) -> Verdict:
    """Returns the verdict about the candidate. Raises ConfigError if the config does not fit the task."""
    request.config.check(
        request.task,
        ranked=request.ranked,
        items=request.item is not None,
        retrieval=request.retrieval,
        own=request.metrics,
    )
    return _Decision(request, monitor or Monitor()).verdict()


class _Decision:
    """The decision about one candidate: collects its checks, and makes the verdict from them."""

    def __init__(self, request: GateRequest, monitor: Monitor):
        self.request, self.config, self.monitor = request, request.config, monitor
        self.models = ScoredModels(request, monitor)
        self.primary = self.config.primary_metric(request.task, ranked=request.ranked)
        self.options: dict[str, Any] = {
            "confidence": self.config.confidence,
            "seed": request.seed,
            "check": monitor.check,
        }
        """Keyword arguments of every comparison with a baseline."""
        self.spans = tuple(sorted({span for span, _ in request.eval}))
        self.values = self.models.measured(self.models.candidate)
        self.broken = unusable_text(self.models.candidate)
        self.tolerances = self._tolerances()
        self.checks: list[Check] = []
        self.champion: Metrics | None = None
        self.anchor: Metrics | None = None
        """The metrics of the champion and of the anchor; None until the candidate is compared with that model."""
        self.left_out: tuple[LeftOut, ...] = ()
        self.compared = False
        self.within_anchor = True
        """Whether the candidate is not blocked by the comparison with the anchor."""

    def verdict(self) -> Verdict:
        request, champion = self.request, self.request.champion
        if champion and champion.model == request.candidate.model:
            self._add(Check(name="same model", against=_name(champion), outcome="the champion"), KEPT)
            return self._verdict(KEPT, "same model")
        if request.candidate.rolled_back is not None:
            why = request.candidate.rolled_back
            self._add(Check(name="rolled back before", outcome="rolled back", why=why), REJECTED)
        if self.broken:
            self._add(Check(name="usable predictions", outcome="failed", why=self.broken), REJECTED)
        for check in threshold_checks(self.config, self.models, self.values):
            self._add(check)
        if not self.broken:
            for names in metrics_without_value(self.tolerances, self.values, first=champion is None):
                self._add(Check(name="has a value", outcome="no value", names=names), REJECTED)
            self._beside_baselines()
        basis: Basis | None = "first model"
        if champion is not None:
            basis = None if self.broken else self._beside_champion(champion)
        if self.config.hold and not self._status():
            self._add(Check(name="hold", outcome="held"), NEEDS_PERSON)
        status = self._status()
        if status and request.force:
            return self._verdict(PROMOTED, "forced")
        return self._verdict(status or PROMOTED, None if status else basis)

    def _add(self, check: Check, status: Status | None = None) -> Check:
        """Record a check, and return it with its `spans` and `status` filled in.

        Args:
            status: the status that the check leads to, since it failed; None: it passed, or has its status already.
        """
        facts: dict[str, Any] = {"spans": self.spans}
        if status is not None:
            facts |= {"passed": False, "status": status}
        self.checks.append(check.model_copy(update=facts))
        return self.checks[-1]

    def _status(self) -> Status | None:
        """Returns the gravest status among the failed checks; None: nothing speaks against a promotion."""
        found = {check.status for check in self.checks if not check.passed}
        return next((status for status in GRAVEST_FIRST if status in found), None)

    def _tolerances(self) -> dict[str, float | str]:
        """Returns the tolerance of each metric by which models are compared. Where the config names no tolerances, a
        metric of the mean prediction (`Metric.of_the_mean`) that has no value is left out."""
        tolerances = self.config.tolerances(self.models.task, ranked=self.request.ranked)
        return {
            name: tolerance
            for name, tolerance in tolerances.items()
            if self.config.tolerance or self.values[name] is not None or not self.models.judging[name].of_the_mean
        }

    # --- beside the champion, and the anchor

    def _beside_champion(self, champion: Champion) -> Basis | None:
        """Compare with the champion and the anchor. Returns what a promotion would rest on; None: there is nothing."""
        cause = self._not_comparable(champion)
        if cause is not None:
            self._add(cause.model_copy(update={"name": "comparable"}), NEEDS_PERSON)
            return None
        compared = self._compare(champion, self.request.slices)
        self.compared, self.left_out = True, compared.left_out
        self.champion = self.models.measured(self.models.of(champion))
        overall = []
        for check in compared.checks(CHAMPION, _name(champion)):
            kept = self._add(check.model_copy(update={"concern": check.perhaps_beyond}), _blocked(check))
            overall += [kept] if check.slice is None else []
        for why, names in compared.too_few().items():
            too_few = Check(name="comparable", outcome="too few rows", why=why, names=tuple(names))
            self._add(too_few.model_copy(update={"against": _name(champion)}), NEEDS_PERSON)
        self._champion_decay(champion, overall)
        data = newer_data_check(self.request.candidate, champion)
        better = is_better(overall, self.primary)
        self._beside_anchor(blocks=data.passed and not better)
        if better:
            return "better"
        if data.passed:
            self._add(data)
            return "newer data"
        if self._status() != REJECTED:
            self._add(data, KEPT)
        return None

    def _beside_anchor(self, *, blocks: bool) -> None:
        """Compare over all rows with the anchor, an older version that catches a series of small losses. Without one, do nothing.

        Args:
            blocks: whether to reject a candidate that is worse than the anchor by more than the tolerance; else only report it.
        """
        anchor = self.request.anchor
        if anchor is None:
            return
        if (cause := self._not_comparable(anchor)) is not None:
            self._add(cause.model_copy(update={"name": ANCHOR}))
            return
        compared = self._compare(anchor, ())
        self.anchor = self.models.measured(self.models.of(anchor))
        for check in compared.checks(ANCHOR, _name(anchor)):
            blocked = _blocked(check)
            self.within_anchor &= blocked is None
            if blocked is not None and not blocks:
                check, blocked = check.model_copy(update={"passed": True, "concern": True}), None
            self._add(check, blocked)

    def _champion_decay(self, champion: Champion, compared: Sequence[Check]) -> None:
        """Check whether the champion has become worse since its promotion, and whether the candidate makes up for the loss."""
        if champion.worth is None:
            return
        judging = self.models.judging
        today = self.models.metrics_with_errors(self.models.of(champion), [judging[name] for name in self.tolerances])
        options: dict[str, Any] = {"version": champion.version, "confidence": self.config.confidence}
        found = decay_checks(champion.worth, today, self.tolerances, judging, **options)
        gains = {check.metric: check.gained for check in compared}
        mended: bool | None = all(made_up_for(check, gains[check.metric]) for check in found)
        if self.request.candidate.predictions == champion.predictions:
            mended = None  # it is the champion alone that is looked at
        before = tuple(sorted({span for span, _ in champion.eval}))
        for check in found:
            self._add(check.model_copy(update={"mended": mended, "names": before, "concern": not mended}))

    def _compare(self, other: Champion, slices: tuple[str, ...]) -> Comparison:
        models, theirs = self.models, self.models.of(other)
        assert other.predictions is not None
        models.check_same(theirs, f"version {other.version}'s", other.predictions)
        rows = models.rows(models.candidate)
        before = rows.predicted(models.predictions(theirs))
        margins = Margins(models.task, self.tolerances, self.request.label, before, judging=models.judging)
        before = before.keeping(ORDER)
        return within_tolerances(
            models.candidate,
            rows,
            before,
            margins=margins,
            config=self.config,
            slices=slices,
            seed=self.request.seed,
            monitor=models.monitor,
        )

    def _not_comparable(self, other: Champion) -> Check | None:
        """Returns a check that says why the candidate cannot fairly be compared with an earlier version; None: it can."""
        request = self.request
        cause = Check(name="", against=_name(other), outcome="")
        if other.incompatible is not None or other.predictions is None:
            why = other.incompatible or "it has no predictions"
            return cause.model_copy(update={"outcome": "incompatible", "why": why})
        spans = spans_trained_on(other.train, other.split, request.eval, request.split)
        if spans:
            return cause.model_copy(update={"outcome": "trained on these rows", "names": tuple(spans)})
        if broken := unusable_text(self.models.of(other)):
            return cause.model_copy(update={"outcome": "not finite", "why": broken})
        return None

    # --- beside the baselines

    def _beside_baselines(self) -> None:
        """Compare the candidate with the constant and with each other baseline, and record the checks."""
        metrics = [self.models.judging[name] for name in dict.fromkeys((self.primary, *self.tolerances))]
        metrics = [metric for metric in metrics if metric.higher_is_better is not None and not metric.of_the_mean]
        if any(value is not None for value in self.values.values()):
            self._beside_constant(metrics)
        for name, predictions in self.request.baselines.items():
            table = self.models.table(predictions)
            self.models.check_same(table, f"the baseline {name}'s", predictions)
            if not unusable_text(table):
                self._beside_baseline(name, self.models.predictions(table), metrics)

    def _beside_constant(self, metrics: Sequence[Metric]) -> None:
        task, facts = self.models.task, self.request.label or LabelFacts()
        rows = self.models.rows(self.models.candidate)
        decided: str | None = None
        if self.config.baseline:
            loss = self.models.judging[task.metrics[0].name]
            directed = loss.higher_is_better is not None and not loss.of_the_mean
            objective = [] if self.request.own_objective or not directed or loss in metrics else [loss]
            if self.request.champion is None:
                trained_for = [self.primary] if self.request.own_objective else [m.name for m in (*metrics, *objective)]
                every = [*metrics, *objective]
                tested = judge_first_model(task, facts, rows, metrics=every, trained_for=trained_for, **self.options)
            else:
                tested = judge_against_baseline(task, facts, rows, metrics=metrics, **self.options)
            decided = self._decide(tested, CONSTANT)
        for metric in metrics:
            predicted = constant_predictions(task, facts, metric, len(rows))
            if predicted is not None and metric.name != decided:
                self._told(CONSTANT, predicted, metric)

    def _beside_baseline(self, name: str, predicted: Floats, metrics: Sequence[Metric]) -> None:
        """Compare the candidate with a baseline. Only a baseline in `request.to_beat` can block it; others are reported."""
        primary, rows = self.models.judging[self.primary], self.models.rows(self.models.candidate)
        decided: str | None = None
        if self.config.baseline and name in self.request.to_beat:
            facts = self.request.label or LabelFacts()
            tested = judge_against_baseline(
                self.models.task, facts, rows, metrics=[primary], others=predicted, name=name, **self.options
            )
            decided = self._decide(tested, name)
        for metric in metrics:
            if metric.name != decided:
                self._told(name, predicted, metric, whatever=metric is primary)

    def _decide(self, tested: BaselineTest | None, name: str) -> str | None:
        """Record the test against a baseline that must be beaten. Returns the metric that decided it; None: no metric did."""
        if tested is None:
            return None
        decisive = tested.decisive
        check = decisive or Check(name=f"{name} baseline", against=name, outcome="", rows=len(self.models.candidate))
        check = check.model_copy(update={"outcome": tested.outcome})
        status: Status | None = None
        if tested.outcome != "better":
            open_question = self.request.champion is None and tested.outcome in ("cannot tell", "too few rows")
            status = NEEDS_PERSON if open_question else REJECTED
            if open_question:
                what = ", ".join(filter(None, [check.why, self.models.drawn_by]))
                check = check.model_copy(update={"why": what})
        self._add(check, status)
        if tested.beside is not None and not tested.beside.worse:
            self._add(tested.beside)
        return None if decisive is None else decisive.metric

    def _told(self, name: str, predicted: Floats, metric: Metric, *, whatever: bool = False) -> None:
        """Record the comparison with a baseline by one metric, if the baseline is better beyond chance.

        Args:
            whatever: record the comparison in any case.
        """
        rows = self.models.rows(self.models.candidate)
        test = compare_with_baseline(rows, predicted, metric, name=name, **self.options)
        if test is not None and (whatever or test.worse):
            self._add(test.model_copy(update={"concern": test.worse}))

    # --- the verdict

    def _verdict(self, status: Status, basis: Basis | None) -> Verdict:
        request, models = self.request, self.models
        compared = [models.judging[name] for name in self.tolerances]
        return Verdict(
            task=str(request.task),
            status=status,
            basis=basis,
            anchors=basis in ("first model", "forced") or (basis == "better" and self.within_anchor),
            checks=tuple(self.checks),
            primary=self.primary,
            better=models.judging[self.primary].better,
            rows=len(models.candidate),
            sample_of=population_size(models.candidate),
            drawn_by=models.drawn_by if self.compared else None,
            spans=self.spans,
            candidate=request.candidate.model,
            champion=_model(request.champion),
            anchor=_model(request.anchor),
            metrics=MetricsByModel(
                candidate=self.values, champion=self.champion, anchor=self.anchor, baselines=models.baselines()
            ),
            slices_compared=len({(c.slice, c.slice_value) for c in self.checks if c.name == CHAMPION and c.slice}),
            left_out=self.left_out,
            slices_chosen=request.slices if request.slices_chosen and self.compared else None,
            worth=None if self.broken else models.metrics_with_errors(models.candidate, compared),
        )


def _blocked(check: Check) -> Status | None:
    return None if check.passed else REJECTED


def _name(version: Champion) -> str:
    return f"version {version.version}"


def _model(version: Champion | None) -> Model | None:
    return None if version is None else Model(version=version.version, model=version.model)


# --- thresholds


def threshold_checks(config: GateConfig, models: "ScoredModels", values: dict[str, float | None]) -> Iterator[Check]:
    """Yields a check of the candidate for each bound (min or max) of each metric's threshold, over all rows and on slices.

    Args:
        values: the candidate's metrics over all rows.
    """
    for name, threshold in config.thresholds.items():
        measured = Check(name=THRESHOLD, metric=name, value=values[name], rows=len(models.candidate), outcome="")
        yield from _sides(measured, threshold)
        for key, bounds in threshold.slices.items():
            yield from _on_slice(config, models, name, key, bounds)


def _sides(measured: Check, bounds: Bounds) -> Iterator[Check]:
    value = measured.value
    for side, limit in (("at least", bounds.min), ("at most", bounds.max)):
        if limit is None:
            continue
        passed = value is not None and (value >= limit if side == "at least" else value <= limit)
        yield measured.model_copy(
            update={
                "allowed": limit,
                "limit": side,
                "passed": passed,
                "status": None if passed else REJECTED,
                "outcome": "met" if passed else "missed" if value is not None else "no value",
            }
        )


def _on_slice(config: GateConfig, models: "ScoredModels", name: str, key: str, bounds: Bounds) -> Iterator[Check]:
    """Yields the checks of a metric's bounds on a slice: on one value (`carrier=UA`), or on all with enough rows (`carrier`)."""
    column, only = slice_and_value(key)
    rows, metric = models.rows(models.candidate), models.judging[name]
    few = unknown = 0
    found = False
    check = Check(name=THRESHOLD, metric=name, slice=column, slice_value=only, outcome="")
    for value, at in slice_rows(models.candidate, column):
        if only not in (None, value):
            continue
        if len(at) < config.slice_min_rows:
            few += 1
            continue
        measured = metric.cached_value(rows.at(at))
        if measured is None and only is None:
            unknown += 1
            continue
        found = True
        update = {"slice_value": value, "value": measured, "rows": len(at)}
        yield from _sides(check.model_copy(update=update), bounds)
    unchecked = check.model_copy(update={"allowed": config.slice_min_rows, "outcome": NOT_CHECKED})
    if not found:
        why = "no value has enough rows" if only is None else "few rows" if few else "no rows"
        yield unchecked.model_copy(update={"why": why, "count": unknown, "passed": False, "status": REJECTED})
        return
    for why, count in (("few rows", few), ("no value", unknown)):
        if count:
            yield unchecked.model_copy(update={"why": why, "count": count})


# --- every model's predictions of the same rows


class ScoredModels:
    """The predictions of all models on the same eval rows, as Arrow tables and as `Rows`, and the models' metrics."""

    def __init__(self, request: GateRequest, monitor: Monitor):
        self.request, self.monitor = request, monitor
        self.task = task_of(request.task)
        self.judging = {
            m.name: m for m in metrics_of(self.task, request.ndcg_at, request.metrics, request.item, request.retrieval)
        }
        self._read: dict[Path, pa.Table] = {}
        self._reads_columns = any(metric.reads_columns for metric in self.judging.values())
        self.candidate = self.table(request.candidate.predictions)
        rows = rows_of(self.candidate, self.task, request.group, columns=self._reads_columns)
        self._rows, self.drawn_by = with_resampling_units(request.units, self.candidate, rows, group=request.group)
        self._last: tuple[pa.Table, Rows] | None = None
        self._orders: dict[int, dict[object, Any]] = {}

    def table(self, predictions: Ref[Any]) -> pa.Table:
        """Returns the predictions in a file as a table; each file is read once."""
        path, request = predictions.file, self.request
        if path not in self._read:
            candidate = not self._read  # which is read first
            columns = request.columns if candidate or self._reads_columns else request.measured_columns
            table = read_predictions(path, columns, group=request.group, unit=candidate)
            for name in () if candidate else {*OF_ROWS} & {*table.column_names} & {*self.candidate.column_names}:
                if table[name].equals(self.candidate[name]):  # of what is the same of all models there is one
                    table = table.set_column(table.column_names.index(name), name, self.candidate[name])
            self._read[path] = table
        return self._read[path]

    def of(self, champion: Champion) -> pa.Table:
        """Returns a champion's predictions as a table, and drops the cached `Rows` of the table used before."""
        assert champion.predictions is not None
        self._drop()
        return self.table(champion.predictions)

    def check_same(self, table: pa.Table, whose: str, predictions: Ref[Any]) -> None:
        check_same_rows(self.candidate, table, whose, str(predictions.path))

    def rows(self, table: pa.Table) -> Rows:
        """Returns a table as `Rows`. Rows of the last table cache all that metrics compute, rows of others only their order."""
        if self._last is None or self._last[0] is not table:
            self._drop()
            rows = replace(self._rows, memo=self._orders.get(id(table), {}))
            if table is not self.candidate:
                theirs = rows_of(table, self.task, columns=self._reads_columns)
                rows = replace(rows, prediction=theirs.prediction, columns=theirs.columns)
            self._last = table, rows
        return self._last[1]

    def _drop(self) -> None:
        if self._last is not None:
            self._orders[id(self._last[0])] = self._last[1].keeping(ORDER).memo
        self._last = None

    def predictions(self, table: pa.Table) -> Floats:
        """Returns the predictions of a table as an array. The `Rows` that `rows` has cached stay cached."""
        return rows_of(table, self.task).prediction

    def measured(self, table: pa.Table) -> dict[str, float | None]:
        """Returns the value of each metric for the model with these predictions, by the metric's name."""
        return measured(tuple(self.judging.values()), self.rows(table))

    def metrics_with_errors(self, table: pa.Table, metrics: Sequence[Metric]) -> MetricsWithErrors:
        """Returns a model's value, gain over the constant and standard error, for each metric that has an error."""
        request = self.request
        return with_errors(
            self.task, self.rows(table), metrics, label=request.label, seed=request.seed, check=self.monitor.check
        )

    def baselines(self) -> dict[str, Any]:
        """Returns the metrics of the constant, and of every other baseline, by the baseline's name."""
        baselines: dict[str, Any] = {}
        if self.request.label is not None:
            metrics = tuple(self.judging.values())
            values = constant(self.task, self.request.label, self.rows(self.candidate), metrics)
            if values is not None:
                baselines["constant"] = values
        for name, predictions in self.request.baselines.items():
            table = self.table(predictions)
            self.check_same(table, f"the baseline {name}'s", predictions)
            baselines[name] = self.measured(table)
        return baselines
