"""The predictions of every model before the gate, each read once, and their metrics.

models = ScoredModels(request, monitor)
models.measured(models.candidate)                # {"loss": 0.31, "auc": 0.89, ...}
models.of(request.champion)                      # its predictions of the same rows
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headway.evaluation.baseline import constant
from headway.evaluation.champion_decay import Worth, worth
from headway.evaluation.gate.gate_request import Champion, GateRequest
from headway.evaluation.gate_checks import OF_ROWS, check_same_rows, read_predictions, rows_by_value
from headway.evaluation.metrics import measured, metrics_of, rows_of
from headway.evaluation.units import drawn_together
from headway.metrics.base import Metric, Rows
from headway.monitor import Monitor
from headway.stages.refs import Ref
from headway.tasks.table import task_of


class ScoredModels:
    """Predictions as tables and as rows, and what is measured of them."""

    def __init__(self, request: GateRequest, monitor: Monitor):
        self.request, self.monitor = request, monitor
        self.task = task_of(request.task)
        self.judging = {
            m.name: m for m in metrics_of(self.task, request.ndcg_at, request.metrics, request.item, request.retrieval)
        }
        self._read: dict[Path, pa.Table] = {}
        self._by_value: dict[str, Mapping[str, int]] = {}
        self._reads_columns = any(metric.reads_columns for metric in self.judging.values())
        self.candidate = self.table(request.candidate.predictions)
        rows = rows_of(self.candidate, self.task, request.group, columns=self._reads_columns)
        self._rows, self.drawn_by = drawn_together(request.units, self.candidate, rows, group=request.group)
        self._last: tuple[pa.Table, Rows] | None = None

    def table(self, predictions: Ref[Any]) -> pa.Table:
        """The predictions in a file, read once."""
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
        """The predictions of a champion; what was computed of the last rows goes."""
        assert champion.predictions is not None
        self._last = None
        return self.table(champion.predictions)

    def check_same(self, table: pa.Table, whose: str, predictions: Ref[Any]) -> None:
        check_same_rows(self.candidate, table, whose, str(predictions.path))

    def rows(self, table: pa.Table) -> Rows:
        """The rows of a table; those of the last one are kept, with what metrics computed of them."""
        if self._last is None or self._last[0] is not table:
            self._last = None
            rows = replace(self._rows, memo={})
            if table is not self.candidate:
                theirs = rows_of(table, self.task, columns=self._reads_columns)
                rows = replace(rows, prediction=theirs.prediction, columns=theirs.columns)
            self._last = table, rows
        return self._last[1]

    def rows_by_value(self, column: str) -> Mapping[str, int]:
        """How many rows of all have each value of a slice, where the candidate's are a sample of them."""
        if column not in self._by_value:
            self._by_value[column] = rows_by_value(self.request.candidate.predictions.file, self.candidate, column)
        return self._by_value[column]

    def judged(self, name: str) -> tuple[Rows, Metric]:
        """The candidate's rows, and a metric by its name."""
        return self.rows(self.candidate), self.judging[name]

    def measured(self, table: pa.Table) -> dict[str, float | None]:
        """Every metric of a model."""
        return measured(tuple(self.judging.values()), self.rows(table))

    def worth(self, table: pa.Table, metrics: Sequence[Metric]) -> Worth:
        """These metrics of a model, with their standard errors."""
        request = self.request
        return worth(
            self.task,
            self.rows(table),
            metrics,
            label=request.label,
            seed=request.seed,
            check=self.monitor.check,
        )

    def baselines(self) -> dict[str, Any]:
        """The metrics of the constant, and of every other baseline on the same rows."""
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
