"""The request of the stage that proves the splits free of leakage (`beam_jobs.leakage_check`)."""

from typing import Annotated

from beam_jobs.ingest.request import IngestRequest
from headway.config import Frozen
from headway.stages.ingested import Ingested
from headway.stages.refs import Ref
from headway.stages.stage_class import Key, Stage
from headway.tabular.splits import SpanSplit, SplitConfig
from headway.validation.anomaly import SplitProof


class IngestedSpan(Frozen):
    """A span of the window: its ingest request, and the key index in its ingest output."""

    request: IngestRequest
    notes: Ref[Ingested]

    def as_key(self) -> object:
        return [self.request.span, self.notes]


class SplitsRequest(Stage[SplitProof]):
    name, version, runs = "splits", 5, "beam_jobs.leakage_check:prove"
    split: Annotated[SplitConfig, Key("config")]
    parts: Annotated[dict[str, tuple[SpanSplit, ...]], Key("inputs", "parts")]
    """For each split of the window, its parts: pairs of a span and of a split of that span."""
    spans: Annotated[tuple[IngestedSpan, ...], Key("inputs", "spans")]
    """The spans, in the window's order."""
