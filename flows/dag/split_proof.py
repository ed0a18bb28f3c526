"""The step that checks the splits of a window for leakage: its inputs and its request.

key, request = splits(config, parts, requests, ingested)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_jobs.ingest.range_worker import NOTES
from beam_jobs.ingest.request import IngestRequest
from beam_jobs.leakage_check import SpanOutput, SplitsRequest
from flows.dag.step import Output
from headway.tabular.splits import Part, SplitConfig


def splits(
    config: SplitConfig,
    parts: Mapping[str, Sequence[Part]],
    requests: Mapping[str, IngestRequest],
    ingested: Mapping[str, Output],
) -> tuple[dict[str, Any], Callable[[], SplitsRequest]]:
    """(key, request) of the step.

    Args:
        parts: as `window_splits` gives them.
        requests: what was asked of ingest, by span.
        ingested: its outputs, by span in the window's order.
    """
    used = {name: tuple(of) for name, of in parts.items() if of}
    key = {
        "config": config.model_dump(mode="json"),
        "inputs": {
            "parts": {name: [list(part) for part in of] for name, of in used.items()},
            "spans": [[span, out.fingerprint] for span, out in ingested.items()],
        },
    }

    def request() -> SplitsRequest:
        spans = tuple(SpanOutput(request=requests[span], notes=out.path / NOTES) for span, out in ingested.items())
        return SplitsRequest(split=config, spans=spans, parts=used)

    return key, request
