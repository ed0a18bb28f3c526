"""The gate: a candidate is judged by its predictions, beside the champion's and the baselines'."""

from headway.evaluation.gate.gate_request import (
    VERSION,
    Candidate,
    Champion,
    GateRequest,
    Parts,
    newer,
    trained_on,
)

__all__ = [
    "VERSION",
    "Candidate",
    "Champion",
    "GateRequest",
    "Parts",
    "newer",
    "trained_on",
]
