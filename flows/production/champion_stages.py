"""The champion on one span that it has not seen: ingest of the span, and the champion's predictions of its rows.

steps = ChampionSteps(replace(run_spec, window=1, until="2013-05", last="ingest"), engine, freeze=False)
scored = steps.score(champion, transform)     # the output of an evaluation; None where no row has a label yet
"""

from __future__ import annotations

from flows.dag.data_stages import DataSteps
from flows.dag.run_spec import EVALUATE
from flows.dag.step import Output
from headway.registry.registry import Version
from tfcore.data.examples import Examples
from tfcore.evaluation.request import EvaluateRequest, SavedModel
from tfcore.transform.parameters import TransformParameters


class ChampionSteps(DataSteps):
    """The steps from one span's raw files to the champion's predictions of it."""

    def score(self, champion: Version, transform: Output) -> Output | None:
        """Ingest the span and predict its rows, whatever split they are in: the champion was trained on none of them.

        Args:
            transform: the output of the transform that the champion was trained with, which says what the label is.
        """
        self._ingest()
        (ingested,) = self.ingested.values()
        result = ingested.get()
        parts = [part for part, facts in result["splits"].items() if facts["rows"]]
        if not parts:
            return None
        kept = self._kept()
        key = {
            "config": self.pipeline.evaluation.model_dump(mode="json", include={"batch_size"}),
            "columns": kept,
            "model": {"version": champion.number, "export": champion.facts.get("export")},
            "inputs": {
                "transform": transform.fingerprint,
                "examples": [[ingested.fingerprint, part] for part in parts],
            },
        }

        def request() -> EvaluateRequest:
            return EvaluateRequest(
                model=SavedModel(path=champion.saved_model),
                examples=tuple(Examples(path=ingested.path, split=part, result=result) for part in parts),
                transform=TransformParameters.model_validate(transform.get()["parameters"]),
                columns=tuple(kept),
                batch_size=self.pipeline.evaluation.batch_size,
            )

        return self._call(EVALUATE, f"evaluate champion {champion.number} on {self.window[0]}", key, request)

    def _kept(self) -> list[str]:
        """The columns that the predictions keep: those that metrics, slices of thresholds and groups are made of."""
        named = [name for name in (self.group, self.pipeline.evaluation.item) if name]
        return sorted({*named, *self.pipeline.judged_columns} & set(self.columns.stored))

    @property
    def group(self) -> str | None:
        """The column whose equal values are one group, if rows are ranked within groups."""
        column = self.columns.of_role("group")
        return None if column is None else column.name
